#!/usr/bin/env python3
"""Validation, sampling and what is saved, by values that stand for the model's weights (eval_as): a mean that never moves, one that follows at once, values that a node
makes, and what the commands make of a run that keeps one."""
import json
import pathlib

from galley_test import binary, check, finish, fresh_folder, from_config, recipe, run, train, use

fresh_folder()
pathlib.Path('text.txt').write_text('one two three four five six seven eight nine ten. ' * 60)
more = ('--plugin-path', binary / 'tests' / 'plugins' / 'ema')
model = from_config('gpt2', n_layer=1, n_embd=32, n_head=2, n_positions=16, vocab_size=256, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
data = 'data.text { files = { arg("text") }, tokenizer = "bytes", validation = 0.2 }'


def made(name, *uses):
    path = recipe(f'{name}.lua', model, data, *uses, use('adamw', lr=1e-2), batch=2, length=16, steps=4, seed=5, validate=dict(every=2, start=True),
                  save=dict(every=4))
    return train(path, name, '--set', 'text=text.txt', *more)


def saved_loss(one, amp):
    """What the model that the run has saved gives on the same rows."""
    path = recipe(f'{one.path.name}-saved.lua', f'model {{ path = "{one.path}/model" }}', data, *amp, batch=2, length=16, steps=1, validate=dict(every=1))
    return json.loads(run('eval', path, '--set', 'text=text.txt', '--json', *more).stdout)['validation_loss']


def validated(of):
    return [x['validation_loss'] for x in of.lines if 'validation_loss' in x]


for kind, amp in (('fp32', []), ('master', [use('amp')]), ('cast-on-use', [use('amp', weights='cast-on-use')])):
    plain = made(f'{kind}-plain', *amp)
    still = made(f'{kind}-still', *amp, use('ema', decay=1, evaluate=True))
    follows = made(f'{kind}-follows', *amp, use('ema', decay=0, evaluate=True))
    aside = made(f'{kind}-aside', *amp, use('ema', decay=0.5))
    first, *later = validated(plain)
    check(len(later) == 2 and all(x < first for x in later), f'{kind}: validation {first}, {later} does not fall')
    check(validated(still) == [first] * 3, f'{kind}: a mean that never moves gives {validated(still)}, not {first}')
    check(validated(follows) == validated(plain), f'{kind}: a mean that follows at once gives {validated(follows)}, not {validated(plain)}')
    check(validated(aside) == validated(plain), f'{kind}: a mean that nobody evaluates by gives {validated(aside)}, not {validated(plain)}')
    for one in (plain, still, follows):
        check(one is still or one.bytes() == plain.bytes(), f'{kind}: {one.path}: evaluating has changed the model')
        check(saved_loss(one, amp) == validated(one)[-1], f'{kind}: {one.path}: the saved model gives {saved_loss(one, amp)}, not {validated(one)[-1]}')
        loss = json.loads(run('eval', one.path, '--json', *more).stdout)['validation_loss']
        check(loss == validated(one)[-1], f'{kind}: {one.path}: eval says {loss}, not {validated(one)[-1]}')
        run('sample', one.path, '--prompt', 'one', *more)
finish()
