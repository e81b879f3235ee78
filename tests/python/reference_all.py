#!/usr/bin/env python3
# label: all
"""Every pair of strategies, and every triple with amp and lora, against the references of their ops, in each dtype and on models of each family; seeds; devices whose
memory the host cannot touch; all of reference.py. `reference_all.py --devices` has only the devices."""
import os
import pathlib
import subprocess
import sys

from galley_test import check, finish, fresh_folder, in_slice, sliced, use

fresh_folder()
from reference_kit import (all_at_once, computes, discrete, dropout, everything, gpu, models, on, optimizers, pairs, planned, rests, table)  # noqa: E402

families = list(models)
done = set()
number = 0
for names in pairs() if '--devices' not in sys.argv else ():
    for compute in computes:
        if not in_slice():
            continue
        sets = [names]
        if 'lora' not in names and compute != 'fp32' and planned(names + ['lora']):
            sets.append(names + ['lora'])
        for chosen in sets:
            key = (frozenset(chosen) - {'amp'}, compute)
            if key in done:
                continue
            done.add(key)
            if compute == 'fp16' and not planned(chosen, compute):  # a scale on the loss reads all gradients
                continue
            for family in families if '--families' in sys.argv else [families[number % len(families)]]:
                everything(chosen, family, compute, counted=True)
            number += 1
for seed in range(100, 110) if '--devices' not in sys.argv else ():
    for compute in computes:
        everything([optimizers[seed % len(optimizers)], 'lora'], families[seed % len(families)], compute, seed=seed)

for device in (discrete, gpu):
    for family in families:
        for compute in computes:
            everything(['adamw'], family, compute, **device)
            everything([*all_at_once, 'lora'], family, compute, uses=[dropout], **device)
            everything(['sgd', 'freeze', 'accumulate', 'recompute'], family, compute, **device)
    everything(['adamw'], 'llama', 'fp32', uses=[use('amp', compute='tf32')], **{**device, 'where': f'tf32-{device["where"]}'})
    everything(['adamw'], 'llama', 'bf16', uses=[use('amp', compute='bf16', weights='bf16')], **{**device, 'where': f'weights-{device["where"]}'})
# What rests elsewhere; what is stored in formats.
for memory in ('pinned', 'file'):
    *placed, saved = rests(memory)
    for family, compute in (('gpt2', 'fp32'), ('llama', 'bf16'), ('qwen2', 'fp16')):
        everything(all_at_once, family, compute, uses=placed, **{**discrete, 'where': f'states-{memory}'})
        everything(['adamw'], family, compute, uses=[saved], **{**discrete, 'where': f'saved-{memory}'})
        everything([*all_at_once, 'lora'], family, compute, uses=[*placed, saved, dropout], **{**discrete, 'where': f'both-{memory}'})
brain = use('bf16-storage', parameters=['*.c_fc.weight', '*.down_proj.weight'], states=['*'])  # it unpacks to F32 only
for device in (on('cpu', 'bf16-storage'), on('discrete', 'discrete', 'bf16-storage')):
    for family in ('gpt2', 'llama'):
        everything(['adamw', 'clip'], family, 'fp32', uses=[brain], **{**device, 'where': f'brain-{device["where"]}'})
table()
if not sliced:
    r = subprocess.run([pathlib.Path(__file__).with_name('reference.py')], capture_output=True, text=True, env=dict(os.environ, GALLEY_TEST_ALL='1'))
    check(r.returncode == 0, f'reference.py: {r.stdout[-4000:]}{r.stderr[-2000:]}')
finish()
