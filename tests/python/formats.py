#!/usr/bin/env python3
"""A format of a stranger, floats of 6 bits, built with the installed SDK alone: products and embeddings read it on the processor and on an emulated GPU, through
its codecs; what it keeps is written down once more here; runs with it go on, are evaluated, sampled and exported; and a codec that is wrong is found."""
import functools
import math
import pathlib
import re
import shutil
import struct

import sdk_kit
from galley_test import (binary, case, cases, check, every, finish, fresh_folder, from_config, from_folder, load, recipe, Run, run, source, take_turns,
                         together, train, use)
from steps_kit import recipes, trained

fresh_folder()
gpu = ['--device', 'cuda-emulated', '--plugin-path', binary / 'emulated']
lora, adamw, six = use('lora', rank=4, alpha=8, targets='all-linear'), use('adamw', lr=1e-2), use('six-bit')
model = from_config('llama', tie_word_embeddings=False, vocab_size=256, max_position_embeddings=64, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=2)
sdk_kit.write_text()
written = recipes(model, sdk_kit.DATA, lora, six, adamw, batch=2, length=16, steps=4, seed=3, validate=dict(every=2), save=dict(every=2))


def made_of(folder, name):
    (folder / 'CMakeLists.txt').write_text(f'''cmake_minimum_required(VERSION 3.25)
project({name} LANGUAGES CXX)
find_package(galley-sdk REQUIRED)
galley_add_plugin(MANIFEST plugin.toml SOURCES plugin.cpp KERNELS_CPU cpu.cpp KERNELS_CUDA cuda.cu)
''')
    return sdk_kit.configure_and_build(folder, name)


@functools.cache
def built():
    folder = sdk_kit.outside / 'six-bit'
    shutil.copytree(source / 'tests' / 'plugins' / 'six-bit', folder)
    return made_of(folder, 'six-bit')


def flags():
    return ['--plugin-path', built()]


# ---- The numbers ------------------------------------------------------------------------------------------------------------------------


def six_bits(x, scale):
    """The float with three bits of exponent and two of mantissa that is nearest to x / scale, times scale."""
    if scale == 0:
        return 0.0
    magnitude = min(abs(x) / scale, 28.0)
    unit = 2.0 ** (max(math.floor(math.log2(magnitude)), -2) - 2) if magnitude else 1.0
    return math.copysign(round(magnitude / unit) * unit * scale, x)  # round: ties to even


def through_six_bits(numbers):
    out = []
    for at in range(0, len(numbers), 32):
        group = numbers[at:at + 32]
        most = max(map(abs, group))
        scale = 2.0 ** (math.floor(math.log2(most)) - 4) if most > 0 else 0.0
        out += [six_bits(x, scale) for x in group]
    return out


def matrices(tensors):
    return [n for n, (_, shape, _) in tensors.items() if len(shape) == 2 and 'lm_head' not in n]


@case
def keeps_these_numbers():
    """A model that is merged with an adapter that has learned next to nothing has the numbers that are kept."""
    base = train(recipe('base.lua', model, 'data.random {}', use('adamw', lr=1e-3), batch=2, length=16, steps=1, seed=4), 'base').path / 'model'
    path = recipe('kept.lua', from_folder(base.resolve()), 'data.random {}', lora, six, use('sgd', lr=1e-30), batch=2, length=16, steps=1, seed=4)
    trained(path, 'kept', *flags())
    run('export', 'kept', '--merge', '--out', 'kept-model', *flags())
    before, found = load(base / 'model.safetensors'), load(next(pathlib.Path('kept-model').rglob('*.safetensors')))
    check(before.keys() == found.keys() and len(matrices(before)) >= 15, f'{sorted(before.keys() ^ found.keys())}, {len(matrices(before))} matrices')
    for name in before:
        wanted = through_six_bits(before[name][2]) if name in matrices(before) else before[name][2]
        check(every(a == b or abs(a - b) < 1e-30 for a, b in together(found[name][2], wanted)), f'{name} is not what six bits keep of it')


@case
def is_read_through_its_codec():
    """No weight is unpacked before what reads it, by the processor or the GPU; the embedding's rows are made by the processor alone."""
    path = written('read')
    for device in ([], gpu):
        code = run('plan', path, *flags(), *device, '--dump', 'bind').stdout
        unpacked = [line for line in code.splitlines() if 'six-bit.unpack' in line and re.match(r'(micro|eval)\[', line)]
        check(code.count('six-bit.pack') >= 15, f'{device[:2]}: {code[:300]}')
        tables = [line for line in unpacked if 'embed_tokens' in line]
        check(unpacked == tables and bool(tables) == bool(device), f'{device[:2]}: {unpacked[:3]}')


# ---- Runs -------------------------------------------------------------------------------------------------------------------------------


@case
def goes_on():
    """Through a resume, an evaluation, a sample and an export, each instruction beside its reference."""
    path = written('whole')
    whole = trained(path, 'whole', *flags(), '--reference')
    sdk_kit.in_every_segment(whole, flags(), 'whole')
    run('train', path, '--out', 'half', '--until', 2, *flags())
    run('resume', 'half', *flags(), '--reference')
    half, adapter = Run('half'), 'adapter/adapter_model.safetensors'
    check(half.steps == whole.steps and half.bytes(adapter) == whole.bytes(adapter), 'a run that goes on is another one')
    plain = trained(recipe('plain.lua', model, sdk_kit.DATA, lora, adamw, batch=2, length=16, steps=4, seed=3), 'plain')
    for (loss, _), (as_codes, _) in together(plain.steps, whole.steps):
        check(loss != as_codes and abs(loss - as_codes) < 0.1, f'loss {as_codes} in 6 bits, {loss} in F32')
    weights = [r.memory['classes']['host']['owners']['weights'] for r in (plain, whole)]
    check(weights[1] < 0.5 * weights[0], f'bytes of weights: {weights[1]} in 6 bits, {weights[0]} in F32')


@cases(['amp', 'recompute'])
def beside_others(who):
    """Arithmetic in BF16, and weights that backward reads again."""
    more = {'amp': use('amp'), 'recompute': use('recompute', every=1)}[who]
    trained(written(who, more), who, *flags(), '--reference')


@case
def on_an_emulated_gpu():
    path = recipes(model, 'data.random {}', lora, six, adamw, batch=2, length=16, steps=2, seed=3)('gpu')
    there, here = trained(path, 'gpu', *flags(), *gpu, '--reference'), trained(path, 'cpu', *flags())
    for (loss, norm), (loss_here, norm_here) in together(there.steps, here.steps):
        check(abs(loss - loss_here) < 1e-4 and abs(norm - norm_here) < 1e-3 * norm_here, f'loss {loss} and norm {norm} on an emulated GPU, not {loss_here} and {norm_here}')


@case
def its_ops():
    """The kernels of its ops, on all levels, against the ops' references."""
    sdk_kit.cases_of_ops('six-bit', built())


# ---- What is wrong ----------------------------------------------------------------------------------------------------------------------


@case
def a_wrong_codec_is_found():
    """The reference unpacks by the op; a product that reads other numbers is named."""
    folder = sdk_kit.outside / 'wrong'
    shutil.copytree(source / 'tests' / 'plugins' / 'six-bit', folder)
    cpu = (folder / 'cpu.cpp').read_text()
    other = cpu.replace('using six_bit::Numbers;', '''using six_bit::Numbers;

struct Wrong : Numbers {
  using Numbers::Numbers;
};
template <class To>
void decode(const Wrong& from, int64_t first, int64_t n, To* to) {
  decode(static_cast<const Numbers&>(from), first, n, to);
  if (first == 0) from_float(0.5f, to[0]);
}''').replace('add_codec<Numbers>', 'add_codec<Wrong>')
    check(other != cpu and 'add_codec<Wrong>' in other, 'cpu.cpp has changed')
    (folder / 'cpu.cpp').write_text(other)
    said = run('train', written('wrong'), '--out', 'wrong', '--plugin-path', made_of(folder, 'wrong'), '--reference', code=4).stderr
    check('linear' in said or 'embedding' in said, f'a wrong codec: {said}')


take_turns(['keeps_these_numbers', 'a_wrong_codec_is_found'], 2)
finish()
