#!/usr/bin/env python3
"""Full fine-tuning of a real model with each optimizer: bytes a parameter, speed, resident memory, and the loss after the same steps. Not a test: it prints the table of
tests/results/optimizers.md.

    GALLEY=build/release/galley tests/bench/optimizers.py MODEL TEXT [steps=60] [only=NAME,NAME] [peer='PYTHON peft_step.py']

MODEL is a folder in Hugging Face's format, TEXT a file or a folder. A step has one row of 512 tokens. Learning rates are those that each optimizer's authors suggest for
fine-tuning; nothing was searched. `peer` is a program that takes MODEL, full, 1, 512, steps and bf16, and prints its own tokens/s and memory.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

program = str(pathlib.Path(os.environ['GALLEY']).resolve())
options = dict(x.split('=', 1) for x in sys.argv[3:])
folder, text, steps = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(), int(options.get('steps', 60))
amp, adamw = 'use "amp" { compute = "bf16" }', 'use "adamw" { lr = 2e-5, weight_decay = 0.1 }'
clip, early = 'use "clip" { norm = 1.0 }', 'use "update-in-backward" {}'
recipes = {
    'adamw': [clip, adamw],
    'adamw8bit': [clip, adamw.replace('adamw', 'adamw8bit')],
    'lion': [clip, 'use "lion" { lr = 4e-6, weight_decay = 0.5 }'],
    'lion8bit': [clip, 'use "lion8bit" { lr = 4e-6, weight_decay = 0.5 }'],
    'adafactor': [clip, 'use "adafactor" { lr = 2e-5, relative_step = false, scale_parameter = false }'],
    'muon': [clip, 'use "muon" { lr = 2e-5, adjust = "match_rms_adamw" }'],
    'sgd': [clip, 'use "sgd" { lr = 0.1 }'],
    'adamw, update-in-backward': [early, adamw],
    'adamw8bit, update-in-backward': [early, adamw.replace('adamw', 'adamw8bit')],
    'adafactor, update-in-backward': [early, 'use "adafactor" { lr = 2e-5, relative_step = false, scale_parameter = false }'],
    'adamw, bf16': [amp, clip, adamw],
    'adamw8bit, bf16': [amp, clip, adamw.replace('adamw', 'adamw8bit')],
    'split-states, bf16': [amp, clip, 'use "split-states" {}', adamw],
    'split-states, update-in-backward, bf16': [amp, early, 'use "split-states" {}', adamw],
    'split-states, update-in-backward, recompute, bf16': [amp, early, 'use "recompute" { every = 1 }', 'use "split-states" {}', adamw],
}


def run(*words):
    """What it printed, and the peak of its resident memory in GiB."""
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(list(map(str, words)), stdout=out, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        said = out.read().decode()
    if child.returncode:
        sys.exit(said[-2000:])
    return said, usage.ru_maxrss / 2 ** 20


print('| | bytes a parameter | tokens/s | resident, GiB | planned, GiB | loss before | after |\n|---|---|---|---|---|---|---|', flush=True)
with tempfile.TemporaryDirectory() as scratch:
    os.chdir(scratch)
    for name, uses in recipes.items():
        if name not in options.get('only', name).split(';'):
            continue
        path = pathlib.Path('recipe.lua')
        path.write_text(f'return recipe {{ model = model {{ path = "{folder}" }}, data = data.text {{ files = "{text}", tokenizer = "model", validation = 0.05 }}, batch = 1, '
                        f'length = 512, steps = {steps}, seed = 1, validate = {{ every = {steps}, start = true }}, {", ".join(uses)} }}')
        told = json.loads(run(program, 'plan', path, '--json')[0])
        owners = told['classes']['host']['owners']  # weights and states live as long as the run
        gradients = owners['gradients'] if early in uses else (2 if any('split' in x for x in uses) else 4) * told['trainable']
        subprocess.run(['rm', '-rf', 'run'])
        _, resident = run(program, 'train', path, '--out', 'run')
        lines = [json.loads(x) for x in open('run/metrics.jsonl')]
        speed = 512 / statistics.median([x['seconds'] for x in lines if 'lr' in x][2:])
        losses = [x['validation_loss'] for x in lines if 'validation_loss' in x]
        kept = (owners['weights'] + owners.get('states', 0) + gradients) / told['parameters']
        print(f'| {name} | {kept:.2f} | {speed:.0f} | {resident:.2f} | {told["classes"]["host"]["planned"] / 2 ** 30:.2f} | {losses[0]:.4f} | {losses[-1]:.4f} |', flush=True)
    for dtype in ('', 'bf16') if 'peer' in options else ():
        said, resident = run(*options['peer'].split(), folder, 'full', 1, 512, 8, *dtype.split())
        print(f'peer {dtype or "fp32"}: {said.splitlines()[-1]}; resident {resident:.2f} GiB', flush=True)
