#!/usr/bin/env python3
"""Each folder of tests/fixtures can be made again: its README.md names a generator that is there, which compiles, and which can check what is recorded."""
import re
import subprocess

from galley_test import case, cases, check, every, finish, fixtures, require, source

# Of the files that git has, so that what lies about is no fixture.
WRITTEN = {'configs': 'what_goes_in.py'}  # by hand: no library makes them, and this script reads them
listed = subprocess.run(['git', '-C', source, 'ls-files', 'tests/fixtures'], capture_output=True, text=True).stdout.split()
files = [source / x for x in listed] or [x for x in fixtures.rglob('*') if x.is_file()]  # an archive has no git
folders = sorted({x.relative_to(fixtures).parts[0] for x in files if len(x.relative_to(fixtures).parts) > 1})


@cases(folders)
def folder(name):
    readme = fixtures / name / 'README.md'
    require(readme.exists(), f'{readme} is missing: what lies here, from which versions, by which command, and what is compared')
    text = readme.read_text()
    if name in WRITTEN:
        check(WRITTEN[name] in text and 'by hand' in text.replace('\n', ' '), f'{readme} does not say who wrote the files, and which script reads them')
        return
    generators = sorted({x.rstrip('.') for x in re.findall(r'(?:tests/\S+/)?\bmake[\w-]*\.py', text)})
    require(generators, f'{readme} names no generator (make.py)')
    for generator in generators:
        path = source / generator if '/' in generator else fixtures / name / generator
        if not check(path.exists(), f'{readme} names {generator}, which is not there'):
            continue
        check(path.stat().st_mode & 0o111, f'{path} is not executable')
        script = path.read_text()
        compile(script, str(path), 'exec')
        check('--check' in (script.split('"""') + [''])[1], f'{path} does not say in its first lines how to check what is recorded')
    check('--check' in text, f'{readme} does not say how to check what is recorded')
    check(re.search(r'\d+\.\d+', text), f'{readme} names no version of what made the files')


@case
def nothing_lies_outside():
    """What no generator's folder has, nobody can make again."""
    outside = [x.name for x in files if x.parent == fixtures]
    check(every(x.endswith('_kit.py') for x in outside), f'{outside} lie in no folder')
    check(len(folders) >= 12, f'only {folders} were looked at')


finish()
