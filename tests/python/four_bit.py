#!/usr/bin/env python3
"""Frozen weights in 4 bit: what they are, that training beside them is training beside their numbers, what the plan counts, what is refused, and that runs go on,
are merged and exported as others."""
import array
import functools
import json
import math
import pathlib
import re
import shutil
import struct

from discrete_kit import discrete, same
from galley_test import (binary, case, cases, check, error, every, finish, fresh_folder, from_config, from_folder, gradients, load, norm, plan, recipe, run, together,
                         train, use)
from steps_kit import recipes, refused, trained

fresh_folder()
gpu = ['--device', 'cuda-emulated', '--plugin-path', binary / 'emulated']
lora, adamw = use('lora', rank=4, alpha=8, targets='all-linear'), use('adamw', lr=1e-2)
dims = dict(vocab_size=99, max_position_embeddings=64, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2)
families = {
    'llama': from_config('llama', tie_word_embeddings=False, **dims),
    'tied': from_config('llama', tie_word_embeddings=True, **dims),
    'gpt2': from_config('gpt2', vocab_size=97, n_positions=32, n_embd=48, n_layer=2, n_head=4),
}
entries = dict(batch=2, length=16, steps=4, seed=4)
written = recipes(families['llama'], 'data.random {}', **entries)


def nf4(**options):
    return use('quantize-nf4', **options)


# ---- The numbers ------------------------------------------------------------------------------------------------------------------------

book = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
        0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]


def f32(x):
    return struct.unpack('f', struct.pack('f', x))[0]


def through_nf4(numbers):
    """Numbers as NF4 keeps them, in blocks of 64, written down once more."""
    bounds = [f32((a + b) / 2) for a, b in zip(book, book[1:])]
    out = array.array('f')
    for at in range(0, len(numbers), 64):
        block = numbers[at:at + 64]
        absmax = max(map(abs, block))
        inverse = f32(1 / absmax)
        for x in block:
            t = f32(x * inverse) if len(block) == 64 else f32(x / absmax)
            out.append(f32(book[sum(t > b for b in bounds)] * absmax))
    return out


@functools.cache
def base_of(family):
    """A model's folder with random weights."""
    path = recipe(f'base-{family}.lua', families[family], 'data.random {}', use('adamw', lr=1e-3), **entries)
    run('train', path, '--out', f'base-{family}')
    return pathlib.Path(f'base-{family}/model').resolve()


def dequantized(family, base, **options):
    """The base model with the numbers that are kept of its weights: merged with an adapter that has learned next to nothing."""
    name = f'merged-{family}-' + '-'.join(map(str, options.values()))
    path = recipe(f'{name}.lua', from_folder(base), 'data.random {}', nf4(**options), lora, use('sgd', lr=1e-30), **{**entries, 'steps': 1})
    run('train', path, '--out', name)
    run('export', name, '--merge', '--out', f'{name}-model')
    return pathlib.Path(f'{name}-model').resolve()


def layers_of(tensors):
    return [n for n, (_, shape, _) in tensors.items() if len(shape) == 2 and not re.search(r'embed|wte|wpe|lm_head', n)]


KEPT = {'nf4': dict(double=False), 'nf4-double': dict(double=True), 'fp4-double': dict(type='fp4', double=True, block=128)}


@cases([f'{family}-{kept}' for family in families for kept in KEPT])
def numbers(who):
    """A merged model has the numbers that are kept, and training beside codes is training beside these numbers."""
    family, kept = who.split('-', 1)
    base, options = base_of(family), KEPT[kept]
    merged, before = dequantized(family, base, **options), load(base / 'model.safetensors')
    found, layers = load(next(merged.rglob('*.safetensors'))), layers_of(before)
    check(found.keys() == before.keys() and len(layers) >= 8, f'merged has other tensors: {found.keys() ^ before.keys()}, layers {layers}')
    for name in before:
        if name not in layers:
            check(found[name] == before[name], f'{name} is not to be touched')
        elif kept == 'nf4':
            wanted = through_nf4(before[name][2])
            check(every(a == b or abs(a - b) < 1e-30 for a, b in together(found[name][2], wanted)), f'{name} is not what NF4 keeps of it')
        else:
            e = error(found[name][2], before[name][2])
            check(0.02 < e < 0.2, f'{name} has an error of {e}')
    trains_beside(base, merged, options)


def trains_beside(base, merged, options):
    """Gradients beside a weight in 4 bit are those beside its numbers, with recomputation and without; the first layer has some."""
    made = {}
    for name, model, uses in (('numbers', merged, []), ('codes', base, [nf4(**options)]), ('recomputed', base, [use('recompute', every=1), nf4(**options)])):
        path = recipe(f'{name}.lua', from_folder(model), 'data.random {}', *uses, lora, adamw, **entries)
        made[name] = gradients(path, f'{name}.safetensors')
    grads = {n: x for n, x in made['numbers'].items() if n.startswith('grad.')}
    total = norm([v for x in grads.values() for v in x[2]])
    check(grads and every('lora_' in n for n in grads), f'not only the adapter has gradients: {sorted(grads)[:4]}')
    for name in ('codes', 'recomputed'):
        check(made[name].keys() == made['numbers'].keys(), f'{name} has other gradients')
        for n, (_, _, wanted) in grads.items():
            e = error(made[name][n][2], wanted, 1e-3 * total)
            check(e < 1e-5, f'{n} of {name} is off by {e}')
    check(every(made['codes'][n][2] == made['recomputed'][n][2] for n in grads), 'recomputation changes gradients')
    first = [n for n in grads if re.search(r'\.0\.(self_attn|attn|mlp)\.', n) and 'lora_B' in n]
    check(first and every(norm(made['recomputed'][n][2]) > 0 for n in first), f'no gradient comes to the first layer: {first}')


# ---- The plan ---------------------------------------------------------------------------------------------------------------------------


def lies(path, **dtypes):
    """What the plan keeps of weights, by the dtype of their numbers or codes."""
    places = run('plan', path, '--dump', 'plan').stdout
    for name, dtype in dtypes.items():
        found = re.findall(rf' {re.escape(name)} (\w+)\(\S* weights run', places)
        check(found == [dtype], f'{name} lies as {found}, not as {dtype}')


@case
def prepared():
    """What the literature calls k-bit preparation: all is frozen but the adapter, norms and the head are F32, and codes are read as they are."""
    path = written('prepared', nf4(double=True), lora, adamw)
    kept = {'lm_head.weight': 'f32', 'model.norm.weight': 'f32', 'model.layers.0.input_layernorm.weight': 'f32', 'model.layers.0.mlp.up_proj.weight': 'u8',
            'model.layers.0.mlp.up_proj.weight.absmax': 'u8', 'model.layers.0.mlp.up_proj.weight.nested_absmax': 'f32',
            'model.layers.0.mlp.up_proj.weight.nested_offset': 'f32'}
    lies(path, **kept)
    code = run('plan', path, '--dump', 'fuse').stdout
    steps = [x for x in code.splitlines() if not x.startswith(('load', 'init'))]
    check(not any('unpack' in x for x in steps), f'a weight is unpacked in a step: {[x for x in steps if "unpack" in x][:2]}')
    # As many launches as beside plain weights, in F32 and in BF16.
    for more in ([], [use('amp', compute='bf16')]):
        counts = [plan(written('launches', *more, *uses, lora, adamw))['launches'] for uses in ([], [nf4(double=True)])]
        check(counts[0] == counts[1], f'launches of a step beside plain weights and beside codes: {counts}')


@case
def counted():
    """What is frozen is counted in numbers, not in codes."""
    texts = [run('plan', recipe('counted.lua', families['tied'], 'data.random {}', *uses, lora, adamw, **entries)).stdout for uses in ([], [nf4(double=True)])]
    frozen = [re.search(r'frozen .*', x)[0] for x in texts]
    check(frozen[0] == frozen[1], f'frozen beside plain weights and beside codes: {frozen}')


@case
def bytes_of_weights():
    """Each weight's bytes by the format's formula, 4.5 and 4.127 bits a number."""
    wide = from_config('llama', vocab_size=64, hidden_size=512, intermediate_size=1376, num_hidden_layers=4, num_attention_heads=8, max_position_embeddings=16,
                       tie_word_embeddings=True)
    made = {}
    for name, uses in (('plain', []), ('single', [nf4()]), ('double', [nf4(double=True)])):
        path = recipe(f'bytes-{name}.lua', wide, 'data.random {}', *uses, lora, adamw, batch=1, length=8, steps=1)
        code = run('plan', path, '--dump', 'plan').stdout
        made[name] = {m[3]: int(m[2]) - int(m[1]) for m in re.finditer(r'^0 \[(\d+), (\d+)\) .*? (model\.\S*_proj\.weight\S*) \w+\(.* run$', code, re.M)}
    counts = dict(q_proj=512 * 512, k_proj=512 * 512, v_proj=512 * 512, o_proj=512 * 512, gate_proj=512 * 1376, up_proj=512 * 1376, down_proj=512 * 1376)
    for layer in range(4):
        for module, n in counts.items():
            single, double = (sum(v for x, v in made[name].items() if f'layers.{layer}.' in x and f'.{module}.weight' in x) for name in ('single', 'double'))
            blocks = n // 64
            check(single == n // 2 + 4 * blocks, f'{module} of layer {layer}: {single} bytes, not {n // 2 + 4 * blocks}')
            check(double == n // 2 + blocks + 4 * -(-blocks // 256) + 4, f'{module} of layer {layer}: {double} bytes with double quantization')
    check(sum(made['plain'].values()) == 4 * 4 * sum(counts.values()), f'plain: {sum(made["plain"].values())} bytes')
    bits = [8 * sum(made[x].values()) / (4 * sum(counts.values())) for x in ('single', 'double')]
    check(bits[0] == 4.5 and abs(bits[1] - 4.127) < 1e-3, f'bits a number: {bits}')


LLAMA = {'7B': (dict(hidden_size=4096, intermediate_size=11008, num_hidden_layers=32, num_attention_heads=32), 6 * 2**30),
         '65B': (dict(hidden_size=8192, intermediate_size=22016, num_hidden_layers=80, num_attention_heads=64), 48 * 10**9)}


@cases(LLAMA, turns=2)
def fits(name, of):
    """Llama 2 7B in 6 GiB, and 65B in 48 GB: rank 16, all linear layers, recomputed, one row of 512. No tensor but the one that is packed is in F32."""
    config, most = of
    folder = pathlib.Path(name)
    folder.mkdir()
    (folder / 'config.json').write_text(json.dumps(dict(model_type='llama', architectures=['LlamaForCausalLM'], hidden_act='silu', vocab_size=32000, rms_norm_eps=1e-5,
                                                        max_position_embeddings=2048, tie_word_embeddings=False, **config)))
    totals, weights = [], []
    for double in (False, True):
        path = recipe(f'{name}-{double}.lua', from_folder(folder), 'data.random {}', use('amp', compute='bf16'), nf4(double=double),
                      use('lora', rank=16, alpha=32, targets='all-linear'), use('recompute', every=1), use('adamw8bit', lr=1e-4), batch=1, length=512, steps=1)
        for flags in ([], ['--target', 'l40s']):
            text = run('plan', path, *flags).stdout
            check('peak at micro' in text, f'{flags}: the peak is not in a step: {re.findall("peak at .*", text)}')
            bytes_ = int(re.search(r"memory '(?:host|device)': .*?\((\d+) bytes\)", text)[1])
            check(bytes_ <= most, f'{flags}: {bytes_} bytes')
            totals.append(bytes_)
            weights.append(next(iter(plan(path, *flags)['classes'].values()))['owners']['weights'])
    quantized = config['num_hidden_layers'] * config['hidden_size'] * (4 * config['hidden_size'] + 3 * config['intermediate_size'])
    saved = 8 * (weights[1] - weights[3]) / quantized
    check(abs(saved - 0.373) < 0.0005, f'double quantization saves {saved} bits a parameter')
    print(f'{name}: {totals[2] / 2**30:.2f} GiB with double quantization')


# ---- What is refused --------------------------------------------------------------------------------------------------------------------

REFUSED = {
    'nothing is frozen': ([nf4(), adamw], ['refused.lua:', 'quantize-nf4: ', 'all linear layers are trained', 'use "lora"', 'freeze']),
    'no such layer': ([nf4(skip=['q_prj']), lora, adamw], ["no linear layer is called 'q_prj'", 'q_proj']),
    'all layers are skipped': ([nf4(skip=['*']), lora, adamw], ["'skip' names all linear layers"]),
    'block': ([nf4(block=48), lora, adamw], ['block = 48', '32, 64, 128']),
    'type': ([nf4(type='int4'), lora, adamw], ['nf4', 'fp4']),
    'no such option': ([nf4(blok=64), lora, adamw], ["did you mean 'block'"]),
}


@cases(REFUSED)
def refusals(_, of):
    uses, texts = of
    refused(written('refused', *uses), *texts)


@case
def what_trains_stays_as_it_is():
    path = written('some', nf4(), use('freeze', **{'except': ['model.layers.1.*']}), adamw)
    run('plan', path, '--check')
    code = run('plan', path, '--dump', 'plan').stdout
    check(re.search(r'model\.layers\.0\.mlp\.up_proj\.weight u8\(1920,1\) weights run', code), 'a frozen layer is not quantized')
    check(re.search(r'model\.layers\.1\.mlp\.up_proj\.weight f32\(80,48\) weights run', code), 'a trained layer is quantized')
    trained(path, 'some')


@case
def the_head_is_quantized_if_it_is_asked_for():
    """Norms never are."""
    last, down = 'model.norm.weight', 'model.layers.0.mlp.down_proj.weight'
    lies(written('head', nf4(skip=[]), lora, adamw), **{'lm_head.weight': 'u8', last: 'f32', down: 'u8'})
    lies(written('head', nf4(), lora, adamw), **{'lm_head.weight': 'f32', last: 'f32', down: 'u8'})
    # What is said takes the place of the default.
    lies(written('head', nf4(skip=['down_proj']), lora, adamw), **{'lm_head.weight': 'u8', last: 'f32', down: 'f32'})


# ---- Runs -------------------------------------------------------------------------------------------------------------------------------

# Family, strategies, and how far the loss of the first step may be from that on an emulated GPU.
RUNS = {
    'bf16': ('llama', [use('amp', compute='bf16'), use('accumulate', steps=2), use('recompute', every=1)], 2e-2),
    'fp16': ('gpt2', [use('amp', compute='fp16', loss_scale=256)], 5e-3),
    'f32': ('tied', [use('clip', norm=0.5)], 1e-5),
}


@cases(RUNS, turns=2)
def runs(name, of):
    family, uses, bound = of
    path = recipe(f'{name}.lua', families[family], 'data.random {}', *uses, nf4(double=True), lora, adamw, **entries, save=dict(every=2, keep=2))
    run('plan', path, '--check')
    whole = trained(path, name)
    check(len(whole.steps) == 4 and every(math.isfinite(x) for step in whole.steps for x in step[:2]), f'{whole.steps}')
    adapter = 'adapter/adapter_model.safetensors'
    state = load(whole.path / 'state' / 'step-00000004' / 'state.safetensors')
    check(every(dtype != 'U8' for dtype, _, _ in state.values()) and not any('up_proj.weight' in n and 'lora' not in n for n in state),
          f'the state has frozen weights: {[n for n in state if "lora" not in n][:4]}')
    cut = pathlib.Path(f'{name}-cut')
    shutil.copytree(name, cut)
    shutil.rmtree(cut / 'state' / 'step-00000004')
    shutil.rmtree(cut / 'adapter')
    run('resume', cut)
    check((cut / adapter).read_bytes() == whole.bytes(adapter), 'resumed to other bytes')
    on_threads = train(path, f'{name}-threads', threads=3)
    check(on_threads.bytes(adapter) == whole.bytes(adapter), 'threads change bits')
    same('discrete', whole, train(path, f'{name}-discrete', *discrete), 'adapter')
    there = train(path, f'{name}-gpu', *gpu)
    for step, ((a, _), (b, _)) in enumerate(together(whole.steps, there.steps), 1):
        check(abs(a - b) <= bound * step * a, f'loss of step {step} is {b} on the emulated GPU, {a} on the processor')


finish()
