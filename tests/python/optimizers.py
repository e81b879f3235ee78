#!/usr/bin/env python3
"""Optimizers: the bytes of their states by formula, which parameter belongs to which, and what 8-bit states leave on disk."""
import json
import pathlib

from galley_test import check, every, finish, fresh_folder, from_config, load, plan, recipe, run, train, use

fresh_folder()
DATA = 'data.random {}'

# ---- States by formula, at the shape of Llama 3.2 3B -----------------------------------------------------------------------------------

hidden, layers, inner, vocabulary, kv = 3072, 28, 8192, 128256, 1024
llama_3b = from_config('llama', vocab_size=vocabulary, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=24, num_key_value_heads=8,
                       head_dim=128, max_position_embeddings=2048, tie_word_embeddings=True)
embeddings, norms = vocabulary * hidden, (2 * layers + 1) * hidden
matrices = layers * (2 * hidden * hidden + 2 * kv * hidden + 3 * inner * hidden)
counter = 64  # of applied steps: one number, at an address of its own


def states(*uses):
    made = plan(recipe('big.lua', llama_3b, DATA, *uses, batch=1, length=64, steps=2))
    check(made['parameters'] == embeddings + norms + matrices, f'parameters: {made["parameters"]}')
    return made['classes']['host']['owners']['states']


sides = embeddings // hidden + hidden + norms + layers * (3 * (inner + hidden) + 2 * (kv + hidden) + 2 * (hidden + hidden))  # rows and columns of matrices; norms as they are
in_f32, coded = embeddings + norms, matrices * (1 + 4 / 256)  # a code a number, and a magnitude in F32 for 256 of them
for name, options, wanted in (('sgd', {}, 0), ('sgd', dict(momentum=0.9), 4 * (in_f32 + matrices)), ('adam', {}, 8 * (in_f32 + matrices)), ('adamw', {}, 8 * (in_f32 + matrices)),
                              ('adamw', dict(amsgrad=True), 12 * (in_f32 + matrices)), ('lion', {}, 4 * (in_f32 + matrices)), ('adamw8bit', {}, 8 * in_f32 + 2 * coded),
                              ('lion8bit', {}, 4 * in_f32 + coded), ('adafactor', {}, 4 * sides), ('muon', dict(rest_lr=1e-4), 8 * in_f32 + 4 * matrices), ('adafactor', dict(beta1=0.9), 4 * (sides + in_f32 + matrices)), ('adamw8bit', dict(min_size=hidden * kv + 1), 8 * (in_f32 + 2 * layers * kv * hidden) + 2 * (coded - 2 * layers * kv * hidden * (1 + 4 / 256)))):
    made = states(use(name, lr=1e-4, **options))
    check(made == wanted + counter, f'{name} {options}: {made} bytes of states, not {wanted + counter}')

# ---- Seven bytes a parameter, and five -------------------------------------------------------------------------------------------------

everything = embeddings + matrices
for more, gradients in (([], 2 * everything + 4 * norms), ([use('update-in-backward')], 2 * 2 * max(embeddings, inner * hidden))):
    made = plan(recipe('seven.lua', llama_3b, DATA, use('amp'), use('adamw', lr=1e-4), use('split-states'), *more, batch=1, length=64, steps=2))['classes']['host']['owners']
    kept = {'weights': 3 * everything + 4 * norms, 'states': 2 * everything * (1 + 2 / 32) + 8 * norms + counter}
    check(every(0 <= made[k] - kept[k] < 2e-5 * kept[k] for k in ('weights', 'states')) and made['states'] == kept['states'], f'split-states: {made}, not {kept}')
    check(made['gradients'] <= gradients and (more or gradients - made['gradients'] < 1e-5 * gradients), f'gradients: {made["gradients"]}, not {gradients}')

# ---- Which parameter belongs to which --------------------------------------------------------------------------------------------------

small = from_config('gpt2', vocab_size=256, n_positions=64, n_embd=128, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
several = recipe('several.lua', small, DATA, use('freeze', patterns='*.wpe.weight'), use('adam', lr=1e-3, parameters='*.wte.weight'),
                 'use "lion8bit" { lr = 1e-4, groups = { { match = "*.bias", lr_factor = 2 }, { match = "*.ln_1.*", weight_decay = 0.5 } } }', batch=2, length=16, steps=12, seed=4,
                 save=dict(every=6))
updates = {(x['by'] or 'frozen').split(' (')[0]: x for x in plan(several)['updates']}
check(set(updates) == {'adam', 'lion8bit', 'lion8bit, *.bias', 'lion8bit, *.ln_1.*', 'frozen'}, f'updates: {sorted(updates)}')
check(updates['frozen']['names'] == ['transformer.wpe.weight'] and updates['frozen']['numbers'] == 64 * 128, f'frozen: {updates["frozen"]}')
check(updates['lion8bit, *.bias']['parameters'] == 2 * 6 + 1 and 'transformer.h.*.ln_1.bias' in updates['lion8bit, *.bias']['names'], f'biases: {updates["lion8bit, *.bias"]}')
check(updates['lion8bit, *.ln_1.*']['names'] == ['transformer.h.*.ln_1.weight'], f'the first group that matches holds: {updates["lion8bit, *.ln_1.*"]}')
text = run('plan', several).stdout
check('  updates\n' in text and 'they would take' in text and 'transformer.h.*.attn.c_attn.weight' in text, f'the table: {text[:1500]}')

for change, words in (('"*.bias"', ("no parameter is called '*.bais'", "'transformer.h.0.ln_1.bias'")), ('lr_factor = 2', ("unknown option 'lr_scale' in entry 1; did you mean 'lr_factor'",)),
                      ('weight_decay = 0.5', ("in entry 2: 'weight_decay' must be a number in [0, inf), not -1",)), ('{ match = "*.bias", lr_factor = 2 }', ("has no 'match' in entry 1",))):
    wrong = {'"*.bias"': '"*.bais"', 'lr_factor = 2': 'lr_scale = 2', 'weight_decay = 0.5': 'weight_decay = -1', '{ match = "*.bias", lr_factor = 2 }': '{ lr_factor = 2 }'}[change]
    path = pathlib.Path('wrong.lua')
    path.write_text(pathlib.Path(several).read_text().replace(change, wrong))
    said = run('plan', path, code=2).stderr
    check(every(w in said for w in words), f'{wrong}: {said}')
said = run('plan', recipe('twice.lua', small, DATA, use('adam', lr=1e-3, parameters='*.wte.weight'), use('lion', lr=1e-3, parameters='transformer.w*'), batch=1, length=8, steps=1), code=2).stderr
check("'transformer.wte.weight'" in said and 'adam' in said and 'lion' in said, f'two that name one parameter: {said}')

# ---- Two rates of one optimizer ----------------------------------------------------------------------------------------------------------

train(recipe('rates.lua', small, DATA, use('muon', lr=2e-2, rest_lr=1e-3), batch=2, length=16, steps=2, seed=4), 'rates')
rates = [s for s in map(json.loads, pathlib.Path('rates/metrics.jsonl').read_text().splitlines()) if 'lr' in s]
check(len(rates) == 2 and every(s['lr'] == s['lr.muon'] == 2e-2 and s['lr.muon.rest_lr'] == 1e-3 for s in rates), f'rates: {rates}')

# ---- All parameters of one storage in one launch ----------------------------------------------------------------------------------------

for uses in ([use('adamw8bit', lr=1e-3)], [use('lion8bit', lr=1e-3)], [use('amp'), use('adamw', lr=1e-3), use('split-states')], [use('amp'), use('adamw', lr=1e-3)]):
    dump = run('plan', recipe('launches.lua', small, DATA, *uses, batch=2, length=16, steps=2), '--dump', 'fuse').stdout.splitlines()
    steps = [x for x in dump if x.startswith('update[') and '_step' in x.split(':')[0] and 'step_' not in x.split()[1]]
    check(1 <= len(steps) <= 2, f'{uses}: launches {steps}')

# ---- 8 bit: on disk, and over an interruption -------------------------------------------------------------------------------------------

path = recipe('coded.lua', small, DATA, use('amp', compute='bf16'), use('clip', norm=1.0), use('adamw8bit', lr=1e-3), batch=2, length=16, steps=12, seed=4, save=dict(every=6))
train(path, 'whole')
last = sorted(pathlib.Path('whole/state').glob('step-*'))[-1]
state = load(last / 'state.safetensors')
inner_names = [name for name in state if name.endswith('.exp_avg') and state[name][0] == 'U8']
check(len(inner_names) == 8 and not any('ln_' in x or 'bias' in x or 'wte' in x or 'wpe' in x for x in inner_names), f'states in 8 bit: {inner_names}')
bytes_of = {'U8': 1, 'F32': 4}
numbers = sum(len(state[x][2]) for x in inner_names)
stored = sum(len(x) * bytes_of[dtype] for name, (dtype, _, x) in state.items() if any(name.startswith(p.removesuffix('exp_avg') + 'exp_avg') for p in inner_names))
check(stored == numbers * (2 + 8 / 256) and stored <= 2.04 * numbers, f'{stored} bytes for {numbers} parameters whose states are in 8 bit')

# ---- Split: what is kept on disk, how far it is from AdamW in F32, and refusals ---------------------------------------------------------

tokens = pathlib.Path('words.txt')
tokens.write_text(' '.join(f'{a} and {b} make {a + b}.' for a in range(60) for b in range(30)))
text = f"data.text {{ files = '{tokens}', tokenizer = 'bytes', validation = 0.1 }}"
losses = {}
for name, uses in (('f32', []), ('amp', [use('amp')]), ('split', [use('split-states')]), ('both', [use('amp'), use('split-states')])):
    train(recipe(f'{name}.lua', small, text, use('adamw', lr=2e-3), *uses, batch=4, length=32, steps=60, seed=4, validate=dict(every=30), save=dict(every=60)), name)
    lines = list(map(json.loads, pathlib.Path(f'{name}/metrics.jsonl').read_text().splitlines()))
    losses[name] = [x['loss'] for x in lines if 'lr' in x]
    last = [x['validation_loss'] for x in lines if 'validation_loss' in x][-1]
    saved = recipe(f'{name}-saved.lua', f'model {{ path = "{name}/model" }}', text, *([use('amp')] if use('amp') in uses else []), batch=4, length=32, steps=1, validate=dict(every=1))
    for command in (name, saved):
        loss = json.loads(run('eval', command, '--json').stdout)['validation_loss']
        # What is saved is weights with their corrections; in a run with bf16, embeddings are read without.
        check(loss == last or (name, command) == ('both', saved) and abs(loss - last) < 1e-4, f'{name}: eval {command} says {loss}, the run {last}')
for name, other, most in (('split', 'f32', 0.02), ('both', 'amp', 0.02)):
    far = max(abs(a - b) / b for a, b in zip(losses[name], losses[other]))
    check(0 < far < most and losses[name][-1] < 0.5 * losses[name][0], f'{name}: {far} from {other}; {losses[name][::10]}, {losses[other][::10]}')
last = sorted(pathlib.Path('both/state').glob('step-*'))[-1]
state = load(last / 'state.safetensors')
weight = 'transformer.h.0.attn.c_attn.weight'
check([state[weight + x][0] for x in ('', '.correction', '.exp_avg', '.exp_avg.scale', '.exp_avg_sq', '.exp_avg_sq.scale')] == ['BF16', 'I8', 'I8', 'BF16', 'U8', 'BF16'], 'how a weight and its states are kept')
check(state['transformer.h.0.ln_1.weight'][0] == state['transformer.h.0.ln_1.weight.exp_avg'][0] == 'F32', 'norms stay in F32')
for uses, words in (([use('adamw8bit', lr=1e-3)], ('split-states', 'adamw8bit')), ([use('adamw', lr=1e-3), use('amp', weights='bf16')], ('split-states', 'amp'))):
    said = run('plan', recipe('both.lua', small, DATA, *uses, use('split-states'), batch=1, length=8, steps=1), code=2).stderr
    check(every(w in said for w in words), f'{words}: {said}')
finish()
