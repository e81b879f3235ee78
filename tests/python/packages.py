#!/usr/bin/env python3
# label: all
"""Debian's packages as `make packages` makes them: what is in them, what they depend on, manual pages, and a program that plans and a plugin that builds from where they
are unpacked. That they install on a bare machine, and leave nothing when they are removed, is in CONTRIBUTING.md."""
import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

from galley_test import binary, case, check, every, finish, fresh_folder, skip, source

fresh_folder()
made, root = binary / 'packages', pathlib.Path('root').resolve()


def command(*words, **more):
    r = subprocess.run(list(map(str, words)), capture_output=True, text=True, **more)
    check(r.returncode == 0, f'{words}: {r.stdout[-2000:]}{r.stderr[-2000:]}')
    return r.stdout


lacking = [x for x in ('dpkg-deb', 'dpkg-shlibdeps', 'help2man', 'cpack') if not shutil.which(x)]
if lacking:
    skip('packages', f'{", ".join(lacking)} not here')
    sys.exit(77)
shutil.rmtree(made, ignore_errors=True)
command('cmake', '--build', binary, '--target', 'program', 'man')
command('cpack', cwd=binary)
PACKAGES = {x.name.split('_')[0]: x for x in made.glob('*.deb')}
for package in PACKAGES.values():
    command('dpkg-deb', '-x', package, root)
GALLEY = root / 'usr/bin/galley'


def field(package, name):
    return command('dpkg-deb', '-f', PACKAGES[package], name).strip()


@case
def what_they_say():
    check(set(PACKAGES) == {'galley', 'galley-sdk'}, sorted(PACKAGES))
    version = json.loads(command(GALLEY, '--version', '--json'))['version']
    for package in PACKAGES:
        check(field(package, 'Version') == version and field(package, 'Description').count('\n') >= 2, command('dpkg-deb', '-f', PACKAGES[package]))
    needs = field('galley', 'Depends')
    check(every(x in needs for x in ('libc6', 'libstdc++6', 'libdnnl', 'libspdlog')) and 'cuda' not in needs, needs)
    check(f'galley (= {version})' in field('galley-sdk', 'Depends'), field('galley-sdk', 'Depends'))
    for package in PACKAGES:
        documents = root / 'usr/share/doc' / package
        said = gzip.decompress((documents / 'changelog.gz').read_bytes()).decode()
        check(said.startswith(f'galley ({version}) '), f'the changelog does not begin with {version}: {said[:200]}')
        check('License: Apache-2.0' in (documents / 'copyright').read_text(), f'{package}: its licence')


@case
def what_is_in_them():
    """Files below /usr alone, no path of where it was built, and nothing that both have."""
    listed = {p: {x.split(maxsplit=5)[5] for x in command('dpkg-deb', '-c', file).splitlines() if not x.startswith('d')} for p, file in PACKAGES.items()}
    check(not listed['galley'] & listed['galley-sdk'], listed['galley'] & listed['galley-sdk'])
    check(every(x.startswith('./usr/') for files in listed.values() for x in files), 'files outside of /usr')
    program = ('bin/galley', 'lib/galley/galley', 'lib/galley/plugins/adamw/adamw.so', 'lib/galley/models/families/llama.lua', 'share/man/man1/galley.1.gz',
               'share/man/man1/galley-train.1.gz', 'share/galley/scripts/quickstart.lua', 'share/doc/galley/copyright')
    sdk = ('include/galley/abi.h', 'lib/cmake/galley-sdk/galley-sdk-config.cmake', 'lib/pkgconfig/galley-sdk.pc', 'lib/galley/templates/op/cuda.cu',
           'lib/galley/emulated/cuda-emulated/cuda-emulated.so', 'share/doc/galley-sdk/copyright', 'share/doc/galley/sdk/GUIDE.md', 'share/doc/galley/sdk/LICENSE')
    for package, names in (('galley', program), ('galley-sdk', sdk)):
        for name in names:
            check(any(x.split(' -> ')[0] == f'./usr/{name}' for x in listed[package]), f'{package} has no {name}')
    for file in (x for x in root.rglob('*') if x.is_file() and x.suffix in ('.cmake', '.pc', '.toml', '.map', '.lua')):
        check(str(source) not in file.read_text(), f'{file} names the checkout')


@case
def manual():
    """A page of each command, with its own summary and all of its flags, and the month of the release."""
    released = re.search(r'^ -- .*>  \w+, \d+ (\w+ \d+)', (source / 'sdk/cmake/debian/changelog').read_text(), re.M)[1]
    released = time.strftime('%B %Y', time.strptime(released, '%b %Y'))
    names = re.findall(r'^  galley ([a-z]+) ', command(GALLEY, '--help'), re.M)
    check(len(set(names)) >= 19, names)
    for name in sorted(set(names)):
        text = subprocess.run(['zcat', root / f'usr/share/man/man1/galley-{name}.1.gz'], capture_output=True, text=True).stdout.replace('\\-', '-').replace('\\', '')
        help_ = command(GALLEY, name, '--help')
        flags = re.findall(r'^  (--[a-z-]+)', help_, re.M)
        check(f'galley-{name} - {help_.splitlines()[2].replace("…", "...")}' in text, f'{name}: {text[:600]}')
        check(set(flags) == set(re.findall(r'^fB(--[a-z-]+)fR', text, re.M)), f'{name}: {flags}: {text}')
        check(released in text.splitlines()[1], f'{name}: not of {released}: {text[:200]}')
        check(len(re.findall(r'^\.S[SH] .{40}', text, re.M)) == 0, f'{name}: a sentence is a heading: {text}')


@case
def they_work():
    """From where they are unpacked: a plan, and a plugin of a template that is built against the SDK and checked."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith('GALLEY')} | {'HOME': str(pathlib.Path('home').resolve())}
    found = json.loads(command(GALLEY, '--version', '--json', env=environment))
    check(every(pathlib.Path(found[x]).is_relative_to(root) and pathlib.Path(found[x]).is_dir() for x in ('plugins', 'families', 'targets', 'templates')), found)
    pathlib.Path('text.txt').write_text('some words to learn. ' * 300)
    said = command(GALLEY, 'plan', root / 'usr/share/galley/scripts/quickstart.lua', '--set', 'text=text.txt', env=environment)
    check('adamw' in said, said)
    command(GALLEY, 'plugin', 'new', 'mine', env=environment)
    command('cmake', '-S', 'mine', '-B', 'mine/build', f'-DCMAKE_PREFIX_PATH={root}/usr', env=environment)
    command('cmake', '--build', 'mine/build', env=environment)
    check('nothing found' in command(GALLEY, 'check', 'mine/build/plugins/mine', env=environment), 'galley check')


finish()
