#!/usr/bin/env python3
"""What nodes of forward write and outlives the micro-batch, by plugins of strangers that are built with the installed SDK alone: a running mean, which is a state,
and keys and values of earlier positions, which are a cache."""
import functools
import json
import pathlib
import re
import shutil

import sdk_kit
from galley_test import (batch_of, binary, case, cases, check, every, finish, fresh_folder, from_config, load, recipe, Run, run, save, source, together,
                         use)
from steps_kit import planned, recipes, refused, trained

fresh_folder()
folder = source / 'tests' / 'plugins'
ROWS, LENGTH, WIDTH, VOCABULARY = 4, 8, 32, 61
config = dict(vocab_size=VOCABULARY, max_position_embeddings=32, hidden_size=WIDTH, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
              num_key_value_heads=2)
adamw, mean = use('adamw', lr=1e-2), use('running-mean', after='mlp.down_proj', momentum=0.75)
means = [f'model.layers.{i}.mlp.down_proj.mean' for i in range(3)]
written = recipes(from_config('llama', **config), 'data.random {}', adamw, batch=ROWS, length=LENGTH, seed=3)


@functools.cache
def built():
    return sdk_kit.build_together({name: folder / name for name in ('running-mean', 'kept-keys')}, {})


def flags():
    return ['--plugin-path', built()]


def mean_run(name, *uses, more=(), **entries):
    return trained(written(name, mean, *uses, **entries), name, *flags(), *more)


def states(run):
    """{name: numbers} of the running means in the newest state of a run."""
    files = sorted(run.path.glob('state/*/*.safetensors')) or sorted(run.path.glob('state/*.safetensors'))
    return {name: list(numbers) for file in files for name, (_, _, numbers) in load(file).items() if name.endswith('.mean')}


def same(a, b, who):
    check(a.steps == b.steps, f'{who}: {a.steps}, {b.steps}')
    check(a.bytes() == b.bytes(), f'{who}: the models differ')
    check(len(states(a)) == 3 and states(a) == states(b), f'{who}: the running means differ')


@case
def computes_what_it_says():
    """The mean of a table's rows, which a rate of nearly nothing leaves as they are, over two windows of four micro-batches."""
    rows, tokens = ROWS * 2 * 2, [[(7 * r + 5 * i + r * i) % VOCABULARY for i in range(LENGTH)] for r in range(ROWS * 2 * 2)]
    flat = [x for row in tokens for x in row]
    save('tokens.safetensors', {name: ('I32', [rows, LENGTH], flat) for name in ('input_ids', 'labels')})
    path = recipe('table.lua', from_config('llama', **config), batch_of('tokens.safetensors'), use('accumulate', steps=4),
                  use('running-mean', after='embed_tokens', momentum=0.75), use('sgd', lr=1e-30), batch=ROWS, length=LENGTH, steps=2, seed=3)
    made = trained(path, 'table', *flags(), '--reference')
    table = load(made.path / 'model/model.safetensors')['model.embed_tokens.weight'][2]
    expected = [0.0] * WIDTH
    for batch in [*range(4)] * 2:
        of = [t for row in tokens[batch * ROWS:(batch + 1) * ROWS] for t in row]
        expected = [0.75 * m + 0.25 * sum(table[t * WIDTH + c] for t in of) / len(of) for c, m in enumerate(expected)]
    (_, numbers), = states(made).items()
    far = max(abs(a - b) for a, b in together(numbers, expected))
    check(far < 1e-6 and max(map(abs, expected)) > 1e-3, f'{far}: {numbers[:4]}, not {expected[:4]}')


@case
def recomputation_does_not_run_it_again():
    """Backward recomputes all that it may, with the same numbers; and something is recomputed."""
    plain = mean_run('plain', use('accumulate', steps=2), steps=4)
    path = written('again', mean, use('accumulate', steps=2), use('recompute', policy='every'), steps=4)
    again = trained(path, 'again', *flags(), '--reference')
    same(plain, again, 'recomputed')
    clones = run('plan', path, *flags(), '--dump', 'clone').stdout
    check(len(clones.splitlines()) > len(run('plan', path, *flags(), '--dump', 'bind').stdout.splitlines()) + 10, 'nothing is recomputed')
    check(len(re.findall(r'^micro\[\d+\] running-mean\.observe', clones, re.M)) == 3, 'a running mean is moved again for backward')


@case
def evaluation_reads_it():
    """Validations leave it as it is, and see it: the loss of a model without its means is another one."""
    text = ''.join(f'line {i} of a text that is made of numbers such as {i * i}\n' for i in range(400))
    pathlib.Path('text.txt').write_text(text)
    bytes_ = dict(config, vocab_size=256)
    of = recipes(from_config('llama', **bytes_), 'data.text { files = { "text.txt" }, tokenizer = "bytes", validation = 0.1 }', adamw, batch=ROWS, length=LENGTH, seed=3,
                 steps=6)
    without, often = trained(of('seldom', mean), 'seldom', *flags()), trained(of('often', mean, validate=dict(every=1)), 'often', *flags(), '--reference')
    same(without, often, 'validated')
    losses = [x['validation_loss'] for x in often.lines if 'validation_loss' in x]
    check(len(losses) >= 6, f'{often.lines}')
    said = run('eval', 'often', *flags()).stdout
    check(f'{losses[-1]:.4f}' in said, f'{losses[-1]} is not in {said}')


@case
def resumes():
    straight = mean_run('straight', use('accumulate', steps=2), steps=6)
    mean_run('halves', use('accumulate', steps=2), steps=6, more=('--until', 3))
    run('resume', 'halves', *flags(), '--reference')
    same(straight, Run('halves'), 'resumed')


@case
def skipped_steps_leave_it():
    overflow = ['--plugin-path', binary / 'tests' / 'plugins' / 'overflow']
    uses = use('overflow', steps=[3]), use('amp', compute='fp16')
    before, after = mean_run('before', *uses, more=overflow, steps=2), mean_run('after', *uses, more=(*overflow, '--reference'), steps=3)
    check([x['step'] for x in after.lines if x.get('skipped')] == [3], f'{after.lines}')
    check(len(states(before)) == 3 and states(before) == states(after), 'a skipped step has moved the running mean')
    more = mean_run('more', use('amp', compute='fp16'), steps=3)
    check(states(more) != states(before), 'a step that is applied does not move it')


@case
def exports():
    """Its strategy saves it beside the model's tensors."""
    made = mean_run('exported', steps=2)
    saved = load(made.path / 'model/model.safetensors')
    check(every(list(saved[name][2]) == states(made)[name] for name in means), f'{sorted(saved)}')
    run('export', 'exported', '--out', 'apart', *flags())
    check(every(list(load('apart/model.safetensors')[name][2]) == states(made)[name] for name in means), 'export writes others')


@case
def written_as_an_output():
    """A node that overwrites a state, instead of updating it in place, runs once as well, and a skipped step puts back what it has written."""
    latest = use('running-mean', after='mlp.down_proj', latest=True)
    plain = trained(written('latest', latest, use('accumulate', steps=2), steps=4), 'latest', *flags())
    path = written('latest-again', latest, use('accumulate', steps=2), use('recompute', policy='every'), steps=4)
    same(plain, trained(path, 'latest-again', *flags(), '--reference'), 'recomputed')
    check(len(re.findall(r'^micro\[\d+\] running-mean\.latest', run('plan', path, *flags(), '--dump', 'clone').stdout, re.M)) == 3, 'it runs again for backward')
    overflow = ['--plugin-path', binary / 'tests' / 'plugins' / 'overflow']
    uses = latest, use('overflow', steps=[3]), use('amp', compute='fp16')
    before, after = (trained(written(f'latest-{n}', *uses, steps=n), f'latest-{n}', *flags(), *overflow) for n in (2, 3))
    check(len(states(before)) == 3 and states(before) == states(after), 'a skipped step has written the mean')
    refused(written('latest-twice', use('running-mean', after='mlp.down_proj', latest=True, mistake='twice'), steps=2),
            'after another node of forward has read or written it', 'running-mean', code=4, flags=flags())


MISTAKES = {
    'always': (4, "writes 'model.layers.0.mlp.down_proj.mean' and its op lacks GALLEY_OP_TRAINING_ONLY"),
    'twice': (4, 'after another node of forward has read or written it'),
    'read before': (4, 'after another node of forward has read or written it'),
    'plain state': (4, "in the forward part; only the update may"),
    'cache': (4, 'in a program with a backward part', 'GALLEY_TENSOR_WRITTEN_FORWARD is saved'),
    'parameter': (4, 'belongs to no parameter'),
    'transient': (4, 'only a state has GALLEY_TENSOR_WRITTEN_FORWARD'),
    'begun cache': (4, 'a cache begins as zeros'),
    'constant': (4, 'which forward writes: a constant is made again after updates only'),
}


@cases(MISTAKES)
def mistake(how, expected):
    code, *texts = expected
    path = written(how.replace(' ', '-'), use('running-mean', after='mlp.down_proj', mistake=how), steps=2)
    refused(path, *texts, 'running-mean', code=code, flags=flags())


# ---- A cache -----------------------------------------------------------------------------------------------------------------------------------------
@case
def keys_of_earlier_positions():
    """A text is continued as without the cache, which keeps each position once; what the plan says includes it."""
    tokens = {f't{i}': i for i in range(VOCABULARY)}
    tokenizer = {'version': '1.0', 'model': {'type': 'WordLevel', 'vocab': tokens, 'unk_token': 't0'}, 'pre_tokenizer': {'type': 'WhitespaceSplit'}}
    pathlib.Path('words.txt').write_text(' '.join(f't{(i * i + 3 * i) % VOCABULARY}' for i in range(2000)))
    pathlib.Path('words.json').write_text(json.dumps(tokenizer))
    tokenized = recipes(from_config('llama', **config), 'data.text { files = { "words.txt" }, tokenizer = "words.json" }', adamw, batch=ROWS, length=32, seed=3, steps=8)
    made = trained(tokenized('sampled', use('kept-keys')), 'sampled', *flags())
    shutil.copytree('sampled/model', 'bare')
    pathlib.Path('bare', 'tokenizer.json').write_text(json.dumps(tokenizer))
    words = ('--prompt', 't3 t5 t7', '--temperature', 0, '--tokens', 9)
    kept = run('sample', 'sampled', *words, *flags(), KEPT_KEYS_LOG='1')
    bare = run('sample', 'bare', *words)
    check(kept.stdout == bare.stdout and len(kept.stdout.split()) > 8, f'{kept.stdout!r}, {bare.stdout!r}')
    lines = re.findall(r'(\S+)\.(keys|values) keeps (\d+) to (\d+)', kept.stderr)
    check(len(lines) == 3 * 2 * 9, f'{len(lines)} calls: {kept.stderr[:600]}')
    first = [(int(a), int(b)) for name, what, a, b in lines if what == 'keys' and '.0.' in name]
    check(first == [(0, 2)] + [(i, i) for i in range(3, 11)], f'{first}')
    check(made.steps == trained(tokenized('unsampled'), 'unsampled').steps, 'training is not as without the strategy')


finish(turns=2)
