#!/usr/bin/env python3
"""Mixed precision from outside: how far gradients are from those of float64, what memory it takes, what resuming gives, and what the loss scale does when
gradients overflow. GALLEY_TEST_CASES names another folder of model cases; `--table` prints the deviation of every gradient."""
import functools
import json
import os
import pathlib
import shutil
import sys

from galley_test import (batch_of, binary, case, cases, check, every, finish, fixtures, fresh_folder, from_config, from_folder, gradients, load, norm, plan, recipe, run,
                         together, use)
from steps_kit import recipes, refused, trained

folder = pathlib.Path(os.environ.get('GALLEY_TEST_CASES', fixtures)).resolve() / 'models'
overflow = ['--plugin-path', binary / 'tests' / 'plugins' / 'overflow']
fresh_folder()

adamw = use('adamw', lr=1e-3)
config = dict(n_layer=2, n_embd=64, n_head=4, n_positions=32, vocab_size=96, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
tiny = recipes(from_config('gpt2', **config), 'data.random { }', batch=2, length=16, seed=3)


# ---- How far gradients are from those of float64 -------------------------------------------------------------------------------------------------
def deviation(model, compute):
    """Of the whole gradient, and of each tensor: the norm of the difference over the norm."""
    expected = {k: v for k, v in load(model / 'expect.safetensors').items() if k.startswith('grad.')}
    path = recipe(f'{model.name}-{compute}.lua', from_folder(model), batch_of(model / 'batch.safetensors'), use('amp', compute=compute), adamw, steps=1)
    computed = gradients(path, f'{model.name}-{compute}.safetensors')
    apart, size, table = [], [], []
    for name, (_, _, numbers) in expected.items():
        difference = [a - b for a, b in together(computed[name][2], numbers)]
        apart += difference
        size += list(numbers)
        table.append((norm(difference) / max(norm(numbers), 1e-300), name))
    expect = json.loads((model / 'expect.json').read_text())
    check(abs(computed['loss'][2][0] - expect['loss']) <= 2e-2 * expect['loss'], f'the loss is {computed["loss"][2][0]}')
    return norm(apart) / norm(size), table


MODELS = [x for x in sorted(folder.iterdir()) if (x / 'expect.json').exists() and x.name.startswith(('gpt2', 'llama', 'mistral', 'qwen'))]


@case
def models_are_there():
    check(len(MODELS) >= 12 or 'GALLEY_TEST_CASES' in os.environ and MODELS, f'{len(MODELS)} models')


@cases({f'{model.name}-{compute}': (model, compute) for model in MODELS for compute in ('bf16', 'fp16')})
def precision(_, what):
    model, compute = what
    far, table = deviation(model, compute)
    least, most = (1e-4, 3e-2) if compute == 'bf16' else (1e-5, 5e-3)
    print(f'{model.name:20} {compute}  whole gradient {far:.2e}', flush=True)
    if '--table' in sys.argv:
        for error, name in table:
            print(f'    {error:.2e}  {name}')
    check(least < far < most, f'the gradient is {far:.2e} from that of float64')


# ---- Memory ----------------------------------------------------------------------------------------------------------------------------------------
MODES = (None, 'master', 'cast-on-use', 'bf16')
of_memory = recipes(from_config('gpt2', **dict(config, n_embd=256, vocab_size=512)), 'data.random { }', batch=16, length=32, steps=2, save=dict(every=0, final=False))


@functools.cache
def plan_of(adapter, mode):
    """A plan, which a run has kept to."""
    name = f'memory-{adapter}-{mode}'
    path = of_memory(name, *([use('lora', rank=4)] if adapter == 'lora' else []), *([use('amp', weights=mode)] if mode else []), adamw)
    trained(path, name)
    return plan(path)


def owners(*which):
    return plan_of(*which)['classes']['host']['owners']


def weights(*which):
    return owners(*which)['weights'] / plan_of(*which)['parameters']


@case
def bytes_a_parameter():
    """A table of them, and of what forward leaves for backward."""
    print(f'bytes a parameter            {"weights":>9}{"gradients":>11}{"states":>9}{"saved":>12} bytes')
    for adapter in ('full', 'lora'):
        for mode in MODES:
            held, parameters = owners(adapter, mode), plan_of(adapter, mode)['parameters']
            print(f'{adapter:6}{str(mode):14}' + '%18.3f%11.3f%9.3f%12d' % (*(held[k] / parameters for k in ('weights', 'gradients', 'states')), held['saved']))
    # Tensors begin on cache lines, and norms and biases are in F32 (in 16 bit too where frozen and read by products).
    for which, expected in ((('full', None), 4), (('full', 'cast-on-use'), 4), (('full', 'bf16'), 2), (('lora', None), 4)):
        check(expected <= weights(*which) < 1.02 * expected, f'{which}: {weights(*which)} bytes of weights a parameter')
    check(5 < weights('full', 'master') < 6.01, f'master: {weights("full", "master")} bytes of weights a parameter')


@cases(MODES[1:])
def bytes_in_16_bit(mode):
    check(weights('lora', mode) < 2.3, f'lora: {weights("lora", mode)} bytes of weights a parameter')
    saved = owners('full', mode)['saved'] / owners('full', None)['saved']
    check(0 < saved <= 0.6, f'what is saved for backward is {saved:.3f} of that in F32')


# ---- The loss scale ----------------------------------------------------------------------------------------------------------------------------------
@case
def scaling():
    """The trace of torch.amp.GradScaler, in a run whose overflows are planted."""
    trace = json.loads((fixtures / 'scaling' / 'grad-scaler.json').read_text())
    bad = [i + 1 for i, x in enumerate(trace['overflow']) if x]
    path = tiny('scaling', use('overflow', steps=bad),
                use('amp', compute='fp16', loss_scale='dynamic', init=trace['init_scale'], growth=trace['growth_factor'], backoff=trace['backoff_factor'],
                    growth_interval=trace['growth_interval']), adamw, length=8, steps=len(trace['overflow']))
    made = trained(path, 'scaling', *overflow)
    check([x['loss_scale'] for x in made.lines] == trace['scale_after'], 'the loss scale takes another way than torch.amp.GradScaler')
    check(bad and [x['step'] for x in made.lines if x.get('skipped')] == bad, 'other steps are skipped than those that overflow')
    check(every((x['grad_norm'] is None) == bool(x.get('skipped')) for x in made.lines), 'an infinite norm is null in the metrics')


@case
def giving_up():
    """A run that only skips ends."""
    path = tiny('gives-up', use('overflow', steps=[3, 4, 5, 6]), use('amp', compute='fp16', max_skips=3), adamw, length=8, steps=9)
    refused(path, 'step 5: amp (gives-up.lua:', '3 steps in a row', command='train', flags=['--out', 'gives-up', *overflow], code=1)


# ---- Resuming ----------------------------------------------------------------------------------------------------------------------------------------
def left_behind(path):
    files = {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob('*')) if p.is_file()}
    lines = [{k: v for k, v in json.loads(x).items() if k != 'seconds'} for x in files.pop('metrics.jsonl').decode().splitlines()]
    return {k: v for k, v in files.items() if k.startswith(('model/', 'adapter/', 'state/'))}, lines


@cases({'master': [use('amp', weights='master')], 'cast-on-use': [use('amp', weights='cast-on-use')], 'bf16': [use('amp', weights='bf16')],
        'fp16': [use('overflow', steps=[2, 5]), use('amp', compute='fp16', init=1024, growth_interval=2)], 'lora': [use('lora', rank=4, dropout=0.1), use('amp')]})
def resuming(name, uses):
    """A run that goes on from its first state, and one that was never interrupted: the same bytes."""
    whole = trained(tiny(f'resume-{name}', *uses, adamw, steps=6, save=dict(every=2, keep=3)), f'whole-{name}', *overflow)
    parts = pathlib.Path(f'parts-{name}')
    shutil.copytree(whole.path, parts)
    for gone in ('state/step-00000004', 'state/step-00000006', 'adapter' if name == 'lora' else 'model'):
        shutil.rmtree(parts / gone)
    run('resume', parts, *overflow)
    check(left_behind(whole.path) == left_behind(parts), 'a run that was resumed leaves something else')


finish(turns=2)
