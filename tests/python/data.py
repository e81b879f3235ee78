#!/usr/bin/env python3
"""Data from files, from outside: what rows hold of prompts, lines, texts and tokens; packing, rows of like length, what is held out, mixes; windows by tokens, and what
`galley sample` makes of such a run; long documents; tokenizers of other kinds."""
import json
import pathlib
import random
import shutil
import struct

from data_kit import (IGNORED, LENGTH, VOCABULARY, begin, conversation, data_of, data_recipe, documents, documents_of, epoch, facts_of, sentence, show, token_id,
                      tokenize, tokenizer_of, without_special_tokens, write_conversations, write_lines)
from galley_test import case, cases, check, every, finish, lines_of, run, use

begin()
r = random.Random(20)
write_lines('texts.jsonl', [dict(body=sentence(r, 20)) for _ in range(50)])


def texts(**options):
    return data_of('jsonl', 'texts.jsonl', text='body', special=False, **options)


# ---- Sources ------------------------------------------------------------------------------------------------------------------------


@case
def prompts():
    """Tokens of prompts are read, those of answers are learnt."""
    r = random.Random(21)
    pairs = [(sentence(r), sentence(r)) for _ in range(20)]
    write_lines('pairs.jsonl', [dict(prompt=p, answer=a) for p, a in pairs])
    facts, rows = epoch(data_of('prompts', 'pairs.jsonl', packing='none', overlong='split', special=False))
    end = token_id('<|im_end|>')
    check(facts['documents'] == 20 and sum(labels.count(end) for _, labels in documents_of(rows)) == 20, 'each answer ends')
    counted = [sum(x != IGNORED for x in labels) for _, labels in documents_of(rows)]
    whole = tokenize([p + a for p, a in pairs])
    check(sum(counted) < sum(map(len, whole)) and sum(counted) == facts['counted'], f'answers count, prompts do not: {sum(counted)} of {sum(map(len, whole))}')
    check(every(labels[-n:] == [x for x in labels if x != IGNORED] for n, (_, labels) in zip(counted, documents_of(rows))), 'what counts is the end of a document')


@case
def lines_of_text():
    facts, _ = show(texts(eos=False, packing='none'), batch=50)
    check(facts[0]['tokens'] == facts[0]['counted'] + 50 and facts[0]['documents'] == 50, f'every token of a line but the first counts: {facts}')


@cases({'text': 'marked.txt', 'jsonl': 'marked.jsonl', 'prompts': 'marked-pairs.jsonl'})
def special_tokens_in_text(kind, file):
    """They are tokens, as in transformers, or text where the recipe says so; how many there are is said."""
    text = '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes<|im_end|>'
    pathlib.Path('marked.txt').write_text(text)
    write_lines('marked.jsonl', [dict(text=text)])
    write_lines('marked-pairs.jsonl', [dict(prompt=text[:20], answer=text[20:])])
    facts, rows = epoch(data_of(kind, file, packing='none', eos=False))
    (ids,), ((tokens, labels),) = tokenize([text]), documents_of(rows)
    check(tokens + labels[-1:] == ids and facts['special_tokens'] == 4, f'{tokens} {labels[-1:]}, not {ids}; {facts["special_tokens"]} are said')
    facts, rows = epoch(data_of(kind, file, packing='none', eos=False, special=False))
    (tokens, labels), = documents_of(rows)
    check(len(tokens) > len(ids) and not {1, 2} & {*tokens, *labels} and facts['special_tokens'] == 0, f'special = false: {tokens}; {facts["special_tokens"]} are said')


@cases({'uint16': 'H', 'uint32': 'I'})
def tokens(dtype, code):
    r = random.Random(22)
    ids = [0 if k % 83 == 60 else r.randrange(1, VOCABULARY) for k in range(500)]
    pathlib.Path('tokens.bin').write_bytes(struct.pack(f'<{len(ids)}{code}', *ids))
    facts, rows = epoch(data_of('tokens', 'tokens.bin', dtype=dtype, separator=0, packing='sequential'))
    check(facts['tokens'] == 500 and facts['documents'] == 7, f'documents end after the separator: {facts}')
    follows = sorted((token, label) for tokens, labels in documents_of(rows) for token, label in zip(tokens, labels, strict=True))
    check(follows == sorted((a, b) for a, b in zip(ids, ids[1:]) if a != 0), 'every token of a document but the last is there once, and the next one is its label')


@case
def separator_of_texts():
    pathlib.Path('split.txt').write_text('one tiva\n---\ntwo moru\n---\nthree be')
    facts = facts_of(data_of('text', 'split.txt', separator='\n---\n'))
    check(facts['documents'] == 3, f'a separator cuts a file into documents: {facts}')


@case
def what_steers_a_terminal():
    write_lines('steering.jsonl', [dict(text='tiva \x1b[2J moru')])
    said = run('data', data_recipe(data_of('jsonl', 'steering.jsonl'))).stdout
    check('\\x1b[2J' in said and '\x1b' not in said, f'what would steer a terminal is shown, not obeyed: {said}')


# ---- Rows ---------------------------------------------------------------------------------------------------------------------------


@case
def packing():
    padding = {}
    for kind in ('best-fit', 'sequential', 'none'):
        facts = facts_of(texts(packing=kind, overlong='truncate'))
        padding[kind] = 1 - facts['positions'] / facts['rows'] / LENGTH
    check(padding['best-fit'] <= padding['sequential'] < padding['none'], f'padding {padding}')


def micro_batches(seed, **options):
    """The lengths of the rows of an epoch in micro-batches of 5 rows. Empty rows fill the last of them."""
    window = dict(batch=5, seed=seed)
    micros = -(-facts_of(texts(packing='none', **options))['rows'] // 5)
    _, rows = show(texts(packing='none', **options), use('accumulate', steps=micros), use('adamw', lr=1e-3), **window)
    lengths = [sum(len(tokens) for tokens, _ in documents(row)) for row in rows]
    return [sorted(lengths[i:i + 5]) for i in range(0, len(lengths), 5)]


@case
def rows_of_like_length():
    """Sorted by length and cut every 5 rows, the rows are the micro-batches, which come in another order with each seed."""
    grouped = {seed: micro_batches(seed, group_by_length=True) for seed in (1, 2, 3)}
    for seed, batches in grouped.items():
        everything = sorted(x for batch in batches for x in batch)
        expected = [everything[i:i + 5] for i in range(0, len(everything), 5)]
        check(len(batches) == 11 and len(set(everything)) > 30, f'seed {seed}: {len(batches)} micro-batches, {len(set(everything))} lengths')
        check(sorted(batches) == expected and batches != expected, f'seed {seed}: rows of like length do not come together: {batches}')
    check(len({str(x) for x in grouped.values()}) == 3, 'the order of micro-batches is that of another seed')
    check(sorted(micro_batches(1)) != sorted(grouped[1]), 'rows of like length come together where nobody asked for it')


@case
def held_out():
    facts = facts_of(texts(validation=0.2))
    check((facts['documents'], facts['validation_documents']) == (40, 10), f'a fifth of the documents is held out: {facts}')
    write_lines('tail.jsonl', [dict(body='tiva moru be')])
    facts = facts_of(texts(validation='tail.jsonl'))
    check((facts['documents'], facts['validation_documents']) == (50, 1), f'validation has files of its own: {facts}')


@case
def mix():
    r = random.Random(23)
    write_conversations('talk.jsonl', [without_special_tokens(conversation(r)) for _ in range(24)])
    chat = data_of('chat', 'talk.jsonl', template='chatml')
    facts, rows = show(f'data.mix {{ {texts()}, {chat}, weights = {{ 3, 1 }} }}', batch=400)
    start = token_id('<|im_start|>')
    of_chat = sum(start in row['input_ids'] for row in rows)
    check(len(facts) == 2 and len(rows) == 400 and 70 <= of_chat <= 130, f'a quarter of 400 rows is of the second data: {of_chat}')


# ---- A run by tokens, and what it says -------------------------------------------------------------------------------------------------


def by_tokens(name):
    run('train', data_recipe(texts(packing='none'), use('accumulate', tokens=300), use('adamw', lr=1e-3), batch=1, steps=12), '--out', name)
    return pathlib.Path(name)


@case
def windows():
    folder = by_tokens('windows')
    tokens = [x['tokens'] for x in lines_of(folder)]
    check(len(tokens) == 12 and every(abs(x - 300) <= LENGTH / 2 for x in tokens) and len(set(tokens)) > 1, f'windows come closest to 300 tokens: {tokens}')
    recorded = (folder / 'run.toml').read_text()
    check('kind = "jsonl"' in recorded and 'documents = 50' in recorded, f'run.toml says what the data was: {recorded}')
    check((folder / 'model/tokenizer.json').read_bytes() == pathlib.Path('model/tokenizer.json').read_bytes(), 'the tokenizer goes with the model')
    chat = ('--chat', '--template', 'chatml', '--temperature', 0, '--tokens', 5)
    said = [run('sample', path, *chat, *more, input='tiva\nmoru\n').stdout for path, more in ((folder, ()), (folder / 'model', ('--length', 64)))]
    check(said[0] == said[1] and said[0].strip(), f'a run and its model folder say the same: {said}')


@case
def sample_needs_no_data():
    by_tokens('dataless')
    shutil.move('texts.jsonl', 'away.jsonl')
    said = run('sample', 'dataless', '--prompt', 'tiva', '--tokens', 1).stdout
    shutil.move('away.jsonl', 'texts.jsonl')
    check(said.startswith('tiva'), f'without its data a run says {said!r}')


@case
def sample_stops():
    by_tokens('stopped')
    words = ('sample', 'stopped', '--prompt', 'tiva', '--tokens', 30, '--seed', 5)
    text = run(*words).stdout.rstrip('\n')
    middle = text[len(text) // 2:len(text) // 2 + 3]
    stopped = run(*words, '--stop', middle).stdout.rstrip('\n')
    check(stopped == text[:text.index(middle, 4)] and len(stopped) < len(text), f'sampling ends before {middle!r}: {stopped!r} of {text!r}')


# ---- Tokenizers -----------------------------------------------------------------------------------------------------------------------


def long_text():
    """More than is tokenized at once."""
    r = random.Random(24)
    words = ['tiva', 'moru,', 'saat', '«ünï»', '17', '世界', '(be)']
    return ''.join(' '.join(r.choices(words, k=12)) + r.choice(['\n', '\n\n', '\n  ', '。\n']) for _ in range(40000))


@cases(['smollm', 'qwen2', 'llama2'])
def long_document(kind):
    """A document that is tokenized in parts has the tokens of the whole. They stand in the cache after a head of 256 bytes."""
    text, cache = long_text(), pathlib.Path(f'cache-{kind}').resolve()
    pathlib.Path('long.txt').write_bytes(text.encode())
    check(len(text.encode()) > 2.2 * 2**20, 'the text is long enough to be cut')
    pathlib.Path(f'{kind}.json').write_bytes(tokenizer_of(kind))
    ids = json.loads(run('tokenize', f'{kind}.json', '--special', input=json.dumps(dict(text=text)) + '\n').stdout)['ids']
    path = data_recipe(data_of('text', 'long.txt', tokenizer=f'{kind}.json', packing='sequential', eos=False))
    facts = json.loads(run('data', path, '--json', '--rows', 0, GALLEY_CACHE=str(cache)).stdout.splitlines()[0])['data'][0]
    check(facts['tokens'] == len(ids), f'{facts["tokens"]} tokens, not {len(ids)}')
    stored = [x.read_bytes()[256:256 + 4 * len(ids)] for x in cache.glob('*.tokens')]
    check(stored == [struct.pack(f'<{len(ids)}I', *ids)], f'{len(stored)} files of tokens, of {[len(x) // 4 for x in stored]} tokens; they are not those of the whole')


@cases({'t5': 'what is bgxb‹ an answer</s>›', 'bert': '[CLS] what is bgxb‹ an answer [SEP]›'})
def other_tokenizers(kind, row):
    """Of SentencePiece and of BERT: text stands in rows as in the document, and ends with eos or what the tokenizer puts after a text."""
    write_lines('answers.jsonl', [dict(prompt='what is bgxb', answer=' an answer')])
    pathlib.Path(kind).mkdir()
    pathlib.Path(kind, 'tokenizer.json').write_bytes(tokenizer_of(kind))
    said = run('data', data_recipe(data_of('prompts', 'answers.jsonl', tokenizer=kind)), '--rows', 1).stdout
    check(row in said, f'{row!r} is not in: {said[-200:]}')


finish(turns=2)
