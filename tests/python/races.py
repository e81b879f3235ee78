#!/usr/bin/env python3
# label: all
"""Races of the CUDA kernels, found by ThreadSanitizer over the threads of emulated blocks (sdk/emulated/include/galley/emulated/races.hpp): no kernel has one
on the cases of its op, and a kernel that lacks a barrier has one, in the one order of threads that is tried. Another ten barriers with each commit;
`--all` takes all of them. The kernels are those of the target tsan-kernels, which `make test-all` builds."""
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from galley_test import case, check, finish, together, turn
from mutants_kit import BARRIERS, binary, ops_of, sites, tests, tests_of

TEN = 10
kernels = binary / 'tests' / 'tsan'
runtime = subprocess.run(['g++', '-print-file-name=libtsan.so'], capture_output=True, text=True).stdout.strip()
if not tests.exists() or not (kernels / 'plugins' / 'models' / 'models-cuda-emulated.so').exists() or not os.path.exists(runtime):
    print('kernels for ThreadSanitizer were not built: ninja -C BUILD tsan-kernels')
    sys.exit(77)


def tried(ops, mutant=None):
    """What the tests of these ops' kernels say, and how many ran."""
    environment = dict(os.environ, GALLEY_BINARY=str(kernels), GALLEY_TEST_LEVEL='emulated', GALLEY_TEST_SEED='1', GALLEY_TEST_ONE_THREAD='1', LD_PRELOAD=runtime,
                       TSAN_OPTIONS='halt_on_error=1', **({'GALLEY_CUDA_MUTANT': mutant} if mutant else {}))
    done = subprocess.run([tests, f'--gtest_filter={tests_of(ops)}', '--gtest_brief=1'], env=environment, capture_output=True, text=True, timeout=1500)
    ran = re.search(r'\[=+\] (\d+) tests? from', done.stdout)
    return done, int(ran[1]) if ran else 0


def race_of(done):
    """Where the first race that ThreadSanitizer reports is, of what kind."""
    found = re.search(r'WARNING: ThreadSanitizer: ([\w ()-]+?) \(pid.*?#0 .*?([\w./-]+:\d+)', done.stderr, re.S)
    return f'{found[1]} at {found[2].split("/")[-1]}' if found else ''


def at_once(work, items):
    """{item: what `work` gives}, as many at once as there are processors."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return dict(together(items, pool.map(work, items)))


@case
def no_kernel_has_one():
    """A process for each word that cases begin with: ThreadSanitizer has room for the threads of a few libraries."""
    listed = subprocess.run([tests, '--gtest_list_tests'], env=dict(os.environ, GALLEY_TEST_LEVEL='emulated'), capture_output=True, text=True).stdout
    words = sorted(set(re.findall(r'^  EqualsReference/([a-z0-9]*)_', listed, re.M)))
    cases = 0
    for word, (done, ran) in at_once(lambda x: tried([x]), words).items():
        cases += ran
        check(done.returncode == 0 and ran > 0, f'{word}: exit code {done.returncode}, {ran} cases, {race_of(done)}: {done.stdout[-300:]}{done.stderr[:6000]}')
    check(cases > 600, f'only {cases} cases ran')
    print(f'{cases} cases')


@case
def a_barrier_is_missing():
    """Of threads or lanes: a copy that is not waited for is no race but a number of poison, which mutants.py looks for."""
    every_one = sites(BARRIERS)
    first = turn(len(every_one)) or 0
    chosen = every_one if '--all' in sys.argv else [every_one[(first + i * len(every_one) // TEN) % len(every_one)] for i in range(TEN)]
    for site, (done, _) in at_once(lambda x: tried(ops_of(x.split(':')[0]), x), chosen).items():
        check(race_of(done).startswith('data race'), f'{site}: exit code {done.returncode}, {race_of(done)}: {done.stdout[-300:]}')
        print(f'{site}: {race_of(done)}')


finish()
