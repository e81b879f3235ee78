#!/usr/bin/env python3
"""Optimizer states and saved tensors in another memory: bytes by formula, the bytes of a run without, copies that run beside kernels, and what is refused."""
import json
import shutil

from discrete_kit import discrete, plugins, same, traced
from galley_test import case, cases, check, finish, fresh_folder, from_config, plan, run, use
from steps_kit import planned, recipes, refused, trained

fresh_folder()
model = from_config('gpt2', vocab_size=97, n_positions=32, n_embd=32, n_layer=3, n_head=4)
clip, adamw = use('clip', norm=0.5), use('adamw', lr=1e-2)
states, saved = use('offload-optimizer', min_size=1), use('offload-activations', min_size=1)
entries = dict(batch=2, length=16, steps=3, seed=4, save=dict(every=3))
made = recipes(model, 'data.random {}', **entries)
state = 'state/step-00000003/state.safetensors'


def owners(document, owner):
    return {memory: x['owners'][owner] for memory, x in document['classes'].items()}


def link(name, bandwidth):
    """Flags of a target whose copies take their time."""
    with open(f'{name}.toml', 'w') as file:
        file.write(f'link_bandwidth = {bandwidth}\n')
    return ['--target', f'{name}.toml']


# ---- To the byte ---------------------------------------------------------------------------------------------------------------------------
hidden, layers, inner, vocabulary, kv = 3072, 28, 8192, 128256, 1024  # Llama 3.2 3B
of_3b = recipes(from_config('llama', vocab_size=vocabulary, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=24,
                            num_key_value_heads=8, head_dim=128, max_position_embeddings=2048, tie_word_embeddings=True), 'data.random {}', batch=1, length=64, steps=2)
embeddings, norms, matrices = vocabulary * hidden, (2 * layers + 1) * hidden, layers * (2 * hidden * hidden + 2 * kv * hidden + 3 * inner * hidden)
everything, feedforward = embeddings + norms + matrices, layers * 3 * inner * hidden
counter = 64  # of applied steps: one number, at an address of its own
coded = matrices * (1 + 4 / 256)


@cases({'all': (adamw, dict(min_size=1), 8 * everything, 0),
        'large': (adamw, {}, 8 * (embeddings + matrices), 8 * norms),  # a norm has 3,072 elements
        'some': (adamw, dict(parameters=['*.mlp.*']), 8 * feedforward, 8 * (everything - feedforward)),
        'lion': (use('lion', lr=1e-4), {}, 4 * (embeddings + matrices), 4 * norms),
        'codes': (use('adamw8bit', lr=1e-4), {}, 8 * embeddings + 2 * coded, 8 * norms)})
def bytes_of_states(name, what):
    """By formula: what the first class holds less, the other one holds more."""
    optimizer, options, there, here = what
    big = [plan(of_3b(f'big-{name}-{len(uses)}', *uses, optimizer), *discrete) for uses in ((), (use('offload-optimizer', **options),))]
    before, after = (owners(x, 'states') for x in big)
    check(before == dict(device=there + here + counter, pinned=0, file=0), f'states before: {before}')
    # Of what is copied in, a few parts are on the device at a time.
    staged = big[1]['classes']['device']['owners']
    check(after['pinned'] == there and after['device'] == here + counter, f'states after: {after}, not {there} there and {here + counter} here; {staged}')
    less, more = (sign * (big[0]['classes'][x]['planned'] - big[1]['classes'][x]['planned']) for x, sign in (('device', 1), ('pinned', -1)))
    check(more == there and 0.95 * there < less <= there, f'the device holds {less} bytes less, the other memory {more} more')


@case
def names_of_saved_tensors():
    """Those that the plan lists."""
    text = run('plan', made('listed', saved, adamw), '--dump', 'decide', *discrete).stdout
    check(text.count('offload to pinned') > 20, f'decide: {text[:1500]}')


@cases(['pinned', 'file'])
def bytes_of_saved_tensors(memory):
    flags = link('fast', 1e12)  # what a slow link still carries is on the device meanwhile
    base, moved = (planned(made(f'saved-{memory}-{len(uses)}', *uses, adamw, batch=8, length=32), *flags, *discrete)
                   for uses in ((), (use('offload-activations', memory=memory, min_size=1),)))
    less, more = base['classes']['device']['planned'] - moved['classes']['device']['planned'], moved['classes'][memory]['planned'] - base['classes'][memory]['planned']
    check(0 < 0.8 * more < less, f'the device holds {less} bytes less, the other memory {more} more')


# ---- To the bit -------------------------------------------------------------------------------------------------------------------------------
optimizers = {'adamw': adamw, 'adamw8bit': use('adamw8bit', lr=1e-2, min_size=1), 'lion': use('lion', lr=1e-3), 'adafactor': use('adafactor', beta1=0.9),
              'muon': use('muon', lr=1e-2, rest_lr=1e-3), 'sgd': use('sgd', lr=1e-2, momentum=0.9)}
several = use('accumulate', steps=2)


@cases({**{name: ((), x) for name, x in optimizers.items()},
        'amp': ((use('amp', compute='bf16'),), adamw),
        'scaled': ((use('amp', compute='fp16', loss_scale=256), several), optimizers['adamw8bit']),
        'stored': ((use('amp', weights='bf16'),), adamw),
        'several': ((several, use('recompute')), adamw),
        'lora': ((use('lora', rank=2, alpha=4, targets='all-linear'),), adamw)})
def to_the_bit(name, what):
    """Every optimizer, and one with all that goes beside it."""
    uses, optimizer = what
    here = trained(made(f'{name}-here', *uses, clip, optimizer), f'{name}-here', *discrete)
    for how, moved in (('states', (states,)), ('both', (states, saved))):
        path = made(f'{name}-{how}', *uses, *moved, clip, optimizer)
        planned(path, *discrete)
        there = trained(path, f'{name}-{how}', *discrete)
        same(f'{how} elsewhere', here, there, 'model', 'adapter', state)
        held = owners(there.memory, 'states')
        check(held['pinned'] > 0 and held['device'] < owners(here.memory, 'states')['device'], f'{how} elsewhere: {held}')


@cases(['adamw', 'adamw8bit', 'lion'])
def within_backward(name):
    """Where updates run in backward, each copies its own states."""
    early = use('update-in-backward')
    here = trained(made(f'early-{name}', early, optimizers[name]), f'early-{name}', *discrete)
    path = made(f'early-{name}-there', early, states, optimizers[name])
    planned(path, *discrete)
    same('in backward', here, trained(path, f'early-{name}-there', *discrete), 'model', state)


of_llama = recipes(from_config('llama', vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                               max_position_embeddings=32), 'data.random {}', **entries)
masters = use('offload-optimizer', min_size=1, masters=True)


@cases({'clip': [clip, adamw], 'accumulate': [several, adamw], 'sgd': [use('sgd', lr=1e-2)], 'muon': [optimizers['muon']], 'early': [use('update-in-backward'), adamw],
        'saved': [saved, use('recompute'), adamw]})
def with_masters(name, uses):
    """Weights in F32 beside a copy in 16 bit move too, and nothing else changes."""
    here, there = (trained(of_llama(f'master-{name}-{where}', use('amp'), *more, *uses), f'master-{name}-{where}', *discrete)
                   for where, more in (('here', []), ('there', [masters])))
    same('masters', here, there, 'model', state)


@case
def bytes_of_masters():
    moving = 3 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96) + 97 * 64  # matrices of blocks, and the head; embeddings are read in F32
    bare, states_only, both = (owners(plan(of_llama('masters', use('amp'), *more, adamw), *discrete), 'weights') for more in ([], [states], [masters]))
    check(bare == states_only and bare['device'] - both['device'] == 4 * moving and both['pinned'] - bare.get('pinned', 0) == 4 * moving, f'masters: {bare}, {both}')
    refused(of_llama('no-copy', masters, adamw),
            'offload-optimizer', "moves masters to 'pinned'", 'no parameter has a copy in 16 bit', 'compute in 16 bit', flags=discrete)


# ---- Beside kernels ---------------------------------------------------------------------------------------------------------------------------
@case
def states_beside_kernels():
    """A slow link cuts states into many parts; copies both ways run under kernels."""
    flags, small = link('slow', 4e6), dict(batch=1, length=4, save=dict(every=3))
    here = trained(made('slow-here', clip, adamw, **small), 'slow-here', *discrete, *flags)
    there, trace = traced(made('slow-there', clip, states, adamw, **small), 'slow-there', 'slow.toml')
    same('a slow link', here, there, 'model', state)
    for a, b, what in ((0, 1, 'kernels beside copies in'), (0, 2, 'kernels beside copies out'), (1, 2, 'copies both ways')):
        check(trace.together(a, b) >= 20, f'{what}: {trace.together(a, b)} times')
    check(trace.whole < 0.8 * sum(trace.busy), f'{trace.whole} µs for work of {trace.busy}')


@case
def saved_tensors_beside_kernels():
    flags, large = link('faster', 1e9), dict(batch=8, length=32)
    here = trained(made('fast-here', clip, adamw, **large), 'fast-here', *discrete, *flags)
    there, trace = traced(made('fast-there', saved, clip, adamw, **large), 'fast-there', 'faster.toml')
    same('saved tensors', here, there, 'model', state)
    for a, b, what in ((0, 1, 'kernels beside copies in'), (0, 2, 'kernels beside copies out')):
        check(trace.together(a, b) >= 20, f'{what}: {trace.together(a, b)} times')


# ---- Afterwards -------------------------------------------------------------------------------------------------------------------------------
with open('text.txt', 'w') as file:
    file.write('one two three four five six seven eight nine ten. ' * 20)
text = ['--set', 'text=text.txt']
of_text = recipes(from_config('gpt2', vocab_size=256, n_positions=32, n_embd=32, n_layer=2, n_head=4),
                  'data.text { files = { arg("text") }, tokenizer = "bytes", validation = 0.2 }', **{**entries, 'steps': 4})


@case
def resumed():
    """To the same bytes; and its model is evaluated and sampled where there is one memory."""
    path = of_text('resume', use('recompute'), states, saved, clip, adamw, save=dict(every=2, keep=2))
    whole = trained(path, 'whole', *discrete, *text)
    shutil.copytree('whole', 'again')
    shutil.rmtree('again/state/step-00000004')
    shutil.rmtree('again/model')
    run('resume', 'again', *plugins)
    same('resume', whole, type(whole)('again'), 'model', 'state')
    run('eval', path, *text)
    run('sample', 'whole', '--prompt', 'one', '--tokens', 3, *plugins)


@case
def averaged():
    """An average rests there too, and is what evaluation reads."""
    path = of_text('averaged', states, clip, adamw, use('ema', decay=0.5), validate=dict(every=2))
    last = [x['validation_loss'] for x in trained(path, 'averaged', *discrete, *text).lines if 'validation_loss' in x][-1]
    loss = json.loads(run('eval', 'averaged', '--json', *plugins).stdout)['validation_loss']
    check(loss == last, f'eval says {loss}, the run {last}')
    moved, kept = (owners(plan(made(f'averages-{len(more)}', *more, adamw, use('ema', decay=0.5), batch=1, length=8, steps=1), *discrete), 'states')['device']
                   for more in ([states], []))
    check(moved < kept / 2, f'{moved} bytes of states on the device, {kept} without offload-optimizer')


# ---- What is refused --------------------------------------------------------------------------------------------------------------------------
lora = use('lora', rank=2, alpha=4, targets='all-linear')
one_memory = "device 'cpu' has one memory class, 'host'"
REFUSED = {
    'cpu': ((), (states, adamw), (one_memory, 'the states of the optimizer', 'offload-optimizer', '--target')),
    'cpu saved': ((), (saved, adamw), (one_memory, 'saved tensors', 'offload-activations', '--target')),
    'plain': (discrete, (states, use('sgd', lr=0.1)), ('the optimizer keeps no state', 'offload-optimizer', 'leave this out')),
    'small': (discrete, (use('offload-optimizer'), lora, adamw), ('min_size = 4096 elements', 'smaller min_size')),
    **{f'{name} {memory}': (discrete, (use(f'offload-{name}', memory=memory, min_size=1), adamw), words)
       for name in ('optimizer', 'activations')
       for memory, words in (('disk', ("has no memory class 'disk'", "there is: 'pinned', 'file'")),
                             ('device', ("computes from the memory class 'device'", "there is: 'pinned', 'file'")))},
    'pattern': (discrete, (use('offload-optimizer', parameters='*.mpl.*'), adamw), ("no parameter is called '*.mpl.*'", 'transformer.h.0.mlp')),
    'tensor': (discrete, (use('offload-activations', patterns='*.mpl.*'), adamw), ("no saved tensor is called '*.mpl.*'", 'transformer.h.0.mlp')),
    'size': (discrete, (use('offload-activations', min_size='1GiB'), adamw), ('no saved tensor that is named has min_size', 'smaller min_size')),
    'option': (discrete, (use('offload-optimizer', minimum=3), adamw), ("unknown option 'minimum'",)),
    'two': (discrete, (use('offload-optimizer', parameters='*', memory='pinned', min_size=1), use('second-memory', memory='file', states=['*']), adamw),
            ("decide 'placement'", 'offload-optimizer', 'second-memory')),
}


@cases(REFUSED)
def refuses(_, what):
    flags, uses, words = what
    refused(made('refused', *uses), *words, flags=flags)


@case
def stronger():
    """Whoever names tensors goes before whoever names none."""
    held = owners(plan(made('stronger', states, use('second-memory', memory='file', states=['*.mlp.*']), adamw), *discrete), 'states')
    check(held['file'] > 0 and held['pinned'] > 0, f'a weak and a strong claim: {held}')


finish(turns=2)
