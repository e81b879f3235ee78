#!/usr/bin/env python3
"""A model is built without first_key where the recipe says that every row is one document; training is the same to the byte."""
import pathlib
import random

from galley_test import batch_of, case, cases, check, finish, fresh_folder, from_config, recipe, run, save, use
from steps_kit import trained

fresh_folder()
r = random.Random(3)
models = {
    'gpt2': from_config('gpt2', vocab_size=97, n_positions=128, n_embd=32, n_layer=2, n_head=4),  # dropout of probabilities, too
    'mistral': from_config('mistral', vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                           max_position_embeddings=128, sliding_window=40),
}


def reads_first_key(path):
    return 'input first_key' in run('plan', path, '--dump', 'rewrite').stdout


# Padding after the tokens: said by a mask, it needs first_key; without one it is tokens whose labels do not count.
B, S, lengths = 4, 100, (100, 70, 33, 64)
ids = [r.randrange(1, 97) for _ in range(B * S)]
mask = [int(s < n) for n in lengths for s in range(S)]
labels = [t if m else -100 for t, m in zip(ids, mask)]
batch = {'input_ids': ('I32', (B, S), ids), 'labels': ('I32', (B, S), labels)}
save('plain.safetensors', batch)
save('mask.safetensors', dict(batch, attention_mask=('I32', (B, S), mask)))


@cases(models)
def rows_of_a_batch(name, model):
    runs = {}
    for data in ('plain', 'mask'):
        path = recipe(f'{name}-{data}.lua', model, batch_of(f'{data}.safetensors'), use('clip', norm=1.0), use('adamw', lr=1e-3),
                      use('accumulate', steps=2), batch=2, steps=5, seed=2)
        check(reads_first_key(path) == (data == 'mask'), f'the model of {data}.safetensors is another one')
        runs[data] = trained(path, f'{name}-{data}')
    check(runs['plain'].steps == runs['mask'].steps, f'metrics differ: {runs["plain"].steps} and {runs["mask"].steps}')
    check(runs['plain'].bytes() == runs['mask'].bytes(), 'the models differ')


@case
def rows_of_a_document_each():
    """And the same rows beside packed ones, of which none is drawn."""
    r = random.Random(4)
    pathlib.Path('text').mkdir()
    for k in range(12):
        pathlib.Path(f'text/{k}.txt').write_text(''.join(chr(r.randrange(32, 97)) for _ in range(r.randrange(20, 90))))
    alone = 'data.text { files = "text", tokenizer = "bytes", packing = "none" }'
    packed = 'data.text { files = "text", tokenizer = "bytes" }'
    sources = {'alone': f'data.mix {{ {alone} }}', 'beside': f'data.mix {{ {alone}, {packed}, weights = {{ 1, 0 }} }}'}
    runs = {}
    for name, data in sources.items():
        path = recipe(f'{name}.lua', models['mistral'].replace('97', '256'), data, use('adamw', lr=1e-3), batch=3, length=96, steps=5, seed=2, validate=dict(every=2))
        check(reads_first_key(path) == (name == 'beside'), f'the model of the rows {name} is another one')
        runs[name] = trained(path, name)
    check(runs['alone'].steps == runs['beside'].steps, f'metrics differ: {runs["alone"].steps} and {runs["beside"].steps}')
    check(runs['alone'].bytes() == runs['beside'].bytes(), 'the models differ')


finish()
