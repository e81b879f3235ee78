#!/usr/bin/env python3
"""How long a run is and which of its states is the best: epochs instead of steps, early stopping, the state of the lowest validation loss; the same after runs
that were killed after any step; the metrics in TensorBoard's file."""
import functools
import json
import os
import pathlib
import shutil
import signal
import struct

from galley_test import Run, case, check, end_of, every, finish, fresh_folder, from_config, recipe, require, run, start, together, until, untimed, use

fresh_folder()
os.environ['GALLEY_CACHE'] = os.path.abspath('cache')

# 23 documents of one row each, in micro-batches of 2 rows.
texts = pathlib.Path('texts.jsonl')
texts.write_text(''.join(json.dumps(dict(text=f'number {i} is {"odd" if i % 2 else "even"}')) + '\n' for i in range(23)))
model = from_config('llama', vocab_size=256, max_position_embeddings=32, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
data = 'data.jsonl { files = arg("texts"), tokenizer = "bytes", packing = "none" }'
held_out = 'data.jsonl { files = arg("texts"), tokenizer = "bytes", packing = "none", validation = 0.2 }'
SET = ('--set', f'texts={texts.resolve()}')
rate = 'use "adamw" { lr = cosine { peak = 1e-3, warmup = 0.25 } }'
accumulate = use('accumulate', steps=2)


def lines(out):
    return untimed(Run(out).lines)


@functools.cache
def trained(name):
    """The run of the recipe NAME.lua."""
    run('train', f'{name}.lua', '--out', name, *SET)
    return Run(name)


def written(name, *uses, data=data, **entries):
    recipe(f'{name}.lua', model, data, *uses, batch=2, length=32, **entries)
    return name


# 23 rows in windows of 4: two epochs and a half are 57.5 rows, 15 windows, the last of which is short.
EPOCHS = written('epochs', accumulate, rate, epochs=2.5)
STEPS = written('steps', accumulate, rate, steps=15)
# A rate at which the loss on what is held out falls first and then rises.
hot = use('adamw', lr=0.02)
STOPPED = written('stopped', hot, data=held_out, steps=400, validate=dict(every=2, start=True, patience=3), save=dict(every=5, keep=2, best=True))


# ---- Epochs ---------------------------------------------------------------------------------------------------------------------------


@case
def epochs_are_steps():
    by_epochs, by_steps = trained(EPOCHS), trained(STEPS)
    check(len(by_epochs.steps) == 15, f'2.5 epochs are {len(by_epochs.steps)} steps, not 15')
    check(lines(EPOCHS)[:14] == lines(STEPS)[:14], 'up to the last window they are the steps of a run that says so')
    last, whole = by_epochs.lines[-1], by_steps.lines[-1]
    check(last['epoch'] == 58 / 23 and last['tokens'] < whole['tokens'] and last['positions'] == 64, f'the last window is not short: {last}, {whole}')
    for x in by_epochs.lines[:14]:
        check(x['epoch'] == 4 * x['step'] / 23, f'metrics say the epoch {x["epoch"]} of step {x["step"]}')
    planned = [{k: v for k, v in x.memory.items() if k != 'process'} for x in (by_epochs, by_steps)]
    check(json.loads(json.dumps(planned[0]).replace('epochs.lua', 'steps.lua')) == planned[1], 'the plan depends on the number of steps')


@case
def what_is_said_of_epochs():
    said = run('plan', 'epochs.lua', *SET).stdout
    check('2.5 epochs; how many steps' in said, f'`galley plan` does not say what it knows: {said}')
    said = run('data', 'epochs.lua', *SET).stdout
    check('2.5 epochs are 15 steps, 5.75 an epoch' in said, f'`galley data` does not say how many steps: {said}')
    check(json.loads(run('data', 'epochs.lua', '--json', '--rows', 0, *SET).stdout)['steps'] == 15, 'nor does its JSON')


@case
def epoch_by_tokens():
    """It sees each of them once."""
    tokens = sum(x['tokens'] for x in trained(written('once', use('accumulate', tokens=60), rate, epochs=1)).lines)
    facts = json.loads(run('data', 'once.lua', '--json', '--rows', 0, *SET).stdout)['data'][0]
    check(tokens == facts['counted'] > 0, f'an epoch sees {tokens} of {facts["counted"]} tokens')


@case
def data_without_epochs():
    said = run('plan', recipe('random.lua', model, 'data.random { }', rate, batch=2, length=32, epochs=1), code=2).stderr
    check('random.lua' in said and 'has no epochs' in said and 'steps = 1000' in said, said)


# ---- The same metrics, and the rates, in TensorBoard's file -------------------------------------------------------------------------------


def fields(message):
    """{number: value} of a protocol buffer."""
    out, at = {}, 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
            if byte < 0x80:
                return value
    while at < len(message):
        number, kind = divmod(varint(), 8)
        if kind == 0:
            out[number] = varint()
            continue
        size = {1: 8, 2: None, 5: 4}[kind] or varint()
        out[number] = message[at:at + size]
        at += size
    return out


def events(out):
    """{(step, tag): number}."""
    file, = pathlib.Path(out).glob('events.out.tfevents.*')
    raw, at, found = file.read_bytes(), 0, {}
    while at < len(raw):
        size, = struct.unpack_from('<Q', raw, at)
        event = fields(raw[at + 12:at + 12 + size])
        at += size + 16
        if 5 in event:
            value = fields(fields(event[5])[1])
            found[event[2], value[1].decode()], = struct.unpack('<f', value[2])
    return found


def shown_of(line):
    """{tag: number} of a line of metrics."""
    if 'validation_loss' in line:
        return {'validation/loss': line['validation_loss'], **{f'validation/{x}': line[x] for x in ('perplexity', 'token_accuracy')}}
    rates = {f'speed/{x}_per_second': line[x] / line['seconds'] for x in ('positions', 'tokens')}
    return {**{f'train/{x}': line[x] for x in ('loss', 'grad_norm', 'lr', 'epoch')}, **rates}


@case
def tensorboard():
    shown = trained(written('shown', accumulate, rate, data=held_out, steps=3, validate=dict(every=2)))
    wanted = {(line['step'], tag): number for line in shown.lines for tag, number in shown_of(line).items()}
    found = events('shown')
    check(set(found) == set(wanted) and len(found) > 18, f'TensorBoard and the metrics differ in {sorted(set(found) ^ set(wanted))}')
    for (step, tag), number in wanted.items():
        got = found.get((step, tag))
        check(got is not None and abs(got - number) <= 0.02 * abs(number), f'TensorBoard, step {step}: {tag} is {got}, not {number}')
    check(shown.lines[0]['tokens'] < shown.lines[0]['positions'], 'the two rates are the same')


# ---- Killed after any step -------------------------------------------------------------------------------------------------------------


def files(out):
    return {str(p.relative_to(out)): p.read_bytes() for part in ('model', 'state', 'best') for p in sorted((pathlib.Path(out) / part).rglob('*')) if p.is_file()}


def steps_in(out):
    metrics = out / 'metrics.jsonl'
    return metrics.read_text().count('"loss"') if metrics.exists() else 0


def kill(out, words, step):
    """Kills the command after a step, before its model is there. Where it was faster, it begins again with what was there."""
    before = pathlib.Path(f'{out}-before')
    for _ in range(30):
        shutil.rmtree(before, ignore_errors=True)
        if out.exists():
            shutil.copytree(out, before)
        process = start(*words)
        seen = until(lambda: steps_in(out) >= step, process)
        process.kill()
        if end_of(process).returncode == -signal.SIGKILL and seen and not (out / 'model').exists():
            return
        shutil.rmtree(out, ignore_errors=True)
        if before.exists():
            before.rename(out)
    require(False, f'no kill has hit after step {step}')


def killed(name, *numbers):
    """The run, killed once after each of the steps, leaves what the other one has left."""
    out = pathlib.Path(f'{name}-killed')
    trained(name)
    words = ['train', f'{name}.lua', '--out', out, *SET]
    for number in numbers:
        kill(out, words, number)
        check(steps_in(out) >= number, f'killed after step {number}: there are {steps_in(out)} steps')
        words = ['resume', out]
    run('resume', out)
    for i, (a, b) in enumerate(together(lines(out), lines(name))):
        check(a == b, f'line {i + 1} of a run that was killed: {a}, not {b}')
    check(files(out) == files(name) and len(files(name)) > 3, 'the files of a run that was killed')


@case
def killed_within_epochs():
    killed(EPOCHS, 5, 12)


@case
def killed_around_the_best_state():
    best = best_of(trained(STOPPED))[1]
    killed(STOPPED, 3, best + 1, best + 5)


# ---- Early stopping and the best state ----------------------------------------------------------------------------------------------------


def validations(of):
    """[(loss, step)], but for that before the first step."""
    return [(x['validation_loss'], x['step']) for x in of.lines if 'validation_loss' in x and x['step'] > 0]


def best_of(of):
    return min(validations(of))


@case
def stops_early():
    stopped = trained(STOPPED)
    losses, (_, best) = validations(stopped), best_of(stopped)
    check(len(stopped.steps) < 400 and losses[-1][1] == len(stopped.steps), 'the run does not end with a validation')
    check([step for _, step in losses if step > best] == [best + 2, best + 4, best + 6], f'not three validations after the best: {losses}')
    check([x['step'] for x in stopped.lines if x.get('best')][-1] == best, 'metrics do not say which was the best')
    check(every(x['seconds'] > 0 for x in stopped.lines), 'validations have no seconds of their own')
    said = run('resume', STOPPED).stdout
    check(f'nothing left to do: all {len(stopped.steps)} steps' in said, f'it is not done: {said}')


@case
def best_state():
    best, _ = best_of(trained(STOPPED))
    loss = json.loads(run('eval', STOPPED, '--json').stdout)['validation_loss']
    check(abs(loss - best) < 1e-12, f'`galley eval` evaluates another state than the best: {loss}, {best}')
    saved = recipe('saved.lua', 'model { path = "stopped/model" }', held_out, hot, batch=2, length=32, steps=1, validate=dict(every=1))
    loss = json.loads(run('eval', saved, '--json', *SET).stdout)['validation_loss']
    check(abs(loss - best) < 1e-6, f'which is not the one that was saved: {loss}, {best}')
    run('export', STOPPED, '--out', 'again')
    check(every(x.read_bytes() == pathlib.Path('again', x.name).read_bytes() for x in pathlib.Path(STOPPED, 'model').iterdir()), '`galley export` exports another one')


@case
def hardly_lower_does_not_count():
    patient = trained(written('patient', hot, data=held_out, steps=12, validate=dict(every=2, patience=2, min_delta=100), save=dict(every=0)))
    check(len(patient.steps) == 6, f'a loss that is hardly lower counts: {len(patient.steps)} steps')
    check(not pathlib.Path('patient/best').exists(), 'something is kept that nobody asked for')


finish()
