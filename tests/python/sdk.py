#!/usr/bin/env python3
"""Plugins that are built with the installed SDK alone, in folders that hold nothing of this repository: `adamw` gives the bytes that the
built-in one gives, and the templates, one of them in C and nothing else, train; the one for CUDA on an emulated device too, and the one of a format holds
frozen weights in 8 bit."""
import functools
import json
import os
import pathlib
import re
import shutil

import galley_test
from galley_test import Run, binary, case, cases, check, finish, fresh_folder, from_config, recipe, run, source, take_turns, together, train, use
from sdk_kit import build, cases_of_ops, command, install, outside

fresh_folder()


def home_without(plugin):
    """The program and what it needs beside itself, less one plugin."""
    home = outside / 'home'
    shutil.copytree(binary / 'plugins', home / 'plugins', ignore=lambda at, names: [plugin] if pathlib.Path(at) == binary / 'plugins' else [])
    shutil.copytree(binary / 'models', home / 'models')
    shutil.copy2(galley_test.program, home / 'galley')
    return home / 'galley'


@case
def same_bytes():
    """The plugin `adamw`, built outside, in the place of the built-in one."""
    model = from_config('gpt2', vocab_size=97, n_positions=32, n_embd=48, n_layer=2, n_head=4)
    path = recipe('adamw.lua', model, 'data.random {}', use('adamw', lr=1e-2, betas=[0.9, 0.95], weight_decay=0.1, amsgrad=True), use('clip', norm=1.0),
                  batch=4, length=32, steps=8, seed=7, save=dict(every=4))
    built_in = train(path, 'built-in')
    plugins = build('adamw', source / 'plugins' / 'adamw', '''cmake_minimum_required(VERSION 3.25)
project(adamw LANGUAGES CXX)
find_package(galley-sdk REQUIRED)
galley_add_plugin(MANIFEST plugin.toml SOURCES plugin.cpp KERNELS_CPU cpu.cpp)
''')
    without = home_without('adamw')
    said = run('train', path, '--out', 'none', code=2, executable=without).stderr
    check("'adamw'" in said, f'without adamw: {said}')
    run('train', path, '--out', 'outside', '--plugin-path', plugins, executable=without)
    own = Run('outside')
    check(len(own.steps) == 8 and own.steps == built_in.steps, f'adamw: metrics differ: {own.steps} and {built_in.steps}')
    files = sorted(x.relative_to(built_in.path) for part in ('model', 'state') for x in (built_in.path / part).rglob('*.safetensors'))
    check(len(files) >= 3, f'adamw: too few files to compare: {files}')
    for file in files:
        check(own.bytes(file) == built_in.bytes(file), f'adamw: {file} differs between the plugin of the tree and the one built outside')
    check(str(plugins) in (own.path / 'run.toml').read_text(), 'adamw: run.toml does not name where the plugin was found that was built outside')


# ---- Templates ---------------------------------------------------------------------------------------------------------------------------

model = from_config('gpt2', vocab_size=61, n_positions=32, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
templates = {'c': ('signsgd-c', 2e-3), 'optimizer': ('signsgd', 2e-3), 'kernel': ('fromage', 3e-2)}  # {folder: id, a rate that trains}


def said_to_pkg_config(variable):
    """A folder that the installed SDK names to pkg-config."""
    install()
    said = next((outside / 'prefix').rglob('galley-sdk.pc')).read_text()
    return outside / 'prefix' / re.search(rf'^{variable}=\$\{{prefix\}}/(.*)$', said, re.M)[1]


def emulated_gpu():
    return said_to_pkg_config('emulated')


@case
def folders_that_are_named():
    """What the installed SDK says to pkg-config and to CMake of where things are is true."""
    check((said_to_pkg_config('templates') / 'op' / 'cuda.cu').is_file(), said_to_pkg_config('templates'))
    check(any(emulated_gpu().rglob('*.so')), emulated_gpu())
    check((said_to_pkg_config('includedir') / 'galley' / 'abi.h').is_file(), said_to_pkg_config('includedir'))
    (outside / 'asks').mkdir()
    (outside / 'asks' / 'CMakeLists.txt').write_text('''cmake_minimum_required(VERSION 3.25)
project(asks LANGUAGES NONE)
find_package(galley-sdk REQUIRED)
message(STATUS "templates: ${GALLEY_SDK_TEMPLATES}")
message(STATUS "emulated: ${GALLEY_SDK_EMULATED}")
''')
    said = command('cmake', '-S', outside / 'asks', '-B', outside / 'asks' / 'build', f'-DCMAKE_PREFIX_PATH={outside / "prefix"}')
    for name in ('templates', 'emulated'):
        check(f'-- {name}: {said_to_pkg_config(name)}\n' in said, f'{name}: {said}')


@functools.cache
def template(name):
    """Where the plugin of a template lies."""
    return build(templates[name][0], source / 'sdk' / 'templates' / name)


def cycle(name, out, steps, *flags):
    """The losses and norms of an optimizer on rows that go round."""
    ids = [(5 * i + row) % 61 for row in range(4) for i in range(32)]
    galley_test.save('cycle.safetensors', {'input_ids': ('I32', (4, 32), ids), 'labels': ('I32', (4, 32), ids)})
    id, lr = templates[name]
    path = recipe(f'{out}.lua', model, 'data.batch { path = "cycle.safetensors" }', use(id, lr=lr), batch=4, length=32, steps=steps, seed=1)
    made = train(path, out, '--plugin-path', template(name), *flags)
    made.check_memory(out)
    check(len(made.steps) == steps, f'{out}: {len(made.steps)} steps')
    return made.steps


@cases(templates)
def trains(name, of):
    steps = cycle(name, of[0], 60)
    check(steps[-1][0] < steps[0][0] - 2, f'{of[0]}: the loss went from {steps[0][0]} to {steps[-1][0]} only')


@cases(templates)
def beside_what_needs_an_update(name, of):
    """Every strategy that relies on another one to decide the update takes a template's for one."""
    (id, _), plugins = of, template(name)
    needing = [x.parent.name for x in sorted((source / 'plugins').glob('*/plugin.toml')) if re.search(r'^needs = .*facet = "update" *}', x.read_text(), re.M)]
    check({'clip', 'split-states', 'update-in-backward', 'offload-optimizer'} <= set(needing), f'these need an update: {needing}')
    for other in needing:
        more = [use('amp')] if other == 'split-states' else []
        options = {'clip': dict(norm=1.0), 'layer-decay': dict(decay=0.9)}.get(other, {})
        path = recipe(f'{id}-{other}.lua', model, 'data.random {}', use(id, lr=1e-3), use(other, **options), *more, batch=2, length=16, steps=2, seed=1)
        # Of this device's one memory nothing can be moved into another: what is refused is that, and not the template.
        said = run('plan', path, '--plugin-path', plugins, code=2 if other == 'offload-optimizer' else 0).stderr
        check('has one memory class' in said if other == 'offload-optimizer' else not said, f'{id} beside {other}: {said}')
    path = recipe(f'{id}-adapter.lua', model, 'data.random {}', use('lora', rank=2), use('amp'), use('clip', norm=1.0), use(id, lr=1e-3),
                  batch=2, length=16, steps=2, seed=1)
    train(path, f'{id}-adapter', '--plugin-path', plugins)


@case
def on_an_emulated_gpu():
    """What the C++ compiler has made of cuda.cu: in a run, and on the cases of its op."""
    emulated = ['--device', 'cuda-emulated', '--plugin-path', emulated_gpu()]
    steps, on_cpu = cycle('kernel', 'fromage-emulated', 6, *emulated), cycle('kernel', 'fromage-cpu', 6)
    for (loss, norm), (loss_on_cpu, norm_on_cpu) in together(steps, on_cpu):
        check(abs(loss - loss_on_cpu) < 1e-4 and abs(norm - norm_on_cpu) < 1e-3, f'loss {loss} and norm {norm} on an emulated GPU, not {loss_on_cpu} and {norm_on_cpu}')
    # Line 1 of the kernel's source has no barrier that could be taken away.
    said = run('train', 'fromage-emulated.lua', '--out', 'no-mutant', '--plugin-path', template('kernel'), *emulated, code=4, GALLEY_CUDA_MUTANT='cuda.cu:1').stderr
    check('GALLEY_CUDA_MUTANT=cuda.cu:1: no barrier, commit or wait stands there' in said, f'a mutant without a barrier: {said}')
    cases_of_ops('fromage', template('kernel'))


def checked(plugins, code=0, **environment):
    """What `galley check` says of a plugin's kernels on the emulated GPU: whether they were held, and what was found."""
    run('check', plugins / 'fromage', '--json', 'check.json', '--plugin-path', emulated_gpu(), code=code, **environment)
    kernels = next(t for t in json.loads(pathlib.Path('check.json').read_text())['tests'] if t['test'] == 'kernels of fromage_step')
    return "kernel 'fromage_step.cuda' on cuda (emulated)" in kernels['held'], [f['sentence'] for f in kernels['findings']]


@case
def a_barrier_is_missing():
    """A race in the kernels for CUDA shows without a GPU; they have none as they are."""
    line = next(i for i, text in enumerate((source / 'sdk/templates/kernel/cuda.cu').read_text().splitlines(), 1) if text == '  __syncthreads();')
    right = checked(template('kernel'))
    check(right == (True, []), f'as it is: {right}')
    held, found = checked(template('kernel'), code=4, GALLEY_CUDA_MUTANT=f'fromage/cuda.cu:{line}')
    check(held and any("fromage_step.cuda' on cuda (emulated) leaves other bytes with the threads of a block in " in x for x in found), f'{held}, {found}')


@case
def a_number_is_wrong():
    """Of the kernels for CUDA, on the processor none."""
    shutil.copytree(source / 'sdk/templates/kernel', 'wrong')
    kernel = pathlib.Path('wrong/cuda.cu')
    kernel.write_text(kernel.read_text().replace('sqrtf(1.0f + lr * lr)', 'sqrtf(1.0f - lr * lr)'))
    plugins = build('fromage-wrong', 'wrong', '''cmake_minimum_required(VERSION 3.25)
project(fromage LANGUAGES CXX)
find_package(galley-sdk REQUIRED)
galley_add_plugin(MANIFEST plugin.toml SOURCES plugin.cpp KERNELS_CUDA cuda.cu)
''')
    held, found = checked(plugins, code=4)
    check(held and found and all("kernel 'fromage_step.cuda' on cuda (emulated): element" in x for x in found), f'{held}, {found}')


@case
def no_run_has_an_emulated_gpu_by_mistake():
    """It is with no program's plugins: it has to be named twice."""
    said = run('plan', recipe('by-mistake.lua', model, 'data.random {}', use('sgd', lr=0.1), batch=2, length=16, steps=1), '--device', 'cuda-emulated', code=2)
    check('--device cuda-emulated: no plugin provides it' in said.stderr, f'without its folder: {said.stderr}')
    check('cuda-emulated' not in run('plugins').stdout, 'it is listed')


@case
def documented_ops():
    """docs/ops.md shows code that compiles."""
    install()
    blocks = re.findall(r'```cpp\n(.*?)```', (source / 'docs' / 'ops.md').read_text(), re.S)
    rule = re.findall(r'```c\n(galley_status gradient.*?)```', (source / 'docs' / 'ops.md').read_text(), re.S)
    check(len(blocks) == 3 and len(rule) == 1, f'docs/ops.md has {len(blocks)} blocks of C++ and {len(rule)} of C')
    text = '\n'.join(['#include <cmath>', '#include <galley/cpp/strategy.hpp>', 'using namespace galley::sdk;',
                      'void forward_shape(const Node&, Shapes&) {}', 'void forward_reference(const Node&) {}', *blocks[1:], blocks[0], 'namespace c {', *rule, 'static_assert(std::is_same_v<decltype(&gradient), decltype(galley_op::gradient)>);', '}'])
    (outside / 'ops.cpp').write_text(text)
    command(os.environ.get('CXX', 'c++'), '-std=c++17', '-fsyntax-only', f'-I{outside / "prefix" / "include"}', outside / 'ops.cpp')


@case
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
    for (loss, _), (as_codes, _) in together(plain.steps, packed.steps):
        check(loss != as_codes and abs(loss - as_codes) < 0.02, f'loss {as_codes} in 8 bit, {loss} in F32')
    # In 16 bit, to which the codec rounds.
    low = trains('q8-amp', use('q8', block=32), use('amp'))
    check(abs(low.steps[0][0] - packed.steps[0][0]) < 0.02, f'loss {low.steps[0][0]} in 8 bit and BF16, {packed.steps[0][0]} in 8 bit')
    # Each weight is held against what the manifest promises.
    run('certify', 'q8.lua', '--json', 'certified.json', '--plugin-path', plugins)
    kept = json.loads(pathlib.Path('certified.json').read_text())['kept_promises']
    check(kept >= 8, f'certify holds {kept} tensors against the promise of q8')
    cases_of_ops('q8', plugins, GALLEY_TEST_LEVEL='x86-64-v3')  # it has no kernels for GPUs


# The one for the processor and the one for GPUs in turn.
take_turns(['trains:optimizer', 'trains:kernel', 'beside_what_needs_an_update:optimizer', 'beside_what_needs_an_update:kernel', 'same_bytes', 'on_an_emulated_gpu',
            'a_format_holds_weights', 'a_barrier_is_missing', 'documented_ops', 'a_number_is_wrong'], 4)
finish()
