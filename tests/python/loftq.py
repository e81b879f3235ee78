#!/usr/bin/env python3
"""LoftQ: A and B begin with what weights lose in 4 bit. They, and the weights, are those of a computation here by hand; the error falls with each iteration; what is
saved goes on; nothing lies in memory twice; and what is refused."""
import functools
import json
import math
import operator
import pathlib
import re
import shutil
import struct

from discrete_kit import discrete
from galley_test import binary, case, cases, check, error, finish, fresh_folder, from_config, from_folder, load, norm, recipe, require, run, together, use
from steps_kit import planned, recipes, refused, trained

fresh_folder()
gpu = ['--device', 'cuda-emulated', '--plugin-path', binary / 'emulated']
entries = dict(batch=1, length=8, steps=1, seed=4)
nf4, still = use('quantize-nf4'), use('sgd', lr=1e-30)
rank, alpha = 4, 8
families = {
    'llama': from_config('llama', vocab_size=61, hidden_size=32, intermediate_size=40, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
                         max_position_embeddings=16, tie_word_embeddings=True),
    'gpt2': from_config('gpt2', vocab_size=61, n_positions=16, n_embd=24, n_layer=1, n_head=2),
}
book = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
        0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]


def loftq(iterations=None, **more):
    return use('lora', rank=rank, alpha=alpha, targets='all-linear', init='loftq', **({} if iterations is None else dict(loftq_iter=iterations)), **more)


# ---- By hand ----------------------------------------------------------------------------------------------------------------------------
def stored(numbers):
    """What NF4 keeps of numbers, in blocks of 64."""
    bounds = [(a + b) / 2 for a, b in zip(book, book[1:])]
    out = []
    for at in range(0, len(numbers), 64):
        block = [struct.unpack('f', struct.pack('f', x))[0] for x in numbers[at:at + 64]]
        absmax = max(map(abs, block))
        out += [book[sum(x / absmax > b for b in bounds)] * absmax for x in block]
    return out


def principal(numbers, rows, columns, r):
    """B·A of the r largest singular values: rotations that make the columns orthogonal (Hestenes), as many of them as it takes."""
    if columns > rows:
        turned = principal([numbers[i * columns + k] for k in range(columns) for i in range(rows)], columns, rows, r)
        return [turned[k * rows + i] for i in range(rows) for k in range(columns)]
    columns_of = [[numbers[i * columns + k] for i in range(rows)] for k in range(columns)]
    turned = [[float(i == k) for i in range(columns)] for k in range(columns)]
    for _ in range(40):
        worst = 0.0
        for p in range(columns):
            for q in range(p + 1, columns):
                a, b = columns_of[p], columns_of[q]
                aa, bb, ab = (math.sumprod(x, y) if hasattr(math, 'sumprod') else sum(map(operator.mul, x, y)) for x, y in ((a, a), (b, b), (a, b)))
                if abs(ab) <= 1e-12 * max(aa, bb):
                    continue
                worst = max(worst, abs(ab) / max(aa, bb))
                zeta = (bb - aa) / (2 * ab)
                t = math.copysign(1, zeta) / (abs(zeta) + math.sqrt(1 + zeta * zeta))
                c = 1 / math.sqrt(1 + t * t)
                for of in (columns_of, turned):
                    x, y = of[p], of[q]
                    of[p], of[q] = [c * v - c * t * w for v, w in zip(x, y)], [c * t * v + c * w for v, w in zip(x, y)]
        if worst < 1e-10:
            break
    largest = sorted(range(columns), key=lambda k: -norm(columns_of[k]))[:r]
    return [sum(columns_of[k][i] * turned[k][j] for k in largest) for i in range(rows) for j in range(columns)]


def by_hand(w, rows, columns, iterations):
    """What the weight and B·A begin as: PEFT's loftq_init."""
    product = [0.0] * len(w)
    for _ in range(iterations):
        kept = stored([x - y for x, y in zip(w, product)])
        product = principal([x - y for x, y in zip(w, kept)], rows, columns, rank)
    return kept, product


# ---- The program ------------------------------------------------------------------------------------------------------------------------
@functools.cache
def base_of(family):
    """The folder of a model, and its linear layers."""
    made = trained(recipe(f'{family}.lua', families[family], 'data.random {}', use('sgd', lr=0.5), **{**entries, 'steps': 3}), family)
    base = (made.path / 'model').resolve()
    layers = {n: x for n, x in load(base / 'model.safetensors').items() if is_layer(n, x[1])}
    require(layers, f'{family} has no linear layers')
    return base, layers


def is_layer(name, shape):
    return len(shape) == 2 and not any(x in name for x in ('embed', 'wte', 'wpe', 'lm_head'))


def of_adapter(folder, weight):
    """scaling · B·A as the weight lies, of what a run has saved."""
    file = load(next(pathlib.Path(folder).rglob('adapter_model.safetensors')))
    module = 'base_model.model.' + weight.removesuffix('.weight')
    (_, (r, k), a), (_, (n, _), b) = (file[f'{module}.lora_{x}.weight'] for x in 'AB')
    made = [alpha / r * sum(b[i * r + j] * a[j * k + c] for j in range(r)) for i in range(n) for c in range(k)]
    return made if 'transformer.' not in weight else [made[i * k + c] for c in range(k) for i in range(n)]


@functools.cache
def begun(family, iterations):
    """What a run that learns nothing leaves: {weight: (merged, scaling · B·A)}."""
    name = f'{family}-{iterations}'
    path = recipe(f'{name}.lua', from_folder(base_of(family)[0]), 'data.random {}', nf4, loftq(iterations), still, **entries)
    planned(path)
    trained(path, name)
    run('export', name, '--merge', '--out', f'{name}-merged')
    merged = load(f'{name}-merged/model.safetensors')
    return {n: (x, of_adapter(name, n)) for n, (_, shape, x) in merged.items() if is_layer(n, shape)}


@cases({f'{family}-{iterations}': (family, iterations) for family in families for iterations in (1, 2, 4)})
def begins(name, what):
    """The error falls with each iteration; of few, A, B and the weight are those that are computed by hand."""
    family, iterations = what
    _, weights = base_of(family)
    found = begun(family, iterations)
    check(found.keys() == weights.keys(), f'{found.keys() ^ weights.keys()}')
    for n, (_, (rows, columns), w) in weights.items():
        merged, product = found[n]
        e = error(merged, w)
        # Of rank 4 of 20 to 32, of noise: what the first four singular values have of it.
        last = error(stored(w) if iterations == 1 else begun(family, iterations // 2)[n][0], w)
        check(e < (0.9 if iterations == 1 else 0.999) * last, f'{n} is off by {e}, and was by {last}')
        if iterations < 4:
            kept, expected = by_hand(w, rows, columns, iterations)
            apart = error(product, expected)
            check(apart < (1e-4 if iterations == 1 else 2e-3), f'B·A of {n} is off by {apart}')
            apart = error([x - y for x, y in together(merged, product)], kept)
            check(apart < (1e-6 if iterations == 1 else 1e-3), f'{n} begins {apart} from what 4 bits keep')
    config = json.loads(pathlib.Path(name, 'adapter/adapter_config.json').read_text())
    says = (config['init_lora_weights'], config.get('loftq_config'))
    wanted = (True, None) if iterations == 1 else ('loftq', dict(loftq_bits=4, loftq_iter=iterations))
    check(says == wanted, f'the configuration says {says}')


DEVICES = {'discrete': (discrete, 0), 'gpu': (gpu, 1e-5)}


@cases({f'{family}-{device}': (family, device) for family in families for device in DEVICES})
def begins_elsewhere(name, what):
    """On other devices with the same numbers."""
    family, device = what
    flags, bound = DEVICES[device]
    begun(family, 2)
    here = load(f'{family}-2-merged/model.safetensors')
    merges = recipe(f'{name}.lua', from_folder(base_of(family)[0]), 'data.random {}', nf4, loftq(2, merge=True), still, **entries)
    there = load(trained(merges, name, *flags).path / 'model/model.safetensors')
    check(there.keys() == here.keys(), f'{there.keys() ^ here.keys()}')
    for n, (_, _, x) in there.items():
        e = error(x, here[n][2])
        check(e <= bound, f'{n} is {e} off')


# ---- A saved adapter is validated as it was in its run, and a run that was cut is one that was not: the weight begins as it did ------------------------
pathlib.Path('text.txt').write_text(' '.join(chr(97 + (i * i) % 23) for i in range(600)))
text = 'data.text { files = { arg("text") }, tokenizer = arg("tokenizer"), validation = 0.3 }'
flags = ['--set', 'text=text.txt', '--set', 'tokenizer=bytes']


@functools.cache
def of_bytes():
    """Recipes on a model of bytes."""
    model = from_config('llama', vocab_size=256, hidden_size=32, intermediate_size=40, num_hidden_layers=1, num_attention_heads=4, max_position_embeddings=16)
    base = trained(recipe('bytes.lua', model, text, use('sgd', lr=0.5), **entries), 'bytes', *flags).path / 'model'
    return recipes(from_folder(base), text, use('sgd', lr=0.1), **{**entries, 'steps': 4}, validate=dict(every=2), save=dict(every=2, keep=2))


@functools.cache
def saved_loss(name, *uses):
    """The last validation of a run, which is to be that of the adapter that it has saved."""
    made = trained(of_bytes()(name, *uses), name, *flags)
    return [x['validation_loss'] for x in made.lines if 'validation_loss' in x][-1]


KINDS = {f'{iterations}{kind}': uses for iterations in (1, 3) for kind, uses in (
    ('', (nf4, loftq(iterations))), ('-dora', (loftq(iterations, dora=True), use('quantize-nf4', double=True))))}


@cases(KINDS)
def goes_on(kind, uses):
    name = f'on-{kind}'
    told = saved_loss(name, *uses)
    on = of_bytes()(f'{name}-path', *(use('lora', path=pathlib.Path(f'{name}/adapter')) if 'lora' in x else x for x in uses), steps=1)
    loss = json.loads(run('eval', on, '--json', *flags).stdout)['validation_loss']
    check(abs(loss - told) < 1e-6, f'validated at {told}, what it saved at {loss}')
    cut = pathlib.Path(f'{name}-cut')
    shutil.copytree(name, cut)
    for x in ('state/step-00000004', 'adapter'):
        shutil.rmtree(cut / x)
    run('resume', cut)
    file = 'adapter/adapter_model.safetensors'
    check((cut / file).read_bytes() == (pathlib.Path(name) / file).read_bytes(), 'resumed to other bytes')


@case
def kinds_differ():
    losses = {saved_loss(f'on-{kind}', *uses) for kind, uses in KINDS.items()}
    check(len(losses) == 4, f'the kinds are all alike: {losses}')


@case
def base_in_4_bit():
    """A base that is saved so holds what it begins as."""
    told = saved_loss('saved', use('quantize-nf4', save=True), loftq(3))
    of_saved = recipes(from_folder('saved/model'), text, use('sgd', lr=0.1), **entries)
    loss = json.loads(run('eval', of_saved('on-saved', nf4, use('lora', path=pathlib.Path('saved/adapter'))), '--json', *flags).stdout)['validation_loss']
    check(abs(loss - told) < 1e-6, f'validated at {told}, what it saved at {loss}')
    refused(of_saved('twice', nf4, loftq()), "the model's weights are quantized already", flags=flags)


# ---- Memory -----------------------------------------------------------------------------------------------------------------------------------------
def load_peak(path):
    """The most bytes that lie there at once while loading, but for what lies there all the run, and for what a kernel takes for itself."""
    loads = sum(x.startswith('load[') for x in run('plan', path, '--dump', 'fuse').stdout.splitlines())
    lives = re.findall(r'^0 \[(\d+), (\d+)\) moments (\d+) to (\d+) (?!workspace of).* segment', run('plan', path, '--dump', 'plan').stdout, re.M)
    return max(sum(b - a for a, b, first, last in (map(int, x) for x in lives) if first <= moment <= last) for moment in range(loads))


@case
def memory():
    """While loading, no more than two matrices of one weight and its codes are there, and no weight of the run is there twice."""
    model = from_config('llama', vocab_size=64, hidden_size=128, intermediate_size=256, num_hidden_layers=3, num_attention_heads=2, max_position_embeddings=16)
    peaks, weights = [], []
    for init, more in (('default', {}), ('loftq', dict(init='loftq', loftq_iter=3))):
        path = recipe(f'memory-{init}.lua', model, 'data.random {}', nf4, use('lora', rank=rank, **more), use('adamw', lr=1e-3), **{**entries, 'length': 16})
        weights.append(planned(path)['classes']['host']['owners']['weights'])
        peaks.append(load_peak(path))
    check(weights[0] == weights[1], f'weights: {weights}')
    one = 4 * 128 * 256
    check(0 < peaks[0] and peaks[1] - peaks[0] <= 1.2 * one, f'the peak of loading: {peaks}, one matrix has {one} bytes')


# ---- What is refused ----------------------------------------------------------------------------------------------------------------------------------
@cases({
    'alone': ([loftq(2)], ['refused.lua:', 'lora: ', 'init = "loftq"', 'q_proj is not stored in 4 bit', 'use "quantize-nf4"']),
    'int8': ([use('quantize-int8'), loftq(2)], ['is not stored in 4 bit']),
    'skipped': ([use('quantize-nf4', skip=['k_proj']), loftq(2)], ['k_proj is not stored in 4 bit']),
    'head': ([nf4, use('lora', rank=rank, targets='lm_head', init='loftq')], ['lm_head is not stored in 4 bit']),
    'rank': ([nf4, use('lora', rank=33, init='loftq')], ['rank 33 is more than 32']),
    'iterations alone': ([nf4, use('lora', rank=rank, loftq_iter=2)], ["'loftq_iter' belongs to init = \"loftq\""]),
    'no iteration': ([nf4, loftq(0)], ['loftq_iter']),
})
def refuses(_, what):
    uses, texts = what
    refused(recipes(families['llama'], 'data.random {}', still, **entries)('refused', *uses), *texts)


@cases({'bits': (dict(loftq_bits=8, loftq_iter=2), '"loftq_bits": 4'), 'iterations': (dict(loftq_bits=4, loftq_iter=0.5), 'whole number from 1'),
        'nothing': (None, 'has to be an object')})
def wrong_configuration(name, what):
    value, text = what
    begun('llama', 2)
    folder = pathlib.Path(f'broken-{name}')
    shutil.copytree('llama-2/adapter', folder)
    config = folder / 'adapter_config.json'
    config.write_text(json.dumps({**json.loads(config.read_text()), 'loftq_config': value}))
    path = recipes(from_folder(base_of('llama')[0]), 'data.random {}', still, **entries)(f'broken-{name}', nf4, use('lora', path=folder))
    refused(path, 'adapter_config.json', text)


finish(turns=2)
