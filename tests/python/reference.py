#!/usr/bin/env python3
"""Every program against the references of its ops: all strategies that go together at once, so that each pair is there, on models of two families, in each
segment; half of the optimizers with each commit, each in one dtype, all in every dtype in reference_all.py, which also has every pair and triple by itself."""
import pathlib
import shutil

from galley_test import binary, check, finish, fresh_folder, from_config, recipe, run, turn, use

fresh_folder()
from reference_kit import (all_at_once, command, computes, data, discrete, dropout, everything, gpu, models, optimizers, others, planned, rests,  # noqa: E402
                           segments, table, uses)

families = ('gpt2', 'llama')
this = turn(2 * len(computes))
for k, optimizer in enumerate(optimizers):
    if this is not None and k % 2 != this // len(computes):
        continue
    group = [optimizer]
    for name in others:
        if planned(group + [name]):
            group.append(name)
    for c, compute in enumerate(computes):
        if this is not None and (k + c) % len(computes) != this % len(computes):
            continue
        everything(group, families[(k + c) % 2], compute)
    # What does not go with all of these goes with some of them.
    for name in (x for x in others if x not in group and planned([optimizer, x])):
        some = [optimizer, name]
        for other in others:
            if other not in some and planned(some + [other]):
                some.append(other)
        check(len(some) > 3, f'{optimizer}: only {some} go together')
        everything(some, families[k % 2], computes[k % 2])
everything(optimizers[:1], 'qwen2', 'fp32')

for device in (discrete, gpu):
    everything(['adamw', 'lora'], 'llama', 'bf16', uses=[dropout], **device)
    everything([*all_at_once, 'lora'], 'gpt2', 'fp16', **device)
    everything(['adamw', 'recompute', 'quantize-nf4'], 'mistral', 'bf16', **device)
everything(all_at_once, 'gpt2', 'fp32', uses=rests('file'), **discrete)

# A text whose rows are the same: sums of equal numbers are rounded in one direction.
pathlib.Path('lines.txt').write_text(''.join(f'// ---- {name} {"-" * 120}\n\nint {name}();\n' for name in ('shapes', 'gradients', 'kernels', 'strategies') * 6))
for seed in (1, 2, 3):
    path = recipe(f'lines-{seed}.lua', from_config('llama', vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4),
                  'data.text { files = { "lines.txt" }, tokenizer = "bytes" }', use('adamw', lr=3e-3), batch=4, length=64, steps=3, seed=seed)
    said = run('train', path, '--out', f'lines-{seed}', '--reference')
    check('are right; the largest error is 0.' in said.stdout + said.stderr, f'{said}')
everything(['adamw8bit', 'accumulate'], 'llama', 'bf16', uses=rests('pinned'), **discrete)

# A run that goes on, and one that is merged.
label = everything([optimizers[0], 'lora'], 'mistral', 'bf16', save=dict(every=1, keep=2))
newest = sorted(pathlib.Path(label, 'state').iterdir())[-1]
shutil.rmtree(newest)
shutil.rmtree(pathlib.Path(label, 'adapter'))
command(label, 'resume', label)

# Kernels of a plugin from outside that are wrong: in training, and only where nothing is trained. Nothing else says so.
wrong = ('--plugin-path', binary / 'tests' / 'plugins' / 'wrong-kernels')
for family, says in (('llama', ['micro, instruction', "kernel 'rms_norm.wrong'", "plugin 'wrong-kernels'", "writes 'model.layers.0.", "the reference of op 'rms_norm'"]),
                     ('gpt2', ['eval, instruction', "kernel 'gelu.wrong'", "plugin 'wrong-kernels'", "the reference of op 'gelu'"])):
    path = recipe(f'wrong-{family}.lua', models[family], data, uses['adamw'], batch=2, length=12, steps=1, seed=9, validate=dict(every=1), kernels=['wrong-kernels'])
    run('train', path, '--out', f'wrong-{family}', '--set', 'text=text.txt', *wrong)
    for words in (['eval', f'wrong-{family}'], ['train', path, '--out', f'wrong-{family}-again', '--set', 'text=text.txt']):
        said = run(*words, *wrong, '--reference', code=4).stderr
        for part in says if words[0] == 'train' else says[1:]:
            check(part in said, f'{family}, {words[0]}: {part!r} is not in: {said}')

for segment in ('load', 'refresh', 'window', 'micro', 'update', 'eval', 'sample', 'frozen', 'trained'):
    check(segments[segment] > 0, f'no instruction of {segment} was compared')
table()
finish()
