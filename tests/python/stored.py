#!/usr/bin/env python3
"""Parameters that are saved as they are stored: their components, in the components' dtypes, and what config.json says of it. Such a file is
read as it is."""
import json
import shutil

from galley_test import binary, check, every, finish, fresh_folder, from_config, from_folder, load, recipe, run, save, train, use

fresh_folder()
more = [x for name in ('bf16-storage', 'blocks', 'second-memory', 'discrete') for x in ('--plugin-path', binary / 'tests' / 'plugins' / name)]
model = from_config('gpt2', n_layer=1, n_embd=32, n_head=2, n_positions=16, vocab_size=64)
stored = ['*.mlp.*.weight']
entries = dict(batch=1, length=8, steps=2)
blocks = dict(format='blocks', block=48)


def numbers_or_components():
    made = {}
    for name, options in (('numbers', {}), ('stored', dict(export=True))):
        path = recipe(f'{name}.lua', model, 'data.random { }', use('bf16-storage', parameters=stored, **options), use('adamw', lr=1e-3), **entries)
        folder = train(path, name, *more).path / 'model'
        made[name] = load(folder / 'model.safetensors')
        config = json.loads((folder / 'config.json').read_text())
        check(config.get('stored_in') == ('brain' if options else None), f'{name}: config.json says {config.get("stored_in")}')
    check(set(made['numbers']) == set(made['stored']), 'one run saves other tensors than the other')
    for name, (dtype, shape, numbers) in made['stored'].items():
        wanted = 'BF16' if '.mlp.' in name and name.endswith('weight') else 'F32'
        check(dtype == wanted, f'{name} is saved in {dtype}, not {wanted}')
        check((shape, list(numbers)) == (made['numbers'][name][1], list(made['numbers'][name][2])), f'{name}: its numbers differ')


def continued(name, folder, *uses, device='cpu', **options):
    """A run from the model in `folder` that keeps and saves the parameters as they are stored."""
    path = recipe(f'{name}.lua', from_folder(folder), 'data.random { }', use('bf16-storage', parameters=stored, export=True, **options), *uses,
                  use('adamw', lr=1e-3), **entries)
    made = train(path, name, '--device', device, *more)
    made.check_memory(name)
    return made, run('plan', path, '--check', '--dump', 'place', '--device', device, *more).stdout


def packed_files():
    """What one run packs, the next one reads byte for byte, wherever it puts it; one that trains on begins from the same bytes."""
    train(recipe('plain.lua', model, 'data.random { }', use('adamw', lr=1e-3), **entries), 'plain')
    frozen, away = use('freeze', patterns=stored), use('second-memory', memory='file', parameters=stored)
    for name, options in (('brain', {}), ('blocks', blocks)):
        first, dump = continued(f'{name}-first', 'plain/model', frozen, **options)
        check(f"{name}_pack 'pack " in dump, f'{name}: plain numbers are not packed while loading')
        saved = load(first.path / 'model' / 'model.safetensors')
        parts = {k: v for k, v in saved.items() if '.mlp.' in k and not k.endswith('bias')}
        wanted = {f'h.0.mlp.{layer}.{x}' for layer in ('c_fc', 'c_proj') for x in (('weight', 'SCB') if options else ('weight',))}
        check({k.removeprefix('transformer.') for k in parts} == wanted, f'{name}: components are called {sorted(parts)} in the file')
        for device, uses in (('cpu', (frozen,)), ('discrete', (frozen,)), ('discrete', (frozen, away))):
            again, dump = continued(f'{name}-{device}-{len(uses)}', first.path / 'model', *uses, device=device, **options)
            load_part = dump[dump.index('load['):dump.index('micro[')]
            check('pack ' not in load_part, f'{name} on {device}: what is packed is unpacked or packed while loading')
            components = [x.replace('.SCB', '.weight.absmax') for x in parts]
            check(every(f"read 'read {x}'" in load_part for x in components), f'{name} on {device}: components are not read one by one')
            got = load(again.path / 'model' / 'model.safetensors')
            check(every(got.get(k) == v for k, v in parts.items()), f'{name} on {device}: the packed bytes differ')
        trained = [continued(f'{name}-trained-{device}', first.path / 'model', device=device, **options)[0] for device in ('cpu', 'discrete')]
        check(trained[0].bytes() == trained[1].bytes() and trained[0].steps == trained[1].steps, f'{name}: trained on, the devices differ')
        check(load(trained[0].path / 'model' / 'model.safetensors') != saved, f'{name}: nothing was trained')


def refusals():
    """Files that hold some of the components, or others."""
    of, name, scales = load('blocks-first/model/model.safetensors'), 'transformer.h.0.mlp.c_fc.weight', 'transformer.h.0.mlp.c_fc.SCB'
    shutil.copytree('blocks-first/model', 'wrong')
    path = recipe('wrong.lua', from_folder('wrong'), 'data.random { }', use('bf16-storage', parameters=stored, **blocks), use('adamw', lr=1e-3), **entries)

    def refused(who, tensors, *parts):
        save('wrong/model.safetensors', tensors)
        said = run('plan', path, *more, code=2).stderr
        check(every(x in said for x in ('files/wrong', *parts)), f'{who}: {said}')
    lacking = {k: v for k, v in of.items() if k != scales}
    refused('a component is missing', lacking, f"'{scales}', F32 (86), is missing", 'hold all components')
    refused('the other one is missing', {k: v for k, v in of.items() if k != name}, f"'{name}', I8 (32, 128), is missing")
    refused('another block', {**of, scales: ('F32', [128], [1.0] * 128)}, f"'{scales}' is F32 (128)", 'F32 (86)', 'other options')
    refused('another dtype', {**of, scales: ('F64', [86], [1.0] * 86)}, f"'{scales}' is F64 (86)", 'F32 (86)')
    refused('codes of another dtype', {**of, name: ('U8', [32, 128], [1] * 4096)}, f"'{name}' is U8 (32, 128)", 'I8 (32, 128)')
    numbers = {**lacking, name: ('F32', [32, 128], [0.5] * 4096)}
    save('wrong/model.safetensors', {**numbers, scales: of[scales]})
    check('I8 (32, 128)' in run('plan', path, *more, code=2).stderr, 'numbers beside a component are taken')
    save('wrong/model.safetensors', numbers)
    run('plan', path, *more)
    # A plan reads no data, so only training finds that these numbers are none.
    save('wrong/model.safetensors', {**of, scales: ('F32', [86], [float('nan')] * 86)})
    run('plan', path, *more)
    said = run('train', path, '--out', 'wrong-run', *more, code=2).stderr
    check(f"'{scales}'" in said and 'NaN' in said, f'NaN in a component: {said}')


numbers_or_components()
packed_files()
refusals()
finish()
