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

from galley_test import case, cases, check, finish, fixtures, fresh_folder, galley, load, together

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


def in_lines(items):
    return ''.join(json.dumps(x) + '\n' for x in items)


# By \n alone: texts have other ends of lines, which splitlines() takes for one.
lines = content(folder / 'texts.jsonl')
texts = [json.loads(line)['text'] for line in lines.split('\n')[:-1]]
original = json.loads(content(folder / 'gpt2' / 'tokenizer.json'))
gpt2 = tokenizer(folder / 'gpt2')


def tokenize(*words, text, code=0):
    """What is said on standard output, line by line; of an error, what is said on standard error."""
    r = galley('tokenize', *words, input=text, timeout=300)
    check(r.returncode == code, f'not exit code {code}, but {r}')
    return r.stderr if code else [json.loads(line) for line in r.stdout.split('\n')[:-1]]


def refuses(parts, *words, text=''):
    said = tokenize(*words, text=text, code=2)
    for part in parts:
        check(part in said, f'{part!r} is not in: {said}')


# ---- The library's ids -------------------------------------------------------------------------------------------------------------------


@cases(['gpt2', 'llama3', 'qwen2', 'smollm', 'llama2', 't5', 'bert'])
def ids(kind):
    file = tokenizer(folder / kind)
    expected = load(folder / kind / 'expect.safetensors')
    back = {x['line']: x['text'] for x in map(json.loads, content(folder / kind / 'decoded.jsonl').split('\n')[:-1])}
    for flags, suffix in ((), ''), (('--special',), '.special'):
        computed = tokenize(file, *flags, text=lines)
        check(len(computed) == len(texts) > 100, f'{flags}: {len(computed)} lines of {len(texts)}')
        numbers, offsets = expected[f'ids{suffix}'][2], expected[f'offsets{suffix}'][2]
        wrong = [i for i, x in enumerate(computed) if x['ids'] != list(numbers[offsets[i]:offsets[i + 1]])]
        check(not wrong, f'{flags}: {len(wrong)} lines have other ids, the first {wrong[:1]}: {[texts[i] for i in wrong[:1]]}')
        if not suffix:
            decoded = tokenize(file, '--decode', text=in_lines(computed))
            wrong = [i for i, x in enumerate(decoded) if x['text'] != back.get(i, texts[i])]
            check(not wrong and len(decoded) == len(texts), f'{len(wrong)} lines come back otherwise, the first {wrong[:1]}')


@cases(['qwen2-added', 'llama2-added'])
def added_tokens(kind):
    """With every flag, in the way of each other, of white space and of words."""
    expected = [json.loads(line) for line in content(fixtures / 'tokenizers' / kind / 'expect.jsonl').splitlines()]
    computed = tokenize(tokenizer(fixtures / 'tokenizers' / kind), text=in_lines({'text': x['text']} for x in expected))
    wrong = [x['text'] for x, y in together(expected, computed) if x['ids'] != y['ids']]
    check(not wrong, f'{len(wrong)} of {len(expected)} lines have other ids, the first {wrong[:1]}')


@case
def equal_scores():
    """Of two cuts that are equally likely but for how scores are rounded, the library's: it reads them from the file with an error of its own."""
    scores = [['<unk>', 0.0], ['\u2581', -2.094998767735847], ['\n', -3.7014195804066885], ['\u2581\t\t', -7.196474850387002],
              ['\u2581\t', -7.26494841188909], ['\t', -8.5112248760617], ['\t\t', -9.020318791988533], ['\n\n\n', -9.367192823375088]]
    pathlib.Path('ties.json').write_text(json.dumps(dict(version='1.0', model=dict(type='Unigram', unk_id=0, vocab=scores), pre_tokenizer=dict(
        type='Metaspace', replacement='\u2581', prepend_scheme='always', split=False))))
    computed = tokenize('ties.json', text=in_lines([{'text': '\t\t\t\t\t\n\n\n\n'}]))
    check([x['ids'] for x in computed] == [[3, 5, 6, 7, 2]], f'{computed}')


@case
def word_level():
    """A word is a token, or unknown."""
    level = dict(type='WordLevel', vocab={'a': 0, 'bc': 1, '<unk>': 5, 'd e': 7}, unk_token='<unk>')
    file = dict(version='1.0', pre_tokenizer=dict(type='WhitespaceSplit'), model=level)
    pathlib.Path('words.json').write_text(json.dumps(file))
    computed = tokenize('words.json', text='{"text": " a bc abc d e a"}\n')
    check([x['ids'] for x in computed] == [[0, 1, 5, 5, 5, 0]], f'{computed}')
    del level['vocab']['<unk>']
    pathlib.Path('words.json').write_text(json.dumps(file))
    refuses(['no token for the unknown'], 'words.json', text='{"text": "a x"}\n')


# ---- Files that are refused --------------------------------------------------------------------------------------------------------------


def changed(**members):
    """A change of a tokenizer.json: other members of it."""
    return lambda t: t.update(members)


def of_model(**members):
    return lambda t: t['model'].update(members)


def roberta(name):
    return changed(post_processor={'type': 'RobertaProcessing', 'sep': ['</s>', 2], 'cls': ['<s>', 0], name: ['x', 'y']})


# What is not done here is refused by name; what is broken by its place.
REFUSED = {
    'model': (changed(model=dict(type='CharLevel', vocab={}, unk_token='')), "'CharLevel'", 'BPE, Unigram, WordPiece, WordLevel'),
    'normalizer': (changed(normalizer=dict(type='ByteLevel')), 'normalizer', "'ByteLevel'", 'NFC'),
    'pre_tokenizer': (changed(pre_tokenizer=dict(type='Sequence', pretokenizers=[dict(type='UnicodeScripts')])), 'pre_tokenizer.pretokenizers[0]', "'UnicodeScripts'"),
    'post_processor': (changed(post_processor=dict(type='Post')), 'post_processor', "'Post'", 'BertProcessing'),
    'decoder': (changed(decoder=dict(type='CTC')), 'decoder', "type 'CTC' is not supported", 'BPEDecoder, ByteFallback, ByteLevel, Fuse, Metaspace'),
    'pattern': (changed(pre_tokenizer=dict(type='Split', pattern=dict(Regex='('), behavior='Isolated')), 'pre_tokenizer', "'('"),
    'merge of no token': (lambda t: t['model']['merges'].append('never seen'), "'never'"),
    'merge of one': (lambda t: t['model']['merges'].append('one'), 'merges[', '] is not a pair of tokens'),
    'unk_token': (of_model(unk_token='<none>'), "'<none>'"),
    'negative id': (lambda t: t['model']['vocab'].update(x=-1), "vocab['x']: an id has to be an integer in [0, "),
    'no object': (changed(normalizer='NFC'), 'normalizer is a string instead of an object'),
    'prefix': (changed(normalizer=dict(type='Prepend', prepend='x' * 1025)), "normalizer: 'prepend' has 1025 bytes; 1024 are the most"),
    'long added token': (lambda t: t['added_tokens'].append(dict(id=60000, content='x' * 70000)), 'the token has 70000 bytes, and all added tokens up to it 7'),
    'added id': (lambda t: t['added_tokens'].append(dict(id='7', content='<x>')), 'added_tokens['),
    'no model': (lambda t: t.pop('model'), "'model'"),
    'vocab': (of_model(vocab=[]), "model: 'vocab' has to be an object"),
    'no byte': (lambda t: t['model']['merges'].append('a \u4e00'), '] has a character that stands for no byte'),
    'dropout': (of_model(dropout=0.1), "model: 'dropout' is not supported"),
    'dropout in a text': (of_model(dropout='0'), "model: 'dropout' is not supported"),
    'sep': (roberta('sep'), 'post_processor.sep'),
    'no sep': (changed(post_processor={'type': 'RobertaProcessing', 'sep': '</s>', 'cls': ['<s>', 0]}), "post_processor: 'sep' has to be a token and its id"),
    'cls': (roberta('cls'), 'post_processor.cls'),
    'words of ByteLevel': (changed(model=dict(type='WordPiece', vocab={'[UNK]': 0})), "'WordPiece' over the words of ByteLevel"),
}


@cases(REFUSED)
def refusals(_, of):
    change, *parts = of
    spoiled = json.loads(json.dumps(original))
    change(spoiled)
    pathlib.Path('tokenizer.json').write_text(json.dumps(spoiled))
    refuses(['tokenizer.json', *parts], 'tokenizer.json')


pieces = [['<unk>', 0.0], ['a', -1.0]]
unigram = dict(type='Unigram', vocab=pieces, unk_id=0)


def charsmap(*units, blob=b''):
    return base64.b64encode(struct.pack(f'<{1 + len(units)}I', 4 * len(units), *units) + blob).decode()


def precompiled(map_):
    return dict(normalizer=dict(type='Precompiled', precompiled_charsmap=map_))


def table(value, target):
    """From unit 0 by an 'a' to unit 97, with a value, and from there to what unit 96 says."""
    units = [0] * 256
    units[97], units[96] = 97 | 1 << 8 | value << 10, target
    return units


def two_ways():
    """One that a short way and a long one lead to is measured by the short one: "ac" becomes 3,840 characters, and so does 'z' 60 times and "c"."""
    units, at = [0] * 65536, 122
    units[97] = 97 | (97 ^ 32768) << 10
    for step in range(60):
        children = 32768 if step == 59 else 256 * (step + 1)
        units[at] = 122 | (at ^ children) << 10
        at = children ^ 122
    units[32768 ^ 99], units[40960] = 99 | 1 << 8 | (32768 ^ 99 ^ 40960) << 10, 0x80000000
    return units


def unigram_of(**members):
    return dict(unigram, **members)


# The same of a file without the words of ByteLevel: its model, its other members, what is said.
BROKEN = {
    'no pieces': (unigram_of(vocab=[]), {}, "'vocab' is empty"),
    'unk_id': (unigram_of(unk_id=2), {}, "'unk_id' = 2, but the vocabulary has 2 pieces"),
    'unk_id below 0': (unigram_of(unk_id=-1), {}, "'unk_id'"),
    'score': (dict(type='Unigram', vocab=[*pieces, ['b', 'c']]), {}, 'model.vocab[2] is not a piece and its score'),
    'score of NaN': (dict(type='Unigram', vocab=[*pieces, ['b', float('nan')]]), {}, 'tokenizer.json:1:'),
    'score of infinity': (dict(type='Unigram', vocab=[*pieces, ['b', float('inf')]]), {}, 'tokenizer.json:1:'),
    'long piece': (dict(type='Unigram', vocab=[*pieces, ['b' * 16385, -1.0]]), {}, 'piece 2 has 16385 bytes; 16384 are the most'),
    'long token': (dict(type='WordPiece', vocab={'[UNK]': 0, 'b' * 16385: 1}), {}, 'token 1 has 16385 bytes; 16384 are the most'),
    'unk_token': (dict(type='WordPiece', vocab={}, unk_token='[UNK]'), {}, "'[UNK]' is not in the vocabulary"),
    'characters': (dict(type='WordPiece', vocab={'[UNK]': 0}, max_input_chars_per_word=-1), {}, "'max_input_chars_per_word'"),
    'WordLevel': (dict(type='WordLevel', vocab={'a': 0}), {}, "model: 'unk_token'"),
    **{f'charsmap of {n}': (unigram, precompiled(map_), 'normalizer: ', part) for n, map_, part in (
        ('no base64', '****', 'is not in base64'), ('0 bytes', '', 'has 0 bytes'), ('3 bytes', 'AAAA', 'has 3 bytes'), ('6 bytes', '/////wAA', 'has 6 bytes, and says that its table has 4294967295'))},
    'value after the table': (unigram, precompiled(charsmap(*table(1 << 20, 0))), 'unit 97 of its table of 256 leads outside'),
    'value after the replacements': (unigram, precompiled(charsmap(*table(1, 0x80000063))), 'unit 97 of its table of 256 leads outside'),
    'replacements': (unigram, precompiled(charsmap(0, blob=b'\xff')), 'not UTF-8'),
    'replacements that are long': (unigram, precompiled(charsmap(*table(1, 0x80000000), blob=b'x' * 100)), 'this Precompiled can make a text 100 times as long'),
    'two ways': (unigram, precompiled(charsmap(*two_ways(), blob=b'x' * 3840)), 'this Precompiled can make a text 1920 times as long'),
    'Replace': (unigram, dict(decoder=dict(type='Replace', pattern=dict(String='x'))), "'content'"),
    'replacement': (unigram, dict(pre_tokenizer=dict(type='Metaspace', replacement='ab')), "'replacement' has to be one character"),
    'prepend_scheme': (unigram, dict(pre_tokenizer=dict(type='Metaspace', replacement='_', prepend_scheme='x')),
                       "prepend_scheme 'x' is not known; there is: always, first, never"),
    'contrary': (unigram, dict(pre_tokenizer=dict(type='Metaspace', replacement='_', add_prefix_space=False, prepend_scheme='first')),
                 "'add_prefix_space' = false and prepend_scheme 'first' contradict each other"),
    'after ByteLevel': (unigram, dict(pre_tokenizer=dict(type='Sequence', pretokenizers=[dict(type='ByteLevel'), dict(type='Whitespace')])),
                         'it comes after ByteLevel, which has to be the last'),
    'behavior': (unigram, dict(pre_tokenizer=dict(type='Punctuation', behavior='x')), "behavior 'x' is not known; there is: Contiguous, Isolated"),
}


@cases(BROKEN)
def broken(_, of):
    model, others, *parts = of
    pathlib.Path('tokenizer.json').write_text(json.dumps({**original, 'pre_tokenizer': None, 'added_tokens': [], 'model': model, **others}))
    refuses(['tokenizer.json', *parts], 'tokenizer.json')


start, sequence = dict(SpecialToken=dict(id='<s>')), dict(Sequence=dict(id='A'))


@cases({'two sequences': ([sequence, sequence], "'single' has to be special tokens around one sequence"), 'an empty one': ([{}], "'single' has to be special tokens"),
        'no ids': ([start, sequence], "'special_tokens' does not say the ids of '<s>'"), 'none': ([], "'single' has no sequence")})
def template(_, of):
    single, part = of
    pathlib.Path('tokenizer.json').write_text(json.dumps(dict(original, post_processor=dict(type='TemplateProcessing', single=single, special_tokens={}))))
    refuses(['tokenizer.json', f'post_processor: {part}'], 'tokenizer.json')


@case
def units_without_end():
    """They lead to each other: 97 of 'a' and 98 of 'b' have themselves and each other after them."""
    units = [0] * 256
    units[97], units[98] = 97 | 97 << 10, 98 | 98 << 10
    pathlib.Path('cycle.json').write_text(json.dumps(dict(model=unigram, **precompiled(charsmap(*units)))))
    cycle = tokenize('cycle.json', text=in_lines([dict(text='ab' * 50)]))
    check(cycle == [{'ids': [1, 0] * 50}], f'{cycle}')


@case
def unknown_character():
    pathlib.Path('unknown.json').write_text(json.dumps(dict(model=dict(type='Unigram', vocab=pieces))))
    refuses(['stdin:2: unknown.json: model: the text has a character that no token stands for'], 'unknown.json', text='{"text": "a"}\n{"text": "ab"}\n')


# ---- Lines -------------------------------------------------------------------------------------------------------------------------------


@cases(['t5', 'bert', 'llama2'])
def long_word(kind):
    """A line of a MB without spaces takes time in proportion, whatever the model."""
    long = tokenize(tokenizer(folder / kind), text=in_lines([dict(text='abcdefghij' * 100000)]))
    check(len(long[0]['ids']) == 1 if kind == 'bert' else len(long[0]['ids']) > 100000, f'{len(long[0]["ids"])} ids of a MB')


@case
def wrong_lines():
    for text, part in (('{"txt": "a"}\n', "stdin:1"), ('{"text": "a"}\n{"text": 1}\n', "stdin:2: 'text' is a integer; it must be a string"), ('{"text": "a"\n', 'stdin:1'), ('[]\n', "stdin:1: expected an object with 'text'")):
        refuses([part], gpt2, text=text)
    for text, part in (('{"ids": [1502]}\n', '1502'), ('{"ids": [-1]}\n', '-1'), ('{"ids": ["a"]}\n', 'stdin:1'), ('{"ids": 5}\n', "stdin:1: 'ids' is a integer; it must be a list")):
        refuses([part], gpt2, '--decode', text=text)


@case
def no_file():
    refuses(['none.json'], 'none.json')
    os.mkfifo('pipe.json')
    refuses(["'pipe.json': it is a named pipe"], 'pipe.json')


@case
def threads():
    for many in (4097, 1 << 62):
        refuses([f'--threads {many}: the limit is 4096'], gpt2, '--threads', many)
    tokenize(gpt2, '--threads', 64, text='{"text": "a"}\n')
    # Many lines come out in order.
    many = in_lines(dict(text=f'{i} {texts[i % len(texts)]}') for i in range(20000))
    one, three = (tokenize(gpt2, '--threads', n, text=many) for n in (1, 3))
    check(one == three and len(one) == 20000, 'threads change something')


@case
def line_without_end():
    refuses(['a line of more than 16 MiB'], gpt2, text='{"text": "' + 'x' * (65 << 20) + '"}\n')


@case
def broken_utf8():
    r = galley('tokenize', gpt2, input=b'{"text": "a\xff\xfeb\xe2\x82c"}\n')
    same = tokenize(gpt2, text=in_lines([{'text': 'a\ufffd\ufffdb\ufffdc'}]))
    check(r.returncode == 0 and json.loads(r.stdout) == same[0] and 'replaced 3 invalid' in r.stderr, f'{r}')


# ---- Regular expressions -----------------------------------------------------------------------------------------------------------------


def with_pattern(regex):
    split = [dict(type='Split', pattern=dict(Regex=regex), behavior='Isolated', invert=False), dict(type='ByteLevel', add_prefix_space=False, use_regex=False)]
    pathlib.Path('tokenizer.json').write_text(json.dumps(dict(original, pre_tokenizer=dict(type='Sequence', pretokenizers=split))))
    return 'tokenizer.json'


@case
def pattern_gives_up():
    """That is an error with its place, in data as well; so is a pattern that means something else here."""
    refuses(["stdin:2: tokenizer.json: pre_tokenizer.pretokenizers[0]: the regular expression '(?:a|aa)+$' gives up"], with_pattern('(?:a|aa)+$'),
            text=in_lines([dict(text='b'), dict(text='a' * 60 + '!')]))
    for regex, part in ((r'[\p{L}&&[^\p{Han}]]+|[^\p{L}]+', "'&&' inside a class, which computes with sets of characters, is not supported"),
                        ('[a[^b]]', "'[^' inside a class (for the character '[' write '\\[') is not supported"),
                        ('a{1,2}+', "'{1,2}+' (a quantifier after an interval) is not supported")):
        refuses(['tokenizer.json: pre_tokenizer.pretokenizers[0]:', part], with_pattern(regex))


@case
def rounds():
    """1,500 rounds fill the first stack of the compiled pattern."""
    one, few, long = (x['ids'] for x in tokenize(with_pattern(r"(?:\p{L}+['’-]?)+"), text=in_lines(dict(text="a'" * n + ' o') for n in (1, 1000, 3000))))
    check(few == 1000 * one[:2] + one[2:] and long == 3000 * one[:2] + one[2:], f'{one}, and then {few[-4:]} {long[-4:]}')


# ---- Training ---------------------------------------------------------------------------------------------------------------------------


def written_text():
    """Texts of the fixtures, of which the library has trained a tokenizer."""
    own = content(fixtures / 'tokenizers/texts.jsonl').split('\n')[:-1]
    pathlib.Path('text.txt').write_bytes('\n'.join(json.loads(line)['text'] for line in own).replace('\0', '').encode())


def train_to(out, *words, text):
    """Trains a tokenizer; nothing is tokenized."""
    written_text()
    r = galley('tokenize', '--train', 'text.txt', '--vocab', 2000, '--out', out, *words, input=text, timeout=300)
    check(r.returncode == 0, f'{r}')
    return json.loads(pathlib.Path(out, 'tokenizer.json').read_text())


@case
def training():
    expected = json.loads(content(fixtures / 'tokenizers/trained.json'))
    made = train_to('one', '--threads', 1, text='{"text": "not read"}')
    train_to('two', '--threads', 2, text='')
    check(made['model']['vocab'] == expected['vocab'], 'the trained vocabulary is not that of the tokenizers library')
    check(made['model']['merges'] == expected['merges'], 'the trained merges are not those of the tokenizers library')
    for name in ('tokenizer.json', 'tokenizer_config.json'):
        check(pathlib.Path('one', name).read_bytes() == pathlib.Path('two', name).read_bytes(), f'{name}: threads change something')
    back = tokenize('one/tokenizer.json', '--decode', text=in_lines(tokenize('one/tokenizer.json', text=lines)))
    check([x['text'] for x in back] == texts, 'a text does not come back from the trained tokenizer')


@case
def training_is_refused():
    written_text()
    pathlib.Path('full').mkdir()
    pathlib.Path('full/tokenizer.json').write_text('{}')
    for words, part in ((('--train', 'text.txt', '--vocab', 2000, '--out', 'full'), 'exists already'),
                        (('--train', 'text.txt', '--vocab', 100, '--out', 'x'), 'the least is 257'),
                        (('--train', 'text.txt', '--vocab', 2000), '--out DIR'), (('--train', 'nothing.txt', '--vocab', 2000, '--out', 'x'), 'nothing.txt'),
                        (('--vocab', 3), 'requires --train'), ((), 'TOKENIZER_JSON is missing')):
        refuses([part], *words)


finish()
