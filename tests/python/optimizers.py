#!/usr/bin/env python3
"""Optimizers: the bytes of their states by formula, which parameter belongs to which, and what 8-bit states leave on disk."""
import functools
import json
import pathlib

from galley_test import case, cases, check, every, finish, fresh_folder, from_config, load, plan, recipe, run, together, use
from steps_kit import recipes, refused, trained

fresh_folder()
DATA = 'data.random {}'

# ---- States by formula, at the shape of Llama 3.2 3B -----------------------------------------------------------------------------------
hidden, layers, inner, vocabulary, kv = 3072, 28, 8192, 128256, 1024
llama_3b = from_config('llama', vocab_size=vocabulary, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=24,
                       num_key_value_heads=8, head_dim=128, max_position_embeddings=2048, tie_word_embeddings=True)
embeddings, norms = vocabulary * hidden, (2 * layers + 1) * hidden
matrices = layers * (2 * hidden * hidden + 2 * kv * hidden + 3 * inner * hidden)
counter = 64  # of applied steps: one number, at an address of its own
of_3b = recipes(llama_3b, DATA, batch=1, length=64, steps=2)

# Rows and columns of matrices; norms as they are.
sides = embeddings // hidden + hidden + norms + layers * (3 * (inner + hidden) + 2 * (kv + hidden) + 2 * (hidden + hidden))
in_f32, coded = embeddings + norms, matrices * (1 + 4 / 256)  # a code a number, and a magnitude in F32 for 256 of them
keys_and_values = 2 * layers * kv * hidden


@cases({
    'sgd': ('sgd', {}, 0),
    'sgd with momentum': ('sgd', dict(momentum=0.9), 4 * (in_f32 + matrices)),
    'adam': ('adam', {}, 8 * (in_f32 + matrices)),
    'adamw': ('adamw', {}, 8 * (in_f32 + matrices)),
    'amsgrad': ('adamw', dict(amsgrad=True), 12 * (in_f32 + matrices)),
    'lion': ('lion', {}, 4 * (in_f32 + matrices)),
    'adamw8bit': ('adamw8bit', {}, 8 * in_f32 + 2 * coded),
    'lion8bit': ('lion8bit', {}, 4 * in_f32 + coded),
    'adafactor': ('adafactor', {}, 4 * sides),
    'adafactor with beta1': ('adafactor', dict(beta1=0.9), 4 * (sides + in_f32 + matrices)),
    'muon': ('muon', dict(rest_lr=1e-4), 8 * in_f32 + 4 * matrices),
    'adamw8bit of large ones': ('adamw8bit', dict(min_size=hidden * kv + 1), 8 * (in_f32 + keys_and_values) + 2 * (coded - keys_and_values * (1 + 4 / 256))),
})
def states(_, what):
    name, options, wanted = what
    made = plan(of_3b('states', use(name, lr=1e-4, **options)))
    check(made['parameters'] == embeddings + norms + matrices, f'parameters: {made["parameters"]}')
    held = made['classes']['host']['owners']['states']
    check(held == wanted + counter, f'{held} bytes of states, not {wanted + counter}')


everything = embeddings + matrices


@cases({'seven': ([], 2 * everything + 4 * norms), 'five': ([use('update-in-backward')], 2 * 2 * max(embeddings, inner * hidden))})
def bytes_a_parameter(_, what):
    """Seven of all, and five where a gradient is gone at once."""
    more, gradients = what
    made = plan(of_3b('bytes', use('amp'), use('adamw', lr=1e-4), use('split-states'), *more))['classes']['host']['owners']
    kept = {'weights': 3 * everything + 4 * norms, 'states': 2 * everything * (1 + 2 / 32) + 8 * norms + counter}
    check(every(0 <= made[k] - kept[k] < 2e-5 * kept[k] for k in ('weights', 'states')) and made['states'] == kept['states'], f'split-states: {made}, not {kept}')
    check(made['gradients'] <= gradients and (more or gradients - made['gradients'] < 1e-5 * gradients), f'gradients: {made["gradients"]}, not {gradients}')


# ---- Which parameter belongs to which --------------------------------------------------------------------------------------------------
small = from_config('gpt2', vocab_size=256, n_positions=64, n_embd=128, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
of_small = recipes(small, DATA, batch=2, length=16, steps=12, seed=4, save=dict(every=6))
groups = 'groups = { { match = "*.bias", lr_factor = 2 }, { match = "*.ln_1.*", weight_decay = 0.5 } }'
several = of_small('several', use('freeze', patterns='*.wpe.weight'), use('adam', lr=1e-3, parameters='*.wte.weight'), f'use "lion8bit" {{ lr = 1e-4, {groups} }}')


@case
def belongings():
    updates = {(x['by'] or 'frozen').split(' (')[0]: x for x in plan(several)['updates']}
    check(set(updates) == {'adam', 'lion8bit', 'lion8bit, *.bias', 'lion8bit, *.ln_1.*', 'frozen'}, f'updates: {sorted(updates)}')
    check(updates['frozen']['names'] == ['transformer.wpe.weight'] and updates['frozen']['numbers'] == 64 * 128, f'frozen: {updates["frozen"]}')
    biases = updates['lion8bit, *.bias']
    check(biases['parameters'] == 2 * 6 + 1 and 'transformer.h.*.ln_1.bias' in biases['names'], f'biases: {biases}')
    check(updates['lion8bit, *.ln_1.*']['names'] == ['transformer.h.*.ln_1.weight'], f'the first group that matches holds: {updates["lion8bit, *.ln_1.*"]}')
    text = run('plan', several).stdout
    check('  updates\n' in text and 'they would take' in text and 'transformer.h.*.attn.c_attn.weight' in text, f'the table: {text[:1500]}')


@cases({
    'name': ('"*.bias"', '"*.bais"', ("no parameter is called '*.bais'", "'transformer.h.0.ln_1.bias'")),
    'option': ('lr_factor = 2', 'lr_scale = 2', ("unknown option 'lr_scale' in entry 1; did you mean 'lr_factor'",)),
    'range': ('weight_decay = 0.5', 'weight_decay = -1', ("in entry 2: 'weight_decay' must be a number in [0, inf), not -1",)),
    'match': ('{ match = "*.bias", lr_factor = 2 }', '{ lr_factor = 2 }', ("has no 'match' in entry 1",)),
})
def wrong_groups(_, what):
    right, wrong, words = what
    text = pathlib.Path(several).read_text()
    check(text.count(right) == 1, f'{right} stands there {text.count(right)} times')
    pathlib.Path('wrong.lua').write_text(text.replace(right, wrong))
    refused('wrong.lua', *words)


@case
def two_that_name_one_parameter():
    path = of_small('twice', use('adam', lr=1e-3, parameters='*.wte.weight'), use('lion', lr=1e-3, parameters='transformer.w*'))
    refused(path, "'transformer.wte.weight'", 'adam', 'lion')


@case
def two_rates_of_one_optimizer():
    made = trained(of_small('rates', use('muon', lr=2e-2, rest_lr=1e-3), steps=2), 'rates')
    rates = [x for x in made.lines if 'lr' in x]
    check(len(rates) == 2 and every(x['lr'] == x['lr.muon'] == 2e-2 and x['lr.muon.rest_lr'] == 1e-3 for x in rates), f'rates: {rates}')


@cases({'adamw8bit': [use('adamw8bit', lr=1e-3)], 'lion8bit': [use('lion8bit', lr=1e-3)], 'split-states': [use('amp'), use('adamw', lr=1e-3), use('split-states')],
        'amp': [use('amp'), use('adamw', lr=1e-3)]})
def launches(name, uses):
    """One launch for all parameters of one storage."""
    dump = run('plan', of_small(f'launches-{name}', *uses, steps=2), '--dump', 'fuse').stdout.splitlines()
    steps = [x for x in dump if x.startswith('update[') and '_step' in x.split(':')[0] and 'step_' not in x.split()[1]]
    check(1 <= len(steps) <= 2, f'launches {steps}')


# ---- What is kept on disk ----------------------------------------------------------------------------------------------------------------
def last_state(made):
    return load(sorted((made.path / 'state').glob('step-*'))[-1] / 'state.safetensors')


@case
def eight_bit():
    made = trained(of_small('coded', use('amp', compute='bf16'), use('clip', norm=1.0), use('adamw8bit', lr=1e-3)), 'coded')
    state = last_state(made)
    names = [name for name in state if name.endswith('.exp_avg') and state[name][0] == 'U8']
    check(len(names) == 8 and not any('ln_' in x or 'bias' in x or 'wte' in x or 'wpe' in x for x in names), f'states in 8 bit: {names}')
    bytes_of = {'U8': 1, 'F32': 4}
    numbers = sum(len(state[x][2]) for x in names)
    stored = sum(len(x) * bytes_of[dtype] for name, (dtype, _, x) in state.items() if any(name.startswith(p.removesuffix('exp_avg') + 'exp_avg') for p in names))
    check(stored == numbers * (2 + 8 / 256) and stored <= 2.04 * numbers, f'{stored} bytes for {numbers} parameters whose states are in 8 bit')


# Split: how far it is from AdamW in F32, with and without 16 bit.
pathlib.Path('words.txt').write_text(' '.join(f'{a} and {b} make {a + b}.' for a in range(60) for b in range(30)))
text = "data.text { files = 'words.txt', tokenizer = 'bytes', validation = 0.1 }"
MIXES = {'f32': [], 'amp': [use('amp')], 'split': [use('split-states')], 'both': [use('amp'), use('split-states')]}


pathlib.Path('level.toml').write_text('isa = "x86-64-v3"\n')
LEVELS = {'here': [], 'v3': ['--target', 'level.toml']}


@functools.cache
def mixed(name, level):
    path = recipe(f'{name}.lua', small, text, use('adamw', lr=2e-3), *MIXES[name], batch=4, length=32, steps=60, seed=4, validate=dict(every=30), save=dict(every=60))
    return trained(path, name if level == 'here' else f'{name}-{level}', *LEVELS[level])


@cases(MIXES)
def evaluated(name, uses):
    """A run, and what it has saved, as the run was validated."""
    last = [x['validation_loss'] for x in mixed(name, 'here').lines if 'validation_loss' in x][-1]
    amp = [x for x in uses if x == use('amp')]
    saved = recipe(f'{name}-saved.lua', f'model {{ path = "{name}/model" }}', text, *amp, batch=4, length=32, steps=1, validate=dict(every=1))
    for what in (name, saved):
        loss = json.loads(run('eval', what, '--json').stdout)['validation_loss']
        # What is saved is weights with their corrections; in a run with bf16, embeddings are read without.
        check(loss == last or (name, what) == ('both', saved) and abs(loss - last) < 1e-4, f'eval {what} says {loss}, the run {last}')


@cases({f'{name}-{level}': (name, other, level) for name, other in (('split', 'f32'), ('both', 'amp')) for level in LEVELS})
def near(_, what):
    """To the end at a level that each machine has. Roundings of this machine's own level are other ones, and losses go apart like any two runs later on."""
    name, other, level = what
    mine, theirs = ([loss for loss, _ in mixed(x, level).steps] for x in (name, other))
    check(len(mine) == 60, f'{len(mine)} steps')
    steps, most = (60, 0.02) if level == 'v3' else (10, 0.01)
    far = max(abs(a - b) / b for a, b in together(mine[:steps], theirs[:steps]))
    check(0 < far < most and mine[-1] < 0.5 * mine[0], f'{far} from {other}; {mine[::10]}, {theirs[::10]}')


@case
def split_on_disk():
    """How a weight and its states are kept."""
    state = last_state(mixed('both', 'here'))
    weight = 'transformer.h.0.attn.c_attn.weight'
    kept = [state[weight + x][0] for x in ('', '.correction', '.exp_avg', '.exp_avg.scale', '.exp_avg_sq', '.exp_avg_sq.scale')]
    check(kept == ['BF16', 'I8', 'I8', 'BF16', 'U8', 'BF16'], f'a weight and its states are kept in {kept}')
    check(state['transformer.h.0.ln_1.weight'][0] == state['transformer.h.0.ln_1.weight.exp_avg'][0] == 'F32', 'norms stay in F32')


@cases({'adamw8bit': [use('adamw8bit', lr=1e-3)], 'amp': [use('adamw', lr=1e-3), use('amp', weights='bf16')]})
def split_beside(name, uses):
    """Of two that keep one thing in two ways, both are named."""
    refused(of_small(f'beside-{name}', *uses, use('split-states')), 'split-states', name)


finish(turns=2)
