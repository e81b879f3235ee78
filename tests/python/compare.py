#!/usr/bin/env python3
"""Recipes side by side: verdicts of which the truth is known, runs that are killed on the way, conditions, and what is refused."""
import json
import math
import os
import pathlib
import random
import signal
import subprocess
import time

from galley_test import check, every, finish, fresh_folder, lua, program, run, source

fresh_folder()
text = pathlib.Path('text.txt')
text.write_text((source / 'README.md').read_text()[:12000])
shared = f'''
  model = model {{ family = "gpt2", config = {{ vocab_size = 256, n_positions = 32, n_embd = 32, n_layer = 2, n_head = 4, resid_pdrop = 0.1, embd_pdrop = 0.0, attn_pdrop = 0.0 }} }},
  data = data.text {{ files = {{ {lua(text)} }}, tokenizer = "bytes", validation = 0.2 }}, batch = 2, length = 32, validate = {{ every = 6 }},
'''


def compares(name, variants, steps=12, more=''):
    path = pathlib.Path(f'{name}.lua')
    path.write_text(f'return compare {{{shared} steps = {steps}, {more} variants = {{ {variants} }} }}\n')
    return path


def compare(recipe, out, *words, code=0):
    r = run('compare', recipe, '--out', out, *words, code=code)
    return r, json.loads((pathlib.Path(out) / 'compare.json').read_text()) if code in (0, 1) else None


def timeless(document):
    """All of compare.json but times and what the system says of memory."""
    return json.loads(json.dumps(document), object_hook=lambda x: {k: v for k, v in x.items() if k not in ('seconds', 'ratio', 'resident')})


# ---- Verdicts of which the truth is known
adamw = 'use "adamw" { lr = 1e-3 }'
known = compares('known', f'''
  plain = {{ {adamw} }},
  recomputed = {{ use "recompute" {{}}, {adamw} }},
  halves = {{ batch = 1, use "accumulate" {{ steps = 2 }}, {adamw} }},
  worse = {{ use "adamw" {{ lr = 1e-7 }} }}''')
said, all_seeds = compare(known, 'known', '--expect', 'recomputed: identical', '--expect', 'halves: rounding', '--expect', 'recomputed: memory <= 1 plain')
arms = {arm['name']: arm for arm in all_seeds['arms']}
check([a['name'] for a in all_seeds['arms']][0] == 'plain' and arms['plain']['verdict'] == 'baseline', f'the baseline is {all_seeds["arms"][0]["name"]}')
check(arms['recomputed']['verdict'] == 'identical' and arms['recomputed']['first_step'] == 0, arms['recomputed']['sentence'])
check(arms['halves']['verdict'] == 'rounding' and 0 < arms['halves']['largest_loss_difference'] < 1e-4, arms['halves']['sentence'])
check(arms['worse']['verdict'] == 'worse' and arms['worse']['validation_difference']['low'] > 0, arms['worse']['sentence'])
check('worse: worse by ' in said.stdout and '  by seed: 1: ' in said.stdout, said.stdout)
check(all_seeds['differ'] == ['batch'] and 'arms differ in batch' in said.stdout, f'beside strategies differ {all_seeds["differ"]}')
check(arms['recomputed']['planned'] < arms['plain']['planned'], 'recomputation saves nothing')
check(every(run['steps'] == 12 and len(run['validation']) == 2 for arm in arms.values() for run in arm['runs']), 'runs lack steps or validations')
check(len({run['loss'] for run in arms['plain']['runs']}) == 5, 'seeds train the same')

# The difference of losses is that of the runs, and its interval Student's.
differences = [a['validation'][-1][1] - b['validation'][-1][1] for a, b in zip(arms['worse']['runs'], arms['plain']['runs'])]
mean = sum(differences) / 5
half = 2.7764451 * (sum((d - mean) ** 2 for d in differences) / 4 / 5) ** 0.5
seen = arms['worse']['validation_difference']
check(arms['worse']['differences'] == differences and arms['worse']['measure'] == 'validation', f"{arms['worse']['differences']}, not {differences}")
check(abs(seen['mean'] - mean) < 1e-12 and abs(seen['high'] - mean - half) < 1e-6 * half, f'interval {seen}, not {mean} ± {half}')

# The margin is a share of what training has gained: from the loss of the first step to that of the last validation.
first = [json.loads((pathlib.Path('known') / r['directory'] / 'metrics.jsonl').read_text().splitlines()[0])['loss'] for r in arms['plain']['runs']]
gained = sum(a - r['validation'][-1][1] for a, r in zip(first, arms['plain']['runs'])) / 5
check(abs(all_seeds['margin']['gained'] - gained) < 1e-12 and all_seeds['margin']['share'] == 0.02 and abs(all_seeds['margin']['value'] - 0.02 * gained) < 1e-12, f"{all_seeds['margin']}, not of {gained}")
wide, _ = compare(known, 'known', '--margin', '5', '--expect', 'worse: same')
check('worse: the same within ' in wide.stdout and 'the margin is 5.0' in wide.stdout, wide.stdout)

# All seeds hold out the same documents, whatever they train on first; another seed of the data only where that is asked for.
lone = {path: f'{path.stem} is a text of its own. ' * 20 for path in (pathlib.Path(f'doc-{i}.txt') for i in range(12))}
for path, words in lone.items():
    path.write_text(words)
docs = shared.replace(lua(text), ', '.join(lua(p) for p in lone)).replace('validation = 0.2', 'validation = 0.3')
for entry, one in (('', True), ('resplit = true,', False)):
    held = pathlib.Path('held.lua')
    held.write_text(f'return compare {{{docs} steps = 1, {entry} variants = {{ plain = {{ {adamw} }}, other = {{ seed = 9, {adamw} }} }} }}\n')
    facts = {run('data', held, '--validation', '--rows', '3', '--json', '--set', f'variant={variant}', '--set', f'seed={seed}').stdout
             for variant, seed in (('plain', 1), ('plain', 2), ('plain', 3), ('other', 1))}
    check((len(facts) == 1) == one, f'{entry}: {facts}')

# An arm is an ordinary run, and the same one as `galley train` makes.
run('train', known, '--out', 'alone', '--set', 'variant=halves', '--set', 'seed=3')
lines = [[{k: v for k, v in json.loads(x).items() if k != 'seconds'} for x in (pathlib.Path(d) / 'metrics.jsonl').read_text().splitlines()]
         for d in ('alone', 'known/arms/halves/seed-3')]
check(lines[0] == lines[1], 'an arm in turns is not what the recipe alone trains')

# ---- Conditions
said, _ = compare(known, 'known', '--expect', 'worse: same', code=1)
check("--expect 'worse: same' does not hold: worse by" in said.stderr, said.stderr)
said, _ = compare(known, 'known', '--expect', 'worse: better', code=1)
said, _ = compare(known, 'known', '--expect', 'worse: worse')
said, _ = compare(known, 'known', '--expect', 'recomputed: memory <= 0.01 plain', code=1)
check('memory is ' in said.stderr, said.stderr)
said, _ = compare(known, 'known', '--expect', 'worse: loss >= 1 plain', '--expect', 'halves: seconds >= 0')
for wrong, words in (('lean: same', "there is no arm 'lean'"), ('worse', 'not a condition'), ('worse: speed <= 1', 'not a condition'), ('worse: loss < 1', 'not a condition')):
    said, _ = compare(known, 'known', '--expect', wrong, code=2)
    check(words in said.stderr, f'{wrong}: {said.stderr}')

# ---- Fewer than five seeds: numbers only. More seeds later: what is there is taken over.
few = compares('few', f'plain = {{ {adamw} }}, worse = {{ use "adamw" {{ lr = 1e-7 }} }}', more='seeds = { 7, 8 }, turns = 2,')
_, first = compare(few, 'few')
check(first['arms'][1]['verdict'] == 'numbers only' and 'a verdict takes 5 seeds' in first['arms'][1]['sentence'], first['arms'][1]['sentence'])
before = {p: p.stat().st_mtime_ns for p in pathlib.Path('few/arms').rglob('metrics.jsonl')}
_, more = compare(few, 'few', '--seeds', '7,8,9')
check(len(more['arms'][0]['runs']) == 3 and every(p.stat().st_mtime_ns == t for p, t in before.items()), 'runs that were there were trained again')

# ---- Killed on the way, and by the terminal: the same comparison
random.seed(5)
slow = compares('slow', f'plain = {{ {adamw} }}, eight = {{ use "adamw8bit" {{ lr = 1e-3, min_size = 64 }} }}', steps=60, more='seeds = { 7, 8 },')
whole = timeless(compare(slow, 'whole')[1])
kills = 0
while kills < 5:
    process = subprocess.Popen([program, 'compare', str(slow), '--out', 'killed', '--set', f'path1={text.resolve()}'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(random.uniform(0.1, 0.4))
    process.send_signal(signal.SIGKILL if kills % 3 else signal.SIGINT)
    code = process.wait()
    if code in (-signal.SIGKILL, -signal.SIGINT, 130):
        kills += 1
    if code == 0:
        break
_, killed = compare(slow, 'killed')
check(kills >= 2, f'only {kills} kills hit a comparison')
check(timeless(killed) == whole, 'a comparison that was killed says something else')

# ---- FP16, where a strategy scales the loss: the control's scale is another one, and there is a band
halves = f'halves = {{ batch = 1, use "accumulate" {{ steps = 2 }}, {adamw} }}'
half = compares('half', f'plain = {{ {adamw} }}, {halves}, less = {{ use "adamw" {{ lr = 9e-4 }} }}', steps=4, more='use "amp" { compute = "fp16" }, turns = 1,')
_, seen = compare(half, 'half')
arms = {arm['name']: arm for arm in seen['arms']}
check(arms['halves']['verdict'] == 'rounding' and arms['halves']['first_step'] > 0, f"fp16: {arms['halves']['sentence']}")
check(arms['less']['verdict'] in ('same', 'better', 'worse', 'undecided'), f"fp16: {arms['less']['sentence']}")
scales = [json.loads(pathlib.Path(f'half/arms/{arm}/seed-1/metrics.jsonl').read_text().splitlines()[0])['loss_scale'] for arm in ('plain', 'plain.control')]
check(scales[0] == scales[1] > 1, f'loss scales that amp reports: {scales}')

# ---- One seed after the other, until each arm is decided
sure = compares('sure', f'plain = {{ {adamw} }}, worse = {{ use "adamw" {{ lr = 1e-5 }} }}, same = {{ use "recompute" {{}}, {adamw} }}', steps=6,
                more='sequential = true, seeds = { 1, 2, 3, 4, 5, 6, 7, 8 }, turns = 1,')
said, seen = compare(sure, 'sure')
check(seen['seeds_used'] == 5 and seen['seeds'] == [1, 2, 3, 4, 5] and seen['sequential'], f'seeds {seen["seeds"]}')
check('5 of 8 seeds: each arm is decided' in said.stdout and 'valid at every look' in said.stdout, said.stdout)
check(not pathlib.Path('sure/arms/plain/seed-6').exists(), 'a seed was trained behind the last one that was needed')
# The interval of the e-value that its authors give, of an effect of 2 deviations, with five differences.
differences = [a['validation'][-1][1] - b['validation'][-1][1] for a, b in zip(*([arm['runs'] for arm in seen['arms'] if arm['name'] == n][0] for n in ('worse', 'plain')))]
mean = sum(differences) / 5
half_width = 5.3582 * (sum((d - mean) ** 2 for d in differences) / 4 / 5) ** 0.5
interval = [arm for arm in seen['arms'] if arm['name'] == 'worse'][0]['validation_difference']
check(abs(interval['high'] - mean - half_width) < 1e-3 * half_width, f'interval {interval}, not {mean} ± {half_width}')
unsure = compares('unsure', f'plain = {{ {adamw} }}, again = {{ seed = 100, {adamw} }}', steps=2, more='sequential = true, seeds = { 1, 2, 3, 4, 5, 6 }, turns = 1,')
said, seen = compare(unsure, 'unsure')
check(seen['seeds_used'] == 6 and seen['arms'][1]['verdict'] == 'undecided' and '6 of 6 seeds: no other is left' in said.stdout, said.stdout)
check(timeless(compare(unsure, 'unsure')[1]) == timeless(seen), 'a sequential comparison says something else when it is started again')

# ---- A budget of tokens: arms see as many, in steps of their own
counted = compares('counted', f'plain = {{ {adamw} }}, same = {{ use "recompute" {{}}, {adamw} }}, {halves}, wide = {{ batch = 5, {adamw} }}', more='budget = { tokens = 1000 }, turns = 2,')
counted.write_text(counted.read_text().replace(' steps = 12,', ''))
said, seen = compare(counted, 'counted')
arms = {arm['name']: arm for arm in seen['arms']}
check(seen['budget'] == {'tokens': 1000} and {n: a['steps'] for n, a in arms.items()} == {'plain': 16, 'same': 16, 'halves': 16, 'wide': 7}, said.stdout)
check(every(r['positions'] == (1120 if n == 'wide' else 1024) and r['steps'] == a['steps'] for n, a in arms.items() for r in a['runs']), f'{arms}')
check(every(r['validation'][-1][0] == a['steps'] for a in arms.values() for r in a['runs']), 'the last validation is not behind the last step')
check((arms['same']['verdict'], arms['halves']['verdict'], arms['wide']['verdict']) == ('identical', 'rounding', 'worse'), said.stdout)
check(arms['wide']['first_step'] is None and arms['wide']['largest_loss_difference'] is None and arms['same']['first_step'] == 0, f"{arms['wide']}")
check('budget: 1000 tokens: plain 16 steps' in said.stdout and seen['differ'] == ['batch', 'steps'], said.stdout)

# ---- A budget of seconds: steps are measured once, and stay; schedules end with them
timed = compares('timed', f'plain = {{ use "adamw" {{ lr = linear {{ peak = 1e-3 }} }} }}, wide = {{ batch = 8, {adamw} }}', more='budget = { seconds = 0.05 }, seeds = { 1, 2 }, turns = 2,')
timed.write_text(timed.read_text().replace(' steps = 12,', ''))
killed = False
for wait in (0.6, 0.9, 1.2, 0.4):
    process = subprocess.Popen([program, 'compare', str(timed), '--out', 'timed'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(wait)
    process.send_signal(signal.SIGKILL)
    killed = process.wait() != 0 or killed
_, seen = compare(timed, 'timed')
times = json.loads(pathlib.Path('timed/budget.json').read_text())['seconds_of_a_step']
for arm in seen['arms']:
    check(arm['steps'] == max(1, math.ceil(0.05 / times[arm['name']])), f"{arm['name']}: {arm['steps']} steps of {times[arm['name']]} s")
    check(every(r['steps'] == arm['steps'] for r in arm['runs']), 'runs have other steps')
check(killed and timeless(compare(timed, 'timed')[1]) == timeless(seen), 'a comparison in seconds says something else when it is started again')
rates = [json.loads(x).get('lr') for x in pathlib.Path('timed/arms/plain/seed-1/metrics.jsonl').read_text().splitlines()]
steps = seen['arms'][0]['steps']
rates = [x for x in rates if x is not None]
check(abs(rates[-1] - 1e-3 / steps) < 1e-9, f'the last of {steps} rates is {rates[-1]}')
check(pathlib.Path('timed/trial').is_dir() and not list(pathlib.Path('timed/trial').rglob('model/*.safetensors')), 'a trial run has left a model')

# ---- A variant with seeds of its own: the same recipe, other numbers
shifted = compares('shifted', f'plain = {{ {adamw} }}, again = {{ seed = 1, {adamw} }}', more='seeds = { 7, 8 }, turns = 2,')
_, drawn = compare(shifted, 'shifted')
losses = [[r['loss'] for r in a['runs']] for a in drawn['arms']]
check(losses[1][0] == losses[0][1] and losses[1][1] not in losses[0] and drawn['differ'] == ['seed'], f'seeds 7, 8 and 8, 9: {losses}')

# ---- Only what runs have left is judged: another run's metrics or model, lines that are gone, other numbers
plain, again = pathlib.Path('shifted/arms/plain/seed-7'), pathlib.Path('shifted/arms/again/seed-7')
metrics, model, result = plain / 'metrics.jsonl', plain / 'model/model.safetensors', plain / 'result.toml'
lines = metrics.read_text().splitlines(keepends=True)
changed = model.read_bytes()
for path, content, words in (
        (metrics, (again / 'metrics.jsonl').read_bytes(), 'metrics.jsonl is not what the run has written'),
        (model, (again / 'model/model.safetensors').read_bytes(), 'model.safetensors is not what the run has written'),
        (model, changed[:-1] + bytes([changed[-1] ^ 1]), 'model.safetensors is not what the run has written'),
        (metrics, ''.join(lines[:len(lines) // 2]).encode(), 'of the run\'s 12 steps'),
        (metrics, ''.join(lines[:3] + lines[4:]).encode(), 'step 5 stands where step 4 has to be'),
        (metrics, metrics.read_bytes().replace(b'"loss": 5.', b'"loss": 4.', 1), 'metrics.jsonl is not what the run has written'),
        (result, (again / 'result.toml').read_bytes(), 'result.toml is that of another run')):
    before = path.read_bytes()
    check(content != before, f'{path} is not changed')
    path.write_bytes(content)
    stale = pathlib.Path('shifted/compare.json').read_bytes()
    r = run('compare', shifted, '--out', 'shifted', code=1)
    check("arm 'plain', seed 7: " in r.stderr and words in r.stderr, f'{words}: {r.stderr}')
    check(pathlib.Path('shifted/compare.json').read_bytes() == stale and 'identical' not in r.stdout, f'{words}: judged all the same')
    path.write_bytes(before)
check(timeless(compare(shifted, 'shifted')[1]) == timeless(drawn), 'the runs as they were are judged otherwise')
# What a run that was killed at the very end lacks is made again from its state.
result.unlink()
check(timeless(compare(shifted, 'shifted')[1]) == timeless(drawn) and result.exists(), 'a result is not made again')

# ---- Several recipes
plain, lean = pathlib.Path('plain.lua'), pathlib.Path('lean.lua')
for path, strategies in ((plain, adamw), (lean, f'use "recompute" {{}}, {adamw}')):
    path.write_text(f'return recipe {{{shared} steps = 4, {strategies} }}\n')
r = run('compare', plain, lean, '--out', 'two', '--seeds', '1,2', '--turns', '2')
check('lean: identical to the byte' in r.stdout, r.stdout)

# ---- What is refused
for words, said in (
        ([plain], 'is one recipe, and there is nothing to compare it with'),
        ([plain, plain], "two arms are called 'plain'"),
        ([plain, known], 'is a comparison itself'),
        ([known, '--seeds', '1,1'], 'expected different whole numbers'),
        ([known, '--seeds', 'x'], 'expected different whole numbers'),
        ([known, '--margin', 'little'], "--margin 'little': expected nats of loss"),
        ([known, '--margin', '0'], "--margin '0': expected nats of loss"),
        ([known, '--set', 'split=3'], '--set split is what differs'),
        ([compares('margin', f'plain = {{ {adamw} }}, b = {{ {adamw} }}', more='margin = "-1%",')], "'margin'"),
        ([known, '--set', 'seed=3'], '--set seed is what differs'),
        ([compares('one', f'plain = {{ {adamw} }}')], 'a comparison has at least two variants, not 1'),
        ([compares('nameless', f'a = {{ {adamw} }}, b = {{ {adamw} }}')], 'say which variant the others are held against'),
        ([compares('based', f'a = {{ {adamw} }}, b = {{ {adamw} }}', more='baseline = "c",')], "there is no variant 'c'"),
        ([compares('stray', f'plain = {{ {adamw} }}, b = {{ {adamw} }}', more='sedes = { 1 },')], "did you mean 'seeds'"),
        ([compares('inner', f'plain = {{ {adamw} }}, b = {{ btach = 1, {adamw} }}')], "arm 'b'"),
        ([compares('wrong', f'plain = {{ {adamw} }}, b = {{ use "accumulate" {{ steps = 2 }}, use "update-in-backward" {{}}, use "sgd" {{ lr = 1 }} }}')], "arm 'b'"),
        ([compares('both', f'plain = {{ {adamw} }}, b = {{ {adamw} }}', more='budget = { tokens = 100 },')], "says both 'steps' and 'budget'"),
        ([compares('neither', f'plain = {{ {adamw} }}, b = {{ {adamw} }}', more='budget = { },')], 'a budget is either tokens or seconds'),
        ([compares('twice', f'plain = {{ {adamw} }}, b = {{ {adamw} }}', more='budget = { tokens = 1, seconds = 1 },')], 'a budget is either tokens or seconds'),
        ([compares('part', f'plain = {{ {adamw} }}, b = {{ {adamw} }}', more='budget = { tokens = 1.5 },')], "'budget.tokens'"),
        ([compares('negative', f'plain = {{ {adamw} }}, b = {{ {adamw} }}', more='budget = { seconds = 0 },')], "'budget.seconds'"),
        ([counted, '--set', 'budget=3'], '--set budget is what differs'),
        ([compares('unsaved', f'plain = {{ {adamw} }}, b = {{ save = {{ final = false }}, {adamw} }}')], 'needs the model that the last step leaves')):
    r = run('compare', *words, '--out', 'refused', code=2)
    check(said in r.stderr, f'{words}: {r.stderr}')
r = run('data', known, code=2)
check("this recipe compares 'plain', 'halves', 'recomputed', 'worse'" in r.stderr, r.stderr)
r = run('plan', counted, '--set', 'variant=wide', code=2)
check("follows from the comparison's budget" in r.stderr and '--set budget=100' in r.stderr, r.stderr)
check(' 7 steps' in run('plan', counted, '--set', 'variant=wide', '--set', 'budget=7').stdout, 'a plan of a variant has other steps')
own = compares('own', f'plain = {{ {adamw} }}, b = {{ steps = 3, {adamw} }}', more='budget = { tokens = 100 },')
own.write_text(own.read_text().replace(' steps = 12,', ''))
r = run('compare', own, '--out', 'refused', code=2)
check("a variant says 'steps'" in r.stderr, r.stderr)
other = compares('other', f'plain = {{ {adamw} }}, worse = {{ {adamw} }}', more='seeds = { 7, 8 },')
r = run('compare', other, '--out', 'few', code=2)
check('this is the run of another recipe' in r.stderr, r.stderr)

# Plans of all variants, with the reason of one that cannot work.
r = run('plan', 'wrong.lua')
rows = r.stdout.splitlines()
check(rows[1].startswith('plain ') and 'MiB' in rows[1] and rows[2].startswith('b ') and 'refused: gradients are to be used' in rows[2], r.stdout)

# An arm that fails names itself, and the others' runs stay.
failing = compares('failing', f'plain = {{ {adamw} }}, wild = {{ use "sgd" {{ lr = 1e30 }} }}', more='seeds = { 1 },')
r = run('compare', failing, '--out', 'failing', code=1)
check("arm 'wild', seed 1: " in r.stderr and '.log' in r.stderr, r.stderr)
finish()
