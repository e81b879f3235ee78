#!/usr/bin/env python3
"""The ops that come with Galley, but for private ones, are contracts: sdk/contracts.json records their operands, roles, flags and attributes, and
galley/cpp/known.hpp what kernels of this SDK know of them. `contracts.py --update` records both again. And sdk/compare.py says what a change of headers or
contracts breaks."""
import json
import pathlib
import re
import shutil
import subprocess
import sys

from galley_test import case, cases, check, finish, fresh_folder, run, source

record = source / 'sdk' / 'contracts.json'
header = source / 'sdk' / 'include' / 'galley' / 'cpp' / 'known.hpp'


def bare(x):
    """Without sentences, which may change."""
    if isinstance(x, dict):
        return {k: bare(v) for k, v in x.items() if k != 'summary'}
    return [bare(v) for v in x] if isinstance(x, list) else x


def contracts():
    """{op: what it is} of those that are not private, as the program says."""
    ops = [op for plugin in json.loads(run('plugins', '--json').stdout) for op in plugin['ops']]
    check(sum('private' in op['flags'] for op in ops) >= 20, 'ops of the host are private')
    return {op['name']: bare({k: v for k, v in op.items() if k != 'name'}) for op in ops if 'private' not in op['flags']}


def table(now):
    """The rows of known.hpp."""
    def row(name, op):
        attributes = ' '.join(a['name'] for a in op['attributes'])
        return f'    {{"{name}", {len(op["inputs"])}, {len(op["outputs"])}, "{attributes}"}},\n'
    return ''.join(row(name, op) for name, op in sorted(now.items()))


fresh_folder()


@case
def recorded():
    now = contracts()
    lines = [f'{json.dumps(name)}: {json.dumps(contract, sort_keys=True)}' for name, contract in sorted(now.items())]
    text = '{\n' + ',\n'.join(lines) + '\n}\n'
    before, after = header.read_text().split('kPublicOps[] = {\n')
    known = before + 'kPublicOps[] = {\n' + table(now) + after[after.index('};\n'):]
    if '--update' in sys.argv:
        record.write_text(text)
        header.write_text(known)
    check(header.read_text() == known, 'galley/cpp/known.hpp says something else than the ops are: `tests/python/contracts.py --update`')
    check(record.read_text() == text,
          'sdk/contracts.json records something else than the ops are: `tests/python/contracts.py --update`, and look at what sdk/compare.py says')
    check({'linear', 'adamw_step', 'attention'} <= set(now), f'ops: {sorted(now)}')
    check(now['linear']['attributes'][0] == {'name': 'transposed', 'type': 'I64', 'required': False, 'default': '0'}, f'linear: {now["linear"]}')


# ---- What sdk/compare.py says of a change --------------------------------------------------------------------------------------------------


def copy(name):
    shutil.copytree(source / 'sdk' / 'include', f'{name}/include')
    shutil.copy(record, f'{name}/contracts.json')


def compared(name):
    """What the script says of the SDK and that of a folder."""
    if not pathlib.Path('before').exists():
        copy('before')
    return subprocess.run([source / 'sdk' / 'compare.py', 'before', name], capture_output=True, text=True)


def compare(name, edits=(), change=None):
    """Compares the SDK with a copy of it in which files are edited."""
    copy(name)
    for file, before, after in edits:
        path = pathlib.Path(name) / 'include' / 'galley' / file
        old = path.read_text()
        check(before in old, f'{name}: {file} has no {before!r}')
        path.write_text(old.replace(before, after, 1))
    if change:
        path = pathlib.Path(name) / 'contracts.json'
        ops = json.loads(path.read_text())
        change(ops)
        path.write_text(json.dumps(ops))
    return compared(name)


def drop_input(ops):
    del ops['linear']['inputs'][2]


def rename_input(ops):
    ops['linear']['inputs'][1]['name'] = 'weight'


def add_required(ops):
    ops['linear']['attributes'].append({'name': 'groups', 'type': 'I64', 'required': True, 'default': None})


def change_default(ops):
    ops['adamw_step']['attributes'][0]['default'] = '0.8'


def grow(ops):
    ops['linear/2'] = ops['linear']
    ops['linear']['attributes'].append({'name': 'groups', 'type': 'I64', 'required': False, 'default': '1'})
    ops['linear']['inputs'].append({'name': 'scale', 'role': 'whole', 'flags': ['optional']})


BROKEN = {
    'field-gone': ('galley_rewrite.phase: the field is gone', [('rewrite.h', '  uint32_t phase; ', '  uint32_t stage; ')], None),
    'field-moved': ('galley_claim.flags: was at byte 16, is at 24', [('claim.h', 'galley_claim_call*, galley_error*);\n  uint64_t flags; ', 'galley_claim_call*, galley_error*);\n  uint64_t more;\n  uint64_t flags; ')], None),
    'type': ('galley_cost.flops: was double, is uint64_t', [('op.h', 'double flops;', 'uint64_t flops;')], None),
    'function': ('galley_model_verbs.replace: was galley_status (*)',
                 [('rewrite.h', 'galley_tensor from, galley_tensor to, galley_error*);', 'galley_tensor from, galley_error*);')], None),
    'number': ('GALLEY_STAGE_STEP: was', [('update.h', '#define GALLEY_STAGE_STEP ', '#define GALLEY_STAGE_STEP 1')], None),
    'op-gone': ('linear: the op is gone', [], lambda ops: ops.pop('linear')),
    'input-gone': ('linear: input bias is gone', [], drop_input),
    'input-name': ('linear: input 1 was', [], rename_input),
    'required': ('linear: attribute groups is new and required', [], add_required),
    'default': ('adamw_step: attribute beta1 was', [], change_default),
}


@case
def same():
    r = compare('same')
    check(r.returncode == 0 and r.stdout == '0 breaks what was built before\n0 new\n', f'{r}')


@cases(BROKEN)
def breaks(name, of):
    said, edits, change = of
    r = compare(name, edits, change)
    check(r.returncode == 1 and said in r.stdout and r.stdout.startswith('1 breaks'), f'{r.returncode} {r.stdout}{r.stderr}')


@case
def grown():
    r = compare('grown', [('rewrite.h', '  uint32_t reserved;\n', '  uint32_t reserved;\n  uint64_t more;\n')], grow)
    check(r.returncode == 0 and '4 new' in r.stdout, f'{r.stdout}{r.stderr}')


# ---- The draft that is recorded, as if it were frozen ----------------------------------------------------------------------------------------


def unexplained(draft, new, changes):
    """What breaks with the recorded draft and has no row with a reason in CHANGES.md; and rows of what does not."""
    r = subprocess.run([source / 'sdk' / 'compare.py', draft, new], capture_output=True, text=True)
    check(r.returncode in (0, 1), f'{r}')
    broken = re.findall(r'^  (.*)$', r.stdout.split(' new\n')[0], re.M)
    section = changes.split('\n## What breaks with the recorded draft\n')[1].split('\n## ')[0]
    rows = dict(re.findall(r'^\| `(.*?)` \| (.{20,}) \|$', section, re.M))
    return [x for x in broken if x not in rows] + [x for x in rows if x not in broken]


DRAFT, CHANGES = source / 'sdk' / 'draft.json', (source / 'sdk' / 'CHANGES.md').read_text()


@case
def frozen():
    new = unexplained(DRAFT, source / 'sdk', CHANGES)
    check(not new, f'a plugin of the recorded draft breaks, and sdk/CHANGES.md has no row that says why (or one too many): {new}')
    minor = re.search(r'#define GALLEY_ABI_MINOR (\S+)', (source / 'sdk/include/galley/abi.h').read_text())[1]
    recorded = json.loads(DRAFT.read_text())['macros']['GALLEY_ABI_MINOR']
    check(recorded == minor, 'another draft: sdk/compare.py --record sdk sdk/draft.json, and an empty table in CHANGES.md')


@case
def frozen_and_changed():
    """A break is told unless a row says why, and a row without a break is."""
    copy('changed')
    path = pathlib.Path('changed/include/galley/rewrite.h')
    path.write_text(path.read_text().replace('  uint32_t phase; ', '  uint32_t stage; ', 1))
    line = 'galley_rewrite.phase: the field is gone'
    check(unexplained(DRAFT, 'changed', CHANGES) == [line], 'a break')
    row = f'| `{line}` | it was never read by anybody, in any version |\n'
    with_row = CHANGES.replace('| break | why |\n|---|---|\n', '| break | why |\n|---|---|\n' + row)
    check(unexplained(DRAFT, 'changed', with_row) == [], 'a break with its reason')
    check(unexplained(DRAFT, source / 'sdk', with_row) == [line], 'a row of what does not break')
    check(unexplained(DRAFT, 'changed', with_row.replace('it was never read by anybody, in any version', '')) == [line], 'a row without a reason')


@case
def no_sdk():
    r = compared('nowhere')
    check(r.returncode == 2 and 'nowhere: has neither include/galley' in r.stderr, f'{r}')


finish()
