#!/usr/bin/env python3
"""A kind of data of a stranger, pairs of a chosen and a rejected answer from a CSV file, and an objective that learns from them, built with the installed SDK alone:
what it computes is written down once more by the losses of single rows; runs go on, are evaluated, sampled and exported; windows count pairs; an epoch has every pair
once; and what is wrong is refused by name. The same answers one by one, for models that learn something of a row, and mixed with texts."""
import csv
import functools
import json
import math
import pathlib
import re

import sdk_kit
from galley_test import batch_of, case, cases, check, every, finish, fresh_folder, from_config, from_folder, recipe, Run, run, save, source, together, train, use
from steps_kit import planned, refused, trained

fresh_folder()
import families_kit  # noqa: E402

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
def tokenizer_by_default():
    """The manifest says which tokenizer its texts are in: rows are shown, and the model is asked, by that."""
    path = written('default', kind='data.pairs { path = "pairs.csv" }')
    shown = run('data', path, *flags()).stdout
    check(' plus ' in shown, shown)
    made = train(path, 'default', *flags())
    r = run('sample', made.path, '--prompt', '3 plus 1', '--tokens', 2, *flags())
    check(r.stdout.startswith('3 plus 1'), r.stdout)


@case
def told_the_length():
    r = run('train', written('long', kind=data(mistake='told')), '--out', 'long', *flags(), code=2)
    check(f'pairs.csv: its rows may be longer than {LENGTH}' in r.stderr, r.stderr)


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
    check(f'{2 * len(pairs)} rows of {LENGTH}, ' in said and ' % padding' in said and re.search(rf'count in the loss +{len(pairs)}\n', said), said)
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


# ---- What other models learn ------------------------------------------------------------------------------------------------------------


def answers(**options):
    return data(**options).replace('data.pairs', 'data.answers')


# By the items of an epoch: what is read, and what is learned of it.
texts = [(prompt, answer, number % 2) for prompt, *both in pairs for number, answer in enumerate(both)]


def row_of(text):
    return list(text.encode())[:LENGTH] + [0] * (LENGTH - len(text))


def of_each(text, number, pad):
    """number(byte) of each byte of the text, and `pad` where there is none."""
    return [number(x) for x in text.encode()] + [pad] * (LENGTH - len(text))


def digit(x):
    return 48 <= x < 58


WHOLE = [p + a for p, a, _ in texts]
TARGET = 6
LEARNS = {
    'row labels': (families_kit.of('llama', families_kit.llama, 'sequence-classification', labels=2),
                   [dict(input_ids=row_of(x), labels=[y]) for x, (*_, y) in together(WHOLE, texts)]),
    'several': (families_kit.of('distilbert', families_kit.distil, 'multi-label-classification', labels=3),
                [dict(input_ids=row_of(x), labels=[y, -100, -100]) for x, (*_, y) in together(WHOLE, texts)]),
    'values': (families_kit.of('bert', families_kit.bert, 'regression'), [dict(input_ids=row_of(x), labels=[0.5]) for x in WHOLE]),
    'token labels': (families_kit.of('roberta', families_kit.roberta, 'token-classification', labels=2),
                     [dict(input_ids=row_of(x), labels=of_each(x, lambda c: int(digit(c)), -100)) for x in WHOLE]),
    'masked': (families_kit.of('bert', families_kit.bert, 'masked-lm'),
               [dict(input_ids=row_of(re.sub('[0-9]', '?', x)), labels=of_each(x, lambda c: c if digit(c) else -100, -100)) for x in WHOLE]),
    'targets': (families_kit.of('t5', families_kit.t5),
                [dict(input_ids=row_of(p), labels=(list(a.encode()) + [-100] * TARGET)[:TARGET], decoder_input_ids=([0, *a.encode()] + [0] * TARGET)[:TARGET])
                 for p, a, _ in texts]),
}


@cases(LEARNS)
def learned(name, of):
    """What the data says is what the model learns, and the loss is that of it."""
    of_model, wanted = of
    entries = dict(batch=2 * len(pairs), length=LENGTH, seed=5, steps=6, validate=dict(every=3), **(dict(target_length=TARGET) if name == 'targets' else {}))
    path = recipe(f'{name.replace(" ", "-")}.lua', of_model, answers(), use('adamw', lr=1e-2), **{k: v for k, v in entries.items() if k != 'validate'})
    said = run('data', path, '--json', '--rows', len(wanted), *flags()).stdout.splitlines()
    rows = [{k: x[k] for k in wanted[0]} for x in map(json.loads, said[1:])]
    check(sorted(map(json.dumps, rows)) == sorted(map(json.dumps, wanted)), f'{name}: {rows[:2]}, not rows as {wanted[:2]}')
    counted = sum(label != -100 for x in wanted for label in x['labels'])
    facts, = json.loads(said[0])['data']
    check(facts['kind'] == 'answers' and facts['rows'] == len(wanted) and facts['counted'] == counted, f'{name}: {facts}')
    path = recipe(f'{name.replace(" ", "-")}-trained.lua', of_model, answers(validation=2), use('adamw', lr=1e-2), **dict(entries, batch=4))
    made = trained(path, name.replace(' ', '-'), *flags(), '--reference')
    check(every(math.isfinite(x['loss']) for x in made.lines if 'loss' in x) and len([x for x in made.lines if 'validation_loss' in x]) == 2, f'{name}: {made.lines}')


WRONG = {'class': ('row labels', 'label 2 at position 0; labels are 0 to 1'), 'value': ('values', 'value with the bits 2139095040 at position 0; it is no finite number'),
         'padding': ('token labels', 'which is padding'), 'target': ('targets', 'target 256 at position 1')}


@cases(WRONG)
def wrong_labels(name, of):
    task, says = of
    path = recipe(f'wrong-{name}.lua', LEARNS[task][0], answers(mistake=name), use('adamw', lr=1e-2), batch=4, length=LENGTH, steps=1,
                  **(dict(target_length=TARGET) if task == 'targets' else {}))
    refused(path, says, "plugin 'pairs'", code=4, command='train', flags=['--out', f'wrong-{name}', *flags()])


@case
def mixes():
    """Rows of a plugin between rows of texts, by weight; the run goes on like any other."""
    pathlib.Path('texts.jsonl').write_text(''.join(json.dumps(dict(text=f'a text, {i}')) + '\n' for i in range(12)))
    text = 'data.jsonl { files = { "texts.jsonl" }, tokenizer = "bytes", packing = "none" }'
    mix, adamw = f'data.mix {{ {answers()}, {text}, weights = {{ 3, 1 }} }}', use('adamw', lr=1e-3)
    path = recipe('mixed.lua', model, mix, adamw, batch=8, length=LENGTH, seed=5, steps=32, save=dict(every=16))
    said = [json.loads(x) for x in run('data', path, '--json', '--rows', 8, *flags()).stdout.splitlines()]
    check(said[0]['rows_an_epoch'] == 48, f'24 answers and 12 texts, three to one: {said[0]}')
    whole = trained(path, 'mixed', *flags())
    run('train', path, '--out', 'mixed-half', '--until', 16, *flags())
    run('resume', 'mixed-half', *flags())
    check(Run('mixed-half').steps == whole.steps and Run('mixed-half').bytes() == whole.bytes(), 'a run of a mix that goes on is another one')
    seen = run('data', recipe('mixed-once.lua', model, mix, adamw, batch=48, length=LENGTH, seed=5, steps=1), '--rows', 48, *flags()).stdout
    seen = re.sub('[‹›]', '', seen)
    check('data.answers: answers one by one' in seen and sum(x in seen for x in WHOLE) > 12 and 4 <= seen.count('a text, ') <= 20, f'48 rows of the mix: {seen}')
    for part, says in ((data(), 'an item of it is 2 rows'), ('data.random {}', 'it has no end'), ('data.batch { path = "x" }', 'it has no rows of its own')):
        path = recipe('unmixed.lua', model, f'data.mix {{ {text}, {part} }}', adamw, batch=8, length=LENGTH, steps=1)
        refused(path, 'it cannot be mixed: ' + says, flags=flags())


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


finish(turns=2)
