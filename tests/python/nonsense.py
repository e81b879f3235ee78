#!/usr/bin/env python3
"""What a plugin says and does that makes no sense is an error with exit code 4, which names the plugin, the place and, where there is one, the line of the recipe. A crash in a
kernel names them before the process dies. Metrics that a plugin reports are in the metrics file."""
import os
import pathlib
import shutil
import subprocess

import galley_test
from galley_test import binary, check, finish, fresh_folder, from_config, recipe, run, train, use

fresh_folder()
model = from_config('gpt2', vocab_size=61, n_positions=16, n_embd=32, n_layer=1, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
here = ['--plugin-path', binary / 'tests' / 'plugins' / 'nonsense']
adamw = use('adamw', lr=1e-3)
LINE = 'wrong.lua:'
sanitized = '-fsanitize' in (pathlib.Path(binary) / 'CMakeCache.txt').read_text()


def wrong(how, *more):
    return recipe('wrong.lua', model, 'data.random {}', use('nonsense', how=how), adamw, *more, batch=2, length=8, steps=2)


# Found while planning.
for how, parts in {
        'kind': (LINE, "'nonsense'", 'not kind 99'),
        'desc size': (LINE, '0 bytes'),
        'desc flags': (LINE, 'flags'),
        'file of a state': (LINE, 'only parameters'),
        'file above': (LINE, "tensor 'nonsense'", "'../../x.safetensors'", 'a folder of the run'),
        'file of the run': (LINE, "tensor 'nonsense'", "'metrics.jsonl'", 'a folder of the run'),
        'initializer inputs': (LINE, "input 'x' is missing"),
        'initializer unknown': (LINE, 'no_such_op'),
        'attribute type': (LINE, 'type 77'),
        'attribute null': (LINE, 'no values'),
        'attribute size': (LINE, '8 bytes'),
        'report twice': (LINE, 'two tensors'),
        'report taken': (LINE, "'loss'"),
        'report much': (LINE, "'nonsense256' is more than the 256 metrics"),
        'endless': (LINE, 'tensors and nodes now, most of which this call has added'),
        'attribute twice': (LINE, "attribute 'value' is there twice"),
        # What everybody in the process relies on.
        'closes error': (LINE, "failed in create", 'closed or replaced the standard error'),
        'chdir': (LINE, 'changed the current folder'),
        'locale': (LINE, 'left the locale changed'),
        'rights': (LINE, 'changed the rights of new files'),
        'rounds': (LINE, 'left the processor rounding otherwise'),
        'forks': (LINE, 'forked the process'),
        'blocks': (LINE, 'left other signals blocked'),
        'rate': (LINE, 'scale_rate'),
        'rank': ("op 'nonsense'", "'nonsensical'", 'rank 99'),
        'option type': (LINE, "option 'number'", 'another type'),
        'document nowhere': (LINE, 'attic/notes.txt', 'no tensor'),
        'document above': (LINE, '../notes.txt'),
        'workspace': ("kernel 'nonsense.cpu'", '-7 bytes', "'nonsensical'"),
        'plan flags': ("kernel 'nonsense.cpu'", 'flags'),
        'query fails': ("kernel 'nonsense.cpu'", 'no licence', "'nonsensical'"),
        'components': ("format 'nonsense'", '99 components'),
        'component dtype': ("format 'nonsense'", 'component 1'),
        'component twice': ("format 'nonsense'", 'components 1 and 2', 'one suffix'),
        'component shape': ("format 'nonsense'", "op 'nonsense'", "'pack ", "as 'y'", 'is f32(1)'),
        'throw infer': ("op 'nonsense'", 'thrown in infer'),
        'throw gradient': ("op 'nonsense'", 'thrown in gradient', "'nonsensical'"),
        'throw cost': ('thrown in cost', "'nonsensical'"),
        'throw query': ('thrown in query', "'nonsense.cpu'"),
        'throw components': ('thrown in components',),
}.items():
    path = wrong(how)
    for command in (['plan', path], ['train', path, '--out', 'out']):
        said = run(*command, *here, code=4).stderr
        for part in (*parts, 'nonsense'):
            check(part in said, f'{how}: {part!r} is not in: {said}')
        check(said.count('\n') <= 2, f'{how}: more than a cause and a hint: {said}')
    check(not os.path.exists('out'), f'{how}: something was written')

# Found while it runs.
for how, parts in {
        'throw prepare': ("kernel 'nonsense.cpu'", "'nonsensical'", 'thrown in prepare'),
        'throw enqueue': ("kernel 'nonsense.cpu'", "'nonsensical'", "plugin 'nonsense' failed in enqueue", 'thrown in enqueue'),
        'kernel rounds': ("kernel 'nonsense.cpu'", "'nonsensical'", "failed in enqueue", 'left the processor rounding otherwise'),
        'block rounds': ("kernel 'nonsense.cpu'", "'nonsensical'", 'left the processor rounding otherwise'),
        'kernel closes error': ("kernel 'nonsense.cpu'", "'nonsensical'", 'closed or replaced the standard error'),
        'parallel throws': ("kernel 'nonsense.cpu'", "'nonsensical'", 'thrown in a block'),
}.items():
    said = run('train', wrong(how), '--out', 'out', *here, code=4, threads=2).stderr
    for part in (*parts, 'nonsense'):
        check(part in said, f'{how}: {part!r} is not in: {said}')
    shutil.rmtree('out', ignore_errors=True)
said = run('train', wrong('stray prepare'), '--out', 'out', '--poison', *here, code=4, threads=2).stderr
for part in ("kernel 'nonsense.cpu'", "'nonsensical'", "plugin 'nonsense' failed in prepare", 'outside its operands', "0 behind the end of 'workspace of nonsensical'"):
    check(part in said, f'stray prepare: {part!r} is not in: {said}')
shutil.rmtree('out', ignore_errors=True)

# It ends the process, which must not look as if all were well.
for how, where in {'exit': 'create', '_exit': 'create', 'quick_exit': 'create', 'kernel _exit': 'enqueue', 'destroy _exit': 'destroy', 'thread exits': ''}.items():
    said = run('train', wrong(how), '--out', 'out', *here, code=4).stderr
    check(f"plugin 'nonsense' ended the process in {where}" in said, f'{how}: {said}')
    shutil.rmtree('out', ignore_errors=True)
run('train', wrong('closes all'), '--out', 'out', *here, code=4)  # nothing is left to say it with
check(not os.path.exists('out'), 'closes all: something was written')
for how, code, part in (('exits', 4, 'ended the process in an initializer of its library'), ('crashes', -11, 'died in an initializer of its library'),
                        ('inputs', -11, 'died in reading its tables')):
    if code < 0 and sanitized:
        continue
    r = subprocess.run([galley_test.program, 'plan', wrong('nothing'), *map(str, here)], capture_output=True, text=True, env=dict(os.environ, NONSENSE_LIBRARY=how))
    check(r.returncode == code and f"plugin 'nonsense' {part}" in r.stderr, f'{how}: exit code {r.returncode}: {r.stderr}')

# Its kernels are asked for, and there is nothing that they could do.
asks = recipe('asks.lua', model, 'data.random {}', adamw, batch=2, length=8, steps=2, kernels=['nonsense'])
said = run('plan', asks, *here).stderr
check("asks.lua: 'kernels' names the plugin 'nonsense', but the plan has none of its kernels" in said, f'kernels: {said}')

# What authors of plugins look up: kernels of chains, which are no kernels of an op, too, and values of attributes.
said = run('plugins', 'models').stdout
for part in ('\n    add_rms_norm.cpu  add>rms_norm, device cpu\n', 'models-cpu-v3.so  device cpu, x86-64-v3', '    attribute  eps                F64, default 1e-05; added to the variance\n'):
    check(part in said, f'galley plugins models: {part!r} is not in: {said[-2000:]}')

run('train', wrong('throw release'), '--out', 'released', *here)  # nothing is left to be told about it

# The process dies of it, with a word.
if not sanitized:
    for how, signal in {'crash': 11, 'abort': 6, 'crash elsewhere': 11}.items():
        r = subprocess.run([galley_test.program, 'train', wrong(how), '--out', 'out', *map(str, here)], capture_output=True, text=True,
                           env=dict(os.environ, OMP_NUM_THREADS='2'))
        check(r.returncode == -signal, f'{how}: exit code {r.returncode}, not that of signal {signal}')
        for part in ("plugin 'nonsense' died in enqueue", "kernel 'nonsense.cpu'", "node 'nonsensical'", LINE):
            check(part in r.stderr, f'{how}: {part!r} is not in: {r.stderr}')
        shutil.rmtree('out', ignore_errors=True)
    r = subprocess.run([galley_test.program, 'train', wrong('thread crashes'), '--out', 'out', *map(str, here)], capture_output=True, text=True)
    check(r.returncode == -11 and "plugin 'nonsense' died in " in r.stderr, f'a thread that is left running: exit code {r.returncode}: {r.stderr}')
    shutil.rmtree('out', ignore_errors=True)

# A manifest that cannot be read, of a strategy that is used.
os.makedirs('broken/nonsense')
pathlib.Path('broken/nonsense/plugin.toml').write_text('id = "nonsense"\nversion = "1.0.0"\nabi = "0.3"\n[[strategy]]\nname = "nonsense"\nexactnes = 1\n')
said = run('plan', wrong('nothing'), '--plugin-path', 'broken', code=4).stderr
check('wrong.lua:' in said and 'broken/nonsense/plugin.toml' in said, f'a broken manifest: {said}')

# What is reported is there, every step, and after a resume.
plain = train(recipe('plain.lua', model, 'data.random {}', adamw, batch=2, length=8, steps=3, seed=1), 'plain')
reports = train(recipe('reports.lua', model, 'data.random {}', use('nonsense', how='report'), adamw, batch=2, length=8, steps=3, seed=1), 'reports', *here)
check([x['nonsense_norm'] for x in reports.lines] == [x['grad_norm'] for x in plain.lines] and len(plain.lines) == 3,
      f'reported: {reports.lines}, expected the norms of {plain.lines}')
check(reports.bytes() == plain.bytes(), 'a metric changes the model')
finish()
