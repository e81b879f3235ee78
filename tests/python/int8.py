#!/usr/bin/env python3
"""Weights in 8 bit: bytes in the plan by formula, beside an adapter in either order and beside what else a fine-tuning takes, on the layouts of both families, with tied
embeddings, evaluated, sampled, exported and merged; read from a folder that holds codes; and what is refused."""
import functools
import json
import math
import pathlib
import shutil
import struct

from galley_test import case, cases, check, error, every, finish, fresh_folder, from_config, from_folder, load, norm, recipe, run, save, together, use
from steps_kit import planned, refused, trained

fresh_folder()
pathlib.Path('text.txt').write_text('one two three four five six seven eight nine ten. ' * 60)
data = "data.text { files = 'text.txt', tokenizer = 'bytes', validation = 0.2 }"
H, I, B, KV = 32, 48, 2, 16  # of llama
llama = dict(vocab_size=256, hidden_size=H, intermediate_size=I, num_hidden_layers=B, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=16)
models = {'llama': from_config('llama', **llama), 'gpt2': from_config('gpt2', vocab_size=256, n_positions=16, n_embd=H, n_layer=B, n_head=4),
          'tied': from_config('llama', tie_word_embeddings=True, **llama)}
# Outputs and inputs of a block's linear layers.
of_llama = [(H, H), (KV, H), (KV, H), (H, H), (I, H), (I, H), (H, I)]
layers = {'llama': of_llama, 'tied': of_llama, 'gpt2': [(3 * H, H), (H, H), (4 * H, H), (H, 4 * H)]}
lora = use('lora', rank=4, alpha=8, targets='all-linear')
adamw = use('adamw', lr=1e-2)
strategies = ('quantize-int8', 'quantize-llm-int8')
ADAPTER = 'adapter/adapter_model.safetensors'


def written(name, *uses, model=models['llama'], **more):
    return recipe(f'{name}.lua', model, data, *uses, **dict(dict(batch=2, length=16, steps=4, seed=5), **more))


def made(name, *uses, **more):
    return trained(written(name, *uses, **{**dict(validate=dict(every=2), save=dict(every=2, keep=2)), **more}), name)


# ---- Bytes -------------------------------------------------------------------------------------------------------------------------------


@cases(models)
def bytes_of_weights(family, model):
    def weights(*uses):
        return planned(written('plan', *uses, adamw, model=model))['classes']['host']['owners']['weights']

    numbers, rows = (B * sum(f(n, k) for n, k in layers[family]) for f in (lambda n, k: n * k, lambda n, k: n))
    for bytes_before, amp in ((4, []), (2, [use('amp', compute='bf16')])):
        before = weights(lora, *amp)
        for name in strategies:
            saved = before - weights(use(name), lora, *amp)
            check(saved == bytes_before * numbers - (numbers + 4 * rows), f'{name}: {saved} bytes less, with {numbers} numbers in {rows} rows')
    skipped = 'mlp.c_proj' if family == 'gpt2' else 'down_proj'
    n, k = layers[family][-1]
    for name in strategies:
        more = weights(use(name, skip=[skipped]), lora) - weights(use(name), lora)
        check(more == B * (3 * n * k - 4 * n), f'{name}: what is skipped takes {more} bytes more')


# ---- Beside other strategies -------------------------------------------------------------------------------------------------------------


def falls(one):
    check(one.steps[-1][0] < one.steps[0][0], f'{one.path}: the loss does not fall: {one.steps}')


def is_used(one):
    """Evaluated, sampled and exported."""
    validated = [x['validation_loss'] for x in one.lines if 'validation_loss' in x]
    evaluated = json.loads(run('eval', one.path, '--json').stdout)['validation_loss']
    check(evaluated == validated[-1], f'{one.path}: eval says {evaluated}, the last validation {validated[-1]}')
    check(run('sample', one.path, '--prompt', 'one two', '--tokens', 3).stdout, f'{one.path}: no text')
    run('export', one.path, '--out', f'{one.path}-adapter')
    check(load(f'{one.path}-adapter/adapter_model.safetensors'), f'{one.path}: no adapter')


@cases(strategies)
def order(name):
    """The order of the recipe decides nothing, and neither does recomputation."""
    orders = (use(name), lora, adamw), (adamw, lora, use(name))
    one, other = (made(f'{name}-{which}', *uses) for which, uses in together(('one', 'other'), orders))
    check(other.bytes(ADAPTER) == one.bytes(ADAPTER) and other.steps == one.steps, 'the order of the recipe decides')
    plans = [planned(written('order', *uses)) for uses in orders]
    for p in plans:
        p['classes']['host'].pop('strategies')  # by lines of the recipe
    check(every(plans[0][x] == plans[1][x] for x in ('classes', 'launches', 'kernels', 'step')), 'the order of the recipe decides the plan')
    again = made(f'{name}-recomputed', use(name), lora, use('recompute'), adamw)
    check(again.bytes(ADAPTER) == one.bytes(ADAPTER), 'recomputation changes the adapter')


@cases(strategies)
def near_whole_weights(name):
    one, full = made(name, use(name), lora, adamw), made(f'{name}-full', lora, adamw)
    off = abs(one.steps[0][0] - full.steps[0][0]) / full.steps[0][0]
    check(0 < off < 3e-3, f'the first loss is off by {off}')
    falls(one)
    is_used(one)


@cases([f'{name}-{compute}' for name in strategies for compute in ('bf16', 'fp16')])
def in_16_bit(who):
    name, compute = who.rsplit('-', 1)
    scale = dict(loss_scale=1024) if compute == 'fp16' else {}
    low = made(who, use(name), lora, use('accumulate', steps=2), use('clip', norm=1.0), use('amp', compute=compute, **scale), adamw)
    check(every(math.isfinite(x) and x > 0 for step in low.steps for x in step), f'{low.steps}')
    falls(low)
    if compute == 'bf16':
        is_used(low)


@cases([f'{name}-{family}' for name in strategies for family in ('gpt2', 'tied')])
def other_models(who):
    name, family = who.rsplit('-', 1)
    there = made(who, use(name), lora, adamw, model=models[family])
    falls(there)
    is_used(there)


@cases(strategies)
def alone(name):
    """What evaluates alone needs no adapter."""
    loss = json.loads(run('eval', written('alone', use(name), steps=1), '--json').stdout)['validation_loss']
    check(math.isfinite(loss), f'{loss}')


@case
def threshold():
    """Outliers in 16 bit are nearer to the model than none; a threshold that all reach leaves the rounding of F16."""
    losses = {t: made(f'threshold-{t}', use('quantize-llm-int8', threshold=t), lora, adamw, steps=1).steps[0][0] for t in (0, 1e-6)}
    stored_loss = made('stored', use('quantize-int8'), lora, adamw, steps=1).steps[0][0]
    check(losses[0] != losses[1e-6], 'the threshold changes nothing')
    check(abs(losses[1e-6] - stored_loss) < 1e-4 * stored_loss, f'all in 16 bit: {losses[1e-6]}, and by numbers {stored_loss}')


# ---- What is stored, by formula ----------------------------------------------------------------------------------------------------------


def half(x):
    return struct.unpack('<e', struct.pack('<e', x))[0]


def single(x):
    return struct.unpack('<f', struct.pack('<f', x))[0]


def coded(rows):
    codes, scales = [], []
    for row in rows:
        row = [half(x) for x in row]
        scale = max(map(abs, row))
        by = single(127 * single(1 / scale))
        codes.append([round(single(x * by)) for x in row])
        scales.append(scale)
    return codes, scales


def linear_layers(tensors):
    """Names of the weights that are stored as codes."""
    found = [name for name, w in tensors.items() if len(w[1]) == 2 and not any(x in name for x in ('embed', 'lm_head', 'wte', 'wpe'))]
    check(len(found) == (8 if any('.h.' in x for x in tensors) else 14), f'linear layers: {found}')
    return found


def rows_of(w):
    (n, k), x = w[1], w[2]
    return [list(x[i * k:i * k + k]) for i in range(n)]


@functools.cache
def beginning(family):
    """The run that a model with random weights begins as: one that changes nothing shows it."""
    return made(f'start-{family}', use('sgd', lr=1e-30), model=models[family], steps=1, validate=dict(every=1), save=dict(every=1))


@functools.cache
def numbers_of_codes(family):
    """The folder of the numbers for which the codes of beginning() stand: an adapter that adds nothing, merged."""
    name = f'still-{family}'
    made(name, use('quantize-int8'), use('lora', rank=2, targets='all-linear'), use('sgd', lr=0.0), model=models[family], steps=1, save=dict(every=1))
    run('export', name, '--merge', '--out', f'numbers-{family}')
    return pathlib.Path(f'numbers-{family}').resolve()


@cases(['llama', 'gpt2'])
def codes(family):
    first, numbers = load(beginning(family).path / 'model/model.safetensors'), load(numbers_of_codes(family) / 'model.safetensors')
    stored = linear_layers(first)
    for name, w in first.items():
        if name not in stored:
            check(max(abs(a - b) for a, b in together(numbers[name][2], w[2])) < 1e-20, f'{name} has changed')
            continue
        rows, got = rows_of(w), rows_of(numbers[name])
        if family == 'gpt2':  # a row of codes is a column there
            rows, got = (list(zip(*x)) for x in (rows, got))
        back = [code * scale / 127 for row, scale in together(*coded(rows)) for code in row]
        off = error([x for row in got for x in row], back)
        check(off < 1e-6, f'{name} is not what its codes stand for: {off}')


@case
def folder_of_codes():
    """A folder that holds codes gives the same run, and one that holds what they stand for the same losses. GPT-2's are refused: see quantized_folders.py."""
    start = beginning('llama').path / 'model'
    first = load(start / 'model.safetensors')
    packed = dict(first)
    for name in linear_layers(first):
        codes, scales = coded(rows_of(first[name]))
        packed[name] = ('I8', first[name][1], [code for row in codes for code in row])
        packed[name.removesuffix('weight') + 'SCB'] = ('F32', [len(scales)], scales)
        packed[f'{name}_format'] = ('U8', [1], [0])
    shutil.copytree(start, 'codes')
    save('codes/model.safetensors', packed)
    config = json.loads(pathlib.Path('codes/config.json').read_text())
    pathlib.Path('codes/config.json').write_text(json.dumps(dict(config, quantization_config=dict(load_in_8bit=True, quant_method='bitsandbytes'))))
    for name in strategies:
        from_codes, from_numbers = (made(f'{name}-from-{what}', use(name), lora, adamw, model=from_folder(folder))
                                    for what, folder in (('codes', 'codes'), ('numbers', start)))
        check(from_codes.steps == from_numbers.steps, f'{name}: codes from a file give another run')
        check(from_codes.bytes(ADAPTER) == from_numbers.bytes(ADAPTER), f'{name}: another adapter')
    plain = made('plain', lora, adamw, model=from_folder(numbers_of_codes('llama')))
    by_codes = made('by-codes', use('quantize-int8'), lora, adamw, model=from_folder('codes'))
    for (a, b), (c, d) in together(plain.steps, by_codes.steps):
        check(abs(a - c) < 1e-5 * a and abs(b - d) < 1e-4 * b, f'{a}, {b} by numbers, {c}, {d} by codes')


@case
def merged():
    """What the codes stand for, and the adapter's product on top."""
    one = made('to-merge', use('quantize-int8'), lora, adamw)
    run('export', one.path, '--merge', '--out', 'merged')
    adapter, merged, base = load(one.path / ADAPTER), load('merged/model.safetensors'), load(beginning('llama').path / 'model/model.safetensors')
    for name in linear_layers(merged):
        module = 'base_model.model.' + name.rsplit('.', 1)[0]
        (n, k), a, b = merged[name][1], adapter[f'{module}.lora_A.weight'][2], adapter[f'{module}.lora_B.weight'][2]
        codes, scales = coded(rows_of(base[name]))
        wanted = [codes[i][j] * scales[i] / 127 + 2 * sum(b[i * 4 + r] * a[r * k + j] for r in range(4)) for i in range(n) for j in range(k)]
        check(error(merged[name][2], wanted) < 1e-6, f'merged {name} is off by {error(merged[name][2], wanted)}')
    check(norm(merged['model.norm.weight'][2]) > 0, 'no norm')


# ---- What is refused ---------------------------------------------------------------------------------------------------------------------


def refuses(*uses, says):
    refused(written('refused', *uses, adamw, steps=1), *says)


@cases(strategies)
def refusals(name):
    refuses(use(name), says=[f': {name}: ', 'are to be trained', 'use "lora"'])
    refuses(use(name, skip=['q_prok']), lora, says=["no linear layer is called 'q_prok'", 'q_proj'])
    refuses(use(name, skip=['*']), lora, says=['8 bit'])
    refuses(use(name, skip_modules=['x']), lora, says=["did you mean 'skip'"])


@case
def what_trains():
    refuses(use('quantize-llm-int8'), use('freeze', patterns=['*.layers.0.*']), says=[': quantize-llm-int8: ', 'is to be trained', 'skip = {'])
    made = planned(written('part', use('quantize-int8'), use('freeze', patterns=['*.layers.0.*']), adamw))  # what is frozen is stored so
    check(0 < made['trainable'] < made['parameters'], f'a part is trained: {made["trainable"]} of {made["parameters"]}')


@case
def threshold_below_zero():
    refuses(use('quantize-llm-int8', threshold=-1.0), lora, says=['threshold'])


finish(turns=2)
