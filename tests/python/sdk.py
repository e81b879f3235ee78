#!/usr/bin/env python3
"""Plugins that are built with the installed SDK alone, in folders that hold nothing of this repository: `adamw` gives the bytes that the
built-in one gives, and the templates, one of them in C and nothing else, train; the one for CUDA on an emulated device too, and the one of a format holds
frozen weights in 8 bit. Optimizers of the literature that no built-in one resembles."""
import json
import os
import pathlib
import re
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


CMAKE = '''cmake_minimum_required(VERSION 3.25)
project(one LANGUAGES CXX)
find_package(galley-sdk REQUIRED)
galley_add_plugin(MANIFEST plugin.toml SOURCES plugin.cpp)
'''


def tensors(run):
    """The values of every tensor that a run's model has."""
    return {name: values for name, (_, _, values) in galley_test.load(run.path / 'model' / 'model.safetensors').items()}


def rates_are_scaled():
    """Layer-wise decay with the built-in adamw: each block as if it were trained at its own rate, and not a byte of memory for it."""
    plugins = build('layer-decay', source / 'tests' / 'sdk' / 'layer-decay', CMAKE)
    model = from_config('gpt2', vocab_size=61, n_positions=16, n_embd=32, n_layer=3, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                        tie_word_embeddings=True)
    run_of = dict(batch=4, length=16, steps=3, seed=5)

    def trains(name, *uses, only=None):
        freeze = [use('freeze', **{'except': only})] if only else []
        path = recipe(f'{name}.lua', model, 'data.random {}', *freeze, *uses, use('clip', norm=1.0), **run_of)
        return train(path, name, '--plugin-path', plugins)

    # Blocks alone, because what one block does to the others' gradients is not what is compared here.
    for block, factor in ((2, 1.0), (1, 0.5), (0, 0.25)):
        only = [f'transformer.h.{block}.*']
        decayed = trains(f'decayed-{block}', use('layer-decay', decay=0.5), use('adamw', lr=1e-2, weight_decay=0.1), only=only)
        plain = trains(f'plain-{block}', use('adamw', lr=1e-2 * factor, weight_decay=0.1), only=only)
        check(decayed.bytes() == plain.bytes(), f'block {block} with decay 0.5 is not block {block} at {factor} of the rate')
        for owner in ('weights', 'gradients', 'states'):
            with_it, without = (r.memory['classes']['host']['owners'][owner] for r in (decayed, plain))
            check(with_it == without, f'block {block}: {with_it} bytes of {owner} with layer-decay, {without} without')
    still = trains('still', use('layer-decay', decay=0.0), use('adamw', lr=1e-2))
    start = trains('start', use('layer-decay', decay=0.0), use('sgd', lr=1e-30))
    before, after = tensors(start), tensors(still)
    moved = {name for name in before if before[name] != after[name]}
    check(moved and all('.h.2.' in name or 'ln_f' in name for name in moved), f'with decay 0 only the last block may move: {sorted(moved)}')


def gradients_are_changed():
    """Gradient noise before the built-in optimizers: no noise changes no byte, noise has its variance, and nothing holds a copy of a gradient."""
    plugins = build('gradient-noise', source / 'tests' / 'sdk' / 'gradient-noise', CMAKE)
    model = from_config('gpt2', vocab_size=61, n_positions=16, n_embd=48, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)

    def trains(name, optimizer, eta=None, norm=None, **more):
        noise = [use('gradient-noise', eta=eta)] if eta is not None else []
        clip = [use('clip', norm=norm)] if norm else []
        path = recipe(f'{name}.lua', model, 'data.random {}', *noise, optimizer, *clip, batch=2, length=16, seed=5, **more)
        return train(path, name, '--plugin-path', plugins)

    adamw = use('adamw', lr=1e-2)
    plain, silent = trains('noise-none', adamw, steps=3), trains('noise-zero', adamw, eta=0, steps=3)
    check(plain.bytes() == silent.bytes(), 'noise of variance 0 changes the model')
    planned = [r.memory['classes']['host']['planned'] for r in (plain, silent)]
    check(planned[1] <= planned[0] + 4096, f'planned with gradient noise {planned[1]}, without {planned[0]} bytes')
    # One step of plain SGD: the difference over the rate is the noise itself, whether the gradients are clipped or not.
    for norm in (None, 0.1):
        sgd = use('sgd', lr=1.0)
        quiet, noisy = trains(f'quiet-{norm}', sgd, norm=norm, steps=1), trains(f'noisy-{norm}', sgd, eta=0.01, norm=norm, steps=1)
        a, b = tensors(quiet), tensors(noisy)
        noise = [y - x for name in sorted(a) for x, y in zip(a[name], b[name])]
        mean = sum(noise) / len(noise)
        deviation = (sum(x * x for x in noise) / len(noise) - mean * mean) ** 0.5
        check(abs(mean) < 0.002 and abs(deviation - 0.1) < 0.002, f'clip {norm}: noise of mean {mean} and deviation {deviation}, not 0 and 0.1')


def optimizers_of_all_parameters():
    """Optimizers that are called about all parameters at once: schedule-free AdamW, whose average is evaluated in the place of what is trained, and Prodigy, which makes
    one number of all parameters within its stage. Each under --reference in every segment."""
    model = from_config('gpt2', vocab_size=256, n_positions=16, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    data = 'data.text { files = { "text.txt" }, tokenizer = "bytes", validation = 0.2 }'
    pathlib.Path('text.txt').write_text('one two three four five six seven eight nine ten. ' * 60)
    for name, option, steps, fall in (('schedule-free', dict(lr=1e-2), 12, 2.0), ('prodigy', {}, 30, 2.0)):
        plugins = build(name, source / 'tests' / 'sdk' / name, CMAKE)
        common = dict(batch=2, length=16, seed=5)
        path = recipe(f'{name}.lua', model, data, use(name, **option), steps=steps, validate=dict(every=steps // 3, start=True), save=dict(every=steps // 3), **common)
        made = train(path, name, '--plugin-path', plugins, '--reference')
        made.check_memory(name)
        validated = [x['validation_loss'] for x in made.lines if 'validation_loss' in x]
        check(validated[-1] < validated[0] - fall, f'{name}: validation went from {validated[0]} to {validated[-1]} only')
        for command_ in (('eval', made.path, '--json'), ('sample', made.path, '--prompt', 'one', '--tokens', '4'), ('export', made.path, '--out', f'{name}-export')):
            said = galley_test.run(*command_, '--plugin-path', plugins, '--reference')
            if command_[0] == 'eval':
                loss = json.loads(said.stdout)['validation_loss']
                check(loss == validated[-1], f'{name}: eval says {loss}, the last validation {validated[-1]}')
        for folder in (f'{name}/model', f'{name}-export'):
            saved = recipe(f'{name}-saved.lua', f'model {{ path = "{folder}" }}', data, steps=1, validate=dict(every=1), **common)
            loss = json.loads(galley_test.run('eval', saved, '--json').stdout)['validation_loss']
            check(loss == validated[-1], f'{name}: {folder} gives {loss}, the last validation was {validated[-1]}')
        if name == 'prodigy':
            distances = [x['distance'] for x in made.lines if 'distance' in x]
            check(distances[0] < 2e-6 and distances[-1] > 1e-3 and distances == sorted(distances), f'prodigy: distances {distances}')
            continue
        # What is saved is y + (1 - 1 / beta1) (z - y) of the parameters and states that the run goes on from.
        state = {k: v for file in (made.path / 'state').rglob('*.safetensors') for k, (_, _, v) in galley_test.load(file).items()}
        for parameter, x in tensors(made).items():
            y, z = state[parameter], state[f'{parameter}.z']
            worst = max(abs(a - (b + (1 - 1 / 0.9) * (c - b))) for a, b, c in zip(x, y, z))
            check(worst < 1e-6 and y != z, f'schedule-free: {parameter} is saved {worst} from the average')


def templates_train():
    model = from_config('gpt2', vocab_size=61, n_positions=32, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    ids = [(5 * i + row) % 61 for row in range(4) for i in range(32)]
    galley_test.save('cycle.safetensors', {'input_ids': ('I32', (4, 32), ids), 'labels': ('I32', (4, 32), ids)})
    for name, id, lr in (('c', 'signsgd-c', 2e-3), ('cpp', 'signsgd', 2e-3), ('cuda', 'fromage', 3e-2)):
        plugins = build(id, source / 'sdk' / 'templates' / name)

        def trains(run, steps, *flags):
            path = recipe(f'{run}.lua', model, 'data.batch { path = "cycle.safetensors" }', use(id, lr=lr), batch=4, length=32, steps=steps, seed=1)
            made = train(path, run, '--plugin-path', plugins, *flags)
            made.check_memory(run)
            check(len(made.steps) == steps, f'{run}: {len(made.steps)} steps')
            return made.steps

        steps = trains(id, 60)
        check(steps[-1][0] < steps[0][0] - 2, f'{id}: the loss went from {steps[0][0]} to {steps[-1][0]} only')
        if name != 'cuda':
            continue
        # What the C++ compiler has made of cuda.cu: on the cases of its op, and in a run.
        tests = binary / 'tests' / 'bin' / 'models'
        if tests.exists():
            r = subprocess.run([tests, f'--gtest_filter=Ops/Kernel.*/{id}_*', '--gtest_brief=1'], capture_output=True, text=True, errors='replace',
                               env=dict(os.environ, GALLEY_TEST_PLUGINS=str(plugins / id)))
            check(r.returncode == 0 and re.search(r'PASSED  \] [1-9]', r.stdout), f'{id}: the cases of its op: {r.stdout[-2000:]}{r.stderr[-1000:]}')
        emulated = trains(f'{id}-emulated', 6, '--device', 'cuda-emulated', '--plugin-path', binary / 'tests' / 'plugins' / 'cuda-emulated')
        for (loss, norm), (on_cpu, norm_on_cpu) in zip(emulated, steps):
            check(abs(loss - on_cpu) < 1e-4 and abs(norm - norm_on_cpu) < 1e-3, f'{id}: loss {loss} and norm {norm} on an emulated GPU, not {on_cpu} and {norm_on_cpu}')
        # Line 1 of the kernel's source has no barrier that could be taken away.
        os.environ['GALLEY_CUDA_MUTANT'] = 'cuda.cu:1'
        said = galley_test.run('train', f'{id}-emulated.lua', '--out', 'no-mutant', '--plugin-path', plugins, '--device', 'cuda-emulated', '--plugin-path',
                               binary / 'tests' / 'plugins' / 'cuda-emulated', code=4).stderr
        del os.environ['GALLEY_CUDA_MUTANT']
        check('GALLEY_CUDA_MUTANT=cuda.cu:1: no barrier, commit or wait stands there' in said, f'{id}: a mutant without a barrier: {said}')


def a_format_holds_weights():
    """The template of a format, beside LoRA: the same model in a fourth of the memory, and nearly the same numbers."""
    plugins = build('q8', source / 'sdk' / 'templates' / 'format')
    model = from_config('gpt2', vocab_size=61, n_positions=32, n_embd=64, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    lora = use('lora', rank=4, alpha=8)

    def trains(name, *uses):
        path = recipe(f'{name}.lua', model, 'data.random {}', lora, *uses, use('adamw', lr=1e-2), batch=2, length=32, steps=4, seed=3)
        made = train(path, name, '--plugin-path', plugins)
        made.check_memory(name)
        return made

    plain, packed, coarse = trains('whole'), trains('q8', use('q8', block=32)), trains('q8-coarse', use('q8', block=4096))
    weights = [r.memory['classes']['host']['owners']['weights'] for r in (plain, packed, coarse)]
    check(weights[1] < 0.5 * weights[0] and weights[2] < weights[1], f'bytes of weights: {weights[0]}, in blocks of 32 {weights[1]}, of 4096 {weights[2]}')
    for (loss, _), (as_codes, _) in zip(plain.steps, packed.steps):
        check(loss != as_codes and abs(loss - as_codes) < 0.02, f'loss {as_codes} in 8 bit, {loss} in F32')
    tests = binary / 'tests' / 'bin' / 'models'
    if tests.exists():
        r = subprocess.run([tests, '--gtest_filter=Ops/Kernel.*/q8_*', '--gtest_brief=1'], capture_output=True, text=True, errors='replace',
                           env=dict(os.environ, GALLEY_TEST_PLUGINS=str(plugins / 'q8'), GALLEY_TEST_LEVEL='x86-64-v3'))  # it has no kernels for GPUs
        check(r.returncode == 0 and re.search(r'PASSED  \] [1-9]', r.stdout), f'q8: the cases of its ops: {r.stdout[-2000:]}{r.stderr[-1000:]}')


try:
    command('cmake', '--install', binary, '--component', 'sdk', '--prefix', outside / 'prefix')
    same_bytes()
    templates_train()
    a_format_holds_weights()
    rates_are_scaled()
    gradients_are_changed()
    optimizers_of_all_parameters()
finally:
    shutil.rmtree(outside, ignore_errors=True)
finish()
