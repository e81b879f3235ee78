#!/usr/bin/env python3
"""Plugins of earlier and later versions: one plugin, which fills and reads every struct of the ABI, is built against headers whose structs have a field less, only
the fields of the minimum, and a field more. Each must load, train and give the same bytes. Structs below the minimum, of another revision and of another
draft are refused by name."""
import functools
import os
import re
import shutil
import struct
import subprocess
import sys

from galley_test import case, cases, check, every, finish, fresh_folder, from_config, recipe, run, source, train, use
from steps_kit import refused

fresh_folder()
include = source / 'sdk' / 'include' / 'galley'
STRUCT = re.compile(r'typedef struct (galley_\w+) \{\n(.*?)\n\} \1;\n(?:#define GALLEY_\w+_MIN_SIZE (\d+)u)?', re.S)
WIDTHS = {'uint32_t': 4, 'int32_t': 4, 'galley_status': 4}


def fields(body):
    """(text, bytes) of each field, comments left out."""
    out = []
    for text in re.sub(r'/\*.*?\*/', '', body, flags=re.S).replace('\\\n', '').split(';'):
        text = ' '.join(text.split())
        if not text:
            continue
        array = re.search(r'\[(\d+)\]$', text)
        kind = text.split()[0]
        width = 8 if '*' in text else 1 if kind == 'char' else WIDTHS.get(kind, 8)
        out.append((text, width * int(array.group(1)) if array else width))
    return out


def altered(name, change):
    """A copy of the headers with every struct changed by change(fields, least) → fields."""
    folder = f'{name}/include/galley'
    os.makedirs(folder)
    structs = []

    def rewrite(match):
        struct, body, least = match.groups()
        if struct == 'galley_philox_block':
            return match.group(0)
        check(least, f'{struct} has no GALLEY_…_MIN_SIZE after it')
        structs.append(struct)
        kept = change(fields(body), int(least or 0))
        text = f'typedef struct {struct} {{\n' + ''.join(f'  {x};\n' for x, _ in kept) + f'}} {struct};\n'
        return text + match.group(0)[match.group(0).index(f'}} {struct};\n') + len(struct) + 4:]

    for header in sorted(include.glob('*.h')):
        with open(f'{folder}/{header.name}', 'w') as f:
            f.write(STRUCT.sub(rewrite, header.read_text()))
    return structs


def less(of, least):
    return of[:-1] if sum(n for _, n in of[:-1]) >= least else of


def minimum(of, least):
    while sum(n for _, n in of) > least:
        of = of[:-1]
    check(sum(n for _, n in of) == least, f'no field ends at the minimum of {least} bytes: {of[-1][0]}')
    return of


def more(of, least):
    return of + [('uint64_t of_a_later_version', 8)]


def build(name, headers, *flags, manifest=None, change=None):
    folder = f'{name}/plugins/versions'
    os.makedirs(folder)
    shutil.copy(source / 'tests/sdk/versions/plugin.toml', folder)
    if manifest:
        with open(f'{folder}/plugin.toml') as f:
            text = f.read()
        with open(f'{folder}/plugin.toml', 'w') as f:
            f.write(manifest(text))
    text = (source / 'tests/sdk/versions/plugin.c').read_text()
    if change:
        before, after = change
        check(before in text, f'{name}: {before} is not in plugin.c')
        text = text.replace(before, after)
    r = subprocess.run(['cc', '-std=c11', '-O2', '-fPIC', '-shared', '-w', *flags, f'-I{headers}', '-xc', '-', '-o', f'{folder}/versions.so'],
                       input=text, capture_output=True, text=True)
    if r.returncode:
        sys.exit(f'FAILED: {name} does not compile:\n{r.stderr[:3000]}')
    return f'{name}/plugins'


model = from_config('gpt2', vocab_size=61, n_positions=16, n_embd=32, n_layer=2, n_head=4)
matrix = b'{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"F32","shape":[3,2],"data_offsets":[24,48]}}'
with open('versions.safetensors', 'wb') as f:
    f.write(struct.pack('<Q', len(matrix)) + matrix + bytes(48))
path = recipe('versions.lua', model, 'data.random {}', use('versions', lr=1e-2), batch=2, length=16, steps=4, seed=3, save=dict(every=2))


def runs(name, plugins):
    made = train(path, f'run-{name}', '--plugin-path', plugins, '--device', 'versions')
    check(len(made.steps) == 4, f'{name}: {len(made.steps)} steps instead of 4')
    return made


@functools.cache
def today():
    """Where the plugin lies that is built against the headers of today, its run, and the files that a run saves."""
    plugins = build('today', include.parent)
    made = runs('today', plugins)
    files = sorted(x.relative_to(made.path) for part in ('model', 'state') for x in (made.path / part).rglob('*.safetensors'))
    check(len(files) >= 3, f'too few files to compare: {files}')
    return plugins, made, files


@cases({'': (0, []), 'debug': (0, ['galley: debug: opened\n', 'galley: debug: pass ', 'galley: debug: closed\n']), 'loud': (2, ["GALLEY_LOG is 'loud'"])})
def log(level, of):
    """What a plugin writes for debugging is shown where that is asked for."""
    code, parts = of
    said = run('plan', path, '--plugin-path', today()[0], '--device', 'versions', code=code, GALLEY_LOG=level).stderr
    check(every(x in said for x in parts) if level else 'debug' not in said, f'GALLEY_LOG={level}: {said}')


# Without the last field of a claim's value there are no options of formats.
@cases({'field-less': (less, '-DTEST_SHORTER=1'), 'minimum': (minimum, '-DTEST_SHORTER=1'), 'field-more': (more,)})
def headers(name, of):
    change, *flags = of
    structs = altered(name, change)
    print(f'{name}: {len(structs)} structs: ' + ' '.join(x.removeprefix('galley_') for x in structs))
    check(len(structs) >= 42, f'only {len(structs)} structs were found')
    made = runs(name, build(name, f'{name}/include', *flags))
    _, expected, files = today()
    check(made.steps == expected.steps, 'the metrics differ')
    for file in files:
        check(made.bytes(file) == expected.bytes(file), f'{file} differs')


@case
def listens():
    """The listener of the plugin is told: one that counts otherwise ends the run."""
    plugins = build('listens', include.parent, change=('*steps = event->steps_done;', '*steps = event->steps_done + 1;'))
    said = run('train', path, '--out', 'run-listens', '--plugin-path', plugins, '--device', 'versions', code=4).stderr
    check("step 1: versions.lua:9: plugin 'versions' failed in step: a step of nothing" in said, said)


# ---- What is refused -----------------------------------------------------------------------------------------------------------------


def refuses(plugins, *parts):
    refused(path, 'versions', *parts, code=4, command='train', flags=('--out', 'none', '--plugin-path', plugins, '--device', 'versions'))
    check(not os.path.exists('none'), 'something was written')


def header(name, file, before, after):
    altered(name, lambda of, least: of)
    at = f'{name}/include/galley/{file}'
    with open(at) as f:
        text = f.read()
    check(before in text, f'{name}: {before} is not in {file}')
    with open(at, 'w') as f:
        f.write(text.replace(before, after))
    return f'{name}/include'


@case
def another_draft():
    refuses(build('draft', header('draft', 'abi.h', 'GALLEY_ABI_MINOR 4u', 'GALLEY_ABI_MINOR 3u')), 'ABI 0.3', '0.4')


@case
def later_sdk():
    """What a later SDK builds needs that, or the lower version that the plugin says."""
    refuses(build('later', header('later', 'abi.h', 'GALLEY_ABI_MINOR 4u', 'GALLEY_ABI_MINOR 5u')), 'ABI 0.5', '0.4')
    made = runs('needs-less', build('needs-less', 'later/include', '-DTEST_NEEDS_MINOR=4u'))
    _, expected, files = today()
    check(made.steps == expected.steps and every(made.bytes(file) == expected.bytes(file) for file in files), 'it runs otherwise')


@case
def manifest_of_another_draft():
    refuses(build('old', include.parent, manifest=lambda text: text.replace('abi = "0.4"', 'abi = "0.2"')), 'ABI 0.2')


STRUCTS = {'KERNEL': 'kernel 1 of 3', 'CLAIM': 'galley.claim/1', 'DEVICE': 'device 1 of 1'}


@cases(STRUCTS)
def struct_of_8_bytes(what, part):
    refuses(build(f'size-{what.lower()}', include.parent, f'-DTEST_SIZE_{what}=8'), part, '8 bytes')


@cases(STRUCTS)
def struct_of_revision_2(what, part):
    refuses(build(f'revision-{what.lower()}', include.parent, f'-DTEST_REVISION_{what}=2'), part, 'revision 2')


# What is changed in plugin.c, what it becomes, and what is said of it.
CHANGED = {
    'an op without a shape rule': ('.infer = pack_infer}', '}', 'op 2 of 3 has no shape rule'),
    'an operand without a name': ('RULE("gradient",', 'RULE(0,', 'op 1 of 3: an operand without a name'),
    'a name with a blank': ('"halves_pack"', '"halves pack"', "op 2 of 3, 'halves pack': names consist of a-z, 0-9 and ._-/"),
    'an op of another plugin': ('"halves_pack"', '"copy"', "op 'copy' of plugin 'versions' is one of plugin 'models' too"),
    'a device without copies': ('.copy = copy,', '', 'device 1 of 1 has no complete set of functions'),
    'a strategy that claims without a function': ('.claim = claim}', '}', 'galley.claim/1', 'is not complete'),
    'a peak without a name': ('.name = "f32", .flops', '.flops', 'a peak that has no name'),
    'a memory class of 8 bytes': ('memory = {HEAD(galley_target_memory)', 'memory = {.size = 8, .revision = 1', 'a memory that has 8 bytes'),
    'a library of revision 2': ('library = {HEAD(galley_library)', 'library = {.size = sizeof(galley_library), .revision = 2', 'a library that has revision 2'),
    'a library without a version': (', .version = "1"};', '};', 'a library without name or version'),
}


@cases(CHANGED)
def changed(name, of):
    before, after, *parts = of
    refuses(build(name.replace(' ', '-'), include.parent, change=(before, after), manifest=lambda text: text.replace(before, after)), *parts)


finish(turns=2)
