#!/usr/bin/env python3
# label: all
"""One validation loss, however it is computed: with rows of 1 to 7 at a time, chunks of the head, ways of packing, accumulation, recomputation and any number of threads,
of models of every task and kind of data. And what a run says of its last step is what `galley eval` says of the run and of the model that it has saved. With each commit,
slices.py runs another part."""
import array
import json
import pathlib

from galley_test import cases, check, finish, fresh_folder, from_config, in_slice, recipe, run, sliced, train, use

fresh_folder()
import families_kit  # noqa: E402

chats = [[('user', f'what is {i % 5} and {i % 7}?'), ('assistant', f'{i % 5 + i % 7}')] for i in range(40)]
pathlib.Path('chats.jsonl').write_text(''.join(json.dumps(dict(messages=[dict(role=r, content=t) for r, t in x])) + '\n' for x in chats))
pathlib.Path('tokens.bin').write_bytes(array.array('H', [t for i in range(60) for t in (*(65 + (i * k) % 50 for k in range(1, 4 + i % 9)), 0)]).tobytes())
pathlib.Path('long.txt').write_text(''.join(f'{i} one two three four {i * i}. ' for i in range(150)))
gpt2 = from_config('gpt2', vocab_size=256, n_positions=96, n_embd=16, n_layer=2, n_head=2)
bytes_of = 'tokenizer = "bytes", validation = 0.2'
prompts = f'data.prompts {{ files = {{ "lines.jsonl" }}, {bytes_of} }}'
more = {
    'prompts': (gpt2, prompts),
    'prompts, all of them': (gpt2, prompts[:-2] + ', train_on = "all" }'),
    'chat': (gpt2, f'data.chat {{ files = {{ "chats.jsonl" }}, {bytes_of}, template = "zephyr" }}'),
    'ids of tokens': (gpt2, 'data.tokens { files = { "tokens.bin" }, validation = 0.2, separator = 0 }'),
    'text that is cut': (gpt2, f'data.text {{ files = {{ "long.txt" }}, {bytes_of} }}'),
    'a mix': (gpt2, f'data.mix {{ {families_kit.next_data}, {prompts}, weights = {{ 1, 2 }} }}'),
}
tasks = {k: v for k, v in {**families_kit.cases, **more}.items() if in_slice()}
# The losses of tokens are summed in float64 in another order: 5.1e-16 at the most was seen. In another place of its row a document is computed in F32 in other blocks:
# 2e-9 was.
SUMS, ROUNDING = 1e-15, 3e-8
# Where documents are shorter than a row, they may lie in it as they like.
PACKINGS = {'each in a row': 'packing = "none"', 'by length': 'packing = "none", group_by_length = true', 'tight': 'packing = "best-fit"'}
may_pack = {*families_kit.generates, *more} - {'t5', 't5-gated', 'text that is cut', 'a mix'}


def entries(task, **changes):
    long = dict(length=96) if task in more and task != 'text that is cut' else {}
    return families_kit.entries(task, **{**long, **dict(validate=dict(every=2)), **changes})


def evaluated(task, folder, *uses, threads=1, packing=None, **changes):
    """The validation loss of a run's model under another recipe, and how right it is, where a model has labels."""
    data = tasks[task][1]
    data = data[:-2] + f', {packing} }}' if packing else data
    path = recipe('eval.lua', f'model {{ path = "{folder}/model" }}', data, *uses, **entries(task, **changes))
    return of(json.loads(run('eval', path, '--json', threads=threads).stdout))


def of(line):
    return line['validation_loss'], line.get('accuracy'), line.get('f1')


def near(a, b, bound):
    return abs(a[0] - b[0]) <= bound * abs(b[0]) and a[1:] == b[1:]


@cases(tasks)
def one_loss(task, made):
    folder = task.replace(' ', '-').replace(',', '')
    trained = train(recipe(f'{folder}.lua', *made, use('adamw', lr=1e-2), **entries(task)), folder)
    said = of([x for x in trained.lines if 'validation_loss' in x][-1])
    check(said[0] > 0, f'{task}: {said}')
    says = of(json.loads(run('eval', folder, '--json').stdout))
    check(says == said, f'{task}: galley eval says {says}, the run {said}')
    same = {'as the run': {}, 'accumulation': dict(uses=[use('accumulate', steps=3)]), 'recomputation': dict(uses=[use('recompute', every=1)]),
            'another optimizer': dict(uses=[use('sgd', lr=1.0)]), **{f'{n} threads': dict(threads=n) for n in (2, 3, 7)}}
    for way, how in same.items():
        found = evaluated(task, folder, *how.get('uses', ()), **{k: v for k, v in how.items() if k != 'uses'})
        check(found == said, f'{task}, {way}: {found}, not {said}')
    ways = {**{f'{n} rows': dict(batch=n) for n in range(1, 8) if n != 2}, **{f'head_rows = {n}': dict(head_rows=n) for n in (1, 3, 8, 1000)}}
    packed = {x: dict(packing=packing, length=32 if task in families_kit.cases else 96) for x, packing in PACKINGS.items()} if task in may_pack else {}
    if task == 'bloom':  # which has no last position: all that is held out in one row
        packed['one after the other'] = dict(packing='packing = "sequential"', length=1024, batch=1)
    for way, how in {**ways, **packed}.items():
        loss, bound = evaluated(task, folder, **how), ROUNDING if way in packed else SUMS
        check(near(loss, said, bound), f'{task}, {way}: {loss}, not {said}: off by {(loss[0] - said[0]) / said[0]:.1e}')


check(sliced or len(tasks) == 24, f'{len(tasks)} tasks')
finish()
