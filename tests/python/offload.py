#!/usr/bin/env python3
"""Optimizer states and saved tensors in another memory: bytes by formula, the bytes of a run without, copies that run beside kernels, and what is refused."""
import json
import shutil

from discrete_kit import discrete, plugins, same, traced
from galley_test import check, every, finish, fresh_folder, from_config, plan, recipe, run, train, use

fresh_folder()
model = from_config('gpt2', vocab_size=97, n_positions=32, n_embd=32, n_layer=3, n_head=4)
clip, adamw = use('clip', norm=0.5), use('adamw', lr=1e-2)
states, saved = use('offload-optimizer', min_size=1), use('offload-activations', min_size=1)
entries = dict(batch=2, length=16, steps=3, seed=4, save=dict(every=3))
state = 'state/step-00000003/state.safetensors'


def made(name, *uses, **more):
    return recipe(f'{name}.lua', model, 'data.random {}', *uses, **{**entries, **more})


def owners(planned, owner):
    return {memory: x['owners'][owner] for memory, x in planned['classes'].items()}


def to_the_byte():
    """States by formula, at the shape of Llama 3.2 3B: what the first class holds less, the other one holds more."""
    hidden, layers, inner, vocabulary, kv = 3072, 28, 8192, 128256, 1024
    llama = from_config('llama', vocab_size=vocabulary, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=24, num_key_value_heads=8, head_dim=128,
                        max_position_embeddings=2048, tie_word_embeddings=True)
    embeddings, norms, matrices = vocabulary * hidden, (2 * layers + 1) * hidden, layers * (2 * hidden * hidden + 2 * kv * hidden + 3 * inner * hidden)
    counter = 64  # of applied steps: one number, at an address of its own
    coded = matrices * (1 + 4 / 256)
    for name, optimizer, options, there, here in (
            ('all', adamw, dict(min_size=1), 8 * (embeddings + norms + matrices), 0),
            ('large', adamw, {}, 8 * (embeddings + matrices), 8 * norms),  # a norm has 3,072 elements
            ('some', adamw, dict(parameters=['*.mlp.*']), 8 * layers * 3 * inner * hidden, 8 * (embeddings + norms + matrices - layers * 3 * inner * hidden)),
            ('lion', use('lion', lr=1e-4), {}, 4 * (embeddings + matrices), 4 * norms),
            ('codes', use('adamw8bit', lr=1e-4), {}, 8 * embeddings + 2 * coded, 8 * norms)):
        big = [plan(recipe(f'big-{name}-{len(uses)}.lua', llama, 'data.random {}', *uses, optimizer, batch=1, length=64, steps=2), *discrete)
               for uses in ((), (use('offload-optimizer', **options),))]
        before, after = (owners(x, 'states') for x in big)
        check(before == dict(device=there + here + counter, pinned=0, file=0), f'{name}: states before: {before}')
        # Of what is copied in, a few parts are on the device at a time.
        staged = big[1]['classes']['device']['owners']
        check(after['pinned'] == there and after['device'] == here + counter, f'{name}: states after: {after}, not {there} there and {here + counter} here; {staged}')
        less, more = (sign * (big[0]['classes'][x]['planned'] - big[1]['classes'][x]['planned']) for x, sign in (('device', 1), ('pinned', -1)))
        check(more == there and 0.95 * there < less <= there, f'{name}: the device holds {less} bytes less, the other memory {more} more')
    # Saved tensors: by the names that the plan lists.
    text = run('plan', made('listed', saved, adamw), '--dump', 'decide', *discrete).stdout
    check(text.count('offload to pinned') > 20, f'decide: {text[:1500]}')
    with open('fast.toml', 'w') as file:  # what a slow link still carries is on the device meanwhile
        file.write('link_bandwidth = 1e12\n')
    for memory in ('pinned', 'file'):
        base, moved = (plan(made(f'saved-{memory}-{len(uses)}', *uses, adamw, batch=8, length=32), '--check', '--target', 'fast.toml', *discrete)
                       for uses in ((), (use('offload-activations', memory=memory, min_size=1),)))
        less, more = base['classes']['device']['planned'] - moved['classes']['device']['planned'], moved['classes'][memory]['planned'] - base['classes'][memory]['planned']
        check(0.8 * more < less, f'saved tensors to {memory}: the device holds {less} bytes less, the other memory {more} more')


optimizers = {'adamw': adamw, 'adamw8bit': use('adamw8bit', lr=1e-2, min_size=1), 'lion': use('lion', lr=1e-3), 'adafactor': use('adafactor', beta1=0.9),
              'muon': use('muon', lr=1e-2, rest_lr=1e-3), 'sgd': use('sgd', lr=1e-2, momentum=0.9)}


def to_the_bit():
    """Every optimizer, and one with all that goes beside it."""
    amp, scaled, several, recompute = use('amp', compute='bf16'), use('amp', compute='fp16', loss_scale=256), use('accumulate', steps=2), use('recompute')
    cases = [(name, (), x) for name, x in optimizers.items()]
    cases += [('amp', (amp,), adamw), ('scaled', (scaled, several), optimizers['adamw8bit']), ('stored', (use('amp', weights='bf16'),), adamw), ('several', (several, recompute), adamw),
              ('lora', (use('lora', rank=2, alpha=4, targets='all-linear'),), adamw)]
    for name, uses, optimizer in cases:
        here = train(made(f'{name}-here', *uses, clip, optimizer), f'{name}-here', *discrete)
        for how, moved in (('states', (states,)), ('both', (states, saved))):
            path = made(f'{name}-{how}', *uses, *moved, clip, optimizer)
            run('plan', path, '--check', *discrete)
            there = train(path, f'{name}-{how}', *discrete)
            same(f'{name}, {how} elsewhere', here, there, 'model', 'adapter', state)
            there.check_memory(f'{name}, {how} elsewhere')
            held = owners(dict(classes=there.memory['classes']), 'states')
            check(held['pinned'] > 0 and held['device'] < owners(dict(classes=here.memory['classes']), 'states')['device'], f'{name}, {how} elsewhere: {held}')
    # Where updates run in backward, each copies its own states.
    early = use('update-in-backward')
    for name in ('adamw', 'adamw8bit', 'lion'):
        here = train(made(f'early-{name}', early, optimizers[name]), f'early-{name}', *discrete)
        path = made(f'early-{name}-there', early, states, optimizers[name])
        run('plan', path, '--check', *discrete)
        same(f'{name} in backward', here, train(path, f'early-{name}-there', *discrete), 'model', state)


def beside_kernels():
    """A slow link cuts states into many parts; copies both ways run under kernels."""
    with open('slow.toml', 'w') as file:
        file.write('link_bandwidth = 4e6\n')
    small = dict(batch=1, length=4, save=dict(every=3))
    here = train(made('slow-here', clip, adamw, **small), 'slow-here', *discrete, '--target', 'slow.toml')
    there, trace = traced(made('slow-there', clip, states, adamw, **small), 'slow-there', 'slow.toml')
    same('a slow link', here, there, 'model', state)
    for a, b, what in ((0, 1, 'kernels beside copies in'), (0, 2, 'kernels beside copies out'), (1, 2, 'copies both ways')):
        check(trace.together(a, b) >= 20, f'states: {what}: {trace.together(a, b)} times')
    check(trace.whole < 0.8 * sum(trace.busy), f'states: {trace.whole} µs for work of {trace.busy}')
    with open('fast.toml', 'w') as file:
        file.write('link_bandwidth = 1e9\n')
    large = dict(batch=8, length=32)
    here = train(made('fast-here', clip, adamw, **large), 'fast-here', *discrete, '--target', 'fast.toml')
    there, trace = traced(made('fast-there', saved, clip, adamw, **large), 'fast-there', 'fast.toml')
    same('saved tensors', here, there, 'model', state)
    for a, b, what in ((0, 1, 'kernels beside copies in'), (0, 2, 'kernels beside copies out')):
        check(trace.together(a, b) >= 20, f'saved tensors: {what}: {trace.together(a, b)} times')


def afterwards():
    """A run is resumed to the same bytes, and its model is evaluated and sampled where there is one memory."""
    text = 'data.text { files = { arg("text") }, tokenizer = "bytes", validation = 0.2 }'
    with open('text.txt', 'w') as file:
        file.write('one two three four five six seven eight nine ten. ' * 20)
    wide = from_config('gpt2', vocab_size=256, n_positions=32, n_embd=32, n_layer=2, n_head=4)
    path = recipe('resume.lua', wide, text, use('recompute'), states, saved, clip, adamw, **{**entries, 'steps': 4, 'save': dict(every=2, keep=2)})
    whole = train(path, 'whole', *discrete, '--set', 'text=text.txt')
    shutil.copytree('whole', 'again')
    shutil.rmtree('again/state/step-00000004')
    shutil.rmtree('again/model')
    run('resume', 'again', *plugins)
    same('resume', whole, type(whole)('again'), 'model', 'state')
    run('eval', path, '--set', 'text=text.txt')
    run('sample', 'whole', '--prompt', 'one', '--tokens', 3, *plugins)

    # An average rests there too, and is what evaluation reads.
    path = recipe('averaged.lua', wide, text, states, clip, adamw, use('ema', decay=0.5), **{**entries, 'steps': 4, 'validate': dict(every=2)})
    averaged = train(path, 'averaged', *discrete, '--set', 'text=text.txt')
    last = [x['validation_loss'] for x in averaged.lines if 'validation_loss' in x][-1]
    loss = json.loads(run('eval', 'averaged', '--json', *plugins).stdout)['validation_loss']
    check(loss == last, f'averaged: eval says {loss}, the run {last}')
    moved, kept = (plan(recipe('averages.lua', wide, 'data.random { }', *more, adamw, use('ema', decay=0.5), batch=1, length=8, steps=1), *discrete)['classes']['device']['owners'].get('states', 0)
                   for more in ([states], []))
    check(moved < kept / 2, f'averaged: {moved} bytes of states on the device, {kept} without offload-optimizer')


def masters():
    """Weights in F32 beside a copy in 16 bit: their bytes move too, and nothing else changes."""
    llama = from_config('llama', vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32)
    inner = 3 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96) + 97 * 64  # matrices of blocks, and the head; embeddings are read in F32
    moved = use('offload-optimizer', min_size=1, masters=True)
    for name, uses in (('clip', [clip, adamw]), ('accumulate', [use('accumulate', steps=2), adamw]), ('sgd', [use('sgd', lr=1e-2)]), ('muon', [use('muon', lr=1e-2, rest_lr=1e-3)]),
                       ('early', [use('update-in-backward'), adamw]), ('saved', [saved, use('recompute'), adamw])):
        here, there = (train(recipe(f'master-{name}-{where}.lua', llama, 'data.random {}', use('amp'), *more, *uses, **entries), f'master-{name}-{where}', *discrete)
                       for where, more in (('here', []), ('there', [moved])))
        same(f'masters, {name}', here, there, 'model', state)
    bare, states_only, both = (owners(plan(recipe('masters.lua', llama, 'data.random {}', use('amp'), *more, adamw, **entries), *discrete), 'weights') for more in ([], [states], [moved]))
    check(bare == states_only and bare['device'] - both['device'] == 4 * inner and both['pinned'] - bare.get('pinned', 0) == 4 * inner, f'masters: {bare}, {both}')
    said = run('plan', recipe('no-copy.lua', llama, 'data.random {}', moved, adamw, **entries), *discrete, code=2).stderr
    check(every(x in said for x in ('offload-optimizer', "moves masters to 'pinned'", 'no parameter has a copy in 16 bit', 'compute in 16 bit')), f'masters without copies: {said}')


def refused():
    some = use('offload-optimizer')
    nothing = [('cpu', (), (states, adamw), ("device 'cpu' has one memory class, 'host'", 'the states of the optimizer', 'offload-optimizer', '--target')),
               ('cpu saved', (), (saved, adamw), ("device 'cpu' has one memory class, 'host'", 'saved tensors', 'offload-activations', '--target')),
               ('plain', discrete, (states, use('sgd', lr=0.1)), ('the optimizer keeps no state', 'offload-optimizer', 'leave this out')),
               ('small', discrete, (some, use('lora', rank=2, alpha=4, targets='all-linear'), adamw), ('min_size = 4096 elements', 'smaller min_size'))]
    for name, uses in (('optimizer', adamw), ('activations', adamw)):
        nothing += [(f'{name} {memory}', discrete, (use(f'offload-{name}', memory=memory, min_size=1), uses), words)
                    for memory, words in (('disk', ("has no memory class 'disk'", "there is: 'pinned', 'file'")),
                                          ('device', ("computes from the memory class 'device'", "there is: 'pinned', 'file'")))]
    nothing += [('pattern', discrete, (use('offload-optimizer', parameters='*.mpl.*'), adamw), ("no parameter is called '*.mpl.*'", 'transformer.h.0.mlp')),
                ('tensor', discrete, (use('offload-activations', patterns='*.mpl.*'), adamw), ("no saved tensor is called '*.mpl.*'", 'transformer.h.0.mlp')),
                ('size', discrete, (use('offload-activations', min_size='1GiB'), adamw), ('no saved tensor that is named has min_size', 'smaller min_size')),
                ('option', discrete, (use('offload-optimizer', minimum=3), adamw), ("unknown option 'minimum'",)),
                ('two', discrete, (use('offload-optimizer', parameters='*', memory='pinned', min_size=1), use('second-memory', memory='file', states=['*']), adamw),
                 ("decide 'placement'", 'offload-optimizer', 'second-memory'))]
    for name, flags, uses, words in nothing:
        said = run('plan', made('refused', *uses), *flags, code=2).stderr
        check(every(x in said for x in words), f'{name}: {said}')
    # Whoever names tensors goes before whoever names none.
    path = made('stronger', states, use('second-memory', memory='file', states=['*.mlp.*']), adamw)
    held = owners(plan(path, *discrete), 'states')
    check(held['file'] > 0 and held['pinned'] > 0, f'a weak and a strong claim: {held}')


for part in (to_the_byte, to_the_bit, beside_kernels, masters, afterwards, refused):
    part()
finish()
