#!/usr/bin/env python3
"""The speed that `galley fit` says of a recipe, beside the measured one: does it put recipes into the right order, and how far is it off?

Usage: tests/bench/fit.py GALLEY [--model DIR] [--length 128] [--steps 6] [--rounds 3] [--device cpu] [--target FILE] [--processor-time] [--only lora]
Seventeen stacks of scripts/fit.lua's strategies, of a Llama with 12 M parameters that is made here, or of DIR's model with random tokens. Each round trains each recipe for some
steps, in turn, in a process of its own; a round's first step is left out, and the median of all others counts. With --processor-time, for a machine with other work: the time
on the processor, with one thread, of so many steps more: the least of all rounds with them, less the least without. --only takes the stacks whose names begin so.
Prints a table, with the quotient of estimate and measurement, the same held against the median of all quotients (an estimate takes every launch at the target's peak, so that all
are too high by some factor), and Spearman's rank correlation of the two speeds. Exit code 1 if an estimate turns around a pair that people choose between: 4 bits and
the same without them, recomputation and without.
Before it is printed, a stack has the same losses in every round, and one with recomputation those of the same stack without.
"""
import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import tempfile

parser = argparse.ArgumentParser()
parser.add_argument('galley', type=pathlib.Path)
parser.add_argument('--model', type=pathlib.Path)
parser.add_argument('--length', type=int, default=128)
parser.add_argument('--steps', type=int, default=6)
parser.add_argument('--rounds', type=int, default=3)
parser.add_argument('--device', default='cpu')
parser.add_argument('--target')
parser.add_argument('--processor-time', action='store_true')
parser.add_argument('--only', default='')
options = parser.parse_args()
if options.processor_time:
    os.environ['OMP_NUM_THREADS'] = '1'
galley = options.galley.resolve()
model = f'path = "{options.model.resolve()}"' if options.model else '''family = "llama", config = { vocab_size = 8192, hidden_size = 384, intermediate_size = 1024,
  num_hidden_layers = 6, num_attention_heads = 6, num_key_value_heads = 2, max_position_embeddings = 2048, tie_word_embeddings = true }'''
adamw, bf16, recompute = 'use "adamw" { lr = 1e-4 }', 'use "amp" { compute = "bf16" }', 'use "recompute" {}'
lora, nf4 = 'use "lora" { rank = 16, alpha = 32, targets = "all-linear" }', 'use "quantize-nf4" { double = true }'
# name: rows of a micro-batch, how many times the length, strategies
stacks = {
    'full': (1, 1, adamw),
    'full, 2 rows': (2, 1, adamw),
    'full, 4 rows': (4, 1, adamw),
    'full, twice the length': (1, 2, adamw),
    'full, 4 micro-batches': (1, 1, 'use "accumulate" { steps = 4 }', adamw),
    'full, recomputed': (1, 1, recompute, adamw),
    'full, recomputed, 4 rows': (4, 1, recompute, adamw),
    'full, bf16': (1, 1, bf16, adamw),
    'full, 8-bit states': (1, 1, 'use "adamw8bit" { lr = 1e-4 }'),
    'lora': (1, 1, lora, adamw),
    'lora, 4 rows': (4, 1, lora, adamw),
    'lora, recomputed': (1, 1, lora, recompute, adamw),
    'lora, bf16': (1, 1, bf16, lora, adamw),
    'lora, nf4': (1, 1, nf4, lora, adamw),
    'lora, bf16, recomputed': (1, 1, bf16, lora, recompute, adamw),
    'lora, nf4, bf16': (1, 1, bf16, nf4, lora, adamw),
    'lora, nf4, bf16, recomputed': (1, 1, bf16, nf4, lora, recompute, adamw),
}
stacks = {name: stack for name, stack in stacks.items() if name.startswith(options.only)}
losses = {}  # {name: those of its longest run}
machine = ['--device', options.device, *(['--target', options.target] if options.target else [])]


def write(path, steps, rows, times, *uses):
    lines = ''.join(f'  {use},\n' for use in uses)
    path.write_text(f'return recipe {{\n  model = model {{ {model} }}, data = data.random {{}}, batch = {rows}, length = {times * options.length}, '
                    f'steps = {steps}, save = {{ final = false }},\n{lines}}}\n')


def trained(recipe, steps, name, out):
    """Seconds on the processor."""
    write(recipe, steps, *stacks[name])
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run([galley, 'train', recipe, '--out', out, *machine], check=True, stdout=subprocess.DEVNULL)
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    steps = [x['loss'] for x in map(json.loads, pathlib.Path(out, 'metrics.jsonl').read_text().splitlines()) if 'loss' in x]
    known = losses.setdefault(name, steps)
    if known[:len(steps)] != steps[:len(known)] or not steps:
        raise SystemExit(f'{name}: losses are {steps} in one run and {known} in another')
    losses[name] = max(known, steps, key=len)
    return used


def ranks(values):
    order = sorted(range(len(values)), key=values.__getitem__)
    out = [0] * len(values)
    for rank, i in enumerate(order):
        out[i] = rank
    return out


with tempfile.TemporaryDirectory() as folder:
    recipes, estimated, positions, measured = {}, {}, {}, {name: [] for name in stacks}
    for k, (name, stack) in enumerate(stacks.items()):
        recipes[name] = pathlib.Path(folder) / f'{k}.lua'
        write(recipes[name], options.steps + 1, *stack)
        step = json.loads(subprocess.run([galley, 'plan', recipes[name], '--json', *machine], check=True, capture_output=True).stdout)['step']
        positions[name], estimated[name] = step['positions'], step['positions'] / step['seconds_at_best']
    for turn in range(options.rounds):
        for name in (list(stacks) if turn % 2 == 0 else list(stacks)[::-1]):
            out = pathlib.Path(folder) / f'{turn}-{recipes[name].stem}'
            if options.processor_time:
                measured[name].append((trained(recipes[name], options.steps + 2, name, out), trained(recipes[name], 2, name, f'{out}-2')))
                continue
            trained(recipes[name], options.steps + 1, name, out)
            measured[name] += [json.loads(line)['seconds'] for line in (out / 'metrics.jsonl').read_text().splitlines()[1:]]


def seconds(rounds):
    """Of a step. The least of differences would be that of a round which was disturbed in its shorter run."""
    return (min(x for x, _ in rounds) - min(y for _, y in rounds)) / options.steps if options.processor_time else statistics.median(rounds)


for name in stacks:
    without = name.replace(', recomputed', '')
    if losses[name] != losses.get(without, losses[name]):
        raise SystemExit(f'{name}: losses are {losses[name]}, and {losses[without]} without recomputation')
speeds = {name: positions[name] / seconds(measured[name]) for name in stacks}
quotients = {name: estimated[name] / speeds[name] for name in stacks}
usual = statistics.median(quotients.values())
print('| recipe | estimate, positions/s | measured | estimate / measured | beside the median of these |\n|---|---|---|---|---|')
for name in sorted(stacks, key=speeds.get, reverse=True):
    print(f'| {name} | {estimated[name]:.4g} | {speeds[name]:.4g} | {quotients[name]:.2f} | {quotients[name] / usual - 1:+.0%} |')
a, b = ranks([estimated[n] for n in stacks]), ranks([speeds[n] for n in stacks])
n = len(stacks)
off = [abs(q / usual - 1) for q in quotients.values()]
print(f'\n{n} recipes, Spearman rank correlation {1 - 6 * sum((x - y) ** 2 for x, y in zip(a, b)) / (n * (n * n - 1)):.3f}; the median of the quotients is {usual:.2f}, '
      f'and beside it estimates are off by {statistics.median(off):.0%} in the middle, {max(off):.0%} at most')
pairs = [('lora', 'lora, nf4'), ('lora, bf16', 'lora, nf4, bf16'), ('lora, bf16, recomputed', 'lora, nf4, bf16, recomputed'), ('full', 'full, recomputed'),
         ('lora', 'lora, recomputed'), ('lora, bf16', 'lora, bf16, recomputed'), ('lora, bf16', 'lora'), ('lora', 'full'), ('full, bf16', 'full')]
pairs = [(x, y) for x, y in pairs if x in stacks and y in stacks]
turned = [(x, y) for x, y in pairs if (estimated[x] > estimated[y]) != (speeds[x] > speeds[y]) and min(abs(z[x] / z[y] - 1) for z in (estimated, speeds)) > 0.03]
for x, y in turned:
    print(f'turned around: {x} {estimated[x]:.4g} beside {y} {estimated[y]:.4g}, measured {speeds[x]:.4g} beside {speeds[y]:.4g}')
print(f'{len(pairs) - len(turned)} of {len(pairs)} pairs in the measured order (within 3 % either is)')
raise SystemExit(bool(turned))
