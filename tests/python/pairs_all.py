#!/usr/bin/env python3
# label: all
"""All of tests/python/pairs.py, in the order in which strategies are listed and in the other one."""
import os
import pathlib
import subprocess

from galley_test import check, finish, fresh_folder

fresh_folder()
for words in ([], ['turned']):
    r = subprocess.run([pathlib.Path(__file__).with_name('pairs.py'), *words], capture_output=True, text=True, env=dict(os.environ, GALLEY_TEST_ALL='1'))
    check(r.returncode == 0 and 'exactness: of all' in r.stdout, f'pairs.py {words}: {r.stdout[-4000:]}{r.stderr[-2000:]}')
    print(r.stdout[-300:])
finish()
