#!/usr/bin/env python3
"""A stranger's plugin joins processes: it is built with the installed SDK alone, and its kernels give the bytes of a run of one process. Whoever starts the processes sets
torchrun's variables, which Open MPI does not know: so the built-in plugin refuses, and the other one is taken."""
import os
import uuid

from galley_test import case, check, end_of, every, finish, fresh_folder, from_config, lines_of, run, Run, source, start, until, use
from ranks_kit import left
from sdk_kit import build
from steps_kit import recipes, trained

fresh_folder()
config = dict(vocab_size=300, max_position_embeddings=32, hidden_size=128, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
written = recipes(from_config('llama', **config), 'data.random {}', use('accumulate', steps=6), batch=1, length=8, seed=3, steps=3, lanes=6)
plugins = build('sockets', source / 'tests' / 'sdk' / 'sockets', '''cmake_minimum_required(VERSION 3.25)
project(sockets LANGUAGES CXX)
find_package(galley-sdk REQUIRED)
galley_add_plugin(MANIFEST plugin.toml SOURCES plugin.cpp KERNELS_CPU cpu.cpp)
''')


def begun(n, *args):
    """n processes, as torchrun starts them."""
    job = uuid.uuid4().hex
    return [start(*args, '--plugin-path', plugins, env=dict(os.environ, OMP_NUM_THREADS='1', RANK=str(r), WORLD_SIZE=str(n), LOCAL_RANK=str(r), LOCAL_WORLD_SIZE=str(n),
                                                           TORCHELASTIC_RUN_ID=job)) for r in range(n)]


@case
def checked():
    """`galley check` opens it for a run of one process."""
    said = run('check', plugins / 'sockets').stdout
    check('ranks sockets (' in said and 'nothing found' in said, said)


@case
def joins():
    for name, uses in {'plain': (use('adamw', lr=1e-2),), 'zero': (use('zero', stage=3, min_size=1), use('clip', norm=0.1), use('adamw', lr=1e-2))}.items():
        path = written(name, *uses)
        one = left(trained(path, f'{name}-1'))
        for n in (2, 3):
            ended = [end_of(p) for p in begun(n, 'train', path, '--out', f'{name}-{n}')]
            check(every(e.returncode == 0 for e in ended), f'{name}, {n} processes: {ended}')
            check(left(Run(f'{name}-{n}')) == one, f'{name}: {n} processes leave something else than one')


@case
def one_dies():
    """The others learn of it from the plugin, and say who it was."""
    processes = begun(3, 'train', written('dies', use('adamw', lr=1e-2), steps=4000, save=dict(every=4000)), '--out', 'dies')
    check(until(lambda: os.path.exists('dies/metrics.jsonl') and len(lines_of('dies')) > 2, processes[0]), 'no step was made')
    processes[1].kill()
    ended = [end_of(p) for p in processes]
    check(every(e.returncode not in (0, None) for e in ended), f'{ended}')
    check(any(f'rank 1 (machine' in e.stderr and 'died' in e.stderr for e in (ended[0], ended[2])), f'{ended}')


finish()
