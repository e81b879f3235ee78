#!/usr/bin/env python3
"""Caches of keys and values in 8 bit (galley sample --cache int8, evaluate = { cache = "int8" }): the texts of a trained model beside those of caches in F32, the bytes that are
planned and allocated, what a text becomes beside others, all kinds of models by reference, devices, and what is refused. (tests/inference/cache_test.cpp compares logits.)"""
import json
import pathlib
import shutil

from errors_kit import check_error
from galley_test import binary, case, cases, check, every, finish, fixtures, fresh_folder, from_config, galley, plan, recipe, run, source, train, use

fresh_folder()
INT8 = ('--cache', 'int8')
WORDS = {'version': '1.0', 'truncation': None, 'padding': None, 'added_tokens': [], 'normalizer': None, 'pre_tokenizer': {'type': 'WhitespaceSplit'}, 'post_processor': None,
         'decoder': None, 'model': {'type': 'WordLevel', 'vocab': {f'w{i}': i for i in range(211)}, 'unk_token': 'w0'}}
TEXT = ' '.join((source / 'LICENSE').read_text().split())[220:400] + ' '  # is learned by heart
pathlib.Path('text.txt').write_text(TEXT * 60)
DATA = 'data.text { files = { "text.txt" }, tokenizer = "bytes" }'
llama = from_config('llama', num_hidden_layers=2, hidden_size=64, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2, vocab_size=256, max_position_embeddings=256)
PROMPTS = [TEXT[100:120], TEXT[150:160], TEXT[:70], TEXT[30:50]]
WRITES = dict(prompts='prompts.jsonl', tokens=8)
pathlib.Path('prompts.jsonl').write_text(''.join(json.dumps(x) + '\n' for x in ['one two', 'five', 'seven eight', 'x']))


def model(name):
    path = pathlib.Path(name)
    if not path.exists():
        shutil.copytree(fixtures / 'models' / name, path)
        path.joinpath('tokenizer.json').write_text(json.dumps(WORDS))
    return path


def lines(folder, texts, *words):
    out = run('sample', folder, '--lines', *words, input=''.join(json.dumps(text) + '\n' for text in texts)).stdout
    return [json.loads(line)['text'] for line in out.splitlines()]


def trained(name, model, *uses, **more):
    entries = {**dict(batch=4, length=64, steps=4, seed=3), **more}
    flags = entries.pop('flags', ())
    one = train(recipe(f'{name}.lua', model, DATA, *uses, use('adamw', lr=5e-3), **entries), name, *flags)
    one.check_memory(name)
    return one


def written(one):
    return [json.loads(x)['text'] for x in pathlib.Path(one.path, 'generated.jsonl').read_text().splitlines()]


def prompt(n, step=7):
    return ' '.join(f'w{2 + i * step % 60}' for i in range(n))


@case
def likeliest_tokens():
    """200 tokens of a trained model, the likeliest always; of the same with an adapter that is not merged, on weights in four bit."""
    plain = trained('plain', llama, steps=200, length=128, batch=3)
    adapter = trained('adapter', 'model { path = "plain/model" }', use('quantize-nf4'), use('lora', rank=4, alpha=8), steps=2, length=128, batch=3)
    for one in (plain, adapter):
        words = ('--temperature', 0, '--tokens', 50)
        wanted, found = (lines(one.path, PROMPTS, *words, *more) for more in ((), INT8))
        equal = sum(a == b for x, y in zip(wanted, found) for a, b in zip(x, y))
        print(f'{one.path}: {equal} of {sum(map(len, wanted))} bytes are equal')
        check(len(''.join(wanted)) > 190 and len(set(wanted)) == 4 and equal >= 180, f'{one.path}: {equal} equal, {wanted}, {found}')
        check([lines(one.path, [x], *words, *INT8)[0] for x in PROMPTS] == found, f'{one.path}: a text depends on those beside it')


@case
def memory():
    """A byte for each number, and two for 32 of them; of each tensor rounded up to 64, as the table counts."""
    def kept(*words):
        table = run('sample', model('qwen3-qknorm'), '--plan', '--length', 50, '--lines', '--batch', 3, *words).stdout
        return [line for line in table.splitlines() if line.split()[:1] == ['caches']][0].split()[1:3]
    numbers = 3 * 50 * 2 * 24  # texts, positions, heads, their size: of keys or values of a layer, of which there are two
    of = lambda *sizes: [f'{sum(4 * -(-x // 64) * 64 for x in sizes) / 1024:.2f}', 'KiB']
    check(kept() == of(numbers * 4), f'{kept()}')
    check(kept(*INT8) == of(numbers, numbers // 48 * 2 * 2), f'{kept(*INT8)}')
    for words, helps in (((), True), (INT8, False)):
        ended = galley('sample', model('qwen3-qknorm'), '--plan', '--length', 60, '--lines', '--batch', 400, '--memory', '2MiB', *words)
        check(ended.returncode and ('keys and values in 8 bit, or a smaller batch' in ended.stderr) == helps, ended.stderr)
    asked = dict(batch=2, length=24, steps=1, evaluate=dict(WRITES, cache='int8'))
    caches = [x for x in plan(recipe('planned.lua', llama, DATA, use('adamw', lr=1e-2), **asked), '--tensors')['tensors'] if x['owner'] == 'caches']
    check(sorted(x['bytes'] for x in caches) == [2 * 24 * 1 * 2] * 4 + [2 * 24 * 32] * 4 and every(x['life'] == 'texts' for x in caches), f'{caches}')
    run('plan', 'planned.lua', '--check')


# Grouped queries, a window, ALiBi with all in one product head by head, all in one product, a cap and windows in turns, a decoder.
@cases(['qwen3-qknorm', 'mistral-window', 'bloom-six-heads', 'gpt2-packed', 'gemma2-softcap', 't5-relu-tied'])
def by_reference(name):
    """Every number of pieces of a prompt, of single positions, and beyond the context; several texts at once are what each is alone."""
    words = ('--length', 24, '--overlong', 'cut', '--temperature', 0, *INT8)
    told = run('sample', model(name), '--prompt', prompt(20), '--tokens', 6, '--reference', *words).stderr
    check('outputs of' in told and 'are right' in told, told)
    texts = ['w5 w7', 'w9', prompt(20), prompt(11, 3), 'w4 w4 w4']
    found = lines(model(name), texts, '--tokens', 8, *words)
    check(found == lines(model(name), texts, '--tokens', 8, '--batch', 1, *words) and len(set(found)) > 1, f'{name}: {found}')


@case
def conversation():
    """Turn after turn, each answer is what follows the messages so far."""
    pathlib.Path('words.jinja').write_text('{% for m in messages %}{{ m.content }} {% endfor %}')
    words = ('--chat', '--template', 'words.jinja', '--tokens', 5, '--temperature', 0, *INT8)
    first, second = run('sample', model('qwen3-qknorm'), *words, input='w5 w6 w7\nw8 w9\n').stdout.splitlines()
    said = [dict(role=role, content=content) for role, content in (('user', 'w5 w6 w7'), ('assistant', first), ('user', 'w8 w9'))]
    check(lines(model('qwen3-qknorm'), [dict(messages=said[:1]), dict(messages=said)], *words) == [first, second], f'{first}, {second}')


@case
def in_a_run():
    """What is written while a model is trained is what `galley sample` writes with it; every number is right, no kernel reads or writes what is not its own, and it trains as
    without texts."""
    plain = trained('alone', llama)
    one = trained('writes', llama, evaluate=dict(WRITES, cache='int8'))
    check(one.bytes() == plain.bytes(), 'writing texts has changed the model')
    check(written(one) == lines(one.path, ['one two', 'five', 'seven eight', 'x'], '--tokens', 8, '--temperature', 0, *INT8), f'{written(one)}')
    for flag in ('--reference', '--poison'):
        trained(f'writes{flag}', llama, batch=2, length=24, steps=1, evaluate=dict(WRITES, tokens=3, cache='int8'), flags=(flag,))
    half = trained('half', llama, use('amp'), evaluate=dict(WRITES, cache='int8'))
    check(written(half) == lines(half.path, ['one two', 'five', 'seven eight', 'x'], '--tokens', 8, '--temperature', 0, *INT8), f'{written(half)}')


@cases({'discrete': 'tests/plugins/discrete', 'cuda-emulated': 'emulated'})
def on_devices(device, folder):
    """Where the host does not reach what computes, and by the kernels of GPUs."""
    more = dict(batch=4, length=24, evaluate=dict(WRITES, cache='int8'))
    one = trained(f'on-{device}', llama, **more, flags=('--device', device, '--plugin-path', binary / folder))
    check(written(one) == written(trained(f'cpu-{device}', llama, **more)), f'{device}: {written(one)}')


@case
def refused():
    folder = model('qwen3-qknorm')
    check_error(galley('sample', folder, '--prompt', 'w5', '--cache', 'int4'), 2, "--cache 'int4'", hint='known: int8')
    check_error(galley('sample', folder, '--prompt', 'w5', *INT8, '--no-cache'), 2, '--cache and --no-cache exclude each other')
    check_error(galley('sample', model('phi3-longrope'), '--prompt', 'w5', *INT8), 2, "--cache: keys and values cannot be kept: op 'shift_long'", hint='omit --cache')
    path = recipe('int4.lua', llama, DATA, use('adamw', lr=1e-2), batch=2, length=24, steps=1, evaluate=dict(WRITES, cache='int4'))
    check_error(galley('train', path, '--out', 'int4'), 2, "'evaluate.cache'", 'int8')


finish()
