#!/usr/bin/env python3
"""`galley fit` and `galley compare` for several processes: what they say is what `galley plan` says of the process that needs the most, what is chosen trains in so many
processes, and one process leaves in their place what they leave."""
import functools
import itertools
import json
import pathlib
import re
import shlex

from galley_test import case, cases, check, every, finish, fresh_folder, from_config, plan, program, require, Run, run, source
from ranks_kit import left, mpirun, OPTIONS
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


# ---- Side by side --------------------------------------------------------------------------------------------------------------------------
both = pathlib.Path('both.lua')
both.write_text(f'''return compare {{ model = {model}, data = data.random {{}}, steps = 2, length = 8, batch = 1, seeds = {{ 1 }}, turns = 1,
  use "accumulate" {{ steps = 4 }},
  variants = {{
    plain = {{ use "adamw" {{ lr = 1e-3 }} }},
    divided = {{ use "zero" {{ stage = 2, min_size = 1 }}, use "adamw" {{ lr = 1e-3 }} }},
  }},
}}
''')


@case
def side_by_side():
    """Arms are planned for two processes, and what one trains in their place is what two train, to the byte."""
    sizes = {arm: max(bytes_of(plans_of(both, 2, '--set', f'variant={arm}'))) for arm in ('plain', 'divided')}
    alone = plan(both, '--set', 'variant=plain')['classes']['host']['planned']
    require(sizes['divided'] < sizes['plain'] and alone not in sizes.values(), f'{sizes}')
    said = run('compare', both, '--ranks', 2, '--out', 'both', '--memory', sizes['plain'], '--expect', f'divided: memory <= {sizes["divided"]}').stdout
    document = json.loads(pathlib.Path('both/compare.json').read_text())
    arms = {x['name']: x for x in document['arms']}
    check({name: x['planned'] for name, x in arms.items()} == sizes and document['ranks'] == 2, f'{sizes}: {arms}')
    # Gradients that are divided have a lane for each micro-batch.
    check({name: x['lanes'] for name, x in arms.items()} == dict(plain=2, divided=4) and document['differ'] == ['lanes'], f'{document}')
    check(arms['divided']['breach'] is None, f'{arms["divided"]}')
    rows = {x.split()[0]: x.split()[1:3] for x in said.splitlines() if x.startswith(('plain ', 'divided '))}
    check(said.startswith('arm ') and every(' '.join(f'{text(size)}'.split()) in said for size in sizes.values()) and rows, said)
    check('planned for the one of 2 processes that needs the most\n' in said and said.count('one process trains each arm in the place of 2, lane after lane') == 2, said)
    for name in arms:
        mpirun(2, 'train', both, '--set', f'variant={name}', '--set', 'seed=1', '--out', f'{name}-2')
        check(left(Run(f'{name}-2')) == left(Run(f'both/arms/{name}/seed-1')), f'{name}: two processes leave something else')
    said = run('compare', both, '--out', 'both', code=2).stderr
    check("arms/plain/seed-1: this is the run of another recipe, or of other arguments" in said, said)
    said = run('compare', both, '--ranks', 2, '--out', 'small', '--memory', sizes['divided'] - 1, code=3).stderr
    check("arm 'plain': the plan needs " in said, said)


@case
def plans_of_variants():
    """`galley plan` of a comparison says of which process its rows are."""
    said = run('plan', both, '--ranks', 2, '--rank', 1).stdout
    sizes = [plan(both, '--ranks', 2, '--rank', 1, '--set', f'variant={arm}')['classes']['host']['planned'] for arm in ('plain', 'divided')]
    check(every(text(size) in said for size in sizes) and 'planned for process 1 of 2, counted from 0\n' in said, said)
    check('at best leaves out what exchanges take: no link of the target joins 2 processes' in said, said)
    check('galley plan both.lua --set variant=plain --ranks 2 shows all of one' in said, said)
    check('process' not in run('plan', both).stdout, 'of one process')


seconds = pathlib.Path('seconds.lua')
seconds.write_text(both.read_text().replace('steps = 2,', 'budget = { seconds = 1 },', 1))
# Memory that its own limit does not fill: a chunk takes as much of it as pays.
pathlib.Path('roomy.toml').write_text(MACHINE.replace('peak_flops = 2e11', 'peak_flops = 1e15').replace('name = "host"', f'name = "host"\ncapacity = {2**40}'))
narrow = from_config('llama', **dict(config, max_position_embeddings=1024), hidden_size=8, intermediate_size=8)
chunks = pathlib.Path('chunks.lua')
chunks.write_text(both.read_text().replace(model, narrow).replace('length = 8, batch = 1', 'length = 1024, batch = 128'))


@cases({
    'a budget in seconds': ('compare', seconds, ['--ranks', 2, '--out', 'no'],
                            ['has a budget in seconds, which one process would measure, and not 2', 'a budget of tokens']),
    'too many': ('compare', both, ['--ranks', 8, '--out', 'no'], ["arm 'plain': a window has 4 micro-batches, which cannot be shared out over 8 processes"]),
    'lanes that they do not divide': ('compare', both, ['--ranks', 2, '--lanes', 3, '--out', 'no'], ['the run has 3 lanes, which cannot be shared out over 2 processes']),
    'none': ('fit', offers, ['--ranks', 0, '--memory', '1GiB'], ["--ranks '0' is not an integer of at least 1"]),
    'other chunks of the head': ('compare', chunks, ['--ranks', 2, '--out', 'no', '--memory', '9GiB', '--target', 'roomy.toml'],
                                 ['one process, which trains in the place of 2: it takes the head and loss in chunks of 131072 rows, and they in chunks of 73728',
                                  'write head_rows = 73728 into the recipe']),
})
def refuses(_, what):
    command, path, flags, texts = what
    refused(path, *texts, command=command, flags=flags)
    check(not pathlib.Path('no').exists(), 'there is a folder')


@case
def under_a_launcher():
    """It is said what to do instead."""
    for words in (('fit', offers, '--memory', '1GiB'), ('compare', both, '--out', 'launched')):
        said = mpirun(2, *words, code=2).stderr
        check(said.count(f'galley {words[0]} takes one process, and mpirun has started 2') == 1 and 'start it without mpirun, with --ranks 2' in said, said)
    check(not pathlib.Path('launched').exists(), 'there is a folder')
    said = mpirun(2, 'data', both, code=2).stderr
    check('start it without mpirun' in said and '--ranks' not in said, said)


finish()
