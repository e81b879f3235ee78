#!/usr/bin/env python3
"""Models that are not decoders of next tokens alone, with strategies: encoders, an encoder with a decoder, ALiBi, windows, gates, fused weights. Each is trained,
validated, sampled from or embedded with, merged and saved under the references of its ops (`--all`, which is families_all.py: with every strategy and in every
dtype). Recomputation keeps the bytes, accumulated rows are those of one batch, a run that is resumed is the same to the bit."""
import json
import pathlib
import sys

import galley_test
from galley_test import case, cases, check, error, every, finish, fresh_folder, in_slice, require, run, Run, sliced, together, use
from steps_kit import recipes, refused, trained

fresh_folder()
import families_kit  # noqa: E402
import reference_kit as kit  # noqa: E402

everything = '--all' in sys.argv
models = families_kit.cases
adamw, clip, recompute = use('adamw', lr=1e-3), use('clip', norm=1.0), use('recompute')
lora = use('lora', rank=2, alpha=4, targets='all-linear', dropout=0.1)


def of(model, *last, data=None, **more):
    """Recipes of a model, with its data or that of another one."""
    return recipes(models[model][0], data or models[model][1], *last, **families_kit.entries(model, **more))


# ---- Under the references of the ops -------------------------------------------------------------------------------------------------------
def stacks():
    """(model, name of the strategies, strategies, flags for training, flags for every command)"""
    together_with = {'whole': [clip, recompute, use('accumulate', steps=2), adamw],
                     'qlora': [use('quantize-nf4'), lora, recompute, use('amp', compute='bf16'), use('adamw8bit', lr=1e-3)]}
    for k, model in enumerate(models):
        for s, (label, uses) in enumerate(together_with.items()):
            if everything or (k + s) % 2 == 0:
                yield model, label, uses, (), ()
    for model in models if everything else ():
        for name in kit.uses:
            if name in kit.optimizers or kit.planned([name, kit.optimizers[0]]):
                names = kit.complete([name] if name in kit.optimizers else [name, kit.optimizers[0]])
                yield model, name, [of_any_family(n) for n in names], (), ()
        for compute in ('bf16', 'fp16'):
            yield model, compute, [clip, recompute, kit.use_of('amp', 'any', compute), adamw], (), ()
        for device in (kit.discrete, kit.gpu):
            yield model, device['where'], [clip, recompute, lora, adamw], device['train'], device['also']
    for model in models if everything else ('rows', 't5', 'gemma2'):
        yield model, 'offload', [clip, adamw, *kit.rests('pinned')[1:]], kit.discrete['train'], kit.discrete['also']


def of_any_family(name):
    """A strategy whose options name no module of one family, and no rows: those of a head with a bias are refused."""
    if name == 'ia3':
        return use('ia3', targets='attention')
    return kit.use_of(name, 'any', 'bf16').replace('"model.layers.0.*"', '"*.0.*"').replace('{ "*.q_proj", "*.down_proj" }', '"all-linear"').replace(', trainable_token_indices = { 2, 5 }', '')


@cases({f'{model}-{label}': (model, label, *more) for model, label, *more in stacks() if in_slice()})
def under_reference(name, what):
    model, label, uses, flags, also = what
    path = of(model)(name, *uses)
    arguments = [x for a, p in sorted(galley_test._arguments.items()) if f'arg("{a}")' in pathlib.Path(path).read_text() for x in ('--set', f'{a}={p}')]
    kit.command(name, 'train', path, '--out', name, *arguments, *flags, *also)
    require(pathlib.Path(name, 'state').exists(), 'the run has left no state')
    kit.command(name, 'eval', name, *also)
    if model in families_kit.units and label == 'whole':
        said = run('eval', name, *also).stdout
        check(families_kit.units[model] in said and 'token' not in said, said)
    if model in families_kit.generates:
        kit.command(name, 'sample', name, '--prompt', 'one two', '--tokens', 2, *also)
    if 'use "lora"' in ' '.join(uses):
        kit.command(name, 'export', name, '--merge', '--out', f'{name}-merged', *also)


if sliced:  # families.py itself has what follows
    finish()


# ---- Without them: what must be the same ---------------------------------------------------------------------------------------------------
@cases(models if everything else ['masked', 'rows', 'decoder-values', 't5', 'bloom'])
def same_run(model, *_):
    made = of(model, adamw, steps=4, batch=4)

    def run_of(label, *uses, flags=(), **more):
        return trained(made(f'{model}-{label}', *uses, **more), f'{model}-{label}', *flags)
    plain, lean = run_of('plain'), run_of('lean', recompute)
    check(len(plain.steps) == 4, f'{len(plain.steps)} steps')
    check(plain.steps == lean.steps and plain.bytes() == lean.bytes(), 'recomputation changes a run')
    parts = run_of('parts', use('accumulate', steps=2), batch=2)
    for (loss, _), (other, _) in together(plain.steps, parts.steps):
        check(error([other], [loss]) <= 1e-4, f'accumulated rows have the loss {other}, those of one batch {loss}')
    run_of('resumed', flags=('--until', 2))
    run('resume', f'{model}-resumed')
    resumed = Run(f'{model}-resumed')
    check(resumed.steps == plain.steps and resumed.bytes() == plain.bytes(), 'a run that was resumed is another one')


# ---- Data and tasks ------------------------------------------------------------------------------------------------------------------------
@cases({'labels': ('rows', 't5', "data.prompts: the model's task 'sequence-classification' learns labels"),
        'targets': ('t5', 'rows', "the model's task 'seq2seq-lm' learns targets"),
        'masked': ('masked', 't5', "the model's task 'masked-lm' masks texts")})
def data_of_another_task(name, what):
    """It is refused by name."""
    model, other, says = what
    refused(of(model, adamw, data=models[other][1])(f'other-{name}'), says)


@case
def data_of_prompts():
    """A decoder takes what an encoder with a decoder does."""
    said = run('plan', of('opt', adamw, data=models['t5'][1])('prompts'))
    check('planned' in said.stdout, f'{said}')


@case
def unknown_task():
    model, data = models['rows']
    made = recipes(model.replace('sequence-classification', 'classification'), data, adamw, **families_kit.entries('rows'))
    refused(made('task'), "'task' = 'classification' is none")


@case
def pairs():
    """Two texts as the tokenizer joins them, the longer cut first."""
    pathlib.Path('two.jsonl').write_text(json.dumps(dict(text='a b c d e f', answer='g h', label=1)) + '\n' + json.dumps(
        dict(text='g', answer='a b', label=0)) + '\n')
    model, data = models['pairs']
    path = recipes(model, data.replace('lines.jsonl', 'two.jsonl').replace('validation = 0.2', 'validation = 0'), adamw, batch=2, length=8, steps=2)('pairs')
    vocabulary = families_kit.tokenizer['model']['vocab']
    rows = [json.loads(x) for x in run('data', path, '--json', '--rows', 2).stdout.splitlines()[1:]]
    wanted = ['[CLS]', *'abc', '[SEP]', *'gh', '[SEP]'], ['[CLS]', 'g', '[SEP]', *'ab', '[SEP]']
    for row, want in together(sorted(rows, key=lambda row: -row['labels'][0]), wanted):
        begin, end = want.index('[SEP]') + 1, len(want)
        check(row['input_ids'][:end] == [vocabulary[w] for w in want] and set(row['input_ids'][end:]) <= {0}, f'a pair is {row["input_ids"]}, not {want}')
        check(row['token_type_ids'] == [0] * begin + [1] * (end - begin) + [0] * (8 - end), f'the types of a pair are {row["token_type_ids"]}')


@case
def numbers():
    """Of a row, which the model tells."""
    rows = [json.loads(x)['labels'] for x in run('data', of('decoder-values', adamw)('numbers'), '--json', '--rows', 3).stdout.splitlines()[1:]]
    check(len(rows) == 2 and every(b == -8 * a for a, b in rows), f'the numbers of rows are {rows}')


@cases({'second text': ('masked', ', pair = "answer" }', "'pair' = \"answer\" is a second text"),
        'one value for two': ('decoder-values', ', label = "score" }', "has 1 value, and the model tells 2"),
        'text as value': ('values', ', label = "text" }', "where a number belongs"),
        'pair without template': ('rows', ', pair = "answer" }', 'does not say how it joins two texts')})
def wrong_fields(name, what):
    model, text, says = what
    refused(of(model, adamw, data=models[model][1].removesuffix(' }').split(', label = ')[0] + text)('fields'), says, command='data')


@case
def label_that_is_none():
    """It is named with its line."""
    bad = pathlib.Path('bad.jsonl')
    bad.write_text(json.dumps(dict(text='a text', label=7)) + '\n' + json.dumps(dict(text='another', label=0)) + '\n')
    refused(of('rows', adamw, data=models['rows'][1].replace('lines.jsonl', 'bad.jsonl'))('label'), 'bad.jsonl:1', 'label 7', command='data')


finish(turns=2)
