#!/usr/bin/env python3
"""Plans of random recipes: proved on the shadow device, close to the lower bound, and kept to the byte by runs; and the plan of a large model."""
import json
import math
import os
import random
import re

from galley_test import case, cases, check, finish, fresh_folder, from_config, from_folder, plan, recipe, run, use
from steps_kit import planned, trained

fresh_folder()
seed = int(os.environ.get('GALLEY_TEST_SEED', 1))


def random_model(r):
    heads, head, layers, vocabulary = r.choice([1, 2, 4]), r.choice([4, 6, 8, 16]), r.randint(1, 5), r.randint(5, 300)
    if r.random() < 0.5:
        drop = [r.choice([0.0, 0.0, 0.1]) for _ in range(3)]
        config = dict(vocab_size=vocabulary, n_positions=64, n_embd=heads * head, n_layer=layers, n_head=heads, resid_pdrop=drop[0], embd_pdrop=drop[1],
                      attn_pdrop=drop[2], tie_word_embeddings=r.random() < 0.7)
        return 'gpt2', config, ['c_attn', 'c_fc', 'c_proj'], f'transformer.h.{layers - 1}.*', 'transformer.w?e.weight'
    config = dict(vocab_size=vocabulary, hidden_size=heads * head, intermediate_size=r.randint(3, 90), num_hidden_layers=layers, num_attention_heads=heads,
                  num_key_value_heads=r.choice([x for x in (1, 2, 4) if heads % x == 0]), max_position_embeddings=64, tie_word_embeddings=r.random() < 0.5)
    return 'llama', config, ['q_proj', 'v_proj', 'down_proj'], f'model.layers.{layers - 1}.*', 'model.embed_tokens.weight'


def random_recipe(r, path):
    family, config, targets, last, embedding = random_model(r)
    uses = []
    if r.random() < 0.35:
        uses.append(use('lora', rank=r.randint(1, 6), alpha=r.choice([4, 8.5]), dropout=r.choice([0.0, 0.1]), rslora=r.random() < 0.3, merge=r.random() < 0.3,
                        targets=r.choice(['all-linear', r.sample(targets, r.randint(1, 3))])))
    elif r.random() < 0.3:
        uses.append(use('freeze', **r.choice([{'except': [last]}, {'patterns': [embedding]}])))
    if r.random() < 0.5:
        uses.append(use('recompute', **r.choice([dict(every=1), dict(every=2), dict(every=9), dict(policy='sqrt'), dict(policy='cheap'), dict(policy='none')])))
    if r.random() < 0.5:
        uses.append(use('accumulate', steps=r.randint(1, 5)))
    if r.random() < 0.5:
        uses.append(use('clip', norm=r.choice([0.1, 1.0])))
    if r.random() < 0.6:
        uses.append(use('adamw', lr=1e-3, amsgrad=r.random() < 0.2, weight_decay=r.choice([0.0, 0.1])))
    else:
        uses.append(use('sgd', lr=1e-2, **r.choice([{}, dict(momentum=0.9), dict(momentum=0.9, nesterov=True, weight_decay=0.1)])))
    r.shuffle(uses)
    return recipe(path, from_config(family, **config), 'data.random {}', *uses, batch=r.randint(1, 5), length=r.randint(2, 64), steps=2, seed=r.randint(0, 9))


@cases(range(200))
def random_plan(i):
    path = random_recipe(random.Random(f'{seed} {i}'), f'{i}.lua')
    text = open(path).read()
    p = planned(path)
    for name, x in p['classes'].items():
        check(x['planned'] <= 1.02 * x['lower_bound'], f'memory {name}: {x["planned"]} bytes planned, {x["lower_bound"]} is the least:\n{text}')
    check(p['classes']['host']['planned'] > 4 * p['parameters'], f'the plan has no room for the weights:\n{text}')
    if i % 10 == 0:
        made = trained(path, str(i))
        check(len(made.steps) == 2, f'{len(made.steps)} steps:\n{text}')
        measured = plan(path)['classes']
        check({k: x['planned'] for k, x in measured.items()} == {k: x['planned'] for k, x in made.memory['classes'].items()},
              f'the run planned otherwise than `galley plan`:\n{text}')


@case
def large_plan():
    os.mkdir('large')
    hidden, inner, layers, vocabulary = 4096, 11008, 32, 32000
    with open('large/config.json', 'w') as f:  # the shape of Llama 2 7B, and no weights
        json.dump(dict(model_type='llama', hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=32, num_key_value_heads=32,
                       max_position_embeddings=4096, vocab_size=vocabulary, rms_norm_eps=1e-5, hidden_act='silu', tie_word_embeddings=False), f)
    parameters = 2 * vocabulary * hidden + hidden + layers * (4 * hidden * hidden + 3 * hidden * inner + 2 * hidden)
    path = recipe('large.lua', from_folder('large', init='random'), 'data.random {}', use('adamw', lr=1e-4), batch=1, length=512, steps=1)
    p = plan(path)
    host = p['classes']['host']
    check(p['parameters'] == p['trainable'] == parameters, f'{p["parameters"]} parameters, {p["trainable"]} trainable, not {parameters}')
    check(host['owners']['weights'] == 4 * parameters, f'weights hold {host["owners"]["weights"]} bytes, not 4 x {parameters}')
    steps = 64  # the number of applied steps, on a cache line of its own
    check(host["owners"]["states"] == 8 * parameters + steps, f"states hold {host['owners']['states']} bytes, not 8 x {parameters} + {steps}")
    check(host['planned'] <= 1.02 * host['lower_bound'], f'{host["planned"]} bytes planned, {host["lower_bound"]} is the least')


@case
def launches():
    """What the plan says of launches is what the last pass's dump has: here the sum before the last norm has no memory, for nothing trained is below the head."""
    llama = from_config('llama', vocab_size=50, hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=32,
                        tie_word_embeddings=False)
    path = recipe('launches.lua', llama, 'data.random {}', use('freeze', **{'except': ['lm_head.weight']}), use('accumulate', steps=3), use('adamw', lr=1e-3), batch=2,
                  length=8, steps=1)
    counted, times, alone = dict(a_step=0, nodes=0, bytes_without_memory=0), 0, False
    for line in run('plan', path, '--dump', 'overlap').stdout.splitlines():
        if line.startswith('  ') and times:  # a node of the launch above
            counted['nodes'] += times - alone * times
            alone = False
            for shape in re.findall(r'between f32\(([0-9,]+)\)', line.partition('->')[2]):
                counted['bytes_without_memory'] += times * 4 * math.prod(map(int, shape.split(',')))
            continue
        words = re.match(r'(\w+)\[\d+\] (\w+)', line)
        times = dict(window=1, micro=3, update=1).get(words[1], 0) if words and words[2] not in ('copy', 'record', 'wait', 'read', 'write') else 0
        counted['a_step'] += times
        counted['nodes'] += times
        alone = True
    said = plan(path)['launches']
    check(said == counted, f'launches are said to be {said}, and are {counted}')
    # And so have the products that the two blocks' activations read.
    gone = 4 * 2 * 8 * (24 + 2 * 32)
    check(said['bytes_without_memory'] == 3 * gone and said['nodes'] > said['a_step'] > 0, f'launches: {said}')


finish()
