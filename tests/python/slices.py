#!/usr/bin/env python3
"""A slice of what make test-all does of families, certificates or references: another one with each commit, so that a fault there does not wait for a day when somebody runs it all.

GALLEY_SLICE=k/n by hand takes another slice, of n as many, of each; tests/python/families_all.py with GALLEY_SLICE=… runs one alone."""
import os
import pathlib
import re
import subprocess
import time

from galley_test import check, finish, fresh_folder, turn

# Of how many one is run, by what a case takes; each commit runs one of these groups, in 25 s.
GROUPS = [{'families_all': 120}, {'certify_all': 40, 'exact_all': 72, 'one_loss_all': 12, 'beside_all': 6, 'damaged_all': 40}, {'reference_all': 240}]

fresh_folder()
group = turn(len(GROUPS) << 64)  # by other digits of the commit than which slice it is
chosen = GROUPS if group is None or 'GALLEY_SLICE' in os.environ else [GROUPS[group >> 64]]
for name, parts in [x for slices in chosen for x in slices.items()]:
    which = os.environ.get('GALLEY_SLICE', f'{turn(parts) or 0}/{parts}')
    begin = time.monotonic()
    os.makedirs(name)
    r = subprocess.run([pathlib.Path(__file__).with_name(name + '.py')], cwd=name, capture_output=True, text=True, env=dict(os.environ, GALLEY_SLICE=which))
    said = re.search(r'^(\d+) checks, \d+ failed$', r.stdout, re.M)
    check(r.returncode == 0 and said and int(said[1]) > 0, f'GALLEY_SLICE={which} tests/python/{name}.py: {r.stdout[-4000:]}{r.stderr[-2000:]}')
    print(f'{name} {which}: {said[0] if said else "no end"}, {time.monotonic() - begin:.0f} s', flush=True)
finish()
