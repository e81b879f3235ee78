#!/usr/bin/env python3
# label: all
"""What reads a run, beside the run that saves after each step and removes what it saved before: each command takes a state as it was whole, and what would write is
refused. Two comparisons in one folder at once, and several preparations of the same data. With each commit, slices.py runs another part."""
import atexit
import json
import os
import pathlib
import re
import signal

from galley_test import cases, check, end_of, every, finish, fresh_folder, from_config, galley, in_slice, lines_of, recipe, require, run, start, timeless, until, use

fresh_folder()
pathlib.Path('text.txt').write_text(''.join(f'{i} the cat sat on the mat\n\n' for i in range(30)))
text = 'data.text { files = { "text.txt" }, tokenizer = "bytes", validation = 0.2 }'
gpt2 = from_config('gpt2', vocab_size=256, n_positions=32, n_embd=16, n_layer=1, n_head=2)
ROUNDS = 6


def live(name, *uses, model=gpt2, **save):
    """A run that goes on until it is told to stop, with something saved. A step takes longer than a command needs to find a state and to open it."""
    path = recipe(f'{name}.lua', model, text, *uses, use('accumulate', steps=400), use('adamw', lr=1e-4), batch=2, length=32, steps=1000000, seed=5,
                  save=dict(every=1, **save), validate=dict(every=1))
    process = start('train', path, '--out', name, env=dict(os.environ, OMP_NUM_THREADS='1'))
    atexit.register(process.kill)  # however this test ends
    require(until(lambda: any(pathlib.Path(name, 'state').glob('step-*/state.toml')), process), f'{name}: it saves nothing')
    return path, process


def validated(name):
    return {x['validation_loss']: x['step'] for x in lines_of(name) if 'validation_loss' in x}


def loss_of(ended):
    return json.loads(ended.stdout)['validation_loss']


def reads(name, path, round_):
    """What only reads a run: {command: how it has ended}. A state may be gone before it is opened; then its file is named."""
    out = f'{name}-{round_}'
    commands = {'plan': ('plan', path, '--json'), 'data': ('data', path), 'eval': ('eval', name, '--json'), 'sample': ('sample', name, '--prompt', 'the', '--tokens', 3),
                'embed': ('embed', name), 'export': ('export', name, '--out', out), 'report': ('report', name)}
    ended = {k: galley(*words, input='"the cat"\n' if k == 'embed' else None, OMP_NUM_THREADS='1') for k, words in commands.items()}
    for command, r in ended.items():
        gone = r.returncode == 1 and re.search(rf"{name}/(state|best)/step-\d+\S*: No such file", r.stderr)
        check(r.returncode == 0 or gone, f'{name}, {command} beside the run: {r}')
        check(r.returncode == 0 or command != 'export' or not pathlib.Path(out).exists(), f'{out} is there, and not whole: {r}')
    return {k: r for k, r in ended.items() if r.returncode == 0}


def writes(name, path):
    """What would write there is refused, and says why."""
    for words, code, says in ((('resume', name), 1, f'{name} is in use by process'), (('train', path, '--out', name), 2, name)):
        r = galley(*words)
        check(r.returncode == code and says in r.stderr, f'{words} beside the run: {r}')


@cases({k: v for k, v in {'one state': {}, 'the best, too': dict(best=True), 'an adapter': {}}.items() if in_slice()})
def beside(label, save):
    name = label.replace(' ', '-').replace(',', '')
    model, uses = gpt2, ()
    if label == 'an adapter':
        run('train', recipe('base.lua', gpt2, text, use('adamw', lr=1e-2), batch=2, length=32, steps=2, seed=5), '--out', 'base')
        model, uses = 'model { path = "base/model" }', (use('lora', rank=2, targets=['c_attn']),)
    path, process = live(name, *uses, model=model, keep=1, **save)
    rounds = []
    for i in range(ROUNDS):
        rounds.append(reads(name, path, i))
        writes(name, path)
    for command in ('plan', 'data', 'eval', 'sample', 'embed', 'export', 'report'):
        check(sum(command in x for x in rounds) > ROUNDS / 2, f'{name}: {command} has hardly worked beside the run')
    seen = [loss_of(x['eval']) for x in rounds if 'eval' in x]
    check(process.poll() is None, 'the run has ended')
    process.send_signal(signal.SIGINT)
    r = end_of(process)
    check(r.returncode == 130, f'{name}: {r}')
    known = validated(name)
    strange = [x for x in seen if x not in known]
    check(len(known) > 1 and seen and not strange, f'{name}: eval says {strange}, which the run has at none of its {len(known)} steps')
    check(len(set(seen)) > 1, f'{name}: the run does not move: {seen}')
    model_of = 'model { path = "%s" }' if label != 'an adapter' else 'model { path = "base/model" }'
    for folder in (pathlib.Path(f'{name}-{i}') for i, x in enumerate(rounds) if 'export' in x):
        uses = (use('lora', path=folder),) if label == 'an adapter' else ()
        again = recipe('again.lua', model_of % folder if '%' in model_of else model_of, text, *uses, batch=2, length=32, steps=1, seed=5, validate=dict(every=1))
        loss = loss_of(run('eval', again, '--json'))
        check(loss in known, f'{folder}: what was exported has the loss {loss}, which the run has at none of its steps')
    # It goes on from where it stopped, as if nobody had looked.
    last = max(known.values())
    run('resume', name, '--until', last + 4)
    steps = [x['step'] for x in lines_of(name) if 'loss' in x]
    check(steps == list(range(1, last + 5)), f'{name}: steps {steps[-8:]}')


# ---- Two comparisons in one folder ---------------------------------------------------------------------------------------------------------------------

COMPARE = """return compare { model = MODEL, data = DATA, batch = 2, length = 32, steps = 60, validate = { every = 30 }, seeds = { 1, 2 }, turns = 3,
  variants = { plain = { use "adamw" { lr = 1e-3 } }, faster = { use "adamw" { lr = 2e-3 } } } }""".replace('MODEL', gpt2).replace('DATA', text)


def compared(out):
    return timeless(json.loads(pathlib.Path(out, 'compare.json').read_text()))


@cases([3] if in_slice() else [])
def two_comparisons(times):
    """One of them may find that the other works in a run; at last both are what one alone is."""
    path = pathlib.Path('compare.lua')
    path.write_text(COMPARE)
    run('compare', path, '--out', 'alone')
    refused = 0
    for i in range(times):
        out = f'both-{i}'
        ended = [end_of(x) for x in [start('compare', path, '--out', out) for _ in range(2)]]
        for r in ended:
            busy = r.returncode == 1 and re.search(rf'{out}(/\S+)? is in use by process \d+', r.stderr)
            check(r.returncode == 0 or busy, f'two at once: {r}')
        refused += sum(r.returncode == 1 for r in ended)
        check(any(r.returncode == 0 for r in ended), f'neither has ended: {ended}')
        run('compare', path, '--out', out)
        check(compared(out) == compared('alone'), f'{out}: another comparison than one alone')
    check(refused > 0, 'none has met the other')


# ---- Several preparations of the same data -------------------------------------------------------------------------------------------------------------

def cached(folder):
    return {x.name: x.read_bytes() for x in pathlib.Path(folder).iterdir()}


@cases({k: v for k, v in {'all end': 0, 'two are killed': 2}.items() if in_slice()})
def preparations(label, killed):
    """Five at once, in a cache that is empty: each says what one alone does, and the cache is as one alone leaves it."""
    label = label.replace(' ', '-')
    pathlib.Path('lines.jsonl').write_text(''.join(json.dumps(dict(text=f'{i} and {i * i} are {i + i * i}, ' * (1 + i % 5))) + '\n' for i in range(12000)))
    data = 'data.jsonl { files = { "lines.jsonl" }, tokenizer = "bytes", validation = 0.1 }'
    path = recipe(f'{label}.lua', gpt2, data, use('adamw', lr=1e-3), batch=2, length=32, steps=2)
    alone = run('data', path, '--json', GALLEY_CACHE=os.path.abspath('cache-alone')).stdout
    for i in range(3):
        cache = os.path.abspath(f'cache-{label}-{i}')
        processes = [start('data', path, '--json', env=dict(os.environ, GALLEY_CACHE=cache)) for _ in range(5)]
        for process in processes[:killed]:
            until(lambda: os.path.isdir(cache) and len(os.listdir(cache)) > i, process)
            process.kill()
        ended = [end_of(x) for x in processes]
        for r in ended[killed:]:
            check(r.returncode == 0 and r.stdout == alone, f'{label}: {r}')
        again = run('data', path, '--json', GALLEY_CACHE=cache).stdout
        check(again == alone, f'{label}: another answer from the cache: {again}')
        found, one = cached(cache), cached('cache-alone')
        check(every(found.get(k) == v for k, v in one.items()), f'{label}: {sorted(set(one) ^ set(found))}, or other bytes')
        check(killed or set(found) == set(one), f'{label}: {sorted(set(found) - set(one))} is left')
    check(run('train', path, '--out', f'{label}-run').returncode == 0, label)


finish()
