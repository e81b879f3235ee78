#!/usr/bin/env python3
"""The gradients of a batch that processes share, against those that PyTorch computed of the whole batch (tests/fixtures/models): a step of SGD with a rate of 1 leaves them in
the weights. Each process has a row of it."""
import json

from galley_test import batch_of, case, cases, check, error, finish, fixtures, fresh_folder, from_folder, load, norm, recipe, use
from ranks_kit import train_with

fresh_folder()
FOLDERS = [f for f in sorted((fixtures / 'models').iterdir()) if (f / 'expect.json').exists()]


def rows_of(folder):
    return next(iter(load(folder / 'batch.safetensors').values()))[1][0]


@cases([f.name for f in FOLDERS if rows_of(f) in (2, 3, 4)], turns=8)
def gradients_of_the_whole_batch(name):
    folder = fixtures / 'models' / name
    expect, expected = json.loads((folder / 'expect.json').read_text()), load(folder / 'expect.safetensors')
    n = rows_of(folder)
    rate = 1024.0  # so that little of a gradient is rounded away when it is subtracted
    path = recipe(f'{name}.lua', from_folder(folder), batch_of(folder / 'batch.safetensors'), use('accumulate', steps=n), use('sgd', lr=rate), batch=1, steps=1)
    made = train_with(n, path, name)
    loss, grad_norm = made.steps[0]
    check(error([loss], [expect['loss']]) <= 1e-6, f'{name}: the loss is {loss}, not {expect["loss"]}')
    check(error([grad_norm], [expect['grad_norm']]) <= 1e-6, f'{name}: the norm is {grad_norm}, not {expect["grad_norm"]}')
    before, after, found = load(folder / 'model.safetensors'), load(made.path / 'model/model.safetensors'), 0
    for key, (_, _, gradient) in expected.items():
        weight = key.removeprefix('grad.')
        was = before.get(weight) or before.get(weight.partition('.')[2])  # a file of the model without its head has shorter names
        if not key.startswith('grad.') or not was or weight not in after:
            continue
        found += 1
        moved = [(a - b) / rate for a, b in zip(was[2], after[weight][2], strict=True)]
        # That of a key's bias is 0, and what both have of it is rounding.
        far = error(moved, gradient, (1 if weight.endswith(('k_proj.bias', 'k_lin.bias', 'key.bias')) else 1e-3) * expect['grad_norm'])
        check(far <= 1e-6, f'{name}: {weight} is off by {far:.1e}')
    check(found > 5, f'{name}: {found} gradients were compared')


finish(turns=8)
