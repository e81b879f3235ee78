#!/usr/bin/env python3
"""galley check: a plugin's gradient rules and kernels on its ops' own test cases. One fault is planted in each op of a plugin, and one op is right; all that comes with
Galley is right."""
import json
import pathlib
import shutil

from galley_test import binary, check, every, finish, fresh_folder, run

fresh_folder()


def checked(folder, *words, code=0):
    r = run('check', folder, '--json', 'check.json', *words, code=code)
    return r, json.loads(pathlib.Path('check.json').read_text())


def wrong(said):
    return {c['op']: c['findings'] for c in said['cases'] if c['findings']}


# ---- One fault in each op; the folder is one that the program has never seen
shutil.copytree(binary / 'tests/plugins/wrong-gradients', 'elsewhere')
r, said = checked('elsewhere', code=4)
found = wrong(said)
check(set(found) == {'gate_factor', 'gate_swapped', 'gate_forward', 'gate_kernel_back', 'gate_address'}, sorted(found))
gradient = 'On return, the tensor that holds the gradient of each input that needs one.'
for op, operands, words in (
        ('gate_factor', {"input 1 ('b')"}, ['off by 9']),  # 10 times as large
        ('gate_swapped', {"input 0 ('a')", "input 1 ('b')"}, ['finite differences']),
        ('gate_forward', {"input 0 ('a')"}, ["it hands out the numbers of input 'a'"])):
    check({f['operand'] for f in found[op]} == operands, found[op])
    check(every(gradient in f['rule'] and 'the gradient rule says' in f['sentence'] and f['size'] > 0.1 for f in found[op]), found[op])
    for word in words:
        check(any(word in f['sentence'] for f in found[op]), f'{op}: no {word!r} in {found[op]}')
check([f['operand'] for f in found['gate_kernel_back']] == ["output 1 ('db')"], found['gate_kernel_back'])
check('all kernels are tested against' in found['gate_kernel_back'][0]['rule'], found['gate_kernel_back'])
check(any('at other addresses' in f['sentence'] for f in found['gate_address']), found['gate_address'])
held = {(c['op'], c['case']): c['held'] for c in said['cases']}
check(held['gate_right', 'small'] == ['gradient of a, b', "kernel 'gate_right.cpu'"], held)
check(said['findings'] == sum(len(f) for c in said['cases'] for f in [c['findings']]) and said['plugin'] == 'wrong-gradients', said)
for word in ("op 'gate_caseless': it declares no test cases", "gradients of ops 'gate_back', 'gate_factor_back', 'gate_kernel_back': there is no gradient rule", "strategies 'gate'"):
    check(any(word in u for u in said['unchecked']), f'no {word!r} in {said["unchecked"]}')
    check('not checked: ' + word in r.stdout, r.stdout)
lines = r.stdout.splitlines()
check("ok     gate_right, small: gradient of a, b; kernel 'gate_right.cpu'" in lines, r.stdout)
check(lines[-1].startswith('8 ops, 13 cases: ') and lines[-1].endswith(f'{said["findings"]} findings'), lines[-1])
check("plugin 'wrong-gradients': op 'gate_factor', case 'small', input 1 ('b'): the gradient rule says" in r.stderr and gradient in r.stderr, r.stderr)

# ---- Another seed draws other numbers, which say the same
_, other = checked('elsewhere', '--seed', '7', code=4)
check({op: len(f) for op, f in wrong(other).items()} == {op: len(f) for op, f in found.items()}, wrong(other))

# ---- What comes with Galley is right
for folder in sorted((binary / 'plugins').iterdir()):
    if folder.name == 'models' or not (folder / 'plugin.toml').exists():  # tests/models does the same with each case of it
        continue
    r, said = checked(folder)
    check(not said['findings'], f'{folder.name}: {r.stdout}')

# ---- What is no plugin
for words, said in ((('nowhere',), 'is no plugin'), (('.',), 'is no plugin'), ((), ''), (('elsewhere', '--no-such-flag'), '')):
    r = run('check', *words, code=2)
    check(said in r.stderr, r.stderr)
pathlib.Path('broken').mkdir()
pathlib.Path('broken/plugin.toml').write_text('id = "broken"\n')
r = run('check', 'broken', code=4)
check('broken/plugin.toml' in r.stderr, r.stderr)
finish()
