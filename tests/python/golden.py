#!/usr/bin/env python3
"""Golden plans: recipes planned for a fixed machine give the bytes, owners and costs that are recorded in tests/golden. A change that moves them is
meant, or it is a mistake; `tests/python/golden.py --update`, with the variables of galley_test.py, records anew what the difference then shows."""
import json
import sys

from galley_test import binary, cases, check, finish, fresh_folder, from_config, plan, recipe, source, use

folder = source / 'tests' / 'golden'
fresh_folder()
gpt2 = from_config('gpt2', vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12)
llama = from_config('llama', vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
                    max_position_embeddings=2048, tie_word_embeddings=True)
data = 'data.random {}'
adamw, clip = use('adamw', lr=1e-4), use('clip', norm=1.0)
recipes = {
    'gpt2-full': (gpt2, data, clip, adamw, dict(batch=4, length=64)),
    'gpt2-accumulate-recompute': (gpt2, data, use('accumulate', steps=8), use('recompute', every=1), clip, adamw, dict(batch=1, length=512)),
    'gpt2-last-block-sgd': (gpt2, data, use('freeze', **{'except': '*.h.11.*'}), use('sgd', lr=1e-3, momentum=0.9), dict(batch=4, length=64)),
    'llama-lora': (llama, data, use('lora', rank=16, alpha=32, targets='all-linear', dropout=0.05), clip, adamw, dict(batch=1, length=512)),
    'llama-sqrt': (llama, data, use('recompute', policy='sqrt'), clip, adamw, dict(batch=4, length=256)),
    'gpt2-stored': (gpt2, data, use('bf16-storage', parameters=['*.mlp.*.weight'], states=[]), use('second-memory', parameters=[], states=['*']), clip, adamw,
                    dict(batch=1, length=128)),
}
plugins = [x for name in ('bf16-storage', 'second-memory') for x in ('--plugin-path', binary / 'tests' / 'plugins' / name)]


@cases(recipes)
def golden(name, of):
    model, data, *uses, entries = of
    path = recipe(f'{name}.lua', model, data, *uses, steps=10, seed=1, **entries)
    made = plan(path, '--target', folder / 'target.toml', *plugins)
    file = folder / f'{name}.json'
    if '--update' in sys.argv:
        file.write_text(json.dumps(made, indent=1, sort_keys=True) + '\n')
    recorded = json.loads(file.read_text())
    if not check(made == recorded, f'planned otherwise than {file.relative_to(source)} records'):
        for key in sorted(set(made) | set(recorded)):
            if made.get(key) != recorded.get(key):
                print(f'  {key}: {recorded.get(key)}\n  now {made.get(key)}')


finish()
