#!/usr/bin/env python3
"""A step of GPT-2 with 124 M random parameters, 4 rows of 64 tokens: all parameters under AdamW beside LoRA of rank 8 on attention, in turns, the other one first each time.

tests/bench/adapters.py GALLEY [ROUNDS] [model=CONFIG]      wall time of each step; time of the processor, from runs of 7 and of 2 steps

Before times are printed: a new adapter changes nothing, so that the first loss of both is the same; and every run of a kind has the same losses. CONFIG is Lua, of a
smaller GPT-2 to try this script.
"""
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

words = [x for x in sys.argv[1:] if not x.startswith('model=')]
galley, rounds = words[0], int(words[1]) if len(words) > 1 else 3
config = next((x.removeprefix('model=') for x in sys.argv if x.startswith('model=')), '{}')
kinds = {'full': '', 'lora': 'use "lora" { rank = 8, targets = "attention" },'}


def seconds(kind, steps, folder):
    recipe = folder / f'{kind}.lua'
    recipe.write_text(f'''return recipe {{ model = model {{ family = "gpt2", config = {config} }}, data = data.random {{}}, batch = 4, length = 64, steps = {steps}, seed = 1,
  save = {{ every = 0, final = false }}, {kinds[kind]} use "adamw" {{ lr = 3e-4, weight_decay = 0.1 }}, use "clip" {{ norm = 1.0 }} }}''')
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    with tempfile.TemporaryDirectory() as out:
        subprocess.run([galley, 'train', recipe, '--out', f'{out}/run'], check=True, capture_output=True)
        lines = [json.loads(x) for x in pathlib.Path(out, 'run/metrics.jsonl').read_text().splitlines()]
    steps = [x for x in lines if 'loss' in x]
    for step, x in enumerate(steps):
        known = losses[kind].setdefault(step, x['loss'])
        if known != x['loss']:
            sys.exit(f'{kind}: the loss of step {step + 1} is {x["loss"]} in one run and {known} in another')
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, [x['seconds'] for x in steps][1:]


wall, processor, losses = ({k: of() for k in kinds} for of in (list, list, dict))
with tempfile.TemporaryDirectory() as name:
    for turn in range(rounds):
        for kind in list(kinds) if turn % 2 == 0 else list(kinds)[::-1]:
            few, _ = seconds(kind, 2, pathlib.Path(name))
            many, steps = seconds(kind, 7, pathlib.Path(name))
            processor[kind].append((many - few) / 5)
            wall[kind] += steps
if losses['full'][0] != losses['lora'][0]:
    sys.exit(f'the first loss is {losses["full"][0]}, and {losses["lora"][0]} with a new adapter, which changes nothing')
if losses['full'][6] == losses['lora'][6]:
    sys.exit(f'after six steps the loss of both is {losses["full"][6]}: one of them was not trained as it should')
for kind in kinds:
    print(f'{kind}: least {min(wall[kind]):.3f} s a step, median {statistics.median(wall[kind]):.3f} s, of the processor {min(processor[kind]):.2f} s')
for what, of in (('least', lambda k: min(wall[k])), ('median', lambda k: statistics.median(wall[k])), ('processor', lambda k: min(processor[k]))):
    print(f'LoRA / full, {what}: {of("lora") / of("full"):.3f}')
