#!/usr/bin/env python3
"""Tensors that neighbours divide among them, so that each group of neighbours has everything: what is saved, resumed and proved, and that the numbers are those of one group but for the
rounding of sums."""
import json
import pathlib
import re

from galley_test import case, cases, check, every, finish, fresh_folder, from_config, run, Run, take_turns, use
from gpus_kit import GPU, train_with_gpus
from ranks_kit import left, mpirun, train_with
from steps_kit import planned, recipes, refused, trained

fresh_folder()
config = dict(vocab_size=300, max_position_embeddings=32, hidden_size=128, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
written = recipes(from_config('llama', **config), 'data.random {}', use('accumulate', steps=4), batch=1, length=8, seed=3, steps=4, lanes=4, save=dict(every=2, keep=9))
adamw, lora = use('adamw', lr=1e-2), use('lora', rank=4, dropout=0.3)
pathlib.Path('links.toml').write_text('[[link]]\nname = "board"\nranks = 2\nbandwidth = 1e9\nlatency = 1e-5\n[[link]]\nname = "network"\nbandwidth = 1e8\nlatency = 1e-4\n')
LINKS = '--target', 'links.toml'
CASES = {
    'adamw': (adamw,),
    'clip': (use('clip', norm=0.1), use('amp', compute='bf16'), adamw),
    'nf4': (use('quantize-nf4'), lora, adamw),
    'muon': (use('muon', lr=1e-2, rest_lr=1e-2), use('ema', decay=0.9)),
}

small = recipes(from_config('llama', vocab_size=61, max_position_embeddings=32, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2),
                'data.random {}', use('accumulate', steps=4), batch=2, length=8, seed=3, steps=2, lanes=4)


def within(stage, axis='board'):
    return use('zero', stage=stage, min_size=1, within=axis)


def tensors(run_of):
    """What left() has but the states' texts, which have the recipe's hash."""
    files, metrics = left(run_of)
    return {name: value for name, value in files.items() if not name.endswith('state.toml')}, metrics


def losses(run_of):
    return [x['loss'] for x in run_of.lines if 'loss' in x]


@cases(CASES, turns=4)
def groups_of_two(name, uses):
    """Every stage leaves the same bytes, and the losses of one process; a run that is stopped goes on to them."""
    one = trained(written(f'{name}-one', *uses), f'{name}-one')
    first = None
    for stage in (1, 2, 3):
        path = written(f'{name}-{stage}', within(stage), *uses)
        four = train_with(4, path, f'{name}-{stage}', *LINKS)
        check(every(abs(a / b - 1) < 2e-5 for a, b in zip(losses(four), losses(one), strict=True)), f'{name}, stage {stage}: losses {losses(four)}, of one process {losses(one)}')
        first = first or tensors(four)
        check(tensors(four) == first, f'{name}: stage {stage} leaves other bytes than stage 1')
        out = f'{name}-{stage}-resumed'
        mpirun(4, 'train', path, '--out', out, '--until', 2, *LINKS)
        mpirun(4, 'resume', out)
        check(left(Run(out)) == left(four), f'{name}, stage {stage}: a resumed run leaves other bytes')


@case
def one_group():
    """Where the link joins all processes, it is as if nothing was said; another number of processes goes on with a state."""
    plain = tensors(trained(written('plain', use('zero', stage=3, min_size=1), adamw), 'plain'))
    path = written('grouped', within(3), adamw)
    check(tensors(trained(path, 'grouped-1')) == plain, 'one process')
    check(tensors(train_with(2, path, 'grouped-2', *LINKS)) == plain, 'two processes, all on one board')
    mpirun(4, 'train', path, '--out', 'from-4', '--until', 2, *LINKS)
    mpirun(2, 'resume', 'from-4')
    check(every(abs(a / b - 1) < 2e-5 for a, b in zip(losses(Run('from-4')), losses(Run('plain')), strict=True)), 'two processes go on where four were')


@case
def proofs():
    """References are given what the group has; poisoned memory; all processes' programs beside each other."""
    path = written('proofs', within(3), *CASES['clip'])
    run('plan', path, '--ranks', 4, '--check', *LINKS)
    whole = left(train_with(4, path, 'proofs', *LINKS))
    check(left(train_with(4, path, 'proofs-reference', '--reference', '--poison', *LINKS)) == whole, 'a checked run leaves something else')


@case
def what_each_has():
    """A half, and not a quarter; weights cross boards in no exchange."""
    def parts(use_zero, n, name):
        return [planned(written(name, use_zero, adamw), '--ranks', n, '--rank', r, *LINKS) for r in range(n)]

    def states(plan):
        return next(iter(plan['classes'].values()))['owners']['states']

    halves, quarters, two = parts(within(3), 4, 'halves'), parts(use('zero', stage=3, min_size=1), 4, 'quarters'), parts(use('zero', stage=3, min_size=1), 2, 'two')
    check([states(p) for p in halves] == 2 * [states(p) for p in two], f'{[states(p) for p in halves]}')
    check(abs(2 * sum(states(p) for p in quarters) - sum(states(p) for p in halves)) <= 64 * 40 * 4, 'each board has all')
    check(halves[0]['step']['divided_among'] == 2 and quarters[0]['step']['divided_among'] == 4, f'{halves[0]["step"]}')
    text = run('plan', 'halves.lua', '--ranks', 4, *LINKS).stdout
    check("2 neighbours each, on the axis 'board': 2 groups have all parts" in text, text)
    dumped = run('plan', 'halves.lua', '--ranks', 4, '--dump', 'overlap', *LINKS).stdout
    across = re.findall(r"^\w+\[\d+\] (\w+)\.mpi .*'reduce groups of", dumped, re.M)
    check(across and set(across) == {'all_reduce'}, f'{across}')
    seconds = [p['step']['exchange_seconds'] for p in (halves[0], quarters[0])]
    check(seconds[0] < 0.8 * seconds[1], f'weights that go by the near link take {seconds}')


@case
def on_gpus():
    """Four emulated GPUs, over the NCCL of the tests."""
    one = None
    for stage in (1, 3):
        path = small(f'gpus-{stage}', within(stage), use('clip', norm=0.1), adamw)
        made = train_with_gpus(4, path, f'gpus-{stage}', *LINKS)
        one = one or tensors(made)
        check(tensors(made) == one, 'stage 3 leaves other bytes than stage 1')
    alone = trained(path, 'gpus-alone', *GPU)
    check(every(abs(a / b - 1) < 2e-5 for a, b in zip(losses(made), losses(alone), strict=True)), f'{losses(made)}, of one {losses(alone)}')


@case
def refusals():
    refused(written('unknown', within(1, 'bord'), adamw), "along the axis 'bord', which the run does not have", "'board' (2)", "'network' (4)", flags=('--ranks', 4, *LINKS))
    both = [use('zero', stage=1, min_size=1, parameters=[f'*{name}*'], **where) for name, where in (('q_proj', dict(within='board')), ('k_proj', {}))]
    refused(written('two', *both, adamw), "is to be divided along the axis 'data', and others along 'board'", flags=('--ranks', 4, *LINKS))
    of_six = recipes(from_config('llama', **config), 'data.random {}', use('accumulate', steps=6), batch=1, length=8, seed=3, steps=4)
    refused(of_six('odd', within(1), adamw), "along the axis 'board', which the run does not have", "'data' (3)", flags=('--ranks', 3, *LINKS))


take_turns(['one_group', 'proofs', 'on_gpus'], 3)
finish()
