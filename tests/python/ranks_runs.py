#!/usr/bin/env python3
"""Runs of several processes, from their start to their end: validation, saving, resuming with another number of them, stops, deaths, and what is refused."""
import json
import os
import pathlib
import re
import shutil
import signal
import time

from discrete_kit import discrete
from galley_test import case, cases, check, end_of, every, finish, fresh_folder, from_config, lines_of, program, run, Run, start, take_turns, until, use
from ranks_kit import children, left, mpirun, OPTIONS, rank_of, train_with
from steps_kit import recipes, refused, trained

fresh_folder()
config = dict(vocab_size=256, max_position_embeddings=32, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
with open('text.txt', 'w') as file:
    file.write('\n'.join(f'{i * 7919 % 1009} is the number of line {i}.' for i in range(200)))
text = 'data.text { files = { "text.txt" }, tokenizer = "bytes", validation = 0.2 }'
written = recipes(from_config('llama', **config), text, use('accumulate', steps=4), use('adamw', lr=1e-2), batch=2, length=16, seed=3, steps=6, lanes=4,
                  save=dict(every=2, keep=9))


def states(folder):
    return sorted(int(p.parent.name.split('-')[1]) for p in pathlib.Path(folder).glob('state/step-*/state.toml'))


def processes(n, *args):
    """n processes beside the test."""
    return start('-n', n, *OPTIONS, program, *args, executable=shutil.which('mpirun'))


@case
def validates_together():
    """Processes share the batches of a validation: the losses are those of one process, to the bit; so are early stopping and the best state."""
    path = written('validates', validate=dict(every=2, start=True, patience=2, min_delta=0.5), save=dict(best=True))
    one = trained(path, 'validates-1')
    check(sum('validation_loss' in x for x in one.lines) >= 3, 'there are no validations')
    for n in (2, 4):
        check(left(train_with(n, path, f'validates-{n}')) == left(one), f'{n} processes')
        names = [sorted(p.name for p in made.path.iterdir() if 'tfevents' not in p.name) for made in (one, Run(f'validates-{n}'))]
        check(names[0] == names[1], f'{n} processes leave other files: {names}')


@case
def validates_labels_together():
    """The same of an evaluation of labels."""
    for name, some in (('rows', range(40)), ('held', range(40, 63))):
        pathlib.Path(f'{name}.jsonl').write_text(''.join(json.dumps({'text': f'{i % 3} and {i}', 'label': 'abc'[i % 3]}) + '\n' for i in some))
    model = from_config('llama', **config)[:-2] + ', task = "sequence-classification" }'
    of_labels = recipes(model, 'data.jsonl { files = "rows.jsonl", tokenizer = "bytes", validation = "held.jsonl" }', use('accumulate', steps=2), use('adamw', lr=1e-2),
                        batch=2, length=16, seed=3, steps=3, lanes=2, validate=dict(every=1))
    path = of_labels('labels')
    one = trained(path, 'labels-1')
    check(every(x['accuracy'] >= 0 for x in one.lines if 'validation_loss' in x), 'no accuracy')
    check(left(train_with(2, path, 'labels-2')) == left(one), 'labels')


@case
def resumes_with_another_number():
    """A run goes on with any number of processes that divides its lanes."""
    path = written('goes-on', steps=8)
    whole = left(trained(path, 'goes-on'))
    mpirun(1, 'train', path, '--out', 'by-others', '--until', 2)
    for n, last in ((4, 4), (2, 6), (1, 8)):
        mpirun(n, 'resume', 'by-others', '--until', last)
    check(left(Run('by-others')) == whole, 'what one, four, two and one process leave is something else than what one leaves')
    said = mpirun(3, 'resume', 'goes-on', code=2).stderr
    check('the run has 4 lanes, which cannot be shared out over 3 processes' in said and 'start 1, 2 or 4 of them' in said, said)


@case
def stops_together():
    """A signal to one process stops all after the same step, which is saved."""
    path = written('stops', steps=4000, save=dict(every=4000))
    whole = processes(2, 'train', path, '--out', 'stops')
    check(until(lambda: pathlib.Path('stops/metrics.jsonl').exists() and len(lines_of('stops')) > 3, whole), 'no step was made')
    one, = [pid for pid in children(whole.pid) if rank_of(pid) == 1]
    os.kill(one, signal.SIGTERM)
    ended = end_of(whole)
    check(ended.returncode == 130, f'{ended}')
    check(re.search(r'galley: interrupted after step \d+, which is saved', ended.stderr) and ended.stderr.count('galley: interrupted') == 1, f'{ended}')
    check(len(states('stops')) == 1, f'{states("stops")}')


@cases({f'{dies}-of-{n}': (n, dies) for n, dies in ((2, 1), (4, 2), (2, 0))}, turns=3)
def a_death_is_named(_, who):
    """One process is killed: the others end within seconds and say which, where, and how to go on; the last state is whole."""
    n, dies = who
    path, out = written('dies', steps=4000), f'dies-{n}-{dies}'
    run_of = processes(n, 'train', path, '--out', out)
    check(until(lambda: len(states(out)) > 0, run_of), 'no state was saved')
    one, = [pid for pid in children(run_of.pid) if rank_of(pid) == dies]
    killed = time.monotonic()
    os.kill(one, signal.SIGKILL)
    ended = end_of(run_of)
    check(ended.returncode not in (None, 0) and time.monotonic() - killed < 10, f'{ended}')
    check(re.search(rf'rank {dies} \(machine \S+, process {one}\) died', ended.stderr), f'{ended}')
    check(re.search(r'the state of step \d+ is whole: mpirun -n \d galley resume', ended.stderr), f'{ended}')
    last = states(out)[-1] + 1
    run('resume', out, '--until', last)
    check(len(Run(out).steps) == last, f'{len(Run(out).steps)} steps, not {last}')
    check(not pathlib.Path(out, '.ranks').exists(), 'what the processes said to each other is left')


@case
def a_device_with_kernels_of_another():
    """A device of a plugin whose kernels are those of the processor: what joins processes there joins them here."""
    path = written('apart', steps=2)
    check(left(train_with(2, path, 'apart-2', *discrete)) == left(trained(path, 'apart-1', *discrete)), 'two processes leave something else than one')


@case
def errors_are_said_once():
    """What is wrong with a recipe or a directory."""
    path = written('wrong', use('adamw', lr=-1))
    for n in (1, 2):
        said = mpirun(n, 'train', path, '--out', 'wrong', code=2).stderr
        check(said.count('galley: ') == 1 and 'lr' in said, said)
    trained(written('there', steps=1), 'there')
    said = mpirun(2, 'train', written('there', steps=1), '--out', 'there', code=2).stderr
    check(said.count('is not empty') == 1, said)


@case
def starts_that_do_not_fit():
    """As many processes as lanes cannot be shared out over, another launcher, and commands of one process."""
    said = mpirun(5, 'train', written('five'), '--out', 'five', code=2).stderr
    check(said.count('the run has 4 lanes, which cannot be shared out over 5 processes') == 1, said)
    said = run('train', written('elsewhere'), '--out', 'elsewhere', code=2, RANK='1', WORLD_SIZE='2', LOCAL_RANK='1', LOCAL_WORLD_SIZE='2').stderr
    check("another launcher than Open MPI's has started this process, rank 1 of 2" in said, said)
    for command in (('eval', 'there'), ('sample', 'there', '--prompt', 'a'), ('plan', 'five.lua')):
        said = mpirun(2, *command, code=2).stderr
        check(said.count(f'galley {command[0]} takes one process, and mpirun has started 2') == 1, said)


take_turns(['validates_labels_together', 'a_device_with_kernels_of_another'], 2)
take_turns(['errors_are_said_once', 'starts_that_do_not_fit'], 2)
finish()
