#!/usr/bin/env python3
"""What each strategy promises, seen from outside: in bytes, in gradients and in what a run leaves."""
import json
import math

from galley_test import (batch_of, binary, case, cases, check, error, finish, fixtures, fresh_folder, from_config, from_folder, gradients, load, norm, plan, recipe,
                         save, together, use)
from steps_kit import planned, recipes, refused, trained

fresh_folder()
plugins = [x for name in ('bf16-storage', 'second-memory', 'two-memories') for x in ('--plugin-path', binary / 'tests' / 'plugins' / name)]
gpt2_case = fixtures / 'models' / 'gpt2-packed'
llama_case = fixtures / 'models' / 'llama-gqa-tied'


def small_gpt2(dropout=0.1, layers=4):
    return from_config('gpt2', vocab_size=97, n_positions=32, n_embd=32, n_layer=layers, n_head=4, resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout)


def same(a, b, who):
    check(a.steps == b.steps, f'{who}: metrics differ: {a.steps} and {b.steps}')
    check(a.bytes() == b.bytes(), f'{who}: the models differ')


@case
def recompute():
    runs, saved = {}, {}
    for name, options in {'none': dict(policy='none'), 'every-1': dict(every=1), 'every-2': dict(every=2), 'sqrt': dict(policy='sqrt'),
                          'input': dict(policy='input'), 'cheap': dict(policy='cheap')}.items():
        path = recipe(f'recompute-{name}.lua', small_gpt2(layers=6), 'data.random {}', use('recompute', **options), use('adamw', lr=1e-3), use('clip', norm=1.0),
                      batch=4, length=32, steps=4, seed=3)
        runs[name] = trained(path, f'recompute-{name}')
        host = plan(path)['classes']['host']
        saved[name] = (host['owners']['saved'], host['planned'])
    for name in ('every-1', 'every-2', 'sqrt', 'input', 'cheap'):
        same(runs['none'], runs[name], name)
        for less, all_of_it, what in together(saved[name], saved['none'], ('saves', 'plans')):
            check(less < all_of_it, f'{name} {what} {less} bytes, {all_of_it} without')
    check(saved['every-1'] < saved['cheap'], f'cheap saves less than every block: {saved}')
    check(len(runs['none'].steps) == 4, 'there are not four steps')


@case
def depth():
    """With the model's input alone a deep model peaks lower than with every block's, and gives the same bytes."""
    made, hosts = {}, {}
    for name, options in {'every': {}, 'sqrt': dict(policy='sqrt'), 'input': dict(policy='input')}.items():
        path = recipe(f'depth-{name}.lua', small_gpt2(layers=48, dropout=0.0), 'data.random {}', use('recompute', **options), use('sgd', lr=1e-3),
                      batch=32, length=32, steps=1, seed=3)
        hosts[name] = planned(path)['classes']['host']
        made[name] = trained(path, f'depth-{name}')
        same(made['every'], made[name], name)
    x = {name: host['planned'] for name, host in hosts.items()}
    check(x['input'] < x['every'] < x['sqrt'], f'48 blocks: planned are {x}')
    inputs = 47 * 32 * 32 * 32 * 4
    check(x['every'] - x['input'] > 0.5 * inputs, f'48 blocks: planned are {x}, and the inputs of blocks are {inputs} bytes')


of_budget = recipes(small_gpt2(layers=6), 'data.random {}', use('adamw', lr=1e-3), batch=16, length=32, steps=3, seed=3)


@case
def budget():
    def budgeted(name, **options):
        path = of_budget(f'budget-{name}', use('recompute', **options))
        made = planned(path)
        return path, made['classes']['host']['planned'], made['flops_per_token']
    paths = {name: budgeted(name, **options) for name, options in {'none': dict(policy='none'), 'every': {}, 'input': dict(policy='input')}.items()}
    most, some, least = (paths[name][1] for name in ('none', 'every', 'input'))
    whole = trained(paths['none'][0], 'budget-none')
    work = paths['none'][2]
    for i, bytes_ in enumerate((most, most - 1, (most + some) // 2, some, (some + least) // 2, least)):
        path, taken, flops = budgeted(i, budget=bytes_)
        check(taken <= bytes_, f'{bytes_} bytes: {taken} are planned')
        check(flops >= work, f'{bytes_} bytes cost less than a larger budget: {flops} operations a token, {work} with the larger')
        check((taken == most) == (i == 0), f'{bytes_} bytes: all is kept, or nothing is')
        check(i != 2 or flops < paths['every'][2], f'half the memory takes all the time: {flops}, {paths["every"][2]} with the inputs of blocks alone')
        work = flops
        same(whole, trained(path, f'budget-{i}'), f'{bytes_} bytes')


@case
def budget_that_is_too_small():
    refused(of_budget('budget-small', use('recompute', budget='1 MiB')), 'recompute: the plan takes at least ', 'the budget is 1.00 MiB')


@case
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
    a, b = trained(one, 'accumulate-one'), trained(split, 'accumulate-split')
    for (x, _), (y, _) in together(a.steps, b.steps):
        check(error([x], [y]) <= 1e-5, f'accumulate: losses {x} and {y}')
    check([x['tokens'] for x in a.lines] == [x['tokens'] for x in b.lines], 'accumulate: tokens differ')
    more, less = plan(split), plan(single)
    buffers = 2 * 7 * length * 4 * 8 + 4096  # of the loader: seven rows more, at most eight numbers a position
    difference = more['classes']['host']['planned'] - less['classes']['host']['planned']
    check(difference <= 4 * more['trainable'] + buffers, f'accumulate: 8 micro-batches plan {difference} bytes more than one')


of_gpt2 = recipes(from_folder(gpt2_case), batch_of(gpt2_case / 'batch.safetensors'))
adamw = use('adamw', lr=1e-3)


@case
def freeze():
    path = of_gpt2('freeze', use('freeze', **{'except': ['transformer.h.1.*']}), adamw, steps=3)
    before = load(gpt2_case / 'model.safetensors')
    moving = {k for k in before if k.startswith('transformer.h.1.')}
    check(0 < len(moving) < len(before), 'the case has no other parameters')
    computed = gradients(path, 'freeze.safetensors')
    check({k[5:] for k in computed if k.startswith('grad.')} == moving, f'gradients are {sorted(computed)}')
    p = planned(path)
    check(p['trainable'] == sum(len(before[k][2]) for k in moving), f'{p["trainable"]} parameters trainable')
    held = p['classes']['host']['owners']['gradients']
    check(held <= 4 * p['trainable'], f'gradients hold {held} bytes of {p["trainable"]} trainable parameters')
    trained(path, 'freeze')
    after = load('freeze/model/model.safetensors')
    for k, x in before.items():
        check((after[k][2].tobytes() == x[2].tobytes()) == (k not in moving), f'{k} has {"not " if k in moving else ""}changed')
    refused(of_gpt2('nothing', use('freeze', patterns=['transformer.x.*']), adamw, steps=1), 'transformer.x.*', 'freeze')


names_of_gpt2 = set(load(gpt2_case / 'model.safetensors'))
embeddings = {'transformer.wte.weight', 'transformer.wpe.weight'} & names_of_gpt2
layers = 1 + max(int(x.split('.')[2]) for x in names_of_gpt2 if x.startswith('transformer.h.'))


def of_block(b):
    return {x for x in names_of_gpt2 if x.startswith(f'transformer.h.{b}.')}


@cases({
    'one block': (dict(blocks=1), of_block(0)),
    'all blocks': (dict(blocks=layers), set().union(*map(of_block, range(layers)))),
    'embeddings': (dict(embeddings=True), embeddings),
    'a block and embeddings': (dict(blocks=1, embeddings=True), of_block(0) | embeddings),
    'a block and a pattern': (dict(blocks=1, patterns='*.ln_f.*'), of_block(0) | {x for x in names_of_gpt2 if '.ln_f.' in x}),
    'a block but biases': ({'blocks': 1, 'except': '*.bias'}, {x for x in of_block(0) if not x.endswith('.bias')}),
    'embeddings but one': ({'embeddings': True, 'except': 'transformer.wpe.*'}, embeddings - {'transformer.wpe.weight'}),
})
def freeze_by_place(_, what):
    """By block, embeddings, and all but some."""
    options, frozen = what
    check(len(embeddings) == 2 and layers >= 2, f'{layers} blocks, {embeddings}')
    path = of_gpt2('place', use('freeze', **options), adamw, steps=1)
    computed = {k[5:] for k in gradients(path, 'place.safetensors') if k.startswith('grad.')}
    check(frozen and computed == names_of_gpt2 - frozen, f'{sorted(computed ^ (names_of_gpt2 - frozen))}')
    rows = {x['by']: x for x in plan(path)['updates']}
    check(rows['' if '' in rows else None]['parameters'] == len(frozen), f'{rows}')


@case
def freeze_below_an_adapter():
    """What another strategy has added to a block is trained."""
    path = of_gpt2('below', use('lora', rank=2, alpha=4, targets='all-linear'), use('freeze', blocks=layers), adamw, steps=1)
    check(planned(path)['trainable'] > 0, 'an adapter of a frozen block is not trained')


@case
def freeze_refuses():
    for options, words in ((dict(blocks=layers + 1), (f"'blocks' is {layers + 1}, and the model has {layers}",)), ({}, ('nothing is named', "'except'")),
                           (dict(block=1), ("did you mean 'blocks'",)), (dict(all_but='*'), ("did you mean 'except'",))):
        refused(of_gpt2('refused', use('freeze', **options), adamw, steps=1), *words)


def moved(path, name, before):
    """What plain steps of rate 1 leave of the gradient; and the run."""
    made = trained(path, name)
    after = load(made.path / 'model' / 'model.safetensors')
    return {k: [a - b for a, b in zip(after[k][2], before[k][2], strict=True)] for k in after}, made


def clamped(xs, limit):
    return {k: [max(-limit, min(limit, v)) for v in x] for k, x in xs.items()}


def near(name, x, expected, bound=1e-5):
    e = error([v for k in expected for v in x[k]], [v for k in expected for v in expected[k]])
    check(e <= bound, f'{name}: the step is off by {e:.1e}')


of_llama = recipes(from_folder(llama_case), batch_of(llama_case / 'batch.safetensors'))


@case
def clip_by_value():
    """Each element of the mean gradient within the value; after a norm."""
    w0, sgd = load(llama_case / 'model.safetensors'), use('sgd', lr=1.0)

    def step(name, *uses):
        return moved(of_llama(name, *uses, sgd, steps=1), name, w0)
    free, whole = step('value-free')
    everything = sorted(abs(v) for x in free.values() for v in x)
    limit, size = everything[int(0.9 * len(everything))], whole.steps[0][1]
    by_value, made = step('value', use('clip', value=limit))
    near('clip by value', by_value, clamped(free, limit))
    check(error([made.steps[0][1]], [size]) <= 1e-5, f'grad_norm is {made.steps[0][1]}, not {size} before clipping')
    near('clip by both', step('value-norm', use('clip', norm=size / 2, value=limit / 2))[0], clamped({k: [v / 2 for v in x] for k, x in free.items()}, limit / 2))
    _, wide = step('value-wide', use('clip', value=2 * everything[-1]))
    check(wide.bytes() == whole.bytes(), 'a value above all elements changed the step')


@cases({'scaled': [use('amp', compute='fp16', loss_scale=1024)], 'several': [use('accumulate', steps=3)],
        'both': [use('amp', compute='fp16', loss_scale=1024), use('accumulate', steps=3)]})
def clip_by_value_of_the_mean(name, uses):
    """Loss scale and micro-batches: gradients in memory are other numbers."""
    made = recipes(small_gpt2(), 'data.random {}', steps=1, batch=2, length=16, seed=3)
    w0 = load(trained(made(f'{name}-begin', use('sgd', lr=0.0)), f'{name}-begin').path / 'model' / 'model.safetensors')
    sgd = use('sgd', lr=1.0)
    free, _ = moved(made(f'{name}-free', *uses, sgd), f'{name}-free', w0)
    everything = sorted(abs(v) for x in free.values() for v in x)
    limit = everything[int(0.9 * len(everything))]
    near(name, moved(made(name, *uses, use('clip', value=limit), sgd), name, w0)[0], clamped(free, limit), 1e-4)


def flat(tensors, prefix=''):
    """Of the Llama's parameters, one after another in the order of its file."""
    return [v for k in load(llama_case / 'model.safetensors') for v in tensors[prefix + k][2]]


def step_between(before, after):
    return [a - b for a, b in zip(after, before, strict=True)]


@case
def clip_by_norm():
    plain = of_llama('sgd', use('sgd', lr=0.5), steps=1)
    g1, x0 = flat(gradients(plain, 'sgd.safetensors'), 'grad.'), flat(load(llama_case / 'model.safetensors'))
    size = norm(g1)
    bound = size / 4
    clipped = trained(of_llama('clip', use('sgd', lr=0.5), use('clip', norm=bound), steps=1), 'clip')
    free = trained(plain, 'sgd')
    for made, factor in ((free, 1.0), (clipped, bound / (size + 1e-6))):
        e = error([made.steps[0][1]], [size])
        check(e <= 1e-5, f'{made.path}: grad_norm is {made.steps[0][1]}, not {size} before clipping')
        e = error(step_between(x0, flat(load(made.path / 'model' / 'model.safetensors'))), [-0.5 * factor * g for g in g1])
        check(e <= 1e-5, f'{made.path}: the step is off by {e:.1e}')
    wide = trained(of_llama('clip-wide', use('sgd', lr=0.5), use('clip', norm=2 * size), steps=1), 'clip-wide')
    check(wide.bytes() == free.bytes(), 'a bound above the norm changed the step')


@case
def momentum_and_decay():
    """Two steps, the second gradient computed at the model of the first."""
    options = dict(lr=0.1, momentum=0.9, weight_decay=0.1, decay_on='all')
    first, second = (trained(of_llama(f'sgd-{steps}', use('sgd', **options), steps=steps), f'sgd-{steps}') for steps in (1, 2))
    x0, x1, x2 = (flat(load(folder / 'model.safetensors')) for folder in (llama_case, first.path / 'model', second.path / 'model'))
    at = recipes(from_folder('sgd-1/model'), batch_of(llama_case / 'batch.safetensors'))('sgd-at', use('sgd', lr=0.1), steps=1)
    g1, g2 = (flat(gradients(path, f'{path}.safetensors'), 'grad.') for path in ('sgd-1.lua', at))
    d1 = [g + 0.1 * x for g, x in together(g1, x0)]
    d2 = [g + 0.1 * x + 0.9 * d for g, x, d in together(g2, x1, d1)]
    for before, after, d, who in ((x0, x1, d1, 'first'), (x1, x2, d2, 'second')):
        e = error(step_between(before, after), [-0.1 * v for v in d])
        check(e <= 1e-5, f'the {who} step is off by {e:.1e}')
    check(first.steps[0] == second.steps[0], 'the first steps differ')


@case
def threads():
    path = recipe('threads.lua', small_gpt2(), 'data.random {}', use('adamw', lr=1e-3), use('clip', norm=1.0), batch=8, length=32, steps=4, seed=9)
    same(trained(path, 'threads-1', threads=1), trained(path, 'threads-2', threads=2), '1 and 2 threads')


@case
def lora():
    def adapted(name, steps, merge=False, **options):
        return trained(of_gpt2(name, use('lora', merge=merge, **options), use('sgd', lr=0.5), steps=steps), name)
    whole = adapted('lora-4', 4, rank=4, alpha=8, targets='all-linear')
    adapted('lora-whole', 4, merge=True, rank=4, alpha=8, targets='all-linear')
    adapted('lora-2', 2, rank=4, alpha=8, targets='all-linear')
    config = json.loads(whole.bytes('adapter/adapter_config.json'))
    check((config['peft_type'], config['r'], config['lora_alpha']) == ('LORA', 4, 8), f'adapter_config.json says {config}')
    tensors = load('lora-4/adapter/adapter_model.safetensors')
    weights = load(gpt2_case / 'model.safetensors')
    check(len(tensors) == 2 * 4 * 2, f'{len(tensors)} tensors for four linear layers in two blocks')
    for k, (dtype, shape, x) in tensors.items():
        layer, part = k.removeprefix('base_model.model.').rsplit('.lora_', 1)
        n_in, n_out = weights[layer + '.weight'][1]  # stored (in, out)
        check(shape == ([4, n_in] if part == 'A.weight' else [n_out, 4]) and part in ('A.weight', 'B.weight'), f'{k} has shape {shape}')
        check(norm(x) > 0, f'{k} is zero')
    on = adapted('lora-on', 2, path='lora-2/adapter')
    check(on.bytes('adapter/adapter_model.safetensors') == whole.bytes('adapter/adapter_model.safetensors'), 'two steps and two more are not four')
    check(on.steps == whole.steps[2:], f'steps {on.steps} after going on, {whole.steps[2:]} at once')
    sgd = use('sgd', lr=0.1)
    beside = of_gpt2('lora-beside', use('lora', path='lora-4/adapter'), sgd, steps=1)
    merged = recipe('lora-merged.lua', from_folder('lora-whole/model'), batch_of(gpt2_case / 'batch.safetensors'), sgd, steps=1)
    a, b = gradients(beside, 'lora-beside.safetensors', '--logits'), gradients(merged, 'lora-merged.safetensors', '--logits')
    e = error(b['logits'][2], a['logits'][2])
    check(e <= 1e-5, f'logits of the merged model are off by {e:.1e}')
    plain = gradients(of_gpt2('lora-none', sgd, steps=1), 'lora-none.safetensors', '--logits')
    check(error(plain['logits'][2], a['logits'][2]) > 1e-2, 'the adapter changes nothing')


lazy = ['--device', 'lazy', '--plugin-path', binary / 'tests' / 'plugins' / 'lazy-device']
of_random = recipes(small_gpt2(), 'data.random {}', batch=2, length=16, seed=4)


@cases({'plain': (), 'stacked': (use('recompute', every=2), use('accumulate', steps=3))})
def poison(name, uses):
    path = of_random(name, *uses, use('clip', norm=0.5), adamw, steps=3)
    normal = trained(path, name)
    same(normal, trained(path, f'{name}-poison', '--poison'), '--poison')
    same(normal, trained(path, f'{name}-lazy', *lazy), 'the lazy device')


@case
def storage_and_placement():
    def one(name, *uses, device='cpu'):
        path = of_random(name, *uses, use('clip', norm=0.5), use('adamw', lr=1e-2), steps=5)
        planned(path, '--device', device, *plugins)
        return trained(path, name, '--device', device, *plugins)
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


# Kernels that take a format are given what is stored, and give the bytes that unpacking beside them gives, in less memory. The largest tensor's momentum decides
# the peak; what is unpacked beside it would add its size.
kernels = [*plugins, '--plugin-path', binary / 'tests' / 'plugins' / 'bf16-kernels']
of_formats = recipes(from_config('gpt2', vocab_size=4099, n_positions=32, n_embd=32, n_layer=2, n_head=4), 'data.random {}', use('sgd', lr=1e-2, momentum=0.9),
                     batch=2, length=4, steps=5, seed=4)
stored, with_kernels = use('bf16-storage', parameters=['*.wpe.weight'], states=['*']), dict(kernels=['bf16-kernels'])


@case
def kernels_that_are_asked_for():
    """Nobody's kernels do the work of others unasked."""
    path, asked = of_formats('formats', stored), of_formats('asked', stored, **with_kernels)
    host = [planned(x, *kernels)['classes']['host']['planned'] for x in (path, asked)]
    check(host[0] == plan(path, *plugins)['classes']['host']['planned'] > host[1], f'kernels of a plugin that the recipe does not ask for: {host}')
    check('bf16-kernels' in [x['plugin'] for x in plan(asked, *kernels)['kernels']['sgd_step']], 'the plan does not say whose kernel it takes')
    refused(of_formats('nobody', stored, kernels=['nobody']), 'nobody', flags=plugins)


@case
def launches_of_formats():
    """One launch for all packed states, as for those that are not."""
    made = [plan(of_formats(f'launches-{len(x)}', *x, **with_kernels), *kernels)['launches'] for x in ([], [use('bf16-storage', states=['*'])])]
    check(made[0]['a_step'] == made[1]['a_step'] < made[1]['nodes'], f'launches with states in F32 and in a format: {made}')


@cases({'plain': [], 'lazy': lazy, 'poison': ['--poison']})
def kernels_of_formats(name, flags):
    runs = []
    for how, entries in (('unpacked', {}), ('stored', with_kernels)):
        out = f'{how}-{name}'
        runs.append(trained(of_formats(out, stored, **entries), out, *kernels, *flags))
        check(('(bf16-kernels)' in (runs[-1].path / 'run.toml').read_text()) == (how == 'stored'), f'kernels in run.toml of {out}')
    same(*runs, 'kernels of formats')
    more, less = (r.memory['classes']['host']['planned'] for r in runs)
    check(less < more - 400_000, f'{less} bytes planned, {more} with unpacking')


@cases([0, 0.5, 1])
def means(decay):
    """A state that begins as its parameter, updated after the optimizer."""
    fast, sizes = use('adamw', lr=1e-2), dict(batch=2, length=8)
    start = trained(recipe(f'start-{decay}.lua', small_gpt2(), 'data.random {}', fast, steps=2, **sizes), f'start-{decay}')
    path = recipe(f'mean-{decay}.lua', from_folder(start.path / 'model'), 'data.random {}', fast, use('ema', decay=decay, warmup=False, evaluate=False),
                  use('accumulate', steps=2), steps=1, save=dict(every=1), **sizes)
    made = trained(path, f'mean-{decay}')
    before, after = load(start.path / 'model/model.safetensors'), load(made.path / 'model/model.safetensors')
    state = load(next((made.path / 'state').rglob('*.safetensors')))
    for name, (_, _, values) in after.items():
        wanted = [decay * b + (1 - decay) * a for a, b in together(values, before[name][2])]
        off = error(state[f'{name}.ema'][2], wanted)
        check(off < 1e-7, f'{name} is off by {off}')


finish(turns=2)
