#!/usr/bin/env python3
"""What a recipe offers by one_of: every combination is planned as `galley plan` plans it, what differs in kind stays in the table, the first that fits is chosen, and the recipe that is
written is the one that was chosen."""
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


def rows_of(said):
    return [(x[1], *re.split(r'  +', x[2:].strip())) for x in said.splitlines()[1:] if re.match(r' [>+-] ', x)]


def number(words):
    """Of "107.90 k" or "12"."""
    value, _, unit = words.partition(' ')
    return float(value) * {'': 1, 'k': 1e3, 'M': 1e6, 'G': 1e9}[unit]


said = run('fit', every, '--memory', '3MiB', '--write', 'chosen.lua').stdout
rows = rows_of(said)
check(f'{len(combinations)} combinations' in said, said)
check(said.splitlines()[0].split()[4:] == ['batch', 'length', 'recompute', 'lora', 'adamw/adamw8bit'], said.splitlines()[0])
# A row of the table, and what it stands for.
values = ({'1': 1, '2': 2, '4': 3}, {'32': 1, '64': 2}, {'no': 1, 'yes': 2}, {'yes': 1, 'no': 2}, {'adamw': 1, 'adamw8bit': 2})
front = {}
for row in rows:
    mark, memory = row[:2]
    one = tuple(v[x] for v, x in zip(values, row[4:]))
    front[one] = mark, row[3]
    size, speed = plans[one]
    check(memory == text(size) and abs(number(row[2]) - speed) <= 6e-3 * speed, f'{row}: planned {size}, {speed}')
    check((mark == '-') == (size > 3 * 2**20), f'{row}: it needs {size}')
kind = lambda one: (one[0], one[1], one[3], one[4])  # noqa: E731  recomputation changes no result
fitting = [x for x in plans if plans[x][0] <= 3 * 2**20]
wanted = min(kind(x) for x in fitting)
fastest = max(plans[x][1] for x in fitting if kind(x) == wanted)
best = min(x for x in fitting if kind(x) == wanted and plans[x][1] >= 0.99 * fastest)
check([one for one, (mark, _) in front.items() if mark == '>'] == [best], f'{best} is what is wanted first')
exactness = {one: 2 if one[4] == 2 else 1 for one in plans}  # of adamw and adamw8bit; recompute is exact, and lora to rounding
for one, (mark, how) in front.items():
    check(exact[how] == exactness[one], f'{one} is {how}')
for one, (size, speed) in plans.items():
    same = [o for o in front if kind(o) == kind(one)]
    check(any(plans[o][0] <= size for o in same), f'{one}, {size} bytes: nothing in the table computes the same and takes as little')
    check(size > 3 * 2**20 or any(plans[o][0] <= 3 * 2**20 and plans[o][1] >= speed * 0.99 for o in same), f'{one}, {speed}: nothing in the table that fits computes the same as fast')
whole = rows_of(run('fit', every, '--memory', '3MiB', '--all').stdout)
check(len(whole) == len(combinations) and set(rows) <= set(whole), f'--all prints {len(whole)} rows')

# The recipe that is written plans to the same byte, and says so; it has no choice left, and trains.
chosen = [one for one, (mark, _) in front.items() if mark == '>'][0]
written = pathlib.Path('chosen.lua').read_text()
planned = json.loads(run('plan', 'chosen.lua', '--json').stdout)['classes']['host']['planned']
check(planned == plans[chosen][0] and 'one_of {' not in written and text(planned) + ' planned' in written.splitlines()[1], written[:300])
owners = sum(float(x) * dict(GiB=2**30, MiB=2**20, KiB=2**10, B=1)[u] for x, u in re.findall(r'([\d.]+) (GiB|MiB|KiB|B) of', written.splitlines()[2]))
check(abs(owners - planned) < 0.02 * planned, f'owners in the comment add up to {owners}, not {planned}')
run('train', 'chosen.lua', '--out', 'trained')

# The order says what is wanted: the largest rank that fits, the first of two rates that take the same. What is no strategy leaves no trace.
asked = offers('asked', '''  batch = 1, length = 32,
  one_of { false, use "clip" { norm = 1.0 } },  -- a line that goes
  use "lora" { rank = ranks, targets = "all-linear" },
  use "adamw" { lr = rates },
''', more='-- How to call it.\n-- And more.\nlocal ranks =\n  one_of { 64, 16, 4 }\nlocal rates =\n  one_of { 3e-4, 1e-4 }\n')
sizes = {rank: json.loads(run('plan', asked, '--json', '--set', f'choices=4:{i}').stdout)['classes']['host']['planned'] for i, rank in enumerate((64, 16, 4), 1)}
for rank, limit in ((64, sizes[64]), (16, sizes[64] - 1), (4, sizes[16] - 1)):
    said = run('fit', asked, '--memory', limit, '--write', 'asked-chosen.lua').stdout
    mine = [x for x in rows_of(said) if x[0] == '>']
    check(len(mine) == 1 and mine[0][4:] == (str(rank), '3e-4', 'no'), f'{limit} bytes: {said}')
    check({x[4] for x in rows_of(said)} == {'64', '16', '4'} and len(rows_of(said)) == 12, f'what differs in kind is hidden: {said}')
    written = pathlib.Path('asked-chosen.lua').read_text()
    check('false' not in written and 'clip' not in written and 'a line that goes' not in written and 'How to call it' not in written, written)
    check(written.startswith('-- Chosen by galley fit from asked.lua, ') and f'local ranks =\n  {rank}\n' in written, written)
    check(json.loads(run('plan', 'asked-chosen.lua', '--json').stdout)['classes']['host']['planned'] == sizes[rank], written)

# Few bits only where they must be, all parameters only where they are wanted, each with its rate. An estimate counts what unpacking takes.
kinds = """local trains =
  one_of { ORDER }
local lr = trains == "adapter" and 2e-4 or 2e-5
return recipe {
  model = model { family = "llama", config = { vocab_size = 512, hidden_size = 256, intermediate_size = 512, num_hidden_layers = 3, num_attention_heads = 4, tie_word_embeddings = true } },
  data = data.random {}, steps = 2, batch = 1, length = 32,
  one_of { use "amp" { compute = "bf16" }, false },
  one_of { false, use "quantize-nf4" { double = true } },
  trains == "adapter" and use "lora" { rank = 4, targets = "all-linear" },
  one_of { use "adamw" { lr = lr }, use "adamw8bit" { lr = lr } },
}
"""
pathlib.Path('kinds.lua').write_text(kinds.replace('ORDER', '"adapter", "full"'))
for target in ([], ['--target', 'rtx4090', '--device', 'cuda']):
    rows = rows_of(run('fit', 'kinds.lua', '--memory', '1GiB', '--all', *target).stdout)
    check(rows[0][-4:] and len(rows) >= 12, f'{rows}')
    table = {(x[-4], x[-3], x[-2], x[-1]): (number(x[2]), float(x[4]) if x[4].startswith('+') else 0) for x in rows}
    for optimizer in ('adamw', 'adamw8bit'):
        plain, coded = (table['adapter', 'yes', few, optimizer] for few in ('no', 'yes'))
        check(coded[0] < plain[0] and 0 < plain[1] < 0.01 < 0.1 < coded[1], f'{target}: 4 bits {coded} beside {plain}')
    for limit, want in (('1GiB', ('adapter', 'yes', 'no', 'adamw')),):
        mine = [x for x in rows_of(run('fit', 'kinds.lua', '--memory', limit, *target).stdout) if x[0] == '>']
        check(len(mine) == 1 and mine[0][-4:] == want, f'{target}: {mine}, not {want}')
sizes = {(a, b): json.loads(run('plan', 'kinds.lua', '--json', '--set', f'choices=7:1,8:{b},10:{a}').stdout)['classes']['host']['planned'] for a in (1, 2) for b in (1, 2)}
said = run('fit', 'kinds.lua', '--memory', min(sizes[1, 1], sizes[2, 1]) - 1, '--write', 'few.lua').stdout
check([x[-4:-1] for x in rows_of(said) if x[0] == '>'] == [('adapter', 'yes', 'yes')] and 'quantize-nf4' in pathlib.Path('few.lua').read_text(), said)
for order, rate in (('"adapter", "full"', 2e-4), ('"full", "adapter"', 2e-5)):
    pathlib.Path('rates.lua').write_text(kinds.replace('ORDER', order))
    run('fit', 'rates.lua', '--memory', '1GiB', '--write', 'rates-chosen.lua')
    run('train', 'rates-chosen.lua', '--out', f'rates-{rate}')
    lrs = {json.loads(x)['lr'] for x in pathlib.Path(f'rates-{rate}/metrics.jsonl').read_text().splitlines()}
    check(lrs == {rate}, f'{order}: trained with {lrs}')

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
