#!/usr/bin/env python3
"""Seconds a step of two builds of the program, alone and beside programs that never rest: does training keep its share of a busy machine?

Usage: threads.py BEFORE AFTER [rounds=5] [model=quickstart,gpt2,tiny] [busy=0,1,2] [threads=N] [compute=f32|bf16]

Before times are printed, the losses of all steps of both programs are compared: every run of a program has the same, and those of the two differ by no more than
rounding (1e-5 of a loss in f32, 1e-2 in bf16).

BEFORE and AFTER are programs (build/release/galley). Each round runs every case with both, in turn, so that what else the machine does meets both alike; the
table shows medians over the rounds of a run's mean step, its first two left out. The busy programs are loops of the shell, started here and pinned nowhere:
they belong to the same session, as the system divides processors among sessions first. With P processors, T ≤ P threads and N such programs a fair share
takes max(1, (T + N) / P) times as long as alone; `of fair` is the time over that, and 1.2 is what it is to stay below. Run on an otherwise idle machine.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

MODELS = {
    'quickstart': (40, '''
  model = model {
    family = "llama",
    config = { vocab_size = 256, max_position_embeddings = 256, hidden_size = 192, intermediate_size = 512, num_hidden_layers = 5,
               num_attention_heads = 6, tie_word_embeddings = true },
  },
  batch = 4, length = 256,'''),
    'gpt2': (8, '''
  model = model {
    family = "gpt2",
    config = { vocab_size = 50257, n_positions = 1024, n_embd = 768, n_layer = 12, n_head = 12 },
  },
  batch = 4, length = 64,'''),
    'tiny': (5, '''
  model = model { family = "gpt2", config = { vocab_size = 97, n_positions = 32, n_embd = 32, n_layer = 1, n_head = 2 } },
  batch = 2, length = 16,'''),
}
BOUNDS = {'f32': 1e-5, 'bf16': 1e-2}
RECIPE = '''return recipe {%s
  data = data.random {}, steps = %d, seed = 1, save = { every = 0, final = false },
%s  use "clip" { norm = 1.0 },
  use "adamw" { lr = 3e-4, weight_decay = 0.1 },
}
'''


def run(program, recipe, environment):
    """The mean over a run's steps but the first two, and the losses of all."""
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run([program, 'train', recipe, '--out', f'{folder}/run'], capture_output=True, text=True, env=environment)
        if ran.returncode != 0:
            sys.exit(f'{program}: exit code {ran.returncode}\n{ran.stderr}')
        with open(f'{folder}/run/metrics.jsonl') as lines:
            steps = [x for x in map(json.loads, lines) if 'loss' in x]
    return statistics.mean(s['seconds'] for s in steps[2:]), [s['loss'] for s in steps]


def check_losses(programs, losses, bound):
    """{(model, program): the losses of each run}; ends this script where two did not compute the same."""
    for (model, program), runs in losses.items():
        if any(x != runs[0] for x in runs):
            sys.exit(f'{model}: {program} has other losses from run to run')
    for model in {model for model, _ in losses}:
        before, after = (losses[model, p][0] for p in programs)
        off = max(abs(a - b) / abs(b) for a, b in zip(after, before, strict=True))
        print(f'{model}: losses of the two programs are apart by {off:.1e}')
        if not off <= bound:
            sys.exit(f'{model}: they do not compute the same ({bound:.0e} is allowed)\n{before}\n{after}')


def main():
    programs = [a for a in sys.argv[1:] if '=' not in a]
    options = dict(a.split('=', 1) for a in sys.argv[1:] if '=' in a)
    if len(programs) != 2:
        sys.exit(__doc__)
    programs = [str(pathlib.Path(p).resolve()) for p in programs]
    neighbours = [int(n) for n in options.get('busy', '0,1,2').split(',')]
    models = options.get('model', 'quickstart,gpt2').split(',')
    processors = len(os.sched_getaffinity(0))
    threads = int(options.get('threads', processors))
    compute = options.get('compute', 'f32')
    precision = {'f32': '', 'bf16': '  use "amp" { compute = "bf16" },\n'}[compute]
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads))
    taken = {(m, n, p): [] for m in models for n in neighbours for p in programs}
    losses = {(m, p): [] for m in models for p in programs}
    with tempfile.TemporaryDirectory() as folder:
        for model in models:
            steps, text = MODELS[model]
            pathlib.Path(folder, f'{model}.lua').write_text(RECIPE % (text, steps, precision))
        for turn in range(int(options.get('rounds', 5))):
            for model in models:
                for n in neighbours:
                    busy = [subprocess.Popen(['sh', '-c', 'while :; do :; done']) for _ in range(n)]
                    try:
                        for program in programs if turn % 2 == 0 else programs[::-1]:
                            seconds, of_steps = run(program, f'{folder}/{model}.lua', environment)
                            taken[model, n, program].append(seconds)
                            losses[model, program].append(of_steps)
                    finally:
                        for process in busy:
                            process.kill()
                            process.wait()
    check_losses(programs, losses, BOUNDS[compute])
    print(f'{processors} processors, {threads} threads, medians of {options.get("rounds", 5)} rounds; milliseconds a step')
    print(f'{"model":12}{"busy":>5}{"before":>10}{"after":>10}{"ratio":>8}{"of fair":>18}')
    for model in models:
        for n in neighbours:
            before, after = (1e3 * statistics.median(taken[model, n, p]) for p in programs)
            line = f'{model:12}{n:5}{before:10.1f}{after:10.1f}{before / after:8.2f}'
            if 0 in neighbours:
                fair = max(1, (min(threads, processors) + n) / processors)
                shares = (t / fair / (1e3 * statistics.median(taken[model, 0, p])) for t, p in zip((before, after), programs))
                line += '   {:6.2f} -> {:5.2f}'.format(*shares)
            print(line)


if __name__ == '__main__':
    main()
