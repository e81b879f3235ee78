#!/usr/bin/env python3
"""Files of weights as other programs write them: in F64, F16, BF16 and a mix of them, with metadata of all kinds, with headers of any length and order, in
shards, with buffers that nobody reads. Loss, logits, gradients and two steps are those of the same numbers in one file in F32."""
import functools
import json
import pathlib
import random
import struct

from errors_kit import CONFIG, SHAPES, P, V, count
from galley_test import batch_of, case, cases, check, every, finish, fresh_folder, from_folder, gradients, load, recipe, require, save, train, use
from steps_kit import refused

fresh_folder()
generator = random.Random(4)
# Each is a number in every dtype.
NUMBERS = {name: [generator.randrange(-128, 129) / 256 for _ in range(count(shape))] for name, shape in SHAPES.items()}
ids = [generator.randrange(V) for _ in range(2 * P)]
save('batch.safetensors', {'input_ids': ('I32', (2, P), ids), 'labels': ('I32', (2, P), ids)})
INDEX = 'model.safetensors.index.json'
CODES = {'F64': 'd', 'F32': 'f', 'F16': 'e'}


def packed(dtype, numbers):
    if dtype == 'BF16':
        return b''.join(struct.pack('<f', x)[2:] for x in numbers)
    return struct.pack(f'<{len(numbers)}{CODES[dtype]}', *numbers)


def tensors(dtype_of=lambda name: 'F32', numbers=NUMBERS):
    return {name: (dtype_of(name), SHAPES[name], packed(dtype_of(name), x)) for name, x in numbers.items()}


def file_of(content, metadata=None, padding=None, order=list, indent=None):
    """A file of tensors; `padding`: so many blanks after the header, whatever its length is then; `order` turns the list of its entries."""
    header, data = [], b''
    for name, (dtype, shape, part) in content.items():
        header.append((name, dict(dtype=dtype, shape=shape, data_offsets=[len(data), len(data) + len(part)])))
        data += part
    header = dict(order(header))
    if metadata is not None:
        header['__metadata__'] = metadata
    text = json.dumps(header, indent=indent).encode()
    text += b' ' * (-len(text) % 8 if padding is None else padding)
    return struct.pack('<Q', len(text)) + text + data


def folder_of(name, files):
    folder = pathlib.Path(name)
    folder.mkdir()
    (folder / 'config.json').write_text(json.dumps(CONFIG))
    for file, content in files.items():
        (folder / file).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return folder


def one(content, **more):
    return {'model.safetensors': file_of(content, **more)}


def shards(content, n, **more):
    """The tensors by turns in n files, and the index that says where each lies."""
    parts = [dict(list(content.items())[k::n]) for k in range(n)]
    names = [f'model-{k + 1:05d}-of-{n:05d}.safetensors' for k in range(n)]
    where = {x: name for name, part in zip(names, parts, strict=True) for x in part}
    size = sum(len(x[2]) for x in content.values())
    return {**{name: file_of(part, **more) for name, part in zip(names, parts, strict=True)}, INDEX: dict(metadata=dict(total_size=size), weight_map=where)}


def with_index(files, **members):
    """The same with other members of the index; None takes one out."""
    return {**files, INDEX: {k: v for k, v in {**files[INDEX], **members}.items() if v is not None}}


def mixed(name):
    return ('F64', 'F32', 'F16', 'BF16')[sorted(SHAPES).index(name) % 4]


def results(name, files):
    """What is computed of a folder: losses and gradients, and the losses of two steps."""
    path = recipe(f'{name}.lua', from_folder(folder_of(name, files)), batch_of('batch.safetensors'), use('adamw', lr=1e-2), steps=2, seed=1)
    found = gradients(path, f'{name}.grads', '--logits')
    return {k: list(x[2]) for k, x in found.items()}, train(path, f'{name}-run').steps


@functools.cache
def plain():
    found, steps = results('plain', one(tensors()))
    require(len(found) > len(SHAPES) and len(steps) == 2 and steps[0] != steps[1], f'{sorted(found)}, {steps}')
    check(every(any(x) for x in found.values()), 'a gradient of zeros')
    return found, steps


BUFFERS = {'transformer.h.0.attn.bias': ('BOOL', (1, 1, P, P), bytes(P * P)), 'transformer.h.0.attn.masked_bias': ('F32', (), packed('F32', [-1e4]))}
FORMS = {
    **{dtype: one(tensors(lambda _, dtype=dtype: dtype)) for dtype in ('F64', 'F16', 'BF16')},
    'mixed': one(tensors(mixed)), 'one F64': one(tensors(lambda name: 'F64' if name.endswith('wte.weight') else 'F32')),
    'metadata of PyTorch': one(tensors(), metadata=dict(format='pt')), 'of others': one(tensors(), metadata={'format': 'np', 'a "key"': 'é\n', '': ''}),
    'empty metadata': one(tensors(), metadata={}), 'long metadata': one(tensors(), metadata={f'key {i}': 'x' * 100 for i in range(1000)}),
    **{f'header of {k} more': one(tensors(), padding=k) for k in range(8)}, 'much padding': one(tensors(), padding=4001),
    'turned header': one(tensors(), order=lambda x: list(reversed(x))), 'sorted header': one(tensors(), order=sorted), 'indented': one(tensors(), indent=4, padding=3),
    **{f'{n} shards': shards(tensors(), n) for n in (1, 2, 5, len(SHAPES))}, 'mixed shards': shards(tensors(mixed), 3, metadata=dict(format='pt'), padding=5),
    'short names': one({x.removeprefix('transformer.'): t for x, t in tensors().items()}), 'buffers': one({**BUFFERS, **tensors()}),
    'head beside': one({**tensors(), 'lm_head.weight': tensors()['transformer.wte.weight']}),
    'index of a wrong size': with_index(shards(tensors(), 2), metadata=dict(total_size=1)), 'index without metadata': with_index(shards(tensors(), 2), metadata=None),
}


@cases(FORMS)
def form(name, files):
    found, steps = results(f'form-{name}', files)
    expected, expected_steps = plain()
    check(found.keys() == expected.keys(), f'{name}: {sorted(found.keys() ^ expected.keys())}')
    differ = [k for k in expected if found.get(k) != expected[k]]
    check(not differ, f'{name}: other numbers: {differ}')
    check(steps == expected_steps, f'{name}: steps {steps}, not {expected_steps}')


@case
def numbers_that_need_f64():
    """They are rounded to the nearest F32."""
    numbers = {name: [generator.gauss(0, 0.1) for _ in x] for name, x in NUMBERS.items()}
    rounded = {name: struct.unpack(f'<{len(x)}f', packed('F32', x)) for name, x in numbers.items()}
    check(every(any(a != b for a, b in zip(numbers[x], rounded[x], strict=True)) for x in numbers), 'no number needs F64')
    found = [results(f'precise-{name}', one(tensors(lambda _, dtype=dtype: dtype, x))) for name, dtype, x in (('F64', 'F64', numbers), ('F32', 'F32', rounded))]
    check(found[0] == found[1], 'F64 is not read as the nearest F32')


@case
def saved_again():
    """What is saved of a mix without a step of learning has the same numbers."""
    path = recipe('kept.lua', from_folder(folder_of('kept', shards(tensors(mixed), 3))), batch_of('batch.safetensors'), use('sgd', lr=0), steps=1, seed=1)
    train(path, 'kept-run')
    saved = load('kept-run/model/model.safetensors')
    check({x: list(saved[x][2]) for x in NUMBERS} == NUMBERS, 'other numbers are saved')


TOO_LARGE = dict(NUMBERS, **{'transformer.ln_f.bias': [1e300] + [0.0] * 15})
WITH_NAN = dict(NUMBERS, **{'transformer.ln_f.bias': [float('nan')] + [0.0] * 15})
REFUSED = {
    'too large for F32': (one(tensors(lambda name: 'F64', TOO_LARGE)), "'transformer.ln_f.bias'"),
    'two heads': (one({**tensors(), 'lm_head.weight': ('F32', (V, 16), packed('F32', [0.5] * 16 * V))}), 'lm_head.weight'),
    'metadata of a number': (one(tensors(), metadata=dict(step=3)), '__metadata__'),
    'metadata of a list': (one(tensors(), metadata=['pt']), '__metadata__'),
}


@cases(REFUSED)
def refusals(name, of):
    files, *says = of
    out = pathlib.Path(f'refused-{name}-run')
    path = recipe('refused.lua', from_folder(folder_of(f'refused-{name}', files)), batch_of('batch.safetensors'), use('adamw', lr=1e-2), steps=1)
    refused(path, f'refused-{name}', *says, command='train', flags=('--out', out))
    check(not out.exists(), 'something is left')


finish()
