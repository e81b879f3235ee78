#!/usr/bin/env python3
"""Runs of several processes with an emulated GPU each, over the plugin nccl: with the same lanes they leave the bytes of one process, whatever their number."""
import os
import pathlib
import re
import shutil
import signal
import time

from galley_test import binary, case, cases, check, end_of, every, finish, fresh_folder, from_config, program, run, Run, take_turns, until, use
from gpus_kit import GPU, begin, end, processes, train_with_gpus
from ranks_kit import left
from steps_kit import recipes, trained

fresh_folder()
config = dict(vocab_size=61, max_position_embeddings=32, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
written = recipes(from_config('llama', **config), 'data.random {}', batch=2, length=8, seed=3, steps=3, lanes=4)
of_one_layer = recipes(from_config('llama', **dict(config, num_hidden_layers=1)), 'data.random {}', batch=2, length=8, seed=3, steps=1, lanes=4)
FOUND = GPU[2:]  # what a run has recorded needs to be found only
four, adamw = use('accumulate', steps=4), use('adamw', lr=1e-2)
amp = use('amp', compute='bf16')
CASES = {
    'adamw': (adamw,),
    'clip': (amp, use('clip', norm=0.1), adamw),
    'lora': (use('quantize-nf4'), use('lora', rank=4, dropout=0.3), adamw),
    'seven-bytes': (use('amp', compute='bf16', weights='bf16'), use('adamw', lr=1e-2), use('split-states')),
    'zero-1': (amp, adamw, use('zero', stage=1, min_size=64)),
    'zero-2': (adamw, use('zero', stage=2, min_size=64)),
    'zero-3': (amp, use('clip', norm=0.1), adamw, use('zero', stage=3, min_size=64)),
}


def hidden(folder):
    return [x.name for x in pathlib.Path(folder).iterdir() if x.name.startswith('.galley-')]


@cases(CASES, turns=len(CASES))
def any_number_of_gpus(name, uses):
    path = written(name, four, *uses)
    one = left(trained(path, f'{name}-1', *GPU))
    for n in (2, 4) if name in ('adamw', 'zero-3') else (2,):
        check(left(train_with_gpus(n, path, f'{name}-{n}')) == one, f'{name}: {n} processes leave something else than one')
    check(not hidden('.'), f'files are left beside the run: {hidden(".")}')


@case
def stopped_and_resumed():
    """One process goes on where two have stopped, and two go on after it."""
    path = written('resumed', four, adamw)
    whole = left(trained(path, 'resumed-1', *GPU))
    train_with_gpus(2, path, 'resumed-2', '--until', '1')
    run('resume', 'resumed-2', *FOUND, '--until', '2')
    ended = processes(2, 'resume', 'resumed-2', *FOUND)
    check(every(one.returncode == 0 for one in ended), ended)
    check('rank 0 of 2 (torchrun, 1 machine)\n' in ended[0].stdout and not ended[1].stdout, ended)
    check(left(Run('resumed-2')) == whole, 'begun by two, continued by one and ended by two, it is another run')


@case
def validated():
    """Validation batches are shared, and a state is saved after each step."""
    pathlib.Path('text.txt').write_text('\n'.join(f'{i * 7919 % 1009} is the number of line {i}.' for i in range(60)))
    of_text = recipes(from_config('llama', **dict(config, vocab_size=256)), 'data.text { files = { "text.txt" }, tokenizer = "bytes", validation = 0.2 }', batch=2, seed=3, lanes=4)
    path = of_text('validates', four, use('clip', norm=0.1), adamw, steps=4, length=16, validate=dict(every=1, start=True), save=dict(every=1))
    check(left(train_with_gpus(2, path, 'validates-2')) == left(trained(path, 'validates-1', *GPU)), 'two processes leave something else than one')


@cases(['--reference', '--poison'])
def proved(flag):
    """Modes in which the host waits in other places: they change no byte."""
    path = of_one_layer('proved', four, use('clip', norm=0.1), adamw)
    check(left(train_with_gpus(2, path, f'proved{flag}', flag)) == left(trained(path, f'proved{flag}-1', *GPU)), f'{flag} leaves something else')


@case
def planned():
    """Processes with a GPU each are planned where there is neither a GPU nor NCCL, and the plans of all of them fit together."""
    path = written('planned', use('accumulate', steps=8), amp, adamw, lanes=8)
    for stage in (None, 3):
        if stage:
            path = written('planned-3', use('accumulate', steps=8), amp, adamw, use('zero', stage=stage, min_size=64), lanes=8)
        said = run('plan', path, '--ranks', 8, '--target', 'h100', '--check').stdout
        check("on the link 'nvlink'" in said and re.search(r'^  exchanges +\d+ a step', said, re.M), said)


def states(folder):
    return sorted(int(x.parent.name.split('-')[1]) for x in pathlib.Path(folder).glob('state/step-*/state.toml'))


@cases([1, 0], turns=2)
def killed(dies):
    """The others say who is gone, stop waiting for it, and keep nothing that they have computed without it."""
    path = written('killed', four, adamw, steps=5000, save=dict(every=1))
    out = f'killed-{dies}'
    started = begin(2, 'train', path, '--out', out, *GPU)
    check(until(lambda: len(states(out)) > 0, started[0]), 'no state was saved')
    os.kill(started[dies].pid, signal.SIGKILL)
    killed = time.monotonic()
    ended = end(started)[1 - dies]
    check(ended.returncode == 1 and time.monotonic() - killed < 30, ended)
    check(f'rank {dies} (machine ' in ended.stderr and f', process {started[dies].pid}) died' in ended.stderr and ' is whole: torchrun --no-python --nproc-per-node 2 galley resume ' in ended.stderr, ended)
    run('resume', out, '--until', states(out)[-1] + 1, *FOUND)
    for one in processes(2, 'resume', out, '--until', states(out)[-1] + 1, *FOUND):
        check(one.returncode == 0, one)
    steps = Run(out).steps
    whole = trained(written(f'whole-{dies}', four, adamw, steps=5000, save=dict(every=1)), f'whole-{dies}', *GPU, '--until', len(steps))
    check(steps == whole.steps and Run(out).bytes(f'state/step-{states(out)[-1]:08}/state.safetensors') == whole.bytes(f'state/step-{len(steps):08}/state.safetensors'),
          f'it goes on with other numbers than a run that nobody has killed: {steps}')


@case
def no_plugin():
    """An installation without the plugin that joins processes on this device."""
    folder = pathlib.Path('without')
    (folder / 'plugins').mkdir(parents=True)
    shutil.copy(program, folder / 'galley')
    (folder / 'models').symlink_to(binary / 'models')
    for plugin in (binary / 'plugins').iterdir():
        if plugin.name != 'nccl':
            (folder / 'plugins' / plugin.name).symlink_to(plugin)
    for one in processes(2, 'train', written('nobody', four, adamw), '--out', 'nobody', *GPU, executable=(folder / 'galley').absolute()):
        check(one.returncode == 2 and "no plugin joins processes on device 'cuda-emulated'" in one.stderr, one)


@cases(['metrics'], turns=6)
def stands_still(_):
    """A process that is stopped is given up; the others keep no number of the step in which they waited for it."""
    path = written('still', four, adamw, steps=5000, save=dict(every=1))
    started = begin(2, 'train', path, '--out', 'still', *GPU)
    check(until(lambda: len(states('still')) > 1, started[0]), 'no state was saved')
    os.kill(started[1].pid, signal.SIGSTOP)
    try:
        ended = end_of(started[0])
        check(ended.returncode == 1 and 'gives no sign' in ended.stderr, f'{ended}')
    finally:
        started[1].kill()
        end_of(started[1])
    steps = Run('still').steps
    whole = trained(written('still-whole', four, adamw, steps=5000, save=dict(every=1)), 'still-whole', *GPU, '--until', len(steps))
    check(len(steps) > 1 and steps == whole.steps, f'{steps}, and of a run that nobody has stopped {whole.steps}')


take_turns(['validated', 'proved:--reference', 'proved:--poison'], 3)
finish()
