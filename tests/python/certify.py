#!/usr/bin/env python3
"""galley certify: strategies that do what they declare, and planted breaches that are each named: of declarations, of gradient rules, of formats, and what depends on
an address. What cannot be held is said. Each breach has a counterpart that differs in nothing but that and has to pass."""
import json
import os
import pathlib
import signal
import subprocess
import time

import galley_test
from galley_test import binary, check, every, finish, fresh_folder, from_config, recipe, run, use

fresh_folder()
model = from_config('gpt2', vocab_size=61, n_positions=32, n_embd=32, n_layer=2, n_head=4)
breaches = [x for name in ('breaches', 'wrong-gradients', 'wrong-format') for x in ('--plugin-path', binary / 'tests/plugins' / name)]
adamw = use('adamw', lr=1e-3)


def certify(name, *uses, code=0, words=(), more=model, **entries):
    path = recipe(name + '.lua', more, 'data.random {}', *uses, **{**dict(batch=2, length=16, steps=3, seed=9), **entries})
    r = run('certify', path, '--json', f'{name}.json', *breaches, *words, code=code)
    said = json.loads(pathlib.Path(f'{name}.json').read_text())
    check(every(len(line) <= 80 for line in r.stdout.splitlines()[:1 + len(said['strategies'])]), r.stdout)
    return r, {x['strategy']: x for x in said['strategies']}, said


# ---- What holds
r, seen, said = certify('stack', use('accumulate', steps=2), use('recompute'), use('clip', norm=0.3), adamw)
check({k: (x['against'], x['verdict']) for k, x in seen.items()} == {
    'accumulate': ('batch x 2', 'holds'), 'recompute': ('without', 'holds'), 'clip': ('gradients', 'holds'), 'adamw': ('references', 'holds')}, seen)
check(seen['recompute']['updates']['largest'] == 0 and seen['recompute']['gradients']['largest'] == 0, seen['recompute'])
check(0 < seen['accumulate']['gradients']['largest'] < 1e-5 and 0 < seen['accumulate']['updates']['largest'] < 1e-2, seen['accumulate'])
check(said['reference_outputs'] > 100 and said['steps'] == 2 and not said['fault'], said)
check('holds' in r.stdout and 'BREACH' not in r.stdout, r.stdout)
# Each number stands beside the bound up to which it holds, and beside the control's where the bound comes of it.
for row in ('loss', 'gradients', 'updates'):
    x = seen['accumulate'][row]
    check(x['largest'] <= x['bound'] and x['control'] is not None and x['bound'] >= 3.99 * x['control'], f'{row}: {x}')
    check(seen['recompute'][row]['bound'] == 0, seen['recompute'])
check(r.stdout.splitlines()[0].split()[-3:] == ['differs', 'control', 'bound'], r.stdout)
check(not said['unsteady'] and 'at other addresses and with 2 threads: the same bytes' in r.stdout, r.stdout)
check(said['gradient_rules'] >= 8 and 'gradient rules held against finite differences' in r.stdout, said)

_, seen, _ = certify('eight', use('amp'), use('adamw8bit', lr=1e-3, min_size=1), words=['--no-references'])
check(seen['adamw8bit']['against'] == 'adamw' and seen['adamw8bit']['verdict'] == 'holds', seen)
check(seen['adamw8bit']['gradients']['largest'] == 0 < seen['adamw8bit']['updates']['largest'] < 0.1, seen['adamw8bit'])
check(1e-4 < seen['amp']['gradients']['largest'] < 0.1, seen['amp'])

# An adapter begins as the model, of weights in few bits too: beside it these are held, as nothing else of the model is trained.
_, seen, _ = certify('adapter', use('quantize-nf4'), use('lora', rank=4), adamw, words=['--no-references'])
check(seen['lora']['against'] == 'start' and seen['lora']['verdict'] == 'holds' and seen['lora']['loss']['largest'] < 1e-6, seen)
check(seen['quantize-nf4']['verdict'] == 'holds' and seen['quantize-nf4']['gradients']['bound'] > seen['quantize-nf4']['gradients']['largest'] > 1e-2, seen)
check(seen['adamw']['verdict'] == 'not held', seen)

# ---- Breaches, each beside what differs in nothing but that
for name, breach, counterpart, words in (
        ('twice', use('adds-twice'), None, ["'adds-twice' does not do what it declares", 'breach_add', 'its op is not what its reference computes']),
        ('dropped', use('drops-gradient'), use('copies'), ["'drops-gradient' does not do what it declares", 'the gradient of ']),
        ('rounded', use('rounds-activations'), use('copies'), ["'rounds-activations' does not do what it declares", 'the loss of step 1 is ']),
        ('elsewhere', use('starts-elsewhere'), use('starts-elsewhere', begin=1), ["'starts-elsewhere' does not do what it declares", 'the loss before the first update is '])):
    r, seen, _ = certify(name, breach, adamw, code=4)
    own = breach.split('"')[1]
    check(seen[own]['verdict'] == 'BREACH' and sum(x['verdict'] == 'BREACH' for x in seen.values()) == 1, f'{name}: {seen}')
    for word in (*words, f"plugin 'breaches'", f'{own} (' + name + '.lua:'):
        check(word in r.stderr, f'{name}: no {word!r} in {r.stderr}')
    if counterpart:
        _, seen, _ = certify(name + '-right', counterpart, adamw, words=['--no-references'])
        check(seen[counterpart.split('"')[1]]['verdict'] == 'holds', f'{name}: {seen}')
decay = dict(lr=1e-3, weight_decay=0.1)
r, seen, _ = certify('decay', use('decays-wrongly', **decay), code=4, words=['--no-references'])
check("'decays-wrongly' does not do what it declares" in r.stderr and 'the update of ' in r.stderr and 'rounding by ' in r.stderr, r.stderr)
check(seen['decays-wrongly']['gradients']['largest'] == 0, seen)
_, seen, _ = certify('decay-right', use('decays-wrongly', factor=1, **decay), words=['--no-references'])
check(seen['decays-wrongly']['verdict'] == 'holds', seen)

# A classifier's head trains beside an adapter: in the arm without the adapter no quantizer takes it either.
roberta = from_config('roberta', vocab_size=256, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24, max_position_embeddings=34,
                      type_vocab_size=1, pad_token_id=1)[:-2] + ', task = "sequence-classification", labels = 2 }'
pathlib.Path('rows.jsonl').write_text(''.join(json.dumps(dict(text=f'a line {i}', label=i % 2)) + '\n' for i in range(20)))
path = recipe('head.lua', roberta, 'data.jsonl { files = { "rows.jsonl" }, tokenizer = "bytes", validation = 0.2 }', use('quantize-nf4'), use('lora', rank=2), adamw,
              batch=2, length=16, steps=3)
r = run('certify', path, '--no-references')
check('BREACH' not in r.stdout and 'start' in r.stdout, r.stdout)

# ---- Gradient rules, by the run's own nodes
for op, said_of in (('factor', "input 1 ('b'): the gradient rule says"), ('swapped', 'the gradient rule says'), ('forward', "it hands out the numbers of input 'a'")):
    r, seen, _ = certify(op, use('gate', op='gate_' + op), adamw, code=4)
    check(seen['gate']['verdict'] == 'BREACH' and 'its gradient is not that of its op' in seen['gate']['sentence'], seen)
    for word in (said_of, f"plugin 'wrong-gradients': the gradient rule of op 'gate_{op}'", 'finite differences of the reference say'):
        check(word in r.stderr, f'{op}: no {word!r} in {r.stderr}')
r, seen, _ = certify('kernel', use('gate', op='gate_kernel'), adamw, code=4)
# Backward is nobody's node in particular: the kernel's plugin is named.
check("plugin 'wrong-gradients'" in r.stderr and "the reference of op 'gate_kernel_back' says" in r.stderr and 'times its bound' in r.stderr, r.stderr)
r, seen, said = certify('address', use('gate', op='gate_address'), adamw, code=4, words=['--no-references'])
check('leaves other bytes at other addresses' in said['unsteady'] and "gate_address.cpu' of plugin 'wrong-gradients'" in said['unsteady'], said)
check(seen['gate']['verdict'] == 'BREACH' and 'it computes other numbers in another run' in seen['gate']['sentence'], seen)
_, seen, _ = certify('gates-right', use('gate', op='gate_right'), adamw)
check(seen['gate']['verdict'] == 'holds', seen)

# The row of padding gets no gradient by definition, which no finite difference sees.
r, seen, said = certify('padding', adamw, more=from_config('llama', vocab_size=9, pad_token_id=3, max_position_embeddings=32, hidden_size=16, intermediate_size=24,
                                                           num_hidden_layers=1, num_attention_heads=2))
check(not said['fault'] and "gradient rule of 'embedding': not held: by its attribute 'padding'" in r.stdout, r.stdout)

# ---- A dequantizer that is 2 % off in one block of 64: in kernel and reference alike, or in the kernel alone
def frozen(name, *words, code=0, **options):
    return certify(name, use('wrong-format', **options), use('lora', rank=2), adamw, words=words, code=code)


r, seen, _ = frozen('block', code=4)
check(seen['wrong-format']['verdict'] == 'BREACH' and seen['wrong-format']['gradients']['largest'] < seen['wrong-format']['gradients']['bound'], seen)
for word in ("'wrong-format' does not do what it declares", "format 'wrong8' does not keep what its manifest promises", 'block 7 of 64 numbers', '% is promised'):
    check(word in r.stderr, f'no {word!r} in {r.stderr}')
r, seen, _ = frozen('block-alone', code=4, alone=True)
check('the reference of op' in r.stderr, r.stderr)
_, seen, said = frozen('block-right', factor=1.0)
check(seen['wrong-format']['verdict'] == 'holds' and said['kept_promises'] > 4, said)

# ---- What cannot be held
_, seen, _ = certify('tokens', use('accumulate', tokens=48), adamw, words=['--no-references'])
check(seen['accumulate']['against'] == 'references' and seen['accumulate']['verdict'] == 'not held', seen)
path = recipe('none.lua', model, 'data.random {}', batch=2, length=16, steps=2)
r = run('certify', path, code=2)
check('update' in r.stderr or 'no strategy' in r.stderr, r.stderr)

# ---- A comparison's verdict is held against the same declarations
same_but = f'model = {model}, data = data.random {{}}, batch = 2, length = 16, steps = 4, turns = 1'
pathlib.Path('arms.lua').write_text(f"""return compare {{ {same_but},
  variants = {{
    plain = {{ {use('adamw', lr=1e-2, weight_decay=0.1)} }},
    rounded = {{ {use('rounds-activations')}, {use('adamw', lr=1e-2, weight_decay=0.1)} }},
    copied = {{ {use('copies')}, {use('adamw', lr=1e-2, weight_decay=0.1)} }},
    halves = {{ batch = 1, {use('accumulate', steps=2)}, {use('adamw', lr=1e-2, weight_decay=0.1)} }},
    wild = {{ {use('decays-wrongly', lr=1e-2, weight_decay=0.1, factor=300)} }},
    other = {{ {use('decays-wrongly', lr=1e-2, weight_decay=0.2, factor=300)} }},
  }} }}
""")
r = run('compare', 'arms.lua', '--out', 'arms', *breaches)
arms = {x['name']: x for x in json.loads(pathlib.Path('arms/compare.json').read_text())['arms']}
check({k: bool(x['breach']) for k, x in arms.items()} == dict(plain=False, rounded=True, copied=False, halves=False, wild=True, other=False),
      {k: (x['verdict'], x['breach']) for k, x in arms.items()})
check("'rounds-activations' (arms.lua:4), plugin 'breaches', declares the same bytes" in arms['rounded']['breach'], arms['rounded'])
check("declares to be 'adamw'" in arms['wild']['breach'] and arms['wild']['sentence'].endswith('; BREACH: ' + arms['wild']['breach']), arms['wild'])
check(arms['copied']['verdict'] == 'identical' and arms['halves']['verdict'] == 'rounding', arms)
check(r.stdout.count('BREACH: ') == 2, r.stdout)

# ---- Where it writes: nothing is left of it, or all of it where that is wanted
os.mkdir('scratch')
os.environ['TMPDIR'] = str(pathlib.Path('scratch').resolve())
certify('left', use('recompute'), adamw, words=['--no-references'])
check(not list(pathlib.Path('scratch').iterdir()), 'certify has left a temporary folder')
certify('kept', use('recompute'), adamw, words=['--no-references', '--out', 'kept'])
check(len(list(pathlib.Path('kept').rglob('*.safetensors'))) == 6, sorted(pathlib.Path('kept').rglob('*')))
r = run('certify', 'kept.lua', '--out', 'kept', code=2)
check('kept' in r.stderr, r.stderr)
# What a killed command has left goes with the next one, whatever that comes to.
pathlib.Path('temporary').mkdir()
os.environ['TMPDIR'] = str(pathlib.Path('temporary').resolve())
killed = subprocess.Popen([galley_test.program, 'certify', 'stack.lua'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
while not os.listdir('temporary') and killed.poll() is None:
    time.sleep(0.005)
killed.send_signal(signal.SIGKILL)
killed.wait()
check(len(os.listdir('temporary')) == 1, f'a killed certify leaves {os.listdir("temporary")}')
run('certify', 'none.lua', code=2)
check(not os.listdir('temporary'), f'the next certify leaves {os.listdir("temporary")}')
finish()
