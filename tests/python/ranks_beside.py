#!/usr/bin/env python3
"""Exchanges that run beside kernels, on a queue of their own, where a target says how fast they go: a run leaves the bytes of one in which they take turns."""
import json
import pathlib
import re

from discrete_kit import discrete
from galley_test import case, cases, check, every, finish, fresh_folder, from_config, run, strategies, use
from ranks_kit import left, train_with
from steps_kit import recipes, trained

fresh_folder()
config = dict(vocab_size=300, max_position_embeddings=32, hidden_size=128, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
written = recipes(from_config('llama', **config), 'data.random {}', use('accumulate', steps=4), use('adamw', lr=1e-2), batch=1, length=8, seed=3, steps=3, lanes=4)
pathlib.Path('links.toml').write_text('[[link]]\nname = "network"\nbandwidth = 1e9\nlatency = 1e-5\n')
BESIDE = '--target', 'links.toml'
CASES = {
    'whole': (),
    'clip': (use('clip', norm=0.1),),
    'stage 1': (use('zero', stage=1, min_size=1), use('amp', compute='bf16')),
    'stage 2': (use('zero', stage=2, min_size=1), use('clip', norm=0.1)),
    'stage 3': (use('zero', stage=3, min_size=1), use('recompute', policy='every')),
    'frozen': (use('zero', stage=3, min_size=1), use('quantize-nf4'), use('lora', rank=4)),
}


def step_of(path, n, *flags):
    return json.loads(run('plan', path, '--json', '--ranks', n, *flags).stdout)['step']


@cases(CASES, turns=6)
def the_same_bytes(label, uses):
    name = label.replace(' ', '-')
    path = written(name, *uses)
    one = left(trained(path, f'{name}-1'))
    for n in (2, 4):
        step = step_of(path, n, *BESIDE)
        check(step['exchange_seconds_alone'] < step['exchange_seconds'], f'{label}: {n} processes hide nothing: {step}')
        check(left(train_with(n, path, f'{name}-{n}', *BESIDE)) == one, f'{label}: {n} processes whose exchanges run beside kernels leave something else')


@case
def on_a_queue_of_their_own():
    """Weights come before sums that would keep them waiting, in one order for all processes. Without a link none has a queue."""
    deep = from_config('llama', **dict(config, num_hidden_layers=10))
    path = recipes(deep, 'data.random {}', use('accumulate', steps=4), use('adamw', lr=1e-2), batch=1, length=8, seed=3, steps=1, lanes=4)('order', use('zero', stage=3, min_size=1))

    def exchanges(*flags):
        lines = run('plan', path, '--ranks', 4, '--dump', 'overlap', *flags).stdout.splitlines()
        of_micro = [line for line in lines if line.startswith('micro') and re.search(r' (all|reduce)_\w+\.mpi ', line)]
        return [line.split("'")[1] for line in of_micro], [line for line in of_micro if ' queue 1' in line]

    names, queued = exchanges()
    orders = [exchanges(*BESIDE, '--rank', r) for r in range(4)]
    check(len(names) > 100 and not queued, f'{len(names)} exchanges, of which {len(queued)} have a queue')
    check(every(of == orders[0][0] and len(on_queue) == len(names) for of, on_queue in orders), 'their orders')
    check(sorted(orders[0][0]) == sorted(names) and orders[0][0] != names, 'what is exchanged')
    run('plan', path, '--ranks', 4, '--check', *BESIDE)
    check(left(train_with(4, path, 'order-4', *BESIDE)) == left(trained(path, 'order-1')), 'another order has other bytes')


@case
def proved():
    """With references, poisoned memory, and all processes' programs beside each other."""
    path = written('proved', use('zero', stage=3, min_size=1), use('clip', norm=0.1))
    run('plan', path, '--ranks', 4, '--check', *BESIDE)
    one = left(trained(path, 'proved-1'))
    check(left(train_with(2, path, 'proved-2', '--reference', '--poison', *BESIDE)) == one, 'a checked run leaves something else')


@cases(['offload-optimizer', 'offload-activations'], turns=2)
def beside_offload(name):
    """Copies and exchanges, on queues of their own: planned for all processes, and run on a device that does what is on its queues as late, or as early, as it may."""
    for stage in (1, 2, 3):
        path = written(f'{name}-{stage}', use('zero', stage=stage, min_size=1), strategies()[0][name])
        run('plan', path, '--ranks', 4, '--check', '--target', 'h100')
        if stage == 2:
            continue
        one = left(trained(path, f'{name}-{stage}-1', *discrete))
        check(left(train_with(2, path, f'{name}-{stage}-2', *discrete)) == one, f'{name}, stage {stage}: two processes leave something else')


finish()
