#!/usr/bin/env python3
"""Positions a second of a run in one process with all threads, and in several with a part of them each, on one machine; what each sends, and the memory that each has.

Usage: tests/bench/ranks.py GALLEY [ranks=2] [threads=2] [rounds=3] [steps=4] [batch=2] [length=256] [layers=30] [hidden=576] [vocab=49152] [stage=0] [link=FILE] [out=FILE]

A model in the shape of SmolLM2-135M with random weights, AdamW, a window of as many micro-batches as processes, lanes = ranks; from `stage` 1 on, "zero" divides it. With link=FILE, a file for --target
that describes a link between the processes, these run once more with it: exchanges then run beside kernels, on a queue of their own. The sides run in turn, the last one first each other time.
The first step of a run does not count. First of all the sides have to leave the same bytes; if they do not, no time is printed."""
import hashlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

galley = pathlib.Path(sys.argv[1]).resolve()
given = dict(x.split('=', 1) for x in sys.argv[2:])
ranks, threads, rounds, steps, batch, length, layers, hidden, vocab, stage = (int(given.get(k, v)) for k, v in (
    ('ranks', 2), ('threads', 2), ('rounds', 3), ('steps', 4), ('batch', 2), ('length', 256), ('layers', 30), ('hidden', 576), ('vocab', 49152), ('stage', 0)))
folder = pathlib.Path(tempfile.mkdtemp(prefix='galley-ranks-'))
recipe = folder / 'recipe.lua'
recipe.write_text(f'''return recipe {{
  model = model {{ family = "llama", config = {{ vocab_size = {vocab}, hidden_size = {hidden}, intermediate_size = {hidden * 8 // 3}, num_hidden_layers = {layers},
    num_attention_heads = {hidden // 64}, num_key_value_heads = {max(1, hidden // 192)}, head_dim = 64, max_position_embeddings = 2048, tie_word_embeddings = true }} }},
  data = data.random {{}},
  batch = {batch}, length = {length}, steps = {steps}, seed = 1, lanes = {ranks},
  use "accumulate" {{ steps = {ranks} }},
  {f'use "zero" {{ stage = {stage} }},' if stage else ''}
  use "adamw" {{ lr = 1e-4 }},
}}
''')


def run(n, out, *flags):
    """One run: positions a second, the largest resident memory of a process in MiB, and the bytes that it leaves."""
    shutil.rmtree(folder / out, ignore_errors=True)
    words = [galley, 'train', recipe, '--out', folder / out, *flags]
    if n > 1:
        words = ['mpirun', '-n', n, '--oversubscribe', '--bind-to', 'none', '--allow-run-as-root', *words]
    env = {**os.environ, 'OMP_NUM_THREADS': str(max(1, threads // n))}
    r = subprocess.run([str(x) for x in words], env=env, capture_output=True, text=True)
    if r.returncode:
        sys.exit(r.stderr)
    lines = [json.loads(x) for x in (folder / out / 'metrics.jsonl').read_text().splitlines()][1:]
    memory = json.loads((folder / out / 'memory.json').read_text())
    left = hashlib.sha256((folder / out / 'model/model.safetensors').read_bytes()).hexdigest()
    return sum(x['positions'] for x in lines) / sum(x['seconds'] for x in lines), memory, left


def planned(n):
    return json.loads(subprocess.run([str(galley), 'plan', str(recipe), '--json', '--ranks', str(n)], check=True, capture_output=True, text=True).stdout)


def mebibytes(n):
    return next(iter(planned(n)['classes'].values()))['planned'] / 2**20


BESIDE = f'{ranks} × {threads // ranks} threads beside kernels'
sides = {f'1 × {threads} threads': (1, ()), f'{ranks} × {threads // ranks} threads': (ranks, ())}
if 'link' in given:
    sides[BESIDE] = ranks, ('--target', str(pathlib.Path(given['link']).resolve()))
if len({run(n, f'first-{n}', *flags)[2] for n, flags in sides.values()}) > 1:
    sys.exit('the sides leave other bytes')
step = planned(ranks)['step']
print(f'planned: {mebibytes(1):.0f} MiB in one process, {mebibytes(ranks):.0f} MiB in each of {ranks}')
print(f'{ranks} processes: {step["exchanges"]} exchanges a step, each process sends {step["sent"] / 2**20:.1f} MiB', flush=True)
speeds = {side: [] for side in sides}
for k in range(rounds):
    for side in list(sides)[::-1 if k % 2 else 1]:
        n, flags = sides[side]
        speeds[side].append(run(n, 'again', *flags)[0])
        print(f'  {side}: {speeds[side][-1]:.1f} positions/s', flush=True)
first, text = next(iter(sides)), ''
for side in list(sides)[1:]:
    ratio = statistics.median(b / a for a, b in zip(speeds[first], speeds[side], strict=True))
    text += f'{side}: {statistics.median(speeds[side]):.1f}, {first}: {statistics.median(speeds[first]):.1f} positions/s, ratio {ratio:.3f}\n'
print(text, end='')
if 'out' in given:
    pathlib.Path(given['out']).write_text(text)
shutil.rmtree(folder)
