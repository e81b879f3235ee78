#!/usr/bin/env python3
"""GGUF files as models: numbers, names, the order of rows and the configuration are those of the same model in transformers' format; a small writer of the test's own."""
import functools
import json
import math
import pathlib
import random
import shutil

from discrete_kit import discrete, same
from galley_test import (batch_of, binary, case, cases, check, error, every, finish, fresh_folder, from_folder, gradients, load, plan, recipe, run, save, together, train,
                         use)
from gguf_kit import bytes_of, coded, divisors, keys_of, make, name_of, shapes_of, types, write
from steps_kit import refused, trained

fresh_folder()
config = dict(vocab_size=96, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
              rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False)
generator = random.Random(5)
ids = [generator.randrange(config['vocab_size']) for _ in range(2 * 24)]
save('batch.safetensors', {'input_ids': ('I64', [2, 24], ids), 'labels': ('I64', [2, 24], ids)})
batch = batch_of('batch.safetensors')
gpu = ['--device', 'cuda-emulated', '--plugin-path', binary / 'emulated']
lora, adamw, blocks = use('lora', rank=2, alpha=4), use('adamw', lr=1e-2), use('quantize-gguf')
ADAPTER = 'adapter/adapter_model.safetensors'


def made(name, path, *uses, **entries):
    return recipe(f'{name}.lua', from_folder(path), batch, *uses, **dict(dict(steps=2, seed=3), **entries))


def compare(name, folder, uses=(), beside=(adamw,), limit=1e-6):
    """Loss, logits and gradients of a file are those of the same numbers in transformers' format."""
    ours, theirs = (gradients(made(f'{name}-{k}', folder / k, *u, *beside), f'{name}-{k}.safetensors', '--logits') for k, u in (('model.gguf', uses), ('plain', ())))
    check(ours.keys() == theirs.keys() and len(theirs) > 5, f'{sorted(theirs)}, but {sorted(ours.keys() ^ theirs.keys())}')
    for tensor, (_, _, numbers) in theirs.items():
        off = error(ours[tensor][2], numbers)
        check(off < limit, f'{name}: {tensor} is off by {off}')


def falls(one):
    check(one.steps[-1][0] < one.steps[0][0], f'{one.path}: the loss does not fall: {one.steps}')


def same_tensors(path, other):
    """By names, shapes and numbers."""
    a, b = ({k: x[1:] for k, x in load(pathlib.Path(x) / 'model.safetensors').items()} for x in (path, other))
    check(a == b and len(a) > 5, f'{path} has other tensors than {other}: {sorted(k for k in a.keys() | b.keys() if a.get(k) != b.get(k))}')


# ---- Numbers -------------------------------------------------------------------------------------------------------------------------------


def of_kind(kind):
    """A type of each parameter: vectors are F32."""
    return lambda name, shape: 'F32' if len(shape) == 1 else kind


@functools.cache
def in_numbers(kind, head):
    """The folder of a model in such numbers; its head is its own, or tied."""
    folder = pathlib.Path(f'{kind}-{head}').resolve()
    make(folder, dict(config, tie_word_embeddings=head == 'tied'), of_kind(kind))
    return folder


@cases([f'{kind}-{head}' for kind in ('F32', 'F16', 'BF16') for head in ('head', 'tied')])
def numbers(name):
    folder = in_numbers(*name.split('-'))
    compare(name, folder)
    compare(f'{name}-lora', folder, beside=(lora, adamw))


@cases({'linear': ({'llama.rope.scaling.type': ('STR', 'linear'), 'llama.rope.scaling.factor': ('F32', 2.5)}, dict(rope_type='linear', factor=2.5)),
        'yarn': ({'llama.rope.scaling.type': ('STR', 'yarn'), 'llama.rope.scaling.factor': ('F32', 4.0), 'llama.rope.scaling.original_context_length': ('U32', 8),
                  'llama.rope.scaling.yarn_beta_fast': ('F32', 32.0)}, dict(rope_type='yarn', factor=4.0, original_max_position_embeddings=8)),
        'yarn-attention': ({'llama.rope.scaling.type': ('STR', 'yarn'), 'llama.rope.scaling.factor': ('F32', 4.0),
                            'llama.rope.scaling.original_context_length': ('U32', 8), 'llama.rope.scaling.attn_factor': ('F32', 0.5)},
                           dict(rope_type='yarn', factor=4.0, original_max_position_embeddings=8, attention_factor=0.5 * (0.1 * math.log(4) + 1))),
        'llama3': ({}, dict(rope_type='llama3', factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192))})
def rope(name, of):
    """RoPE's parameters: scaled frequencies, and those of Llama 3, which are numbers of a tensor."""
    keys, scaling = of
    make(name, config, of_kind('F32'), freqs=divisors(scaling, 16, 10000.0) if name == 'llama3' else None, **keys)
    said = json.loads(pathlib.Path(name, 'plain', 'config.json').read_text())
    pathlib.Path(name, 'plain', 'config.json').write_text(json.dumps(dict(said, rope_scaling=scaling)))
    compare(name, pathlib.Path(name))


@functools.cache
def alone():
    """A folder with nothing but a GGUF file."""
    folder = in_numbers('F32', 'head') / 'alone'
    folder.mkdir()
    shutil.copy(folder.parent / 'model.gguf', folder / 'x.gguf')
    return folder


@case
def folder_with_one_file():
    """It is that model; what is exported is one that transformers reads."""
    run('export', made('alone', alone(), adamw), '--out', 'exported', '--reference')
    same_tensors('exported', in_numbers('F32', 'head') / 'plain')
    said = json.loads(pathlib.Path('exported/config.json').read_text())
    check(every(said[k] == x for k, x in config.items()) and said['architectures'] == ['LlamaForCausalLM'] and 'gguf_types' not in said, f'exported: {said}')


@case
def folder_by_its_path():
    """It is a model to every command that takes one."""
    run('export', alone(), '--out', 'by-path')
    same_tensors('by-path', in_numbers('F32', 'head') / 'plain')


# ---- Blocks --------------------------------------------------------------------------------------------------------------------------------

wide = dict(config, hidden_size=256, intermediate_size=512, num_hidden_layers=1)


def mixed(name, shape):
    """As llama.cpp mixes types: a better one for the head, values and down."""
    if len(shape) == 1:
        return 'F32'
    return 'Q6_K' if 'lm_head' in name or 'v_proj' in name else 'Q5_K' if 'down' in name else 'Q4_K' if 'embed' not in name else 'Q8_0'


KINDS = {**{kind: of_kind(kind) for kind in types if types[kind][1] > 1}, 'mixed': mixed}


def shape_of(kind, head):
    return dict(wide if '_K' in kind or kind == 'mixed' else config, tie_word_embeddings=head == 'tied')


@functools.cache
def in_blocks(kind, head):
    folder = pathlib.Path(f'{kind}-{head}').resolve()
    make(folder, shape_of(kind, head), KINDS[kind])
    return folder


@cases([f'{kind}-{head}' for kind in KINDS for head in ('head', 'tied')])
def gradients_beside_blocks(name):
    """Nothing is trained but an adapter: the loss, logits, and gradients of A and B."""
    folder = in_blocks(*name.split('-'))
    compare(name, folder, (blocks,), (lora, adamw))
    if name.endswith('head'):
        compare(f'{name}-bf16', folder, (blocks,), (lora, adamw, use('amp', compute='bf16')))


@cases(KINDS)
def kept_as_in_the_file(name, kind_of):
    """Byte for byte; nothing else differs from weights in F32."""
    folder = in_blocks(name, 'head')
    kinds = [(kind_of(parameter, extents), math.prod(extents)) for parameter, extents in shapes_of(shape_of(name, 'head')).items()]
    saved = sum(count * 4 - count // types[kind][1] * types[kind][2] for kind, count in kinds)
    of_numbers, of_blocks = (plan(made(f'{name}-plan', folder / k, *more, lora, adamw))['classes']['host'] for k, more in (('plain', ()), ('model.gguf', (blocks,))))
    said = run('plan', f'{name}-plan.lua').stdout
    check(every(f'gguf-blocks, type = {kind}' in said for kind, _ in kinds if kind != 'F32'), said)
    check(of_numbers['owners']['weights'] - of_blocks['owners']['weights'] == saved, f'{of_blocks}, beside {of_numbers}: {saved} bytes less were to be kept')
    falls(trained(made(f'{name}-train', folder / 'model.gguf', blocks, lora, adamw, steps=4), f'{name}-train'))


# ---- Runs ----------------------------------------------------------------------------------------------------------------------------------

# What a run uses beside blocks, and how far a loss on an emulated GPU and merged logits may be off.
RUNS = {'mixed': ((), 1e-5, 1e-5), 'Q4_0': ((use('amp', compute='bf16'), use('recompute', every=1)), 2e-2, 3e-2)}


@cases([f'{kind}-{head}' for kind in RUNS for head in ('head', 'tied')], turns=3)
def runs(name):
    """Every command, on every device; --reference compares each instruction with its op's own reference, also what is read."""
    kind, head = name.split('-')
    (more, bound, bound_of_logits), folder, run_of = RUNS[kind], in_blocks(kind, head), f'run-{name}'
    model = folder / 'model.gguf'
    path = recipe(f'{run_of}.lua', from_folder(model), batch, blocks, lora, adamw, *more, steps=4, seed=3, save=dict(every=2, keep=2))
    run('plan', path, '--check')
    whole = train(path, run_of, '--reference')
    cut = pathlib.Path(f'{run_of}-cut')
    shutil.copytree(whole.path, cut)
    shutil.rmtree(cut / 'state' / 'step-00000004')
    shutil.rmtree(cut / 'adapter')
    run('resume', cut)
    check((cut / ADAPTER).read_bytes() == whole.bytes(ADAPTER), 'resumed to other bytes')
    same('discrete', train(path, f'{run_of}-plain'), trained(path, f'{run_of}-discrete', *discrete), 'adapter')
    emulated = train(path, f'{run_of}-gpu', *gpu)
    for (a, _), (b, _) in together(whole.steps, emulated.steps):
        check(abs(a - b) <= bound * a, f'loss {b} on the emulated GPU, {a} on the processor')
    # Merged are the numbers of the blocks and the adapter; the file that comes of it is transformers'.
    run('export', whole.path, '--merge', '--out', f'{run_of}-merged')
    ours, merged = (gradients(made(f'{run_of}-{k}', p, *u, adamw, *more), f'{run_of}-{k}.safetensors', '--logits')['logits'][2]
                    for k, p, u in (('beside', model, (blocks, use('lora', path=whole.path.resolve() / 'adapter'))), ('after', f'{run_of}-merged', ())))
    check(error(merged, ours) < bound_of_logits, f'merged logits are off by {error(merged, ours)}')
    # Without an adapter nothing is trained: the numbers are exported.
    run('export', made(f'{run_of}-export', model, blocks), '--out', f'{run_of}-numbers')
    same_tensors(f'{run_of}-numbers', folder / 'plain')


@case
def norms_are_trained():
    """What lies in no blocks may be trained beside them."""
    falls(trained(made('norms', in_blocks('Q4_0', 'head') / 'model.gguf', blocks, use('freeze', **{'except': ['*norm.weight']}), adamw, steps=3), 'norms'))


@case
def beside_any_other_model():
    """quantize-gguf does nothing."""
    one, other = (trained(made(name, in_numbers('F32', 'head') / 'plain', *uses, lora, adamw), name) for name, uses in (('with', (blocks,)), ('without', ())))
    check(one.bytes(ADAPTER) == other.bytes(ADAPTER), 'quantize-gguf changes another model')


# ---- What is refused -----------------------------------------------------------------------------------------------------------------------

small = dict(config, num_hidden_layers=1)


def content():
    """The tensors of the file that refusals change."""
    generator = random.Random(7)
    return {name_of(name): ('F32', extents, bytes_of('F32', [1.0] * extents[0])) if len(extents) == 1 else coded('Q8_0', extents, generator)[0]
            for name, extents in shapes_of(small).items()}


def gone(name):
    return lambda keys, tensors: (tensors if name in tensors else keys).pop(name)


def put(name, x):
    return lambda keys, tensors: (keys if isinstance(x[0], str) and len(x) == 2 else tensors).__setitem__(name, x)


def broken(keys, tensors):
    kind, extents, data = tensors['blk.0.ffn_up.weight']
    tensors['blk.0.ffn_up.weight'] = (kind, extents, data[:34 * 5] + b'\0\x7e' + data[34 * 5 + 2:])


def both_ropes(keys, tensors):
    put('rope_freqs.weight', ('F32', [8], bytes_of('F32', [1.0] * 8)))(keys, tensors)
    put('llama.rope.scaling.type', ('STR', 'linear'))(keys, tensors)
    put('llama.rope.scaling.factor', ('F32', 2.0))(keys, tensors)


REFUSED = {
    'architecture': (put('general.architecture', ('STR', 'qwen3moe')), ("'general.architecture' is 'qwen3moe', which is not read from GGUF files", "supported: 'bert', 'bloom'")),
    'nameless': (gone('general.architecture'), ("no text 'general.architecture'",)),
    'key': (put('llama.attention.clamp_kqv', ('F32', 8.0)), ("key 'llama.attention.clamp_kqv'", 'not supported')),
    'layers': (put('llama.attention.head_count_kv', ('ARR', ('U32', [2, 4]))), ("'llama.attention.head_count_kv'", 'in all layers')),
    'experts': (put('llama.expert_count', ('U32', 8)), ("the model has experts ('llama.expert_count'), which is not supported",)),
    'length': (gone('llama.context_length'), ("there is no key 'llama.context_length'",)),
    'scaling': (put('llama.rope.scaling.type', ('STR', 'dynamic')), ("'dynamic'", 'not supported (none, linear, yarn, longrope)')),
    'yarn': (put('llama.rope.scaling.type', ('STR', 'yarn')), ("RoPE of type 'yarn' needs 'llama.rope.scaling.factor', from 1 on",)),
    'beta': (lambda keys, tensors: keys.update({f'llama.rope.scaling.{k}': x for k, x in (('type', ('STR', 'yarn')), ('factor', ('F32', 2.0)),
                                                                                          ('yarn_beta_slow', ('F32', 2.0)))}),
             ("'llama.rope.scaling.yarn_beta_slow' = 2.0 is not supported (1)",)),
    'attention': (put('llama.rope.scaling.attn_factor', ('F32', 2.0)), ("'llama.rope.scaling.attn_factor' = 2.0 is not supported",)),
    'longrope': (put('llama.rope.scaling.type', ('STR', 'longrope')), ("there is no key 'llama.rope.scaling.original_context_length'",)),
    'rope': (put('llama.rope.dimension_count', ('U32', 8)), ("'llama.rope.dimension_count' = 8", '16')),
    'heads': (put('llama.attention.head_count', ('U32', 0)), ("'num_attention_heads' must be a positive integer",)),
    'width': (put('llama.feed_forward_length', ('U32', 64)), ('blk.0.ffn_gate.weight', 'Q8_0 (128, 64)', '(64, 68)')),
    'missing': (gone('blk.0.attn_v.weight'), ('blk.0.attn_v.weight', 'missing')),
    'table': (gone('token_embd.weight'), ("no tensor 'token_embd.weight'",)),
    'extra': (put('blk.0.extra.weight', ('F32', [8], bytes_of('F32', [1.0] * 8))), ('blk.0.extra.weight', 'unknown to the model')),
    'freqs': (put('rope_freqs.weight', ('F32', [8], bytes_of('F32', [1.0] * 7 + [8.0]))), ("'rope_freqs.weight' is not of Llama 3's RoPE", 'number 7 is 1.0')),
    'no-freqs': (put('rope_freqs.weight', ('F16', [8], bytes_of('F16', [1.0] * 8))), ("'rope_freqs.weight' is not a short vector in F32",)),
    'both-ropes': (both_ropes, ("'llama.rope.scaling.type'", 'both')),
    'nan': (broken, ("'blk.0.ffn_up.weight', block 5", 'scale is NaN')),
}


@cases(REFUSED)
def refusals(name, of):
    change, words = of
    keys, tensors = keys_of(small), content()
    change(keys, tensors)
    path = made(f'refused-{name}', write(f'{name}.gguf', keys, tensors), blocks, lora, adamw)
    refused(path, *words, f'{name}.gguf', command='train', flags=('--out', f'refused-{name}'))
    check(not pathlib.Path(f'refused-{name}/model').exists(), 'a model was written')


@functools.cache
def in_q8():
    make('q8', small, of_kind('Q8_0'))
    return pathlib.Path('q8/model.gguf').resolve()


@cases({'nobody': ((lora, adamw), ("key 'gguf_types'", 'use "quantize-gguf"')), 'full': ((blocks, adamw), ('lies in blocks of Q8_0', 'is to be trained', 'lora')),
        'both': ((blocks, use('quantize-nf4'), lora, adamw), ('quantize-gguf', 'quantize-nf4'))})
def refused_by_the_recipe(name, of):
    uses, words = of
    refused(made(f'recipe-{name}', in_q8(), *uses), *words)


@case
def tokenizer():
    text = recipe('tokenizer.lua', from_folder(in_q8()), 'data.text { files = { "x.txt" } }', blocks, lora, adamw, batch=1, length=8, steps=1)
    pathlib.Path('x.txt').write_text('one two three')
    refused(text, 'q8/tokenizer.json', 'of a GGUF file is not read')


finish(turns=2)
