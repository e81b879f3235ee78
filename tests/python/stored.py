#!/usr/bin/env python3
"""Parameters that are saved as they are stored: their components, in the components' dtypes, and what config.json says of it."""
import json

from galley_test import binary, check, finish, fresh_folder, from_config, load, recipe, train, use

fresh_folder()
more = ('--plugin-path', binary / 'tests' / 'plugins' / 'bf16-storage')
model = from_config('gpt2', n_layer=1, n_embd=32, n_head=2, n_positions=16, vocab_size=64)
made = {}
for name, options in (('numbers', {}), ('stored', dict(export=True))):
    path = recipe(f'{name}.lua', model, 'data.random { }', use('bf16-storage', parameters=['*.mlp.*.weight'], **options), use('adamw'), batch=1, length=8, steps=2)
    run = train(path, name, *more)
    made[name] = load(run.path / 'model' / 'model.safetensors')
    config = json.loads((run.path / 'model' / 'config.json').read_text())
    check(config.get('stored_in') == ('brain' if options else None), f'{name}: config.json says {config.get("stored_in")}')
check(set(made['numbers']) == set(made['stored']), 'one run saves other tensors than the other')
for name, (dtype, shape, numbers) in made['stored'].items():
    wanted = 'BF16' if '.mlp.' in name and name.endswith('weight') else 'F32'
    check(dtype == wanted, f'{name} is saved in {dtype}, not {wanted}')
    check((shape, list(numbers)) == (made['numbers'][name][1], list(made['numbers'][name][2])), f'{name}: its numbers differ')
finish()
