#!/usr/bin/env python3
# label: all
"""The whole of tests/gpu on the emulated GPU, as on a machine that has only been lent: calls of under ten minutes each, until the last line says that all is
done."""
import re
import time

from galley_test import check, finish, fresh_folder

from gpu_kit import lent

fresh_folder()
longest = 0.0
for call in range(20):
    begin = time.monotonic()
    said = lent('test', '--out', 'kept', '--seconds', '480')
    longest = max(longest, time.monotonic() - begin)
    last = said.stdout.splitlines()[-1] if said.stdout else said.stderr
    if last.startswith('next: nothing'):
        break
    if not check(said.returncode == 3 and last.startswith('next: tests/gpu/test'), f'call {call}: exit code {said.returncode}\n{said.stdout[-6000:]}{said.stderr}'):
        break
done = re.search(r'(\d+) of (\d+) steps are done, 0 failed', said.stdout)
check(said.returncode == 0 and done and done[1] == done[2] and int(done[1]) > 40, said.stdout[-3000:])
check(longest < 600, f'a call took {longest:.0f} s')
print(f'{call + 1} calls, the longest {longest:.0f} s; {said.stdout.splitlines()[-2]}')
finish()
