#!/usr/bin/env python3
"""galley sample with caches of keys and values: what it writes is what it writes without them, for texts within the context and beyond it, for prompts longer than what is taken at
once, for several texts at once; every number beside its double-precision reference; and no more memory than planned. (tests/python/samples.py has the same texts beside transformers'.)"""
import json
import pathlib
import shutil

from errors_kit import check_error
from galley_test import case, cases, check, finish, fixtures, fresh_folder, galley, run

fresh_folder()
WORDS = {'version': '1.0', 'truncation': None, 'padding': None, 'added_tokens': [], 'normalizer': None, 'pre_tokenizer': {'type': 'WhitespaceSplit'}, 'post_processor': None,
         'decoder': None, 'model': {'type': 'WordLevel', 'vocab': {f'w{i}': i for i in range(211)}, 'unk_token': 'w0'}}
DRAWN = ('--temperature', 1.4, '--top-k', 0, '--min-p', .01, '--repetition-penalty', 1.2, '--seed', 5)


def model(name):
    path = pathlib.Path(name)
    if not path.exists():
        shutil.copytree(fixtures / 'models' / name, path)
        path.joinpath('tokenizer.json').write_text(json.dumps(WORDS))
    return path


def prompt(n, step=7):
    return ' '.join(f'w{2 + i * step % 60}' for i in range(n))


def lines(folder, texts, *words):
    out = run('sample', folder, '--lines', *words, input=''.join(json.dumps(text) + '\n' for text in texts)).stdout
    return [json.loads(line) for line in out.splitlines()]


# Grouped queries, a window, ALiBi with all in one product head by head, all in one product, a cap and windows in turns, learned positions.
@cases(['qwen3-qknorm', 'mistral-window', 'bloom-six-heads', 'gpt2-packed', 'gemma2-softcap', 'opt-preln'])
def as_without(name):
    folder = model(name)
    for n, length in ((3, 40), (30, 32), (1, 24), (2, 1)):  # all but the first go beyond the context
        words = ('--prompt', prompt(n), '--tokens', 30, '--length', length, '--overlong', 'cut', *DRAWN)
        check(run('sample', folder, *words).stdout == run('sample', folder, *words, '--no-cache').stdout, f'{name}, {n} tokens, length {length}')


@case
def long_prompts():
    """A prompt of several pieces, of a piece and some tokens, of exactly one."""
    folder = model('llama-rope-llama3')
    config = json.loads(folder.joinpath('config.json').read_text())
    folder.joinpath('config.json').write_text(json.dumps({**config, 'max_position_embeddings': 200}))
    for n in (64, 65, 70, 73, 128, 135):
        words = ('--prompt', prompt(n), '--tokens', 4, '--length', 140, '--temperature', 0)
        check(run('sample', folder, *words).stdout == run('sample', folder, *words, '--no-cache').stdout, f'{n} tokens')


@case
def several_at_once():
    """What a text becomes depends neither on those beside it nor on how many there are; a cut batch, and one text alone."""
    folder = model('qwen3-qknorm')
    texts = ['w5 w7', {'prompt': 'w9'}, prompt(20), {'prompt': prompt(11, 3)}, 'w4 w4 w4']
    one = lines(folder, texts, '--tokens', 12, *DRAWN, '--batch', 1)
    check(len(one) == 5 and len({x['text'] for x in one}) == 5 and all(x['tokens'] <= 12 for x in one), f'{one}')
    for batch in (2, 4, 8):
        check(lines(folder, texts, '--tokens', 12, *DRAWN, '--batch', batch) == one, f'--batch {batch}')
    check(lines(folder, texts, '--tokens', 12, *DRAWN, '--no-cache') == one, 'without caches')
    greedy = lines(folder, texts, '--tokens', 12, '--temperature', 0)
    alone = [run('sample', folder, '--prompt', x if isinstance(x, str) else x['prompt'], '--tokens', 12, '--temperature', 0).stdout for x in texts]
    check([x['text'] for x in greedy] == [a[len(x if isinstance(x, str) else x['prompt']):-1] for a, x in zip(alone, texts)], f'{greedy}, {alone}')


@case
def prompt_longer_than_the_context():
    """It is refused, with its place among lines; or the model sees its last tokens, of a source the first."""
    folder = model('qwen3-qknorm')
    words = ('--tokens', 6, '--length', 12, '--temperature', 0)
    hint = '--length N sets a longer context; --overlong cut shows it the last 12'
    for how in ((), ('--overlong', 'refuse')):
        check_error(galley('sample', folder, '--prompt', prompt(13), *words, *how), 2, "the prompt has 13 tokens; the model's context is 12", hint=hint)
    long, last = [prompt(12), prompt(13), prompt(30)], [prompt(12), ' '.join(prompt(13).split()[-12:]), ' '.join(prompt(30).split()[-12:])]
    given = ''.join(json.dumps(x) + '\n' for x in long)
    check_error(galley('sample', folder, '--lines', *words, input=given), 2, "stdin:2: the prompt has 13 tokens; the model's context is 12", hint=hint)
    ended = galley('sample', folder, '--lines', *words, '--overlong', 'cut', input=given)
    check([json.loads(x) for x in ended.stdout.splitlines()] == lines(folder, last, *words), f'{ended.stdout}')
    check("2 of 3 prompts did not fit into the model's context: it saw the last 12" in ended.stderr, ended.stderr)
    ended = galley('sample', folder, '--prompt', long[2], *words, '--overlong', 'cut')
    check(ended.stdout[len(long[2]):] == run('sample', folder, '--prompt', last[2], *words).stdout[len(last[2]):], ended.stdout)
    check('the prompt has 30 tokens, but the model sees only the last 12' in ended.stderr, ended.stderr)
    source = model('t5-relu-tied')
    check_error(galley('sample', source, '--prompt', prompt(13), *words), 2, "the prompt has 13 tokens; the model's context is 12",
                hint='--overlong cut shows it the first 12')
    cut = galley('sample', source, '--prompt', prompt(13), *words, '--overlong', 'cut')
    check(cut.stdout == run('sample', source, '--prompt', prompt(12), *words).stdout and 'only the first 12' in cut.stderr, f'{cut.stdout}, {cut.stderr}')


@case
def conversation_longer_than_the_context():
    """It is refused; or its oldest turns are left out, and the system's message stays."""
    folder = model('qwen3-qknorm')
    pathlib.Path('words.jinja').write_text('{% for m in messages %}{{ m.content }} {% endfor %}')
    said = lambda *messages: dict(messages=[dict(role=role, content=content) for role, content in messages])
    words = ('--chat', '--template', 'words.jinja', '--tokens', 3, '--length', 12, '--temperature', 0)
    system, last = ('system', 'w3 w4'), [('user', 'w5 w6 w7'), ('assistant', 'w8 w9'), ('user', 'w10 w11')]
    long = said(system, ('user', 'w20 w21'), ('assistant', 'w22'), ('assistant', 'w23'), *last)
    given = lambda *of: ''.join(json.dumps(x) + '\n' for x in of)
    check_error(galley('sample', folder, '--lines', *words, input=given(said(*last), long)), 2,
                "stdin:2: the conversation has 13 tokens; the model's context is 12 with the answer",
                hint='--length N sets a longer context; --overlong cut leaves out the oldest turns')
    ended = galley('sample', folder, '--lines', *words, '--overlong', 'cut', input=given(long, said(*last)))
    check([json.loads(x) for x in ended.stdout.splitlines()] == lines(folder, [said(system, *last), said(*last)], *words), ended.stdout)
    check("1 of 2 prompts did not fit into the model's context: the oldest turns were left out" in ended.stderr, ended.stderr)
    whole = said(system, *last[:2], ('user', prompt(11)))
    check_error(galley('sample', folder, '--lines', *words, '--overlong', 'cut', input=given(whole)), 2, 'stdin:1: the last turn of the conversation has 13 tokens',
                hint='--length N sets a longer context')
    # A person who types turn after turn.
    turns = f'w5 w6 w7\n{prompt(8)}\nw14\n'
    ended = galley('sample', folder, *words, input=turns)
    check(ended.returncode == 2 and 'the conversation has 1' in ended.stderr and len(ended.stdout.splitlines()) == 1, f'{ended.stdout}, {ended.stderr}')
    ended = galley('sample', folder, *words, '--overlong', 'cut', input=turns)
    check(ended.returncode == 0 and len(ended.stdout.splitlines()) == 3 and ended.stderr.count('its oldest turns are left out') == 1, f'{ended.stdout}, {ended.stderr}')


@case
def what_ends_a_text():
    folder = model('qwen3-qknorm')
    words = ('--tokens', 12, *DRAWN)
    whole = lines(folder, ['w5 w7'], *words)[0]
    stop = whole['text'].split()[3]
    cut = lines(folder, ['w5 w7'], *words, '--stop', ' ' + stop)[0]
    check(whole['ended'] == 'length' and whole['tokens'] == 12, f'{whole}')
    check(cut['ended'] == 'stop' and whole['text'].startswith(cut['text']) and stop not in cut['text'].split(), f'{cut}')
    config = json.loads(folder.joinpath('config.json').read_text())
    ends = pathlib.Path('ends')
    shutil.copytree(folder, ends)
    ends.joinpath('config.json').write_text(json.dumps({**config, 'eos_token_id': int(stop[1:])}))
    end = lines(ends, ['w5 w7'], *words)[0]
    check(end['ended'] == 'end' and stop not in end['text'].split(), f'{end}')


@case
def sources():
    """A model with a source keeps what it reads of it, of each row another one; the next sources are others."""
    for name in ('t5-gated-untied', 't5-relu-tied'):
        folder = model(name)
        texts = ['w5 w6', 'w9 w8 w7', prompt(12)]
        found = lines(folder, texts, '--tokens', 10, *DRAWN)
        check(found == lines(folder, texts, '--tokens', 10, *DRAWN, '--no-cache'), f'{name}: {found}')
        for batch in (1, 2, 3):
            check(found == lines(folder, texts, '--tokens', 10, *DRAWN, '--batch', batch), f'{name}, --batch {batch}')
        check(len({x['text'] for x in found}) == 3, f'{name}: {found}')


@case
def without_a_cache():
    """LongRoPE turns all keys of a long text in another way: it is generated from by whole texts, and says so."""
    ended = galley('sample', model('phi3-longrope'), '--prompt', 'w5 w6', '--tokens', 2, '--temperature', 0)
    check(ended.returncode == 0 and "keys and values cannot be kept: op 'shift_long' of node 'rope table positions' does not work row by row" in ended.stderr, ended.stderr)


@case
def by_reference():
    """Every number of a prompt in pieces and of single tokens beside its reference, in double precision."""
    for name in ('gpt2-packed', 'qwen3-qknorm'):
        text = run('sample', model(name), '--prompt', prompt(20), '--tokens', 4, '--length', 32, '--reference').stderr
        check('outputs of' in text and 'are right' in text, text)


@case
def bad_lines():
    folder = model('qwen3-qknorm')
    for text, words, what in (('{"text": 1}', (), 'a line has to be a string or an object { "prompt": … }'), ('nonsense', (), 'stdin:1'),
                              ('{"prompt": "a", "messages": 2}', ('--chat', '--template', 'nosuch'), "there is no chat template 'nosuch'"),
                              ('{"text": 1}', ('--chat', '--template', 'chatml'), 'or { "messages": … }'),
                              ('{"messages": [{"role": "user"}]}', ('--chat', '--template', 'chatml'), 'stdin:1: ')):
        check_error(galley('sample', folder, '--lines', *words, input=text + '\n'), 2, what)
    check_error(galley('sample', model('gemma2-softcap'), '--prompt', 'w80'), 2, "token 80 of the prompt, 'w80', is none of the model's 67")
    check_error(galley('sample', folder, '--lines', '--prompt', 'a'), 2, '--lines and --prompt exclude each other')
    check_error(galley('sample', folder, '--prompt', 'a', '--batch', 2), 2, '--batch requires --lines')


finish()
