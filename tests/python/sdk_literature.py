#!/usr/bin/env python3
# label: all
"""Strategies of the literature that no built-in one resembles, as plugins that are built with the installed SDK alone."""
import functools
import json

import galley_test
from galley_test import case, cases, check, finish, fresh_folder, from_config, recipe, source, together, train, use
from ranks_kit import left, mpirun
from sdk_kit import DATA, build_together, llama, tensors, write_text

fresh_folder()
write_text()


@functools.cache
def built():
    """Where all of these plugins lie."""
    return build_together({name: source / 'tests' / 'sdk' / name for name in ('schedule-free', 'prodigy', 'pissa', 'row-linear')}, {})


@cases({'schedule-free': (dict(lr=1e-2), 12), 'prodigy': ({}, 30)})
def optimizers_of_all_parameters(name, of):
    """Optimizers that are called about all parameters at once: schedule-free AdamW, whose average is evaluated in the place of what is trained, and Prodigy, which makes
    one number of all parameters within its stage. Each under --reference in every segment."""
    option, steps = of
    model = from_config('gpt2', vocab_size=256, n_positions=16, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    plugins = built() / name
    common = dict(batch=2, length=16, seed=5)
    path = recipe(f'{name}.lua', model, DATA, use(name, **option), steps=steps, validate=dict(every=steps // 3, start=True), save=dict(every=steps // 3), **common)
    made = train(path, name, '--plugin-path', plugins, '--reference')
    made.check_memory(name)
    validated = [x['validation_loss'] for x in made.lines if 'validation_loss' in x]
    check(validated[-1] < validated[0] - 2, f'{name}: validation went from {validated[0]} to {validated[-1]} only')
    for command_ in (('eval', made.path, '--json'), ('sample', made.path, '--prompt', 'one', '--tokens', '4'), ('export', made.path, '--out', f'{name}-export')):
        said = galley_test.run(*command_, '--plugin-path', plugins, '--reference')
        if command_[0] == 'eval':
            loss = json.loads(said.stdout)['validation_loss']
            check(loss == validated[-1], f'{name}: eval says {loss}, the last validation {validated[-1]}')
    for folder in (f'{name}/model', f'{name}-export'):
        saved = recipe(f'{name}-saved.lua', f'model {{ path = "{folder}" }}', DATA, steps=1, validate=dict(every=1), **common)
        loss = json.loads(galley_test.run('eval', saved, '--json').stdout)['validation_loss']
        check(loss == validated[-1], f'{name}: {folder} gives {loss}, the last validation was {validated[-1]}')
    if name == 'prodigy':
        distances = [x['distance'] for x in made.lines if 'distance' in x]
        check(distances[0] < 2e-6 and distances[-1] > 1e-3 and distances == sorted(distances), f'prodigy: distances {distances}')
        return
    # What is saved is y + (1 - 1 / beta1) (z - y) of the parameters and states that the run goes on from.
    state = {k: v for file in (made.path / 'state').rglob('*.safetensors') for k, (_, _, v) in galley_test.load(file).items()}
    saved = tensors(made)
    check(len(saved) == 28, f'schedule-free: {sorted(saved)}')
    for parameter, x in saved.items():
        y, z = state[parameter], state[f'{parameter}.z']
        worst = max(abs(a - (b + (1 - 1 / 0.9) * (c - b))) for a, b, c in zip(x, y, z))
        check(worst < 1e-6 and y != z, f'schedule-free: {parameter} is saved {worst} from the average')


# PiSSA needs its whole weight when the run begins, and gets it.
@cases({'schedule-free': (use('schedule-free', lr=1e-2),), 'prodigy': (use('prodigy'),), 'pissa': (use('pissa', rank=4), use('adamw', lr=1e-3)), 'row-linear': (use('row-linear'), use('adamw', lr=1e-3))})
def among_processes(name, uses):
    """They know of no processes: divided by zero, a run of two or four leaves the bytes of one."""
    model = from_config('llama', vocab_size=256, max_position_embeddings=32, hidden_size=128, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    plugins = '--plugin-path', built() / name
    for stage in (1, 3):
        path = recipe(f'{name}-{stage}.lua', model, DATA, use('zero', stage=stage, min_size=1), use('accumulate', steps=4), *uses, batch=1, length=16, seed=5, steps=4, lanes=4,
                      validate=dict(every=2), save=dict(every=2))
        one = left(train(path, f'{name}-{stage}-1', *plugins))
        galley_test.run('plan', path, '--ranks', 4, '--check', *plugins)
        for n in (2, 4):
            mpirun(n, 'train', path, '--out', f'{name}-{stage}-{n}', *plugins)
            check(left(galley_test.Run(f'{name}-{stage}-{n}')) == one, f'{name}, stage {stage}: {n} processes leave something else than one')


def product(a, b):
    """Of two matrices, as lists of rows."""
    columns = list(zip(*b))
    return [[sum(x * y for x, y in zip(row, column)) for column in columns] for row in a]


def rows_of(tensor):
    _, (rows, columns), values = tensor
    return [list(values[i * columns:(i + 1) * columns]) for i in range(rows)]


@cases(['files', 'random'])
def adapters_begin_as_parts_of_weights(name):
    """PiSSA: W = B A + rest, of files and of random numbers. The rest has no second copy, and B A is its principal part."""
    plugins = built() / 'pissa'
    common = dict(batch=2, length=16, seed=3)
    folder = None
    if name == 'files':
        folder = train(recipe('base.lua', llama(), DATA, use('sgd', lr=0.3), steps=4, **common), 'base').path / 'model'

    def trains(run, *uses, steps=4, flags=(), **more):
        path = recipe(f'{run}-{name}.lua', llama(folder), DATA, *uses, steps=steps, validate=dict(every=steps, start=True), **common, **more)
        return train(path, f'{run}-{name}', '--plugin-path', plugins, '--reference', *flags)

    plain = trains('plain', use('sgd', lr=1e-9))
    still = trains('still', use('pissa', rank=4), use('sgd', lr=1e-9), steps=1)
    made = trains('pissa', use('pissa', rank=4), use('sgd', lr=0.3), save=dict(every=2))
    made.check_memory('pissa')
    for (loss, _), (expected, _) in together(still.steps, plain.steps[:1]):
        check(abs(loss - expected) < 1e-5, f'pissa {name}: it begins at {loss}, not {expected}')
    validated = [x['validation_loss'] for x in made.lines if 'validation_loss' in x]
    check(validated[-1] < validated[0] - 0.01, f'pissa {name}: validation went from {validated[0]} to {validated[-1]} only')
    # Nothing is lost: what is saved is W again, and no more numbers lie in memory than those of the rest, A and B.
    before = galley_test.load((folder or plain.path / 'model') / 'model.safetensors')
    saved, after = tensors(still), {k: v for file in (still.path / 'state').rglob('*.safetensors') for k, v in galley_test.load(file).items()}
    check(max(abs(x - y) for k in saved for x, y in zip(saved[k], before[k][2])) < 1e-6, f'pissa {name}: what is saved is not what was loaded')
    adapters = sorted(k for k in after if k.startswith('pissa.'))
    check(len(adapters) == 2 * 2 * 7, f'pissa {name}: {adapters}')
    weights = sum(len(x[2]) for x in before.values()) + sum(len(after[k][2]) for k in adapters)
    held = made.memory['classes']['host']['owners']['weights']
    check(4 * weights <= held <= 4 * weights + 64 * (len(before) + len(adapters)), f'pissa {name}: {held} bytes of weights, where {4 * weights} are enough')
    # U and V are orthogonal to what is left, which has no larger singular value.
    for key in adapters[::2]:
        weight = key[len('pissa.'):-len('.A')]
        a, b, w = rows_of(after[key]), rows_of(after[key[:-1] + 'B']), rows_of(before[weight])
        rest = [[x - y for x, y in zip(r, s)] for r, s in zip(w, product(b, a))]
        largest = max(abs(x) for m in (product(list(zip(*b)), rest), product(rest, list(zip(*a)))) for r in m for x in r)
        check(largest < 1e-5, f'pissa {name}: {weight}: what is left has {largest} of what A and B have')
        gram = product(a, list(zip(*a)))
        kept = [gram[i][i] for i in range(4)]
        off = max(abs(gram[i][j]) for i in range(4) for j in range(4) if i != j)
        check(off < 1e-5 and kept == sorted(kept, reverse=True), f'pissa {name}: {weight}: A Aᵀ is {gram}')
        vector = [1.0 / (i + 1) for i in range(len(rest[0]))]
        for _ in range(60):
            image = [sum(x * y for x, y in zip(row, vector)) for row in rest]
            vector = [sum(x * y for x, y in zip(column, image)) for column in zip(*rest)]
            size = sum(x * x for x in vector) ** 0.5
            vector = [x / size for x in vector]
        check(size ** 0.5 <= kept[-1] * (1 + 1e-3), f'pissa {name}: {weight}: a singular value {size ** 0.5} is left, and {kept[-1]} was taken')
    said = galley_test.run('eval', made.path, '--json', '--plugin-path', plugins, '--reference').stdout
    check(json.loads(said)['validation_loss'] == validated[-1], f'pissa {name}: eval says {said}, the last validation {validated[-1]}')
    galley_test.run('sample', made.path, '--prompt', 'one', '--tokens', '4', '--plugin-path', plugins, '--reference')
    galley_test.run('export', made.path, '--out', f'export-{name}', '--plugin-path', plugins, '--reference')
    of_saved = recipe(f'saved-{name}.lua', galley_test.from_folder(f'export-{name}'), DATA, steps=1, validate=dict(every=1), **common)
    loss = json.loads(galley_test.run('eval', of_saved, '--json').stdout)['validation_loss']
    check(abs(loss - validated[-1]) < 1e-5, f'pissa {name}: the saved model gives {loss}, the last validation was {validated[-1]}')


@case
def products_are_replaced():
    """A product that takes the place of `linear`, and LoRA beside it: the same bytes in either order, and nothing of what was replaced."""
    plugins = built() / 'row-linear'
    rows, lora = use('row-linear'), use('lora', rank=4, alpha=8, dropout=0.1)
    runs = {}
    for name, uses in (('before', (rows, lora)), ('behind', (lora, rows)), ('alone', (lora,))):
        path = recipe(f'{name}.lua', llama(), DATA, *uses, use('adamw', lr=1e-2), batch=2, length=16, seed=3, steps=4, validate=dict(every=2))
        runs[name] = train(path, name, '--plugin-path', plugins, '--reference')
        dump = galley_test.run('plan', path, '--plugin-path', plugins, '--dump', 'rewrite').stdout
        count = dump.count(': row_linear('), sum(': linear(' in line and 'lora' not in line for line in dump.splitlines())
        check(count == ((0, 15) if name == 'alone' else (14, 1)), f'{name}: {count} products of both kinds')
    before, behind, alone = runs.values()
    check(before.bytes('adapter/adapter_model.safetensors') == behind.bytes('adapter/adapter_model.safetensors'), 'row-linear and lora: the order decides')
    check([x.get('validation_loss') for x in before.lines] == [x.get('validation_loss') for x in behind.lines], 'row-linear and lora: validations differ')
    planned = [[x | dict(strategies=sorted(x['strategies'].values())) for x in r.memory['classes'].values()] for r in (before, behind)]
    check(planned[0] == planned[1], f'row-linear and lora: the plans differ: {planned}')
    for (loss, norm), (expected, norm_alone) in together(before.steps, alone.steps):
        check(abs(loss - expected) < 1e-4 and abs(norm - norm_alone) < 1e-3, f'row-linear: loss {loss} and norm {norm}, not {expected} and {norm_alone}')
    held = [r.memory['classes']['host']['owners']['weights'] for r in (before, alone)]
    check(held[0] == held[1], f'row-linear: {held[0]} bytes of weights, {held[1]} without it')
    galley_test.run('export', 'before', '--merge', '--out', 'merged', '--plugin-path', plugins, '--reference')


finish()
