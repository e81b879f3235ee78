#!/usr/bin/env python3
# label: all
"""galley check of plugins that do not come with Galley and are right: those of the literature, built with the installed SDK alone, and those of the tests that do nothing wrong.
Nothing is found."""
import functools
import json
import pathlib

from galley_test import binary, cases, check, finish, fresh_folder, galley, source
from sdk_kit import build_together

fresh_folder()
LITERATURE = ('apollo', 'gradient-noise', 'neftune', 'pissa', 'prodigy', 'relora', 'row-linear', 'schedule-free', 'tensor-pair')
# What the others do wrong is what they are for.
RIGHT = ('bf16-kernels', 'bf16-storage', 'blocks', 'pairs', 'peaks', 'six-bit', 'stranger')


@functools.cache
def built():
    return build_together({name: source / 'tests/sdk' / name for name in LITERATURE}, {})


def clean(folder):
    r = galley('check', folder, '--json', 'check.json', timeout=200)
    said = json.loads(pathlib.Path('check.json').read_text())
    check(r.returncode == 0 and not said['findings'], r.stdout + r.stderr)
    check(sum(len(t['held']) for t in said['tests']) >= 2, f'{folder}: {said}')


@cases(LITERATURE)
def literature(name):
    clean(built() / name)


@cases(RIGHT)
def of_the_tests(name):
    clean(binary / 'tests/plugins' / name)


finish()
