#!/usr/bin/env python3
# label: all
"""Would the tests notice if a barrier were missing? Takes each barrier of the CUDA kernels away, one at a time, and runs the kernels' tests on the
emulated GPU: they have to fail. Every ninth by default; `--all` takes all of them (`make test-mutants`), `--list` prints them, FILE:LINE tries one.

A mutant is chosen by GALLEY_CUDA_MUTANT when a test starts (sdk/emulated/include/galley/emulated/cuda.hpp); nothing is compiled anew."""
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from mutants_kit import ON_CODES, ops_of, sites, tests, tests_of

if not tests.exists():
    print('the tests in C++ were not built (libgtest-dev)')
    sys.exit(77)
# Mutants that no test can notice, and why.
harmless = {}


def notices(site):
    ops = ops_of(site.split(':')[0]) if site else ['*']
    cases = tests_of(ops, ('*Kernel.EqualsReference', '*Kernel.MakesTheSameBytesInAnyOrderOfThreads', ON_CODES))
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
