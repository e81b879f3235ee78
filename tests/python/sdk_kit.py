"""What tests of the SDK share: it is installed into a folder of its own, and plugins are built with it alone."""
import atexit
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import galley_test
from galley_test import binary, check, from_config, source

outside = pathlib.Path(tempfile.mkdtemp(prefix='galley-sdk-'))
atexit.register(shutil.rmtree, outside, ignore_errors=True)


def command(*words):
    environment = {k: v for k, v in os.environ.items() if k not in ('CFLAGS', 'CXXFLAGS', 'CPPFLAGS', 'CPATH', 'CMAKE_GENERATOR')}
    r = subprocess.run(list(map(str, words)), capture_output=True, text=True, errors='replace', env=environment)
    if r.returncode:
        sys.exit(f'FAILED: {" ".join(map(str, words))}: exit code {r.returncode}\n{r.stdout[-3000:]}{r.stderr[-3000:]}')
    return r.stdout


@functools.cache
def install():
    """The SDK in a folder of its own: once for all cases of a test."""
    command('cmake', '--install', binary, '--component', 'sdk', '--prefix', outside / 'prefix')


def check_sources(build_folder, name):
    """Every file that the compiler opened is of the system, of the installed SDK or of the folder itself."""
    depfiles = list(build_folder.rglob('*.d'))
    check(depfiles, f'{name}: the build tells no dependencies')
    for depfile in depfiles:
        check(str(source) not in depfile.read_text(), f'{name}: {depfile.name} names a file of the checkout')
    check(str(source) not in (build_folder / 'compile_commands.json').read_text(), f'{name}: the checkout is named in a compile command')


def configure_and_build(folder, name):
    """Builds a project with find_package(galley-sdk), and answers where its plugins lie."""
    install()
    command('cmake', '-S', folder, '-B', folder / 'build', f'-DCMAKE_PREFIX_PATH={outside / "prefix"}', '-DCMAKE_BUILD_TYPE=Debug', '-DCMAKE_CXX_FLAGS_DEBUG=-O0', '-DCMAKE_EXPORT_COMPILE_COMMANDS=ON')
    command('cmake', '--build', folder / 'build', '--parallel', '2')
    check_sources(folder / 'build', name)
    return folder / 'build' / 'plugins'


def build(name, folder, cmakelists=None):
    """Copies a plugin's folder out of the tree and builds it there."""
    shutil.copytree(folder, outside / name)
    if cmakelists:
        (outside / name / 'CMakeLists.txt').write_text(cmakelists)
    return configure_and_build(outside / name, name)


def build_together(folders, definitions):
    """Builds the plugins of these folders as one project, each with plugin.cpp alone."""
    project = outside / 'together'
    lines = ['cmake_minimum_required(VERSION 3.25)', 'project(together LANGUAGES CXX)', 'find_package(galley-sdk REQUIRED)']
    for name, folder in folders.items():
        shutil.copytree(folder, project / name)
        own = [f'add_compile_definitions({definitions[name]})'] if name in definitions else []
        (project / name / 'CMakeLists.txt').write_text('\n'.join([*own, 'galley_add_plugin(MANIFEST plugin.toml SOURCES plugin.cpp)', '']))
        lines.append(f'add_subdirectory({name})')
    (project / 'CMakeLists.txt').write_text('\n'.join(lines + ['']))
    return configure_and_build(project, 'together')


def cases_of_ops(id, plugins, **environment):
    """The test of kernels on the ops of a plugin; without GoogleTest there is none."""
    tests = binary / 'tests' / 'bin' / 'models'
    name = re.sub('[-.]', '_', id)
    if tests.exists():
        r = subprocess.run([tests, f'--gtest_filter=Ops/Kernel.*/{name}_*', '--gtest_brief=1'], capture_output=True, text=True, errors='replace',
                           env=dict(os.environ, GALLEY_TEST_PLUGINS=str(plugins / id), **environment))
        check(r.returncode == 0 and re.search(r'PASSED  \] [1-9]', r.stdout), f'{id}: the cases of its ops: {r.stdout[-2000:]}{r.stderr[-1000:]}')


DATA = 'data.text { files = { "text.txt" }, tokenizer = "bytes", validation = 0.2 }'


def tensors(run):
    """The values of every tensor that a run's model has."""
    return {name: values for name, (_, _, values) in galley_test.load(run.path / 'model' / 'model.safetensors').items()}


def llama(folder=None):
    """A small model, with random weights or those of a folder."""
    if folder:
        return galley_test.from_folder(folder)
    return from_config('llama', vocab_size=256, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                       max_position_embeddings=64, rms_norm_eps=1e-5)


def in_every_segment(made, plugins, name):
    """What the run left gives under --reference the same when it is evaluated, sampled and exported."""
    validated = [x['validation_loss'] for x in made.lines if 'validation_loss' in x]
    for words in (('eval', made.path, '--json'), ('sample', made.path, '--prompt', 'one', '--tokens', '4'), ('export', made.path, '--out', f'{name}-exported')):
        said = galley_test.run(*words, *plugins, '--reference')
        if words[0] == 'eval':
            loss = json.loads(said.stdout)['validation_loss']
            check(loss == validated[-1], f'{name}: eval says {loss}, the last validation {validated[-1]}')
    return validated


def states_of(run):
    return {k: x for file in sorted((run.path / 'state').rglob('*.safetensors')) for k, x in galley_test.load(file).items()}


def write_text():
    """What DATA reads."""
    pathlib.Path('text.txt').write_text('one two three four five six seven eight nine ten. ' * 60)
