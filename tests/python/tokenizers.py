#!/usr/bin/env python3
"""`galley tokenize` against the tokenizers library: every id of every line, with and without the tokens around a text, and the text that comes back.

tests/fixtures/tokenizers has a tokenizer.json a kind, the texts, and what the library computes of them, compressed; GALLEY_TEST_TOKENIZERS names
another such folder, compressed or not.
"""
import base64
import gzip
import json
import os
import pathlib
import struct
import subprocess

from galley_test import check, finish, fixtures, fresh_folder, load, program

folder = pathlib.Path(os.environ.get('GALLEY_TEST_TOKENIZERS', fixtures / 'tokenizers')).resolve()
fresh_folder()


def content(path):
    packed = path.with_name(path.name + '.gz')
    return (gzip.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()).decode()


def tokenizer(of):
    """A kind's tokenizer.json as a file that the program can read."""
    path = pathlib.Path(f'{of.name}.json')
    path.write_bytes(content(of / 'tokenizer.json').encode())
    return path


lines = content(folder / 'texts.jsonl')
texts = [json.loads(line)['text'] for line in lines.split('\n')[:-1]]


def tokenize(*words, text, code=0):
    r = subprocess.run([program, 'tokenize', *map(str, words)], input=text, capture_output=True, text=True)
    check(r.returncode == (code or 0), f'tokenize {words}: exit code {r.returncode}, not {code}: {r.stderr}')
    return r.stderr if code else r.stdout if code is None else [json.loads(line) for line in r.stdout.split('\n')[:-1]]


kinds = [x for x in ('gpt2', 'llama3', 'qwen2', 'smollm', 'llama2', 't5', 'bert') if (folder / x).exists()]
check(len(kinds) == 7, f'only {kinds} are in {folder}')
for kind in kinds:
    file = tokenizer(folder / kind)
    expected = load(folder / kind / 'expect.safetensors')
    back = {x['line']: x['text'] for x in map(json.loads, content(folder / kind / 'decoded.jsonl').split('\n')[:-1])}
    for flags, suffix in ((), ''), (('--special',), '.special'):
        computed = tokenize(file, *flags, text=lines)
        check(len(computed) == len(texts), f'{kind} {flags}: {len(computed)} lines of {len(texts)}')
        ids, offsets = expected[f'ids{suffix}'][2], expected[f'offsets{suffix}'][2]
        wrong = [i for i, x in enumerate(computed) if x['ids'] != list(ids[offsets[i]:offsets[i + 1]])]
        check(not wrong, f'{kind} {flags}: {len(wrong)} lines have other ids, the first {wrong[:1]}: {[texts[i] for i in wrong[:1]]}')
        if not suffix:
            decoded = tokenize(file, '--decode', text=''.join(json.dumps(x) + '\n' for x in computed))
            wrong = [i for i, x in enumerate(decoded) if x['text'] != back.get(i, texts[i])]
            check(not wrong and len(decoded) == len(texts), f'{kind}: {len(wrong)} lines come back otherwise, the first {wrong[:1]}')

# Added tokens with every flag, in the way of each other, of white space and of words.
for kind in ('qwen2-added', 'llama2-added'):
    cases = [json.loads(line) for line in content(fixtures / 'tokenizers' / kind / 'expect.jsonl').splitlines()]
    computed = tokenize(tokenizer(fixtures / 'tokenizers' / kind), text=''.join(json.dumps({'text': x['text']}) + '\n' for x in cases))
    wrong = [x['text'] for x, y in zip(cases, computed) if x['ids'] != y['ids']]
    check(not wrong and len(computed) == len(cases) > 0, f'{kind}: {len(wrong)} of {len(cases)} lines have other ids, the first {wrong[:1]}')

# Of two cuts that are equally likely but for how scores are rounded, the library's: it reads them from the file with an error of its own.
scores = [['<unk>', 0.0], ['\u2581', -2.094998767735847], ['\n', -3.7014195804066885], ['\u2581\t\t', -7.196474850387002],
          ['\u2581\t', -7.26494841188909], ['\t', -8.5112248760617], ['\t\t', -9.020318791988533], ['\n\n\n', -9.367192823375088]]
pathlib.Path('ties.json').write_text(json.dumps(dict(version='1.0', model=dict(type='Unigram', unk_id=0, vocab=scores), pre_tokenizer=dict(
    type='Metaspace', replacement='\u2581', prepend_scheme='always', split=False))))
computed = tokenize('ties.json', text=json.dumps({'text': '\t\t\t\t\t\n\n\n\n'}) + '\n')
check([x['ids'] for x in computed] == [[3, 5, 6, 7, 2]], f'cuts of equal scores: {computed}')

# A word is a token, or unknown.
level = dict(type='WordLevel', vocab={'a': 0, 'bc': 1, '<unk>': 5, 'd e': 7}, unk_token='<unk>')
file = dict(version='1.0', pre_tokenizer=dict(type='WhitespaceSplit'), model=level)
pathlib.Path('words.json').write_text(json.dumps(file))
computed = tokenize('words.json', text='{"text": " a bc abc d e a"}\n')
check([x['ids'] for x in computed] == [[0, 1, 5, 5, 5, 0]], f'WordLevel: {computed}')
del level['vocab']['<unk>']
pathlib.Path('words.json').write_text(json.dumps(file))
check('no token for the unknown' in tokenize('words.json', text='{"text": "a x"}\n', code=2), 'WordLevel without a token for the unknown')

# What is not done here is refused by name; what is broken by its place.
original = json.loads(content(folder / 'gpt2' / 'tokenizer.json'))


def refused(change, *parts):
    spoiled = json.loads(json.dumps(original))
    change(spoiled)
    pathlib.Path('tokenizer.json').write_text(json.dumps(spoiled))
    said = tokenize('tokenizer.json', text='', code=2)
    for part in ('tokenizer.json', *parts):
        check(part in said, f"'{part}' is not in: {said}")


refused(lambda t: t.update(model=dict(type='CharLevel', vocab={}, unk_token='')), "'CharLevel'", 'BPE, Unigram, WordPiece, WordLevel')
refused(lambda t: t.update(normalizer=dict(type='ByteLevel')), 'normalizer', "'ByteLevel'", 'NFC')
refused(lambda t: t.update(pre_tokenizer=dict(type='Sequence', pretokenizers=[dict(type='UnicodeScripts')])), 'pre_tokenizer.pretokenizers[0]', "'UnicodeScripts'")
refused(lambda t: t.update(post_processor=dict(type='Post')), 'post_processor', "'Post'", 'BertProcessing')
refused(lambda t: t.update(decoder=dict(type='CTC')), 'decoder', "'CTC'")
refused(lambda t: t.update(pre_tokenizer=dict(type='Split', pattern=dict(Regex='('), behavior='Isolated')), 'pre_tokenizer', "'('")
refused(lambda t: t['model']['merges'].append('never seen'), "'never'")
refused(lambda t: t['model']['merges'].append('one'), 'merges[')
refused(lambda t: t['model'].update(unk_token='<none>'), "'<none>'")
refused(lambda t: t['model']['vocab'].update(x=-1), "vocab['x']")
refused(lambda t: t['added_tokens'].append(dict(id='7', content='<x>')), 'added_tokens[')
refused(lambda t: t.pop('model'), "'model'")
refused(lambda t: t['model'].update(vocab=[]), "model: 'vocab' has to be an object")
refused(lambda t: t['model']['merges'].append('a \u4e00'), '] has a character that stands for no byte')
for value in (0.1, '0'):
    refused(lambda t: t['model'].update(dropout=value), "model: 'dropout' is not supported")
for name in ('sep', 'cls'):
    refused(lambda t: t.update(post_processor={'type': 'RobertaProcessing', 'sep': ['</s>', 2], 'cls': ['<s>', 0], name: ['x', 'y']}), f'post_processor.{name}')


def broken(model, *parts, **others):
    """The same of a file without the words of ByteLevel."""
    refused(lambda t: t.update(dict(pre_tokenizer=None, added_tokens=[], model=model), **others), *parts)


pieces = [['<unk>', 0.0], ['a', -1.0]]
broken(dict(type='Unigram', vocab=[], unk_id=0), "'vocab' is empty")
broken(dict(type='Unigram', vocab=pieces, unk_id=2), "'unk_id' = 2, but the vocabulary has 2 pieces")
broken(dict(type='Unigram', vocab=pieces, unk_id=-1), "'unk_id'")
broken(dict(type='Unigram', vocab=[*pieces, ['b', 'c']]), 'model.vocab[2] is not a piece and its score')
broken(dict(type='Unigram', vocab=[*pieces, ['b', float('nan')]]), 'tokenizer.json:1:')
broken(dict(type='Unigram', vocab=[*pieces, ['b', float('inf')]]), 'tokenizer.json:1:')
broken(dict(type='Unigram', vocab=[*pieces, ['b' * 16385, -1.0]]), 'piece 2 has 16385 bytes; 16384 are the most')
broken(dict(type='WordPiece', vocab={'[UNK]': 0, 'b' * 16385: 1}), 'token 1 has 16385 bytes; 16384 are the most')
broken(dict(type='WordPiece', vocab={}, unk_token='[UNK]'), "'[UNK]' is not in the vocabulary")
broken(dict(type='WordPiece', vocab={'[UNK]': 0}, max_input_chars_per_word=-1), "'max_input_chars_per_word'")
refused(lambda t: t.update(model=dict(type='WordPiece', vocab={'[UNK]': 0})), "'WordPiece' over the words of ByteLevel")
broken(dict(type='WordLevel', vocab={'a': 0}), "model: 'unk_token'")
unigram = dict(type='Unigram', vocab=pieces, unk_id=0)
for map_, part in (('****', 'is not in base64'), ('', 'has 0 bytes'), ('AAAA', 'has 3 bytes'), ('/////wAA', 'has 6 bytes')):
    broken(unigram, 'normalizer: ', part, normalizer=dict(type='Precompiled', precompiled_charsmap=map_))


def charsmap(*units, blob=b''):
    return base64.b64encode(struct.pack(f'<{1 + len(units)}I', 4 * len(units), *units) + blob).decode()


# From unit 0 by an 'a' to one of which the value lies behind the table; a value that lies behind the replacements; replacements that are no UTF-8.
table = [0] * 256
for value, target, part in ((1 << 20, 0, 'unit 97 of its table of 256 leads outside'), (1, 0x80000063, 'unit 97 of its table of 256 leads outside')):
    table[97], table[96] = 97 | 1 << 8 | value << 10, target
    broken(unigram, part, normalizer=dict(type='Precompiled', precompiled_charsmap=charsmap(*table)))
broken(unigram, 'not UTF-8', normalizer=dict(type='Precompiled', precompiled_charsmap=charsmap(0, blob=b'\xff')))
table[97], table[96] = 97 | 1 << 8 | 1 << 10, 0x80000000
broken(unigram, 'this Precompiled can make a text 100 times as long', normalizer=dict(type='Precompiled', precompiled_charsmap=charsmap(*table, blob=b'x' * 100)))
# One that a short way and a long one lead to is measured by the short one: "ac" becomes 3,840 characters, and so does 'z' 60 times and "c".
ways = [0] * 65536
ways[97] = 97 | (97 ^ 32768) << 10
at = 122
for step in range(60):
    children = 32768 if step == 59 else 256 * (step + 1)
    ways[at] = 122 | (at ^ children) << 10
    at = children ^ 122
ways[32768 ^ 99], ways[40960] = 99 | 1 << 8 | (32768 ^ 99 ^ 40960) << 10, 0x80000000
broken(unigram, 'this Precompiled can make a text 1920 times as long', normalizer=dict(type='Precompiled', precompiled_charsmap=charsmap(*ways, blob=b'x' * 3840)))
# Units that lead to each other without end: 97 of 'a' and 98 of 'b' have themselves and each other behind them.
table[97], table[98], table[96] = 97 | 97 << 10, 98 | 98 << 10, 0
pathlib.Path('cycle.json').write_text(json.dumps(dict(model=unigram, normalizer=dict(type='Precompiled', precompiled_charsmap=charsmap(*table)))))
cycle = tokenize('cycle.json', text=json.dumps(dict(text='ab' * 50)) + '\n')
check(cycle == [{'ids': [1, 0] * 50}], f'a table that leads to itself: {cycle}')
broken(unigram, "'content'", decoder=dict(type='Replace', pattern=dict(String='x')))
broken(unigram, "'replacement' has to be one character", pre_tokenizer=dict(type='Metaspace', replacement='ab'))
broken(unigram, "prepend_scheme 'x' is not known", pre_tokenizer=dict(type='Metaspace', replacement='_', prepend_scheme='x'))
broken(unigram, "behavior 'x' is not known", pre_tokenizer=dict(type='Punctuation', behavior='x'))
pathlib.Path('unknown.json').write_text(json.dumps(dict(model=dict(type='Unigram', vocab=pieces))))
said = tokenize('unknown.json', text='{"text": "a"}\n{"text": "ab"}\n', code=2)
check("stdin:2: unknown.json: model: the text has a character that no token stands for" in said, said)

# A line of a MB without spaces takes time in proportion, whatever the model.
for kind in ('t5', 'bert', 'llama2'):
    line = json.dumps(dict(text='abcdefghij' * 100000)) + '\n'
    long = tokenize(tokenizer(folder / kind), text=line)
    check(len(long[0]['ids']) == 1 if kind == 'bert' else len(long[0]['ids']) > 100000, f'{kind}: {len(long[0]["ids"])} ids of a MB')
start, text = dict(SpecialToken=dict(id='<s>')), dict(Sequence=dict(id='A'))
for single, part in (([text, text], "'single' has to be special tokens around one sequence"), ([{}], "'single' has to be special tokens"),
                     ([start, text], "'special_tokens' does not say the ids of '<s>'"), ([], "'single' has no sequence")):
    refused(lambda t: t.update(post_processor=dict(type='TemplateProcessing', single=single, special_tokens={})), f'post_processor: {part}')
gpt2 = tokenizer(folder / 'gpt2')
for text, part in (('{"txt": "a"}\n', "stdin:1"), ('{"text": "a"}\n{"text": 1}\n', 'stdin:2'), ('{"text": "a"\n', 'stdin:1'), ('[]\n', 'stdin:1')):
    said = tokenize(gpt2, text=text, code=2)
    check(part in said, f"'{part}' is not in: {said}")
for text, part in (('{"ids": [1502]}\n', '1502'), ('{"ids": [-1]}\n', '-1'), ('{"ids": ["a"]}\n', 'stdin:1'), ('{"ids": 5}\n', 'stdin:1')):
    said = tokenize(gpt2, '--decode', text=text, code=2)
    check(part in said, f"'{part}' is not in: {said}")
check('none.json' in tokenize('none.json', text='', code=2), 'a missing file is not named')
os.mkfifo('pipe.json')
check("'pipe.json': it is a named pipe" in tokenize('pipe.json', text='', code=2), 'a named pipe is not refused')
for many in (4097, 1 << 62):
    check(f'--threads {many}: the limit is 4096' in tokenize(gpt2, '--threads', many, text='', code=2), f'{many} threads are not refused')
tokenize(gpt2, '--threads', 64, text='{"text": "a"}\n')
r = subprocess.run([program, 'tokenize', gpt2], input=b'{"text": "a\xff\xfeb\xe2\x82c"}\n', capture_output=True)
same = tokenize(gpt2, text=json.dumps({'text': 'a\ufffd\ufffdb\ufffdc'}) + '\n')
check(r.returncode == 0 and json.loads(r.stdout) == same[0] and b'replaced 3 invalid' in r.stderr, f'broken UTF-8: {r.stdout} {r.stderr}')

# A regular expression that gives up is an error with its place, in data as well; so is one that means something else here.
def with_pattern(regex):
    changed = json.loads(json.dumps(original))
    changed['pre_tokenizer'] = dict(type='Sequence', pretokenizers=[
        dict(type='Split', pattern=dict(Regex=regex), behavior='Isolated', invert=False),
        dict(type='ByteLevel', add_prefix_space=False, use_regex=False)])
    pathlib.Path('tokenizer.json').write_text(json.dumps(changed))
    return 'tokenizer.json'


wild = with_pattern('(?:a|aa)+$')
said = tokenize(wild, text=json.dumps(dict(text='b')) + '\n' + json.dumps(dict(text='a' * 60 + '!')) + '\n', code=2)
check("stdin:2: tokenizer.json: pre_tokenizer.pretokenizers[0]: the regular expression '(?:a|aa)+$' gives up" in said, said)
said = tokenize(with_pattern(r'[\p{L}&&[^\p{Han}]]+|[^\p{L}]+'), text='', code=2)
check("tokenizer.json: pre_tokenizer.pretokenizers[0]:" in said and "'&&' inside a class" in said, said)
# 1,500 rounds fill the first stack of the compiled pattern.
rounds = with_pattern(r"(?:\p{L}+['’-]?)+")
one, few, long = (x['ids'] for x in tokenize(rounds, text=''.join(json.dumps(dict(text="a'" * n + ' o')) + '\n' for n in (1, 1000, 3000))))
check(few == 1000 * one[:2] + one[2:] and long == 3000 * one[:2] + one[2:], f'{one}, and then {few[-4:]} {long[-4:]}')

# Many lines over several threads come out in order.
many = ''.join(json.dumps(dict(text=f'{i} {texts[i % len(texts)]}')) + '\n' for i in range(20000))
check(tokenize(gpt2, '--threads', 1, text=many) == tokenize(gpt2, '--threads', 3, text=many), 'threads change nothing')
check('a line of more than 16 MiB' in tokenize(gpt2, text='{"text": "' + 'x' * (65 << 20) + '"}\n', code=2), 'a line without end is not refused')

# ---- Training ---------------------------------------------------------------------------------------------------------------------------

pathlib.Path('text.txt').write_bytes('\n'.join(json.loads(line)['text'] for line in content(fixtures / 'tokenizers/texts.jsonl').split('\n')[:-1]).replace('\0', '').encode())
expected = json.loads(content(fixtures / 'tokenizers/trained.json'))
tokenize('--train', 'text.txt', '--vocab', 2000, '--out', 'one', '--threads', 1, text='{"text": "not read"}', code=None)
tokenize('--train', 'text.txt', '--vocab', 2000, '--out', 'two', '--threads', 2, text='', code=None)
made = json.loads(pathlib.Path('one/tokenizer.json').read_text())
check(made['model']['vocab'] == expected['vocab'], 'the trained vocabulary is that of the tokenizers library')
check(made['model']['merges'] == expected['merges'], 'the trained merges are those of the tokenizers library')
for name in ('tokenizer.json', 'tokenizer_config.json'):
    check(pathlib.Path('one', name).read_bytes() == pathlib.Path('two', name).read_bytes(), f'{name}: threads change nothing')
back = tokenize('one/tokenizer.json', '--decode', text=''.join(json.dumps(x) + '\n' for x in tokenize('one/tokenizer.json', text=lines)))
check([x['text'] for x in back] == texts, 'every text comes back from the trained tokenizer')
for words, part in ((('--train', 'text.txt', '--vocab', 2000, '--out', 'one'), 'exists already'),
                    (('--train', 'text.txt', '--vocab', 100, '--out', 'x'), 'the least is 257'),
                    (('--train', 'text.txt', '--vocab', 2000), '--out DIR'), (('--train', 'nothing.txt', '--vocab', 2000, '--out', 'x'), 'nothing.txt'),
                    (('--vocab', 3), 'requires --train'), ((), 'TOKENIZER_JSON is missing')):
    check(part in tokenize(*words, text='', code=2), f'{words}: does not say {part}')
finish()
