#!/usr/bin/env python3
"""Time of an update of each optimizer beside the memory's bandwidth, for 76 M parameters of a Llama, and its launches. Not a test: it prints the table of
tests/results/updates.md.

    GALLEY=build/release/galley tests/bench/updates.py [rounds=3] [only=NAME;NAME]

Rounds go through all optimizers in turn, each time from the other end; the table has the fastest of each. GB/s are the bytes of the operands, read and written, by that
time. Before it is printed: all in F32 have the same first loss, those in BF16 to 1e-3, and each has the same losses in every round.
"""
import concurrent.futures
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

program = str(pathlib.Path(os.environ['GALLEY']).resolve())
options = dict(x.split('=', 1) for x in sys.argv[1:])
amp, adamw = 'use "amp" {}', 'use "adamw" { lr = 1e-4 }'
cases = {
    'sgd': ['use "sgd" { lr = 1e-3 }'],
    'sgd, momentum': ['use "sgd" { lr = 1e-3, momentum = 0.9 }'],
    'lion': ['use "lion" { lr = 1e-5 }'],
    'adam': ['use "adam" { lr = 1e-4 }'],
    'adamw': [adamw],
    'adamw, amsgrad': ['use "adamw" { lr = 1e-4, amsgrad = true }'],
    'adamw, bf16 copy': [amp, adamw],
    'lion8bit': ['use "lion8bit" { lr = 1e-5 }'],
    'adamw8bit': ['use "adamw8bit" { lr = 1e-4 }'],
    'split-states, adamw': [amp, 'use "split-states" {}', adamw],
    'adafactor': ['use "adafactor" {}'],
    'muon, bf16': ['use "muon" { lr = 1e-3, adjust = "match_rms_adamw" }'],
    'ema': [adamw, 'use "ema" {}'],
    'ema, bf16': [adamw, 'use "ema" { dtype = "bf16" }'],
    'clip by value': [adamw, 'use "clip" { value = 1 }'],
}
# The row of the profile, where it is not that of the strategy's name.
rows = {'adamw, bf16 copy': 'adamw_step>copy', 'split-states, adamw': 'adamw (', 'clip by value': 'clip ('}
config = '{ vocab_size = 8192, hidden_size = 768, intermediate_size = 2048, num_hidden_layers = 9, num_attention_heads = 12, num_key_value_heads = 12, max_position_embeddings = 64 }'


def bandwidth(threads):
    """GB/s of copying, read and written."""
    size = 256 << 20
    rooms = [[ctypes.create_string_buffer(size) for _ in range(2)] for _ in range(threads)]
    best = 0
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        for _ in range(5):
            begin = time.perf_counter()
            list(pool.map(lambda room: ctypes.memmove(room[0], room[1], size), rooms))
            best = max(best, 2 * size * threads / (time.perf_counter() - begin) / 1e9)
    return best


threads = int(os.environ.get('OMP_NUM_THREADS', os.cpu_count()))
print(f'copying with {threads} threads: {bandwidth(threads):.1f} GB/s\n')
best, losses = {}, {}
with tempfile.TemporaryDirectory() as scratch:
    os.chdir(scratch)
    for k in range(int(options.get('rounds', 3))):
        for name, uses in list(cases.items())[::1 if k % 2 == 0 else -1]:
            if name not in options.get('only', name).split(';'):
                continue
            pathlib.Path('recipe.lua').write_text(f'return recipe {{ model = model {{ family = "llama", config = {config} }}, data = data.random {{}}, batch = 1, length = 8, steps = 4, '
                                                  f'{", ".join(uses)} }}')
            said = subprocess.run([program, 'train', 'recipe.lua', '--out', f'{name}{k}', '--profile'], capture_output=True, text=True)
            if said.returncode:
                sys.exit(said.stderr)
            steps = [x['loss'] for x in map(json.loads, pathlib.Path(f'{name}{k}', 'metrics.jsonl').read_text().splitlines()) if 'loss' in x]
            if losses.setdefault(name, steps) != steps:
                sys.exit(f'{name}: losses are {steps} in one round and {losses[name]} in another')
            begins = rows.get(name, name.split(',')[0] + ' (')
            profile = json.loads(pathlib.Path(f'{name}{k}', 'profile.json').read_text())
            mine = [x for x in profile['ops'] + profile['strategies'] if (x.get('op', '') + x.get('strategy', '')).startswith(begins)]
            seconds, launches, moved = (sum(x[key] for x in mine) for key in ('seconds', 'launches', 'bytes'))
            best[name] = min(best.get(name, (1e9,)), (1e3 * seconds, launches, 1e-9 * moved / seconds))
for in_bf16, bound in ((False, 0), (True, 1e-3)):  # split-states rounds the weights in a way of its own
    first = {name: x[0] for name, x in losses.items() if (amp in cases[name]) == in_bf16}
    if first and max(first.values()) - min(first.values()) > bound * max(first.values()):
        sys.exit(f'before the first update, losses differ: {first}')
print('| | ms | ns a parameter | GB/s | launches |\n|---|---|---|---|---|')
for name, (ms, launches, gbs) in best.items():
    print(f'| {name} | {ms:.1f} | {ms * 1e6 / 76.3e6:.2f} | {gbs:.0f} | {launches:g} |')
