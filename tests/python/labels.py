#!/usr/bin/env python3
"""Models with labels: names that the data has, accuracy, F1 and confusion of validations and of `galley eval`, and what `galley predict` says of texts: of one label, of
several, of values and of pairs, by a run and by what it has saved; held against each other and against sums by hand."""
import json
import math
import pathlib
import subprocess

from galley_test import check, every, finish, fresh_folder, from_config, program, recipe, run, Run, use

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


def trained(name, *args, **more):
    out = f'run-{name}'
    run('train', made(name, *args, **more), '--out', out)
    return Run(out)


def told(name, texts, *flags):
    ran = subprocess.run([program, 'predict', name, *flags], input=''.join(json.dumps(x) + '\n' for x in texts), capture_output=True, text=True)
    check(ran.returncode == 0 and not ran.stderr, f'predict {name}: {ran.returncode} {ran.stderr}')
    return [json.loads(x) for x in ran.stdout.splitlines()]


def f1(pairs, classes):
    said = []
    for c in classes:
        tp, fp, fn = (sum((c in p) == b and (c in y) == a for y, p in pairs) for a, b in ((True, True), (False, True), (True, False)))
        if tp + fp + fn:
            said.append(2 * tp / (2 * tp + fp + fn))
    return sum(said) / len(said)


# ---- One label --------------------------------------------------------------------------------------------------------------------------

one = trained('one', 'sequence-classification', 'kind')
saved = json.loads(pathlib.Path('run-one/model/config.json').read_text())
check(saved['id2label'] == {str(i): x for i, x in enumerate(names)} and saved['label2id'] == {x: i for i, x in enumerate(names)}, f'names: {saved.get("id2label")}')
answers = told('run-one', [x['text'] for x in of])
right = [x['kind'] == a['label'] for x, a in zip(of, answers)]
says = json.loads(run('eval', 'run-one', '--json').stdout)
check(abs(says['accuracy'] - sum(right) / len(right)) < 1e-12, f'accuracy {says["accuracy"]}, of texts {sum(right)} / {len(right)}')
check(abs(says['f1'] - f1([({x['kind']}, {a['label']}) for x, a in zip(of, answers)], names)) < 1e-12, f'F1: {says["f1"]}')
confusion = [[sum(x['kind'] == t and a['label'] == g for x, a in zip(of, answers)) for g in names] for t in names]
check(says['labels'] == names and says['confusion'] == confusion, f'confusion {says["confusion"]}, not {confusion}')
last = [x for x in one.lines if 'validation_loss' in x][-1]
check((last['accuracy'], last['f1'], last['validation_loss']) == (says['accuracy'], says['f1'], says['validation_loss']), f'the last validation: {last}')
loss = -sum(math.log(a['probabilities'][x['kind']]) for x, a in zip(of, answers)) / len(of)
check(abs(loss - says['validation_loss']) < 1e-5, f'the loss of predicted probabilities is {loss}, of eval {says["validation_loss"]}')
for a in answers:
    check(abs(sum(a['probabilities'].values()) - 1) < 1e-5 and a['probability'] == max(a['probabilities'].values()) == a['probabilities'][a['label']], f'{a}')
check(sum(right) / len(right) > 0.8, f'nothing was learned: {sum(right)} of {len(right)}')
check(told('run-one/model', [dict(text=x['text']) for x in of], '--length', '32') == answers, 'the saved model says something else')
check([json.loads(run('predict', 'run-one', '--text', of[0]['text']).stdout)] == answers[:1], '--text')
said = run('eval', 'run-one')
check('nats a label' in said.stdout and 'loss_unit = "nats a label"' in pathlib.Path('run-one/run.toml').read_text(), 'the unit of a loss on labels')
check('accuracy' in said.stdout and 'parcel' in said.stdout and not said.stderr, f'eval: {said.stdout}{said.stderr}')
check('score.weight' not in run('export', 'run-one', '--out', 'exported').stderr, 'export warns of a head that the run has trained')
check('`galley predict`' in run('sample', 'run-one', '--prompt', 'x', code=2).stderr, 'sample does not point to predict')
run('resume', 'run-one')

# The same of CSV, of names in another order in the recipe, of numbers, and of a name that is none.
plain, table = (trained(x, 'sequence-classification', 'kind', file=f'{x}/lines.csv', steps=3) for x in ('plain', 'table'))
check(plain.steps == table.steps, 'CSV has other rows')
trained('turned', 'sequence-classification', 'kind', steps=1, more=', labels = { "parcel", "other", "billing" }')
check(json.loads(pathlib.Path('run-turned/model/config.json').read_text())['id2label']['0'] == 'parcel', 'names of the recipe')
trained('numbers', 'sequence-classification', 'number', steps=1)
check(len(json.loads(pathlib.Path('run-numbers/model/config.json').read_text())['id2label']) == 3, 'numbers up to 2 are three labels')
said = run('data', made('less', 'sequence-classification', 'kind', more=', labels = { "parcel", "other" }'), code=2).stderr
check("label 'billing' is none of the model's" in said, said)
check("'labels' of model has a name twice" in run('plan', made('twice', 'sequence-classification', 'kind', more=', labels = { "a", "a" }'), code=2).stderr, 'twice')

# An adapter, interrupted: the names are the run's.
adapter = made('adapter', 'sequence-classification', 'kind', use('lora', rank=2, targets='all-linear'), steps=6)
run('train', adapter, '--out', 'adapter', '--until', 3)
run('resume', 'adapter')
run('train', adapter, '--out', 'whole')
check(told('adapter', ['where is my parcel']) == told('whole', ['where is my parcel']), 'a resumed run predicts something else')
check('which labels' in run('predict', 'adapter/adapter', code=2).stderr, 'an adapter alone')

# ---- Several, values, two texts -----------------------------------------------------------------------------------------------------------

several = trained('several', 'multi-label-classification', 'tags')
answers = told('run-several', [x['text'] for x in of])
says = json.loads(run('eval', 'run-several', '--json').stdout)
check(every(sorted(a['labels']) == sorted(k for k, v in a['probabilities'].items() if v > 0.5) for a in answers), 'several: labels are those above a half')
pairs = [(set(x['tags']), set(a['labels'])) for x, a in zip(of, answers)]
check(abs(says['accuracy'] - sum(x == y for x, y in pairs) / len(pairs)) < 1e-12 and abs(says['f1'] - f1(pairs, names)) < 1e-12, f'several: {says}')
values = trained('values', 'regression', 'score', steps=10)
square = sum((a['value'] - x['score']) ** 2 for x, a in zip(of, told('run-values', [x['text'] for x in of]))) / len(of)
says = json.loads(run('eval', 'run-values', '--json').stdout)
check(set(says) == {'validation_loss'} and abs(square - says['validation_loss']) < 1e-5, f'values: {square}, {says}')

# ---- What is refused --------------------------------------------------------------------------------------------------------------------

for stdin, words in (('3\n', 'stdin:1: a line has to be a string or an object'), ('"a"\n{"txt": 1}\n', 'stdin:2:'), ('{"text": \n', 'stdin:1')):
    ran = subprocess.run([program, 'predict', 'run-one'], input=stdin, capture_output=True, text=True)
    check(ran.returncode == 2 and words in ran.stderr, f'{stdin!r}: {ran.returncode} {ran.stderr}')
run('train', recipe('text.lua', from_config('llama', **config), 'data.jsonl { files = "lines.jsonl", tokenizer = "bytes" }', use('sgd', lr=0.1), batch=1, length=32, steps=1), '--out', 'text')
check("`galley sample`" in run('predict', 'text', '--text', 'x', code=2).stderr, 'predict of a model of texts')
check('--pair' in run('predict', 'run-one', '--pair', 'x', code=2).stderr, '--pair alone')
finish()
