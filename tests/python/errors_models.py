#!/usr/bin/env python3
"""Configurations that no model can have: a table of what a family is given, and what is said of it. Then folders of adapters, folders that bitsandbytes has
quantized, and GGUF files, each spoiled in one place."""
from errors_kit import cases, check_error, finish, fresh_folder, galley
from galley_test import check, from_config, recipe, run, use


LLAMA = dict(vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32)
NEO = dict(vocab_size=32, hidden_size=16, num_layers=2, num_heads=2, max_position_embeddings=32, attention_types=[[['global', 'local'], 1]])
SMALL = {
    'llama': LLAMA, 'mistral': LLAMA, 'qwen3': LLAMA, 'gemma2': dict(LLAMA, head_dim=4), 'gemma3_text': dict(LLAMA, head_dim=4),
    'gpt2': dict(vocab_size=32, n_embd=16, n_layer=1, n_head=2, n_positions=32),
    'gpt_neo': NEO, 'gpt_neox': dict(vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=32),
    'phi3': dict(LLAMA, original_max_position_embeddings=32),
    'opt': dict(vocab_size=32, hidden_size=16, ffn_dim=16, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=32, word_embed_proj_dim=16),
    'bloom': dict(vocab_size=32, hidden_size=16, n_layer=1, n_head=2),
    'bert': dict(vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=32),
    'distilbert': dict(vocab_size=32, dim=16, hidden_dim=16, n_layers=1, n_heads=2, max_position_embeddings=32),
}
LLAMA3 = dict(rope_type='llama3', factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)

# Model type, what its configuration has otherwise, what is said.
FAMILIES = [
    ('gpt2', dict(n_head=3), 'n_embd = 16 does not divide by n_head = 3'),
    ('gpt2', dict(add_cross_attention=True), "'add_cross_attention' = true: there is no encoder to attend to"),
    ('gpt_neo', dict(num_heads=3), 'hidden_size = 16 does not divide by num_heads = 3'),
    ('gpt_neo', dict(attention_types='global'), "'attention_types' has to be a list such as"),
    ('gpt_neo', dict(attention_types=[['global', 2]]), "'attention_types' has to be a list such as"),
    ('gpt_neo', dict(attention_types=[[['global', 'near'], 1]]), "attention of type 'near' is not known"),
    ('gpt_neo', dict(attention_types=[[['global', 'local'], 2]]), "'attention_types' is for 4 layers, num_layers = 2"),
    ('gpt_neox', dict(num_attention_heads=3), 'hidden_size = 16 does not divide by num_attention_heads = 3'),
    ('opt', dict(num_attention_heads=3), 'hidden_size = 16 does not divide by num_attention_heads = 3'),
    ('opt', dict(layerdrop=0.1), "'layerdrop' leaves out whole layers, which is not supported; set it to 0"),
    ('bloom', dict(n_head=3), 'hidden_size = 16 does not divide by n_head = 3'),
    ('bert', dict(num_attention_heads=3), 'a width of 16 does not divide by 3 heads'),
    ('distilbert', dict(sinusoidal_pos_embds=True), "'sinusoidal_pos_embds' = true is not supported"),
    ('phi3', dict(num_key_value_heads=3), 'hidden_size = 16, num_attention_heads = 4 and num_key_value_heads = 3 do not divide'),
    ('llama', dict(num_key_value_heads=3), 'num_attention_heads = 4 does not divide by num_key_value_heads = 3'),
    ('llama', dict(hidden_size=18), 'hidden_size = 18 does not divide by num_attention_heads = 4'),
    ('llama', dict(head_dim=5), 'head_dim = 5 is odd, RoPE turns pairs'),
    ('gemma2', dict(num_key_value_heads=3), 'num_attention_heads = 4 does not divide by num_key_value_heads = 3'),
    ('gemma3_text', dict(use_bidirectional_attention=True), "'use_bidirectional_attention' is not supported"),
    ('qwen3', dict(layer_types=['full_attention']), "'layer_types' has to be a list of num_hidden_layers = 2 entries, and has 1"),
    ('qwen3', dict(layer_types='full_attention'), "'layer_types' has to be a list of num_hidden_layers = 2 entries, and has full_attention"),
    ('qwen3', dict(layer_types=['full_attention', 'sliding_attention']), "'layer_types' asks for sliding windows, but there is no size in use"),
    ('qwen3', dict(layer_types=['full_attention', 'linear_attention']), "layer_types[2] = 'linear_attention' is not supported (full_attention, sliding_attention)"),
    ('llama', dict(layer_types=['full_attention', 'sliding_attention']), "'layer_types' is not 'full_attention' for each of 2 layers"),
]
SCALINGS = [
    (3, "'rope_scaling' must be a table, got 3"),
    (dict(rope_type='linear', type='yarn', factor=2.0), "'rope_type' and 'type' differ: 'linear' and 'yarn'"),
    (dict(rope_type='curved'), "RoPE of type 'curved' is not supported (default, linear, dynamic, llama3, yarn, longrope)"),
    (dict(rope_type='linear'), "RoPE of type 'linear' needs 'factor'"),
    (dict(rope_type='linear', factor=0), "'factor' must be a positive number, got 0"),
    (dict(rope_type='linear', factor=2.0, beta_fast=3.0), "RoPE of type 'linear' does not read 'beta_fast'"),
    (dict(rope_type='longrope', original_max_position_embeddings=16, short_factor=[1.0, 1.0]), "RoPE of type 'longrope' needs 'long_factor', a list of numbers"),
    (dict(rope_type='longrope', original_max_position_embeddings=16, short_factor=[1.0, -1.0], long_factor=[1.0, 1.0]),
     'short_factor[2] must be a positive number, got -1'),
    (dict(rope_type='longrope', original_max_position_embeddings=16, short_factor=[1.0], long_factor=[1.0]),
     "RoPE of type 'longrope' has 1 factors where 2 pairs of a head turn"),
    (dict(rope_type='yarn', factor=2.0, truncate=1), "'truncate' must be true or false, got 1"),
    (dict(LLAMA3, high_freq_factor=1.0), "'high_freq_factor' = 1.0 must be larger than 'low_freq_factor' = 1.0"),
    (dict(rope_type='linear', factor=2.0, rope_theta=500.0), "its 'rope_theta' = 500.0 is not the 'rope_theta' = 20000.0 beside it"),
]
FAMILIES += [('llama', dict(rope_scaling=x, rope_theta=20000.0), says) for x, says in SCALINGS] + [
    ('llama', dict(rope_scaling=dict(rope_type='linear', factor=2.0), rope_parameters=dict(rope_type='linear', factor=4.0)),
     "'rope_scaling' and 'rope_parameters' differ in 'factor': 2.0 and 4.0"),
    ('phi3', dict(partial_rotary_factor=1.5), "'partial_rotary_factor' = 1.5 is above 1"),
    ('phi3', dict(rope_parameters=dict(rope_type='default', partial_rotary_factor=1.5)), "'partial_rotary_factor' = 1.5 is above 1"),
    ('gpt_neox', dict(rotary_pct=0.1), '0 elements of a head turn; RoPE turns pairs'),
]


fresh_folder()


@cases({f'{i}.{row[0]}': row for i, row in enumerate(FAMILIES)})
def configuration(_, row):
    kind, changes, says = row
    path = recipe('family.lua', from_config(kind, **{**SMALL[kind], **changes}), 'data.random {}', use('sgd', lr=0.1), batch=1, length=8, steps=1)
    check_error(galley('plan', path), 2, 'family.lua:2: ', says)


@cases(SMALL)
def right(kind, config):
    """What is spoiled above."""
    path = recipe('family.lua', from_config(kind, **config), 'data.random {}', use('sgd', lr=0.1), batch=1, length=8, steps=1)
    check('planned' in run('plan', path, '--json').stdout, f'{kind}: no plan')


finish()
