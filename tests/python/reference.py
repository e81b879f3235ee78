#!/usr/bin/env python3
"""Every program against the references of its ops: all strategies that go together at once, so that each pair is there, in every dtype and on models of two families,
in each segment. reference_all.py has every pair and triple by itself."""
import pathlib
import shutil

from galley_test import check, finish, fresh_folder

fresh_folder()
from reference_kit import (all_at_once, command, computes, discrete, dropout, everything, gpu, optimizers, others, planned, rests, segments,  # noqa: E402
                           table)

families = ('gpt2', 'llama')
for k, optimizer in enumerate(optimizers):
    group = [optimizer]
    for name in others:
        if planned(group + [name]):
            group.append(name)
    check(len(group) > len(others), f'{optimizer}: only {group} go together')
    for c, compute in enumerate(computes):
        everything(group, families[(k + c) % 2], compute)
everything(optimizers[:1], 'qwen2', 'fp32')

for device in (discrete, gpu):
    everything(['adamw', 'lora'], 'llama', 'bf16', uses=[dropout], **device)
    everything([*all_at_once, 'lora'], 'gpt2', 'fp16', **device)
everything(all_at_once, 'gpt2', 'fp32', uses=rests('file'), **discrete)

# A run that goes on, and one that is merged.
label = everything([optimizers[0], 'lora'], 'mistral', 'bf16', save=dict(every=1, keep=2))
newest = sorted(pathlib.Path(label, 'state').iterdir())[-1]
shutil.rmtree(newest)
shutil.rmtree(pathlib.Path(label, 'adapter'))
command(label, 'resume', label)
for segment in ('load', 'refresh', 'window', 'micro', 'update', 'eval', 'sample', 'frozen', 'trained'):
    check(segments[segment] > 0, f'no instruction of {segment} was compared')
table()
finish()
