#!/usr/bin/env python3
"""Mixed precision from outside: how far gradients are from those of float64, what memory it takes, what resuming gives, and what the loss scale does when
gradients overflow. GALLEY_TEST_CASES names another folder of model cases; `--table` prints the deviation of every gradient."""
import json
import os
import pathlib
import shutil
import sys

from galley_test import batch_of, binary, check, every, finish, fixtures, fresh_folder, from_config, from_folder, gradients, load, norm, plan, recipe, run, train, use

cases = pathlib.Path(os.environ.get('GALLEY_TEST_CASES', fixtures)).resolve() / 'models'
plugins = binary / 'tests' / 'plugins'
fresh_folder()

adamw = use('adamw', lr=1e-3)
config = dict(n_layer=2, n_embd=64, n_head=4, n_positions=32, vocab_size=96, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
tiny = from_config('gpt2', **config)


def deviation(case, compute, **options):
    """Of the whole gradient, and of each tensor: the norm of the difference over the norm."""
    expected = {k: v for k, v in load(case / 'expect.safetensors').items() if k.startswith('grad.')}
    path = recipe(f'{case.name}-{compute}.lua', from_folder(case), batch_of(case / 'batch.safetensors'), use('amp', compute=compute, **options), adamw,
                  steps=1)
    computed = gradients(path, f'{case.name}-{compute}.safetensors')
    apart, size, table = [], [], []
    for name, (_, _, numbers) in expected.items():
        difference = [a - b for a, b in zip(computed[name][2], numbers)]
        apart += difference
        size += list(numbers)
        table.append((norm(difference) / max(norm(numbers), 1e-300), name))
    expect = json.loads((case / 'expect.json').read_text())
    check(abs(computed['loss'][2][0] - expect['loss']) <= 2e-2 * expect['loss'], f'{case.name} in {compute}: the loss is {computed["loss"][2][0]}')
    return norm(apart) / norm(size), table


def precision():
    for case in sorted(p for p in cases.iterdir() if (p / 'expect.json').exists() and p.name.startswith(('gpt2', 'llama', 'mistral', 'qwen'))):
        for compute in ('bf16', 'fp16'):
            far, table = deviation(case, compute)
            least, most = (1e-4, 3e-2) if compute == 'bf16' else (1e-5, 5e-3)
            print(f'{case.name:20} {compute}  whole gradient {far:.2e}', flush=True)
            if '--table' in sys.argv:
                for error, name in table:
                    print(f'    {error:.2e}  {name}')
            check(least < far < most, f'{case.name} in {compute}: the gradient is {far:.2e} from that of float64')


def memory():
    """Bytes a parameter, and what forward leaves for backward."""
    shape = from_config('gpt2', **dict(config, n_embd=256, vocab_size=512))
    data = 'data.random { }'
    common = dict(batch=16, length=32, steps=2, save=dict(every=0, final=False))
    lora = use('lora', rank=4)
    made = {}
    for adapter in ('full', 'lora'):
        for mode in (None, 'master', 'cast-on-use', 'bf16'):
            uses = ([lora] if adapter == 'lora' else []) + ([use('amp', weights=mode)] if mode else []) + [adamw]
            made[adapter, mode] = plan(recipe(f'memory-{adapter}-{mode}.lua', shape, data, *uses, **common))
            ran = train(f'memory-{adapter}-{mode}.lua', f'memory-{adapter}-{mode}')
            ran.check_memory(f'{adapter} {mode}')
    print(f'bytes a parameter            {"weights":>9}{"gradients":>11}{"states":>9}{"saved":>12} bytes')
    for (adapter, mode), p in made.items():
        owners, parameters = p['classes']['host']['owners'], p['parameters']
        print(f'{adapter:6}{str(mode):14}' + '%18.3f%11.3f%9.3f%12d' % (*(owners[k] / parameters for k in ('weights', 'gradients', 'states')), owners['saved']))

    def weights(*which):
        return made[which]['classes']['host']['owners']['weights'] / made[which]['parameters']

    # Tensors begin on cache lines, and norms and biases are in F32 (in 16 bit too where frozen and read by products).
    for which, expected in ((('full', None), 4), (('full', 'cast-on-use'), 4), (('full', 'bf16'), 2), (('lora', None), 4)):
        check(expected <= weights(*which) < 1.02 * expected, f'{which}: {weights(*which)} bytes of weights a parameter')
    check(5 < weights('full', 'master') < 6.01, f'master: {weights("full", "master")} bytes of weights a parameter')
    for mode in ('master', 'cast-on-use', 'bf16'):
        check(weights('lora', mode) < 2.3, f'lora {mode}: {weights("lora", mode)} bytes of weights a parameter')
        saved = made['full', mode]['classes']['host']['owners']['saved'] / made['full', None]['classes']['host']['owners']['saved']
        check(saved <= 0.6, f'{mode}: what is saved for backward is {saved:.3f} of that in F32')


def left_behind(folder):
    files = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob('*')) if p.is_file()}
    lines = [{k: v for k, v in json.loads(x).items() if k != 'seconds'} for x in files.pop('metrics.jsonl').decode().splitlines()]
    return {k: v for k, v in files.items() if k.startswith(('model/', 'adapter/', 'state/'))}, lines


def resuming():
    """A run that goes on from its first state, and one that was never interrupted: the same bytes."""
    ways = {'master': [use('amp', weights='master')], 'cast-on-use': [use('amp', weights='cast-on-use')], 'bf16': [use('amp', weights='bf16')],
            'fp16': [use('overflow', steps=[2, 5]), use('amp', compute='fp16', init=1024, growth_interval=2)],
            'lora': [use('lora', rank=4, dropout=0.1), use('amp')]}
    for name, uses in ways.items():
        path = recipe(f'resume-{name}.lua', tiny, 'data.random { }', *uses, adamw, batch=2, length=16, steps=6, seed=3, save=dict(every=2, keep=3))
        whole = train(path, f'whole-{name}', '--plugin-path', plugins / 'overflow')
        parts = pathlib.Path(f'parts-{name}')
        shutil.copytree(whole.path, parts)
        for gone in ('state/step-00000004', 'state/step-00000006', 'model', 'adapter'):
            shutil.rmtree(parts / gone, ignore_errors=True)
        run('resume', parts, '--plugin-path', plugins / 'overflow')
        check(left_behind(whole.path) == left_behind(parts), f'{name}: a run that was resumed leaves something else')


def scaling():
    """The trace of torch.amp.GradScaler, in a run whose overflows are planted."""
    trace = json.loads((fixtures / 'scaling' / 'grad-scaler.json').read_text())
    bad = [i + 1 for i, x in enumerate(trace['overflow']) if x]
    path = recipe('scaling.lua', tiny, 'data.random { }', use('overflow', steps=bad),
                  use('amp', compute='fp16', loss_scale='dynamic', init=trace['init_scale'], growth=trace['growth_factor'], backoff=trace['backoff_factor'],
                      growth_interval=trace['growth_interval']), adamw, batch=2, length=8, steps=len(trace['overflow']))
    ran = train(path, 'scaling', '--plugin-path', plugins / 'overflow')
    check([x['loss_scale'] for x in ran.lines] == trace['scale_after'], 'the loss scale takes another way than torch.amp.GradScaler')
    check([x['step'] for x in ran.lines if x.get('skipped')] == bad, 'other steps are skipped than those that overflow')
    check(every((x['grad_norm'] is None) == bool(x.get('skipped')) for x in ran.lines), 'an infinite norm is null in the metrics')

    path = recipe('gives-up.lua', tiny, 'data.random { }', use('overflow', steps=[3, 4, 5, 6]), use('amp', compute='fp16', max_skips=3), adamw, batch=2,
                  length=8, steps=9)
    said = run('train', path, '--out', 'gives-up', '--plugin-path', plugins / 'overflow', code=1).stderr
    check('step 5: amp (gives-up.lua:' in said and '3 steps in a row' in said, f'a run that only skips says: {said}')


for part in (precision, memory, scaling, resuming):
    print(f'-- {part.__name__}', flush=True)
    part()
finish()
