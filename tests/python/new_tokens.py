#!/usr/bin/env python3
"""model { add_tokens, add_special_tokens }: the tokenizer has them as transformers adds them, each table of the vocabulary has a row for each, the mean of those before; what is
saved has both; alone and under adapters, by the references, resumed and merged; and what is refused."""
import json
import math
import pathlib
import shutil

from errors_kit import check_error
from galley_test import case, cases, check, every, finish, fresh_folder, from_config, galley, load, recipe, run, together, train, use

fresh_folder()
lines = [f'call <call> add({i}, {i % 5}) <result> {i + i % 5} <|end|>' for i in range(60)]
pathlib.Path('text.txt').write_text('\n'.join(lines))
pathlib.Path('lines.jsonl').write_text(''.join(json.dumps({'text': x}) + '\n' for x in lines))
pathlib.Path('plain.txt').write_text(' '.join(f'call add {i} result' for i in range(60)))
run('tokenize', '--train', 'plain.txt', '--vocab', 270, '--out', 'bpe')
trained_bpe = json.loads(pathlib.Path('bpe/tokenizer.json').read_text())
first = 1 + max([*trained_bpe['model']['vocab'].values(), *[x['id'] for x in trained_bpe['added_tokens']]])
NEW = dict(add_tokens=['<call>', '<result>'], add_special_tokens=['<|end|>'])
IDS = {'<call>': first, '<result>': first + 1, '<|end|>': first + 2}
LLAMA = dict(num_hidden_layers=1, hidden_size=16, intermediate_size=24, num_attention_heads=2, max_position_embeddings=32)
BASES = {
    'tied': from_config('llama', **LLAMA, vocab_size=first, tie_word_embeddings=True),
    'untied': from_config('llama', **LLAMA, vocab_size=first, tie_word_embeddings=False),
    'gpt2': from_config('gpt2', n_layer=1, n_embd=16, n_head=2, n_positions=32, vocab_size=first),
    'room': from_config('llama', **LLAMA, vocab_size=first + 2, tie_word_embeddings=False),  # a row that no token has
}
DATA = 'data.jsonl { files = "lines.jsonl", tokenizer = %s, validation = 0.1 }'


def model_of(path, **more):
    return f'model {{ path = "{path}", ' + ', '.join(f'{k} = {{ {", ".join(map(json.dumps, v))} }}' for k, v in more.items()) + ' }'


def made(name, model, *uses, flags=(), tokenizer='"model"', **more):
    entries = {**dict(batch=2, length=24, steps=3, seed=5, validate=dict(every=3)), **more}
    path = recipe(f'{name}.lua', model, DATA % tokenizer, *uses, **{k: x for k, x in entries.items() if x is not None})
    one = train(path, name, *flags)
    one.check_memory(name)
    return one


def base_of(kind):
    folder = pathlib.Path(f'base-{kind}')
    if not folder.exists():
        one = made(f'{kind}-begun', BASES[kind], use('sgd', lr=1e-30), tokenizer='"bpe"', steps=1, validate=dict())
        shutil.copytree(one.path / 'model', folder)
    return folder


def mean_rows(numbers, columns):
    rows = [numbers[i:i + columns] for i in range(0, len(numbers), columns)]
    return [math.fsum(x) / len(rows) for x in zip(*rows, strict=True)]


def ids(folder, texts):
    said = run('tokenize', pathlib.Path(folder) / 'tokenizer.json', input=''.join(json.dumps({'text': x}) + '\n' for x in texts)).stdout
    return [json.loads(x)['ids'] for x in said.splitlines()]


@cases(BASES)
def rows_and_tokens(kind, _):
    """What is saved after a step that changes nothing."""
    base = base_of(kind)
    one = made(f'{kind}-grown', model_of(base, **NEW), use('sgd', lr=1e-30), flags=('--reference',), steps=1)
    before, after = load(base / 'model.safetensors'), load(one.path / 'model/model.safetensors')
    rows = json.loads((base / 'config.json').read_text())['vocab_size']
    check(json.loads((one.path / 'model/config.json').read_text())['vocab_size'] == first + 3, f'{kind}: vocab_size')
    check(set(before) == set(after), f'{kind}: other tensors {set(before) ^ set(after)}')
    tables = [k for k, x in before.items() if x[1][0] == rows]
    check(len(tables) == 1 + (kind in ('untied', 'room')), f'{kind}: tables {tables}')
    for name, (dtype, shape, numbers) in before.items():
        got = after[name]
        there = len(numbers)
        check(every(abs(x - y) <= 1e-20 for x, y in together(got[2][:there], numbers)), f'{kind}: {name} has changed')
        wanted = mean_rows(numbers, shape[1]) * (first + 3 - rows) if name in tables else []
        check(len(got[2]) == there + len(wanted), f'{kind}: {name} has {got[1]}')
        check(every(abs(x - y) <= 1e-7 * max(1e-3, abs(y)) for x, y in together(got[2][there:], wanted)) if wanted else True, f'{kind}: the new rows of {name}')
    listed = {x['content']: x for x in json.loads((one.path / 'model/tokenizer.json').read_text())['added_tokens']}
    check({k: listed[k]['id'] for k in IDS} == IDS, f'{kind}: {listed}')
    flags = [(listed[k]['special'], listed[k]['normalized']) for k in IDS]
    check(flags == [(False, True), (False, True), (True, False)], f'{kind}: special and normalized {flags}')
    said = ids(one.path / 'model', lines[:3])
    check(every([x for x in of if x >= first] == list(IDS.values()) for of in said), f'{kind}: {said}')
    again = made(f'{kind}-again', model_of(one.path / 'model', **NEW), use('sgd', lr=1e-30), steps=1)
    check({k: x[1] for k, x in load(again.path / 'model/model.safetensors').items()} == {k: x[1] for k, x in after.items()}, f'{kind}: tokens that are there are added again')


@case
def trained_rows():
    """New rows are trained as others are; the data has the tokens; a resumed run has the same bytes; files in 16 bit."""
    base = base_of('tied')
    before = made('fewer', model_of(base), use('adamw', lr=1e-2), steps=6)
    one = made('whole', model_of(base, **NEW), use('adamw', lr=1e-2), steps=6, flags=('--reference',))
    positions = [sum(x['tokens'] for x in of.lines if 'loss' in x) for of in (before, one)]
    check(positions[1] < positions[0] and len(ids(one.path / 'model', lines)[0]) < len(ids(base, lines)[0]), f'{positions[1]} tokens, {positions[0]} without new ones')
    table = load(one.path / 'model/model.safetensors')['model.embed_tokens.weight'][2]
    new = [tuple(table[i * 16:i * 16 + 16]) for i in IDS.values()]
    check(len(set(new)) == 3, 'new rows are equal after six steps')
    path = recipe('parts.lua', model_of(base, **NEW), DATA % '"model"', use('adamw', lr=1e-2), batch=2, length=24, steps=6, seed=5, validate=dict(every=3), save=dict(every=2))
    run('train', path, '--out', 'parts', '--until', 2)
    run('resume', 'parts')
    check(pathlib.Path('parts/model/model.safetensors').read_bytes() == one.bytes(), 'a resumed run has other bytes')
    run('export', 'base-tied', '--dtype', 'bf16', '--out', 'narrow')
    narrow = made('of-narrow', model_of('narrow', **NEW), use('sgd', lr=1e-30), steps=1, flags=('--reference',))
    rows = load('narrow/model.safetensors')['model.embed_tokens.weight'][2]
    wanted = mean_rows(rows, 16)
    got = load(narrow.path / 'model/model.safetensors')['model.embed_tokens.weight'][2][len(rows):]
    check(every(abs(x - y) <= 2 ** -8 * abs(y) for x, y in together(got, wanted * 3)), f'{got}, not {wanted}')


@case
def adapters():
    """An adapter's folder has the tokenizer, by which its base gets the rows again; merged they are the base's own."""
    base = base_of('untied')
    one = made('adapter', model_of(base, **NEW), use('lora', rank=2), use('adamw', lr=1e-2), flags=('--reference',))
    check({k: v for k, v in IDS.items() if ids(one.path / 'adapter', [k]) != [[v]]} == {}, 'the tokenizer beside the adapter')
    asked = ('--prompt', 'call <call>', '--temperature', 0, '--tokens', 12)
    of_run = run('sample', one.path, *asked).stdout
    check(run('sample', one.path / 'adapter', '--base', base, *asked).stdout == of_run, 'the folder of the adapter writes another text')
    run('export', one.path, '--merge', '--out', 'merged')
    check(run('sample', 'merged', *asked).stdout == of_run, 'the merged model writes another text')
    check(load('merged/model.safetensors')['lm_head.weight'][1] == [first + 3, 16], 'the merged table')
    loss = json.loads(run('eval', one.path, '--json').stdout)['validation_loss']
    path = recipe('of-merged.lua', 'model { path = "merged" }', DATA % '"model"', batch=2, length=24, steps=1, seed=5, validate=dict(every=1))
    merged = json.loads(run('eval', path, '--json').stdout)['validation_loss']
    check(abs(loss - merged) < 1e-6, f'{merged}, not {loss}')


@case
def rows_alone():
    """Under an adapter the tables are frozen, and a warning says so; tokens that its options name by their texts are trained alone, by steps and by epochs."""
    base = base_of('untied')
    frozen = recipe('frozen.lua', model_of(base, **NEW), DATA % '"model"', use('lora', rank=2), use('adamw', lr=1e-2), batch=2, length=24, steps=3)
    check('stay the mean of the others' in galley('plan', frozen).stderr, 'nothing says that new rows are not trained')
    tokens = list(IDS)
    modules = [dict(module='embed_tokens', indices=tokens[:2]), dict(module='lm_head', indices=tokens)]
    one = made('rows', model_of(base, **NEW), use('lora', rank=2, trainable_token_modules=modules), use('adamw', lr=1e-2), steps=None, epochs=1, flags=('--reference',))
    asked = ('--prompt', 'call <call>', '--temperature', 0, '--tokens', 12)
    of_run = run('sample', one.path, *asked).stdout
    check(run('sample', one.path / 'adapter', '--base', base, *asked).stdout == of_run, 'the folder of the adapter writes another text')
    config = json.loads((one.path / 'adapter/adapter_config.json').read_text())['trainable_token_indices']
    check(config == {'model.embed_tokens': [IDS[x] for x in tokens[:2]], 'lm_head': list(IDS.values())}, f'{config}')
    run('export', one.path, '--merge', '--out', 'rows-merged')
    tables = load('rows-merged/model.safetensors')
    before = load(base / 'model.safetensors')
    for name, trained in (('model.embed_tokens.weight', tokens[:2]), ('lm_head.weight', tokens)):
        mean = mean_rows(before[name][2], 16)
        moved = [k for k, i in IDS.items() if not every(abs(x - y) < 1e-6 for x, y in together(tables[name][2][i * 16:i * 16 + 16], mean))]
        check(moved == trained, f'{name}: {moved} have moved, not {trained}')
        check(list(tables[name][2][:first * 16]) == list(before[name][2]), f'{name}: other rows have changed')
    tied = made('rows-tied', model_of(base_of('tied'), **NEW), use('lora', rank=2, trainable_token_indices='<call>'), use('adamw', lr=1e-2))
    check(json.loads((tied.path / 'adapter/adapter_config.json').read_text())['trainable_token_indices'] == [IDS['<call>']], 'one token')


@case
def existing_token():
    """One of the vocabulary keeps its id, and is found before anything is cut."""
    base = base_of('tied')
    vocabulary = json.loads((base / 'tokenizer.json').read_text())['model']['vocab']
    piece = max((x for x in vocabulary if x.isascii() and x.isalpha()), key=len)
    one = made('existing', model_of(base, add_tokens=[piece]), use('sgd', lr=1e-30), steps=1)
    check(one.bytes() == (base / 'model.safetensors').read_bytes(), 'a token that is there adds a row')
    check(vocabulary[piece] in ids(one.path / 'model', [f'xx{piece}yy'])[0], f'{piece} is not found in a word')


@case
def refused():
    base = base_of('tied')

    def said(name, model, tokenizer='"model"'):
        return galley('plan', recipe(f'{name}.lua', model, DATA % tokenizer, use('sgd', lr=1.0), batch=2, length=24, steps=1))

    check_error(said('bytes', model_of(base, **NEW), '"bytes"'), 2, 'tokenizer = "bytes" cannot be given tokens', hint='leave add_tokens out')
    check_error(said('empty', model_of(base, add_tokens=[''])), 2, "'add_tokens'", 'a list such as { "<call>", "<result>" }')
    check_error(said('number', f'model {{ path = "{base}", add_tokens = 3 }}'), 2, "'add_tokens'")
    shutil.copytree(base, 'uncounted')
    config = json.loads((base / 'config.json').read_text())
    pathlib.Path('uncounted/config.json').write_text(json.dumps({k: v for k, v in config.items() if k != 'vocab_size'}))
    check_error(said('uncounted', model_of('uncounted', **NEW)), 2, "config.json has no 'vocab_size' to count them in")
    unknown = recipe('unknown.lua', model_of(base, **NEW), DATA % '"model"', use('lora', rank=2, trainable_token_indices=['<none>']), use('sgd', lr=1.0), batch=2, length=24,
                     steps=1)
    check_error(galley('plan', unknown), 2, "'trainable_token_indices': the tokenizer has no token '<none>'", hint='add it: model {')
    run('export', base, '--format', 'gguf', '--out', 'base.gguf')
    pathlib.Path('gguf').mkdir()
    shutil.copy('base.gguf', 'gguf/model.gguf')
    shutil.copy(base / 'tokenizer.json', 'gguf')
    check_error(said('gguf', model_of('gguf', **NEW)), 2, 'tokens cannot be added to a GGUF file', hint="take the model's folder")


finish()
