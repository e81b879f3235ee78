#!/usr/bin/env python3
"""How fast whole steps are on the GPU that is here, beside PyTorch (eager and compiled) where python3 has torch. `make bench-gpu` builds and runs it.
Galley runs each case as its recipe says, and with `deterministic = false` (varying) and `tune = true` (tuned).

  tests/gpu/bench.py [--build DIR] [--out DIR] [--seconds N] [--rounds N] [--list] [STEP]...

A step is one case by one of them, in one round: `gpt2-124m/galley/1`. Each is a process of its own, with a limit of its own. What is measured is kept in --out
(DIR/gpu of the build), so that a call goes on where the last one stopped; its last line says what is next. A call takes --seconds (540): no step begins that
could end later. STEP runs these only, whether they are done or not: `gpt2-124m`, `gpt2-124m/compiled`. Exit codes: 0 all is done and well, 1 something failed,
3 there is more to do.

DIR/bench.md is written again after each step, with date, GPU and command: tests/results/gpu.md is made of it."""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.dont_write_bytecode = True
from steps import Steps, check_machine, choose, commit_of_source, source


def gpt2(layers, heads, width):
    return dict(model_type='gpt2', vocab_size=50304, n_positions=1024, n_embd=width, n_layer=layers, n_head=heads, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)


llama_8b = dict(model_type='llama', vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
                num_key_value_heads=8, max_position_embeddings=8192, rope_theta=500000.0, tie_word_embeddings=False)
qwen = dict(model_type='qwen2', vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
            num_key_value_heads=2, max_position_embeddings=32768, rope_theta=1e6, tie_word_embeddings=True)
class Case(NamedTuple):
    config: dict
    batch: int
    length: int
    steps: int
    rank: int = 0  # of LoRA; 0: all parameters are trained
    uses: str = ''  # further strategies, as the recipe has them
    optimizer: str = 'adamw'
    of_bitsandbytes: tuple = ()  # the peer's words for both


all_cases = {
    'gpt2-124m': Case(gpt2(12, 12, 768), 32, 1024, 24),
    'gpt2-1558m': Case(gpt2(48, 25, 1600), 8, 1024, 12),
    'llama-8b-lora': Case(llama_8b, 1, 4096, 12, rank=16),
    'llama-8b-qlora': Case(llama_8b, 1, 4096, 12, rank=16, uses='use "quantize-nf4" { double = true },', of_bitsandbytes=('weights=nf4',)),
    'llama-8b-int8': Case(llama_8b, 1, 4096, 12, rank=16, uses='use "quantize-llm-int8" {},', of_bitsandbytes=('weights=int8',)),
    'qwen2.5-0.5b': Case(qwen, 8, 2048, 16),
    'qwen2.5-0.5b-8bit': Case(qwen, 8, 2048, 16, optimizer='adamw8bit', of_bitsandbytes=('adamw8bit',)),
    # For any device, to try this script: it is run only where it is named.
    'tiny': Case(dict(gpt2(1, 2, 32), vocab_size=97, n_positions=32), 2, 16, 4),
}
cases = {name: case for name, case in all_cases.items() if name != 'tiny'}
# Seconds of a step: a compiled model of 8B compiles for minutes before its first step.
LIMIT = 230
LIMITS = {('llama-8b-lora', 'compiled'): 530, ('gpt2-1558m', 'compiled'): 400}


def lua(x):
    return '{ ' + ', '.join(f'{k} = {lua(v)}' for k, v in x.items()) + ' }' if isinstance(x, dict) else json.dumps(x)


OURS = {'galley': '', 'varying': 'deterministic = false, ', 'tuned': 'tune = true, '}


def recipe(name, who):
    case = all_cases[name]
    keys = {k: v for k, v in case.config.items() if k != 'model_type'}
    lora = f'use "lora" {{ rank = {case.rank}, alpha = {2 * case.rank}, targets = "all-linear" }},' if case.rank else ''
    return f'''return recipe {{
  model = model {{ family = "{case.config["model_type"]}", config = {lua(keys)} }}, data = data.random {{}},
  {OURS[who]}batch = {case.batch}, length = {case.length}, steps = {case.steps}, seed = 1, save = {{ every = 0, final = false }},
  use "amp" {{ compute = "bf16" }}, {lora} {case.uses} use "clip" {{ norm = 1.0 }}, use "{case.optimizer}" {{ lr = 1e-4, weight_decay = 0.1 }},
}}
'''


def command_of(name, who, build, device, plugins):
    """What is run, and the files that it needs."""
    case = all_cases[name]
    if who in OURS:
        return [build / 'galley', 'train', 'recipe.lua', '--device', device, *plugins, '--out', 'run'], {'recipe.lua': recipe(name, who)}
    return ([sys.executable, source / 'tests/gpu/peer.py', 'config.json', case.batch, case.length, case.steps, *(['compile'] if who == 'compiled' else []),
             *([f'lora={case.rank}'] if case.rank else []), *case.of_bitsandbytes], {'config.json': json.dumps(case.config)})


def measured(name, who, result, log):
    """Tokens a second and bytes, of what a step left."""
    if who not in OURS:
        return json.loads(log.read_text().strip().splitlines()[-1])
    case = all_cases[name]
    run = pathlib.Path(result['scratch']) / 'run'
    metrics = [json.loads(x) for x in (run / 'metrics.jsonl').read_text().splitlines()]
    seconds = [x['seconds'] for x in metrics]
    memory = json.loads((run / 'memory.json').read_text())['classes']['device']
    return {'tokens': case.batch * case.length / statistics.median(seconds[len(seconds) // 3:]), 'bytes': memory['allocated'], 'planned': memory['planned'],
            'taken': json.loads((run / 'usage.json').read_text())['device']['taken'], 'loss': metrics[0]['loss']}


def imports(modules):
    return subprocess.run([sys.executable, '-c', f'import {modules}'], capture_output=True).returncode == 0


def table(done):
    rows, memory, losses = [], [], []
    for name in all_cases:
        of = {who: [x for step, x in done.items() if step.rsplit('/', 1)[0] == f'{name}/{who}' and 'tokens' in x] for who in (*OURS, 'eager', 'compiled')}
        if not any(of.values()):
            continue
        tokens = {who: statistics.median(x['tokens'] for x in of[who]) if of[who] else None for who in of}
        best = max((x for who, x in tokens.items() if x and who not in OURS), default=None)
        gib = {who: max(x['bytes'] for x in of[who]) / 2**30 if of[who] else None for who in ('galley', 'eager', 'compiled')}
        cells = [name, *(f'{tokens[w]:.0f}' if tokens[w] else '-' for w in of), f'{tokens["galley"] / best:.2f}' if best and tokens['galley'] else '-',
                 *(f'{x:.2f}' if x else '-' for x in gib.values())]
        rows.append('| ' + ' | '.join(cells) + ' |')
        # All of them start at random numbers of one distribution, so that losses a few percent apart are of the same model.
        first = {who: of[who][0]['loss'] for who in of if of[who]}
        losses.append(f'{name}: {", ".join(f"{who} {x:.2f}" for who, x in first.items())}' +
                      (' NOT THE SAME MODEL' if max(first.values()) > 1.05 * min(first.values()) else ''))
        for x in of['galley'][:1]:
            memory.append(f'| {name} | {x["planned"]} | {x["bytes"]} | {x["taken"]} | {(x["taken"] - x["bytes"]) / 2**30:.2f} |')
    # What CUDA's context, the kernels' code, cuBLASLt's and cuDNN's handles and the graphs take lies outside of the plan; so do other processes.
    return '\n'.join(['| case | Galley tok/s | varying | tuned | eager | compiled | Galley / best of PyTorch | Galley GiB | eager | compiled |',
                      '|---' * 10 + '|', *rows, '',
                      '| case | planned, bytes | allocated, bytes | taken on the GPU, bytes | outside of the plan, GiB |', '|---|---|---|---|---|', *memory, '',
                      'Losses of the first step: ' + '; '.join(losses) + '.'])


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('--build', type=pathlib.Path, default=source / 'build' / 'cuda')
    parser.add_argument('--out', type=pathlib.Path)
    parser.add_argument('--seconds', type=float, default=540)
    parser.add_argument('--rounds', type=int, default=1)
    parser.add_argument('--list', action='store_true')
    parser.add_argument('steps', nargs='*')
    words = parser.parse_args()
    build = words.build.resolve()
    os.environ.setdefault('PATH', '/usr/bin:/bin')
    library = pathlib.Path(os.environ.get('GALLEY_TEST_DEVICE') or build / 'plugins' / 'cuda' / 'cuda.so')
    gpu = check_machine(build, library.stem)
    plugins = ['--plugin-path', library.parent] if library.stem != 'cuda' else []
    peers = ['eager', 'compiled'] if library.stem == 'cuda' and imports('torch, transformers, peft') else []
    of_bitsandbytes = ['eager'] if peers and imports('bitsandbytes') else []
    print(f'beside {" and ".join(peers)}' if peers else f'no peers: they take a GPU, and torch and transformers in {sys.executable}')
    of_cases = {**cases, **{x: all_cases[x] for x in all_cases if any(w.split('/')[0] == x for w in words.steps)}}
    who_runs = {name: [*OURS, *(of_bitsandbytes if case.of_bitsandbytes else peers)] for name, case in of_cases.items()}
    names = [f'{name}/{who}/{k}' for k in range(1, words.rounds + 1) for name in of_cases for who in who_runs[name]]
    chosen = choose(names, words.steps)
    out = (words.out or build / 'gpu').resolve()
    steps = Steps('bench', out, build, words.seconds)
    os.environ.setdefault('GALLEY_CACHE', str(out / 'cache'))
    if words.list:
        for x in names:
            print(f'{"-" if x not in steps.done else "ok" if steps.done[x]["ok"] else "FAILED":8}{x}')
        return 0

    for step in chosen:
        name, who, _ = step.split('/')
        limit = LIMITS.get((name, who), LIMIT)
        if step in steps.done and not words.steps:
            continue
        if not steps.has_time(limit):
            break
        steps.ran += 1
        command, files = command_of(name, who, build, library.stem, plugins)
        result = steps.run(step, command, limit, folder=files)
        if result['ok']:
            result.update(measured(name, who, result, steps.log(step)))
        steps.keep(result)
        if not result['ok']:
            print('\n'.join(steps.log(step).read_text(errors='replace').splitlines()[-8:]))
        print(f'{"ok" if result["ok"] else "FAILED":8}{step}, {result["seconds"]} s' + (f', {result["tokens"]:.0f} tokens/s' if result['ok'] else f': {result["why"]}') +
              f'; {max(0, steps.left()):.0f} s left', flush=True)
        text = table(steps.done)
        (out / 'bench.md').write_text(f'## {datetime.date.today()}, {gpu}, {commit_of_source()}\n\n`tests/gpu/bench.py {" ".join(sys.argv[1:])}`\n\n{text}\n')
    if (out / 'bench.md').exists():
        print((out / 'bench.md').read_text())
    parts = [f'--build {words.build}'] if words.build != source / 'build' / 'cuda' else []
    parts += [f'--out {words.out}'] if words.out else []
    parts += [f'--seconds {words.seconds:g}'] if words.seconds != 540 else []
    parts += [f'--rounds {words.rounds}'] if words.rounds != 1 else []
    return steps.finish(names, ' '.join(['tests/gpu/bench.py', *parts]))


sys.exit(main())
