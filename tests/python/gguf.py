#!/usr/bin/env python3
"""GGUF files as models: numbers, names, the order of rows and the configuration are those of the same model in transformers' format; a small writer of the test's own."""
import json
import math
import pathlib
import random
import shutil

import gguf_kit
from galley_test import batch_of, binary, check, error, every, finish, fixtures, fresh_folder, from_folder, gradients, load, plan, recipe, run, save, together, train, use
from discrete_kit import discrete, same
from gguf_kit import bytes_of, coded, divisors, keys_of, make, name_of, shapes_of, types, write

fresh_folder()
config = dict(vocab_size=96, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
              rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False)
generator = random.Random(5)
ids = [generator.randrange(config['vocab_size']) for _ in range(2 * 24)]
save('batch.safetensors', {'input_ids': ('I64', [2, 24], ids), 'labels': ('I64', [2, 24], ids)})
batch = batch_of('batch.safetensors')
gpu = ['--device', 'cuda-emulated', '--plugin-path', binary / 'tests' / 'plugins' / 'cuda-emulated']
lora, adamw = use('lora', rank=2, alpha=4), use('adamw', lr=1e-2)


def made(name, path, *uses, **entries):
    return recipe(f'{name}.lua', from_folder(path), batch, *uses, **dict(dict(steps=2, seed=3), **entries))


def compare(name, path, plain, uses=(), beside=(adamw,), limit=1e-6):
    """Loss, logits and gradients are those of the same numbers in transformers' format."""
    ours, theirs = (gradients(made(f'{name}-{k}', p, *u, *beside), f'{name}-{k}.safetensors', '--logits') for k, p, u in (('gguf', path, uses), ('plain', plain, ())))
    check(ours.keys() == theirs.keys(), f'{name}: {sorted(ours.keys() ^ theirs.keys())}')
    for tensor, (_, _, numbers) in theirs.items():
        off = error(ours[tensor][2], numbers)
        check(off < limit, f'{name}: {tensor} is off by {off}')


# ---- Numbers -------------------------------------------------------------------------------------------------------------------------------
for kind in ('F32', 'F16', 'BF16'):
    for tied in (False, True):
        name = f'{kind}-{tied}'
        make(name, dict(config, tie_word_embeddings=tied), lambda tensor, shape: 'F32' if len(shape) == 1 else kind)
        compare(name, f'{name}/model.gguf', f'{name}/plain')
        compare(f'{name}-lora', f'{name}/model.gguf', f'{name}/plain', beside=(lora, adamw))
# RoPE's parameters: scaled frequencies, and those of Llama 3, which are numbers of a tensor.
for name, keys, scaling in (('linear', {'llama.rope.scaling.type': ('STR', 'linear'), 'llama.rope.scaling.factor': ('F32', 2.5)}, dict(rope_type='linear', factor=2.5)),
                            ('llama3', {}, dict(rope_type='llama3', factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192))):
    make(name, config, lambda tensor, shape: 'F32', freqs=divisors(scaling, 16, 10000.0) if name == 'llama3' else None, **keys)
    said = json.loads(pathlib.Path(name, 'plain', 'config.json').read_text())
    pathlib.Path(name, 'plain', 'config.json').write_text(json.dumps(dict(said, rope_scaling=scaling)))
    compare(name, f'{name}/model.gguf', f'{name}/plain')
# A folder with one GGUF file is that model; what is exported is one that transformers reads.
folder = pathlib.Path('F32-False')
(folder / 'alone').mkdir()
shutil.copy(folder / 'model.gguf', folder / 'alone' / 'x.gguf')
run('export', made('alone', folder / 'alone', adamw), '--out', 'exported', '--reference')
check({k: x[1:] for k, x in load('exported/model.safetensors').items()} == {k: x[1:] for k, x in load(folder / 'plain' / 'model.safetensors').items()}, 'exported: other numbers')
said = json.loads(pathlib.Path('exported/config.json').read_text())
check(every(said[k] == x for k, x in config.items()) and said['architectures'] == ['LlamaForCausalLM'] and 'gguf_types' not in said, f'exported: {said}')

# ---- Blocks --------------------------------------------------------------------------------------------------------------------------------
blocks = use('quantize-gguf')
wide = dict(config, hidden_size=256, intermediate_size=512, num_hidden_layers=1)


def kinds(kind_of, shape):
    return [(kind_of(name, extents), math.prod(extents)) for name, extents in shapes_of(shape).items()]


def mixed(name, shape):
    """As llama.cpp mixes types: a better one for the head, values and down."""
    if len(shape) == 1:
        return 'F32'
    return 'Q6_K' if 'lm_head' in name or 'v_proj' in name else 'Q5_K' if 'down' in name else 'Q4_K' if 'embed' not in name else 'Q8_0'


cases = {kind: lambda name, shape, kind=kind: 'F32' if len(shape) == 1 else kind for kind in types if types[kind][1] > 1}
cases['mixed'] = mixed
for name, kind_of in cases.items():
    for tied in (False, True):
        label, shape = f'{name}-{"tied" if tied else "head"}', dict(wide if '_K' in name or name == 'mixed' else config, tie_word_embeddings=tied)
        make(label, shape, kind_of)
        model, plain = f'{label}/model.gguf', f'{label}/plain'
        # Nothing is trained but an adapter: the loss, logits, and gradients of A and B.
        compare(label, model, plain, (blocks,), (lora, adamw))
        if tied:
            continue
        compare(f'{label}-bf16', model, plain, (blocks,), (lora, adamw, use('amp', compute='bf16')))
        # What is kept is what the file has, byte for byte; nothing else differs from weights in F32.
        saved = sum(count * 4 - count // types[kind][1] * types[kind][2] for kind, count in kinds(kind_of, shape))
        of_blocks, of_numbers = (plan(made(f'{label}-plan', path, *more, lora, adamw))['classes']['host'] for path, more in ((model, (blocks,)), (plain, ())))
        said = run('plan', made(f'{label}-plan', model, blocks, lora, adamw)).stdout
        check(every(f'gguf-blocks, type = {kind}' in said for kind, _ in kinds(kind_of, shape) if kind != 'F32'), f'{label}: {said}')
        check(of_numbers['owners']['weights'] - of_blocks['owners']['weights'] == saved, f'{label}: {of_blocks}, beside {of_numbers}: {saved} bytes less were to be kept')
        one = train(made(f'{label}-train', model, blocks, lora, adamw, steps=4), f'{label}-train')
        one.check_memory(label)
        check(one.steps[-1][0] < one.steps[0][0], f'{label}: the loss does not fall: {one.steps}')


# ---- Runs ----------------------------------------------------------------------------------------------------------------------------------
# Every command, on every device; --reference compares each instruction with its op's own reference, also what is read.
for name, kind, more in (('runs', 'mixed', ()), ('runs-bf16', 'Q4_0', (use('amp', compute='bf16'), use('recompute', every=1)))):
    for head in ('head', 'tied'):
        model = f'{kind}-{head}/model.gguf'
        path = recipe(f'{name}-{head}.lua', from_folder(model), batch, blocks, lora, adamw, *more, steps=4, seed=3, save=dict(every=2, keep=2))
        run('plan', path, '--check')
        whole = train(path, f'{name}-{head}', '--reference')
        cut = pathlib.Path(f'{name}-{head}-cut')
        shutil.copytree(whole.path, cut)
        shutil.rmtree(cut / 'state' / 'step-00000004')
        shutil.rmtree(cut / 'adapter')
        run('resume', cut)
        adapter = 'adapter/adapter_model.safetensors'
        check((cut / adapter).read_bytes() == whole.bytes(adapter), f'{name}: resumed to other bytes')
        there = train(path, f'{name}-{head}-discrete', *discrete)
        there.check_memory(f'{name}-{head}-discrete')
        same(f'{name}-{head}, discrete', train(path, f'{name}-{head}-plain'), there, 'adapter')
        emulated = train(path, f'{name}-{head}-gpu', *gpu)
        for (a, _), (b, _) in together(whole.steps, emulated.steps):
            check(abs(a - b) <= (2e-2 if more else 1e-5) * a, f'{name}-{head}: loss {b} on the emulated GPU, {a} on the processor')
        # Merged are the numbers of the blocks and the adapter; the file that comes of it is transformers'.
        run('export', whole.path, '--merge', '--out', f'{name}-{head}-merged')
        ours, merged = (gradients(made(f'{name}-{head}-{k}', p, *u), f'{name}-{head}-{k}.safetensors', '--logits')['logits'][2]
                        for k, p, u in (('beside', model, (blocks, use('lora', path=whole.path.resolve() / 'adapter'), adamw, *more)), ('after', f'{name}-{head}-merged', (adamw, *more))))
        check(error(merged, ours) < (3e-2 if more else 1e-5), f'{name}-{head}: merged logits are off by {error(merged, ours)}')
        # Without an adapter nothing is trained: the numbers are exported.
        run('export', made(f'{name}-{head}-export', model, blocks), '--out', f'{name}-{head}-numbers')
        numbers, plain = load(f'{name}-{head}-numbers/model.safetensors'), load(f'{kind}-{head}/plain/model.safetensors')
        check({k: x[1:] for k, x in numbers.items()} == {k: x[1:] for k, x in plain.items()}, f'{name}-{head}: exported: other numbers')

# What lies in no blocks may be trained beside them; a folder with a file is a model to every command that takes one.
norms = train(made('norms', 'Q4_0-head/model.gguf', blocks, use('freeze', **{'except': ['*norm.weight']}), adamw, steps=3), 'norms')
norms.check_memory('norms')
check(norms.steps[-1][0] < norms.steps[0][0], f'norms: the loss does not fall: {norms.steps}')
run('export', folder / 'alone', '--out', 'by-path')
check(load('by-path/model.safetensors').keys() == load(folder / 'plain' / 'model.safetensors').keys(), 'export of a folder: other tensors')

# ---- What is refused -----------------------------------------------------------------------------------------------------------------------
shape, tensors = dict(config, num_hidden_layers=1), {}
make('refused', shape, lambda name, extents: 'F32' if len(extents) == 1 else 'Q8_0')


def content():
    """The tensors of the file that refusals change."""
    generator = random.Random(7)
    out = {}
    for name, extents in shapes_of(shape).items():
        kind = 'F32' if len(extents) == 1 else 'Q8_0'
        out[name_of(name)] = coded(kind, extents, generator)[0] if kind == 'Q8_0' else (kind, extents, bytes_of(kind, [1.0] * extents[0]))
    return out


def gone(name):
    return lambda keys, tensors: (tensors if name in tensors else keys).pop(name)


def put(name, x):
    return lambda keys, tensors: (keys if isinstance(x[0], str) and len(x) == 2 else tensors).__setitem__(name, x)


def broken(keys, tensors):
    kind, extents, data = tensors['blk.0.ffn_up.weight']
    tensors['blk.0.ffn_up.weight'] = (kind, extents, data[:34 * 5] + b'\0\x7e' + data[34 * 5 + 2:])


refusals = {
    'architecture': (put('general.architecture', ('STR', 'qwen3moe')), ("'qwen3moe'", "supported: 'llama'")),
    'nameless': (gone('general.architecture'), ("no text 'general.architecture'",)),
    'key': (put('llama.attention.clamp_kqv', ('F32', 8.0)), ("key 'llama.attention.clamp_kqv'", 'not supported')),
    'layers': (put('llama.attention.head_count_kv', ('ARR', ('U32', [2, 4]))), ("'llama.attention.head_count_kv'", 'in all layers')),
    'experts': (put('llama.expert_count', ('U32', 8)), ('experts',)),
    'length': (gone('llama.context_length'), ("no key 'llama.context_length'",)),
    'yarn': (put('llama.rope.scaling.type', ('STR', 'yarn')), ("'yarn'", 'not supported')),
    'rope': (put('llama.rope.dimension_count', ('U32', 8)), ("'llama.rope.dimension_count' = 8", '16')),
    'heads': (put('llama.attention.head_count', ('U32', 0)), ("'num_attention_heads' must be a positive integer",)),
    'width': (put('llama.feed_forward_length', ('U32', 64)), ('blk.0.ffn_gate.weight', 'Q8_0 (128, 64)', '(64, 68)')),
    'missing': (gone('blk.0.attn_v.weight'), ('blk.0.attn_v.weight', 'missing')),
    'table': (gone('token_embd.weight'), ("no tensor 'token_embd.weight'",)),
    'extra': (put('blk.0.extra.weight', ('F32', [8], bytes_of('F32', [1.0] * 8))), ('blk.0.extra.weight', 'unknown to the model')),
    'freqs': (put('rope_freqs.weight', ('F32', [8], bytes_of('F32', [1.0] * 7 + [8.0]))), ("'rope_freqs.weight' is not of Llama 3's RoPE", 'number 7 is 1.0')),
    'no-freqs': (put('rope_freqs.weight', ('F16', [8], bytes_of('F16', [1.0] * 8))), ("'rope_freqs.weight' is not a short vector in F32",)),
    'both-ropes': (lambda keys, tensors: (put('rope_freqs.weight', ('F32', [8], bytes_of('F32', [1.0] * 8)))(keys, tensors), put('llama.rope.scaling.type', ('STR', 'linear'))(keys, tensors),
                                          put('llama.rope.scaling.factor', ('F32', 2.0))(keys, tensors)), ("'llama.rope.scaling.type'", 'both')),
    'nan': (broken, ("'blk.0.ffn_up.weight', block 5", 'scale is NaN')),
}
for name, (change, words) in refusals.items():
    keys, tensors = keys_of(shape), content()
    change(keys, tensors)
    said = run('train', made(f'refused-{name}', write(f'{name}.gguf', keys, tensors), blocks, lora, adamw), '--out', f'refused-{name}', code=2).stderr
    check(every(w in said for w in (*words, f'{name}.gguf')), f'{name}: {said}')
# By the recipe.
for name, model, uses, words in (('nobody', 'refused/model.gguf', (lora, adamw), ("key 'gguf_types'", 'use "quantize-gguf"')),
                                 ('full', 'refused/model.gguf', (blocks, adamw), ('lies in blocks of Q8_0', 'is to be trained', 'lora')),
                                 ('both', 'refused/model.gguf', (blocks, use('quantize-nf4'), lora, adamw), ('quantize-gguf', 'quantize-nf4'))):
    said = run('plan', made(f'refused-{name}', model, *uses), code=2).stderr
    check(every(w in said for w in words), f'{name}: {said}')
text = recipe('tokenizer.lua', from_folder('refused/model.gguf'), 'data.text { files = { "x.txt" } }', blocks, lora, adamw, batch=1, length=8, steps=1)
pathlib.Path('x.txt').write_text('one two three')
said = run('plan', text, code=2).stderr
check('refused/tokenizer.json' in said and 'of a GGUF file is not read' in said, f'tokenizer: {said}')
# Beside any other model it does nothing.
for name, uses in (('with', (blocks,)), ('without', ())):
    train(made(name, 'F32-False/plain', *uses, lora, adamw), name)
check(pathlib.Path('with/adapter/adapter_model.safetensors').read_bytes() == pathlib.Path('without/adapter/adapter_model.safetensors').read_bytes(), 'quantize-gguf changes another model')
finish()
