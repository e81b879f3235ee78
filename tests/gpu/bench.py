#!/usr/bin/env python3
"""How fast whole steps are on the GPU that is here, beside PyTorch (eager and compiled) where python3 has torch. `make bench-gpu` builds and runs it.

  tests/gpu/bench.py [BUILD] [CASE]… [--rounds N] [--kept FILE]

Each case runs Galley and its peers in turn, N rounds (1), in under four minutes; what is done is kept in FILE (BUILD/gpu-bench.jsonl), so that a second call
goes on where the first stopped and tries again what failed (remove the file to begin anew). At the end the table is appended to tests/results/gpu.md, with
date, GPU and command."""
import datetime
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

import libraries

source = pathlib.Path(__file__).resolve().parents[2]
words = sys.argv[1:]
rounds = int(words.pop(words.index('--rounds') + 1)) if '--rounds' in words else 1
given = words.pop(words.index('--kept') + 1) if '--kept' in words else None
words = [x for x in words if x not in ('--rounds', '--kept')]
build = pathlib.Path(words.pop(0)).resolve() if words and (pathlib.Path(words[0]) / 'galley').exists() else source / 'build' / 'cuda'
kept = pathlib.Path(given) if given else build / 'gpu-bench.jsonl'
os.environ.update(libraries.missing())


def gpt2(layers, heads, width):
    return dict(model_type='gpt2', vocab_size=50304, n_positions=1024, n_embd=width, n_layer=layers, n_head=heads, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)


llama_8b = dict(model_type='llama', vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
                num_key_value_heads=8, max_position_embeddings=8192, rope_theta=500000.0, tie_word_embeddings=False)
qwen = dict(model_type='qwen2', vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
            num_key_value_heads=2, max_position_embeddings=32768, rope_theta=1e6, tie_word_embeddings=True)
# name: (config, batch, length, steps, rank of LoRA, further strategies)
cases = {
    'gpt2-124m': (gpt2(12, 12, 768), 32, 1024, 24, 0, ''),
    'gpt2-1558m': (gpt2(48, 25, 1600), 8, 1024, 12, 0, ''),
    'llama-8b-lora': (llama_8b, 1, 4096, 12, 16, ''),
    'qwen2.5-0.5b': (qwen, 8, 2048, 16, 0, ''),
}


def lua(x):
    return '{ ' + ', '.join(f'{k} = {lua(v)}' for k, v in x.items()) + ' }' if isinstance(x, dict) else json.dumps(x)


def recipe(name):
    config, batch, length, steps, rank, more = cases[name]
    keys = {k: v for k, v in config.items() if k != 'model_type'}
    family = 'gpt2' if config['model_type'] == 'gpt2' else config['model_type']
    lora = f'use "lora" {{ rank = {rank}, alpha = {2 * rank}, targets = "all-linear" }},' if rank else ''
    return f'''return recipe {{
  model = model {{ family = "{family}", config = {lua(keys)} }}, data = data.random {{}},
  batch = {batch}, length = {length}, steps = {steps}, seed = 1, save = {{ every = 0, final = false }},
  use "amp" {{ compute = "bf16" }}, {lora} {more} use "clip" {{ norm = 1.0 }}, use "adamw" {{ lr = 1e-4, weight_decay = 0.1 }},
}}
'''


def last_line(command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=230)
    if done.returncode != 0:
        raise RuntimeError(' '.join(done.stderr.split('\n')[-4:]).strip() or f'exit code {done.returncode}, and no message')
    return done.stdout.strip().splitlines()[-1]


def galley(name, folder):
    _, batch, length, _, _, _ = cases[name]
    (folder / 'recipe.lua').write_text(recipe(name))
    last_line([build / 'galley', 'train', 'recipe.lua', '--device', 'cuda', '--out', 'run'], folder)
    lines = [json.loads(x) for x in (folder / 'run' / 'metrics.jsonl').read_text().splitlines()]
    memory = json.loads((folder / 'run' / 'memory.json').read_text())['classes']['device']
    usage = json.loads((folder / 'run' / 'usage.json').read_text())['device']
    seconds = [x['seconds'] for x in lines]
    return {'tokens': batch * length / statistics.median(seconds[len(seconds) // 3:]), 'bytes': memory['allocated'], 'planned': memory['planned'],
            'taken': usage['taken']}


def peer(name, folder, *more):
    config, batch, length, steps, rank, _ = cases[name]
    (folder / 'config.json').write_text(json.dumps(config))
    return json.loads(last_line([sys.executable, source / 'tests/gpu/peer.py', 'config.json', str(batch), str(length), str(steps), *more,
                                 *([f'lora={rank}'] if rank else [])], folder))


def has_torch():
    return subprocess.run([sys.executable, '-c', 'import torch, transformers'], capture_output=True).returncode == 0


def main():
    if not shutil.which('nvidia-smi'):
        sys.exit('tests/gpu/bench.py: there is no nvidia-smi, so no NVIDIA driver')
    done = [json.loads(x) for x in kept.read_text().splitlines()] if kept.exists() else []
    runs = {'galley': galley}
    if has_torch():
        runs.update({'eager': peer, 'compiled': lambda name, folder: peer(name, folder, 'compile')})
    for name in [x for x in cases if not words or x in words]:
        for k in range(rounds):
            for who, run in runs.items():
                if any((x['case'], x['who'], x['round']) == (name, who, k) and 'tokens' in x for x in done):
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    try:
                        made = run(name, pathlib.Path(folder))
                    except (RuntimeError, subprocess.TimeoutExpired) as error:
                        made = {'error': str(error)[:300]}
                done.append({'case': name, 'who': who, 'round': k, **made})
                with open(kept, 'a') as file:
                    file.write(json.dumps(done[-1]) + '\n')
                print(json.dumps(done[-1]), flush=True)
    gpu = subprocess.run(['nvidia-smi', '--query-gpu=name,driver_version', '--format=csv,noheader'], capture_output=True, text=True).stdout.strip()
    commit = subprocess.run(['git', 'rev-parse', '--short', 'HEAD'], cwd=source, capture_output=True, text=True).stdout.strip()
    rows = []
    for name in cases:
        of = {who: [x for x in done if x['case'] == name and x['who'] == who and 'tokens' in x] for who in ('galley', 'eager', 'compiled')}
        if not of['galley']:
            continue
        tokens = {who: statistics.median(x['tokens'] for x in of[who]) if of[who] else None for who in of}
        best = max((x for who, x in tokens.items() if x and who != 'galley'), default=None)
        gib = {who: max(x['bytes'] for x in of[who]) / 2**30 if of[who] else None for who in of}
        cells = [name, *(f'{tokens[w]:.0f}' if tokens[w] else '-' for w in of), f'{tokens["galley"] / best:.2f}' if best else '-',
                 *(f'{gib[w]:.2f}' if gib[w] else '-' for w in of)]
        rows.append('| ' + ' | '.join(cells) + ' |')
    table = '\n'.join(['| case | Galley tok/s | eager | compiled | ratio | Galley GiB | eager | compiled |', '|---|---|---|---|---|---|---|---|', *rows])
    # What CUDA's context, the kernels' code, cuBLASLt's and cuDNN's handles and the graphs take lies outside of the plan; so do other processes.
    memory = ['| case | planned, bytes | allocated, bytes | taken on the GPU, bytes | outside of the plan, GiB |', '|---|---|---|---|---|']
    for x in (x for x in done if 'taken' in x):
        memory.append(f'| {x["case"]} | {x["planned"]} | {x["bytes"]} | {x["taken"]} | {(x["taken"] - x["bytes"]) / 2**30:.2f} |')
    table += '\n\n' + '\n'.join(memory)
    print(table)
    if rows and gpu:
        with open(source / 'tests' / 'results' / 'gpu.md', 'a') as file:
            file.write(f'\n## {datetime.date.today()}, {gpu}, {commit}\n\n`tests/gpu/bench.py {" ".join(sys.argv[1:])}`\n\n{table}\n')


main()
