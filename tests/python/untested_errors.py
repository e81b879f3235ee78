#!/usr/bin/env python3
# label: all
"""Texts of errors that no test knows: of the sources' texts, those of which no three words in a row stand in quotes anywhere in tests/. Each has to be in
tests/golden/untested_errors.txt, below the reason why it has no test. It prints them all; `--update` takes off what is tested or gone, and
`--update=REASON` also adds what is new below that reason."""
import collections
import re
import sys

from galley_test import case, check, every, finish, require, source

recorded = source / 'tests' / 'golden' / 'untested_errors.txt'
FOLDERS = {'host': ('.cpp', '.hpp', '.lua'), 'models': ('.cpp', '.hpp', '.cu', '.cuh', '.lua'), 'plugins': ('.cpp', '.hpp', '.cu'), 'sdk/include/galley/cpp': ('.hpp',)}
TESTS = {'.py': 'py', '.cpp': 'cpp', '.hpp': 'cpp', '.c': 'cpp', '.cu': 'cpp', '.lua': 'lua', '.sh': None, '.toml': None}
# What makes an error of a text.
CPP = re.compile(r'(\w*_error|\w*[Ff]ailure|wrong\w*|invalid|unsupported|fail|refuse\w*|differs?)$')
LUA = re.compile(r'(error|fail|undefined|raise)$')
LITERAL = {
    'cpp': re.compile(r'(?s)//[^\n]*|/\*.*?\*/|R"(?P<fence>[^("]*)\((?P<raw>.*?)\)(?P=fence)"|"(?P<text>(?:[^"\\\n]|\\.)*)"|\'(?:[^\'\\\n]|\\.)+\''
                      r'|(?P<name>[A-Za-z_]\w*)|(?P<mark>\S)'),
    'lua': re.compile(r'(?s)--\[\[.*?\]\]|--[^\n]*|"(?P<text>(?:[^"\\\n]|\\.)*)"|\'(?:[^\'\\\n]|\\.)*\'|(?P<name>[A-Za-z_]\w*)|(?P<mark>\S)'),
}
LITERAL['py'] = re.compile(r'(?s)#[^\n]*|(?P<fence>\"{3}|\'{3})(?P<raw>.*?)(?P=fence)|"(?P<text>(?:[^"\\\n]|\\.)*)"|\'(?P<other>(?:[^\'\\\n]|\\.)*)\'')
# A value in a text, and an escaped character.
HOLE = re.compile(r'%[-+ #0]*\d*(?:\.\d+)?[a-zA-Z]|\{[^{}]*\}|\\.')
# A text's words are its own where so few texts have them.
FEW = 2


def words_of(text):
    return tuple(re.findall(r'[a-z0-9_]+', text.lower()))


def pieces_of(parts):
    """The words between the values of a text. Literals side by side are one."""
    texts, open_ = [], False
    for part in parts:
        if part is None:
            open_ = False
        elif open_:
            texts[-1] += part
        else:
            texts.append(part)
            open_ = True
    return tuple(x for text in texts for piece in HOLE.split(text) if (x := words_of(piece)))


def texts_of(code, language):
    """The texts of calls that make an error: of each the first argument with words, which says the cause."""
    tokens = list(LITERAL[language].finditer(code))
    calls = CPP if language == 'cpp' else LUA
    i = 0
    while i + 1 < len(tokens):
        name = tokens[i]['name']
        i += 1
        if not name or not calls.match(name) or tokens[i]['mark'] not in ('(', '{'):
            continue
        depth, parts = 0, []
        while i < len(tokens):
            token = tokens[i]
            literal = token['text'] if token['text'] is not None else token.groupdict().get('raw')
            depth += {'(': 1, '{': 1, '[': 1, ')': -1, '}': -1, ']': -1}.get(token['mark'], 0)
            if depth == 0 or (depth == 1 and token['mark'] == ',' and pieces_of(parts)):
                break
            if literal is not None:
                parts.append(literal)
            elif token['mark'] or token['name']:
                parts.append(None)
            i += 1
        if pieces := pieces_of(parts):
            yield pieces


def threes(pieces):
    """What is looked for in the tests: three words in a row; where no piece has so many, its longest piece."""
    found = {x[i:i + 3] for x in pieces for i in range(len(x) - 2)}
    return found or {max(pieces, key=len)}


def named(pieces):
    return ' … '.join(map(' '.join, pieces))


def all_texts():
    """{text: (its pieces, the first file that has it)}."""
    texts = {}
    for folder, suffixes in FOLDERS.items():
        for file in sorted((source / folder).rglob('*')):
            if file.suffix in suffixes:
                for pieces in texts_of(file.read_text(), 'lua' if file.suffix == '.lua' else 'cpp'):
                    texts.setdefault(named(pieces), (pieces, file.relative_to(source)))
    return texts


def literals(file):
    """The texts in quotes: what a comment says is no test."""
    text, language = file.read_text(errors='replace'), TESTS[file.suffix]
    if not language:
        return [text]
    return [x for token in LITERAL[language].finditer(text) for x in (token.groupdict().get(k) for k in ('text', 'raw', 'other')) if x]


def known_to_tests(sought):
    """Those of the words sought that stand in a row in a test."""
    found, lengths = set(), {len(x) for x in sought}
    for file in sorted((source / 'tests').rglob('*')):
        if file.suffix in TESTS and file.is_file():
            for words in map(words_of, literals(file)):
                for n in lengths:
                    found.update(sought.intersection(words[i:i + n] for i in range(len(words) - n + 1)))
    return found


def untested(texts):
    count = collections.Counter(x for pieces, _ in texts.values() for x in threes(pieces))
    own = {name: {x for x in threes(pieces) if count[x] <= FEW} or threes(pieces) for name, (pieces, _) in texts.items()}
    known = known_to_tests(set().union(*own.values()))
    return {name: file for name, (_, file) in texts.items() if not own[name] & known}


def read_recorded():
    """{text: why it has no test}: a line that ends with a colon is a reason, the lines below it that begin with two blanks are its texts."""
    texts, reason = {}, None
    for line in recorded.read_text().splitlines() if recorded.exists() else []:
        if line.startswith('  '):
            texts[line.strip()] = reason
        elif line and not line.startswith('#'):
            reason = line.removesuffix(':')
    return texts


def write_recorded(texts, files):
    """Below each reason by files, whose names are only for reading."""
    out = ['# Texts of errors without a test, below the reason why. tests/python/untested_errors.py holds them against the sources and writes this file.']
    for reason in sorted(set(texts.values())):
        out += ['', f'{reason}:']
        for name in sorted((x for x in texts if texts[x] == reason), key=lambda x: (str(files[x]), x)):
            out.append(f'  {name}')
    recorded.write_text('\n'.join(out) + '\n')


@case
def texts_are_found():
    """What the finder stands on, so that it does not find nothing."""
    code = '''// wrong("no text of this line")
    return recipe_error(place + ": 'a b' is " + text_of(x) + " where " "a word belongs", "and a hint"); luaL_error(L, "it has %d of them", n);'''
    check(list(texts_of(code, 'cpp')) == [(('a', 'b', 'is'), ('where', 'a', 'word', 'belongs')), (('it', 'has'), ('of', 'them'))], f'{list(texts_of(code, "cpp"))}')
    code = '-- fail("none")\nfail("%s of a %d", x) error(("config: \'%s\' is not"):format(key), 0)'
    check(list(texts_of(code, 'lua')) == [(('of', 'a'),), (('config',), ('is', 'not'))], f'{list(texts_of(code, "lua"))}')


@case
def no_new_text_without_a_test():
    texts = all_texts()
    require(len(texts) > 1200, f'only {len(texts)} texts are found in the sources')
    found, known = untested(texts), read_recorded()
    update = next((x for x in sys.argv if x.startswith('--update')), None)
    if update:
        reason = update.partition('=')[2]
        known = {name: known.get(name, reason) for name in found if name in known or reason}
        write_recorded(known, found)
    for name, file in sorted(found.items(), key=lambda x: (str(x[1]), x[0])):
        print(f'{file}: {name}')
    print(f'{len(found)} of {len(texts)} texts have no test')
    new, gone = sorted(found.keys() - known.keys()), sorted(known.keys() - found.keys())
    check(not new, f'write a case in tests/python/errors*.py, or add it with --update=REASON: {[f"{found[x]}: {x}" for x in new]}')
    check(not gone, f'these have a test now, or are gone; take them off with --update: {gone}')
    check(every(known.values()), f'without a reason: {[x for x in known if not known[x]]}')


finish()
