#!/usr/bin/env python3
"""How long planning takes: a model of the shape of Llama 2 7B, models of 30, 250 and 1,000 layers in four ways of training, and a search that asks for 200 peaks of a
model of 80 blocks. Not a test: it prints seconds of processor time, the least of several rounds, of the program in GALLEY (several may be given, to compare).

    GALLEY=build/release/galley GALLEY_BINARY=build/release tests/bench/plan.py [rounds=3] [only=BEGIN] [OTHER_GALLEY ...]

Rounds take the programs in turn, the other one first each time. Where a plan of a program is another one than in a round before, this is an error; where programs plan
differently, the line says so: their times are not those of the same work. `only` are the cases that begin so.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

binary = pathlib.Path(os.environ['GALLEY_BINARY']).resolve()
options = dict(x.split('=', 1) for x in sys.argv[1:] if '=' in x)
programs = [pathlib.Path(x).resolve() for x in (os.environ['GALLEY'], *(x for x in sys.argv[1:] if '=' not in x))]
target = pathlib.Path(__file__).resolve().parents[1] / 'golden' / 'target.toml'


def llama(hidden, inner, layers, heads):
    return (f'model {{ family = "llama", config = {{ vocab_size = 32000, hidden_size = {hidden}, intermediate_size = {inner}, num_hidden_layers = {layers}, '
            f'num_attention_heads = {heads}, num_key_value_heads = {heads}, max_position_embeddings = 4096, tie_word_embeddings = false }} }}')


def recipe(model, *uses):
    lines = ''.join(f'  {x},\n' for x in (f'model = {model}', 'data = data.random {}', 'batch = 1', 'length = 512', 'steps = 1', *uses))
    return f'return recipe {{\n{lines}}}\n'


def what_is_planned(said):
    """Bytes of each memory class, and the launches of a step."""
    plan = json.loads(said)
    return {name: x['planned'] for name, x in plan['classes'].items()}, plan['launches']['a_step']


seven = recipe(llama(4096, 11008, 32, 32), 'use "adamw" { lr = 1e-4 }')
eighty = llama(1024, 2816, 80, 16)
cases = {'Llama 2 7B': seven, '80 blocks, no peak': recipe(eighty, 'use "adamw" { lr = 1e-4 }')}
for share in (0.1, 0.5, 0.9):
    cases[f'80 blocks, 200 peaks, {100 * share:.0f} % recomputed'] = recipe(eighty, f'use "peaks" {{ calls = 200, share = {share} }}', 'use "adamw" { lr = 1e-4 }')
ways = {'full': ['use "adamw" { lr = 1e-4 }'], 'lora': ['use "lora" { rank = 8 }', 'use "adamw" { lr = 1e-4 }'], 'recomputed in a budget': ['use "recompute" { budget = "%dMiB" }', 'use "adamw" { lr = 1e-4 }'],
        'lora, bf16, recomputed': ['use "lora" { rank = 8 }', 'use "adamw" { lr = 1e-4 }', 'use "amp" { compute = "bf16" }', 'use "clip" { norm = 1 }', 'use "recompute" {}']}
for layers in (30, 250, 1000):
    for name, uses in ways.items():
        cases[f'{layers} layers, {name}'] = recipe(llama(64, 128, layers, 4), *(x.replace('%d', str(90 + 2 * layers)) for x in uses))
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    for name, text in cases.items():
        if not name.startswith(options.get('only', '')):
            continue
        pathlib.Path('bench.lua').write_text(text)
        plans, seconds = {}, {program: [] for program in programs}
        for turn in range(int(options.get('rounds', 3))):
            for program in programs if turn % 2 == 0 else programs[::-1]:
                begin = os.times().children_user
                said = subprocess.run([program, 'plan', 'bench.lua', '--json', '--target', target, '--plugin-path', binary / 'tests' / 'plugins' / 'peaks'], check=True,
                                      capture_output=True).stdout
                seconds[program].append(os.times().children_user - begin)
                if plans.setdefault(program, what_is_planned(said)) != what_is_planned(said):
                    sys.exit(f'{name}: {program} makes another plan of the same recipe')
        for program in programs:
            other = '' if plans[program] == plans[programs[0]] else f', ANOTHER PLAN: {plans[program]}, not {plans[programs[0]]}'
            print(f'{name:36} {min(seconds[program]):7.2f} s  {program}{other}', flush=True)
