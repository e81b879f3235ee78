#!/usr/bin/env python3
"""What a plugin says and does that makes no sense is an error with exit code 4, which names the plugin, the place and, where there is one, the line of the recipe.
A crash in a kernel names them before the process dies. Metrics that a plugin reports are in the metrics file."""
import os
import pathlib

from galley_test import binary, case, cases, check, finish, fresh_folder, from_config, run, train, use
from steps_kit import recipes, refused

fresh_folder()
model = from_config('gpt2', vocab_size=61, n_positions=16, n_embd=32, n_layer=1, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
here = ['--plugin-path', binary / 'tests' / 'plugins' / 'nonsense']
adamw = use('adamw', lr=1e-3)
LINE = 'wrong.lua:'
sanitized = '-fsanitize' in (pathlib.Path(binary) / 'CMakeCache.txt').read_text()


written = recipes(model, 'data.random {}', batch=2, length=8, steps=2)


def wrong(how):
    return written('wrong', use('nonsense', how=how), adamw)


PLANNED = {
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
}


@cases(PLANNED)
def found_while_planning(how, parts):
    path = wrong(how)
    for command, flags in (('plan', ()), ('train', ('--out', 'out'))):
        said = refused(path, *parts, 'nonsense', code=4, command=command, flags=(*flags, *here))
        check(said.count('\n') <= 2, f'more than a cause and a hint: {said}')
    check(not os.path.exists('out'), 'something was written')


RUNNING = {
    'throw prepare': ("kernel 'nonsense.cpu'", "'nonsensical'", 'thrown in prepare'),
    'throw enqueue': ("kernel 'nonsense.cpu'", "'nonsensical'", "plugin 'nonsense' failed in enqueue", 'thrown in enqueue'),
    'kernel rounds': ("kernel 'nonsense.cpu'", "'nonsensical'", "failed in enqueue", 'left the processor rounding otherwise'),
    'block rounds': ("kernel 'nonsense.cpu'", "'nonsensical'", 'left the processor rounding otherwise'),
    'kernel closes error': ("kernel 'nonsense.cpu'", "'nonsensical'", 'closed or replaced the standard error'),
    'parallel throws': ("kernel 'nonsense.cpu'", "'nonsensical'", 'thrown in a block'),
}


@cases(RUNNING)
def found_while_it_runs(how, parts):
    said = run('train', wrong(how), '--out', how.replace(' ', '-'), *here, code=4, threads=2).stderr
    for part in (*parts, 'nonsense'):
        check(part in said, f'{part!r} is not in: {said}')


@case
def stray_write():
    said = run('train', wrong('stray prepare'), '--out', 'stray', '--poison', *here, code=4, threads=2).stderr
    for part in ("kernel 'nonsense.cpu'", "'nonsensical'", "plugin 'nonsense' failed in prepare", 'outside its operands',
                 "0 after the end of 'workspace of nonsensical'"):
        check(part in said, f'{part!r} is not in: {said}')


# ---- It ends the process ---------------------------------------------------------------------------------------------------------------------


@cases({'exit': 'create', '_exit': 'create', 'quick_exit': 'create', 'kernel _exit': 'enqueue', 'destroy _exit': 'destroy', 'thread exits': ''})
def ends_the_process(how, where):
    """Which must not look as if all were well."""
    said = run('train', wrong(how), '--out', how.replace(' ', '-'), *here, code=4).stderr
    check(f"plugin 'nonsense' ended the process in {where}" in said, said)


@case
def closes_all():
    """Nothing is left to say it with."""
    run('train', wrong('closes all'), '--out', 'closes-all', *here, code=4)
    check(not os.path.exists('closes-all'), 'something was written')


LIBRARY = {'exits': (4, 'ended the process in an initializer of its library'), 'crashes': (-11, 'died in an initializer of its library'),
           'inputs': (-11, 'died in reading its tables')}


@cases({how: x for how, x in LIBRARY.items() if x[0] > 0 or not sanitized})
def library(how, of):
    code, part = of
    said = run('plan', wrong('nothing'), *here, code=code, NONSENSE_LIBRARY=how).stderr
    check(f"plugin 'nonsense' {part}" in said, said)


# A sanitizer takes the signal.
@cases({} if sanitized else {'crash': 11, 'abort': 6, 'crash elsewhere': 11})
def dies(how, signal):
    """The process, with a word."""
    said = run('train', wrong(how), '--out', how.replace(' ', '-'), *here, code=-signal, threads=2).stderr
    for part in ("plugin 'nonsense' died in enqueue", "kernel 'nonsense.cpu'", "node 'nonsensical'", LINE):
        check(part in said, f'{part!r} is not in: {said}')


@cases([] if sanitized else ['thread crashes'])
def thread_of_its_own(how):
    said = run('train', wrong(how), '--out', 'thread', *here, code=-11).stderr
    check("plugin 'nonsense' died in " in said, said)


# ---- What makes sense ------------------------------------------------------------------------------------------------------------------------


@case
def kernels_that_are_asked_for():
    """And there is nothing that they could do."""
    said = run('plan', written('asks', adamw, kernels=['nonsense']), *here).stderr
    check("asks.lua: 'kernels' names the plugin 'nonsense', but the plan has none of its kernels" in said, f'kernels: {said}')


@case
def what_authors_look_up():
    """Kernels of chains, which are no kernels of an op, too, and values of attributes."""
    said = run('plugins', 'models').stdout
    for part in ('\n    add_rms_norm.cpu  add>rms_norm, device cpu\n', 'models-cpu-v3.so  device cpu, x86-64-v3',
                 '    attribute  eps                F64, default 1e-05; added to the variance\n'):
        check(part in said, f'galley plugins models: {part!r} is not in: {said[-2000:]}')


@case
def throws_when_it_is_over():
    """Nothing is left to be told about it."""
    run('train', wrong('throw release'), '--out', 'released', *here)
    check(os.path.exists('released/model/model.safetensors'), 'there is no model')


@case
def broken_manifest():
    """Of a strategy that is used."""
    os.makedirs('broken/nonsense')
    pathlib.Path('broken/nonsense/plugin.toml').write_text('id = "nonsense"\nversion = "1.0.0"\nabi = "0.4"\n[[strategy]]\nname = "nonsense"\nexactnes = 1\n')
    refused(wrong('nothing'), 'wrong.lua:', 'broken/nonsense/plugin.toml', code=4, flags=('--plugin-path', 'broken'))


@case
def reported_metrics():
    """They are there, every step."""
    plain = train(written('plain', adamw, steps=3, seed=1), 'plain')
    reports = train(written('reports', use('nonsense', how='report'), adamw, steps=3, seed=1), 'reports', *here)
    check([x['nonsense_norm'] for x in reports.lines] == [x['grad_norm'] for x in plain.lines] and len(plain.lines) == 3,
          f'reported: {reports.lines}, expected the norms of {plain.lines}')
    check(reports.bytes() == plain.bytes(), 'a metric changes the model')


finish()
