#!/usr/bin/env python3
"""galley check finds single faults: each of tests/faults/faults.toml, planted in a plugin that is right and is built with the installed SDK alone, with the sentence that
it breaks. A commit plants one of them, `make test-all` all."""
import json
import pathlib
import re
import shutil
import tomllib

import galley_test
from galley_test import case, cases, check, finish, fresh_folder, source
from sdk_kit import command, install, outside

fresh_folder()
faults = {f['name']: f for f in tomllib.loads((source / 'tests/faults/faults.toml').read_text())['fault']}
KINDS = {'manifest', 'interface', 'op', 'kernel', 'format', 'source', 'listener', 'training'}


def text_of(file):
    """A header's or a page's text on one line, without what begins the lines of a comment."""
    return re.sub(r'\s+', ' ', re.sub(r'\n\s*\*? ?', ' ', (source / file).read_text()))


def sentences(f):
    """What a finding may cite, as files and words."""
    return [f[key] for key in ('breaks', 'too') if key in f]


@case
def the_list():
    """Each fault can be planted, and cites what stands where it says."""
    check(len(faults) >= 60 and {f['kind'] for f in faults.values()} == KINDS, f'{len(faults)} faults of {sorted({f["kind"] for f in faults.values()})}')
    for f in faults.values():
        for file, before, _ in f['edits']:
            count = (source / f['plugin'] / file).read_text().count(before)
            check(count == 1, f'{f["name"]}: {count} times in {f["plugin"]}/{file}: {before!r}')
        for file, words in sentences(f):
            check(words in text_of(file), f'{f["name"]}: {file} does not say {words!r}')


def built(name, plugin, edits=()):
    """Where the plugin lies, with these edits."""
    install()
    folder = outside / name
    shutil.copytree(source / plugin, folder)
    for file, before, after in edits:
        (folder / file).write_text((folder / file).read_text().replace(before, after))
    if not (folder / 'CMakeLists.txt').exists():
        (folder / 'CMakeLists.txt').write_text(f'cmake_minimum_required(VERSION 3.25)\nproject({name} LANGUAGES CXX)\nfind_package(galley-sdk REQUIRED)\n'
                                               'galley_add_plugin(MANIFEST plugin.toml SOURCES plugin.cpp)\n')
    command('cmake', '-S', folder, '-B', folder / 'build', f'-DCMAKE_PREFIX_PATH={outside / "prefix"}', '-DCMAKE_BUILD_TYPE=Debug', '-DCMAKE_CXX_FLAGS_DEBUG=-O0')
    command('cmake', '--build', folder / 'build')
    return next((folder / 'build' / 'plugins').iterdir())


def findings(where, code):
    ended = galley_test.galley('check', where, '--json', f'{where.parent.parent.parent.name}.json', timeout=600)
    check(ended.returncode == code, f'not exit code {code}, but {ended}')
    said = json.loads(pathlib.Path(f'{where.parent.parent.parent.name}.json').read_text())
    return [(t['test'], f) for t in said['tests'] for f in t['findings']], said


@cases({name: f for name, f in faults.items() if 'unseen' not in f}, turns=120)
def found(name, f):
    listed, _ = findings(built(name, f['plugin'], f['edits']), 4)
    check(any(words in x['rule'] and pathlib.Path(file).name in x['rule'] for _, x in listed for file, words in sentences(f)),
          f'{f["what"]}: nothing cites {sentences(f)}: ' + '; '.join(f'{t}: {x["sentence"]} ({x["rule"]})' for t, x in listed))


@cases(sorted({f['plugin'] for f in faults.values()}), turns=32)
def without_a_fault(plugin):
    """No false alarm in the plugins as they are."""
    listed, said = findings(built('good-' + pathlib.Path(plugin).name, plugin), 0)
    check(not listed and sum(len(t['held']) for t in said['tests']) > 5, f'{plugin}: {listed}')


finish()
