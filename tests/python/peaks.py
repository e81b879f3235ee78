#!/usr/bin/env python3
"""What a strategy is told of a peak is the peak of the plan with the same choices, in every memory class."""
import os
import random
import re

from galley_test import binary, cases, check, finish, fresh_folder, from_config, plan, recipe, run, source, use

fresh_folder()
seed = os.environ.get('GALLEY_TEST_SEED', 1)
folder = binary / 'tests' / 'plugins'
plugins = [x for name in ('peaks', 'bf16-storage', 'second-memory', 'six-bit') for x in ('--plugin-path', folder / name)]
target = ['--target', source / 'tests' / 'golden' / 'target.toml']


@cases(range(40))
def peak(i):
    r = random.Random(f'{seed} {i}')
    layers, heads = r.randint(1, 6), r.choice([1, 2, 4])
    if i % 2:
        model = from_config('gpt2', vocab_size=r.randint(40, 4000), n_positions=64, n_embd=heads * 8, n_layer=layers, n_head=heads, resid_pdrop=r.choice([0.0, 0.1]))
    else:
        model = from_config('llama', vocab_size=r.randint(40, 4000), hidden_size=heads * 8, intermediate_size=r.randint(8, 90), num_hidden_layers=layers,
                            num_attention_heads=heads, num_key_value_heads=1, max_position_embeddings=64, tie_word_embeddings=r.random() < 0.5)
    memory = i % 4 == 3
    uses = [use('peaks', calls=r.randint(1, 4), seed=i, share=r.choice([0.1, 0.5, 0.9, 1.0]), memory=int(memory), each=r.choice([0, 0.5, 1]),
                offload=r.choice([0, 0.3, 1]), compress=r.choice([0, 0.3, 1]), formats=['six-bit', 'dynamic8'][r.randint(0, 1):]), use('adamw', lr=1e-3)]
    if r.random() < 0.5:
        uses.append(use('lora', rank=2, alpha=4, targets='all-linear'))
    if memory:
        uses += [use('second-memory', parameters=['*mlp*'], states=['*']), use('bf16-storage', parameters=['*attn*'], states=[])]
    path = recipe(f'{i}.lua', model, 'data.random {}', *uses, batch=r.randint(1, 4), length=r.randint(4, 64), steps=1, head_rows=r.choice([0, 8]))
    made = run('plan', path, '--json', *target, *plugins)
    said = int(re.search(r'peaks: (\d+)', made.stderr)[1])
    classes = plan(path, *target, *plugins)['classes']
    check(said == classes['spill' if memory else 'host']['planned'], f'the peak is {said}, the plan {classes}')
    run('plan', path, '--check', *target, *plugins)


finish()
