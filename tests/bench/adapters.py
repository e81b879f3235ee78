#!/usr/bin/env python3
"""A step of GPT-2 with 124 M random parameters, 4 rows of 64 tokens: all parameters under AdamW beside LoRA of rank 8 on attention, in turns.

tests/bench/adapters.py GALLEY [ROUNDS]      wall time of each step; time of the processor, from runs of 7 and of 2 steps
"""
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

galley, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3
kinds = {'full': '', 'lora': 'use "lora" { rank = 8, targets = "attention" },'}


def seconds(kind, steps, folder):
    recipe = folder / f'{kind}.lua'
    recipe.write_text(f'''return recipe {{ model = model {{ family = "gpt2", config = {{}} }}, data = data.random {{}}, batch = 4, length = 64, steps = {steps}, seed = 1,
  save = {{ every = 0, final = false }}, {kinds[kind]} use "adamw" {{ lr = 3e-4, weight_decay = 0.1 }}, use "clip" {{ norm = 1.0 }} }}''')
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    with tempfile.TemporaryDirectory() as out:
        subprocess.run([galley, 'train', recipe, '--out', f'{out}/run'], check=True, capture_output=True)
        lines = [json.loads(x) for x in pathlib.Path(out, 'run/metrics.jsonl').read_text().splitlines()]
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, [x['seconds'] for x in lines if 'loss' in x][1:]


wall, processor = {k: [] for k in kinds}, {k: [] for k in kinds}
with tempfile.TemporaryDirectory() as name:
    for _ in range(rounds):
        for kind in kinds:
            few, _ = seconds(kind, 2, pathlib.Path(name))
            many, steps = seconds(kind, 7, pathlib.Path(name))
            processor[kind].append((many - few) / 5)
            wall[kind] += steps
for kind in kinds:
    print(f'{kind}: least {min(wall[kind]):.3f} s a step, median {statistics.median(wall[kind]):.3f} s, of the processor {min(processor[kind]):.2f} s')
for what, of in (('least', lambda k: min(wall[k])), ('median', lambda k: statistics.median(wall[k])), ('processor', lambda k: min(processor[k]))):
    print(f'LoRA / full, {what}: {of("lora") / of("full"):.3f}')
