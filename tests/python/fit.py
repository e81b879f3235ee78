#!/usr/bin/env python3
"""What a recipe offers by one_of: every combination is planned as `galley plan` plans it, the table holds what no other beats, and the recipe that is written is the one that was chosen."""
import itertools
import json
import pathlib
import re

from galley_test import check, finish, fresh_folder, run

fresh_folder()
model = 'model { family = "llama", config = { vocab_size = 512, hidden_size = 64, intermediate_size = 128, num_hidden_layers = 3, num_attention_heads = 4, tie_word_embeddings = true } }'


def offers(name, entries, more=''):
    path = pathlib.Path(f'{name}.lua')
    path.write_text(f'{more}return recipe {{\n  model = {model},\n  data = data.random {{}}, steps = 2,\n{entries}}}\n')
    return path


every = offers('every', '''  batch = one_of { 1, 2, 4 },
  length = one_of { 32, 64 },
  one_of { false, use "recompute" {} },  -- a comment with { and one_of
  one_of { use "lora" { rank = 4, targets = { "q_proj", "v_proj" } }, false },
  one_of {
    use "adamw" { lr = 1e-3 },
    use "adamw8bit" { lr = 1e-3, min_size = 64 },
  },
''')
lines = [4, 5, 6, 7, 8]
combinations = list(itertools.product(range(1, 4), range(1, 3), range(1, 3), range(1, 3), range(1, 3)))
exact = {'bits': 0, 'rounding': 1, 'approximate': 2}
plans = {}
for one in combinations:
    planned = json.loads(run('plan', every, '--json', '--set', 'choices=' + ','.join(f'{line}:{i}' for line, i in zip(lines, one))).stdout)
    classes = planned['classes']['host']
    plans[one] = classes['planned'], planned['step']['positions'] / planned['step']['seconds_at_best']


def text(size):
    for unit, scale in (('GiB', 2**30), ('MiB', 2**20), ('KiB', 2**10)):
        if size >= scale:
            return f'{size / scale:.2f} {unit}'


said = run('fit', every, '--memory', '3MiB', '--write', 'chosen.lua').stdout
rows = [(x[1], *re.split(r'  +', x[2:].strip())) for x in said.splitlines()[1:] if re.match(r' [>+-] ', x)]
check(f'{len(combinations)} combinations' in said, said)
check(said.splitlines()[0].split()[3:] == ['batch', 'length', 'recompute', 'lora', 'adamw/adamw8bit'], said.splitlines()[0])
# A row of the table, and what it stands for.
values = ({'1': 1, '2': 2, '4': 3}, {'32': 1, '64': 2}, {'no': 1, 'yes': 2}, {'yes': 1, 'no': 2}, {'adamw': 1, 'adamw8bit': 2})
front = {}
for row in rows:
    mark, memory = row[:2]
    one = tuple(v[x] for v, x in zip(values, row[4:]))
    front[one] = mark, row[3]
    size, speed = plans[one]
    check(memory == text(size) and abs(float(row[2]) - speed) <= 1e-3 * speed, f'{row}: planned {size}, {speed}')
    check((mark == '-') == (size > 3 * 2**20), f'{row}: it needs {size}')
best = max((x for x in plans if plans[x][0] <= 3 * 2**20), key=lambda x: plans[x][1])
check([one for one, (mark, _) in front.items() if mark == '>'] == [best] or plans[best][1] == plans[[o for o, (m, _) in front.items() if m == '>'][0]][1], f'{best} is the fastest')
exactness = {one: 2 if one[4] == 2 else 1 for one in plans}  # of adamw and adamw8bit; recompute is exact, and lora to rounding
for one, (mark, how) in front.items():
    check(exact[how] == exactness[one], f'{one} is {how}')
for one, (size, speed) in plans.items():
    beaten = any(plans[o][0] <= size and plans[o][1] >= speed * (1 - 1e-9) and exactness[o] <= exactness[one] for o in front)
    check(beaten, f'{one}, {size} bytes, {speed}: nothing in the table is as good')

# The recipe that is written plans to the same byte, and says so; it has no choice left, and trains.
chosen = [one for one, (mark, _) in front.items() if mark == '>'][0]
written = pathlib.Path('chosen.lua').read_text()
planned = json.loads(run('plan', 'chosen.lua', '--json').stdout)['classes']['host']['planned']
check(planned == plans[chosen][0] and 'one_of {' not in written and text(planned) + ' planned' in written.splitlines()[0], written[:300])
owners = sum(float(x) * dict(GiB=2**30, MiB=2**20, KiB=2**10, B=1)[u] for x, u in re.findall(r'([\d.]+) (GiB|MiB|KiB|B) of', written.splitlines()[1]))
check(abs(owners - planned) < 0.02 * planned, f'owners in the comment add up to {owners}, not {planned}')
run('train', 'chosen.lua', '--out', 'trained')

# Other commands take the first of each.
check(json.loads(run('plan', every, '--json').stdout)['classes']['host']['planned'] == plans[(1, 1, 1, 1, 1)][0], 'plan does not take the first')

# What is asked for may depend on what was chosen before.
depends = offers('depends', '''  batch = 1, length = 32, wide and use "lora" { rank = ranks },
  use "sgd" { lr = 1e-3 },
''', more='local wide = one_of { true, false }\nlocal ranks = wide and\n  one_of { 2, 4, 8 }\n')
said = run('fit', depends, '--memory', '1GiB').stdout
check('4 combinations' in said, said)

# Budgets of recomputation: what is planned keeps to each.
lean = offers('lean', '''  batch = one_of { 1, 4 },
  length = 64,
  one_of { use "recompute" { budget = "1MiB" }, use "recompute" { budget = "3700KiB" }, use "recompute" { budget = "4700KiB" } },
  use "adamw" { lr = 1e-3 },
''')
said = run('fit', lean, '--memory', '1GiB').stdout
check('6 combinations' in said and 'the plan takes at least' in said, said)
rows = [x for x in said.splitlines() if re.match(r' [>+-] ', x)]
check(rows and all(float(re.search(r'([\d.]+) MiB', x)[1]) * 1024 <= float(re.search(r'"(\d+)KiB"', x)[1]) for x in rows), said)

# Combinations that cannot work are counted, with the reason.
never = offers('never', '''  batch = 1, length = 32,
  one_of { false, use "update-in-backward" {} },
  use "clip" { norm = 1.0 },
  use "adamw" { lr = one_of_rates },
''', more='local one_of_rates =\n  one_of { 1e-3, 1e-4 }\n')
said = run('fit', never, '--memory', '1GiB').stdout
check('4 combinations' in said and '2 cannot work' in said and '  2: ' in said, said)

# Nothing fits: exit code 3, and no file.
r = run('fit', every, '--memory', '10KiB', '--write', 'none.lua', code=3)
check('nothing that every.lua offers fits 10.00 KiB' in r.stderr and not pathlib.Path('none.lua').exists(), r.stderr)

pathlib.Path('module.lua').write_text('return one_of { 1, 2 }\n')
for recipe, words, said in (
        (offers('none', '  batch = 1, length = 32, use "sgd" { lr = 1.0 },\n'), [], 'the recipe offers nothing to choose from'),
        (offers('line', '  batch = one_of { 1, 2 }, length = one_of { 16, 32 }, use "sgd" { lr = 1.0 },\n'), [], 'line.lua:4: two one_of in a line'),
        (offers('inner', '  batch = one_of { 1,\n one_of { 2, 4 } }, length = 32, use "sgd" { lr = 1.0 },\n'), [], 'a one_of within a one_of'),
        (offers('empty', '  batch = one_of {}, length = 32, use "sgd" { lr = 1.0 },\n'), [], 'one_of takes what there is to choose from'),
        (offers('text', '  batch = one_of(3), length = 32, use "sgd" { lr = 1.0 },\n'), [], 'one_of takes what there is to choose from'),
        (offers('elsewhere', '  batch = require "./module", length = 32, use "sgd" { lr = 1.0 },\n'), [], 'chooses in the recipe\'s own file'),
        (every, ['--set', 'choices=4:9'], 'one_of offers 3, and the choice is number 9'),
        (every, ['--set', 'choices=4'], 'expected LINE:NUMBER')):
    r = run('fit', recipe, '--memory', '1GiB', *words, code=2)
    check(said in r.stderr, f'{recipe}: {r.stderr}')
finish()
