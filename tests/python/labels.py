#!/usr/bin/env python3
"""Models with labels: names that the data has, accuracy, F1 and confusion of validations and of `galley eval`, and what `galley predict` says of texts: of one label, of
several, of values and of pairs, by a run and by what it has saved; held against each other and against sums by hand."""
import functools
import json
import math
import pathlib

from galley_test import case, cases, check, every, finish, fresh_folder, from_config, galley, recipe, require, run, together, use
from steps_kit import refused, trained

fresh_folder()
names = ['billing', 'other', 'parcel']
lines = [dict(text=f'{["I was billed twice", "hello there", "where is my parcel"][i % 3]} {i}', kind=names[[0, 1, 2][i % 3]], tags=[x for x in names if (i + len(x)) % 2],
              score=i % 5 / 2 - 1, second=f'and {i % 4}', number=i % 3) for i in range(60)]
for name, some in (('lines', lines[:42]), ('held', lines[42:])):
    pathlib.Path(f'{name}.jsonl').write_text(''.join(json.dumps(x) + '\n' for x in some))
of = lines[42:]
for folder, text in (('plain', pathlib.Path('lines.jsonl').read_text()), ('table', 'text,kind\n' + ''.join(f'{x["text"]},{x["kind"]}\n' for x in lines[:42]))):
    pathlib.Path(folder).mkdir()
    pathlib.Path(folder, 'lines.csv').write_text(text)
pathlib.Path('text.txt').write_text(' '.join(x['text'] for x in lines))
run('tokenize', '--train', 'text.txt', '--vocab', 300, '--out', 'bpe')
config = dict(vocab_size=320, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=32)


def made(name, task, field, *uses, file='lines.jsonl', lr=2e-2, steps=60, more=''):
    model = from_config('llama', **config)[:-2] + f', task = "{task}"{more} }}'
    data = f'data.jsonl {{ files = "{file}", tokenizer = "bpe", label = "{field}", validation = "held.jsonl" }}'
    return recipe(f'{name}.lua', model, data, *uses, use('adamw', lr=lr), batch=4, length=32, steps=steps, validate=dict(every=20), seed=3)


def run_of(name, *args, **more):
    return trained(made(name, *args, **more), f'run-{name}')


def labels_of(name):
    return json.loads(pathlib.Path(f'run-{name}/model/config.json').read_text())['id2label']


def told(name, texts, *flags):
    """What `galley predict` says of each text."""
    said = galley('predict', name, *flags, input=''.join(json.dumps(x) + '\n' for x in texts))
    require(said.returncode == 0 and not said.stderr, f'predict {name}: {said}')
    answers = [json.loads(x) for x in said.stdout.splitlines()]
    require(len(answers) == len(texts), f'{len(answers)} answers to {len(texts)} texts')
    return answers


def evaluated(name):
    return json.loads(run('eval', name, '--json').stdout)


def f1(pairs, classes):
    said = []
    for c in classes:
        tp, fp, fn = (sum((c in p) == b and (c in y) == a for y, p in pairs) for a, b in ((True, True), (False, True), (True, False)))
        if tp + fp + fn:
            said.append(2 * tp / (2 * tp + fp + fn))
    return sum(said) / len(said)


# ---- One label --------------------------------------------------------------------------------------------------------------------------
ROWS = 'sequence-classification', 'kind'


@functools.cache
def one():
    """A run, and what it says of the texts that it has not seen."""
    return run_of('one', *ROWS), told('run-one', [x['text'] for x in of])


@case
def names_of_the_data():
    one()
    saved = json.loads(pathlib.Path('run-one/model/config.json').read_text())
    check(saved['id2label'] == {str(i): x for i, x in enumerate(names)} and saved['label2id'] == {x: i for i, x in enumerate(names)}, f'names: {saved.get("id2label")}')


@case
def numbers_of_one():
    """Accuracy, F1 and confusion of `galley eval` are those of what is predicted, and those of the last validation."""
    made_run, answers = one()
    right = [x['kind'] == a['label'] for x, a in together(of, answers)]
    says = evaluated('run-one')
    check(abs(says['accuracy'] - sum(right) / len(right)) < 1e-12, f'accuracy {says["accuracy"]}, of texts {sum(right)} / {len(right)}')
    check(abs(says['f1'] - f1([({x['kind']}, {a['label']}) for x, a in together(of, answers)], names)) < 1e-12, f'F1: {says["f1"]}')
    confusion = [[sum(x['kind'] == t and a['label'] == g for x, a in together(of, answers)) for g in names] for t in names]
    check(says['labels'] == names and says['confusion'] == confusion, f'confusion {says["confusion"]}, not {confusion}')
    last = [x for x in made_run.lines if 'validation_loss' in x][-1]
    check((last['accuracy'], last['f1'], last['validation_loss']) == (says['accuracy'], says['f1'], says['validation_loss']), f'the last validation: {last}')
    loss = -sum(math.log(a['probabilities'][x['kind']]) for x, a in together(of, answers)) / len(of)
    check(abs(loss - says['validation_loss']) < 1e-5, f'the loss of predicted probabilities is {loss}, of eval {says["validation_loss"]}')
    check(sum(right) / len(right) > 0.8, f'nothing was learned: {sum(right)} of {len(right)}')


@case
def predictions():
    _, answers = one()
    for a in answers:
        check(abs(sum(a['probabilities'].values()) - 1) < 1e-5 and a['probability'] == max(a['probabilities'].values()) == a['probabilities'][a['label']], f'{a}')
    check(told('run-one/model', [dict(text=x['text']) for x in of], '--length', '32') == answers, 'the saved model says something else')
    check([json.loads(run('predict', 'run-one', '--text', of[0]['text']).stdout)] == answers[:1], '--text')


@case
def what_commands_say():
    one()
    said = run('eval', 'run-one')
    check('nats a label' in said.stdout and 'loss_unit = "nats a label"' in pathlib.Path('run-one/run.toml').read_text(), 'the unit of a loss on labels')
    check('accuracy' in said.stdout and 'parcel' in said.stdout and not said.stderr, f'eval: {said.stdout}{said.stderr}')
    check('score.weight' not in run('export', 'run-one', '--out', 'exported').stderr, 'export warns of a head that the run has trained')
    refused('run-one', '`galley predict`', command='sample', flags=['--prompt', 'x'])
    run('resume', 'run-one')


# ---- The same of CSV, of names in another order in the recipe, of numbers, and of a name that is none ------------------------------------------------
@case
def table():
    plain, csv = (run_of(x, *ROWS, file=f'{x}/lines.csv', steps=3) for x in ('plain', 'table'))
    check(len(plain.steps) == 3 and plain.steps == csv.steps, 'CSV has other rows')


@case
def names_of_the_recipe():
    run_of('turned', *ROWS, steps=1, more=', labels = { "parcel", "other", "billing" }')
    check(labels_of('turned')['0'] == 'parcel', f'names of the recipe: {labels_of("turned")}')


@case
def numbers_as_labels():
    run_of('numbers', ROWS[0], 'number', steps=1)
    check(len(labels_of('numbers')) == 3, f'numbers up to 2 are three labels: {labels_of("numbers")}')


@case
def names_that_are_none():
    refused(made('less', *ROWS, more=', labels = { "parcel", "other" }'), "label 'billing' is none of the model's", command='data')
    refused(made('twice', *ROWS, more=', labels = { "a", "a" }'), "'labels' of model has a name twice")


@case
def adapter():
    """Interrupted: the names are the run's."""
    path = made('adapter', *ROWS, use('lora', rank=2, targets='all-linear'), steps=6)
    run('train', path, '--out', 'adapter', '--until', 3)
    run('resume', 'adapter')
    trained(path, 'whole')
    check(told('adapter', ['where is my parcel']) == told('whole', ['where is my parcel']), 'a resumed run predicts something else')
    refused('adapter/adapter', 'which labels', command='predict')


# ---- Several, and values --------------------------------------------------------------------------------------------------------------------
@case
def several():
    run_of('several', 'multi-label-classification', 'tags')
    answers, says = told('run-several', [x['text'] for x in of]), evaluated('run-several')
    check(every(sorted(a['labels']) == sorted(k for k, v in a['probabilities'].items() if v > 0.5) for a in answers), 'labels are those above a half')
    pairs = [(set(x['tags']), set(a['labels'])) for x, a in together(of, answers)]
    check(abs(says['accuracy'] - sum(x == y for x, y in pairs) / len(pairs)) < 1e-12 and abs(says['f1'] - f1(pairs, names)) < 1e-12, f'{says}')


@case
def values():
    run_of('values', 'regression', 'score', steps=10)
    square = sum((a['value'] - x['score']) ** 2 for x, a in together(of, told('run-values', [x['text'] for x in of]))) / len(of)
    says = evaluated('run-values')
    check(set(says) == {'validation_loss'} and abs(square - says['validation_loss']) < 1e-5, f'{square}, {says}')


# ---- What is refused --------------------------------------------------------------------------------------------------------------------
@cases({'number': ('3\n', 'stdin:1: a line has to be a string or an object'), 'field': ('"a"\n{"txt": 1}\n', 'stdin:2:'), 'cut': ('{"text": \n', 'stdin:1')})
def wrong_lines(_, what):
    stdin, words = what
    one()
    said = galley('predict', 'run-one', input=stdin)
    check(said.returncode == 2 and words in said.stderr, f'{stdin!r}: {said}')


@case
def model_of_texts():
    data = 'data.jsonl { files = "lines.jsonl", tokenizer = "bytes" }'
    path = recipe('text.lua', from_config('llama', **config), data, use('sgd', lr=0.1), batch=1, length=32, steps=1)
    trained(path, 'text')
    refused('text', '`galley sample`', command='predict', flags=['--text', 'x'])


@case
def pair_alone():
    one()
    refused('run-one', '--pair', command='predict', flags=['--pair', 'x'])


finish()
