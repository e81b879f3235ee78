#!/usr/bin/env python3
"""A kind of data of a stranger, pairs of a chosen and a rejected answer from a CSV file, and an objective that learns from them, built with the installed SDK alone:
what it computes is written down once more by the losses of single rows; runs go on, are evaluated, sampled and exported; windows count pairs; an epoch has every pair
once; and what is wrong is refused by name."""
import csv
import functools
import json
import math
import pathlib
import re

import sdk_kit
from galley_test import batch_of, case, cases, check, every, finish, fresh_folder, from_config, from_folder, recipe, Run, run, save, source, train, use
from steps_kit import planned, refused, trained

fresh_folder()
LENGTH = 24
model = from_config('llama', vocab_size=256, max_position_embeddings=32, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                    num_key_value_heads=2)
pairs = [(f'{a} plus {b}, "so": ', str(a + b), str(a - b)) for a in range(3, 9) for b in (1, 2)]
with open('pairs.csv', 'w', newline='') as file:
    csv.writer(file).writerows([('prompt', 'chosen', 'rejected'), *pairs])


@functools.cache
def built():
    return sdk_kit.build_together({'pairs': source / 'tests' / 'plugins' / 'pairs'}, {})


def flags():
    return ['--plugin-path', built()]


def data(**options):
    more = ''.join(f', {k} = {json.dumps(v)}' for k, v in options.items())
    return f'data.pairs {{ path = "pairs.csv", tokenizer = "bytes"{more} }}'


def written(name, *uses, of=model, kind=None, lr=1e-2, **entries):
    steps = {} if 'epochs' in entries else dict(steps=3)
    return recipe(f'{name}.lua', of, kind or data(), use('pair-loss', beta=0.5), *uses, use('adamw', lr=lr),
                  **{**dict(batch=4, length=LENGTH, seed=5), **steps, **entries})


# ---- What it computes -------------------------------------------------------------------------------------------------------------------


def logp(base, number, text, prompt):
    """The log probability of an answer, by a run on a batch of its row alone."""
    ids = list(text.encode())
    labels = [-100] * len(prompt) + ids[len(prompt):]
    save(f'row-{number}.safetensors', {'input_ids': ('I32', (1, len(ids)), ids), 'labels': ('I32', (1, len(ids)), labels)})
    path = recipe(f'row-{number}.lua', from_folder(base), batch_of(f'row-{number}.safetensors'), use('sgd', lr=1e-30), steps=1, seed=1)
    return -train(path, f'row-{number}').steps[0][0] * (len(ids) - len(prompt))


@case
def computes_what_it_says():
    """A window of one pair has the loss of that pair, by what the model says of each answer alone."""
    base = (train(recipe('base.lua', model, 'data.random {}', use('adamw', lr=1e-3), batch=2, length=16, steps=2, seed=4), 'base').path / 'model').resolve()
    path = written('one', of=from_folder(base), lr=1e-30, batch=2, steps=1)
    made = trained(path, 'one', *flags(), '--reference')
    losses = [math.log1p(math.exp(-0.5 * (logp(base, 2 * i, p + chosen, p) - logp(base, 2 * i + 1, p + rejected, p)))) for i, (p, chosen, rejected) in enumerate(pairs)]
    near = min(losses, key=lambda x: abs(x - made.steps[0][0]))
    check(abs(near - made.steps[0][0]) < 2e-5 and made.lines[0]['tokens'] == 1, f'{made.steps[0]} with {made.lines[0]}, not {near}: {sorted(losses)}')
    check(len({round(x, 4) for x in losses}) > 8, f'the pairs have one loss: {losses}')


@case
def is_shown():
    """`galley data` shows rows with the tokens that count, and what counts in a window; `galley plugins` lists the kind of data with its options."""
    said = run('data', written('shown', seed=8), *flags(), '--rows', 2).stdout
    check('pairs of pairs.csv' in said and re.search(r'the model reads .*\bpairs\b', said) and '── pairs: 1 count' in said and '── pairs: 0 count' in said, said)
    check(' plus ' in said and re.search(r'── \d+ tokens, [1-9]\d* count', said), said)
    check('data.pairs' in run('plugins', *flags()).stdout and 'validation' in run('plugins', 'data.pairs', *flags()).stdout, 'galley plugins does not list it')


@case
def learns():
    """It comes to prefer what was chosen; a window of two micro-batches counts four pairs."""
    made = trained(written('learns', use('accumulate', steps=2), steps=40, validate=dict(every=20), kind=data(validation=2)), 'learns', *flags())
    check(made.steps[-1][0] < 0.5 * made.steps[0][0], f'from {made.steps[0]} to {made.steps[-1]}')
    check(every(line['tokens'] == 4 for line in made.lines if 'loss' in line), f'{made.lines[0]}')
    said = run('eval', 'learns', *flags()).stdout
    check('a pair' in said and 'perplexity' not in said, said)


@case
def goes_on():
    """Through a resume, an evaluation, a sample and an export, each instruction beside its reference."""
    more = dict(steps=4, validate=dict(every=2), save=dict(every=2), kind=data(validation=2))
    whole = trained(written('whole', **more), 'whole', *flags(), '--reference')
    sdk_kit.in_every_segment(whole, flags(), 'whole')
    run('train', written('whole', **more), '--out', 'half', '--until', 2, *flags())
    run('resume', 'half', *flags())
    half = Run('half')
    check(half.steps == whole.steps and half.bytes() == whole.bytes(), 'a run that goes on is another one')
    text = pathlib.Path('pairs.csv').read_text()
    pathlib.Path('pairs.csv').write_text(text.replace('3 plus 1', '3 plus 9'))
    run('train', written('other', **more), '--out', 'other', '--until', 2, *flags())
    pathlib.Path('pairs.csv').write_text(text)
    refused('other', 'data', command='resume', flags=flags())


@case
def an_epoch_has_every_pair_once():
    made = trained(written('epochs', epochs=2, batch=8), 'epochs', *flags())
    check(len(made.steps) == 6, f'{len(made.steps)} steps of 4 pairs are not two epochs of {len(pairs)}')
    planned(written('proved'), *flags())


# ---- What is refused --------------------------------------------------------------------------------------------------------------------


@case
def refusals():
    refused(written('odd', batch=3), "an item of it is 2 rows", "multiple of 2", flags=flags())
    refused(written('kind', kind='data.pair { path = "pairs.csv" }'), "there is no data.pair; did you mean 'pairs'?", 'data.text', flags=flags())
    refused(written('capital', kind='data.Text { files = "a" }'), ":3: there is no data.Text; did you mean 'text'?", 'data.prompts', flags=flags())
    refused(written('typo', kind='data.txt { files = "a" }'), ":3: there is no data.txt; did you mean 'text'?", 'data.prompts, data.random')
    refused(written('option', kind='data.pairs { pth = "pairs.csv" }'), "'pth'", flags=flags())
    refused(written('missing', kind='data.pairs { path = "none.csv" }'), 'none.csv', flags=flags())
    refused(written('without', kind='data.random {}'), "the run's data has nothing that is called 'pairs'", flags=flags())
    classifies = model[:-2] + ', task = "sequence-classification", labels = 3 }'
    refused(recipe('task.lua', classifies, data(), use('adamw', lr=1e-2), batch=4, length=LENGTH, steps=1), 'learns other labels', flags=flags())
    refused(written('none', kind=data(validation=len(pairs))), '0 items for training and 12 for validation', code=4, command='train',
            flags=['--out', 'none', *flags()])
    pathlib.Path('columns.csv').write_text('prompt,answer\na,b\n')
    refused(written('columns', kind='data.pairs { path = "columns.csv" }'), 'the first line is not prompt,chosen,rejected', command='train',
            flags=['--out', 'columns', *flags()])


MISTAKES = {
    'twice': "tensor 'pairs' is there twice", 'taken': "has the name of an input of Galley's own", 'nameless': 'tensor 2 has no name that could be printed',
    'many': '9 tensors; 8 are possible', 'long': 'there is room for 24', 'token': 'token 256 at position 0',
}


@cases(MISTAKES)
def mistakes(which, says):
    refused(written(which, kind=data(mistake=which)), says, "plugin 'pairs'", code=4, command='train', flags=['--out', which, *flags()])


finish()
