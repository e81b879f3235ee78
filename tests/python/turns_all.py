#!/usr/bin/env python3
# label: all
"""All cases of the scripts whose cases take turns: with each commit `make test` runs another part of them."""
import os
import pathlib
import re
import subprocess
import time

from galley_test import cases, check, finish, fresh_folder

fresh_folder()
here = pathlib.Path(__file__).parent
scripts = sorted(x.name for x in here.glob('*.py') if x.stat().st_mode & 0o111 and re.search(r'\bturns=\w|^ *take_turns\(', x.read_text(), re.M) and x.name != pathlib.Path(__file__).name)


@cases(scripts)
def whole(script):
    begin = time.monotonic()
    os.makedirs(script)
    r = subprocess.run([here / script], cwd=script, capture_output=True, text=True, env=dict(os.environ, GALLEY_TEST_ALL='1'))
    check(r.returncode == 0 and 'their turn with other commits' not in r.stdout, f'{r.stdout[-4000:]}{r.stderr[-2000:]}')
    print(f'{script}: {r.stdout.splitlines()[-1] if r.stdout else "nothing said"}, {time.monotonic() - begin:.0f} s', flush=True)


check(len(scripts) > 4, f'{scripts}')
finish()
