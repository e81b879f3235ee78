#!/usr/bin/env python3
"""What strategies over several processes are made of (ranks.h), in a run of one: exchanges, shards, and how ranks find each other, by a plugin of the tests. With every fourth
commit it is built with the installed SDK alone."""
import functools
import json
import pathlib
import re
import shutil

import sdk_kit
from galley_test import binary, case, check, finish, fresh_folder, from_config, Run, run, source, turn, use
from steps_kit import planned, recipes, refused, trained

fresh_folder()
config = dict(vocab_size=61, max_position_embeddings=32, hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2)
mean = functools.partial(use, 'exchange', after='mlp.down_proj')
written = recipes(from_config('llama', **config), 'data.random {}', use('adamw', lr=1e-2), batch=4, length=8, seed=3, steps=4)


@functools.cache
def built():
    if turn(4) in (0, None):
        return sdk_kit.build_together({'exchange': source / 'tests' / 'plugins' / 'exchange'}, {})
    shutil.copytree(binary / 'tests' / 'plugins' / 'exchange', 'plugins/exchange')
    return pathlib.Path('plugins').absolute()


def flags():
    return ['--plugin-path', built()]


def exchanges(text):
    return len(re.findall(r'^micro\[\d+\] exchange\.mean\b', text, re.M))


@case
def one_rank_is_the_run():
    """The mean over one rank is the tensor, and its part of a state is the state: the bytes of a run without the strategy; also resumed, evaluated and exported."""
    plain, exchanged = trained(written('plain'), 'plain'), trained(written('exchanged', mean()), 'exchanged', *flags(), '--reference')
    check(exchanged.bytes() == plain.bytes() and exchanged.steps == plain.steps, 'an exchange in a run of one changes numbers')
    trained(written('halves', mean()), 'halves', *flags(), '--until', 2)
    run('resume', 'halves', *flags(), '--reference')
    check(Run('halves').bytes() == plain.bytes(), 'resumed, it is another run')
    run('export', 'exchanged', '--out', 'apart', *flags())


@case
def exchanges_keep_their_order():
    """One for each node and each gradient, alone in its launch; backward recomputes everything else, and none of them."""
    path = written('again', mean(), use('recompute', policy='every'))
    plan = run('plan', path, *flags(), '--dump', 'fuse').stdout
    check(exchanges(plan) == 6, f'{exchanges(plan)} exchanges')
    clones = run('plan', path, *flags(), '--dump', 'clone').stdout
    check(exchanges(clones) == 6 and len(clones.splitlines()) > len(run('plan', path, *flags(), '--dump', 'bind').stdout.splitlines()) + 10,
          f'{exchanges(clones)} exchanges of a recomputed program')
    check(trained(path, 'again', *flags(), '--reference').bytes() == trained(written('kept', mean()), 'kept', *flags()).bytes(), 'recomputed, it is another run')


@case
def refusals():
    refused(written('axis', mean(axis='pipe')), "exchanges along the axis 'pipe', which the run does not have", 'exchange', code=4, flags=flags())
    planned(written('alone', mean(along='pipe')), *flags())  # one process has the one part of everything: tests/python/ranks_within.py has several
    for number in (2, 7):  # the master of a state; nothing
        refused(written(f'number-{number}', mean(shard=number)), f'is {number}, which is no GALLEY_SHARD_', 'exchange', code=4, flags=flags())
    refused(written('both', mean(strong=True), use('exchange', after='o_proj', shard=0, strong=True)), 'shard', 'exchange', flags=flags())


@case
def others_win():
    """A strong claim beats a weak one, as of any facet."""
    path = written('strong', mean(), use('exchange', after='o_proj', shard=0, strong=True))
    planned(path, *flags())
    check(exchanges(run('plan', path, *flags(), '--dump', 'fuse').stdout) == 12, 'the strategies do not both build')


@case
def checked():
    """`galley check` opens the ranks for one rank, and holds what the header says of it."""
    text = run('check', built() / 'exchange').stdout
    check('ranks alone (' in text and 'nothing found' in text, text)
    run('check', built() / 'exchange', '--json', 'check.json')
    check(any(t['test'] == 'ranks alone' and t['held'] for t in json.load(open('check.json'))['tests']), open('check.json').read())


@case
def promised():
    """A manifest that names ranks, and a library that has none of that name."""
    folder = built() / 'exchange'
    manifest = folder / 'plugin.toml'
    kept = manifest.read_text()
    manifest.write_text(kept.replace('"alone"', '"together"'))
    try:
        refused(written('promised', mean()), "[provides] names the ranks 'together', which", code=4, flags=flags())
    finally:
        manifest.write_text(kept)


finish(turns=2)
