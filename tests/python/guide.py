#!/usr/bin/env python3
"""sdk/GUIDE.md and docs/families.md: what they show is typed and built here, and pieces of other files are in these files."""
import os
import pathlib
import re
import shutil
import subprocess

from galley_test import binary, case, check, finish, fresh_folder, source, take_turns
from sdk_kit import command, outside

fresh_folder()
GUIDE = source / 'sdk/GUIDE.md'
HOME, INSTALLED = outside / 'home', 'GALLEY_INSTALLED' in os.environ


def blocks(page):
    """(language, name, text) of each block; name: "" if there is none."""
    found = re.findall(r'^```(\w+) ?(.*)\n((?:.*\n)*?)```$', page.read_text(), re.M)
    check(found and page.read_text().count('\n```') == 2 * len(found), f'{page.name}: {len(found)} blocks')
    return found


def install_all():
    """The program and the SDK, as the guide's first step installs them; GALLEY_INSTALLED: they come of Debian's packages (tests/packages/bare)."""
    for component in () if INSTALLED else ('program', 'sdk'):
        command('cmake', '--install', binary, '--component', component, '--prefix', HOME / 'galley')


def script():
    """The guide as a script of bash, beside which its files lie; after block i, i.rc is there."""
    lines = ['set -e', f'at={pathlib.Path.cwd()}', f'cd {outside}']
    for i, (language, name, text) in enumerate(blocks(GUIDE)):
        if name == 'checkout':
            text = '' if INSTALLED else text[text.index('export'):]  # what comes before is install_all
        if language == 'sh':
            pathlib.Path(f'{i}.sh').write_text(text)
            lines += [f'{"set +e" if name == "fails" else "set -e"}', f'source $at/{i}.sh > $at/{i}.out 2>&1', f'echo $? > $at/{i}.rc', 'set -e']
        elif language != 'text' and '/' not in name:
            pathlib.Path(f'{i}.file').write_text(text)
            lines.append(f'cp $at/{i}.file {name}')
    pathlib.Path('guide.sh').write_text('\n'.join([*lines, '']))


def like(line):
    """A pattern for a line of output: numbers may be others, and "…" is anything."""
    return ''.join('.*' if piece == '…' else r'[0-9.]+' if re.fullmatch(r'[0-9]+(\.[0-9]+)?', piece) else re.escape(piece)
                   for piece in re.split(r'(…|(?<![\w-])[0-9]+(?:\.[0-9]+)?(?![\w-]))', line))


@case
def guide():
    """All that the guide says, from the template to the archive."""
    install_all()
    HOME.mkdir(exist_ok=True)
    script()
    environment = {k: v for k, v in os.environ.items() if k not in ('CFLAGS', 'CXXFLAGS', 'CMAKE_GENERATOR', 'GALLEY_PLUGIN_PATH')}
    r = subprocess.run(['bash', 'guide.sh'], env=dict(environment, HOME=str(HOME), CMAKE_BUILD_PARALLEL_LEVEL='2'), capture_output=True, text=True)
    said = ''
    for i, (language, name, text) in enumerate(blocks(GUIDE)):
        if language == 'sh':
            out, rc = pathlib.Path(f'{i}.out'), pathlib.Path(f'{i}.rc')
            said = out.read_text() if out.exists() else ''
            check(rc.exists(), f'the guide stops at:\n{text}{said[-3000:]}{r.stderr}')
            check(rc.read_text().strip() == ('4' if name == 'fails' else '0'), f'{text}exit code {rc.read_text()}{said[-3000:]}')
        elif language == 'text':
            for line in text.splitlines():
                check(re.search(f'^{like(line)}$', said, re.M), f'the guide shows\n{line}\nand the program says\n{said[-4000:]}')
    check(r.returncode == 0, r.stderr)


take_turns(['guide'], 4)


@case
def pieces():
    """Pieces of other files are in them, in this order."""
    n = 0
    for page, root in ((GUIDE, source / 'sdk'), (source / 'docs/families.md', source)):
        for _, name, text in blocks(page):
            if '/' not in name:
                continue
            whole, at = (root / name).read_text(), 0
            for piece in re.split(r'^…\n', text, flags=re.M):
                check(piece in whole[at:], f'{page.name}: {name} has no\n{piece}')
                at, n = whole.index(piece, at) + len(piece), n + 1
    check(n >= 20, f'{n} pieces')
    for kind in ('optimizer', 'op', 'format', 'source'):
        check(f'--kind {kind}' in GUIDE.read_text(), kind)


@case
def family():
    """The family of docs/families.md trains where Galley is installed."""
    install_all()
    whole = next(text for _, name, text in blocks(source / 'docs/families.md') if name == 'mine.lua')
    (HOME / 'galley/lib/galley/models/families/mine.lua').write_text(whole)
    pathlib.Path('r.lua').write_text('''return recipe {
  model = model { family = "mine", config = { hidden_size = 32, vocab_size = 256, num_hidden_layers = 2, max_position_embeddings = 32 } },
  data = data.text { files = { "r.lua" }, tokenizer = "bytes" }, batch = 2, length = 16, steps = 3, use "adamw" { lr = 1e-2 }, use "recompute" {} }
''')
    galley = HOME / 'galley/bin/galley'
    command(galley, 'train', 'r.lua', '--out', 'run', '--reference')
    check('MineForCausalLM' in pathlib.Path('run/model/config.json').read_text(), pathlib.Path('run/model/config.json').read_text())
    shutil.rmtree(HOME)


finish()
