#!/usr/bin/env python3
"""Plugins that are built with the installed SDK alone, in folders that hold nothing of this repository: `adamw` gives the bytes that the
built-in one gives, and the templates, one of them in C and nothing else, train."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import galley_test
from galley_test import binary, check, finish, fresh_folder, from_config, recipe, source, train, use

fresh_folder()
outside = pathlib.Path(tempfile.mkdtemp(prefix='galley-sdk-'))


def command(*words):
    environment = {k: v for k, v in os.environ.items() if k not in ('CFLAGS', 'CXXFLAGS', 'CPPFLAGS', 'CPATH', 'CMAKE_GENERATOR')}
    r = subprocess.run(list(map(str, words)), capture_output=True, text=True, errors='replace', env=environment)
    if r.returncode:
        sys.exit(f'FAILED: {" ".join(map(str, words))}: exit code {r.returncode}\n{r.stdout[-3000:]}{r.stderr[-3000:]}')
    return r.stdout


def build(name, folder, cmakelists=None):
    """Copies a plugin's folder out of the tree, builds it there with find_package(galley-sdk), and answers where its plugins lie."""
    shutil.copytree(folder, outside / name)
    if cmakelists:
        (outside / name / 'CMakeLists.txt').write_text(cmakelists)
    build_folder = outside / name / 'build'
    command('cmake', '-S', outside / name, '-B', build_folder, f'-DCMAKE_PREFIX_PATH={outside / "prefix"}', '-DCMAKE_BUILD_TYPE=Debug',
            '-DCMAKE_EXPORT_COMPILE_COMMANDS=ON')
    command('cmake', '--build', build_folder)
    # Every file that the compiler opened is of the system, of the installed SDK or of the folder itself.
    depfiles = list(build_folder.rglob('*.d'))
    check(depfiles, f'{name}: the build tells no dependencies')
    for depfile in depfiles:
        check(str(source) not in depfile.read_text(), f'{name}: {depfile.name} names a file of the checkout')
    check(str(source) not in (build_folder / 'compile_commands.json').read_text(), f'{name}: the checkout is named in a compile command')
    return build_folder / 'plugins'


def home_without(plugin):
    """The program and what it needs beside itself, less one plugin."""
    home = outside / 'home'
    shutil.copytree(binary / 'plugins', home / 'plugins', ignore=lambda at, names: [plugin] if pathlib.Path(at) == binary / 'plugins' else [])
    shutil.copytree(binary / 'models', home / 'models')
    shutil.copy2(galley_test.program, home / 'galley')
    return str(home / 'galley')


def same_bytes():
    model = from_config('gpt2', vocab_size=97, n_positions=32, n_embd=48, n_layer=2, n_head=4)
    path = recipe('adamw.lua', model, 'data.random {}', use('adamw', lr=1e-2, betas=[0.9, 0.95], weight_decay=0.1, amsgrad=True), use('clip', norm=1.0),
                  batch=4, length=32, steps=8, seed=7, save=dict(every=4))
    built_in = train(path, 'built-in')
    plugins = build('adamw', source / 'plugins' / 'adamw', '''cmake_minimum_required(VERSION 3.25)
project(adamw LANGUAGES CXX)
find_package(galley-sdk REQUIRED)
galley_add_plugin(MANIFEST plugin.toml SOURCES plugin.cpp KERNELS_CPU cpu.cpp)
''')
    with_it, galley_test.program = galley_test.program, home_without('adamw')
    try:
        said = galley_test.run('train', path, '--out', 'none', code=2).stderr
        check("'adamw'" in said, f'without adamw: {said}')
        own = train(path, 'outside', '--plugin-path', plugins)
    finally:
        galley_test.program = with_it
    check(len(own.steps) == 8 and own.steps == built_in.steps, f'adamw: metrics differ: {own.steps} and {built_in.steps}')
    for file in sorted(x.relative_to(built_in.path) for part in ('model', 'state') for x in (built_in.path / part).rglob('*.safetensors')):
        check(own.bytes(file) == built_in.bytes(file), f'adamw: {file} differs between the plugin of the tree and the one built outside')
    check(str(plugins) in (own.path / 'run.toml').read_text(), 'adamw: run.toml does not name where the plugin was found that was built outside')


def templates_train():
    model = from_config('gpt2', vocab_size=61, n_positions=32, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    ids = [(5 * i + row) % 61 for row in range(4) for i in range(32)]
    galley_test.save('cycle.safetensors', {'input_ids': ('I32', (4, 32), ids), 'labels': ('I32', (4, 32), ids)})
    for name, id in {'c': 'signsgd-c', 'cpp': 'signsgd'}.items():
        plugins = build(id, source / 'sdk' / 'templates' / name)
        path = recipe(f'{id}.lua', model, 'data.batch { path = "cycle.safetensors" }', use(id, lr=2e-3), batch=4, length=32, steps=60, seed=1)
        run = train(path, id, '--plugin-path', plugins)
        run.check_memory(id)
        first, last = run.steps[0][0], run.steps[-1][0]
        check(len(run.steps) == 60 and last < first - 2, f'{id}: the loss went from {first} to {last} only')


try:
    command('cmake', '--install', binary, '--component', 'sdk', '--prefix', outside / 'prefix')
    same_bytes()
    templates_train()
finally:
    shutil.rmtree(outside, ignore_errors=True)
finish()
