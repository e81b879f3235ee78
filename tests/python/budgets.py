#!/usr/bin/env python3
# label: all
"""Launches of a step under budgets of memory, from little more than the least that can be had to more than is needed: SmolLM2-135M in BF16 with LoRA, S=1024. They fall
and rise with what is recomputed; no budget loses its groups and chains by luck."""
import functools
import re

from galley_test import case, check, every, finish, fresh_folder, from_config, plan, run, use
from steps_kit import recipes

fresh_folder()
STEPS, HIGH = 64, 1100 << 20
written = recipes(from_config('llama', vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
                              max_position_embeddings=8192, tie_word_embeddings=True), 'data.random {}', batch=1, length=1024, steps=1, seed=1)


def of_budget(kib):
    return written('budget', use('amp', compute='bf16'), use('lora', rank=16, alpha=32, targets='all-linear'), use('recompute', budget=f'{kib}KiB'),
                   use('clip', norm=1.0), use('adamw', lr=1e-4))


@functools.cache
def launches():
    """(launches of a step, its nodes) for each budget, the smallest first. The planner says what the least is: it depends on the kernels of the processor. Less than
    2 % above it the head runs in small chunks, in four times the launches."""
    said = run('plan', of_budget(1024), code=2).stderr
    low = int(re.search(r'the plan takes at least .*?\((\d+) bytes\)', said)[1]) * 102 // 100
    check(low < 600 << 20, f'the least is {low} bytes')
    found = []
    for i in range(STEPS):
        budget = -(-(low + (HIGH - low) * i // (STEPS - 1)) // 1024)
        made = plan(of_budget(budget))
        check(made['classes']['host']['planned'] <= budget * 1024, f'{budget} KiB: {made["classes"]["host"]["planned"]} bytes planned')
        found.append((made['launches']['a_step'], made['launches']['nodes']))
        print(f'{budget / 1024:7.1f} MiB  {found[-1][0]} launches of {found[-1][1]} nodes', flush=True)
    return found


@case
def no_jumps():
    for before, after in zip(launches(), launches()[1:]):
        check(0.75 < after[0] / before[0] < 1.34, f'launches go from {before[0]} to {after[0]}')


@case
def joined():
    check(every(n < 0.75 * nodes for n, nodes in launches()), 'a budget has lost its joined launches')


@case
def less_is_recomputed():
    first, last = launches()[0][0], launches()[-1][0]
    check(last < 0.8 * first, f'the largest budget has {last} launches, the least {first}')


finish()
