#!/usr/bin/env python3
"""`galley fit` plans on all threads, and each plan asks the device and its kernels: over an emulated GPU, every thread gets what one gets."""
import os
import pathlib

from galley_test import binary, case, check, finish, fresh_folder, from_config, plan, run

fresh_folder()
os.environ['GALLEY_EMULATED_FREE'] = str(1 << 30)
device = ['--device', 'cuda-emulated', '--plugin-path', binary / 'emulated']
model = from_config('llama', vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, tie_word_embeddings=True)
pathlib.Path('r.lua').write_text(f'''return recipe {{
  model = {model},
  data = data.random {{}}, length = 32, steps = 2,
  batch = one_of {{ 4, 2, 1 }},
  one_of {{ use "amp" {{ compute = "bf16" }}, false }},
  one_of {{ false, use "quantize-nf4" {{}} }},
  use "lora" {{ rank = 4, targets = "all-linear" }},
  one_of {{ use "adamw8bit" {{ lr = 1e-3, min_size = 64 }}, use "adamw" {{ lr = 1e-3 }} }},
}}
''')


@case
def threads_agree():
    alone = run('fit', 'r.lua', *device, '--memory', '1GiB', '--all', threads=1).stdout
    check(alone.count('adamw') >= 24, f'24 combinations: {alone}')
    for _ in range(3):
        together = run('fit', 'r.lua', *device, '--memory', '1GiB', '--all', threads=8).stdout
        check(together == alone, f'on eight threads: {together}\non one: {alone}')


@case
def plans_are_those_of_plan():
    said = run('fit', 'r.lua', *device, '--memory', '1GiB', '--write', 'chosen.lua', threads=8).stdout
    planned = plan('chosen.lua', *device)['classes']['device']['planned']
    check(f'{planned} bytes' in said or f'{planned / 2**20:.2f} MiB' in said, f'{planned} is not in: {said}')


finish()
