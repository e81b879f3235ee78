#!/usr/bin/env python3
"""--without: passes of the compiler that only make a program faster are left out by name, and it computes the same bytes. So a bug is found to be theirs, or not."""
import json
import pathlib
import shlex

import scripts_kit
from galley_test import binary, case, cases, check, every, finish, fresh_folder, lines_of, run, source, untimed

PASSES = 'exchanges', 'fuse', 'alias', 'overlap'
on_two_memories = {'--device cuda': f'--device discrete --plugin-path {shlex.quote(str(binary / "tests" / "plugins" / "discrete"))}'}
fresh_folder()
scripts_kit.make()


def words_of(script, header):
    """The command that a script's header trains by, as far as the run's directory, and small."""
    lines = [x for x in scripts_kit.commands(header) if x.startswith('galley train ')]
    if not lines:
        return None
    words = shlex.split(scripts_kit.filled(script, lines[0], **on_two_memories, **{'tokenizer=tokenizer': 'tokenizer=bpe'}))
    words[2] = str(script)
    del words[words.index('--out'):words.index('--out') + 2]
    return [*words[1:], *scripts_kit.sizes(script)]


SCRIPTS = {script.stem: words for script, header in scripts_kit.scripts() if (words := words_of(script, header))}


def trained(words, out, *more):
    """Lines of metrics, bytes of what is saved, and bytes that were planned."""
    run(*words, '--out', out, *more)
    files = sorted(x for part in ('model', 'adapter') for x in pathlib.Path(out, part).rglob('*.safetensors'))
    return untimed(lines_of(out)), {x.name: x.read_bytes() for x in files}


@cases(SCRIPTS)
def same_bytes(name, words):
    whole, without = trained(words, f'{name}-whole'), trained(words, f'{name}-without', '--without', ','.join(PASSES))
    check(len(whole[0]) >= 1 and whole[0] == without[0], f'other numbers: {whole[0]} {without[0]}')
    check(whole[1] and whole[1] == without[1], f'other bytes are saved: {list(whole[1])}')


@case
def what_is_left_out():
    """A launch is of one node without fuse, no output takes its input's place without alias, and the plan is proved all the same."""
    words = ['plan', source / 'scripts' / 'finetune.lua', *scripts_kit.sizes(source / 'scripts' / 'finetune.lua'), '--set', 'text=books', '--set', 'model=base/model']
    texts = {x: run(*words, '--check', *(['--without', x] if x else [])).stdout for x in ('', *PASSES)}
    launches = {x: json.loads(run(*words, '--json', *(['--without', x] if x else [])).stdout)['launches'] for x in ('', *PASSES)}
    check(launches['']['a_step'] < launches['']['nodes'] == launches['fuse']['a_step'], f'launches: {launches}')
    check(launches['alias']['a_step'] < launches['alias']['nodes'], f'launches: {launches}')
    work = {x: json.loads(run(*words, '--json', *(['--without', x] if x else [])).stdout)['flops_per_token'] for x in ('', *PASSES)}
    check(work[''] > 0 and every(x == work[''] for x in work.values()), f'operations: {work}')
    check(texts[''] != texts['alias'] and texts[''] == texts['overlap'] == texts['exchanges'], 'alias changes nothing, or overlap something on one memory')


@cases({'unknown': ('place', "'place' is no pass that can be left out", 'these can: exchanges, fuse, alias, overlap'), 'empty': ('fuse,', "'' is no pass"),
        'blank': ('fuse, alias', "' alias' is no pass")})
def refused(_, of):
    said = run('plan', source / 'scripts' / 'finetune.lua', '--without', of[0], code=2).stderr
    check(every(x in said for x in of[1:]), said)


finish()
