#!/usr/bin/env python3
"""galley check: a plugin's gradient rules and kernels on its ops' own test cases. One fault is planted in each op of a plugin, and one op is right; all that comes with
Galley is right."""
import functools
import json
import pathlib
import re
import shlex
import shutil

from galley_test import binary, case, cases, check, every, finish, fresh_folder, run, turn

fresh_folder()


def checked(folder, *words, code=0):
    r = run('check', folder, '--json', 'check.json', *words, code=code)
    return r, json.loads(pathlib.Path('check.json').read_text())


def of_tests(said, name):
    """What the tests of an op and of its kernels have `name`d: findings, or what they held."""
    out = {}
    for t in said['tests']:
        for first in ('op ', 'kernels of '):
            if t['test'].startswith(first):
                out.setdefault(t['test'].removeprefix(first), []).extend(t[name])
    return out


def wrong(said):
    return {op: found for op, found in of_tests(said, 'findings').items() if found}


@functools.cache
def planted():
    """What is said of a plugin with one fault in each op; its folder is one that the program has never seen."""
    shutil.copytree(binary / 'tests/plugins/wrong-gradients', 'elsewhere')
    return checked('elsewhere', code=4)


GRADIENT = 'On return, the tensor that holds the gradient of each input that needs one'


@case
def ops_with_a_fault():
    found = set(wrong(planted()[1]))
    check(found == {'gate_factor', 'gate_swapped', 'gate_forward', 'gate_kernel_back', 'gate_address', 'gate_rows', 'gate_outside', 'gate_input'}, sorted(found))


@cases({'gate_factor': ({"input 1 ('b')"}, 'off by 9'),  # 10 times as large
        'gate_swapped': ({"input 0 ('a')", "input 1 ('b')"}, 'finite differences'),
        'gate_forward': ({"input 0 ('a')"}, "it hands out the numbers of input 'a'")})
def gradient_rule(op, of):
    operands, word = of
    found = wrong(planted()[1])[op]
    check({f['where'].split(', ')[1] for f in found} == operands, found)
    check(every(GRADIENT in f['rule'] and 'the gradient rule says' in f['sentence'] and f['size'] > 0.1 for f in found), found)
    check(any(word in f['sentence'] for f in found), f'no {word!r} in {found}')


@case
def kernels():
    found = wrong(planted()[1])
    check([f['where'] for f in found['gate_kernel_back']] == ["case 'small', output 1 ('db')"], found['gate_kernel_back'])
    check('all kernels are tested against' in found['gate_kernel_back'][0]['rule'], found['gate_kernel_back'])
    check(any('at other addresses' in f['sentence'] for f in found['gate_address']), found['gate_address'])


@cases({'gate_outside': 'it writes outside of its operands', 'gate_input': "it writes to input 0 ('a')"})
def what_a_kernel_may_write(op, sentence):
    found = wrong(planted()[1])[op]
    check({f['sentence'] for f in found} == {f"kernel '{op}.cpu': {sentence}"} and 'nowhere else' in found[0]['rule'], found)


@case
def roles():
    """A reference that takes the first row of a part for that of the tensor; its gradient is another finding."""
    parts = [f for f in wrong(planted()[1])['gate_rows'] if 'in three parts' in f['sentence']]
    check([f['where'] for f in parts] == ["case 'small', output 0 ('y')"] and 'for all rows at once' in parts[0]['rule'], parts)


@case
def what_is_held():
    _, said = planted()
    held = of_tests(said, 'held')['gate_right']
    check({'gradient of a, b', 'rows in parts', "kernel 'gate_right.cpu'"} <= set(held), held)
    check(said['findings'] == sum(len(t['findings']) for t in said['tests']) > 0 and said['plugin'] == 'wrong-gradients', said)
    check(said['unchecked'] == sum(len(t['unchecked']) for t in said['tests']) > 0, said)


@cases({'op gate_caseless': 'it declares no test cases', 'strategy gate': "'op' of gate is missing", 'op gate_back': 'gradient: there is no gradient rule, and none is needed'})
def unchecked(test, word):
    r, said = planted()
    listed = next(t['unchecked'] for t in said['tests'] if t['test'] == test)
    check(any(word in u for u in listed), f'not in {listed}')
    check(f'not checked: {test}: ' in r.stdout, r.stdout)


@case
def lines():
    r, said = planted()
    out = r.stdout.splitlines()
    check(any(re.fullmatch(r'ok     op gate_right \(\d+\.\d s\): .*gradient of a, b; .*', x) for x in out), r.stdout)
    check(out[-1] == f'{len(said["tests"])} tests, {said["unchecked"]} not checked: {said["findings"]} findings', out[-1])
    check("plugin 'wrong-gradients': op gate_factor, case 'small', input 1 ('b'): the gradient rule says" in r.stderr and GRADIENT in r.stderr, r.stderr)
    again = next(x for x in out if 'once more' in x).split(': ', 1)[1]
    check(again.startswith('galley check elsewhere --only '), again)
    one = run(*shlex.split(again)[1:], code=4)
    check('WRONG' in one.stdout and '1 test, ' in one.stdout and 'once more' not in one.stdout, one.stdout)
    check(again.split("'")[1] in one.stderr and 'it breaks ' in one.stderr, one.stderr)


@case
def another_seed():
    """It draws other numbers, which say the same."""
    found = wrong(planted()[1])
    _, other = checked('elsewhere', '--seed', '7', code=4)
    check({op: len(f) for op, f in wrong(other).items()} == {op: len(f) for op, f in found.items()}, wrong(other))


# What takes long of `models` is left out, and said: more of it in `make test`. Kernels for CUDA run on the emulated GPU.
@cases([x.name for x in sorted((binary / 'plugins').iterdir()) if (x / 'plugin.toml').exists()], turns=12)
def comes_with_galley(name):
    """All that does is right."""
    room = ['--seconds', '20'] if name == 'models' and turn(1) is not None else []
    r, said = checked(binary / 'plugins' / name, *room)
    check(not said['findings'], r.stdout)
    if (binary / 'plugins' / name / f'{name}-cuda-emulated.so').exists():
        check("' on cuda (emulated)" in r.stdout, r.stdout)


@case
def a_test_by_name():
    r = run('check', binary / 'plugins' / 'clip', '--only', 'op clip_factor')
    check('ok     op clip_factor' in r.stdout and '1 test, ' in r.stdout, r.stdout)
    r = run('check', binary / 'plugins' / 'clip', '--only', 'op clip', code=2)
    check("has no test 'op clip'" in r.stderr, r.stderr)


@case
def no_plugin():
    for words, said in ((('nowhere',), 'is no plugin'), (('.',), 'is no plugin'), ((), ''), ((binary / 'plugins' / 'adamw', '--no-such-flag'), 'no-such-flag')):
        r = run('check', *words, code=2)
        check(said in r.stderr and r.stderr.startswith('galley: '), r.stderr)


@case
def broken_manifest():
    pathlib.Path('broken').mkdir()
    pathlib.Path('broken/plugin.toml').write_text('id = "broken"\n')
    r = run('check', 'broken', code=4)
    check('broken/plugin.toml' in r.stderr, r.stderr)


finish()
