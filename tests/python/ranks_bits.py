#!/usr/bin/env python3
"""A run of several processes is the run of one: with the same lanes it leaves the same bytes, whatever their number."""
import json
import pathlib

from galley_test import case, cases, check, finish, fresh_folder, from_config, Run, use
from ranks_kit import left, mpirun, train_with
from steps_kit import recipes, trained

fresh_folder()
config = dict(vocab_size=61, max_position_embeddings=32, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
written = recipes(from_config('llama', **config), 'data.random {}', batch=2, length=8, seed=3, steps=4, lanes=4)
four, adamw, lora = use('accumulate', steps=4), use('adamw', lr=1e-2), use('lora', rank=4, dropout=0.3)
CASES = {
    'adamw': (adamw,),
    'clip': (use('clip', norm=0.1), adamw),
    'bf16': (use('amp', compute='bf16'), adamw),
    'fp16': (use('amp', compute='fp16'), adamw),
    'lora': (lora, adamw),
    'nf4': (use('quantize-nf4'), lora, adamw),
    'adamw8': (use('adamw8bit', lr=1e-2),),
    'adafactor': (use('adafactor', lr=1e-2),),
    'muon': (use('muon', lr=1e-2, rest_lr=1e-2),),
    'ema': (adamw, use('ema', decay=0.9)),
    'recompute': (use('recompute', policy='every'), adamw),
}


@cases(CASES, turns=6)
def any_number_of_processes(name, uses):
    path = written(name, four, *uses)
    one = left(trained(path, f'{name}-1'))
    for n in (2, 4):
        check(left(train_with(n, path, f'{name}-{n}')) == one, f'{name}: {n} processes leave something else than one')


@cases(['tied', 'tokens', 'epochs', 't5'], turns=4)
def other_models_and_windows(name):
    """A table that is also the head, an encoder with a decoder, windows by tokens, and the short last window of an epoch, in which some processes have padding."""
    pathlib.Path('text.txt').write_text('\n'.join(f'{i * 7919 % 1009} is the number of line {i}.' for i in range(60)))
    pathlib.Path('pairs.jsonl').write_text(''.join(json.dumps(dict(prompt=f'{i} and {i % 7}', answer=str(i * i % 97))) + '\n' for i in range(40)))
    bytes_of = dict(config, vocab_size=256)
    tied = from_config('llama', **bytes_of, tie_word_embeddings=True)
    t5 = from_config('t5', vocab_size=384, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)
    text, pairs = 'data.text { files = { "text.txt" }, tokenizer = "bytes" }', 'data.prompts { files = { "pairs.jsonl" }, tokenizer = "bytes" }'
    shapes = {'tied': (tied, text, four, dict(steps=3, length=16)), 'tokens': (tied, text, use('accumulate', tokens=90), dict(steps=4, length=16)),
              'epochs': (tied, text, use('accumulate', steps=5), dict(epochs=1.3, length=16)), 't5': (t5, pairs, four, dict(steps=3, length=16, target_length=8))}
    model, data, window, entries = shapes[name]
    path = recipes(model, data, batch=2, seed=3, lanes=4)(name, window, adamw, **entries)
    one = left(trained(path, f'{name}-1'))
    for n in (2, 4):
        check(left(train_with(n, path, f'{name}-{n}')) == one, f'{name}: {n} processes leave something else than one')


@case
def proofs_of_several():
    """Reference mode computes an exchange again from what all have; poison mode runs each twice. Neither changes a byte."""
    path = written('proofs', four, CASES['clip'][0], adamw, steps=2)
    one = left(trained(path, 'proofs-1'))
    said = mpirun(2, 'train', path, '--out', 'proofs-reference', '--reference', '--reference-out', 'reference.json').stderr
    check(said.count('micro') > 0 and left(Run('proofs-reference')) == one, said)
    compared = json.loads(pathlib.Path('reference.json').read_text())
    check(any('all_reduce' in key for key in json.dumps(compared).split('"')), f'no exchange was compared: {compared}')
    check(left(train_with(2, path, 'proofs-poison', '--poison')) == one, 'poison mode')


finish()
