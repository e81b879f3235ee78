#!/usr/bin/env python3
"""galley certify: strategies that do what they declare, and planted breaches that are each named: of declarations, of gradient rules, of formats, and what depends on
an address. What cannot be held is said. Each breach has a counterpart that differs in nothing but that and has to pass."""
import json
import os
import pathlib
import signal

from galley_test import binary, case, cases, check, end_of, every, finish, fresh_folder, from_config, recipe, require, run, start, until, use
from steps_kit import recipes, refused

fresh_folder()
model = from_config('gpt2', vocab_size=61, n_positions=32, n_embd=32, n_layer=2, n_head=4)
sizes = dict(batch=2, length=16, steps=3, seed=9)
breaches = [x for name in ('breaches', 'wrong-gradients', 'wrong-format') for x in ('--plugin-path', binary / 'tests/plugins' / name)]
adamw = use('adamw', lr=1e-3)
quick = ['--no-references']


def certify(name, *uses, code=0, words=(), of=model):
    """What the command says, what it says of each strategy, and all of its document."""
    path = recipes(of, 'data.random {}', **sizes)(name, *uses)
    said = run('certify', path, '--json', f'{name}.json', *breaches, *words, code=code)
    document = json.loads(pathlib.Path(f'{name}.json').read_text())
    check(every(len(line) <= 80 for line in said.stdout.splitlines()[:1 + len(document['strategies'])]), said.stdout)
    return said, {x['strategy']: x for x in document['strategies']}, document


def holds(name, strategy, *uses, **more):
    _, seen, document = certify(name, *uses, **more)
    check(seen[strategy]['verdict'] == 'holds', f'{name}: {seen}')
    return seen, document


def breach(name, strategy, *uses, says=(), **more):
    """The command ends by code 4, one strategy has broken its word, and each of `says` is in the cause."""
    said, seen, document = certify(name, *uses, code=4, **more)
    check([k for k, x in seen.items() if x['verdict'] == 'BREACH'] == [strategy], f'{name}: {seen}')
    for text in says:
        check(text in said.stderr, f'{name}: no {text!r} in {said.stderr}')
    return seen, document


# ---- What holds --------------------------------------------------------------------------------------------------------------------------
STACK = use('accumulate', steps=2), use('recompute'), use('clip', norm=0.3), adamw


@case
def stack():
    said, seen, document = certify('stack', *STACK)
    check({k: (x['against'], x['verdict']) for k, x in seen.items()} == {
        'accumulate': ('batch x 2', 'holds'), 'recompute': ('without', 'holds'), 'clip': ('gradients', 'holds'), 'adamw': ('references', 'holds')}, seen)
    check(seen['recompute']['updates']['largest'] == 0 and seen['recompute']['gradients']['largest'] == 0, seen['recompute'])
    check(0 < seen['accumulate']['gradients']['largest'] < 1e-5 and 0 < seen['accumulate']['updates']['largest'] < 1e-2, seen['accumulate'])
    check(document['reference_outputs'] > 100 and document['steps'] == 2 and not document['fault'], document)
    check('holds' in said.stdout and 'BREACH' not in said.stdout, said.stdout)
    # Each number stands beside the bound up to which it holds, and beside the control's where the bound comes of it.
    for row in ('loss', 'gradients', 'updates'):
        x = seen['accumulate'][row]
        check(x['largest'] <= x['bound'] and x['control'] is not None and x['bound'] >= 3.99 * x['control'], f'{row}: {x}')
        check(seen['recompute'][row]['bound'] == 0, seen['recompute'])
    check(said.stdout.splitlines()[0].split()[-3:] == ['differs', 'control', 'bound'], said.stdout)
    check(not document['unsteady'] and 'at other addresses and with 2 threads: the same bytes' in said.stdout, said.stdout)
    check(document['gradient_rules'] >= 8 and 'gradient rules held against finite differences' in said.stdout, document)


@case
def eight_bit():
    seen, _ = holds('eight', 'adamw8bit', use('amp'), use('adamw8bit', lr=1e-3, min_size=1), words=quick)
    check(seen['adamw8bit']['against'] == 'adamw', seen)
    check(seen['adamw8bit']['gradients']['largest'] == 0 < seen['adamw8bit']['updates']['largest'] < 0.1, seen['adamw8bit'])
    check(1e-4 < seen['amp']['gradients']['largest'] < 0.1, seen['amp'])


@case
def adapter():
    """It begins as the model, of weights in few bits too: beside it these are held, as nothing else of the model is trained."""
    seen, _ = holds('adapter', 'lora', use('quantize-nf4'), use('lora', rank=4), adamw, words=quick)
    check(seen['lora']['against'] == 'start' and seen['lora']['loss']['largest'] < 1e-6, seen)
    check(seen['quantize-nf4']['verdict'] == 'holds' and seen['quantize-nf4']['gradients']['bound'] > seen['quantize-nf4']['gradients']['largest'] > 1e-2, seen)
    check(seen['adamw']['verdict'] == 'not held', seen)


@case
def head_of_a_classifier():
    """It trains beside an adapter: in the arm without the adapter no quantizer takes it either."""
    roberta = from_config('roberta', vocab_size=256, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24, max_position_embeddings=34,
                          type_vocab_size=1, pad_token_id=1)[:-2] + ', task = "sequence-classification", labels = 2 }'
    pathlib.Path('rows.jsonl').write_text(''.join(json.dumps(dict(text=f'a line {i}', label=i % 2)) + '\n' for i in range(20)))
    path = recipe('head.lua', roberta, 'data.jsonl { files = { "rows.jsonl" }, tokenizer = "bytes", validation = 0.2 }', use('quantize-nf4'), use('lora', rank=2), adamw,
                  batch=2, length=16, steps=3)
    said = run('certify', path, *quick)
    check('BREACH' not in said.stdout and 'start' in said.stdout, said.stdout)


# ---- Breaches, each beside what differs in nothing but that --------------------------------------------------------------------------------
@cases({
    'twice': (use('adds-twice'), None, ['breach_add', 'its op is not what its reference computes']),
    'dropped': (use('drops-gradient'), use('copies'), ['the gradient of ']),
    'rounded': (use('rounds-activations'), use('copies'), ['the loss of step 1 is ']),
    'elsewhere': (use('starts-elsewhere'), use('starts-elsewhere', begin=1), ['the loss before the first update is ']),
})
def breaks_its_word(name, what):
    wrong, right, says = what
    own = wrong.split('"')[1]
    breach(name, own, wrong, adamw, says=[f"'{own}' does not do what it declares", "plugin 'breaches'", f'{own} ({name}.lua:', *says])
    if right:
        holds(f'{name}-right', right.split('"')[1], right, adamw, words=quick)


@case
def decay():
    options = dict(lr=1e-3, weight_decay=0.1)
    says = "'decays-wrongly' does not do what it declares", 'the update of ', 'rounding by '
    seen, _ = breach('decay', 'decays-wrongly', use('decays-wrongly', **options), words=quick, says=says)
    check(seen['decays-wrongly']['gradients']['largest'] == 0, seen)
    holds('decay-right', 'decays-wrongly', use('decays-wrongly', factor=1, **options), words=quick)


# ---- Gradient rules, by the run's own nodes --------------------------------------------------------------------------------------------------
@cases({'factor': "input 1 ('b'): the gradient rule says", 'swapped': 'the gradient rule says', 'forward': "it hands out the numbers of input 'a'"})
def gradient_rule(op, says):
    seen, _ = breach(op, 'gate', use('gate', op=f'gate_{op}'), adamw,
                     says=[says, f"plugin 'wrong-gradients': the gradient rule of op 'gate_{op}'", 'finite differences of the reference say'])
    check('its gradient is not that of its op' in seen['gate']['sentence'], seen)


@case
def gradient_by_a_wrong_kernel():
    """Backward is nobody's node in particular: the kernel's plugin is named."""
    said, _, _ = certify('kernel', use('gate', op='gate_kernel'), adamw, code=4)
    for text in ("plugin 'wrong-gradients'", "the reference of op 'gate_kernel_back' says", 'times its bound'):
        check(text in said.stderr, f'no {text!r} in {said.stderr}')


@case
def address():
    seen, document = breach('address', 'gate', use('gate', op='gate_address'), adamw, words=quick)
    check('leaves other bytes at other addresses' in document['unsteady'] and "gate_address.cpu' of plugin 'wrong-gradients'" in document['unsteady'], document)
    check('it computes other numbers in another run' in seen['gate']['sentence'], seen)


@case
def right_gate():
    holds('gates-right', 'gate', use('gate', op='gate_right'), adamw)


@case
def padding():
    """Its row gets no gradient by definition, which no finite difference sees."""
    said, _, document = certify('padding', adamw, of=from_config('llama', vocab_size=9, pad_token_id=3, max_position_embeddings=32, hidden_size=16, intermediate_size=24,
                                                                 num_hidden_layers=1, num_attention_heads=2))
    check(not document['fault'] and "gradient rule of 'embedding': not held: by its attribute 'padding'" in said.stdout, said.stdout)


# ---- A dequantizer that is 2 % off in one block of 64: in kernel and reference alike, or in the kernel alone ----------------------------------
@case
def format_in_kernel_and_reference():
    seen, _ = breach('block', 'wrong-format', use('wrong-format'), use('lora', rank=2), adamw, says=[
        "'wrong-format' does not do what it declares", "format 'wrong8' does not keep what its manifest promises", 'block 7 of 64 numbers', '% is promised'])
    check(seen['wrong-format']['gradients']['largest'] < seen['wrong-format']['gradients']['bound'], seen)


@case
def format_in_the_kernel_alone():
    said, _, _ = certify('block-alone', use('wrong-format', alone=True), use('lora', rank=2), adamw, code=4)
    check('the reference of op' in said.stderr, said.stderr)


@case
def right_format():
    _, document = holds('block-right', 'wrong-format', use('wrong-format', factor=1.0), use('lora', rank=2), adamw)
    check(document['kept_promises'] > 4, document)


# ---- What cannot be held -----------------------------------------------------------------------------------------------------------------------
@case
def tokens():
    _, seen, _ = certify('tokens', use('accumulate', tokens=48), adamw, words=quick)
    check(seen['accumulate']['against'] == 'references' and seen['accumulate']['verdict'] == 'not held', seen)


def none():
    return recipe('none.lua', model, 'data.random {}', batch=2, length=16, steps=2)


@case
def nothing_to_hold():
    said = refused(none(), command='certify')
    check('update' in said or 'no strategy' in said, said)


# ---- A comparison's verdict is held against the same declarations ------------------------------------------------------------------------------
@case
def comparison():
    fast = dict(lr=1e-2, weight_decay=0.1)
    pathlib.Path('arms.lua').write_text(f"""return compare {{ model = {model}, data = data.random {{}}, batch = 2, length = 16, steps = 4, turns = 1,
  variants = {{
    plain = {{ {use('adamw', **fast)} }},
    rounded = {{ {use('rounds-activations')}, {use('adamw', **fast)} }},
    copied = {{ {use('copies')}, {use('adamw', **fast)} }},
    halves = {{ batch = 1, {use('accumulate', steps=2)}, {use('adamw', **fast)} }},
    wild = {{ {use('decays-wrongly', factor=300, **fast)} }},
    other = {{ {use('decays-wrongly', lr=1e-2, weight_decay=0.2, factor=300)} }},
  }} }}
""")
    said = run('compare', 'arms.lua', '--out', 'arms', *breaches)
    arms = {x['name']: x for x in json.loads(pathlib.Path('arms/compare.json').read_text())['arms']}
    check({k: bool(x['breach']) for k, x in arms.items()} == dict(plain=False, rounded=True, copied=False, halves=False, wild=True, other=False),
          {k: (x['verdict'], x['breach']) for k, x in arms.items()})
    check("'rounds-activations' (arms.lua:4), plugin 'breaches', declares the same bytes" in arms['rounded']['breach'], arms['rounded'])
    check("declares to be 'adamw'" in arms['wild']['breach'] and arms['wild']['sentence'].endswith('; BREACH: ' + arms['wild']['breach']), arms['wild'])
    check(arms['copied']['verdict'] == 'identical' and arms['halves']['verdict'] == 'rounding', arms)
    check(said.stdout.count('BREACH: ') == 2, said.stdout)


# ---- Where it writes ---------------------------------------------------------------------------------------------------------------------------
def of_recompute(name):
    return recipes(model, 'data.random {}', **sizes)(name, use('recompute'), adamw)


@case
def nothing_is_left():
    os.mkdir('scratch')
    run('certify', of_recompute('left'), *quick, TMPDIR=str(pathlib.Path('scratch').resolve()))
    check(not list(pathlib.Path('scratch').iterdir()), 'certify has left a temporary folder')


@case
def all_is_kept():
    """Where that is wanted."""
    path = of_recompute('kept')
    run('certify', path, *quick, '--out', 'kept')
    check(len(list(pathlib.Path('kept').rglob('*.safetensors'))) == 6, sorted(pathlib.Path('kept').rglob('*')))
    refused(path, 'kept', command='certify', flags=['--out', 'kept'])


@case
def killed():
    """What a killed command has left goes with the next one, whatever that comes to."""
    os.mkdir('temporary')
    temporary = str(pathlib.Path('temporary').resolve())
    process = start('certify', recipes(model, 'data.random {}', **sizes)('killed', *STACK), env={**os.environ, 'TMPDIR': temporary})
    there = until(lambda: os.listdir('temporary'), process)
    process.send_signal(signal.SIGKILL)
    ended = end_of(process)
    require(there and ended.returncode == -signal.SIGKILL, f'the kill has not hit: {ended}')
    check(len(os.listdir('temporary')) == 1, f'a killed certify leaves {os.listdir("temporary")}')
    run('certify', none(), code=2, TMPDIR=temporary)
    check(not os.listdir('temporary'), f'the next certify leaves {os.listdir("temporary")}')


finish(turns=2)
