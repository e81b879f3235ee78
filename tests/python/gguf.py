#!/usr/bin/env python3
"""GGUF files as models: numbers, names, the order of rows and the configuration are those of the same model in transformers' format; a small writer of the test's own."""
import json
import pathlib
import random
import shutil

import gguf_kit
from galley_test import batch_of, check, error, finish, fixtures, fresh_folder, from_folder, gradients, load, plan, recipe, run, save, train, use
from gguf_kit import keys_of, make, write

fresh_folder()
config = dict(vocab_size=96, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
              rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False)
generator = random.Random(5)
ids = [generator.randrange(config['vocab_size']) for _ in range(2 * 24)]
save('batch.safetensors', {'input_ids': ('I64', [2, 24], ids), 'labels': ('I64', [2, 24], ids)})
batch = batch_of('batch.safetensors')
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
# A folder with one GGUF file is that model; what is exported is one that transformers reads.
folder = pathlib.Path('F32-False')
(folder / 'alone').mkdir()
shutil.copy(folder / 'model.gguf', folder / 'alone' / 'x.gguf')
run('export', made('alone', folder / 'alone', adamw), '--out', 'exported', '--reference')
check({k: x[1:] for k, x in load('exported/model.safetensors').items()} == {k: x[1:] for k, x in load(folder / 'plain' / 'model.safetensors').items()}, 'exported: other numbers')
said = json.loads(pathlib.Path('exported/config.json').read_text())
check(all(said[k] == x for k, x in config.items()) and said['architectures'] == ['LlamaForCausalLM'] and 'gguf_types' not in said, f'exported: {said}')
finish()
