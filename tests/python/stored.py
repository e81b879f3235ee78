#!/usr/bin/env python3
"""Parameters that are saved as they are stored: their components, in the components' dtypes, and what config.json says of it. Such a file is
read as it is."""
import functools
import json
import shutil

from galley_test import binary, case, cases, check, every, finish, fresh_folder, from_config, from_folder, load, recipe, run, save, train, use
from steps_kit import recipes, refused, trained

fresh_folder()
more = [x for name in ('bf16-storage', 'blocks', 'second-memory', 'discrete') for x in ('--plugin-path', binary / 'tests' / 'plugins' / name)]
model = from_config('gpt2', n_layer=1, n_embd=32, n_head=2, n_positions=16, vocab_size=64)
stored = ['*.mlp.*.weight']
entries = dict(batch=1, length=8, steps=2)
written = recipes(model, 'data.random { }', use('adamw', lr=1e-3), **entries)
FORMATS = {'brain': {}, 'blocks': dict(format='blocks', block=48)}


def tensors(made):
    return load(made.path / 'model' / 'model.safetensors')


@case
def numbers_or_components():
    made = {}
    for name, options in (('numbers', {}), ('stored', dict(export=True))):
        one = trained(written(name, use('bf16-storage', parameters=stored, **options)), name, *more)
        made[name] = tensors(one)
        config = json.loads((one.path / 'model' / 'config.json').read_text())
        check(config.get('stored_in') == ('brain' if options else None), f'{name}: config.json says {config.get("stored_in")}')
    check(set(made['numbers']) == set(made['stored']) and made['stored'], 'one run saves other tensors than the other')
    for name, (dtype, shape, numbers) in made['stored'].items():
        wanted = 'BF16' if '.mlp.' in name and name.endswith('weight') else 'F32'
        check(dtype == wanted, f'{name} is saved in {dtype}, not {wanted}')
        check((shape, list(numbers)) == (made['numbers'][name][1], list(made['numbers'][name][2])), f'{name}: its numbers differ')


# ---- What one run packs, the next one reads byte for byte ----------------------------------------------------------------------------------

FROZEN, AWAY = use('freeze', patterns=stored), use('second-memory', memory='file', parameters=stored)


def continued(name, folder, *uses, device='cpu', **options):
    """A run from the model in `folder` that keeps and saves the parameters as they are stored, and what its plan places."""
    path = recipe(f'{name}.lua', from_folder(folder), 'data.random { }', use('bf16-storage', parameters=stored, export=True, **options), *uses,
                  use('adamw', lr=1e-3), **entries)
    made = trained(path, name, '--device', device, *more)
    return made, run('plan', path, '--check', '--dump', 'place', '--device', device, *more).stdout


@functools.cache
def packed(form):
    """A run that packs plain numbers, and what its plan places."""
    plain = train(written(f'{form}-plain'), f'{form}-plain')
    return continued(f'{form}-first', plain.path.resolve() / 'model', FROZEN, **FORMATS[form])


def packed_parts(form):
    """The components in the file of such a run."""
    return {k: v for k, v in tensors(packed(form)[0]).items() if '.mlp.' in k and not k.endswith('bias')}


@cases(FORMATS)
def components(form, options):
    check(f"{form}_pack 'pack " in packed(form)[1], 'plain numbers are not packed while loading')
    parts = packed_parts(form)
    wanted = {f'h.0.mlp.{layer}.{x}' for layer in ('c_fc', 'c_proj') for x in (('weight', 'SCB') if options else ('weight',))}
    check({k.removeprefix('transformer.') for k in parts} == wanted, f'components are called {sorted(parts)} in the file')


PLACES = {'cpu': ('cpu', (FROZEN,)), 'discrete': ('discrete', (FROZEN,)), 'away': ('discrete', (FROZEN, AWAY))}


@cases([f'{form}-{place}' for form in FORMATS for place in PLACES])
def read_again(who):
    """Wherever it puts it."""
    form, place = who.split('-')
    device, uses = PLACES[place]
    again, dump = continued(who, packed(form)[0].path / 'model', *uses, device=device, **FORMATS[form])
    parts, load_part = packed_parts(form), dump[dump.index('load['):dump.index('micro[')]
    check('pack ' not in load_part, 'what is packed is unpacked or packed while loading')
    check(every(f"read 'read {x.replace('.SCB', '.weight.absmax')}'" in load_part for x in parts), 'components are not read one by one')
    got = tensors(again)
    check(every(got.get(k) == v for k, v in parts.items()), 'the packed bytes differ')


@cases(FORMATS)
def trained_on(form, options):
    """It begins from the same bytes."""
    first = packed(form)[0]
    on_cpu, on_discrete = (continued(f'{form}-trained-{device}', first.path / 'model', device=device, **options)[0] for device in ('cpu', 'discrete'))
    check(on_cpu.bytes() == on_discrete.bytes() and on_cpu.steps == on_discrete.steps, 'the devices differ')
    check(tensors(on_cpu) != tensors(first), 'nothing was trained')


# ---- Files that hold some of the components, or others -------------------------------------------------------------------------------------

NAME, SCALES = 'transformer.h.0.mlp.c_fc.weight', 'transformer.h.0.mlp.c_fc.SCB'


def broken(change):
    """A recipe for a model of which change(tensors) has made something else."""
    shutil.rmtree('wrong', ignore_errors=True)
    shutil.copytree(packed('blocks')[0].path / 'model', 'wrong')
    content = load('wrong/model.safetensors')
    change(content)
    save('wrong/model.safetensors', content)
    return recipe('wrong.lua', from_folder('wrong'), 'data.random { }', use('bf16-storage', parameters=stored, **FORMATS['blocks']), use('adamw', lr=1e-3), **entries)


def put(name, *tensor):
    return lambda content: content.update({name: tensor})


REFUSED = {
    'a component is missing': (lambda t: t.pop(SCALES), f"'{SCALES}', F32 (86), is missing", 'hold all components'),
    'the other one is missing': (lambda t: t.pop(NAME), f"'{NAME}', I8 (32, 128), is missing"),
    'another block': (put(SCALES, 'F32', [128], [1.0] * 128), f"'{SCALES}' is F32 (128)", 'F32 (86)', 'other options'),
    'another dtype': (put(SCALES, 'F64', [86], [1.0] * 86), f"'{SCALES}' is F64 (86)", 'F32 (86)'),
    'codes of another dtype': (put(NAME, 'U8', [32, 128], [1] * 4096), f"'{NAME}' is U8 (32, 128)", 'I8 (32, 128)'),
}


@cases(REFUSED)
def refusals(_, of):
    change, *parts = of
    refused(broken(change), 'files/wrong', *parts, flags=more)


@case
def numbers_beside_a_component():
    numbers = put(NAME, 'F32', [32, 128], [0.5] * 4096)
    refused(broken(numbers), 'I8 (32, 128)', flags=more)
    run('plan', broken(lambda t: (numbers(t), t.pop(SCALES))), *more)


@case
def scale_of_nan():
    """A plan reads no data, so only training finds that these numbers are none."""
    path = broken(put(SCALES, 'F32', [86], [float('nan')] * 86))
    run('plan', path, *more)
    refused(path, f"'{SCALES}'", 'NaN', command='train', flags=('--out', 'wrong-run', *more))


finish()
