#!/usr/bin/env python3
"""Flags and environment variables that no other test has: of compare, fit, certify, data and sample."""
import json
import os
import pathlib
import subprocess

from galley_test import binary, case, check, every, finish, fresh_folder, program, run

fresh_folder()
pathlib.Path('text.txt').write_text('\n\n'.join(f'document number {i} of many' for i in range(20)))
outside = pathlib.Path('outside.txt').resolve()
outside.write_text('what lies beside the recipe. ' * 20)
pathlib.Path('recipes').mkdir()
TEXT = '''return recipe { model = model { family = "gpt2", config = { vocab_size = 256, n_positions = 32, n_embd = 16, n_layer = 2, n_head = 2 } },
  data = data.text { files = { FILE }, tokenizer = "bytes", validation = 0.2 }, batch = BATCH, length = 32, steps = 4, seed = 1, use "adamw" { lr = RATE } }'''


def written(name, rate='1e-3', file='"text.txt"', batch='2'):
    path = pathlib.Path(name)
    path.write_text(TEXT.replace('RATE', rate).replace('FILE', file).replace('BATCH', batch))
    return path


one, two = written('one.lua'), written('two.lua', '2e-3')
choice = written('choice.lua', batch='one_of { 4, 2, 1 }')
beside = written('recipes/beside.lua', file='"../outside.txt"')
discrete = ('--device', 'discrete', '--plugin-path', binary / 'tests' / 'plugins' / 'discrete')


def refused(*words, code, parts):
    said = run(*words, code=code).stderr
    check(every(x in said for x in parts), f'{words}: {parts} are not all in: {said}')


@case
def compare():
    refused('compare', one, two, '--out', 'none', '--seeds', '1,2', '--memory', '100KiB', code=3, parts=["arm 'one'", '--memory has 100.00 KiB'])
    refused('compare', one, two, '--out', 'none', '--seeds', '1,2', '--target', 'rtx4090', code=2, parts=["'cuda'", "'cpu'"])
    refused('compare', beside, one, '--out', 'none', '--seeds', '1,2', '--confine', code=2, parts=['outside.txt'])
    check(not pathlib.Path('none').exists(), 'a comparison that was refused has left a folder')
    run('compare', one, two, '--out', 'here', '--seeds', '1,2')
    run('compare', one, two, '--out', 'there', '--seeds', '1,2', *discrete)
    classes = [json.loads(next(pathlib.Path(x).rglob('memory.json')).read_text())['classes'] for x in ('here', 'there')]
    run('compare', one, two, '--out', 'confined', '--seeds', '1', '--turns', '2', '--confine')
    records = [x.read_text() for x in (*pathlib.Path('confined').rglob('run.toml'), *pathlib.Path('here').rglob('run.toml'))]
    check([x.count('\nconfined = true\n') for x in records] == 3 * [1] + 6 * [0], 'runs are not confined as the comparison is')
    check(len(classes[0]) == 1 and len(classes[1]) > 1, f'--device discrete has more memories than the processor: {[sorted(x) for x in classes]}')


@case
def fit():
    refused('fit', choice, code=2, parts=['--memory BYTES is missing'])
    refused('fit', choice, '--memory', '100KiB', '--write', 'none.lua', code=3, parts=['100.00 KiB', 'wrote nothing'])
    check(not pathlib.Path('none.lua').exists(), 'a recipe is written where nothing fits')
    refused('fit', beside, '--memory', '1GiB', '--confine', code=2, parts=['outside.txt'])
    made = {}
    for name, words in (('here', ()), ('gpu', ('--target', 'rtx4090', '--device', 'cuda'))):
        run('fit', choice, '--memory', '1GiB', '--write', f'{name}.lua', *words)
        made[name] = pathlib.Path(f'{name}.lua').read_text()
        check('one_of' not in made[name], f'{name}: {made[name]}')
    run('fit', choice, '--memory', '1GiB', *discrete)


@case
def certify():
    said = {}
    for flag in ('--references', '--no-references'):
        run('certify', one, flag, '--json', 'said.json')
        said[flag] = json.loads(pathlib.Path('said.json').read_text())
    check(said['--references']['reference_outputs'] > 100 and said['--no-references']['reference_outputs'] == 0, f'{[x["reference_outputs"] for x in said.values()]}')
    check('--no-references' in said['--no-references']['strategies'][0]['sentence'], f'{said["--no-references"]["strategies"]}')


@case
def data():
    """Rows of the text that is held out, and the others, are all of it once."""
    shown = {}
    for words in ((), ('--validation',)):
        lines = [json.loads(x) for x in run('data', one, '--json', '--rows', 100, *words).stdout.splitlines()]
        shown[words] = bytes(i for x in lines for i in x.get('input_ids', []) if isinstance(i, int) and 0 < i < 256).decode()
        check(len(shown[words]) > 20, f'{words}: {lines[:2]}')
    train, held = ({x for x in range(20) if f'number {x} of' in text} for text in shown.values())
    check(held and train and not train & held and {18} <= held, f'held out: {sorted(held)}, of training: {sorted(train)}')


@case
def caches():
    """Where prepared data goes: GALLEY_CACHE, or else XDG_CACHE_HOME, or else HOME."""
    for name, variables, folder in (('galley', dict(GALLEY_CACHE='a', XDG_CACHE_HOME='b', HOME='c'), 'a'), ('xdg', dict(XDG_CACHE_HOME='b', HOME='c'), 'b/galley'),
                                    ('home', dict(HOME='c'), 'c/.cache/galley')):
        home = pathlib.Path(f'caches-{name}').resolve()
        home.mkdir()
        environment = {k: v for k, v in os.environ.items() if k not in ('GALLEY_CACHE', 'XDG_CACHE_HOME', 'HOME')}
        environment.update({k: str(home / v) for k, v in variables.items()})
        r = subprocess.run([program, 'data', str(one)], capture_output=True, text=True, env=environment, timeout=100)
        check(r.returncode == 0, r.stderr)
        files = {str(x.relative_to(home)) for x in home.rglob('*') if x.is_file()}
        check(every(x.startswith(folder + '/') for x in files), f'{name}: {sorted(files)}')


@case
def version():
    said = json.loads(run('--version', '--json').stdout)
    check(run('--version').stdout == f'galley {said["version"]}\n' and said['abi'] == '0.4', said)
    check(every((pathlib.Path(said[x])).is_dir() for x in ('plugins', 'families', 'targets', 'templates')), said)
    refused('--version', '--yaml', code=2, parts=["galley --version takes no '--yaml'", 'galley --version --json'])
    refused('--version', '--json', 'x', code=2, parts=["galley --version takes no 'x'"])


@case
def sample():
    run('train', one, '--out', 'run')
    draw = lambda *words: run('sample', 'run', '--prompt', 'document', '--tokens', 12, *words).stdout
    greedy = draw('--temperature', 0)
    check(draw('--top-k', 1) == greedy and draw('--top-k', 1, '--seed', 7) == greedy, 'the most probable token is what --temperature 0 takes')
    check(draw('--top-k', 0, '--top-p', 1e-6) == greedy, 'the smallest set of tokens is the most probable one')
    some = {draw('--top-k', 0, '--temperature', 2, '--seed', seed) for seed in range(1, 6)}
    check(len(some) > 1 and draw('--top-k', 0, '--temperature', 2, '--seed', 3) in some, f'five seeds draw {len(some)} texts')


finish()
