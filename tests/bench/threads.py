#!/usr/bin/env python3
"""Seconds a step of two builds of the program, alone and beside programs that never rest: does training keep its share of a busy machine?

Usage: threads.py BEFORE AFTER [rounds=5] [model=quickstart,gpt2] [busy=0,1,2] [threads=N] [compute=f32|bf16]

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
}
RECIPE = '''return recipe {%s
  data = data.random {}, steps = %d, seed = 1, save = { every = 0, final = false },
%s  use "clip" { norm = 1.0 },
  use "adamw" { lr = 3e-4, weight_decay = 0.1 },
}
'''


def step_seconds(program, recipe, environment):
    """The mean over a run's steps but the first two."""
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run([program, 'train', recipe, '--out', f'{folder}/run'], capture_output=True, text=True, env=environment)
        if run.returncode != 0:
            sys.exit(f'{program}: exit code {run.returncode}\n{run.stderr}')
        with open(f'{folder}/run/metrics.jsonl') as lines:
            steps = [json.loads(line) for line in lines]
    return statistics.mean(s['seconds'] for s in steps[2:])


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
    precision = {'f32': '', 'bf16': '  use "amp" { compute = "bf16" },\n'}[options.get('compute', 'f32')]
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads))
    taken = {(m, n, p): [] for m in models for n in neighbours for p in programs}
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
                            taken[model, n, program].append(step_seconds(program, f'{folder}/{model}.lua', environment))
                    finally:
                        for process in busy:
                            process.kill()
                            process.wait()
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
