#!/usr/bin/env python3
"""What a recipe offers by one_of: every combination is planned as `galley plan` plans it, what differs in kind stays in the table, the first that
fits is chosen, and the recipe that is written is the one that was chosen."""
import functools
import itertools
import pathlib
import re

from galley_test import case, cases, check, every, finish, fresh_folder, from_config, plan, require, run, source
from steps_kit import refused, trained

fresh_folder()


def llama(**sizes):
    return from_config('llama', vocab_size=512, num_hidden_layers=3, num_attention_heads=4, tie_word_embeddings=True, **sizes)


def offers(name, entries, more=''):
    path = pathlib.Path(f'{name}.lua')
    path.write_text(f'{more}return recipe {{\n  model = {llama(hidden_size=64, intermediate_size=128)},\n  data = data.random {{}}, steps = 2,\n{entries}}}\n')
    return path


def host_of(path, *flags):
    return plan(path, *flags)['classes']['host']['planned']


def text(size):
    for unit, scale in (('GiB', 2**30), ('MiB', 2**20), ('KiB', 2**10)):
        if size >= scale:
            return f'{size / scale:.2f} {unit}'


def rows_of(said):
    """Of the table: the mark, and what comes after it."""
    return [(x[1], *re.split(r'  +', x[2:].strip())) for x in said.splitlines()[1:] if re.match(r' [>+-] ', x)]


def chosen_of(rows):
    return [x for x in rows if x[0] == '>']


def number(words):
    """Of "107.90 k" or "12"."""
    value, _, unit = words.partition(' ')
    return float(value) * {'': 1, 'k': 1e3, 'M': 1e6, 'G': 1e9}[unit]


# ---- Every combination -------------------------------------------------------------------------------------------------------------------
everything = offers('every', '''  batch = one_of { 1, 2, 4 },
  length = one_of { 32, 64 },
  one_of { false, use "recompute" {} },  -- a comment with { and one_of
  one_of { use "lora" { rank = 4, targets = { "q_proj", "v_proj" } }, false },
  one_of {
    use "adamw" { lr = 1e-3 },
    use "adamw8bit" { lr = 1e-3, min_size = 64 },
  },
''')
combinations = list(itertools.product(range(1, 4), range(1, 3), range(1, 3), range(1, 3), range(1, 3)))
LIMIT = 3 * 2**20


@functools.cache
def plans():
    """{combination: (bytes, positions a second)}, by `galley plan`."""
    out = {}
    for one in combinations:
        made = plan(everything, '--choices', ','.join(f'{line}:{i}' for line, i in zip((4, 5, 6, 7, 8), one, strict=True)))
        out[one] = made['classes']['host']['planned'], made['step']['positions'] / made['step']['seconds_at_best']
    return out


@functools.cache
def fitted():
    """What `galley fit` says, having written chosen.lua; and {combination: (mark, exactness, its row)}."""
    said = run('fit', everything, '--memory', '3MiB', '--write', 'chosen.lua').stdout
    values = ({'1': 1, '2': 2, '4': 3}, {'32': 1, '64': 2}, {'no': 1, 'yes': 2}, {'yes': 1, 'no': 2}, {'adamw': 1, 'adamw8bit': 2})
    return said, {tuple(v[x] for v, x in zip(values, row[4:], strict=True)): (row[0], row[3], row) for row in rows_of(said)}


def kind(one):
    """Recomputation changes no result."""
    return one[0], one[1], one[3], one[4]


def fits(one):
    return plans()[one][0] <= LIMIT


@case
def table():
    """A row says what the plan does."""
    said, front = fitted()
    check(f'{len(combinations)} combinations' in said, said)
    check(said.splitlines()[0].split()[4:] == ['batch', 'length', 'recompute', 'lora', 'adamw/adamw8bit'], said.splitlines()[0])
    require(front, f'the table is empty: {said}')
    for one, (mark, exactness, row) in front.items():
        size, speed = plans()[one]
        check(row[1] == text(size) and abs(number(row[2]) - speed) <= 6e-3 * speed, f'{row}: planned {size}, {speed}')
        check((mark == '-') == (size > LIMIT), f'{row}: it needs {size}')
        # Recompute is exact, LoRA and AdamW to rounding, states in 8 bit are approximate.
        check(exactness == ('approximate' if one[4] == 2 else 'rounding'), f'{one} is {exactness}')
    whole = rows_of(run('fit', everything, '--memory', '3MiB', '--all').stdout)
    check(len(whole) == len(combinations) and {row for _, _, row in front.values()} <= set(whole), f'--all prints {len(whole)} rows')


@case
def first_that_fits():
    _, front = fitted()
    fitting = [x for x in plans() if fits(x)]
    wanted = min(kind(x) for x in fitting)
    fastest = max(plans()[x][1] for x in fitting if kind(x) == wanted)
    best = min(x for x in fitting if kind(x) == wanted and plans()[x][1] >= 0.99 * fastest)
    check([one for one, (mark, *_) in front.items() if mark == '>'] == [best], f'{best} is what is wanted first')


@case
def nothing_better_is_hidden():
    _, front = fitted()
    for one, (size, speed) in plans().items():
        same = [o for o in front if kind(o) == kind(one)]
        check(any(plans()[o][0] <= size for o in same), f'{one}, {size} bytes: nothing in the table computes the same and takes as little')
        check(size > LIMIT or any(fits(o) and plans()[o][1] >= speed * 0.99 for o in same), f'{one}, {speed}: nothing in the table that fits computes the same as fast')


@case
def written():
    """The recipe plans to the same byte, and says so; it has no choice left, and trains."""
    _, front = fitted()
    chosen, = (one for one, (mark, *_) in front.items() if mark == '>')
    lines = pathlib.Path('chosen.lua').read_text()
    size = host_of('chosen.lua')
    check(size == plans()[chosen][0] and 'one_of {' not in lines and text(size) + ' planned' in lines.splitlines()[1], lines[:300])
    owners = sum(float(x) * dict(GiB=2**30, MiB=2**20, KiB=2**10, B=1)[u] for x, u in re.findall(r'([\d.]+) (GiB|MiB|KiB|B) of', lines.splitlines()[2]))
    check(abs(owners - size) < 0.02 * size, f'owners in the comment add up to {owners}, not {size}')
    trained('chosen.lua', 'trained')


@case
def others_take_the_first():
    check(host_of(everything) == plans()[(1, 1, 1, 1, 1)][0], 'plan does not take the first')


@case
def nothing_fits():
    """Exit code 3, and no file."""
    refused(everything, 'nothing that every.lua offers fits 10.00 KiB', command='fit', flags=['--memory', '10KiB', '--write', 'unwritten.lua'], code=3)
    check(not pathlib.Path('unwritten.lua').exists(), 'a file is written')


# ---- The order says what is wanted ---------------------------------------------------------------------------------------------------------
@case
def order():
    """The largest rank that fits, the first of two rates that take the same. What is no strategy leaves no trace."""
    asked = offers('asked', '''  batch = 1, length = 32,
  one_of { false, use "clip" { norm = 1.0 } },  -- a line that goes
  use "lora" { rank = ranks, targets = "all-linear" },
  use "adamw" { lr = rates },
''', more='-- How to call it.\n-- And more.\nlocal ranks =\n  one_of { 64, 16, 4 }\nlocal rates =\n  one_of { 3e-4, 1e-4 }\n')
    sizes = {rank: host_of(asked, '--choices', f'4:{i}') for i, rank in enumerate((64, 16, 4), 1)}
    for rank, limit in ((64, sizes[64]), (16, sizes[64] - 1), (4, sizes[16] - 1)):
        said = run('fit', asked, '--memory', limit, '--write', 'asked-chosen.lua').stdout
        mine = chosen_of(rows_of(said))
        check(len(mine) == 1 and mine[0][4:] == (str(rank), '3e-4', 'no'), f'{limit} bytes: {said}')
        check({x[4] for x in rows_of(said)} == {'64', '16', '4'} and len(rows_of(said)) == 12, f'what differs in kind is hidden: {said}')
        lines = pathlib.Path('asked-chosen.lua').read_text()
        check('false' not in lines and 'clip' not in lines and 'a line that goes' not in lines and 'How to call it' not in lines, lines)
        check(lines.startswith('-- Chosen by galley fit from asked.lua, ') and f'local ranks =\n  {rank}\n' in lines, lines)
        check(host_of('asked-chosen.lua') == sizes[rank], lines)


def kinds(name, *trains):
    """Few bits only where they must be, all parameters only where they are wanted, each with its rate."""
    path = pathlib.Path(f'{name}.lua')
    path.write_text(f"""local trains =
  one_of {{ {', '.join(f'"{x}"' for x in trains)} }}
local lr = trains == "adapter" and 2e-4 or 2e-5
return recipe {{
  model = {llama(hidden_size=256, intermediate_size=512)},
  data = data.random {{}}, steps = 2, batch = 1, length = 32,
  one_of {{ use "amp" {{ compute = "bf16" }}, false }},
  one_of {{ false, use "quantize-nf4" {{ double = true }} }},
  trains == "adapter" and use "lora" {{ rank = 4, targets = "all-linear" }},
  one_of {{ use "adamw" {{ lr = lr }}, use "adamw8bit" {{ lr = lr }} }},
}}
""")
    return path


@cases({'fixed': ['--target', source / 'tests/golden/target.toml'], 'gpu': ['--target', 'rtx4090', '--device', 'cuda']})
def estimates(_, target):
    """They count what unpacking takes."""
    path = kinds('kinds', 'adapter', 'full')
    rows = rows_of(run('fit', path, '--memory', '1GiB', '--all', *target).stdout)
    require(len(rows) >= 12 and rows[0][-4:], f'{rows}')
    front = {x[-4:]: (number(x[2]), float(x[4]) if x[4].startswith('+') else 0) for x in rows}
    for optimizer in ('adamw', 'adamw8bit'):
        plain, coded = (front['adapter', 'yes', few, optimizer] for few in ('no', 'yes'))
        check(coded[0] < plain[0] and 0 < plain[1] < 0.01 < 0.1 < coded[1], f'{optimizer}: 4 bits {coded} beside {plain}')
    mine = chosen_of(rows_of(run('fit', path, '--memory', '1GiB', *target).stdout))
    check(len(mine) == 1 and mine[0][-4:] == ('adapter', 'yes', 'no', 'adamw'), f'{mine}')


@case
def few_bits_where_they_must_be():
    path = kinds('must', 'adapter', 'full')
    sizes = [host_of(path, '--choices', f'7:1,8:1,10:{optimizer}') for optimizer in (1, 2)]
    said = run('fit', path, '--memory', min(sizes) - 1, '--write', 'few.lua').stdout
    check([x[-4:-1] for x in chosen_of(rows_of(said))] == [('adapter', 'yes', 'yes')] and 'quantize-nf4' in pathlib.Path('few.lua').read_text(), said)


@cases({'adapter': (['adapter', 'full'], 2e-4), 'full': (['full', 'adapter'], 2e-5)})
def rates(name, what):
    trains, rate = what
    run('fit', kinds(f'rates-{name}', *trains), '--memory', '1GiB', '--write', f'rates-{name}-chosen.lua')
    made = trained(f'rates-{name}-chosen.lua', f'rates-{name}')
    lrs = {x['lr'] for x in made.lines}
    check(lrs == {rate}, f'trained with {lrs}')


# ---- What is offered -----------------------------------------------------------------------------------------------------------------------
@case
def choice_by_choice():
    """What is asked for may depend on what was chosen before."""
    depends = offers('depends', '''  batch = 1, length = 32, wide and use "lora" { rank = ranks },
  use "sgd" { lr = 1e-3 },
''', more='local wide = one_of { true, false }\nlocal ranks = wide and\n  one_of { 2, 4, 8 }\n')
    said = run('fit', depends, '--memory', '1GiB').stdout
    check('4 combinations' in said, said)


@case
def budgets_of_recomputation():
    """What is planned keeps to each."""
    lean = offers('lean', '''  batch = one_of { 1, 4 },
  length = 64,
  one_of { use "recompute" { budget = "1MiB" }, use "recompute" { budget = "3700KiB" }, use "recompute" { budget = "4700KiB" } },
  use "adamw" { lr = 1e-3 },
''')
    said = run('fit', lean, '--memory', '1GiB').stdout
    check('6 combinations' in said and 'the plan takes at least' in said, said)
    rows = [x for x in said.splitlines() if re.match(r' [>+-] ', x)]
    check(every(float(re.search(r'([\d.]+) MiB', x)[1]) * 1024 <= float(re.search(r'"(\d+)KiB"', x)[1]) for x in rows), said)


@case
def what_cannot_work():
    """It is counted, with the reason."""
    never = offers('never', '''  batch = 1, length = 32,
  one_of { false, use "update-in-backward" {} },
  use "clip" { norm = 1.0 },
  use "adamw" { lr = one_of_rates },
''', more='local one_of_rates =\n  one_of { 1e-3, 1e-4 }\n')
    said = run('fit', never, '--memory', '1GiB').stdout
    check('4 combinations' in said and '2 cannot work' in said and '  2: ' in said, said)


pathlib.Path('module.lua').write_text('return one_of { 1, 2 }\n')
end = ' length = 32, use "sgd" { lr = 1.0 },\n'


@cases({
    'nothing': (offers('none', f'  batch = 1,{end}'), [], 'the recipe offers nothing to choose from'),
    'two in a line': (offers('line', '  batch = one_of { 1, 2 }, length = one_of { 16, 32 }, use "sgd" { lr = 1.0 },\n'), [], 'line.lua:4: two one_of in a line'),
    'one in another': (offers('inner', f'  batch = one_of {{ 1,\n one_of {{ 2, 4 }} }},{end}'), [], 'a one_of within a one_of'),
    'none to choose from': (offers('empty', f'  batch = one_of {{}},{end}'), [], 'one_of takes what there is to choose from'),
    'a number': (offers('text', f'  batch = one_of(3),{end}'), [], 'one_of takes what there is to choose from'),
    'in a module': (offers('elsewhere', f'  batch = require "./module",{end}'), [], "chooses in the recipe's own file"),
    'values made elsewhere': (offers('made', f'  batch = one_of(sizes),{end}', more='local sizes = { 4, 1 }\n'), ['--write', 'made-chosen.lua'],
                              'the values of one_of stand elsewhere, so that the choice cannot be written'),
})
def refuses(_, what):
    path, flags, says = what
    refused(path, says, command='fit', flags=['--memory', '1GiB', *flags])


@case
def refuses_choices():
    refused(everything, 'one_of offers 3, and the choice is number 9', flags=['--choices', '4:9'])
    for wrong in ('4', '4:', '4:1,', ':1', '4:1,4:2', '4:1x', ''):
        refused(everything, f'--choices {wrong}: expected LINE:NUMBER', flags=['--choices', wrong])


finish(turns=2)
