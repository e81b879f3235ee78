#!/usr/bin/env python3
"""galley resume --steps and --epochs: a run goes on after its end, as a run of its own, with the bytes of one that was as long from the beginning where nothing depends on the length; what
schedules give is said, and right; the old run stays what it was; what cannot go on is refused."""
import json
import math
import os
import pathlib
import resource

from errors_kit import check_error, digest
from galley_test import case, cases, check, every, finish, fresh_folder, from_config, galley, recipe, run, train, untimed, use

fresh_folder()
pathlib.Path('lines.jsonl').write_text(''.join(json.dumps({'text': f'{i} and {i * i} and {i % 7} is all'}) + '\n' for i in range(30)))
LINES = 'data.jsonl { files = { "lines.jsonl" }, tokenizer = "bytes", validation = 0.2 }'
gpt2 = from_config('gpt2', n_layer=1, n_embd=32, n_head=2, n_positions=32, vocab_size=256)
COSINE = 'use "adamw" { lr = cosine { peak = 1e-2, warmup = 2, floor = 1e-3 } }'


def made(name, *uses, model=gpt2, steps=4, flags=(), **more):
    return train(recipe(f'{name}.lua', model, LINES, *uses, **dict(dict(batch=2, length=24, steps=steps, seed=3), **more)), name, *flags)


def goes_on(name, *words, **more):
    before = digest(name)
    out = run('resume', name, *words, **more).stdout
    check(digest(name) == before, f'{name}: the old run has changed')
    return out


def same(one, other, *parts):
    """All that was saved; but for what says of which recipe it is, which has another length."""
    for part in parts:
        found = [{x.relative_to(f'{run}/{part}'): x.read_bytes() for x in pathlib.Path(run, part).rglob('*') if x.is_file() and x.name != 'state.toml'} for run in (one, other)]
        check(found[0] == found[1] and found[0], f'{one}/{part} is not that of {other}: {sorted(found[0])}, {sorted(found[1])}')


KINDS = {'adamw': [use('adamw', lr=1e-2)], 'lora': [use('lora', rank=2, targets=['c_attn']), use('adamw', lr=1e-2)], 'ema': [use('ema', decay=.9), use('adamw', lr=1e-2)],
         'accumulate': [use('accumulate', steps=2), use('adamw8bit', lr=1e-2)]}


@cases(KINDS)
def as_long_from_the_beginning(kind, uses):
    more = dict(validate=dict(every=2), save=dict(every=2, keep=1, best=True))
    made(kind, *uses, **more)
    whole = made(f'{kind}-whole', *uses, steps=8, **more)
    out = goes_on(kind, '--steps', 8, '--out', f'{kind}-on')
    check(f'goes on from step 4 of {kind}, which stays as it is, to step 8' in out and 'is asked for' not in out, out)
    same(f'{kind}-on', f'{kind}-whole', 'adapter' if kind == 'lora' else 'model', 'state', 'best')
    lines = untimed(json.loads(x) for x in pathlib.Path(f'{kind}-on/metrics.jsonl').read_text().splitlines())
    check(lines == untimed(whole.lines) and len(lines) == 12, f'{lines}')
    check('nothing left to do: all 8 steps are done' in run('resume', f'{kind}-on').stdout, 'the longer run has ended')
    check('nothing left to do: all 4 steps are done' in run('resume', kind).stdout, 'the first run has ended')


@case
def schedules_are_asked_anew():
    made('cosine', COSINE)
    out = goes_on('cosine', '--steps', 10, '--out', 'cosine-on')

    def lr(step, steps):
        i = step - 1
        return 1e-2 * (i + 1) / 3 if i < 2 else 1e-3 + 9e-3 * (1 + math.cos(math.pi * (i - 2) / (steps - 2))) / 2

    check(f'adamw.lr = cosine{{' in out and f'is asked for 10 steps: {lr(5, 10):.4g} at the next one, after {lr(4, 4):.4g} at the last' in out, out)
    rates = [json.loads(x)['lr'] for x in pathlib.Path('cosine-on/metrics.jsonl').read_text().splitlines()]
    wanted = [lr(s, 4) for s in range(1, 5)] + [lr(s, 10) for s in range(5, 11)]
    check(len(rates) == 10 and every(abs(a - b) < 1e-9 for a, b in zip(rates, wanted)), f'{rates}, {wanted}')


@case
def epochs():
    path = recipe('by-epochs.lua', gpt2, LINES.replace(', validation = 0.2', ''), use('adamw', lr=1e-2), batch=1, length=30, epochs=1, seed=3)
    first = train(path, 'by-epochs')
    n = len(first.steps)
    out = goes_on('by-epochs', '--epochs', 2.5, '--out', 'by-epochs-on')
    lines = [json.loads(x) for x in pathlib.Path('by-epochs-on/metrics.jsonl').read_text().splitlines()]
    check(f'to step {math.ceil(2.5 * n)}' in out and len(lines) == math.ceil(2.5 * n), f'{n} steps, then {len(lines)}: {out}')
    whole = train(recipe('whole-epochs.lua', gpt2, LINES.replace(', validation = 0.2', ''), use('adamw', lr=1e-2), batch=1, length=30, epochs=2.5, seed=3), 'whole-epochs')
    check(untimed(lines) == untimed(whole.lines), 'the longer run has other steps')
    # By steps where the recipe says epochs, and epochs where it says steps.
    goes_on('by-epochs', '--steps', n + 3, '--out', 'by-steps-on')
    check(len(pathlib.Path('by-steps-on/metrics.jsonl').read_text().splitlines()) == n + 3, 'by steps')
    made('by-steps', use('adamw', lr=1e-2), steps=2)
    check('to step' in goes_on('by-steps', '--epochs', 1, '--out', 'steps-epochs-on'), 'epochs where the recipe says steps')


@case
def again_and_interrupted():
    made('first', use('adamw', lr=1e-2))
    whole = made('all', use('adamw', lr=1e-2), steps=12)
    goes_on('first', '--steps', 8, '--out', 'second', '--until', 6)
    check(not pathlib.Path('second/model').exists(), 'it was to stop after step 6')
    run('resume', 'second')
    goes_on('second', '--steps', 12, '--out', 'third')
    same('third', 'all', 'model', 'state')
    text = pathlib.Path('third/run.toml').read_text()
    check(f'continues = "{os.path.abspath("second")}"' in text and 'steps = 12' in text, text[:600])
    # Of a run that has not come to its end, too; and what is exported is the new run's.
    made('half', use('adamw', lr=1e-2), steps=8, flags=('--until', 3))
    goes_on('half', '--steps', 12, '--out', 'half-on')
    same('half-on', 'all', 'model', 'state')
    run('export', 'half-on', '--out', 'exported')
    check(pathlib.Path('exported/model.safetensors').read_bytes() == whole.bytes(), 'the exported model')


@case
def refused():
    made('done', use('adamw', lr=1e-2))

    def of(words, *parts, hint=None, name='done', **more):
        before = digest(name)
        check_error(galley('resume', name, *words, **more), 2, *parts, hint=hint)
        check(digest(name) == before and not pathlib.Path('on').exists(), f'{words}: something was left')

    of(('--steps', 8), '--out is missing', hint='name a new directory for it: --out DIR')
    of(('--out', 'on'), '--out applies to a run that goes on after its end', hint='--steps or --epochs')
    of(('--steps', 8, '--epochs', 2, '--out', 'on'), '--steps and --epochs both say')
    of(('--steps', 0, '--out', 'on'), "--steps '0'")
    of(('--epochs', 'x', '--out', 'on'), "--epochs 'x' is not a number")
    of(('--steps', 10 ** 9, '--out', 'on'), 'a run has at most 10000000 steps')
    of(('--steps', 4, '--out', 'on'), 'this run has done 4 steps, and would be 4 steps long', hint='--steps 8')
    of(('--steps', 8, '--out', 'done'), 'done is not empty')
    made('unsaved', use('adamw', lr=1e-2), save=dict(final=False))
    of(('--steps', 8, '--out', 'on'), 'no state to go on from', name='unsaved')
    made('patient', use('adamw', lr=1e-30), steps=9, validate=dict(every=1, patience=2))
    of(('--steps', 12, '--out', 'on'), 'this run has ended early, after step', 'patience', name='patient')
    pathlib.Path('state').mkdir()
    train(recipe('stranger.lua', gpt2, 'data.random {}', use('adamw', lr=1e-2), batch=2, length=24, steps=2), 'stranger')
    ended = galley('resume', 'stranger', '--steps', 8, '--out', 'on', '--recorded', XDG_STATE_HOME=os.path.abspath('state'))
    check(ended.returncode == 2 and 'this run has no mark of yours, and one that goes on from it would have' in ended.stderr and not pathlib.Path('on').exists(), ended)
    run('resume', 'stranger', '--steps', 3, '--out', 'trusted', '--recorded', '--unconfined', XDG_STATE_HOME=os.path.abspath('state'))
    ended = galley('resume', 'done', '--steps', 8, '--out', 'on', before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (30000, 30000)))
    check_error(ended, 1, 'on.tmp-', 'File too large')
    check(not list(pathlib.Path().glob('on*')), f'something is left: {list(pathlib.Path().glob("on*"))}')
    with open('lines.jsonl', 'a') as file:
        file.write('{"text": "more"}\n')
    of(('--steps', 8, '--out', 'on'), 'lines.jsonl', 'has changed')


finish()
