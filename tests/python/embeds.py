#!/usr/bin/env python3
"""galley embed beside what transformers and PEFT compute of the same texts (tests/fixtures/embed): hidden states and each pool of them, lengths, texts that are cut, models of nine
families, an adapter and the same merged; what it refuses."""
import gzip
import json
import math
import pathlib
import shutil
import subprocess

from galley_test import case, cases, check, error, finish, fixtures, fresh_folder, program, run, together

fresh_folder()
expected = json.loads(gzip.decompress((fixtures / 'embed/expect.json.gz').read_bytes()))
lines = ''.join(json.dumps(x if i % 2 else dict(text=x)) + '\n' for i, x in enumerate(expected['texts']))
check(len(expected['cases']) == 10 and len(expected['texts']) == 5, f'{len(expected["cases"])} cases, {len(expected["texts"])} texts')
bound = 2e-6
pools = {'mean': lambda states: [math.fsum(x) / len(states) for x in zip(*states, strict=True)], 'first': lambda states: states[0], 'last': lambda states: states[-1]}


def embed(folder, *words, text=lines, code=0):
    r = subprocess.run([program, 'embed', str(folder), *map(str, words)], input=text, capture_output=True, text=True, timeout=100)
    check(r.returncode == code, f'{folder} {words}: exit code {r.returncode}, not {code}: {r.stderr[-500:]}')
    return r.stderr if code else [json.loads(x) for x in r.stdout.splitlines()]


def with_tokenizer(name, folder):
    """A copy of a model's folder, with the tokenizer."""
    path = pathlib.Path(name)
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    for file in (fixtures / folder).iterdir():
        if file.name.startswith(('config', 'model')):
            shutil.copy(file, path)
    shutil.copy(fixtures / 'embed/tokenizer.json', path)
    return path


def as_expected(name, folder, *words):
    wanted = expected['cases'][name]['states']
    states = [x['states'] for x in embed(folder, '--pool', 'none', *words)]
    for k, (a, b) in enumerate(together(states, wanted)):
        check(len(a) == len(b) == len(expected['ids'][k]), f'{name}, text {k}: {len(a)} states, not {len(b)}')
        e = error([x for row in a for x in row], [x for row in b for x in row])
        check(e <= bound, f'{name}, text {k}: states are off by {e:.1e}')
    for pool, of in pools.items():
        for normalize in (False, True):
            got = [x['embedding'] for x in embed(folder, *(['--pool', pool] if pool != 'mean' or normalize else []), *(['--normalize'] if normalize else []), *words)]
            for k, (a, b) in enumerate(together(got, [of(x) for x in wanted])):
                length = math.sqrt(math.fsum(x * x for x in b)) if normalize else 1
                e = error(a, [x / length for x in b])
                check(e <= bound, f'{name}, text {k}, {pool}{", normalized" if normalize else ""}: off by {e:.1e}')


@cases([x for x, what in expected['cases'].items() if 'adapter' not in what])
def model(name):
    folder = with_tokenizer(name, expected['cases'][name]['model'])
    as_expected(name, folder)
    first = json.dumps(expected['texts'][0]) + '\n'
    cut, = embed(folder, '--pool', 'none', '--length', expected['length'], text=first)
    check(len(cut['states']) == expected['length'], f'{name}: {len(cut["states"])} states of a text that is cut to {expected["length"]}')
    e = error([x for row in cut['states'] for x in row], [x for row in expected['cases'][name]['cut'] for x in row])
    check(e <= bound, f'{name}: the states of a text that is cut are off by {e:.1e}')


@case
def adapter():
    what = expected['cases']['qv']
    base = with_tokenizer('base', what['model'])
    shutil.copytree(fixtures / what['adapter'], 'adapter', dirs_exist_ok=True)
    as_expected('qv', 'adapter', '--base', base)
    shutil.rmtree('merged', ignore_errors=True)
    run('export', 'adapter', '--base', base, '--merge', '--out', 'merged')
    as_expected('qv', 'merged')


@case
def refused():
    folder = with_tokenizer('refusing', 'models/bert-mlm')
    for text, says in (('{"words": 1}\n', 'text'), ('"one"\nnothing\n', 'stdin:2:'), ('3\n', 'text')):
        said = embed(folder, text=text, code=2)
        check(said.startswith('galley: ') and says in said, f'{text!r}: {said}')
    said = embed(folder, '--pool', 'max', code=2)
    check('max' in said and 'mean' in said, said)
    check(embed(folder, text='') == [], 'no text gives something')


finish()
