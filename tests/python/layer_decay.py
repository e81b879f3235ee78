#!/usr/bin/env python3
"""Layer-wise decay of the learning rate: each block, and an adapter in it, as if it were trained at its own rate, without a byte of memory for it."""
from galley_test import check, every, finish, fresh_folder, from_config, load, plan, recipe, run, train, use

fresh_folder()
model = from_config('gpt2', vocab_size=61, n_positions=16, n_embd=32, n_layer=3, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, tie_word_embeddings=True)
entries = dict(batch=4, length=16, steps=3, seed=5)


def trains(name, *uses, only=None, **more):
    freeze = [use('freeze', **{'except': only})] if only else []
    return train(recipe(f'{name}.lua', model, 'data.random {}', *freeze, *uses, use('clip', norm=1.0), **{**entries, **more}), name)


def tensors(one):
    return {name: values for file in one.path.rglob('*.safetensors') if 'state' not in file.parts for name, (_, _, values) in load(file).items()}


# Blocks alone, because what one block does to the others' gradients is not what is compared here.
for optimizer in ('adamw', 'adamw8bit', 'lion'):
    for block, factor in ((2, 1.0), (1, 0.5), (0, 0.25)):
        only, name = [f'transformer.h.{block}.*'], f'{optimizer}-{block}'
        decayed = trains(f'{name}-decayed', use('layer-decay', decay=0.5), use(optimizer, lr=1e-2, weight_decay=0.1), only=only)
        plain = trains(f'{name}-plain', use(optimizer, lr=1e-2 * factor, weight_decay=0.1), only=only)
        check(decayed.bytes() == plain.bytes(), f'{name} with decay 0.5 is not this block at {factor} of the rate')
        for owner in ('weights', 'gradients', 'states'):
            with_it, without = (r.memory['classes']['host']['owners'][owner] for r in (decayed, plain))
            check(with_it == without, f'{name}: {with_it} bytes of {owner} with layer-decay, {without} without')

# With decay 0 only what learns at the optimizer's own rate moves.
start = tensors(trains('start', use('layer-decay', decay=0.0), use('sgd', lr=1e-30)))
after = tensors(trains('still', use('layer-decay', decay=0.0), use('adamw', lr=1e-2)))
moved = {name for name in start if start[name] != after[name]}
check(any('.h.2.' in x for x in moved) and any('ln_f' in x for x in moved) and every('.h.2.' in x or 'ln_f' in x for x in moved), f'decay 0 moves {sorted(moved)}')

# An adapter's parameters are added by another strategy, whatever the recipe's order.
lora = use('lora', rank=2, alpha=4, targets='all-linear')
for name, uses in (('before', (use('layer-decay', decay=0.0), lora)), ('behind', (lora, use('layer-decay', decay=0.0)))):
    first = tensors(trains(f'{name}-start', *uses, use('sgd', lr=1e-30)))
    after = tensors(trains(name, *uses, use('adamw', lr=1e-2)))
    moved = {x for x in first if first[x] != after[x]}
    check(moved and every('.h.2.' in x for x in moved), f'{name} lora, decay 0 moves {sorted(moved)}')

# It needs an optimizer, and a rate of one that multiplies by it: Adafactor's relative step does too.
said = run('plan', recipe('alone.lua', model, 'data.random {}', use('layer-decay', decay=0.9), **entries), code=2).stderr
check("layer-decay needs an optimizer" in said, f'alone: {said}')
relative = [tensors(trains(f'relative-{decay}', use('layer-decay', decay=decay), use('adafactor'))) for decay in (1.0, 0.0)]
moved = {x for x in start if relative[1][x] != start[x]}
check(moved and every('.h.2.' in x or 'ln_f' in x for x in moved) and every(relative[0][x] != start[x] for x in start), f'adafactor, decay 0 moves {sorted(moved)}')
told = plan(recipe('told.lua', model, 'data.random {}', use('layer-decay', decay=0.9), use('adamw', lr=1e-2), **entries))
check(told['trainable'] == told['parameters'], f'all parameters are trained: {told["trainable"]}')
finish()
