#!/usr/bin/env python3
# label: all
"""The whole of tests/gpu on the emulated GPU, as on a machine that has only been lent: from the archive of tests/gpu/pack, without the sources and the build, in calls of
five minutes, until the last line says that all is done. No launch may have an address of the host's memory."""
import re
import time

from galley_test import check, finish, fresh_folder, require

from gpu_kit import brought, lent, on_lent

PIECE = 300  # seconds
fresh_folder()
packed = lent('pack', '--rehearsal', '--out', 'packed.tar.xz')
require(packed.returncode == 0, packed.stdout + packed.stderr)
there = brought('packed.tar.xz')
device = there / 'build/cuda/emulated/cuda-emulated/cuda-emulated.so'
longest = 0.0
for call in range(60):
    begin = time.monotonic()
    said = on_lent([there / 'tests/gpu/test', '--seconds', PIECE], GALLEY_TEST_DEVICE=str(device))
    longest = max(longest, time.monotonic() - begin)
    last = said.stdout.splitlines()[-1] if said.stdout else said.stderr
    if last.startswith('next: nothing'):
        break
    if not check(said.returncode == 3 and last.startswith('next: tests/gpu/test'), f'call {call}: exit code {said.returncode}\n{said.stdout[-6000:]}{said.stderr}'):
        break
done = re.search(r'(\d+) of (\d+) steps are done, 0 failed', said.stdout)
check(said.returncode == 0 and done and done[1] == done[2] and int(done[1]) > 40, said.stdout[-3000:])
check(longest < PIECE + 60, f'a call took {longest:.0f} s')
print(f'{call + 1} calls, the longest {longest:.0f} s; {said.stdout.splitlines()[-2]}')
finish()
