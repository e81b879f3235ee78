#!/usr/bin/env python3
"""Strategies of the literature that no built-in one resembles, as plugins that are built with the installed SDK alone."""
import json
import pathlib
import shutil

import galley_test
from galley_test import check, finish, fresh_folder, from_config, recipe, source, train, use
from sdk_kit import build_together, install, outside

fresh_folder()


def tensors(run):
    """The values of every tensor that a run's model has."""
    return {name: values for name, (_, _, values) in galley_test.load(run.path / 'model' / 'model.safetensors').items()}


def rates_are_scaled():
    """Layer-wise decay with the built-in adamw: each block as if it were trained at its own rate, and not a byte of memory for it."""
    plugins = built / 'layer-decay'
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
    plugins = built / 'gradient-noise'
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
    for name, option, steps, fall in (('schedule-free', dict(lr=1e-2), 12, 2.0), ('prodigy', {}, 30, 2.0)):
        plugins = built / name
        common = dict(batch=2, length=16, seed=5)
        path = recipe(f'{name}.lua', model, DATA, use(name, **option), steps=steps, validate=dict(every=steps // 3, start=True), save=dict(every=steps // 3), **common)
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
            saved = recipe(f'{name}-saved.lua', f'model {{ path = "{folder}" }}', DATA, steps=1, validate=dict(every=1), **common)
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


def llama(folder=None):
    """A small model, with random weights or those of a folder."""
    if folder:
        return galley_test.from_folder(folder)
    return from_config('llama', vocab_size=256, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                       max_position_embeddings=64, rms_norm_eps=1e-5)


DATA = 'data.text { files = { "text.txt" }, tokenizer = "bytes", validation = 0.2 }'


def product(a, b):
    """Of two matrices, as lists of rows."""
    columns = list(zip(*b))
    return [[sum(x * y for x, y in zip(row, column)) for column in columns] for row in a]


def rows_of(tensor):
    _, (rows, columns), values = tensor
    return [list(values[i * columns:(i + 1) * columns]) for i in range(rows)]


def adapters_begin_as_parts_of_weights():
    """PiSSA: W = B A + rest, of files and of random numbers. The rest has no second copy, and B A is its principal part."""
    plugins = built / 'pissa'
    common = dict(batch=2, length=16, seed=3)
    base = train(recipe('base.lua', llama(), DATA, use('sgd', lr=0.3), steps=4, **common), 'base')
    for name, folder in (('files', 'base/model'), ('random', None)):
        def trains(run, *uses, steps=4, flags=(), **more):
            path = recipe(f'{run}-{name}.lua', llama(folder), DATA, *uses, steps=steps, validate=dict(every=steps, start=True), **common, **more)
            return train(path, f'{run}-{name}', '--plugin-path', plugins, '--reference', *flags)

        plain = trains('plain', use('sgd', lr=1e-9))
        still = trains('still', use('pissa', rank=4), use('sgd', lr=1e-9), steps=1)
        made = trains('pissa', use('pissa', rank=4), use('sgd', lr=0.3), save=dict(every=2))
        made.check_memory('pissa')
        for (loss, _), (expected, _) in zip(still.steps, plain.steps):
            check(abs(loss - expected) < 1e-5, f'pissa {name}: it begins at {loss}, not {expected}')
        validated = [x['validation_loss'] for x in made.lines if 'validation_loss' in x]
        check(validated[-1] < validated[0] - 0.01, f'pissa {name}: validation went from {validated[0]} to {validated[-1]} only')
        # Nothing is lost: what is saved is W again, and no more numbers lie in memory than those of the rest, A and B.
        before = galley_test.load((base.path if folder else plain.path) / 'model' / 'model.safetensors')
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


def products_are_replaced():
    """A product that takes the place of `linear`, and LoRA beside it: the same bytes in either order, and nothing of what was replaced."""
    plugins = built / 'row-linear'
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
    for (loss, norm), (expected, norm_alone) in zip(before.steps, alone.steps):
        check(abs(loss - expected) < 1e-4 and abs(norm - norm_alone) < 1e-3, f'row-linear: loss {loss} and norm {norm}, not {expected} and {norm_alone}')
    held = [r.memory['classes']['host']['owners']['weights'] for r in (before, alone)]
    check(held[0] == held[1], f'row-linear: {held[0]} bytes of weights, {held[1]} without it')
    galley_test.run('export', 'before', '--merge', '--out', 'merged', '--plugin-path', plugins, '--reference')


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


def optimizers_in_small_spaces():
    """APOLLO: its states have the projection's shape; what it leaves to adamw_step is that op's work."""
    plugins = ['--plugin-path', built / 'apollo']
    entries = dict(batch=2, length=16, seed=3, steps=8, validate=dict(every=4, start=True), save=dict(every=4))
    made = train(recipe('apollo.lua', llama(), DATA, use('apollo', lr=3e-3, rank=4, every=5), use('clip', norm=1.0), **entries), 'apollo', *plugins, '--reference')
    made.check_memory('apollo')
    validated = in_every_segment(made, plugins, 'apollo')
    check(validated[-1] < validated[0] - 0.3, f'apollo: validation went from {validated[0]} to {validated[-1]} only')
    state = states_of(made)
    for name, (_, shape, _) in state.items():
        weight = name.rsplit('.exp_avg', 1)[0]
        if weight == name:
            continue
        of = state[weight][1]
        check(shape == ([4, max(of)] if len(of) == 2 else of), f'apollo: {name} is {shape}, its parameter {of}')


def adapters_are_merged_by_the_update():
    """ReLoRA: weights without gradients, which the update writes. A merge changes no loss, and leaves what an adapter begins with."""
    plugins = ['--plugin-path', built / 'relora']

    def trains(name, every, steps):
        path = recipe(f'{name}.lua', llama(), DATA, use('relora', rank=4, every=every), use('adamw', lr=1e-2), batch=2, length=16, seed=3, steps=steps,
                      validate=dict(every=4, start=True), save=dict(every=4))
        made = train(path, name, *plugins, '--reference')
        made.check_memory(name)
        return made

    merged, apart = trains('relora-merged', 4, 4), trains('relora-apart', 100, 4)
    validated = [in_every_segment(r, plugins, r.path.name) for r in (merged, apart)]
    check(merged.steps == apart.steps, 'relora: steps before the first merge differ')
    check(abs(validated[0][-1] - validated[1][-1]) < 1e-5, f'relora: merging changes the validation from {validated[1][-1]} to {validated[0][-1]}')
    saved = [tensors(r) for r in (merged, apart)]
    check(max(abs(x - y) for k in saved[0] for x, y in zip(saved[0][k], saved[1][k])) < 1e-6, 'relora: the saved models differ')
    after = states_of(merged)
    adapters = [k for k in after if k.endswith('.B') and k.startswith('relora.')]
    check(len(adapters) == 14, f'relora: {sorted(after)}')
    for b in adapters:
        zero = [k for k in (b, *(f'{b[:-1]}{part}{kind}' for part in 'AB' for kind in ('.exp_avg', '.exp_avg_sq'))) if any(after[k][2])]
        check(not zero, f'relora: {zero} are not zero behind a merge')
        check(any(after[b[:-1] + 'A'][2]), f'relora: {b[:-1]}A is zero')
    longer = trains('relora-longer', 4, 8)
    fell = in_every_segment(longer, plugins, 'relora-longer')
    check(fell[-1] < fell[0] - 0.1 and len(fell) == 3, f'relora: validations {fell}')


def ops_from_a_table():
    """Two plugins of one source, each with one set of functions for all of its ops, kernels and strategies."""
    plugins = [x for id in BRIDGES for x in ('--plugin-path', built / id)]
    losses = []
    for name, uses in (('one', ('bridge-b.half',)), ('all', ('bridge-a.sine', 'bridge-b.cube', 'bridge-b.half')), ('turned', ('bridge-b.half', 'bridge-b.cube', 'bridge-a.sine'))):
        path = recipe(f'bridge-{name}.lua', llama(), DATA, *(use(x) for x in uses), use('adamw', lr=1e-2), batch=2, length=16, seed=3, steps=2, validate=dict(every=2))
        made = train(path, f'bridge-{name}', *plugins, *(['--reference'] if name == 'all' else []))
        if name == 'all':
            in_every_segment(made, plugins, f'bridge-{name}')
        losses.append(made.steps)
    check(losses[0] != losses[1] and losses[1] == losses[2], f'ops from a table: {losses}')


BRIDGES = {'bridge-a': 'sine', 'bridge-b': 'cube'}


def bridge(id):
    """The source of a bridge under this id."""
    folder = outside / f'source-{id}'
    shutil.copytree(source / 'tests' / 'sdk' / 'bridge', folder)
    manifest = folder / 'plugin.toml'
    manifest.write_text(manifest.read_text().replace('BRIDGE', id).replace('FIRST', BRIDGES[id]))
    return folder


try:
    pathlib.Path('text.txt').write_text('one two three four five six seven eight nine ten. ' * 60)
    install()
    names = ['layer-decay', 'gradient-noise', 'schedule-free', 'prodigy', 'pissa', 'row-linear', 'apollo', 'relora']
    built = build_together({**{name: source / 'tests' / 'sdk' / name for name in names}, **{id: bridge(id) for id in BRIDGES}},
                           {id: f'BRIDGE="{id}"' for id in BRIDGES})
    rates_are_scaled()
    gradients_are_changed()
    optimizers_of_all_parameters()
    adapters_begin_as_parts_of_weights()
    products_are_replaced()
    optimizers_in_small_spaces()
    adapters_are_merged_by_the_update()
    ops_from_a_table()
finally:
    shutil.rmtree(outside, ignore_errors=True)
finish()
