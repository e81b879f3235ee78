#!/usr/bin/env python3
"""Bytes and names of strangers: recipes, modules, arguments, files and folders with bytes that are no UTF-8, quotes, newlines and wildcards. Such a run trains, stops, goes on and
ends with the same bytes as one that nobody stopped, every command takes it, and its JSON is JSON. A pattern reads below the recipe's folder only, whatever that is called."""
import json
import os
import pathlib
import shutil
import subprocess

from galley_test import check, finish, fresh_folder, program

fresh_folder()
TEXT = b'The cafe at the corner opens at seven, and the baker is there from four.\n' * 40
MODEL = b'''model { family = "gpt2", init = "random", config = { n_layer = 1, n_embd = 16, n_head = 2, n_positions = 64, vocab_size = 256, resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0 } }'''
RECIPE = b'''return recipe { model = %s, data = data.text { files = %%s, tokenizer = "bytes", validation = 0.2 },
  batch = 1, length = 32, steps = 4, save = { every = 2 }, validate = { every = 4 }, use "sgd" { lr = 0.1 } }
''' % MODEL


def galley(*words, code=0):
    r = subprocess.run([program, *words], capture_output=True, timeout=120)
    check(r.returncode == code, f'{words}: exit code {r.returncode}, not {code}: {r.stderr[-600:]}')
    return r


def write(path, content):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'wb') as file:
        file.write(content)


def left(run):
    """Losses, and the model's bytes."""
    with open(os.path.join(run, b'metrics.jsonl'), 'rb') as file:
        losses = [(x.get('step'), x.get('loss'), x.get('validation_loss')) for x in map(json.loads, file)]
    with open(os.path.join(run, b'model', b'model.safetensors'), 'rb') as file:
        return losses, file.read()


def goes_on(name, recipe, *more):
    whole, run = name + b'-whole', name + b'-run'
    galley('train', recipe, *more, '--out', whole)
    if not os.path.exists(os.path.join(whole, b'model')):
        return
    galley('train', recipe, *more, '--out', run, '--until', '2')
    galley('resume', run)
    check(left(run) == left(whole), f'{name}: another run than without a stop')
    galley('eval', run)
    galley('report', run)
    galley('sample', run, '--prompt', 'The', '--tokens', '3')
    galley('export', run, '--out', name + b'-export')
    for file in ('memory.json', 'usage.json'):
        path = os.path.join(run, file.encode())
        if os.path.exists(path):
            with open(path, encoding='utf-8') as text:
                json.load(text)
    json.loads(galley('plan', recipe, *more, '--json').stdout.decode('utf-8'))
    json.loads(galley('data', recipe, *more, '--json').stdout.decode('utf-8').splitlines()[0])


# ---- Bytes that are no UTF-8, one place at a time -------------------------------------------------------------------------------------------

write(b'comment/text.txt', TEXT)
write(b'comment/r.lua', b'-- d\xe9j\xe0 vu\n' + RECIPE % b'"text.txt"')
goes_on(b'in-a-comment', b'comment/r.lua')
write(b'module/text.txt', TEXT)
write(b'module/names.lua', b'-- caf\xe9\nreturn { text = "text.txt" }\n')
write(b'module/r.lua', b'local names = require "names"\n' + RECIPE % b'names.text')
goes_on(b'in-a-module', b'module/r.lua')
write(b'file/caf\xe9.txt', TEXT)
write(b'file/r.lua', RECIPE % b'"caf\xe9.txt"')
goes_on(b'in-a-file', b'file/r.lua')
write(b'pattern/caf\xe9.txt', TEXT)
write(b'pattern/r.lua', RECIPE % b'"*.txt"')
goes_on(b'in-a-pattern', b'pattern/r.lua')
write(b'given/caf\xe9.txt', TEXT)
write(b'given/r.lua', RECIPE % b'arg("text")')
goes_on(b'in-an-argument', b'given/r.lua', '--set', b'text=given/caf\xe9.txt')
write(b'fold\xe9r/text.txt', TEXT)
write(b'fold\xe9r/r.lua', RECIPE % b'"text.txt"')
goes_on(b'in-a-folder', b'fold\xe9r/r.lua')
goes_on(b'in-the-run\xe9', b'comment/r.lua')
# Characters that stand for such bytes in run.toml are themselves, too.
write('private/\U0010f7e9.txt'.encode(), TEXT)
write(b'private/r.lua', RECIPE % '"\U0010f7e9.txt"'.encode())
goes_on(b'in-private', b'private/r.lua')
for name in ('two words', "it's", 'a "b"', 'line\nbreak', '$HOME', 'tab\t', '\u65e5\u672c', '\U0001f600', 'e\u0301', '{x}', '-dash', '#hash', 'back\\slash'):
    folder = os.path.join(b'names', name.encode())
    write(os.path.join(folder, b'text.txt'), TEXT)
    write(os.path.join(folder, b'r.lua'), RECIPE % b'"text.txt"')
    goes_on(folder + b'/as', os.path.join(folder, b'r.lua'))

# What has changed is still seen.
write(b'comment/r.lua', b'-- d\xe8j\xe0 vu\n' + RECIPE % b'"text.txt"')
shutil.rmtree('in-a-comment-run')
write(b'comment/r.lua', b'-- d\xe9j\xe0 vu\n' + RECIPE % b'"text.txt"')
galley('train', b'comment/r.lua', '--out', b'in-a-comment-run', '--until', '2')
write(b'in-a-comment-run/recipe.lua', b'-- d\xe8j\xe0 vu\n' + RECIPE % b'"text.txt"')
check(b'has changed' in galley('resume', b'in-a-comment-run', code=2).stderr, 'another byte in a comment goes unseen')

# ---- Wildcards in the names of folders, beside what they would match --------------------------------------------------------------------------

for name, decoys in (('exp[1]', ['exp1']), ('a*b', ['ab', 'axb']), ('q?', ['qx']), ('[!x]', ['y']), ('**', ['other']), ('[', ['other']), ('x]', ['other']), ('{a,b}', ['a'])):
    base = pathlib.Path('globs') / f'case-{len(os.listdir("globs")) if os.path.isdir("globs") else 0}'
    for folder in [name, *decoys]:
        write(os.fsencode(base / folder / 'text' / 'own.txt'), TEXT if folder == name else TEXT * 3)
        write(os.fsencode(base / folder / 'text' / 'deep' / 'own.txt'), TEXT)
    for pattern, documents in (('text/*.txt', 1), ('text/**/*.txt', 2), ('*/own.txt', 1), ('text', 2), ('text/own.txt', 1)):
        recipe = base / name / 'r.lua'
        write(os.fsencode(recipe), RECIPE % json.dumps(pattern).encode())
        for words in ((str(recipe),), (str(recipe.resolve()),), (str(recipe), '--confine')):
            out = galley('data', *words, '--json').stdout.splitlines()
            if not out:
                continue
            facts = json.loads(out[0])['data'][0]
            check(facts['tokens'] == documents * len(TEXT), f'{name}, {pattern}, {words[1:]}: {facts}')
    # As an argument, too, and confined to what it names.
    write(os.fsencode(base / 'r.lua'), RECIPE % b'arg("text")')
    for more in ((), ('--confine',)):
        out = galley('data', str(base / 'r.lua'), '--set', f'text={base / name}/text/*.txt', *more, '--json').stdout.splitlines()
        facts = json.loads(out[0])['data'][0] if out else {}
        check(facts.get('tokens') == len(TEXT), f'{name} as an argument, {more}: {facts}')
# A pattern that begins with a folder's name, where there is no such folder.
write(b'globs/plain/exp1/own.txt', TEXT)
write(b'globs/plain/r.lua', RECIPE % b'"exp[1]/*.txt"')
check(json.loads(galley('data', b'globs/plain/r.lua', '--json').stdout.splitlines()[0])['data'][0]['tokens'] == len(TEXT), 'a pattern of a folder')
finish()
