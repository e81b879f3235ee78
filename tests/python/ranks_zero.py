#!/usr/bin/env python3
"""Weights, gradients and states divided between processes: a run leaves the bytes of one whose processes have all of them, at every stage and with any number of processes."""
import json
import pathlib
import re
import sys

from galley_test import case, cases, check, every, finish, fresh_folder, from_config, from_folder, galley, plan, program, run, Run, sets_of, strategies, turn, use
from ranks_kit import left, mpirun, OPTIONS, train_with
from steps_kit import planned, recipes, trained

fresh_folder()
# Large enough that some tensors have several blocks of 16,384 numbers, by which updates are divided, and some have one.
config = dict(vocab_size=300, max_position_embeddings=32, hidden_size=128, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
model = from_config('llama', **config)
written = recipes(model, 'data.random {}', batch=1, length=8, seed=3, steps=3, lanes=4)
of_one_layer = recipes(from_config('llama', **dict(config, num_hidden_layers=1)), 'data.random {}', batch=1, length=8, seed=3, steps=1, lanes=4)
four, adamw, lora = use('accumulate', steps=4), use('adamw', lr=1e-2), use('lora', rank=4, dropout=0.3)
CASES = {
    'adamw': (adamw,),
    'clip': (use('clip', norm=0.1), adamw),
    'bf16': (use('amp', compute='bf16'), adamw),
    'fp16': (use('amp', compute='fp16'), adamw),
    'lora': (lora, adamw),
    'nf4': (use('quantize-nf4', double=True), lora, adamw),
    'int8': (use('quantize-int8'), lora, adamw),
    'adamw8': (use('adamw8bit', lr=1e-2),),
    'adafactor': (use('adafactor', lr=1e-2),),
    'muon': (use('muon', lr=1e-2, rest_lr=1e-2),),
    'split': (use('amp', compute='bf16'), use('split-states'), adamw),
    'ema': (adamw, use('ema', decay=0.9)),
    'recompute': (use('recompute', policy='every'), adamw),
    'sgd': (use('sgd', lr=0.1),),
}
STAGES = (1, 2, 3)
REFUSED = {'update-in-backward': 'a window has 4 micro-batches that add to them'}  # with what is said


def tensors(run_of):
    """What left() has but the states' texts, which have the recipe's hash."""
    files, metrics = left(run_of)
    return {name: value for name, value in files.items() if not name.endswith('state.toml')}, metrics


@cases({f'{name}-{stage}': (name, stage) for name in CASES for stage in STAGES}, turns=len(CASES))
def every_stage(label, what):
    name, stage = what
    whole = tensors(trained(written(f'{label}-whole', four, *CASES[name]), f'{label}-whole'))
    path = written(label, four, use('zero', stage=stage, min_size=1), *CASES[name])
    one = left(trained(path, f'{label}-1'))
    check(tensors(Run(f'{label}-1')) == whole, f'{label}: with one process, zero changes something')
    for n in (2, 4):
        check(left(train_with(n, path, f'{label}-{n}')) == one, f'{label}: {n} processes leave something else than one')


text = 'data.text { files = { "text.txt" }, tokenizer = "bytes", validation = 0.2 }'
pathlib.Path('text.txt').write_text('\n'.join(f'{i * 7919 % 1009} is the number of line {i}.' for i in range(200)))
of_text = recipes(from_config('llama', **dict(config, vocab_size=256)), text, four, adamw, batch=2, length=16, seed=3, steps=6, lanes=4, save=dict(every=2, keep=9))
zero = {stage: use('zero', stage=stage, min_size=1) for stage in STAGES}


@case
def validates_and_writes():
    """Validation, early stopping, the best state, and texts, which all processes compute though one of them writes them; the number of batches is no multiple of theirs."""
    pathlib.Path('prompts.jsonl').write_text(json.dumps(dict(prompt='1 is', answer='the number')) + '\n')
    path = of_text('validates', zero[3], validate=dict(every=2, start=True, patience=2, min_delta=0.5), save=dict(best=True),
                   evaluate=dict(prompts='prompts.jsonl', every=3, tokens=4))
    one = trained(path, 'validates-1')
    check(sum('validation_loss' in x for x in one.lines) >= 3, 'there are no validations')
    for n in (2, 4):
        check(left(train_with(n, path, f'validates-{n}')) == left(one), f'{n} processes')


@cases([1, 3], turns=2)
def resumes_with_another_number(stage):
    """A state is of whole tensors: any number of processes goes on with it."""
    path = of_text(f'goes-on-{stage}', zero[stage], steps=8)
    whole = left(trained(path, f'goes-on-{stage}'))
    out = f'goes-on-{stage}-by-others'
    mpirun(1, 'train', path, '--out', out, '--until', 2)
    for n, last in ((4, 4), (2, 6), (1, 8)):
        mpirun(n, 'resume', out, '--until', last)
    check(left(Run(out)) == whole, f'stage {stage}: what one, four, two and one process leave is something else than what one leaves')


@cases(STAGES, turns=3)
def proofs_of_several(stage):
    """Reference mode computes exchanges again from what all have; poison mode runs what it may twice, and fills with junk what nobody may read."""
    path = of_one_layer(f'proofs-{stage}', four, zero[stage], *CASES['clip'])
    one = left(trained(path, f'proofs-{stage}-1'))
    said = mpirun(2, 'train', path, '--out', f'proofs-{stage}-reference', '--reference', '--reference-out', f'reference-{stage}.json').stderr
    check(said.count('micro') > 0 and left(Run(f'proofs-{stage}-reference')) == one, said)
    compared = json.dumps(json.loads(pathlib.Path(f'reference-{stage}.json').read_text()))
    check('reduce_scatter' in compared and 'block_squares' in compared, f'what was compared: {compared}')
    check(left(train_with(2, path, f'proofs-{stage}-poison', '--poison')) == one, f'poison mode, stage {stage}')


@cases({'f32': (), 'bf16': (use('amp', compute='bf16'),), 'nf4': (use('quantize-nf4'), lora), 'int8': (use('quantize-int8'), lora), 'stored': (use('amp', compute='bf16'), lora)},
       turns=5)
def begins_with_files(name, uses):
    """Each process reads its parts of a model's files, those that are packed as they come too; the files' other tensors are not unknown."""
    path = written(f'{name}-base', four, adamw, steps=1, save=dict(dtype='bf16') if name == 'stored' else {})
    trained(path, f'{name}-base')
    of_files = recipes(from_folder(pathlib.Path(f'{name}-base/model').resolve()), 'data.random {}', batch=1, length=8, seed=3, steps=2, lanes=4)
    path = of_files(name, four, zero[3], *uses, adamw)
    one = left(trained(path, f'{name}-1'))
    for n in (2, 4):
        check(left(train_with(n, path, f'{name}-{n}')) == one, f'{name}: {n} processes leave something else than one')
    check(left(train_with(2, path, f'{name}-reference', '--reference')) == one, f'{name}: a checked run leaves something else')
    read = re.findall(r"^load\[\d+\] read '([^']+)'.* -> w ([^,]+)", run('plan', path, '--dump', 'place', '--ranks', 4).stdout, re.M)
    check(len(read) > 5, f'{read}')


def bytes_of(plan):
    """{owner: bytes} at the peak of the memory from which kernels compute."""
    return next(iter(plan['classes'].values()))['owners']


@cases({f'{name}-{stage}': (name, stage) for name in ('adamw', 'bf16') for stage in STAGES}, turns=3)
def what_each_has(label, what):
    """Of what is divided, the processes have together what one has alone; and each has its share, within a block of each tensor."""
    name, stage = what
    whole = bytes_of(plan(written(f'{name}-alone', four, *CASES[name])))
    path = written(f'{label}-has', four, zero[stage], *CASES[name])
    for n in (2, 4):
        parts = [bytes_of(plan(path, '--ranks', n, '--rank', r)) for r in range(n)]
        states, weights = ([x[owner] for x in parts] for owner in ('states', 'weights'))
        check(abs(sum(states) - whole['states']) <= 64 * 40 * n and max(states) - min(states) <= whole['states'] / 4, f'states {states} of {whole}')
        if stage == 3:
            check(abs(sum(weights) - whole['weights']) <= 64 * 40 * n, f'weights {weights} of {whole}')
        elif name == 'adamw':
            check(min(weights) == max(weights) == whole['weights'], f'weights {weights} of {whole}')


@case
def resident_memory():
    """What the system sees of each process is what its plan says, beside the program itself: from loading on, nobody has the whole model."""
    pathlib.Path('measured.py').write_text("""import os, resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
open('resident-' + os.environ['OMPI_COMM_WORLD_RANK'], 'w').write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024))
sys.exit(code)
""")
    large = dict(config, vocab_size=4096, hidden_size=512, intermediate_size=1536, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=8)
    base = recipes(from_config('llama', **large), 'data.random {}', adamw, batch=1, length=8, seed=3, steps=1)('large-base')
    trained(base, 'large-base')
    path = recipes(from_folder(pathlib.Path('large-base/model').resolve()), 'data.random {}', four, zero[3], adamw, batch=1, length=8, seed=3, steps=1, save=dict(final=False))('large')
    ended = galley('-n', 4, *OPTIONS, sys.executable, 'measured.py', program, 'train', path, '--out', 'large', *sets_of(path), executable='mpirun', timeout=300)
    check(ended.returncode == 0, f'{ended}')
    whole = planned(path)
    for r in range(4):
        own = planned(path, '--ranks', 4, '--rank', r)
        expected, alone = (next(iter(x['classes'].values()))['planned'] for x in (own, whole))
        resident = int(pathlib.Path(f'resident-{r}').read_text())
        check(resident <= expected + 110e6, f'process {r}: {resident} bytes resident, {expected} planned')
        check(expected < alone / 2.5, f'process {r}: {expected} planned, {alone} for one process alone')


def exchanges(path, *flags):
    """What a plan exchanges, in its order: segment, kernel, node, and the whole's shape."""
    return re.findall(r"^(\w+)\[\d+\] (?:when [^:]*: )?((?:all_reduce|all_reduce_here|reduce_scatter|all_gather|all_gather_here)\.\w+) '([^']+)'",
                      run('plan', path, '--dump', 'overlap', *flags).stdout, re.M)


uses, beside = strategies()
complete = {name: [uses[n] for n in dict.fromkeys([name, *beside.get(name, ())[:1]])] for name in uses if name != 'zero'}
small = recipes(from_config('gpt2', vocab_size=61, n_positions=32, n_embd=32, n_layer=3, n_head=4), 'data.random {}', batch=2, length=16, steps=3, seed=9, lanes=4)


@cases({f'{name}-{stage}': (name, stage) for name in complete if name not in ('accumulate', 'offload-activations', 'offload-optimizer') for stage in STAGES}, turns=len(STAGES))
def beside_others(label, what):
    """Each strategy beside each stage: all processes exchange the same in the same order, so that none waits for ever; their plans are proved on the shadow device. With
    each commit all strategies are beside one stage."""
    name, stage = what
    words = [zero[stage], *complete[name]]
    said = planned_order(label, words)
    if isinstance(said, str) and ('no strategy updates it' in said or 'needs an optimizer' in said):
        said = planned_order(label, [*words, adamw])
    if isinstance(said, str):
        return check('exit code 2' in said and name in REFUSED and REFUSED[name] in said, said)
    check(name not in REFUSED, f'{name} is no longer refused')
    check(len(said[0]) > 20 and every(p == said[0] for p in said), f'processes exchange {said}')


def planned_order(label, words):
    """What processes exchange: two of four, or all four in `make test-all`; the plan of the first proves besides that those of all fit together. Or what planning says."""
    path = small(label, use('accumulate', steps=4), *words)
    first = turn(4)
    ranks = range(4) if first is None else (first, (first + 1) % 4)
    try:
        for r in ranks if first is None else ranks[:1]:
            planned(path, '--ranks', 4, '--rank', r)
        return [exchanges(path, '--ranks', 4, '--rank', r) for r in ranks]
    except SystemExit as failed:
        return str(failed)


finish()
