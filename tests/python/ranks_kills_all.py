#!/usr/bin/env python3
# label: all
"""Forty times one process of several is killed at a random moment of a run whose weights are divided: while it loads, in a step, while a state or the model is saved; half of
the runs exchange beside their kernels, on a thread of their own.
The others end within seconds and name it; the run goes on from its last state with another number of processes, to the bytes of a run that nobody disturbed. A process
that only sleeps delays the others; one that finds a full disk ends all of them with its error."""
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import time

from galley_test import case, check, end_of, fresh_folder, finish, from_config, program, run, Run, start, until, use
from ranks_kit import children, left, mpirun, OPTIONS, rank_of
from steps_kit import recipes, trained

fresh_folder()
SEED = int(os.environ.get('GALLEY_TEST_SEED', random.randrange(1 << 30)))
print(f'GALLEY_TEST_SEED={SEED}')
draw = random.Random(SEED)
config = dict(vocab_size=300, max_position_embeddings=32, hidden_size=128, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
written = recipes(from_config('llama', **config), 'data.random {}', use('accumulate', steps=4), use('adamw', lr=1e-3), batch=1, length=8, seed=3, lanes=4)


def begun(n, *args):
    return start('-n', n, *OPTIONS, program, *args, executable=shutil.which('mpirun'))


@case
def forty_kills():
    paths = {stage: written(f'stage-{stage}', use('zero', stage=stage, min_size=1), steps=400, save=dict(every=25)) for stage in (1, 2, 3)}
    whole = {}
    for stage, path in paths.items():
        whole[stage] = left(trained(path, f'whole-{stage}'))
    hits = {}
    pathlib.Path('links.toml').write_text('[[link]]\nname = "network"\nbandwidth = 1e9\nlatency = 1e-5\n')
    for k in range(40):
        stage, n = draw.choice((1, 2, 3)), draw.choice((2, 4))
        dies, out = draw.randrange(n), f'killed-{k}'
        one = begun(n, 'train', paths[stage], '--out', out, *draw.choice(((), ('--target', 'links.toml'))))
        check(until(lambda: pathlib.Path(out, 'run.toml').exists(), one), f'{k}: the run has not begun')
        time.sleep(draw.uniform(0, 2.5))
        pids = [pid for pid in children(one.pid) if rank_of(pid) == dies]
        if not pids:
            hits['over'] = hits.get('over', 0) + 1
            end_of(one)
        else:
            killed = time.monotonic()
            try:
                os.kill(pids[0], signal.SIGKILL)
            except ProcessLookupError:
                pass
            ended = end_of(one)
            took = time.monotonic() - killed
            check(took < 15, f'{k}: the others lived for {took:.1f} s: {ended}')
            if ended.returncode != 0:
                named = re.search(rf'rank {dies} \(machine \S+, process {pids[0]}\) died', ended.stderr)
                hits['named' if named else 'ended'] = hits.get('named' if named else 'ended', 0) + 1
                check(named or f'process rank {dies} ' in ended.stderr, f'{k}: {ended}')  # before the processes look after each other, Open MPI does
        begin_again = not list(pathlib.Path(out).glob('state/step-*/state.toml')) and not pathlib.Path(out, 'model').exists()
        other = draw.choice((1, 2, 4))
        if other == 1:
            run('resume', out)
        else:
            mpirun(other, 'resume', out)
        check(left(Run(out)) == whole[stage], f'{k}: stage {stage}, process {dies} of {n} killed, {other} went on{" from the start" if begin_again else ""}: other bytes')
        check(not pathlib.Path(out, '.ranks').exists(), f'{k}: what the processes said to each other is left')
        shutil.rmtree(out)
    print(hits)
    check(hits.get('named', 0) >= 8, f'kills: {hits}')  # how many come too late depends on the machine


@case
def one_sleeps():
    """Some seconds are no death."""
    path = written('sleeps', use('zero', stage=3, min_size=1), steps=400, save=dict(every=400))
    one = begun(2, 'train', path, '--out', 'sleeps')
    check(until(lambda: pathlib.Path('sleeps/metrics.jsonl').exists(), one), 'no step was made')
    pid, = [p for p in children(one.pid) if rank_of(p) == 1]
    os.kill(pid, signal.SIGSTOP)
    time.sleep(5)
    os.kill(pid, signal.SIGCONT)
    ended = end_of(one)
    check(ended.returncode == 0, f'{ended}')


@case
def full_disk_of_one():
    """The directory of the run is on a disk that is too small for a state: an error of all, and the last state is whole."""
    small = pathlib.Path('small').resolve()
    small.mkdir()
    if subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=9m', 'galley', small], capture_output=True).returncode:
        return print('skipped: full_disk_of_one: no right to mount')
    try:
        path = written('full', use('zero', stage=1, min_size=1), steps=9, save=dict(every=3, keep=9))
        said = end_of(begun(2, 'train', path, '--out', small / 'run'))
        check(said.returncode not in (0, None) and 'No space left on device' in said.stderr, f'{said}')
        states = sorted(p.parent.name for p in (small / 'run').glob('state/step-*/state.toml'))
        check(states and not list((small / 'run').glob('state/.tmp-*')), f'{states}')
    finally:
        subprocess.run(['umount', '-l', small], check=False)


finish()
