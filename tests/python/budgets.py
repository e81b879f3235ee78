#!/usr/bin/env python3
# label: all
"""Launches of a step under budgets of memory, from the least that can be had to more than is needed: SmolLM2-135M in BF16 with LoRA, S=1024. They fall and
rise with what is recomputed; no budget loses its groups and chains by luck."""
from galley_test import check, every, finish, fresh_folder, from_config, plan, recipe, use

fresh_folder()
steps, low, high = 64, 470, 1100  # MiB
model = from_config('llama', vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
                    max_position_embeddings=8192, tie_word_embeddings=True)
launches = []
for i in range(steps):
    budget = int((low + (high - low) * i / (steps - 1)) * 1024)
    path = recipe('budget.lua', model, 'data.random {}', use('amp', compute='bf16'), use('lora', rank=16, alpha=32, targets='all-linear'),
                  use('recompute', budget=f'{budget}KiB'), use('clip', norm=1.0), use('adamw', lr=1e-4), batch=1, length=1024, steps=1, seed=1)
    made = plan(path)
    check(made['classes']['host']['planned'] <= budget * 1024, f'{budget} KiB: {made["classes"]["host"]["planned"]} bytes planned')
    launches.append((made['launches']['a_step'], made['launches']['nodes']))
    print(f'{budget / 1024:7.1f} MiB  {launches[-1][0]} launches of {launches[-1][1]} nodes', flush=True)
for before, after in zip(launches, launches[1:]):
    check(0.75 < after[0] / before[0] < 1.34, f'launches go from {before[0]} to {after[0]}')
check(every(n < 0.75 * nodes for n, nodes in launches), 'a budget has lost its joined launches')
check(launches[-1][0] < 0.8 * launches[0][0], f'the largest budget has {launches[-1][0]} launches, the least {launches[0][0]}')
finish()
