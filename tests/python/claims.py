#!/usr/bin/env python3
"""Conflicts of claims are judged when all have been heard: the order in the recipe makes none, and hides none."""
import itertools

from galley_test import binary, check, finish, fresh_folder, from_config, recipe, run, use

fresh_folder()
plugins = ['--plugin-path', binary / 'tests' / 'plugins' / 'claims']
model = from_config('gpt2', vocab_size=61, n_positions=32, n_embd=32, n_layer=1, n_head=4)


def claims(value, strong=False):
    return use('claims', facet='compute', value=value, strong=strong)


def planned(uses, code):
    path = recipe('claims.lua', model, 'data.random {}', *uses, use('adamw', lr=1e-3), batch=1, length=8, steps=1)
    return run('plan', path, *plugins, code=code).stderr


for uses in itertools.permutations((claims('bf16'), claims('f16'), claims('f32', strong=True))):
    planned(uses, 0)  # the strong one holds; what the weak ones say to each other is of no account
for uses in itertools.permutations((claims('bf16'), claims('f16'))):
    said = planned(uses, 2)
    for part in ("two strategies decide 'compute'", 'says bf16', 'says f16', 'claims.lua:7', 'claims.lua:8'):
        check(part in said, f'{part!r} is not in: {said}')
for uses in itertools.permutations((claims('bf16', strong=True), claims('f32', strong=True), claims('f32'))):
    said = planned(uses, 2)
    check('says bf16' in said and 'says f32' in said, said)
planned((claims('f32'), claims('f32')), 0)
finish()
