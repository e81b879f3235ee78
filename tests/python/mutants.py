#!/usr/bin/env python3
# label: all
"""Would the tests notice if a barrier were missing? Takes each barrier of the CUDA kernels away, one at a time, and runs the kernels' tests on the
emulated GPU: they have to fail. Every ninth by default; `--all` takes all of them (`make test-mutants`), `--list` prints them, FILE:LINE tries one.

A mutant is chosen by GALLEY_CUDA_MUTANT when a test starts (sdk/include/galley/cuda/emulated.hpp); nothing is compiled anew."""
import os
import pathlib
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

source, binary = pathlib.Path(os.environ['GALLEY_SOURCE']), pathlib.Path(os.environ['GALLEY_BINARY'])
tests = binary / 'tests' / 'bin' / 'models'
if not tests.exists():
    print('the tests in C++ were not built (libgtest-dev)')
    sys.exit(77)
mark = re.compile(r'^\s*(__syncthreads\(\)|__syncwarp\(\w*\)|GALLEY_ASYNC_COMMIT\(\)|GALLEY_ASYNC_WAIT\(\w+\));')

# Mutants that no test can notice, and why.
harmless = {}


def files():
    for folder in ('sdk/include/galley/cuda', 'models', 'plugins'):
        for path in sorted((source / folder).rglob('*')):
            if path.suffix in ('.cu', '.hpp') and 'emulated' not in path.name:
                yield path


def sites():
    return [f'{path.relative_to(source)}:{number}' for path in files() for number, line in enumerate(path.read_text().splitlines(), 1) if mark.match(line)]


def ops_of(file):
    """The ops whose kernels a file has a part in: those that its folder registers; of a shared header, those of every folder that names it."""
    path = source / file
    users = list(path.parent.glob('*.cu')) if 'ops' in path.parts or 'plugins' in path.parts else []
    if not users:
        names = {path.name}
        for _ in range(3):  # headers of headers
            names |= {x.name for x in files() if x.suffix == '.hpp' and any(f'/{n}"' in x.read_text() or f'"{n}"' in x.read_text() for n in names)}
        folders = {x.parent for x in files() if any(f'/{n}"' in x.read_text() or f'"{n}"' in x.read_text() for n in names)}
        users = [x for folder in folders for x in folder.glob('*.cu')]
    registered = re.compile(r'\("[a-z0-9_]+\.[a-z0-9_.]+",\s*"([a-z0-9_]+)"|add_step_kernels<\w+>\("([a-z0-9_]+)"')
    return sorted({one or other for x in users for one, other in registered.findall(x.read_text())})


def notices(site):
    ops = ops_of(site.split(':')[0]) if site else ['*']
    tests_of = ('*Kernel.EqualsReference', '*Kernel.MakesTheSameBytesInAnyOrderOfThreads', '*OnCodesEqualTheDefinition')
    cases = ':'.join(f'{test}/{op}_*' for op in ops for test in tests_of)
    environment = dict(os.environ, GALLEY_TEST_LEVEL='emulated', GALLEY_TEST_SEED='1', **({'GALLEY_CUDA_MUTANT': site} if site else {}))
    try:
        done = subprocess.run([tests, f'--gtest_filter={cases}:Groups*:Reduce*:StoredSteps*', '--gtest_brief=1', '--gtest_fail_fast'], env=environment, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        return True
    if 'ran. (0 ms total)' in done.stdout or ' 0 tests' in done.stdout:
        sys.exit(f'FAILED: no test runs for {site}: {cases}')
    if 'no barrier, commit or wait stands there' in done.stdout + done.stderr:
        sys.exit(f'FAILED: {site} is in no library of kernels')
    return done.returncode != 0


def main():
    everything = sites()
    words = sys.argv[1:]
    if words == ['--list']:
        for site in everything:
            print(site, ' '.join(ops_of(site.split(':')[0])))
        return
    chosen = everything if words == ['--all'] else words or everything[4::9]
    if len(chosen) == len(everything) and notices(None):
        sys.exit('FAILED: the tests fail without any mutant')
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        seen = list(pool.map(notices, chosen))
    missed = [site for site, noticed in zip(chosen, seen) if not noticed]
    unexplained = [site for site in missed if site not in harmless]
    for site in missed:
        print(f'not noticed: {site}' + (f' ({harmless[site]})' if site in harmless else ''))
    noticed = len(chosen) - len(missed)
    print(f'{noticed} of {len(chosen)} mutants noticed ({len(everything)} barriers in all), {len(missed) - len(unexplained)} explained')
    sys.exit(1 if unexplained or noticed < 0.9 * len(chosen) else 0)


main()
