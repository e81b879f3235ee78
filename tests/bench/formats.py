#!/usr/bin/env python3
"""A LoRA adapter beside a real model's weights in each format: bytes of the weights, and the loss before and after the same steps. Not a test: it prints the table of
tests/results/quantization.md.

    GALLEY=build/release/galley tests/bench/formats.py MODEL TEXT [steps=30] [batch=2] [length=256] [rate=3e-4] [only=NAME;NAME]

MODEL is a folder in Hugging Face's format, TEXT a file or a folder. All rows see the same tokens in the same order, and adapters begin with the same numbers.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

program = str(pathlib.Path(os.environ['GALLEY']).resolve())
options = dict(x.split('=', 1) for x in sys.argv[3:])
folder, text = (pathlib.Path(x).resolve() for x in sys.argv[1:3])
steps, batch, length = (int(options.get(k, v)) for k, v in (('steps', 30), ('batch', 2), ('length', 256)))
amp = 'use "amp" { compute = "bf16" }'
formats = {
    'F32': [],
    'BF16, computed in BF16': [amp],
    'int8': ['use "quantize-int8" {}'],
    'LLM.int8()': ['use "quantize-llm-int8" {}'],
    'NF4': ['use "quantize-nf4" {}'],
    'NF4, double': ['use "quantize-nf4" { double = true }'],
    'NF4, double, computed in BF16': [amp, 'use "quantize-nf4" { double = true }'],
    'NF4, LoftQ': ['use "quantize-nf4" {}'],
    'FP4': ['use "quantize-nf4" { type = "fp4" }'],
}


def run(*words):
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr or done.stdout)
    return done.stdout


print('| weights of linear layers | MiB of them | of all weights | loss before | after | fallen by |\n|---|---|---|---|---|---|', flush=True)
with tempfile.TemporaryDirectory() as scratch:
    os.chdir(scratch)
    for name, uses in formats.items():
        if name not in options.get('only', name).split(';'):
            continue
        init = ', init = "loftq"' if 'LoftQ' in name else ''
        path = pathlib.Path('recipe.lua')
        path.write_text(f'return recipe {{ model = model {{ path = "{folder}" }}, data = data.text {{ files = "{text}", tokenizer = "model", validation = 0.1 }}, batch = {batch}, '
                        f'length = {length}, steps = {steps}, seed = 1, validate = {{ every = {steps}, start = true }}, {"".join(x + ", " for x in uses)}'
                        f'use "lora" {{ rank = 16, alpha = {16 if init else 32}{init} }}, use "clip" {{ norm = 1.0 }}, '
                        f'use "adamw" {{ lr = linear {{ peak = {options.get("rate", "3e-4")}, warmup = 3 }}, weight_decay = 0.0 }} }}')
        weights = [(int(b) - int(a), tensor) for a, b, tensor in
                   re.findall(r'^0 \[(\d+), (\d+)\) moments \S+ to \S+ (\S+) .* weights run', run('plan', path, '--dump', 'plan'), re.M) if 'lora_' not in tensor]
        linear = sum(n for n, tensor in weights if re.search(r'proj\.weight|attn\.weight|fc\.weight', tensor))
        shutil.rmtree('run', ignore_errors=True)
        run('train', path, '--out', 'run')
        before, *_, after = [x['validation_loss'] for x in map(json.loads, open('run/metrics.jsonl')) if 'validation_loss' in x]
        print(f'| {name} | {linear / 2 ** 20:.1f} | {sum(n for n, _ in weights) / 2 ** 20:.1f} | {before:.4f} | {after:.4f} | {before - after:.4f} |', flush=True)
