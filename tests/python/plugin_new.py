#!/usr/bin/env python3
"""galley plugin new: what it writes of each template has the plugin's own names, builds with the installed SDK alone, passes galley check, and trains, which is a part of that."""
import pathlib

from galley_test import case, cases, check, finish, fresh_folder, run, source
from sdk_kit import command, install, outside

fresh_folder()
KINDS = {x.name: next(y.split('"')[1] for y in (x / 'plugin.toml').read_text().splitlines() if y.startswith('id')) for x in sorted((source / 'sdk/templates').iterdir())}


def begun(kind):
    """A new plugin's folder."""
    said = run('plugin', 'new', f'my-{kind}', '--kind', kind, '--out', outside / f'my-{kind}').stdout
    check(f'galley check build/plugins/my-{kind}' in said, said)
    return outside / f'my-{kind}'


@cases(KINDS)
def its_own_names(kind, id):
    """Nothing of the template's name is left where a plugin's name is meant, and no file is missing."""
    folder = pathlib.Path(f'names-{kind}')
    run('plugin', 'new', f'own-{kind}', '--kind', kind, '--out', folder)
    template = source / 'sdk/templates' / kind
    check({x.name for x in folder.iterdir()} == {x.name for x in template.iterdir()}, sorted(folder.iterdir()))
    for file in folder.iterdir():
        text, before = file.read_text(), (template / file.name).read_text()
        check(f'"{id}"' not in text.replace(f'\\"{id}\\"', ''), f'{file}: "{id}" is left')
        check(text.count('\n') == before.count('\n'), f'{file}: {text.count(chr(10))} lines')
    check(kind != 'source' or 'data.own_source {' in (folder / 'example.lua').read_text(), 'recipes cannot write the name of the kind of data')
    check(f'id = "own-{kind}"' in (folder / 'plugin.toml').read_text(), (folder / 'plugin.toml').read_text())


@cases(KINDS, turns=8)
def builds_and_passes(kind, _):
    install()
    folder = begun(kind)
    command('cmake', '-S', folder, '-B', folder / 'build', f'-DCMAKE_PREFIX_PATH={outside / "prefix"}', '-DCMAKE_BUILD_TYPE=Debug', '-DCMAKE_CXX_FLAGS_DEBUG=-O0')
    command('cmake', '--build', folder / 'build', '--parallel', '2')
    said = run('check', folder / 'build' / 'plugins' / f'my-{kind}').stdout
    check('nothing found' in said and ('four steps, as planned' in said or kind == 'source'), said)


@case
def refusals():
    for words, code, said, hint in ((('new', 'x', '--kind', 'optimiser'), 2, "galley plugin new: there is no kind 'optimiser'", 'kinds are optimizer, adapter'),
                                    (('new', 'Mine'), 2, "'Mine' is no name for a plugin", 'lower-case letters'), (('new',), 2, "the plugin's name is missing", 'usage: galley plugin new NAME'),
                                    (('old', 'x'), 2, "there is no 'old'", 'usage'), (('new', 'x', '--out', '.'), 2, 'is there already', 'give another --out')):
        r = run('plugin', *words, code=code)
        check(said in r.stderr and hint in r.stderr, f'{words}: {r.stderr}')
    check(not pathlib.Path('x').exists(), 'something was written')


finish()
