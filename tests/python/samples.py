#!/usr/bin/env python3
"""galley sample beside what transformers and PEFT continue prompts with (tests/fixtures/sample): the likeliest token after the other, until one ends the text, by models of
every family that generates, by adapters and by the same merged; with a context that is shorter than the text."""
import gzip
import json
import pathlib
import shutil

from galley_test import case, cases, check, every, finish, fixtures, fresh_folder, run

fresh_folder()
expected = json.loads(gzip.decompress((fixtures / 'sample/expect.json.gz').read_bytes()))
TOKENS = expected['tokens']
models = {k: v for k, v in expected['cases'].items() if (fixtures / 'models' / k).exists()}
adapters = {k: v for k, v in expected['cases'].items() if k not in models}
check(len(models) == 32 and len(adapters) == 20 and every(expected['cases'].values()), f'{len(models)} models, {len(adapters)} adapters')


def base_of(name):
    """The folder of an adapter's base model, as tests/python/parity.py finds it."""
    on = fixtures / 'lora' / json.loads((fixtures / 'lora' / name / 'expect.json').read_text()).get('on', name)
    return on / 'base' if (on / 'base').exists() else on


def with_tokenizer(name, folder, kind):
    """A copy of a model's folder, with a tokenizer whose words are ids."""
    path = pathlib.Path(name)
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    for file in folder.iterdir():
        if file.name.startswith(('config', 'model')):
            shutil.copy(file, path)
    (path / 'tokenizer.json').write_text(json.dumps(expected['tokenizers'][kind]))
    return path


def continued(folder, prompt, case_, *words):
    """The ids that are written after a prompt; after nothing, where a prompt is a source."""
    length = ('--length', case_['length'], '--overlong', 'cut') if 'length' in case_ else ()
    out = run('sample', folder, '--prompt', prompt, '--temperature', 0, '--tokens', TOKENS, *length, *words).stdout
    if case_['tokenizer'] != 'end':
        check(out.startswith(prompt), f'{folder}: {prompt!r} is not before {out!r}')
        out = out[len(prompt):]
    return [int(x[1:]) for x in out.split()]


def as_expected(name, folder_of, *words):
    for prompt, what in expected['cases'][name].items():
        ids = continued(folder_of(what['tokenizer']), prompt, what, *words)
        check(ids == what['ids'], f'{name}, {prompt!r}: {ids}, not {what["ids"]}')


@cases(models, turns=2)
def model(name, _):
    as_expected(name, lambda kind: with_tokenizer(name, fixtures / 'models' / name, kind))


@cases(adapters, turns=2)
def adapter(name, _):
    """By itself beside its base model, and merged."""
    base = lambda kind: with_tokenizer(f'{name}-base', base_of(name), kind)
    shutil.copytree(fixtures / 'lora' / name / 'adapter', f'{name}-adapter')
    as_expected(name, lambda kind: base(kind) and f'{name}-adapter', '--base', f'{name}-base')

    run('export', f'{name}-adapter', '--base', f'{name}-base', '--merge', '--out', f'{name}-merged')

    def merged(kind):
        pathlib.Path(f'{name}-merged', 'tokenizer.json').write_text(json.dumps(expected['tokenizers'][kind]))
        return f'{name}-merged'
    as_expected(name, merged)


@case
def padding():
    """By its references, an encoder of 512 positions of which a text has three: hundreds of keys are equal, and rounded as one."""
    folder = with_tokenizer('padding', fixtures / 'models' / 't5-relu-tied', 'end')
    check('are right' in run('sample', folder, '--prompt', 'w5 w9 w33', '--temperature', 0, '--tokens', 4, '--reference').stderr, 'the references')


@case
def what_is_seen():
    """The texts show something: many have several tokens (where head and embedding are tied, a model of random numbers soon repeats one), some are ended by one, and without
    the adapter they are others."""
    texts = [what['ids'] for of in expected['cases'].values() for what in of.values()]
    kinds = [len(set(x)) for x in texts]
    check(len(texts) > 140 and sum(x >= 3 for x in kinds) > 60 and sum(x >= 8 for x in kinds) >= 25, f'{kinds}')
    check(sum(len(x) < TOKENS for x in texts) >= 10, f'{[len(x) for x in texts]}')
    other = 0
    for name in adapters:
        prompt, what = next(iter(adapters[name].items()))
        other += continued(with_tokenizer('bare', base_of(name), what['tokenizer']), prompt, what) != what['ids']
    check(other >= 8, f'{other} texts of {len(adapters)} adapters are others without them')


finish()
