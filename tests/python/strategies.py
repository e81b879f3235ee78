#!/usr/bin/env python3
"""What each strategy promises, seen from outside: in bytes, in gradients and in what a run leaves behind."""
import os
import json
import math
import shutil

from galley_test import (batch_of, binary, check, error, every, finish, fixtures, fresh_folder, from_config, from_folder, gradients, load, norm, plan, recipe, run,
                         save, together, train, use)

fresh_folder()
plugins = [x for name in ('bf16-storage', 'second-memory', 'two-memories') for x in ('--plugin-path', binary / 'tests' / 'plugins' / name)]
gpt2_case = fixtures / 'models' / 'gpt2-packed'
llama_case = fixtures / 'models' / 'llama-gqa-tied'


def small_gpt2(dropout=0.1, layers=4):
    return from_config('gpt2', vocab_size=97, n_positions=32, n_embd=32, n_layer=layers, n_head=4, resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout)


def same(a, b, who):
    check(a.steps == b.steps, f'{who}: metrics differ: {a.steps} and {b.steps}')
    check(a.bytes() == b.bytes(), f'{who}: the models differ')


def recompute():
    runs, saved = {}, {}
    for name, options in {'none': dict(policy='none'), 'every-1': dict(every=1), 'every-2': dict(every=2), 'sqrt': dict(policy='sqrt'),
                          'input': dict(policy='input'), 'cheap': dict(policy='cheap')}.items():
        path = recipe(f'recompute-{name}.lua', small_gpt2(layers=6), 'data.random {}', use('recompute', **options), use('adamw', lr=1e-3), use('clip', norm=1.0),
                      batch=4, length=32, steps=4, seed=3)
        runs[name] = train(path, f'recompute-{name}')
        runs[name].check_memory(f'recompute {name}')
        host = plan(path)['classes']['host']
        saved[name] = (host['owners']['saved'], host['planned'])
    for name in ('every-1', 'every-2', 'sqrt', 'input', 'cheap'):
        same(runs['none'], runs[name], f'recompute {name}')
        for less, all_of_it, what in together(saved[name], saved['none'], ('saves', 'plans')):
            check(less < all_of_it, f'recompute {name} {what} {less} bytes, {all_of_it} without')
    check(saved['every-1'] < saved['cheap'], f'recompute cheap saves less than every block: {saved}')
    check(len(runs['none'].steps) == 4, 'recompute: there are not four steps')


def depth():
    """With the model's input alone a deep model peaks lower than with every block's, and gives the same bytes."""
    made, planned = {}, {}
    for name, options in {'every': {}, 'sqrt': dict(policy='sqrt'), 'input': dict(policy='input')}.items():
        path = recipe(f'depth-{name}.lua', small_gpt2(layers=48, dropout=0.0), 'data.random {}', use('recompute', **options), use('sgd', lr=1e-3),
                      batch=32, length=32, steps=1, seed=3)
        run('plan', path, '--check')
        made[name] = train(path, f'depth-{name}')
        made[name].check_memory(f'depth {name}')
        planned[name] = plan(path)['classes']['host']
        same(made['every'], made[name], f'depth {name}')
    x = {name: host['planned'] for name, host in planned.items()}
    check(x['input'] < x['every'] < x['sqrt'], f'48 blocks: planned are {x}')
    inputs = 47 * 32 * 32 * 32 * 4
    check(x['every'] - x['input'] > 0.5 * inputs, f'48 blocks: planned are {x}, and the inputs of blocks are {inputs} bytes')


def budget():
    def planned(name, **options):
        path = recipe(f'budget-{name}.lua', small_gpt2(layers=6), 'data.random {}', use('recompute', **options), use('adamw', lr=1e-3), batch=16, length=32,
                      steps=3, seed=3)
        return path, plan(path)['classes']['host']['planned'], plan(path)['flops_per_token']
    paths = {name: planned(name, **options) for name, options in {'none': dict(policy='none'), 'every': {}, 'input': dict(policy='input')}.items()}
    most, some, least = (paths[name][1] for name in ('none', 'every', 'input'))
    runs = [train(paths['none'][0], 'budget-none')]
    work = paths['none'][2]
    for i, bytes_ in enumerate((most, most - 1, (most + some) // 2, some, (some + least) // 2, least)):
        path, taken, flops = planned(i, budget=bytes_)
        check(taken <= bytes_, f'a budget of {bytes_} bytes: {taken} are planned')
        check(flops >= work, f'a budget of {bytes_} bytes costs less than a larger one: {flops} operations a token, {work} with the larger')
        check((taken == most) == (i == 0), f'a budget of {bytes_} bytes: all is kept, or nothing is')
        check(i != 2 or flops < paths['every'][2], f'half the memory takes all the time: {flops}, {paths["every"][2]} with the inputs of blocks alone')
        work = flops
        run('plan', path, '--check')
        runs.append(train(path, f'budget-{i}'))
        same(runs[0], runs[-1], f'a budget of {bytes_} bytes')
    path = recipe('budget-small.lua', small_gpt2(layers=6), 'data.random {}', use('recompute', budget='1 MiB'), use('adamw', lr=1e-3), batch=16, length=32, steps=3)
    said = run('plan', path, code=2).stderr
    check('recompute: the plan takes at least ' in said and 'the budget is 1.00 MiB' in said, f'a budget that is too small: {said}')


def accumulate():
    rows, length = 6, 24
    ids, labels, documents, mask = [], [], [], []
    for row in range(rows):
        tokens = length - 3 * row
        for s in range(length):
            token = (31 * row + 7 * s * s + 5 * s) % 97
            ids.append(token)
            labels.append(token if s < tokens and row != 2 else -100)  # a row with no valid token
            documents.append(0 if s < 5 + row else 1)
            mask.append(1 if s < tokens else 0)
    tensors = dict(input_ids=ids, labels=labels, document_ids=documents, attention_mask=mask)
    save('rows.safetensors', {k: ('I32', (rows, length), x) for k, x in tensors.items()})
    save('row.safetensors', {k: ('I32', (1, length), x[:length]) for k, x in tensors.items()})

    def window(name, batch, steps, file='rows.safetensors'):
        return recipe(f'accumulate-{name}.lua', small_gpt2(), f'data.batch {{ path = "{file}" }}', use('accumulate', steps=steps), use('adamw', lr=1e-3),
                      batch=batch, length=length, steps=3, seed=5)
    one, split, single = window('8x1', 8, 1), window('1x8', 1, 8), window('1x1', 1, 1, 'row.safetensors')
    wanted = gradients(one, 'accumulate-one.safetensors')
    total = math.sqrt(math.fsum(norm(x[2]) ** 2 for k, x in wanted.items() if k.startswith('grad.')))
    for name, path in {'8 of 1': split, '3 of 2 and one empty': window('2x4', 2, 4)}.items():
        computed = gradients(path, 'accumulate-split.safetensors')
        check(computed.keys() == wanted.keys(), f'accumulate {name}: other tensors')
        for k, x in wanted.items():
            e = error(computed[k][2], x[2], 1e-3 * total if k != 'loss' else 0)
            check(e <= 1e-6, f'accumulate {name}: {k} is off by {e:.1e}')
    a, b = train(one, 'accumulate-one'), train(split, 'accumulate-split')
    b.check_memory('accumulate')
    for (x, _), (y, _) in together(a.steps, b.steps):
        check(error([x], [y]) <= 1e-5, f'accumulate: losses {x} and {y}')
    check([x['tokens'] for x in a.lines] == [x['tokens'] for x in b.lines], 'accumulate: tokens differ')
    more, less = plan(split), plan(single)
    buffers = 2 * 7 * length * 4 * 8 + 4096  # of the loader: seven rows more, at most eight numbers a position
    difference = more['classes']['host']['planned'] - less['classes']['host']['planned']
    check(difference <= 4 * more['trainable'] + buffers, f'accumulate: 8 micro-batches plan {difference} bytes more than one')


def freeze():
    model = from_folder(gpt2_case)
    path = recipe('freeze.lua', model, batch_of(gpt2_case / 'batch.safetensors'), use('freeze', **{'except': ['transformer.h.1.*']}), use('adamw', lr=1e-3), steps=3)
    before = load(gpt2_case / 'model.safetensors')
    trained = {k for k in before if k.startswith('transformer.h.1.')}
    check(0 < len(trained) < len(before), 'freeze: the case has no other parameters')
    computed = gradients(path, 'freeze.safetensors')
    check({k[5:] for k in computed if k.startswith('grad.')} == trained, f'freeze: gradients are {sorted(computed)}')
    p = plan(path)
    check(p['trainable'] == sum(len(before[k][2]) for k in trained), f'freeze: {p["trainable"]} parameters trainable')
    held = p['classes']['host']['owners']['gradients']
    check(held <= 4 * p['trainable'], f'freeze: gradients hold {held} bytes of {p["trainable"]} trainable parameters')
    r = train(path, 'freeze')
    r.check_memory('freeze')
    after = load('freeze/model/model.safetensors')
    for k, x in before.items():
        check((after[k][2].tobytes() == x[2].tobytes()) == (k not in trained), f'freeze: {k} has {"not " if k in trained else ""}changed')
    r = run('plan', recipe('nothing.lua', model, batch_of(gpt2_case / 'batch.safetensors'), use('freeze', patterns=['transformer.x.*']), use('adamw', lr=1e-3), steps=1), code=2)
    check('transformer.x.*' in r.stderr and 'freeze' in r.stderr, f'freeze: the refusal says {r.stderr}')


def freeze_by_place():
    """By block, embeddings, and all but some."""
    model, names = from_folder(gpt2_case), set(load(gpt2_case / 'model.safetensors'))

    def of_block(b):
        return {x for x in names if x.startswith(f'transformer.h.{b}.')}
    embeddings = {'transformer.wte.weight', 'transformer.wpe.weight'} & names
    layers = 1 + max(int(x.split('.')[2]) for x in names if x.startswith('transformer.h.'))
    check(len(embeddings) == 2 and layers >= 2, f'freeze: {layers} blocks, {embeddings}')
    for options, frozen in ((dict(blocks=1), of_block(0)), (dict(blocks=layers), set().union(*map(of_block, range(layers)))), (dict(embeddings=True), embeddings),
                            (dict(blocks=1, embeddings=True), of_block(0) | embeddings), (dict(blocks=1, patterns='*.ln_f.*'), of_block(0) | {x for x in names if '.ln_f.' in x}),
                            ({'blocks': 1, 'except': '*.bias'}, {x for x in of_block(0) if not x.endswith('.bias')}),
                            ({'embeddings': True, 'except': 'transformer.wpe.*'}, embeddings - {'transformer.wpe.weight'})):
        path = recipe('place.lua', model, batch_of(gpt2_case / 'batch.safetensors'), use('freeze', **options), use('adamw', lr=1e-3), steps=1)
        computed = {k[5:] for k in gradients(path, 'place.safetensors') if k.startswith('grad.')}
        check(computed == names - frozen, f'freeze {options}: {sorted(computed ^ (names - frozen))}')
        rows = {x['by']: x for x in plan(path)['updates']}
        check(rows['']['parameters'] == len(frozen) if '' in rows else rows[None]['parameters'] == len(frozen), f'freeze {options}: {rows}')
    # What another strategy has added to a block is trained.
    path = recipe('place.lua', model, batch_of(gpt2_case / 'batch.safetensors'), use('lora', rank=2, alpha=4, targets='all-linear'), use('freeze', blocks=layers), use('adamw', lr=1e-3),
                  steps=1)
    check(plan(path)['trainable'] > 0, 'freeze: an adapter of a frozen block is not trained')
    for options, words in ((dict(blocks=layers + 1), (f"'blocks' is {layers + 1}, and the model has {layers}",)), ({}, ('nothing is named', "'except'")),
                           (dict(block=1), ("did you mean 'blocks'",)), (dict(all_but='*'), ("did you mean 'except'",))):
        said = run('plan', recipe('place.lua', model, batch_of(gpt2_case / 'batch.safetensors'), use('freeze', **options), use('adamw', lr=1e-3), steps=1), code=2).stderr
        check(every(x in said for x in words), f'freeze {options}: {said}')


def clip_by_value():
    """Each element of the mean gradient within the value, whatever scales or splits it; behind a norm."""
    w0 = load(llama_case / 'model.safetensors')
    small = small_gpt2()

    def moved(name, model, data, *uses, before=None, **entries):
        """What plain steps of rate 1 leave of the gradient."""
        r = train(recipe(f'{name}.lua', model, data, *uses, use('sgd', lr=1.0), steps=1, **entries), name)
        after = load(r.path / 'model' / 'model.safetensors')
        return {k: [a - b for a, b in zip(after[k][2], before[k][2])] for k in after}, r

    def clamped(xs, limit):
        return {k: [max(-limit, min(limit, v)) for v in x] for k, x in xs.items()}

    def near(name, x, expected, bound=1e-5):
        e = error([v for k in expected for v in x[k]], [v for k in expected for v in expected[k]])
        check(e <= bound, f'{name}: the step is off by {e:.1e}')
    batch = batch_of(llama_case / 'batch.safetensors')
    free, r = moved('value-free', from_folder(llama_case), batch, before=w0)
    everything = sorted(abs(v) for x in free.values() for v in x)
    limit, size = everything[int(0.9 * len(everything))], r.steps[0][1]
    by_value, r = moved('value', from_folder(llama_case), batch, use('clip', value=limit), before=w0)
    near('clip by value', by_value, clamped(free, limit))
    check(error([r.steps[0][1]], [size]) <= 1e-5, f'clip by value: grad_norm is {r.steps[0][1]}, not {size} before clipping')
    near('clip by both', moved('value-norm', from_folder(llama_case), batch, use('clip', norm=size / 2, value=limit / 2), before=w0)[0],
         clamped({k: [v / 2 for v in x] for k, x in free.items()}, limit / 2))
    wide = train(recipe('value-wide.lua', from_folder(llama_case), batch, use('clip', value=2 * everything[-1]), use('sgd', lr=1.0), steps=1), 'value-wide')
    check(wide.bytes() == (r.path.parent / 'value-free' / 'model' / 'model.safetensors').read_bytes(), 'clip: a value above all elements changed the step')
    # Loss scale and micro-batches: gradients in memory are other numbers, but the limit is of their mean.
    w1 = load(train(recipe('value-begin.lua', small, 'data.random {}', use('sgd', lr=0.0), steps=1, batch=2, length=16, seed=3), 'value-begin').path / 'model' / 'model.safetensors')
    amp, several = use('amp', compute='fp16', loss_scale=1024), use('accumulate', steps=3)
    for name, uses in (('scaled', [amp]), ('several', [several]), ('both', [amp, several])):
        free, _ = moved(f'value-{name}-free', small, 'data.random {}', *uses, before=w1, batch=2, length=16, seed=3)
        everything = sorted(abs(v) for x in free.values() for v in x)
        limit = everything[int(0.9 * len(everything))]
        near(f'clip by value, {name}', moved(f'value-{name}', small, 'data.random {}', *uses, use('clip', value=limit), before=w1, batch=2, length=16, seed=3)[0], clamped(free, limit), 1e-4)


def clip_and_sgd():
    def case(name, model, steps, *uses):
        return recipe(f'{name}.lua', model, batch_of(llama_case / 'batch.safetensors'), *uses, steps=steps)
    base = from_folder(llama_case)
    w0 = load(llama_case / 'model.safetensors')
    names = [k for k in w0]

    def flat(tensors, prefix=''):
        return [v for k in names for v in tensors[prefix + k][2]]
    plain = case('sgd', base, 1, use('sgd', lr=0.5))
    g1, x0 = flat(gradients(plain, 'sgd.safetensors'), 'grad.'), flat(w0)
    size = norm(g1)
    bound = size / 4
    clipped = train(case('clip', base, 1, use('sgd', lr=0.5), use('clip', norm=bound)), 'clip')
    free = train(plain, 'sgd')
    for r, factor in ((free, 1.0), (clipped, bound / (size + 1e-6))):
        e = error([r.steps[0][1]], [size])
        check(e <= 1e-5, f'{r.path}: grad_norm is {r.steps[0][1]}, not {size} before clipping')
        moved = [a - b for a, b in zip(flat(load(r.path / 'model' / 'model.safetensors')), x0)]
        e = error(moved, [-0.5 * factor * g for g in g1])
        check(e <= 1e-5, f'{r.path}: the step is off by {e:.1e}')
    wide = train(case('clip-wide', base, 1, use('sgd', lr=0.5), use('clip', norm=2 * size)), 'clip-wide')
    check(wide.bytes() == free.bytes(), 'clip: a bound above the norm changed the step')
    # Two steps with momentum and decay, the second gradient computed at the model of the first.
    options = dict(lr=0.1, momentum=0.9, weight_decay=0.1, decay_on='all')
    first = train(case('sgd-1', base, 1, use('sgd', **options)), 'sgd-1')
    second = train(case('sgd-2', base, 2, use('sgd', **options)), 'sgd-2')
    x1 = flat(load('sgd-1/model/model.safetensors'))
    g2 = flat(gradients(case('sgd-at', from_folder('sgd-1/model'), 1, use('sgd', lr=0.1)), 'sgd-at.safetensors'), 'grad.')
    d1 = [g + 0.1 * x for g, x in zip(g1, x0)]
    d2 = [g + 0.1 * x + 0.9 * d for g, x, d in zip(g2, x1, d1)]
    for x, old, d, who in ((x1, x0, d1, 'first'), (flat(load('sgd-2/model/model.safetensors')), x1, d2, 'second')):
        e = error([a - b for a, b in zip(x, old)], [-0.1 * v for v in d])
        check(e <= 1e-5, f'sgd: the {who} step with momentum is off by {e:.1e}')
    check(first.steps[0] == second.steps[0], 'sgd: the first steps differ')


def threads():
    path = recipe('threads.lua', small_gpt2(), 'data.random {}', use('adamw', lr=1e-3), use('clip', norm=1.0), batch=8, length=32, steps=4, seed=9)
    same(train(path, 'threads-1', threads=1), train(path, 'threads-2', threads=2), '1 and 2 threads')


def lora():
    data = batch_of(gpt2_case / 'batch.safetensors')
    base = from_folder(gpt2_case)

    def adapted(name, steps, merge=False, **options):
        return train(recipe(f'{name}.lua', base, data, use('lora', merge=merge, **options), use('sgd', lr=0.5), steps=steps), name)
    whole = adapted('lora-4', 4, rank=4, alpha=8, targets='all-linear')
    whole.check_memory('lora')
    adapted('lora-whole', 4, merge=True, rank=4, alpha=8, targets='all-linear').check_memory('lora with merge')
    adapted('lora-2', 2, rank=4, alpha=8, targets='all-linear')
    config = json.loads(whole.bytes('adapter/adapter_config.json'))
    check((config['peft_type'], config['r'], config['lora_alpha']) == ('LORA', 4, 8), f'lora: adapter_config.json says {config}')
    tensors = load('lora-4/adapter/adapter_model.safetensors')
    weights = load(gpt2_case / 'model.safetensors')
    check(len(tensors) == 2 * 4 * 2, f'lora: {len(tensors)} tensors for four linear layers in two blocks')
    for k, (dtype, shape, x) in tensors.items():
        layer, part = k.removeprefix('base_model.model.').rsplit('.lora_', 1)
        n_in, n_out = weights[layer + '.weight'][1]  # stored (in, out)
        check(shape == ([4, n_in] if part == 'A.weight' else [n_out, 4]) and part in ('A.weight', 'B.weight'), f'lora: {k} has shape {shape}')
        check(norm(x) > 0, f'lora: {k} is zero')
    on = adapted('lora-on', 2, path='lora-2/adapter')
    check(on.bytes('adapter/adapter_model.safetensors') == whole.bytes('adapter/adapter_model.safetensors'), 'lora: two steps and two more are not four')
    check(on.steps == whole.steps[2:], f'lora: steps {on.steps} after going on, {whole.steps[2:]} at once')
    beside = recipe('lora-beside.lua', base, data, use('lora', path='lora-4/adapter'), use('sgd', lr=0.1), steps=1)
    merged = recipe('lora-merged.lua', from_folder('lora-whole/model'), data, use('sgd', lr=0.1), steps=1)
    a, b = gradients(beside, 'lora-beside.safetensors', '--logits'), gradients(merged, 'lora-merged.safetensors', '--logits')
    e = error(b['logits'][2], a['logits'][2])
    check(e <= 1e-5, f'lora: logits of the merged model are off by {e:.1e}')
    plain = gradients(recipe('lora-none.lua', base, data, use('sgd', lr=0.1), steps=1), 'lora-none.safetensors', '--logits')
    check(error(plain['logits'][2], a['logits'][2]) > 1e-2, 'lora: the adapter changes nothing')


def poison():
    def runs(name, *uses):
        path = recipe(f'{name}.lua', small_gpt2(), 'data.random {}', *uses, use('clip', norm=0.5), use('adamw', lr=1e-3), batch=2, length=16, steps=3, seed=4)
        return path, train(path, name)
    for name, uses in {'plain': (), 'stacked': (use('recompute', every=2), use('accumulate', steps=3))}.items():
        path, normal = runs(name, *uses)
        same(normal, train(path, f'{name}-poison', '--poison'), f'{name} with --poison')
        same(normal, train(path, f'{name}-lazy', '--device', 'lazy', '--plugin-path', os.path.join(os.environ['GALLEY_BINARY'], 'tests', 'plugins', 'lazy-device')), f'{name} on the lazy device')


def storage_and_placement():
    def one(name, *uses, device='cpu'):
        path = recipe(f'{name}.lua', small_gpt2(), 'data.random {}', *uses, use('clip', norm=0.5), use('adamw', lr=1e-2), batch=2, length=16, steps=5, seed=4)
        run('plan', path, '--check', '--device', device, *plugins)
        r = train(path, name, '--device', device, *plugins)
        r.check_memory(name)
        return r
    normal = one('normal')
    placed = one('placed', use('second-memory', parameters=['*.c_fc.weight'], states=['*']), device='two-memories')
    same(normal, placed, 'states in a second memory')
    spill = placed.memory['classes']['spill']['planned']
    host = [r.memory['classes']['host']['owners']['states'] for r in (normal, placed)]
    check(spill >= 8 * placed.memory['trainable'], f'second-memory: {spill} bytes in the second memory')
    check(host[1] < host[0] / 2, f'second-memory: states hold {host[1]} bytes of the first memory, {host[0]} without')
    half = one('half', use('bf16-storage', parameters=['*.c_fc.weight'], states=['*']))
    check(half.memory['classes']['host']['owners']['states'] < 0.6 * host[0], 'bf16-storage: states are not smaller')
    check(half.bytes() != normal.bytes(), 'bf16-storage: nothing was rounded')
    for (x, _), (y, _) in together(half.steps, normal.steps):
        check(error([x], [y]) < 0.02, f'bf16-storage: loss {x}, {y} without')


def kernels_of_formats():
    """Kernels that take a format are given what is stored, and give the bytes that unpacking beside them gives, in less memory."""
    kernels = ['--plugin-path', binary / 'tests' / 'plugins' / 'bf16-kernels']
    # The largest tensor's momentum decides the peak; what is unpacked beside it would add its size.
    model = from_config('gpt2', vocab_size=4099, n_positions=32, n_embd=32, n_layer=2, n_head=4)
    uses, entries = (use('bf16-storage', parameters=['*.wpe.weight'], states=['*']), use('sgd', lr=1e-2, momentum=0.9)), dict(batch=2, length=4, steps=5, seed=4)
    path = recipe('formats.lua', model, 'data.random {}', *uses, **entries)
    asked = recipe('asked.lua', model, 'data.random {}', *uses, **entries, kernels=['bf16-kernels'])
    # Nobody's kernels do the work of others unasked.
    host = [plan(x, *plugins, *kernels)['classes']['host']['planned'] for x in (path, asked)]
    check(host[0] == plan(path, *plugins)['classes']['host']['planned'] > host[1], f'kernels of a plugin that the recipe does not ask for: {host}')
    check('bf16-kernels' in [x['plugin'] for x in plan(asked, *plugins, *kernels)['kernels']['sgd_step']], 'the plan does not say whose kernel it takes')
    # One launch for all packed states, as for those that are not.
    momentum = use('sgd', lr=1e-2, momentum=0.9)
    states = [use('bf16-storage', states=['*'])]
    made = [plan(recipe(f'launches-{len(x)}.lua', model, 'data.random {}', *x, momentum, **entries, kernels=['bf16-kernels']), *plugins, *kernels)['launches']
            for x in ([], states)]
    check(made[0]['a_step'] == made[1]['a_step'] < made[1]['nodes'], f'launches with states in F32 and in a format: {made}')
    run('plan', recipe('nobody.lua', model, 'data.random {}', *uses, **entries, kernels=['nobody']), *plugins, code=2)
    for flags in ([], ['--device', 'lazy', '--plugin-path', binary / 'tests' / 'plugins' / 'lazy-device'], ['--poison']):
        runs = []
        for name, file in (('unpacked', path), ('stored', asked)):
            run('plan', file, '--check', *plugins, *kernels)
            shutil.rmtree(name, ignore_errors=True)
            runs.append(train(file, name, *plugins, *kernels, *flags))
            runs[-1].check_memory(name)
            check(('(bf16-kernels)' in (runs[-1].path / 'run.toml').read_text()) == (name == 'stored'), f'kernels in run.toml of {name}')
        same(*runs, f'kernels of formats {flags}')
    less, more = (r.memory['classes']['host']['planned'] for r in reversed(runs))
    check(less < more - 400_000, f'kernels of formats: {less} bytes planned, {more} with unpacking')


def means():
    """A state that begins as its parameter, updated after the optimizer."""
    start = train(recipe('mean-start.lua', small_gpt2(), 'data.random {}', use('adamw', lr=1e-2), batch=2, length=8, steps=2), 'mean-start')
    for decay in (0, 0.5, 1):
        path = recipe('mean.lua', from_folder(start.path / 'model'), 'data.random {}', use('adamw', lr=1e-2), use('ema', decay=decay, warmup=False, evaluate=False), use('accumulate', steps=2),
                      batch=2, length=8, steps=1, save=dict(every=1))
        shutil.rmtree('mean', ignore_errors=True)
        r = train(path, 'mean')
        r.check_memory('ema')
        before, after = load(start.path / 'model/model.safetensors'), load(r.path / 'model/model.safetensors')
        state = load(next((r.path / 'state').rglob('*.safetensors')))
        for name, (_, _, values) in after.items():
            wanted = [decay * b + (1 - decay) * a for a, b in zip(values, before[name][2])]
            got = state[f'{name}.ema'][2]
            check(error(got, wanted) < 1e-7, f'ema: {name} with decay {decay} is off by {error(got, wanted)}')


for test in (recompute, depth, budget, accumulate, freeze, freeze_by_place, clip_and_sgd, clip_by_value, threads, lora, poison, storage_and_placement, kernels_of_formats, means):
    print(test.__name__, flush=True)
    test()
finish()
