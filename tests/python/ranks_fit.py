#!/usr/bin/env python3
"""`galley fit` for several processes: what it says is what `galley plan` says of the process that needs the most, and what is chosen trains in so many processes."""
import functools
import itertools
import pathlib
import re
import shlex

from galley_test import case, check, finish, fresh_folder, from_config, plan, program, require, Run, run, source
from ranks_kit import mpirun, OPTIONS
from steps_kit import refused

fresh_folder()
config = dict(vocab_size=256, max_position_embeddings=32, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=1)
model = from_config('llama', hidden_size=128, intermediate_size=192, **config)
MACHINE = (source / 'tests' / 'golden' / 'target.toml').read_text()


def written(name, entries, more=''):
    path = pathlib.Path(f'{name}.lua')
    path.write_text(f'{more}return recipe {{ model = {model}, data = data.random {{}}, steps = 2, seed = 3, length = 8,\n{entries}}}\n')
    return path


def plans_of(path, ranks, *flags):
    """By process: the plans of all."""
    return [plan(path, '--ranks', ranks, '--rank', rank, *flags) for rank in range(ranks)]


def bytes_of(plans):
    return [x['classes']['host']['planned'] for x in plans]


def text(size):
    return f'{size / 2**20:.2f} MiB' if size >= 2**20 else f'{size / 2**10:.2f} KiB'


def rows_of(said):
    """Of the table: the mark, and what comes after it."""
    return [(x[1], *re.split(r'  +', x[2:].strip())) for x in said.splitlines()[1:] if re.match(r' [>+-] ', x)]


def chosen_of(said):
    chosen = [x for x in rows_of(said) if x[0] == '>']
    require(len(chosen) <= 1, said)
    return chosen[0] if chosen else None


# Stages first, so that what they divide is there when nothing is said; windows of 8, 4 and 2 micro-batches.
offers = written('offers', '''  batch = batch, use "accumulate" { steps = 8 // batch },
  one_of { use "zero" { stage = 3, min_size = 1 }, use "zero" { stage = 1, min_size = 1 }, false },
  use "adamw" { lr = 1e-3 },
''', more='local batch =\n  one_of { 1, 2, 4 }\n')
LINES = 2, 5
combinations = list(itertools.product((1, 2, 3), (1, 2, 3)))
BATCHES, STAGES = ('1', '2', '4'), ('{ stage = 3, min_size = 1 }', '{ stage = 1, min_size = 1 }', 'no')


def choices(one):
    return '--choices', ','.join(f'{line}:{i}' for line, i in zip(LINES, one, strict=True))


@functools.cache
def needed(ranks):
    """{combination: bytes of the process that needs the most}, by `galley plan`; none if so many processes cannot share the window."""
    return {one: max(bytes_of(plans_of(offers, ranks, *choices(one)))) for one in combinations if 8 >> (one[0] - 1) >= ranks}


@case
def plans_of_all():
    """Each row has the bytes of the process that needs the most; what cannot be shared out is counted, with the reason."""
    said = run('fit', offers, '--ranks', 4, '--memory', '1GiB', '--all').stdout
    rows = {(BATCHES.index(x[4]) + 1, next(i for i, s in enumerate(STAGES, 1) if s.startswith(x[5][:12]))): x[1] for x in rows_of(said)}
    check(rows == {one: text(size) for one, size in needed(4).items()} and len(rows) == 6, f'{rows}: {needed(4)}')
    check('9 combinations for 4 processes: > chosen, + others that fit 1.00 GiB each' in said and '3 cannot work:' in said, said)
    check('  3: a window has 2 micro-batches, which cannot be shared out over 4 processes' in said, said)
    check('9 combinations: > chosen, + others that fit 1.00 GiB, ' in run('fit', offers, '--memory', '1GiB', '--ranks', 1).stdout, 'of one process')


@case
def to_the_byte():
    """What takes least fits into what it needs, and with a byte less nothing does; one process alone does not fit there."""
    least = min(needed(4).values())
    one, = (x for x, size in needed(4).items() if size == least)
    said = run('fit', offers, '--ranks', 4, '--memory', least, '--write', 'least.lua').stdout
    check(chosen_of(said)[4] == BATCHES[one[0] - 1] and STAGES[one[1] - 1].startswith(chosen_of(said)[5][:12]), f'{one}: {said}')
    check(max(bytes_of(plans_of('least.lua', 4))) == least, 'what is written needs something else')
    for flags in (('--memory', least - 1, '--ranks', 4), ('--memory', least)):
        refused(offers, 'nothing that offers.lua offers fits', command='fit', flags=[*flags, '--write', 'none.lua'], code=3)
    check(not pathlib.Path('none.lua').exists(), 'a recipe is written')


@case
def the_first_that_fits():
    """With more processes more fits: what is wanted first is taken as soon as it does."""
    wide = written('wide', '''  batch = 1, use "accumulate" { steps = 4 }, use "zero" { stage = 3, min_size = 1 },
  use "lora" { rank = one_of { 64, 16, 4 }, targets = "all-linear" }, use "adamw" { lr = 1e-3 },
''')
    sizes = {n: [max(bytes_of(plans_of(wide, n, '--choices', f'3:{i}'))) for i in (1, 2, 3)] for n in (1, 4)}
    limit = sizes[4][0]
    require(limit < sizes[1][0], f'{sizes}')
    for n in (1, 4):
        fitting = [rank for rank, size in zip(('64', '16', '4'), sizes[n]) if size <= limit]
        said = run('fit', wide, '--ranks', n, '--memory', limit).stdout
        check((chosen_of(said) or (None,) * 5)[4] == (fitting[0] if fitting else None), f'{n}: {sizes}: {said}')
    check(chosen_of(run('fit', wide, '--ranks', 4, '--memory', limit - 1).stdout)[4] != '64', 'a byte less is as good')


@case
def not_the_first_process():
    """Matrices that Muon needs whole are dealt out, so that the second process has more than the first: it decides."""
    owned = '"*.mlp.gate_proj.weight", "*.self_attn.q_proj.weight", "*.self_attn.o_proj.weight"'
    path = written('owned', f'''  batch = 1, use "accumulate" {{ steps = 2 }}, use "zero" {{ stage = 1, min_size = 1, parameters = {{ {owned} }} }},
  use "muon" {{ lr = 1e-3, rest_lr =
    one_of {{ 1e-3, 1e-4 }} }},
''')
    first, second = bytes_of(plans_of(path, 2))
    require(first < second, f'the first process needs {first} bytes, the second {second}')
    check(chosen_of(run('fit', path, '--ranks', 2, '--memory', second).stdout)[1] == text(second), f'{second} bytes')
    check(chosen_of(run('fit', path, '--ranks', 2, '--memory', second - 1).stdout) is None, f'the first process alone decides: {first} bytes')


@case
def with_links():
    """Where the target's links are known, speeds have the time of exchanges in them, and are those of the plan; where not, it is said."""
    slow = MACHINE + '[[link]]\nname = "network"\nbandwidth = 1e7\nlatency = 1e-3\n'
    said = {}
    for name, target in (('none', MACHINE), ('slow', slow)):
        pathlib.Path(f'{name}.toml').write_text(target)
        said[name] = run('fit', offers, '--ranks', 2, '--memory', '1GiB', '--all', '--target', f'{name}.toml').stdout
    missing = 'positions/s leave out what exchanges take: no link of the target joins 2 processes'
    check(missing in said['none'] and missing not in said['slow'], f'{said}')
    step = plan(offers, '--ranks', 2, '--target', 'slow.toml', *choices((1, 3)))['step']
    row, = (x for x in rows_of(said['slow']) if x[4:] == ('1', 'no'))
    check(abs(float(row[2]) * step['seconds_at_best'] / step['positions'] - 1) < 1e-2, f'{row}: {step}')
    # The fastest is what exchanges least.
    check(chosen_of(said['slow'])[5] == 'no' or 'stage = 1' in chosen_of(said['slow'])[5], said['slow'])


@case
def the_command():
    """What `--write` says to type trains in two processes what was chosen, with the memory that was planned."""
    said = run('fit', offers, '--ranks', 2, '--lanes', 2, '--memory', '1GiB', '--write', 'mine.lua').stdout
    check(said.splitlines()[-2:] == ['written: mine.lua', '  mpirun -n 2 galley train mine.lua --lanes 2 --out DIR'], said)
    words = shlex.split(said.splitlines()[-1])
    run(*words[1:3], *OPTIONS, program, *words[4:-1], 'mine', executable=words[0])
    Run('mine').check_memory('mine')
    head = pathlib.Path('mine.lua').read_text().splitlines()
    check(head[0].endswith('for 2 processes with 1.00 GiB each.'), head[0])
    check(' planned for the one that needs the most, ' in head[1] and ', without what exchanges take; ' in head[1], head[1])
    said = run('fit', offers, '--set', 'a=b c', '--memory', '1GiB', '--write', 'alone.lua', code=2).stderr
    check("'a'" in said, said)
    said = run('fit', offers, '--use', 'clip { norm = 1 }', '--memory', '1GiB', '--write', 'alone.lua').stdout
    check(said.splitlines()[-1] == "  galley train alone.lua --use 'clip { norm = 1 }' --out DIR", said)


@case
def refuses():
    refused(offers, "--ranks '0' is not an integer of at least 1", command='fit', flags=['--ranks', 0, '--memory', '1GiB'])


@case
def under_a_launcher():
    """It is said what to do instead."""
    for words in (('fit', offers, '--memory', '1GiB'),):
        said = mpirun(2, *words, code=2).stderr
        check(said.count(f'galley {words[0]} takes one process, and mpirun has started 2') == 1 and 'start it without mpirun, with --ranks 2' in said, said)
    said = mpirun(2, 'data', offers, code=2).stderr
    check('start it without mpirun' in said and '--ranks' not in said, said)


finish()
