#!/usr/bin/env python3
"""The step of a LoRA adapter beside weights in each format, and of optimizers with states in formats: medians of interleaved runs. Not a test: it prints tables of
tests/results/quantization.md.

    GALLEY=build/release/galley tests/bench/coded_steps.py [before=PROGRAM] [plugins=DIR] [rounds=8] [only=NAME;NAME]

With `before`, each recipe is run by both programs in turn. `plugins` is searched for plugins as well: the six-bit format of tests/plugins, built outside.
"""
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

options = dict(x.split('=', 1) for x in sys.argv[1:])
programs = {'now': str(pathlib.Path(os.environ['GALLEY']).resolve())}
if 'before' in options:
    programs = {'before': str(pathlib.Path(options['before']).resolve()), **programs}
plugins = ['--plugin-path', str(pathlib.Path(options['plugins']).resolve())] if 'plugins' in options else []
lora, adamw = 'use "lora" { rank = 8, targets = "all-linear" }', 'use "adamw" { lr = 1e-3 }'
recipes = {
    'F32': [adamw], 'NF4': ['use "quantize-nf4" {}', lora, adamw], 'NF4, double, in BF16': ['use "quantize-nf4" { double = true }', 'use "amp" {}', lora, adamw],
    'int8': ['use "quantize-int8" {}', lora, adamw], '8-bit AdamW': ['use "adamw8bit" { lr = 1e-3 }'],
    'split states, in BF16': [adamw, 'use "split-states" {}', 'use "amp" {}'],
}
if plugins:
    recipes |= {'six bits': ['use "six-bit" {}', lora, adamw], 'six bits, in BF16': ['use "six-bit" {}', 'use "amp" {}', lora, adamw]}
recipes = {name: uses for name, uses in recipes.items() if name in options.get('only', name).split(';')}
model = '''model { family = "llama", config = { vocab_size = 4096, hidden_size = 768, intermediate_size = 2048, num_hidden_layers = 4, num_attention_heads = 12,
    num_key_value_heads = 4, max_position_embeddings = 256 } }'''

seconds = {}
with tempfile.TemporaryDirectory() as scratch:
    os.chdir(scratch)
    for name, uses in recipes.items():
        pathlib.Path(f'{name}.lua').write_text(f'return recipe {{ model = {model}, data = data.random {{}}, batch = 4, length = 128, steps = 7, seed = 3, {", ".join(uses)} }}')
    for _ in range(int(options.get('rounds', 8))):
        for name in recipes:
            for which, program in programs.items():
                shutil.rmtree('run', ignore_errors=True)
                done = subprocess.run([program, 'train', f'{name}.lua', '--out', 'run', *plugins], capture_output=True, text=True)
                if done.returncode:
                    sys.exit(done.stderr)
                steps = [x['seconds'] for x in map(json.loads, open('run/metrics.jsonl')) if 'loss' in x][2:]
                seconds.setdefault((name, which), []).append(statistics.median(steps))
print('| recipe |' + ''.join(f' {which}, ms |' for which in programs) + '\n|---|' + '---|' * len(programs))
for name in recipes:
    print(f'| {name} |' + ''.join(f' {1000 * statistics.median(seconds[name, which]):.1f} |' for which in programs))
