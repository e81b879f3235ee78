#!/usr/bin/env python3
"""Launches a step before and after groups and chains, and the bytes between the links of chains that have no memory: GPT-2 124M and the shape of SmolLM2-135M,
B=4 T=64, in F32 and BF16. Not a test: it prints the table of tests/results/launches.md.

    GALLEY=build/release/galley GALLEY_SOURCE=. GALLEY_BINARY=build/release PYTHONPATH=tests/python tests/bench/launches.py
"""
import os
import tempfile

from galley_test import from_config, plan, recipe, source, use

target = source.resolve() / 'tests' / 'golden' / 'target.toml'
models = {
    'GPT-2 124M': from_config('gpt2', vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12),
    'SmolLM2-135M': from_config('llama', vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
                                num_key_value_heads=3, max_position_embeddings=2048, tie_word_embeddings=True),
}
extras = {
    'F32': [],
    'BF16': [use('amp', compute='bf16')],
    'F32, recompute': [use('recompute', every=1)],
    'BF16, LoRA': [use('amp', compute='bf16'), use('lora', rank=16, alpha=32, targets='all-linear')],
}
print('| model | recipe | before | after | bytes without memory | chains |\n|---|---|---|---|---|---|')
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    for model, config in models.items():
        for name, uses in extras.items():
            path = recipe('launches.lua', config, 'data.random {}', *uses, use('clip', norm=1.0), use('adamw', lr=1e-4), batch=4, length=64, steps=1, seed=1)
            made = plan(path, '--target', target)
            step = made['launches']
            chains = ', '.join(sorted(op for op in made['kernels'] if '>' in op))
            print(f'| {model} | {name} | {step["nodes"]} | {step["a_step"]} | {step["bytes_without_memory"]:,} | {chains} |')
