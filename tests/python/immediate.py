#!/usr/bin/env python3
"""Gradients by claim: updates in backward give the bytes of updates after it in less memory, and are refused by name where something needs all gradients at
once; gradients in 16 bit take half the bytes."""
from galley_test import binary, case, cases, check, error, finish, fresh_folder, from_config, gradients, norm, plan, recipe, run, use
from steps_kit import refused, trained

fresh_folder()
more = ('--plugin-path', binary / 'tests' / 'plugins' / 'claims')
adamw = use('adamw', lr=1e-2)
immediate = use('update-in-backward')
largest = 4 * 640 * 64  # bytes of the embeddings' gradient


def model(tied):
    return from_config('llama', vocab_size=640, hidden_size=64, intermediate_size=128, num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=2,
                       max_position_embeddings=32, tie_word_embeddings=tied)


def made(name, *uses, tied=False, **entries):
    entries = dict(dict(batch=1, length=8, steps=3, seed=2, save=dict(every=3)), **entries)
    return recipe(f'{name}.lua', model(tied), 'data.random { }', *uses, **entries)


optimizers = {'sgd': use('sgd', lr=1e-2, momentum=0.9), 'adam': use('adam', lr=1e-2), 'lion': use('lion', lr=1e-3), 'adamw8bit': use('adamw8bit', lr=1e-2, min_size=1),
              'adafactor': use('adafactor', beta1=0.9), 'muon': use('muon', lr=1e-2, rest_lr=1e-3)}
# Strategies beside, and whether the embeddings are tied.
BESIDE = {'plain': ([], False), **{x: ([], True) for x in optimizers}, 'tied': ([], True), 'amp': ([use('amp')], True),
          'cast': ([use('amp', weights='cast-on-use')], False), 'bf16': ([use('amp', weights='bf16')], False),
          'split': ([use('amp'), use('split-states', min_size=1)], True), 'recompute': ([use('recompute')], True),
          'values': ([use('clip', value=1e-3)], True)}


@cases(BESIDE)
def same_bytes(name, of):
    (uses, tied), optimizer = of, optimizers.get(name, adamw)
    late, early = (trained(made(f'{name}-{when}', *uses, *how, optimizer, tied=tied), f'{name}-{when}', *more) for when, how in (('late', ()), ('early', (immediate,))))
    check(late.bytes() == early.bytes(), 'an update in backward gives other weights')
    check(late.bytes('state/step-00000003/state.safetensors') == early.bytes('state/step-00000003/state.safetensors'), 'other states')
    check(late.steps == early.steps, 'other metrics')
    run('plan', f'{name}-early.lua', '--check', *more)
    saves = [x.memory['classes']['host']['planned'] for x in (late, early)]
    check(saves[1] < saves[0] - (1 if name == 'split' else 2) * late.memory['trainable'], f'{saves[1]} bytes, {saves[0]} where gradients live until the update')
    held = plan(f'{name}-early.lua', *more)['classes']['host']['owners']['gradients']
    check(held <= 2 * largest, f'{held} bytes of gradients at the peak, the largest has {largest}')
    # The steps of a block are made together.
    blocks, apart = (sum('_step' in line and line.startswith('micro[') for line in run('plan', f'{name}-{x}.lua', '--dump', 'fuse', *more).stdout.splitlines())
                     for x in ('early', 'late'))
    check(apart == 0 < blocks <= (2 * 6 + 3 if name in ('plain', 'tied', 'sgd', 'adam', 'lion') else 60), f'{blocks} launches of steps in backward')


@cases({'accumulate': ([use('accumulate', steps=2)], ('2 micro-batches', 'leave out accumulate (accumulate.lua:', ', or update-in-backward (accumulate.lua:')),
        'clip': ([use('clip', norm=1.0)], ('clip_factor', 'clip (clip.lua:', 'gradient_factor', 'leave out clip (clip.lua:', ', or update-in-backward (')),
        'scaling': ([use('amp', compute='fp16')], ('amp.update_scale', 'amp (scaling.lua:', 'scalar.apply', 'leave out amp (scaling.lua:'))})
def all_gradients_at_once(name, of):
    uses, words = of
    refused(made(name, *uses, immediate, adamw), *words, flags=more)


@case
def gradients_in_16_bit():
    f32, half = made('f32', adamw), made('half', use('claims', facet='gradient_dtype', value='bf16'), adamw)
    bytes32, bytes16 = (plan(x, *more)['classes']['host']['owners']['gradients'] for x in (f32, half))
    check(bytes16 <= 0.55 * bytes32, f'gradients in bf16 hold {bytes16} bytes, in f32 {bytes32}')
    one, other = gradients(f32, 'f32.safetensors', *more), gradients(half, 'half.safetensors', *more)
    names = [x for x in one if x.startswith('grad.')]
    check(len(names) == 57, f'gradients: {names}')
    for name in names:
        e = error(other[name][2], one[name][2])
        check(e < 4e-3 and (e > 0 or norm(one[name][2]) == 0), f'{name} in bf16 is {e:.1e} from that in f32')
    trained(half, 'half', *more)


finish()
