#!/usr/bin/env python3
"""Models that are not decoders of next tokens alone, with strategies: encoders, an encoder with a decoder, ALiBi, windows, gates, fused weights. Each is trained,
validated, sampled from or embedded with, merged and saved under the references of its ops (families_all.py: with every strategy and in every dtype). Recomputation
keeps the bytes, accumulated rows are those of one batch, a run that is resumed is the same to the bit."""
import json
import pathlib
import sys

import galley_test
from galley_test import check, error, every, finish, fresh_folder, in_slice, lua, recipe, run, Run, sliced, together, train, use

fresh_folder()
import reference_kit as kit  # noqa: E402
from families_kit import cases, entries, generates, tokenizer, units  # noqa: E402

everything = 'all' in sys.argv
adamw, clip, recompute = use('adamw', lr=1e-3), use('clip', norm=1.0), use('recompute')
lora = use('lora', rank=2, alpha=4, targets='all-linear', dropout=0.1)


def under_reference(case, label, *uses, also=(), flags=(), **more):
    if not in_slice():
        return
    model, data = cases[case]
    name = f'{case}-{label}'
    path = recipe(f'{name}.lua', model, data, *uses, **entries(case, **more))
    arguments = [x for a, p in sorted(galley_test._arguments.items()) if f'arg("{a}")' in pathlib.Path(path).read_text()
                 for x in ('--set', f'{a}={p}')]
    kit.command(name, 'train', path, '--out', name, *arguments, *flags, *also)
    if not pathlib.Path(name, 'state').exists():
        return
    kit.command(name, 'eval', name, *also)
    if case in units and label == 'whole':
        said = run('eval', name, *also).stdout
        check(units[case] in said and 'token' not in said, f'{name}: {said}')
    if case in generates:
        kit.command(name, 'sample', name, '--prompt', 'one two', '--tokens', 2, *also)
    if 'use "lora"' in ' '.join(uses):
        kit.command(name, 'export', name, '--merge', '--out', f'{name}-merged', *also)


stacks = {
    'whole': [clip, recompute, use('accumulate', steps=2), adamw],
    'qlora': [use('quantize-nf4'), lora, recompute, use('amp', compute='bf16'), use('adamw8bit', lr=1e-3)],
}
for k, case in enumerate(cases):
    for s, (label, uses) in enumerate(stacks.items()):
        if everything or (k + s) % 2 == 0:
            under_reference(case, label, *uses)
if everything:
    for case in cases:
        for name in kit.uses:
            if name in kit.optimizers or kit.planned([name, kit.optimizers[0]]):
                names = kit.complete([name] if name in kit.optimizers else [name, kit.optimizers[0]])
                lines_of = [use('ia3', targets='attention') if n == 'ia3' else kit.use_of(n, 'any', 'bf16').replace('"model.layers.0.*"', '"*.0.*"').replace('{ "*.q_proj", "*.down_proj" }', '"all-linear"')
                            for n in names]
                under_reference(case, name, *lines_of)
        for compute in ('bf16', 'fp16'):
            under_reference(case, compute, clip, recompute, kit.use_of('amp', 'any', compute), adamw)
        for device in (kit.discrete, kit.gpu):
            under_reference(case, device['where'], clip, recompute, lora, adamw, flags=device['train'], also=device['also'])
for case in ('rows', 't5', 'gemma2') if not everything else cases:
    device = kit.discrete
    placed = kit.rests('pinned')[1:]
    under_reference(case, 'offload', clip, adamw, *placed, flags=device['train'], also=device['also'])

if sliced:  # families.py itself has what follows
    finish()

# Without the references: what must be the same.
for case in ('masked', 'rows', 'decoder-values', 't5', 'bloom') if not everything else cases:
    model, data = cases[case]

    def trained(label, *uses, flags=(), **more):
        path = recipe(f'{case}-{label}.lua', model, data, *uses, adamw, **entries(case, **dict(dict(steps=4, batch=4), **more)))
        return train(path, f'{case}-{label}', *flags)
    plain, lean = trained('plain'), trained('lean', recompute)
    plain.check_memory(case)
    lean.check_memory(case)
    check(plain.steps == lean.steps and plain.bytes() == lean.bytes(), f'{case}: recomputation changes a run')
    parts = trained('parts', use('accumulate', steps=2), batch=2)
    for (loss, _), (other, _) in together(plain.steps, parts.steps):
        check(error([other], [loss]) <= 1e-4, f'{case}: accumulated rows have the loss {other}, those of one batch {loss}')
    trained('resumed', flags=('--until', 2))
    run('resume', f'{case}-resumed')
    resumed = Run(f'{case}-resumed')
    check(resumed.steps == plain.steps and resumed.bytes() == plain.bytes(), f'{case}: a run that was resumed is another one')

# What data and tasks do not go together is refused by name.
for case, other, says in (('rows', 't5', "data.prompts: the model's task 'sequence-classification' learns labels"), ('t5', 'rows', "the model's task 'seq2seq-lm' learns targets"),
                          ('masked', 't5', "the model's task 'masked-lm' masks texts"), ('opt', 't5', None)):
    path = recipe('refused.lua', cases[case][0], cases[other][1], adamw, **entries(case))
    said = run('plan', path, code=2 if says else 0).stderr
    check(not says or says in said, f'{case} with the data of {other}: {said}')
path = recipe('task.lua', cases['rows'][0].replace('sequence-classification', 'classification'), cases['rows'][1], adamw, **entries('rows'))
check("'task' = 'classification' is none" in run('plan', path, code=2).stderr, 'an unknown task is not refused by name')

# Two texts as the tokenizer joins them, the longer cut first; and a number of a row.
pathlib.Path('two.jsonl').write_text(json.dumps(dict(text='a b c d e f', answer='g h', label=1)) + '\n' + json.dumps(
    dict(text='g', answer='a b', label=0)) + '\n')
pair_data = cases['pairs'][1].replace('lines.jsonl', 'two.jsonl').replace('validation = 0.2', 'validation = 0')
path = recipe('pairs.lua', cases['pairs'][0], pair_data, adamw, batch=2, length=8, steps=2)
vocabulary = tokenizer['model']['vocab']
rows = [json.loads(x) for x in run('data', path, '--json', '--rows', 2).stdout.splitlines()[1:]]
for row, want in together(sorted(rows, key=lambda row: -row['labels'][0]), (['[CLS]', *'abc', '[SEP]', *'gh', '[SEP]'], ['[CLS]', 'g', '[SEP]', *'ab', '[SEP]'])):
    begin, end = want.index('[SEP]') + 1, len(want)
    check(row['input_ids'][:end] == [vocabulary[w] for w in want] and set(row['input_ids'][end:]) <= {0}, f'a pair is {row["input_ids"]}, not {want}')
    check(row['token_type_ids'] == [0] * begin + [1] * (end - begin) + [0] * (8 - end), f'the types of a pair are {row["token_type_ids"]}')
path = recipe('numbers.lua', cases['decoder-values'][0], cases['decoder-values'][1], adamw, **entries('decoder-values'))
rows = [json.loads(x)['labels'] for x in run('data', path, '--json', '--rows', 3).stdout.splitlines()[1:]]
check(len(rows) == 2 and every(b == -8 * a for a, b in rows), f'the numbers of rows are {rows}')
for case, text, says in (('masked', ', pair = "answer" }', "'pair' = \"answer\" is a second text"), ('decoder-values', ', label = "score" }', "has 1 value, and the model tells 2"),
                         ('values', ', label = "text" }', "where a number belongs"), ('rows', ', pair = "answer" }', 'does not say how it joins two texts')):
    data = cases[case][1].removesuffix(' }').split(', label = ')[0] + text
    said = run('data', recipe('refused.lua', cases[case][0], data, adamw, **entries(case)), code=2).stderr
    check(says in said, f'{case}{text}: {said}')
bad = pathlib.Path('bad.jsonl')
bad.write_text(json.dumps(dict(text='a text', label=7)) + '\n' + json.dumps(dict(text='another', label=0)) + '\n')
path = recipe('label.lua', cases['rows'][0], cases['rows'][1].replace('lines.jsonl', 'bad.jsonl'), adamw, **entries('rows'))
said = run('data', path, code=2).stderr
check('bad.jsonl:1' in said and 'label 7' in said, f'a label that the model does not have: {said}')
finish()
