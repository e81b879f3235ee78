#!/usr/bin/env python3
"""How long `galley fit` takes: 500 plans of Llama-3.2-1B, and 50 of them with a budget of recomputation, which asks for the peaks of many plans each.

Usage: tests/bench/fit_plans.py GALLEY [TARGET=rtx4090]
Prints seconds, and seconds of processor time, of all threads. That so many combinations were planned is checked before.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

galley, target = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2] if len(sys.argv) > 2 else 'rtx4090'
model = pathlib.Path(__file__).resolve().parents[2] / 'docs' / 'fits' / 'Llama-3.2-1B'
budgets = ', '.join(f'use "recompute" {{ budget = "{size}GiB" }}' for size in (6, 9, 21, 22, 23))
loras = ', '.join(f'use "lora" {{ rank = {rank}, targets = "all-linear" }}' for rank in (8, 16, 32, 64))
cases = {
    '500 plans': f'''
  length = one_of {{ 512, 1024, 2048, 4096, 8192 }},
  one_of {{ use "amp" {{ compute = "bf16" }}, false }},
  one_of {{ {loras}, false }},
  one_of {{ use "recompute" {{}}, false }},
''',
    '50 plans with a budget of recomputation': f'''
  length = 2048,
  use "amp" {{ compute = "bf16" }},
  one_of {{ use "lora" {{ rank = 16, targets = "all-linear" }}, false }},
  one_of {{ {budgets} }},
'''}
with tempfile.TemporaryDirectory() as folder:
    for name, entries in cases.items():
        recipe = pathlib.Path(folder) / 'fit.lua'
        recipe.write_text(f'''return recipe {{
  model = model {{ path = "{model}", init = "random" }}, data = data.random {{}}, steps = 10,
  batch = one_of {{ 1, 2, 4, 8, 16 }},{entries}  use "adamw" {{ lr = 1e-4 }},
}}
''')
        begin, used = time.monotonic(), os.times().children_user
        said = subprocess.run([galley, 'fit', recipe, '--memory', '24GiB', '--target', target, '--device', 'cuda'], check=True, capture_output=True, text=True).stdout
        seconds, processor = time.monotonic() - begin, os.times().children_user - used
        combinations = next((x for x in said.splitlines() if 'combinations:' in x), '?').split()[0]
        if combinations != name.split()[0]:
            sys.exit(f'{name}: {combinations} combinations were planned\n{said}')
        print(f'{name} : {seconds:.1f} s, {processor:.1f} s of processor time')
