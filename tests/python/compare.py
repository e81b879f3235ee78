#!/usr/bin/env python3
"""Recipes side by side: verdicts of which the truth is known, runs that are killed on the way, conditions, and what is refused."""
import json
import os
import pathlib
import random
import signal
import subprocess
import time

from galley_test import check, finish, fresh_folder, lua, program, run, source

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
check(arms['worse']['verdict'] == 'different' and arms['worse']['validation_difference']['low'] > 0, arms['worse']['sentence'])
check(all_seeds['differ'] == ['batch'] and 'arms differ in batch' in said.stdout, f'beside strategies differ {all_seeds["differ"]}')
check(arms['recomputed']['planned'] < arms['plain']['planned'], 'recomputation saves nothing')
check(all(run['steps'] == 12 and len(run['validation']) == 2 for arm in arms.values() for run in arm['runs']), 'runs lack steps or validations')
check(len({run['loss'] for run in arms['plain']['runs']}) == 5, 'seeds train the same')

# The difference of losses is that of the runs, and its interval Student's.
differences = [a['validation'][-1][1] - b['validation'][-1][1] for a, b in zip(arms['worse']['runs'], arms['plain']['runs'])]
mean = sum(differences) / 5
half = 2.7764451 * (sum((d - mean) ** 2 for d in differences) / 4 / 5) ** 0.5
seen = arms['worse']['validation_difference']
check(abs(seen['mean'] - mean) < 1e-12 and abs(seen['high'] - mean - half) < 1e-6 * half, f'interval {seen}, not {mean} ± {half}')

# An arm is an ordinary run, and the same one as `galley train` makes.
run('train', known, '--out', 'alone', '--set', 'variant=halves', '--set', 'seed=3')
lines = [[{k: v for k, v in json.loads(x).items() if k != 'seconds'} for x in (pathlib.Path(d) / 'metrics.jsonl').read_text().splitlines()]
         for d in ('alone', 'known/arms/halves/seed-3')]
check(lines[0] == lines[1], 'an arm in turns is not what the recipe alone trains')

# ---- Conditions
said, _ = compare(known, 'known', '--expect', 'worse: same', code=1)
check("--expect 'worse: same' does not hold: different" in said.stderr, said.stderr)
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
check(len(more['arms'][0]['runs']) == 3 and all(p.stat().st_mtime_ns == t for p, t in before.items()), 'runs that were there were trained again')

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

# ---- A variant with seeds of its own: the same recipe, other numbers
shifted = compares('shifted', f'plain = {{ {adamw} }}, again = {{ seed = 1, {adamw} }}', more='seeds = { 7, 8 }, turns = 2,')
_, drawn = compare(shifted, 'shifted')
losses = [[r['loss'] for r in a['runs']] for a in drawn['arms']]
check(losses[1][0] == losses[0][1] and losses[1][1] not in losses[0] and drawn['differ'] == ['seed'], f'seeds 7, 8 and 8, 9: {losses}')

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
        ([known, '--set', 'seed=3'], '--set seed is what differs'),
        ([compares('one', f'plain = {{ {adamw} }}')], 'a comparison has at least two variants, not 1'),
        ([compares('nameless', f'a = {{ {adamw} }}, b = {{ {adamw} }}')], 'say which variant the others are held against'),
        ([compares('based', f'a = {{ {adamw} }}, b = {{ {adamw} }}', more='baseline = "c",')], "there is no variant 'c'"),
        ([compares('stray', f'plain = {{ {adamw} }}, b = {{ {adamw} }}', more='sedes = { 1 },')], "did you mean 'seeds'"),
        ([compares('inner', f'plain = {{ {adamw} }}, b = {{ btach = 1, {adamw} }}')], "arm 'b'"),
        ([compares('wrong', f'plain = {{ {adamw} }}, b = {{ use "accumulate" {{ steps = 2 }}, use "update-in-backward" {{}}, use "sgd" {{ lr = 1 }} }}')], "arm 'b'"),
        ([compares('unsaved', f'plain = {{ {adamw} }}, b = {{ save = {{ final = false }}, {adamw} }}')], 'needs the model that the last step leaves')):
    r = run('compare', *words, '--out', 'refused', code=2)
    check(said in r.stderr, f'{words}: {r.stderr}')
r = run('data', known, code=2)
check("this recipe compares 'plain', 'halves', 'recomputed', 'worse'" in r.stderr, r.stderr)
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
