#!/usr/bin/env python3
"""Full fine-tuning of a real model with each optimizer: bytes a parameter, speed, resident memory, and the loss after the same steps. Not a test: it prints the table of
tests/results/optimizers.md.

    GALLEY=build/release/galley tests/bench/optimizers.py MODEL TEXT [steps=60] [length=512] [rounds=2] [only=NAME;NAME]

MODEL is a folder in Hugging Face's format, TEXT a file or a folder. A step has one row of 512 tokens. Learning rates are those that each optimizer's authors suggest for
fine-tuning; nothing was searched. Rounds run all rows in turn, each time from the other end; speeds are medians of the rounds.

Before the table is printed: all rows in F32 begin with the same loss, those in BF16 to 1e-4, and a row has the same losses in every round. tests/bench/pytorch.py has the same work beside
PyTorch.
"""
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

program = str(pathlib.Path(os.environ['GALLEY']).resolve())
options = dict(x.split('=', 1) for x in sys.argv[3:])
folder, text = (pathlib.Path(x).resolve() for x in sys.argv[1:3])
steps, length = int(options.get('steps', 60)), int(options.get('length', 512))
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


def write(path, uses):
    path.write_text(f'return recipe {{ model = model {{ path = "{folder}" }}, data = data.text {{ files = "{text}", tokenizer = "model", validation = 0.05 }}, batch = 1, '
                    f'length = {length}, steps = {steps}, seed = 1, validate = {{ every = {steps}, start = true }}, {", ".join(uses)} }}')


def planned(uses):
    """Bytes a parameter, and GiB."""
    told = json.loads(run(program, 'plan', 'recipe.lua', '--json')[0])
    owners = told['classes']['host']['owners']  # weights and states live as long as the run
    gradients = owners['gradients'] if early in uses else (2 if any('split' in x for x in uses) else 4) * told['trainable']
    return (owners['weights'] + owners.get('states', 0) + gradients) / told['parameters'], told['classes']['host']['planned'] / 2 ** 30


def trained():
    """Tokens/s, GiB, and the losses: of validation, and of each step."""
    shutil.rmtree('run', ignore_errors=True)
    _, resident = run(program, 'train', 'recipe.lua', '--out', 'run')
    lines = [json.loads(x) for x in open('run/metrics.jsonl')]
    speed = length / statistics.median([x['seconds'] for x in lines if 'lr' in x][2:])
    return speed, resident, [x['validation_loss'] for x in lines if 'validation_loss' in x], [x['loss'] for x in lines if 'loss' in x]


def check_losses(rows):
    """{row: what trained() said in each round}. Ends this script where two did not compute the same."""
    for name, rounds in rows.items():
        if any(x[2:] != rounds[0][2:] for x in rounds):
            sys.exit(f'{name}: losses are others from round to round: {[x[2:] for x in rounds]}')
    for in_bf16, bound in ((False, 0), (True, 1e-4)):  # split-states rounds the weights in a way of its own
        begins = {name: rounds[0][2][0] for name, rounds in rows.items() if name.endswith('bf16') == in_bf16}
        if begins and max(begins.values()) - min(begins.values()) > bound * max(begins.values()):
            sys.exit(f'before the first step, rows have other losses: {begins}')


chosen = {name: uses for name, uses in recipes.items() if name in options.get('only', name).split(';')}
rows = {name: [] for name in chosen}
with tempfile.TemporaryDirectory() as scratch:
    os.chdir(scratch)
    for turn in range(int(options.get('rounds', 2))):
        for name in list(chosen) if turn % 2 == 0 else list(chosen)[::-1]:
            write(pathlib.Path('recipe.lua'), chosen[name])
            rows[name].append(trained())
    check_losses(rows)
    print('| | bytes a parameter | tokens/s | by round | resident, GiB | planned, GiB | loss before | after |\n|' + '---|' * 8)
    for name, uses in chosen.items():
        write(pathlib.Path('recipe.lua'), uses)
        kept, gib = planned(uses)
        speeds, residents, (losses, *_), _ = zip(*rows[name])
        by_round = ', '.join(f'{x:.0f}' for x in speeds)
        print(f'| {name} | {kept:.2f} | {statistics.median(speeds):.0f} | {by_round} | {max(residents):.2f} | {gib:.2f} | {losses[0]:.4f} | {losses[-1]:.4f} |')
