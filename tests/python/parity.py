#!/usr/bin/env python3
"""Models and adapters against PyTorch and PEFT: loss, logits, every gradient, and the first steps of AdamW.

The cases are in tests/fixtures/models and tests/fixtures/lora; GALLEY_TEST_CASES names another folder with those two in it.
"""
import json
import math
import os
import pathlib

from galley_test import batch_of, check, error, finish, fixtures, fresh_folder, from_folder, gradients, load, norm, recipe, together, train, use

cases = pathlib.Path(os.environ.get('GALLEY_TEST_CASES', fixtures)).resolve()
fresh_folder()


def check_gradients(case, computed, expected, floor):
    for name, (_, shape, numbers) in expected.items():
        if not check(name in computed, f'{case}: {name} is missing'):
            continue
        check(computed[name][1] == shape, f'{case}: {name} has shape {computed[name][1]}, not {shape}')
        e = error(computed[name][2], numbers, floor)
        check(e <= 1e-5, f'{case}: {name} is off by {e:.1e}')
    for name in sorted(set(computed) - set(expected)):
        check(False, f'{case}: {name} has a gradient, but is frozen')


def check_loss(case, computed, expected):
    check(computed[0] == 'F64' and computed[1] in ([], [1]), f'{case}: loss is {computed[0]} of shape {computed[1]}, not one F64')
    e = error(computed[2], [expected])
    check(e <= 1e-6, f'{case}: loss is off by {e:.1e}')


def check_steps(case, run, expected, bound):
    check(len(run.steps) == len(expected), f'{case}: {len(run.steps)} steps, not {len(expected)}')
    for i, ((loss, _), want) in enumerate(together(run.steps, expected)):
        e = error([loss], [want])
        check(e <= bound, f'{case}: AdamW: the loss of step {i + 1} is off by {e:.1e}')
    run.check_memory(case)


def starting_with(tensors, prefix):
    return {k: v for k, v in tensors.items() if k.startswith(prefix)}


def seen(folder, logits):
    """Those of positions that are no padding: what a model computes for padding differs, and counts nowhere."""
    mask = load(folder / 'batch.safetensors').get('attention_mask')
    _, shape, numbers = logits
    if not mask or mask[1] != shape[:-1]:
        return numbers
    return [x for i, x in enumerate(numbers) if mask[2][i // shape[-1]]]


def model_case(folder):
    case = folder.name
    expect = json.loads((folder / 'expect.json').read_text())
    expected = load(folder / 'expect.safetensors')
    adamw = expect['adamw']
    path = recipe(f'{case}.lua', from_folder(folder), batch_of(folder / 'batch.safetensors'), use('clip', norm=adamw['clip']),
                  use('adamw', lr=adamw['lr'], betas=adamw['betas'], eps=adamw['eps'], weight_decay=adamw['weight_decay'], decay_on='all'),
                  steps=len(adamw['losses']))
    computed = gradients(path, f'{case}.safetensors', '--logits')
    check_loss(case, computed['loss'], expect['loss'])
    check(computed['logits'][1] == expected['logits'][1], f'{case}: logits have shape {computed["logits"][1]}')
    e = error(seen(folder, computed['logits']), seen(folder, expected['logits']))
    check(e <= 1e-5, f'{case}: logits are off by {e:.1e}')
    check_gradients(case, starting_with(computed, 'grad.'), starting_with(expected, 'grad.'), 1e-3 * expect['grad_norm'])
    run = train(path, case)
    check_steps(case, run, adamw['losses'], 1e-5)
    e = error([run.steps[0][1]], [expect['grad_norm']])
    check(e <= 1e-5, f'{case}: grad_norm of step 1 is off by {e:.1e}')


def peft_name(name):
    return name.replace('.default', '').replace('lora_magnitude_vector.weight', 'lora_magnitude_vector')


def adapter_case(folder):
    case = 'lora/' + folder.name
    expect = json.loads((folder / 'expect.json').read_text())
    expected = {peft_name(k): v for k, v in load(folder / 'expect.safetensors').items()}
    adamw = expect['adamw']
    on = folder.parent / expect['on'] if 'on' in expect else folder
    kind = json.loads((folder / 'adapter' / 'adapter_config.json').read_text())['peft_type'].lower()
    base = on / 'base' if (on / 'base').exists() else on
    path = recipe(f'lora-{folder.name}.lua', from_folder(base), batch_of(on / 'batch.safetensors'), use(kind, path=folder / 'adapter'),
                  use('adamw', lr=adamw['lr'], betas=adamw['betas'], weight_decay=adamw['weight_decay']), steps=len(adamw['losses']))
    computed = {peft_name(k): v for k, v in gradients(path, f'lora-{folder.name}.safetensors', '--logits').items()}
    check_loss(case, computed['loss'], expect['loss'])
    e = error(seen(on, computed['logits']), seen(on, expected['logits']))
    check(e <= 1e-5, f'{case}: logits are off by {e:.1e}')
    wanted = starting_with(expected, 'grad.')
    total = math.sqrt(math.fsum(norm(x[2]) ** 2 for x in wanted.values()))
    check_gradients(case, starting_with(computed, 'grad.'), wanted, 1e-3 * total)
    check_steps(case, train(path, 'lora-' + folder.name), adamw['losses'], 1e-4)


# The cases of this repository are counted, so that none gets lost; one more is one more here.
for kind, one_case, known in (('models', model_case, 48), ('lora', adapter_case, 30)):
    folders = sorted(x for x in (cases / kind).iterdir() if (x / 'expect.json').exists())
    check(len(folders) == known if cases == fixtures else folders, f'{cases / kind} has {len(folders)} cases, not {known}')
    for folder in folders:
        one_case(folder)
        print(f'{kind}/{folder.name}', flush=True)
finish()
