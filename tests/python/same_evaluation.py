#!/usr/bin/env python3
"""What evaluation means does not depend on how a model was trained: a run's validation loss, what `galley eval` says of the run, and what it says of the same weights
under a recipe without dropout, with accumulation, with recomputation or with another batch are one number; in all dtypes that training computes in."""
import json
import pathlib
import shutil

from galley_test import cases, check, finish, fresh_folder, from_config, recipe, run, train, use

fresh_folder()
pathlib.Path('text.txt').write_text('one two three four five six seven eight nine ten. ' * 20)
data = 'data.text { files = { arg("text") }, tokenizer = "bytes", validation = 0.2 }'
models = {
    'llama': from_config('llama', vocab_size=256, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                         max_position_embeddings=16),
    'gpt2': from_config('gpt2', vocab_size=256, n_positions=16, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1),
}
accumulate, recompute = use('accumulate', steps=2), use('recompute', every=1)
variants = {'no dropout': ([], 0, 4), 'accumulation': ([accumulate], 0.05, 4), 'recomputation': ([recompute], 0.05, 4), 'another batch': ([], 0.05, 1)}


def made(name, model, amp, more, dropout, batch):
    uses = amp + [use('lora', rank=4, alpha=64, dropout=dropout), use('adamw', lr=2e-2)] + more
    path = recipe(f'{name}.lua', model, data, *uses, batch=batch, length=12, steps=2, seed=3, validate=dict(every=2))
    return train(path, name, '--set', 'text=text.txt')


def evaluated(folder):
    return json.loads(run('eval', folder, '--json').stdout)['validation_loss']


@cases([f'{family}-{compute}' for family in models for compute in ('fp32', 'bf16', 'fp16')])
def evaluation(name):
    family, compute = name.split('-')
    scale = {'init': 256.0} if compute == 'fp16' else {}  # so that the first steps overflow nowhere
    amp = [use('amp', compute=compute, **scale)] if compute != 'fp32' else []
    first = made(name, models[family], amp, [], 0.05, 4)
    says = [x['validation_loss'] for x in first.lines if 'validation_loss' in x][-1]
    check(evaluated(name) == says, f'galley eval says {evaluated(name)}, the run {says}')
    for variant, how in variants.items():
        other = f'{name}-{variant.replace(" ", "-")}'
        made(other, models[family], amp, *how)
        shutil.rmtree(f'{other}/state')
        shutil.copytree(f'{name}/state', f'{other}/state')
        loss = evaluated(other)
        # Another batch adds the same losses up in another order.
        same = abs(loss - says) < 1e-9 if variant == 'another batch' else loss == says
        check(same, f'{variant}: {loss}, not {says}')


finish()
