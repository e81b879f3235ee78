#!/usr/bin/env python3
"""How long a run is and which of its states is the best: epochs instead of steps, early stopping, the state of the lowest validation loss; the same after runs
that were interrupted at any step. The standard library only."""
import json
import os
import pathlib
import signal
import struct
import subprocess
import time

from galley_test import check, every, finish, fresh_folder, from_config, program, recipe, run, Run, use

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


def lines(out, *without):
    return [{k: v for k, v in x.items() if k not in ('seconds', *without)} for x in Run(out).lines]


def trained(name, *uses, data=data, **entries):
    run('train', recipe(f'{name}.lua', model, data, *uses, batch=2, length=32, **entries), '--out', name, *SET)
    return Run(name)


# ---- Epochs ---------------------------------------------------------------------------------------------------------------------------

# 23 rows in windows of 4: two epochs and a half are 57.5 rows, 15 windows, the last of which is short.
accumulate = use('accumulate', steps=2)
by_epochs = trained('epochs', accumulate, rate, epochs=2.5)
by_steps = trained('steps', accumulate, rate, steps=15)
check(len(by_epochs.steps) == 15, f'2.5 epochs are 15 steps: {len(by_epochs.steps)}')
check(lines('epochs')[:14] == lines('steps')[:14], 'up to the last window they are the steps of a run that says so')
last, whole = by_epochs.lines[-1], by_steps.lines[-1]
check(last['epoch'] == 58 / 23 and last['tokens'] < whole['tokens'] and last['positions'] == 64, f'the last window is short: {last}, {whole}')
check([x['epoch'] for x in by_epochs.lines[:3]] == [4 / 23, 8 / 23, 12 / 23], 'metrics say the epoch')
planned = [{k: v for k, v in x.memory.items() if k != 'process'} for x in (by_epochs, by_steps)]
check(json.loads(json.dumps(planned[0]).replace('epochs.lua', 'steps.lua')) == planned[1], 'the plan does not depend on the number of steps')
check('2.5 epochs; how many steps' in run('plan', 'epochs.lua', *SET).stdout, '`galley plan` says what it knows')
said = run('data', 'epochs.lua', *SET).stdout
check('2.5 epochs are 15 steps, 5.75 an epoch' in said, f'`galley data` says how many steps: {said}')
check(json.loads(run('data', 'epochs.lua', '--json', '--rows', 0, *SET).stdout)['steps'] == 15, 'and so does its JSON')
tokens = sum(x['tokens'] for x in trained('once', use('accumulate', tokens=60), rate, epochs=1).lines)
facts = json.loads(run('data', 'once.lua', '--json', '--rows', 0, *SET).stdout)['data'][0]
check(tokens == facts['counted'], f'by tokens, too, an epoch sees each of them once: {tokens} of {facts["counted"]}')
refused = run('plan', recipe('random.lua', model, 'data.random { }', rate, batch=2, length=32, epochs=1), code=2).stderr
check('random.lua' in refused and 'has no epochs' in refused and 'steps = 1000' in refused, refused)


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


shown = trained('shown', accumulate, rate, data=held_out, steps=3, validate=dict(every=2))
found = events('shown')
for line in shown.lines:
    wanted = {'validation/loss': line['validation_loss']} if 'validation_loss' in line else {
        'train/loss': line['loss'], 'train/grad_norm': line['grad_norm'], 'train/lr': line['lr'], 'train/epoch': line['epoch'],
        'speed/positions_per_second': line['positions'] / line['seconds'], 'speed/tokens_per_second': line['tokens'] / line['seconds']}
    for tag, number in wanted.items():
        got = found.pop((line['step'], tag), None)
        check(got is not None and abs(got - number) <= 0.02 * abs(number), f'TensorBoard, step {line["step"]}: {tag} is {got}, not {number}')
check(not found, f'TensorBoard has more than the metrics: {sorted(found)}')
check(shown.lines[0]['tokens'] < shown.lines[0]['positions'], 'the two rates are the same')


# ---- Interrupted at any step ------------------------------------------------------------------------------------------------------------


def files(out):
    return {str(p.relative_to(out)): p.read_bytes() for part in ('model', 'state', 'best') for p in sorted((pathlib.Path(out) / part).rglob('*')) if p.is_file()}


def killed(name, *numbers):
    """The run, killed once behind each of the steps."""
    out = pathlib.Path(f'{name}-killed')
    words = ['train', f'{name}.lua', '--out', out, *SET]
    for number in numbers:
        p = subprocess.Popen([program, *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        metrics = out / 'metrics.jsonl'
        while p.poll() is None and (not metrics.exists() or metrics.read_text().count('"loss"') < number):
            time.sleep(0.001)
        p.send_signal(signal.SIGKILL)
        p.wait()
        words = ['resume', out]
    run('resume', out)
    check(lines(out) == lines(name), f'{name}: the lines of a run that was killed')
    check(files(out) == files(name), f'{name}: the files of a run that was killed')


killed('epochs', 5, 12)

# ---- Early stopping and the best state ----------------------------------------------------------------------------------------------------

# A rate at which the loss on what is held out falls first and then rises.
hot = use('adamw', lr=0.02)
entries = dict(data=held_out, steps=400, validate=dict(every=2, start=True, patience=3), save=dict(every=5, keep=2, best=True))
stopped = trained('stopped', hot, **entries)
losses = [(x['validation_loss'], x['step']) for x in stopped.lines if 'validation_loss' in x and x['step'] > 0]
best = min(losses)
check(len(stopped.steps) < 400 and losses[-1][1] == len(stopped.steps), 'the run ends with a validation')
check([s for _, s in losses if s > best[1]] == [best[1] + 2, best[1] + 4, best[1] + 6], f'three validations behind the best: {losses}')
check([x['step'] for x in stopped.lines if x.get('best')][-1] == best[1], 'metrics say which was the best')
check(every(x['seconds'] > 0 for x in stopped.lines), 'validations have seconds of their own')
evaluated = json.loads(run('eval', 'stopped', '--json').stdout)['validation_loss']
check(abs(evaluated - best[0]) < 1e-12, f'`galley eval` evaluates the best state: {evaluated}, {best}')
exported = recipe('exported.lua', 'model { path = "stopped/model" }', held_out, hot, batch=2, length=32, steps=1, validate=dict(every=1))
check(abs(json.loads(run('eval', exported, '--json', *SET).stdout)['validation_loss'] - best[0]) < 1e-6, 'which is the one that was exported')
run('export', 'stopped', '--out', 'again')
check(every(x.read_bytes() == pathlib.Path('again', x.name).read_bytes() for x in pathlib.Path('stopped/model').iterdir()), '`galley export` exports it, too')
check(f'nothing left to do: all {len(stopped.steps)} steps' in run('resume', 'stopped').stdout, 'it is done')
killed('stopped', 3, best[1] + 1, best[1] + 5)

patient = trained('patient', hot, **{**entries, 'steps': 12, 'validate': dict(every=2, patience=2, min_delta=100), 'save': dict(every=0)})
check(len(patient.steps) == 6, f'a loss that is hardly lower does not count: {len(patient.steps)}')
check(not pathlib.Path('patient/best').exists(), 'nothing is kept that nobody asked for')

finish()
