#!/usr/bin/env python3
"""Conflicts of claims are judged when all have been heard: the order in the recipe makes none, and hides none."""
import itertools
import re

from galley_test import binary, case, check, finish, fresh_folder, from_config, run, use
from steps_kit import recipes, refused

fresh_folder()
plugins = ['--plugin-path', binary / 'tests' / 'plugins' / 'claims']
model = from_config('gpt2', vocab_size=61, n_positions=32, n_embd=32, n_layer=1, n_head=4)


def claims(value, strong=False):
    return use('claims', facet='compute', value=value, strong=strong)


written = recipes(model, 'data.random {}', use('adamw', lr=1e-3), batch=1, length=8, steps=1)


def orders(*uses):
    """A recipe for each order of them."""
    for each in itertools.permutations(uses):
        yield written('claims', *each)


def launches(path):
    """What is computed by what, and in which dtypes; options have numbers by the place of their strategy."""
    return re.sub(r'option\.\d+\.', 'option.', run('plan', path, '--dump', 'fuse', *plugins).stdout)


@case
def the_strong_one_holds():
    """What the weak ones say to each other is of no account."""
    for path in orders(claims('bf16'), claims('f16'), claims('f32', strong=True)):
        check(launches(path) == launches(written('alone', claims('f32'))), 'what is planned is not F32')
    check(launches(written('alone', claims('bf16'))) != launches(written('alone', claims('f32'))), 'a claim changes nothing')


@case
def weak_ones_disagree():
    for path in orders(claims('bf16'), claims('f16')):
        refused(path, "two strategies decide 'compute'", 'says bf16', 'says f16', 'claims.lua:7', 'claims.lua:8', flags=plugins)


@case
def strong_ones_disagree():
    for path in orders(claims('bf16', strong=True), claims('f32', strong=True), claims('f32')):
        refused(path, 'says bf16', 'says f32', flags=plugins)


@case
def they_agree():
    for path in orders(claims('f32'), claims('f32')):
        check(launches(path) == launches(written('alone', claims('f32'))), 'what is planned is not F32')


finish()
