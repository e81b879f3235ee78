#!/usr/bin/env python3
"""Layer-wise decay of the learning rate: each block, and an adapter in it, as if it were trained at its own rate, without a byte of memory for it."""
from galley_test import case, cases, check, every, finish, fresh_folder, from_config, load, plan, use
from steps_kit import recipes, refused, trained

fresh_folder()
model = from_config('gpt2', vocab_size=61, n_positions=16, n_embd=32, n_layer=3, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, tie_word_embeddings=True)
written = recipes(model, 'data.random {}', batch=4, length=16, steps=3, seed=5)


def trains(name, *uses, only=None):
    freeze = [use('freeze', **{'except': only})] if only else []
    return trained(written(name, *freeze, *uses, use('clip', norm=1.0)), name)


def tensors(one):
    return {name: values for file in one.path.rglob('*.safetensors') if 'state' not in file.parts for name, (_, _, values) in load(file).items()}


def moved(a, b):
    return {name for name in a if a[name] != b[name]}


def begins(name, *uses):
    """What a model begins with: after a run that changes nothing."""
    return tensors(trains(f'{name}-start', *uses, use('sgd', lr=1e-30)))


FACTORS = {2: 1.0, 1: 0.5, 0: 0.25}


@cases([f'{optimizer}-{block}' for optimizer in ('adamw', 'adamw8bit', 'lion') for block in FACTORS])
def block_alone(name):
    """Because what one block does to the others' gradients is not what is compared here."""
    optimizer, block = name.split('-')
    only, factor = [f'transformer.h.{block}.*'], FACTORS[int(block)]
    decayed = trains(f'{name}-decayed', use('layer-decay', decay=0.5), use(optimizer, lr=1e-2, weight_decay=0.1), only=only)
    plain = trains(f'{name}-plain', use(optimizer, lr=1e-2 * factor, weight_decay=0.1), only=only)
    check(decayed.bytes() == plain.bytes(), f'with decay 0.5 it is not this block at {factor} of the rate')
    for owner in ('weights', 'gradients', 'states'):
        with_it, without = (r.memory['classes']['host']['owners'][owner] for r in (decayed, plain))
        check(with_it == without, f'{with_it} bytes of {owner} with layer-decay, {without} without')


NONE = use('layer-decay', decay=0.0)


@case
def decay_of_0():
    """Only what learns at the optimizer's own rate moves."""
    found = moved(begins('none', NONE), tensors(trains('none', NONE, use('adamw', lr=1e-2))))
    check(any('.h.2.' in x for x in found) and any('ln_f' in x for x in found) and every('.h.2.' in x or 'ln_f' in x for x in found), f'decay 0 moves {sorted(found)}')


@cases(['before', 'behind'])
def adapter(order):
    """Its parameters are added by another strategy, whatever the recipe's order."""
    lora = use('lora', rank=2, alpha=4, targets='all-linear')
    uses = (NONE, lora) if order == 'before' else (lora, NONE)
    found = moved(begins(order, *uses), tensors(trains(order, *uses, use('adamw', lr=1e-2))))
    check(every('.h.2.' in x for x in found), f'decay 0 moves {sorted(found)}')


@case
def alone():
    refused(written('alone', use('layer-decay', decay=0.9)), 'layer-decay needs an optimizer')


@case
def relative_step():
    """It needs a rate that the optimizer multiplies by: Adafactor's relative step does too."""
    start = begins('relative', NONE)
    one, zero = (moved(start, tensors(trains(f'relative-{decay}', use('layer-decay', decay=decay), use('adafactor')))) for decay in (1.0, 0.0))
    check(every('.h.2.' in x or 'ln_f' in x for x in zero), f'decay 0 moves {sorted(zero)}')
    check(one == start.keys(), f'decay 1 does not move {sorted(start.keys() - one)}')


@case
def all_are_trained():
    told = plan(written('told', use('layer-decay', decay=0.9), use('adamw', lr=1e-2)))
    check(told['trainable'] == told['parameters'] > 0, f'{told["trainable"]} of {told["parameters"]}')


finish()
