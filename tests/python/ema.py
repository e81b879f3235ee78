#!/usr/bin/env python3
"""The average of weights: its numbers by formula after each step, its bytes in the plan, steps that are skipped, and what evaluation, sampling, saving and merging
make of it beside other strategies."""
import functools
import json
import math
import pathlib

from galley_test import case, cases, check, every, finish, fresh_folder, from_config, load, plan, recipe, run, together, use
from steps_kit import recipes, trained

fresh_folder()
pathlib.Path('text.txt').write_text('one two three four five six seven eight nine ten. ' * 60)
data = "data.text { files = 'text.txt', tokenizer = 'bytes', validation = 0.2 }"
STEPS = 6
made = recipes(from_config('llama', vocab_size=256, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                           max_position_embeddings=16), data, batch=2, length=16, steps=STEPS, seed=5, validate=dict(every=3), save=dict(every=1, keep=STEPS))
adamw = use('adamw', lr=1e-2)


def run_of(name, *uses, **more):
    return trained(made(name, *uses, **more), name)


def states(a_run):
    """After each step."""
    return [load(folder / 'state.safetensors') for folder in sorted((a_run.path / 'state').glob('step-*'))]


@functools.cache
def first():
    """The weights that each run begins with."""
    start = run_of('start', use('adamw', lr=1e-30), steps=1, save=dict(every=1))
    return {name: values for name, (_, _, values) in load(start.path / 'model/model.safetensors').items()}


def averages(states_of, decay, warmup):
    """Each parameter's average after each step, from the weights that the run has kept."""
    out, mean, applied = [], first(), 0
    for before, state in together([None, *states_of[:-1]], states_of):
        if before is None or before['applied steps'][2] != state['applied steps'][2]:
            applied += 1
            d = min(decay, (1 + applied) / (10 + applied)) if warmup else decay
            mean = {name: [d * m + (1 - d) * x for m, x in zip(values, state[name][2], strict=True)] for name, values in mean.items()}
        out.append(mean)
    return out


def furthest(a, b):
    return max(abs(x - y) for x, y in together(a, b))


def loss_of(what):
    return json.loads(run('eval', what, '--json').stdout)['validation_loss']


def validations(a_run):
    return [x['validation_loss'] for x in a_run.lines if 'validation_loss' in x]


# ---- Numbers -----------------------------------------------------------------------------------------------------------------------------
@cases({'fixed': dict(decay=0.7, warmup=False), 'warm': dict(decay=0.999), 'short': dict(decay=0.25)})
def by_formula(name, options):
    one = run_of(name, use('ema', **options), adamw)
    kept = states(one)
    check(len(kept) == STEPS, f'{len(kept)} states')
    for step, (state, wanted) in enumerate(together(kept, averages(kept, options['decay'], options.get('warmup', True))), 1):
        for parameter, values in wanted.items():
            off = furthest(values, state[f'{parameter}.ema'][2])
            check(off < 1e-6, f'step {step}: {parameter} is off by {off}')
    saved = load(one.path / 'model/model.safetensors')
    check(every(values[2] == kept[-1][f'{parameter}.ema'][2] for parameter, values in saved.items()), 'the average is what is saved')


@case
def in_16_bit():
    """It is right on average: no weight is off by more than rounding six times, and all together by next to nothing."""
    kept = states(run_of('half', use('ema', decay=0.999, dtype='bf16'), adamw))
    wanted, state = averages(kept, 0.999, True)[-1], kept[-1]
    signed, size = 0.0, 0.0
    for parameter, values in wanted.items():
        dtype, _, got = state[f'{parameter}.ema']
        check(dtype == 'BF16', f'{parameter}: kept in {dtype}')
        for a, b, was in together(values, got, first()[parameter]):
            check(abs(a - b) <= STEPS * 2 ** -7 * max(abs(a), abs(was)), f'{parameter}: {b}, not {a}')
            signed += b - a
            size += (b - a) ** 2
    check(0 < abs(signed) < 4 * math.sqrt(size), f'errors add up to {signed}, by chance they come to {math.sqrt(size)}')


@cases({'f32': ({}, 4), 'bf16': (dict(dtype='bf16'), 2)})
def bytes_of_averages(name, what):
    options, size = what
    bare, told = (plan(made(f'bytes-{name}-{len(uses)}', *uses, adamw)) for uses in ([], [use('ema', **options)]))
    held = [x['classes']['host']['owners']['states'] for x in (bare, told)]
    check(held[1] == held[0] + size * told['trainable'], f'{held[1]} bytes of states, {held[0]} without, of {told["trainable"]} numbers')


@case
def step_that_is_skipped():
    uses = use('amp', compute='fp16', init=2.0 ** 24, growth_interval=2), use('ema', decay=0.5, warmup=False), adamw
    kept = states(run_of('skips', *uses, steps=10, save=dict(every=1, keep=10)))
    count = [x['applied steps'][2][0] for x in kept]
    check(len(kept) == 10 and 0 < count[-1] < 10, f'steps that count: {count}')
    for step, (state, wanted) in enumerate(together(kept, averages(kept, 0.5, False)), 1):
        off = max(furthest(values, state[f'{name}.ema'][2]) for name, values in wanted.items())
        check(step < 2 and count[0] == 0 or off < 1e-6, f'step {step}: off by {off}')


# ---- Beside others -----------------------------------------------------------------------------------------------------------------------
lora, adamw8bit = use('lora', rank=4, alpha=8), use('adamw8bit', lr=1e-2, min_size=1)
BESIDE = {
    'plain': [adamw],
    'lora': [lora, adamw],
    'merged': [use('lora', rank=4, alpha=8, merge=True), adamw],
    'freeze': [use('freeze', patterns='*.layers.0.*'), adamw],
    '8bit': [adamw8bit],
    'lora-8bit': [lora, adamw8bit],
    'bf16': [use('amp'), adamw],
    'bf16-weights': [use('amp', weights='bf16'), adamw],
    'cast': [use('amp', weights='cast-on-use'), lora, adamw],
    'fp16': [use('amp', compute='fp16', init=256.0), adamw],
    'split': [use('amp'), use('split-states', min_size=1), adamw],
    'early': [use('update-in-backward'), use('recompute'), adamw],
    'muon': [use('muon', lr=1e-2, rest_lr=1e-3)],
    'accumulate': [use('accumulate', steps=2), use('clip', norm=1.0), use('adafactor')],
}


@cases({f'{name}-{dtype}': (uses, dtype) for name, uses in BESIDE.items() for dtype in ('f32', 'bf16')})
def beside(name, what):
    """What is trained is as without the average; what is evaluated, sampled and saved is the average."""
    uses, dtype = what
    *before, optimizer = uses
    one = run_of(name, *before, use('ema', decay=0.5, dtype=dtype), optimizer, save=dict(every=STEPS))
    told = validations(one)
    check(loss_of(one.path) == told[-1], f'eval says {loss_of(one.path)}, the run {told[-1]}')
    raw = run_of(f'{name}-raw', *uses, save=dict(every=STEPS))
    check(len(one.steps) == STEPS and one.steps == raw.steps, 'the average changes what is trained')
    check(told != validations(raw), 'the average gives what the weights give')
    run('sample', one.path, '--prompt', 'one', '--tokens', 4)
    folder = one.path / 'model'
    if lora in uses:
        folder = f'{name}-out'
        run('export', one.path, '--merge', '--out', folder)
    amp = [x for x in uses if 'amp' in x]
    saved = loss_of(recipe(f'{name}-saved.lua', f'model {{ path = "{folder}" }}', data, *amp, batch=2, length=16, steps=1, validate=dict(every=1)))
    # Merged and rounded once more, or read with what 16 bit leaves out.
    most = 1e-6 if not amp and 'bf16' not in name else 3e-3
    check(abs(saved - told[-1]) < most, f'what is saved gives {saved}, the run {told[-1]}')


finish(turns=2)
