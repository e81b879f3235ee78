#!/usr/bin/env python3
"""A stranger's strategy divides pairs of linear layers among processes that compute together (tensor parallelism). It is built with the installed SDK alone: gradients are PyTorch's, files
and states those of whole tensors, so that any number of processes goes on; what cannot be divided is refused by name."""
import json
import pathlib

from galley_test import batch_of, case, cases, check, error, every, finish, fixtures, fresh_folder, from_config, from_folder, load, plan, recipe, run, Run, source, together, use
from gpus_kit import train_with_gpus
from ranks_kit import left, mpirun
from sdk_kit import build
from steps_kit import recipes, refused, trained

fresh_folder()
plugins = '--plugin-path', build('tensor-pair', source / 'tests' / 'sdk' / 'tensor-pair', '''cmake_minimum_required(VERSION 3.25)
project(tensor-pair LANGUAGES CXX)
find_package(galley-sdk REQUIRED)
galley_add_plugin(MANIFEST plugin.toml SOURCES plugin.cpp)
''')
PAIR, TWO = use('tensor-pair'), dict(ranks=dict(tensor=2))
adamw, clip = use('adamw', lr=1e-2), use('clip', norm=0.1)
config = dict(vocab_size=300, max_position_embeddings=32, hidden_size=128, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
begin = trained(recipe('begin.lua', from_config('llama', **config), 'data.random {}', use('sgd', lr=1e-3), batch=1, length=8, seed=5, steps=1), 'begin')
written = recipes(from_folder(begin.path / 'model'), 'data.random {}', batch=1, length=8, seed=3, steps=4, save=dict(every=2, keep=9), **TWO)


def train_with(n, path, out, *flags, command='train'):
    mpirun(n, command, path, '--out', out, *flags, *plugins)
    return Run(out)


def alone(path, out):
    return trained(path, out, *plugins)


def losses(of):
    return [x['loss'] for x in of.lines if 'loss' in x]


def close(a, b, what, most=2e-5):
    check(every(abs(x / y - 1) < most for x, y in together(losses(a), losses(b))), f'{what}: losses {losses(a)} and {losses(b)}')
    one, other = (load(next(x.path.glob('*/*model.safetensors'))) for x in (a, b))
    check(one.keys() == other.keys() and every(one[k][:2] == other[k][:2] for k in one), f'{what}: tensors or their shapes')
    check(every(error(one[k][2], other[k][2], 1e-3) < 50 * most for k in one), f'{what}: the models differ')


RATE = 1024.0  # so that little of a gradient is rounded away when it is subtracted


@cases({'two': ('llama-gqa-tied', 2, 1), 'four': ('llama-gqa-tied', 4, 3), 'qwen': ('qwen2-bias-tied', 4, 3), 'window': ('mistral-window', 2, 1)}, turns=4)
def as_pytorch(out, what):
    """The gradients of a whole batch: a step of SGD leaves them in the weights."""
    name, n, micro_batches = what
    folder = fixtures / 'models' / name
    expect, expected = json.loads((folder / 'expect.json').read_text()), load(folder / 'expect.safetensors')
    rows = next(iter(load(folder / 'batch.safetensors').values()))[1][0]
    path = recipe(f'{out}.lua', from_folder(folder), batch_of(folder / 'batch.safetensors'), use('accumulate', steps=micro_batches), PAIR, use('sgd', lr=RATE), batch=rows // micro_batches,
                  steps=1, **TWO)
    made = train_with(n, path, out, '--reference')
    loss, grad_norm = made.steps[0]
    check(error([loss], [expect['loss']]) <= 1e-6 and error([grad_norm], [expect['grad_norm']]) <= 1e-6, f'{loss}, {grad_norm}, and not {expect}')
    before, after, found = load(folder / 'model.safetensors'), load(made.path / 'model/model.safetensors'), 0
    for key, (_, _, gradient) in expected.items():
        weight = key.removeprefix('grad.')
        if key.startswith('grad.') and weight in after:
            found += 1
            moved = [(a - b) / RATE for a, b in together(before[weight][2], after[weight][2])]
            check(error(moved, gradient, 1e-3 * expect['grad_norm']) <= 1e-6, f'{weight} is off')
    check(found > 5, f'{found} gradients were compared')


CASES = {
    'adamw': (clip, adamw),
    'bf16': (use('amp', compute='bf16'), use('recompute'), adamw),
    'fp16': (use('amp', compute='fp16'), clip, adamw),
    'lora': (use('lora', rank=4, dropout=0.3, targets=['q_proj', 'v_proj']), adamw),  # what is divided is frozen
    'ema': (use('ema', decay=0.9), use('sgd', lr=1e-2, momentum=0.9)),
}


@cases(CASES, turns=4)
def trains(name, uses):
    """Two groups of two leave whole tensors, at every stage of zero the same bytes, and go on to them; one process computes the same but for rounding, and goes on with their states."""
    path = written(name, PAIR, use('accumulate', steps=4), *uses, lanes=4)
    one, four = alone(path, f'{name}-1'), train_with(4, path, f'{name}-4')
    rough = name in ('bf16', 'fp16')
    close(four, one, name, 1e-2 if rough else 2e-5)
    check(left(train_with(2, path, f'{name}-2')) == left(four), f'{name}: one group leaves other bytes than two')
    for stage in (1, 3):
        divided = train_with(4, written(f'{name}-z{stage}', use('zero', stage=stage, min_size=1), PAIR, use('accumulate', steps=4), *uses, lanes=4), f'{name}-z{stage}')
        check(states(divided) == states(four), f'{name}: stage {stage} of zero leaves other bytes')
    out = f'{name}-resumed'
    mpirun(4, 'train', path, '--out', out, '--until', 2, *plugins)
    mpirun(2, 'resume', out, *plugins)
    check(left(Run(out)) == left(four), f'{name}: a resumed run leaves other bytes')
    mpirun(2, 'train', path, '--out', f'{out}-1', '--until', 2, *plugins)
    run('resume', f'{out}-1', *plugins)
    close(Run(f'{out}-1'), one, f'{name}, resumed by one process', 1e-2 if rough else 2e-5)


def states(of):
    """What left() has but the states' texts, which have the recipe's hash."""
    files, metrics = left(of)
    return {name: value for name, value in files.items() if not name.endswith('state.toml')}, metrics


@case
def proofs():
    """Kernels against their definitions, poisoned memory, the programs of all processes beside each other; a validation; GPUs, emulated."""
    path = written('proofs', PAIR, use('accumulate', steps=2), clip, adamw, lanes=2)
    said = run('plan', path, '--ranks', 4, '--check', *plugins).stdout
    check('2 neighbours compute the same micro-batches' in said, said)
    whole = left(train_with(4, path, 'proofs'))
    check(left(train_with(4, path, 'proofs-checked', '--reference', '--poison')) == whole, 'a checked run leaves something else')
    close(train_with_gpus(2, written('gpus', PAIR, clip, adamw), 'gpus', *plugins), alone(written('gpu-1', PAIR, clip, adamw), 'gpu-1'), 'GPUs')


@case
def validates():
    """Each group has some of the validation's batches."""
    pathlib.Path('text.txt').write_text(''.join(f'{i} is the number {i * i}. ' for i in range(60)))
    path = recipe('valid.lua', from_folder(begin.path / 'model'), 'data.text { files = { "text.txt" }, tokenizer = "bytes", validation = 0.1 }', PAIR, use('accumulate', steps=2), adamw, batch=1, length=8, seed=3, steps=2,
                  lanes=2, validate=dict(every=1), **TWO)
    one, four = ([x['validation_loss'] for x in of.lines if 'validation_loss' in x] for of in (alone(path, 'valid-1'), train_with(4, path, 'valid-4')))
    check(len(one) > 1 and every(abs(a / b - 1) < 1e-5 for a, b in together(one, four)), f'{one} and {four}')


@case
def from_nothing():
    """A new model begins with the numbers of one process."""
    path = recipe('new.lua', from_config('llama', **config), 'data.random {}', PAIR, adamw, batch=1, length=8, seed=5, steps=3, **TWO)
    close(train_with(2, path, 'new-2'), alone(path, 'new-1'), 'a new model')


@case
def takes_less():
    """A process has half of the divided weights, their gradients and states; parameters are those of the whole model."""
    path = written('less', PAIR, adamw)
    one, two = (plan(path, *flags, *plugins) for flags in ((), ('--ranks', 2)))
    check(one['parameters'] == two['parameters'], f'{one["parameters"]} and {two["parameters"]} parameters')
    half = 2 * 3 * 128 * 384 * 4 // 2  # two layers of three weights, F32
    of = lambda plan_of, owner: sum(c['owners'][owner] for c in plan_of['classes'].values())
    weights, states = (of(one, owner) - of(two, owner) for owner in ('weights', 'states'))
    check(half <= weights < half + 4096 and 2 * half <= states < 2 * half + 4096, f'{weights} and {states} bytes less, {half} and {2 * half} are expected')


@case
def compared():
    """One process trains in the place of two, and says that rounding differs; what fits is judged by what each of them needs."""
    paths = written('arm-a', PAIR, adamw, steps=2), written('arm-b', PAIR, use('sgd', lr=1e-2), steps=2)
    said = run('compare', *paths, '--ranks', 2, '--out', 'both', *plugins).stdout
    check('up to the rounding of sums between them' in said, said)
    path = written('offers', PAIR, 'one_of { use "adamw" { lr = 1e-2 }, use "sgd" { lr = 1e-2 } }')
    said = run('fit', path, '--ranks', 2, '--memory', '1GiB', *plugins).stdout
    check('2 combinations for 2 processes' in said, said)


@case
def checked():
    said = run('check', plugins[1] / 'tensor-pair').stdout
    check('nothing found' in said, said)


@case
def refusals():
    other = 'start a multiple of 2 processes, or one'
    refused(written('three', PAIR, adamw), "2 processes along 'tensor' compute together, and the run has 3", other, flags=('--ranks', 3, *plugins))
    two = '--ranks', 2, *plugins
    refused(written('lora', PAIR, use('lora', rank=4), adamw), "lora (", 'is trained in', 'targets', flags=two)
    refused(written('muon', PAIR, use('muon', lr=1e-2, rest_lr=1e-2)), "muon", 'takes all of it together', flags=two)
    refused(written('adafactor', PAIR, use('adafactor')), 'adafactor', flags=two)
    refused(written('nf4', PAIR, use('quantize-nf4'), use('lora', rank=4, targets=['*.q_proj']), adamw), "the format 'four-bit'", flags=two)
    refused(written('eight', PAIR, use('adamw8bit', lr=1e-2)), 'the format', flags=two)
    refused(written('within', PAIR, use('zero', stage=3, min_size=1, within='tensor'), adamw), "whose processes compute together", flags=two)
    refused(written('nothing', adamw), 'no strategy divides anything among them', flags=two)
    refused(written('axis', use('tensor-pair', axis='rows'), adamw), "no axis 'rows'", flags=two)
    refused(written('texts', PAIR, adamw, evaluate=dict(prompts='p.jsonl', match='exact', every=1)), "'evaluate' lets one process write texts, and 2 along 'tensor' compute together", flags=two)
    refused(written('odd', PAIR, adamw, ranks=dict(tensor=5)), 'no equal parts', flags=('--ranks', 5, *plugins))
    for wrong in (dict(tensor=0), dict(tensor=2, data=2), 2, dict(data=2)):
        refused(written('wrong', PAIR, adamw, ranks=wrong), 'ranks', flags=plugins)


finish()
