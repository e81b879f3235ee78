#!/usr/bin/env python3
"""Bytes and names of strangers: recipes, modules, arguments, files and folders with bytes that are no UTF-8, quotes, newlines and wildcards. Such a run trains, stops,
goes on and ends with the same bytes as one that nobody stopped, every command takes it, and its JSON is JSON. A pattern reads below the recipe's folder only, whatever
that is called."""
import json
import os
import pathlib

from galley_test import case, cases, check, finish, fresh_folder, galley, lines_of, require

fresh_folder()
TEXT = b'The cafe at the corner opens at seven, and the baker is there from four.\n' * 40
RECIPE = b'''return recipe {
  model = model { family = "gpt2", init = "random",
    config = { n_layer = 1, n_embd = 16, n_head = 2, n_positions = 64, vocab_size = 256, resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0 } },
  data = data.text { files = %s, tokenizer = "bytes", validation = 0.2 },
  batch = 1, length = 32, steps = 4, save = { every = 2 }, validate = { every = 4 }, use "sgd" { lr = 0.1 } }
'''


def taken(*words, code=0):
    """What the program says of words that may be any bytes."""
    ended = galley(*words, timeout=120)
    require(ended.returncode == code, f'not exit code {code}, but {ended}')
    return ended


def write(path, content):
    path = pathlib.Path(os.fsdecode(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def left(out):
    """Losses, and the model's bytes."""
    out = pathlib.Path(os.fsdecode(out))
    return [(x.get('step'), x.get('loss'), x.get('validation_loss')) for x in lines_of(out)], (out / 'model/model.safetensors').read_bytes()


def goes_on(out, recipe, *more):
    """A run that was stopped ends as one that was not, and every command takes it."""
    whole, part = out + b'-whole', out + b'-run'
    taken('train', recipe, *more, '--out', whole)
    taken('train', recipe, *more, '--out', part, '--until', 2)
    taken('resume', part)
    check(left(part) == left(whole) and len(left(whole)[0]) >= 4, f'{out}: another run than without a stop')
    for words in (('eval', part), ('report', part), ('sample', part, '--prompt', 'The', '--tokens', 3), ('export', part, '--out', out + b'-export')):
        taken(*words)
    # json.loads() refuses bytes that are no UTF-8, which stand here as an escape that JSON does not have.
    written = [pathlib.Path(os.fsdecode(part), x).read_text(encoding='utf-8') for x in ('memory.json', 'usage.json')]
    said = [taken('plan', recipe, *more, '--json').stdout, taken('data', recipe, *more, '--json').stdout.splitlines()[0]]
    for text in written + said:
        check(isinstance(json.loads(text), dict), f'{out}: no JSON: {text[:100]}')


# ---- Bytes that are no UTF-8, one place at a time: {place: (files, what the recipe's `files` is, arguments, the run's name)} ------------------

TEXT_FILE = {b'text.txt': TEXT}
PLACES = {
    'comment': (TEXT_FILE, b'"text.txt"', (), b'run'),
    'module': ({**TEXT_FILE, b'names.lua': b'-- caf\xe9\nreturn { text = "text.txt" }\n'}, b'require("names").text', (), b'run'),
    'file': ({b'caf\xe9.txt': TEXT}, b'"caf\xe9.txt"', (), b'run'),
    'pattern': ({b'caf\xe9.txt': TEXT}, b'"*.txt"', (), b'run'),
    'argument': ({b'caf\xe9.txt': TEXT}, b'arg("text")', ('--set', b'text=argument/caf\xe9.txt'), b'run'),
    'folder': ({b'in\xe9/text.txt': TEXT}, b'"in\xe9/text.txt"', (), b'run'),
    'run': (TEXT_FILE, b'"text.txt"', (), b'run\xe9'),
    # Characters that stand for such bytes in run.toml are themselves, too.
    'private_character': ({'\U0010f7e9.txt'.encode(): TEXT}, '"\U0010f7e9.txt"'.encode(), (), b'run'),
}


@cases(PLACES)
def no_utf8(place, what):
    files, data, more, run = what
    folder = place.encode()
    for name, content in files.items():
        write(os.path.join(folder, name), content)
    comment = b'-- d\xe9j\xe0 vu\n' if place == 'comment' else b''
    write(os.path.join(folder, b'r.lua'), comment + RECIPE % data)
    goes_on(os.path.join(folder, run), os.path.join(folder, b'r.lua'), *more)


@case
def no_utf8_in_the_recipes_folder():
    write(b'fold\xe9r/text.txt', TEXT)
    write(b'fold\xe9r/r.lua', RECIPE % b'"text.txt"')
    goes_on(b'in-a-folder', b'fold\xe9r/r.lua')


@case
def another_byte_is_seen():
    write(b'changed/text.txt', TEXT)
    write(b'changed/r.lua', b'-- d\xe9j\xe0 vu\n' + RECIPE % b'"text.txt"')
    taken('train', 'changed/r.lua', '--out', 'changed/run', '--until', 2)
    write(b'changed/run/recipe.lua', b'-- d\xe8j\xe0 vu\n' + RECIPE % b'"text.txt"')
    said = taken('resume', 'changed/run', code=2).stderr
    check('has changed' in said, f'another byte in a comment goes unseen: {said}')


# ---- Names of folders -----------------------------------------------------------------------------------------------------------------

NAMES = {'space': 'two words', 'apostrophe': "it's", 'quotes': 'a "b"', 'newline': 'line\nbreak', 'dollar': '$HOME', 'tab': 'tab\t', 'japanese': '\u65e5\u672c',
         'emoji': '\U0001f600', 'combining': 'e\u0301', 'braces': '{x}', 'dash': '-dash', 'hash': '#hash', 'backslash': 'back\\slash'}


@cases(NAMES)
def folder(_, name):
    folder = os.path.join(b'names', name.encode())
    write(os.path.join(folder, b'text.txt'), TEXT)
    write(os.path.join(folder, b'r.lua'), RECIPE % b'"text.txt"')
    goes_on(os.path.join(folder, b'as'), os.path.join(folder, b'r.lua'))


# ---- Wildcards in the names of folders, beside what they would match: {case: (name, decoys)} ------------------------------------------------

WILD = {'set': ('exp[1]', ['exp1']), 'star': ('a*b', ['ab', 'axb']), 'mark': ('q?', ['qx']), 'other_set': ('[!x]', ['y']), 'stars': ('**', ['other']),
        'open': ('[', ['other']), 'close': ('x]', ['other']), 'choice': ('{a,b}', ['a'])}


def tokens_of(recipe, *words):
    """Of all the data. A token is a byte."""
    return json.loads(taken('data', recipe, *words, '--json').stdout.splitlines()[0])['data'][0]['tokens']


@cases(WILD)
def wildcards(label, what):
    name, decoys = what
    base = pathlib.Path('globs', label)
    for folder in [name, *decoys]:
        write(base / folder / 'text/own.txt', TEXT if folder == name else TEXT * 3)
        write(base / folder / 'text/deep/own.txt', TEXT)
    recipe = base / name / 'r.lua'
    for pattern, documents in (('text/*.txt', 1), ('text/**/*.txt', 2), ('*/own.txt', 1), ('text', 2), ('text/own.txt', 1)):
        write(recipe, RECIPE % json.dumps(pattern).encode())
        for words in ((recipe,), (recipe.resolve(),), (recipe, '--confine')):
            tokens = tokens_of(*words)
            check(tokens == documents * len(TEXT), f'{name}, {pattern}, {words[1:]}: {tokens} bytes, not {documents} times {len(TEXT)}')
    # As an argument, too, and confined to what it names.
    write(base / 'r.lua', RECIPE % b'arg("text")')
    for more in ((), ('--confine',)):
        tokens = tokens_of(base / 'r.lua', '--set', f'text={base / name}/text/*.txt', *more)
        check(tokens == len(TEXT), f'{name} as an argument, {more}: {tokens} bytes, not {len(TEXT)}')


@case
def pattern_of_a_folder():
    """It begins with what is the name of a folder elsewhere; here there is none."""
    write('globs/plain/exp1/own.txt', TEXT)
    write('globs/plain/r.lua', RECIPE % b'"exp[1]/*.txt"')
    check(tokens_of('globs/plain/r.lua') == len(TEXT), 'a pattern of a folder')


finish()
