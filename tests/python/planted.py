#!/usr/bin/env python3
# label: all
"""Mistakes in the tests' own places, planted one by one in a copy of this repository: each has to make `make test` fail. The copy is configured as `make test` does it, uses
what is built here, and runs by ctest what the mistake concerns, then tests/summary.py, as the Makefile does."""
import contextlib
import os
import pathlib
import re
import shutil
import subprocess

from galley_test import binary, case, check, finish, fresh_folder, skip, source

fresh_folder()
tree = pathlib.Path('tree').resolve()
build = tree / 'build/release'
listed = subprocess.run(['git', '-C', source, 'ls-files', '--cached', '--others', '--exclude-standard'], capture_output=True, text=True)
if listed.returncode:
    skip('all', 'this is no repository of git')
for name in listed.stdout.splitlines():
    if (source / name).exists():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source / name, tree / name)


def configure():
    return subprocess.run(['cmake', '--preset', 'release', '-DGALLEY_TESTS=ON', '-DGALLEY_CUDA=OFF'], cwd=tree, capture_output=True, text=True)


r = configure()
check(r.returncode == 0, f'the copy is not configured: {r.stderr[-2000:]}')
for name in ('galley', 'plugins', 'emulated', 'models', 'tests/bin', 'tests/plugins'):
    target = build / name
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.symlink_to(binary / name)


def tests(pattern, **environment):
    """What ctest and the summary say of some tests, and whether one of them failed, as in `make test`."""
    for log in (build / 'Testing/Temporary').glob('LastTest*.log'):
        log.unlink()
    r = subprocess.run(['ctest', '--preset', 'release', '-R', f'^({pattern})$', '--no-tests=error', '--output-on-failure'], cwd=tree, capture_output=True, text=True,
                       env=dict(os.environ, **environment))
    return summary(r)


def summary(r=None, log=None):
    if log is not None:
        (build / 'Testing/Temporary').mkdir(parents=True, exist_ok=True)
        (build / 'Testing/Temporary/LastTest.log').write_text(log)
    s = subprocess.run([tree / 'tests/summary.py', build], capture_output=True, text=True)
    said = (r.stdout + r.stderr if r else '') + s.stdout + s.stderr
    return said, bool(r and r.returncode) or s.returncode != 0


class Changed:
    """A file of the copy that is another one for a while: `new` in the place of `old`, or all of it; with other bits; or gone."""

    def __init__(self, name, old=None, new=None, bits=None):
        self.path, self.old, self.new, self.bits = tree / name, old, new, bits

    def __enter__(self):
        self.before = self.path.read_bytes() if self.path.exists() else None
        self.mode = self.path.stat().st_mode if self.path.exists() else None
        if self.new is None and self.old is None and self.bits is None:
            self.path.unlink()
            return
        if self.new is not None:
            text = self.new
            if self.old is not None:
                before = self.before.decode()
                check(before.count(self.old) == 1, f'{self.path.name} has {self.old!r} {before.count(self.old)} times, not once')
                text = before.replace(self.old, self.new)
            self.path.write_text(text)
        if self.bits:
            self.path.chmod(self.bits)

    def __exit__(self, *_):
        if self.before is None:
            self.path.unlink()
        else:
            self.path.write_bytes(self.before)
            self.path.chmod(self.mode)


def fails(changed, pattern, *words, **environment):
    with changed:
        said, failed = tests(pattern, **environment)
    check(failed, f'nothing failed: {said[-1500:]}')
    for word in words:
        check(word in said, f'{word!r} is not in: {said[-3000:]}')


def script(body):
    return '#!/usr/bin/env python3\nfrom galley_test import *\n' + body + 'finish()\n'


def new_test(body, *words):
    """A script that is a test, found by CMake as any other."""
    with Changed('tests/python/planted_test.py', new=script(body), bits=0o755):
        r = configure()
        check(r.returncode == 0, r.stderr[-1000:])
        said, failed = tests('python.planted_test')
    check(failed, f'nothing failed: {said[-1500:]}')
    for word in words:
        check(word in said, f'{word!r} is not in: {said[-2000:]}')


@case
def as_it_is():
    """The tests on which the others stand pass."""
    said, failed = tests('python.(parity|tokenizer_files|golden|contracts|pages|optimizers|four_bit)|lua|base')
    check(not failed, f'failed without a mistake: {said[-3000:]}')


@case
def script_without_its_bit():
    with Changed('tests/python/parity.py', bits=0o644):
        r = configure()
    check(r.returncode != 0 and 'parity.py' in r.stderr and 'is not executable' in r.stderr, f'{r.returncode}: {r.stderr[-500:]}')
    check(configure().returncode == 0, 'the copy is configured again')


@case
def loop_over_nothing():
    fails(Changed('tests/python/parity.py', "if (x / 'expect.json').exists())", "if (x / 'expected.json').exists())"), 'python.parity', 'has 0 cases, not 48')


@case
def every_of_nothing():
    new_test("check(every(x > 0 for x in []), 'the sizes')\n", 'FAILED: the sizes')


@case
def lists_of_other_lengths():
    new_test("for a, b in together([1, 2, 3], [1, 2]):\n    check(a == b, 'pairs')\n", 'side by side: [3, 2] items')


@case
def nothing_is_checked():
    new_test('', '0 checks, 0 failed')


@case
def a_case_checks_nothing():
    new_test("@case\ndef one():\n    check(True, 'one')\n@case\ndef two():\n    for x in []:\n        check(x, 'two')\n", 'FAILED: two: it checked nothing')


@case
def a_case_ends_by_an_error():
    new_test("@case\ndef one():\n    run('plan', 'none.lua')\n@case\ndef two():\n    check(True, 'two')\n", 'FAILED: one: ', 'exit code 2')


@case
def skip_that_nobody_allowed():
    new_test("check(True, 'one')\nskip('the browser', 'not today')\n", 'python.planted_test: the browser: not today: tests/may_skip.txt has no such line')


@case
def whole_test_skipped():
    new_test("print('no model here')\nsys.exit(77)\n", 'python.planted_test: no model here: tests/may_skip.txt has no such line')


@case
def more_skips_than_allowed():
    with Changed('tests/may_skip.txt', new=(tree / 'tests/may_skip.txt').read_text() + 'python.planted_test 1 the browser: *\n'):
        new_test("check(True, 'one')\nskip('the browser', 'not today')\nskip('the browser', 'not today')\n", 'tests/may_skip.txt has 1 of them')


@case
def program_that_runs_no_test():
    fails(contextlib.nullcontext(), 'lua', GTEST_FILTER='Nothing.*')


@case
def model_gone():
    fails(Changed('tests/fixtures/models/gpt2-packed/expect.json'), 'python.parity', '47 cases, not 48')


@case
def adapter_gone():
    fails(Changed('tests/fixtures/lora/qv/expect.json'), 'python.parity', '29 cases, not 30')


@case
def numbers_gone():
    fails(Changed('tests/fixtures/optimizers/adamw-amsgrad.safetensors'), 'strategies', 'adamw-amsgrad')


@case
def codes_gone():
    fails(Changed('tests/fixtures/four-bit/fp4-96x128.safetensors'), 'strategies', 'fp4-96x128')


@case
def texts_of_tokenizers_gone():
    fails(Changed('tests/fixtures/tokenizers/texts.jsonl.gz'), 'python.tokenizer_files', 'texts.jsonl')


@case
def expected_loss_is_another():
    name = 'tests/fixtures/models/gpt2-values/expect.json'
    loss = re.search(r'"loss": [0-9.]+', (tree / name).read_text())[0]
    fails(Changed(name, new=(tree / name).read_text().replace(loss, f'"loss": {float(loss.split()[1]) * 1.001}')), 'python.parity', 'gpt2-values')


@case
def recorded_plan_gone():
    fails(Changed('tests/golden/llama-lora.json'), 'python.golden', 'llama-lora')


@case
def contract_is_another():
    text = (tree / 'sdk/contracts.json').read_text()
    fails(Changed('sdk/contracts.json', new=text.replace('"rms_norm"', '"rms_norms"', 1)), 'python.contracts', 'contracts.json records something else')


@case
def page_is_not_true():
    fails(Changed('README.md', new=(tree / 'README.md').read_text().replace('galley plan', 'galley plann', 1)), 'python.pages')


def log_of_models(lines):
    """What ctest keeps of the tests of kernels, with these last lines."""
    return log_of('models', '[==========] 2 tests ran.\n' + ''.join(x + '\n' for x in lines))


def log_of(test, text, number=1):
    return (f'{number}/2 Testing: {test}\n{number}/2 Test: {test}\nCommand: "{test}"\nOutput:\n' + '-' * 58 + f'\n{text}<end of output>\nTest time =  80.00 sec\n' + '-' * 58
            + '\nTest Passed.\n')


@case
def levels():
    flags = re.search(r'^flags\s*:(.*)$', pathlib.Path('/proc/cpuinfo').read_text(), re.M)[1].split()
    here = ['emulated'] + ['x86-64-v3'] * ('avx2' in flags) + ['x86-64-v4'] * ('avx512vl' in flags)
    whole = 'levels: ' + ', '.join(here)
    said, failed = summary(log=log_of_models([whole]))
    check(not failed, f'failed with all levels: {said}')
    said, failed = summary(log=log_of_models([whole.rsplit(', ', 1)[0]]))
    check(failed and f'{here[-1]}, which this processor has, did not run' in said, f'a level left out: {said}')
    said, failed = summary(log=log_of_models([]))
    check(failed and 'does not say which levels ran' in said, f'no line of levels: {said}')
    said, failed = summary(log=log_of_models([whole, 'kernels that did not run: muon.cpu at x86-64-v3']))
    check(failed and 'no test ran the kernel muon.cpu at x86-64-v3' in said, f'a kernel without a test: {said}')
    exchanges = [whole, 'kernels that did not run: all_reduce.mpi at x86-64-v3']
    said, failed = summary(log=log_of_models(exchanges))
    check(failed and 'no test ran the kernel all_reduce.mpi at x86-64-v3' in said, f'a kernel whose own test did not run: {said}')
    said, failed = summary(log=log_of_models(exchanges) + log_of('python.mpi_exchange', 'passed\n', 2))
    check(not failed, f'a kernel whose own test ran: {said}')
    # A kernel that this machine does not run, of which nobody knows that another one ran it.
    with Changed('models/ops/add/cuda.cu', new=(tree / 'models/ops/add/cuda.cu').read_text() + 'namespace { int another; }\n'):
        said, _ = summary(log=log_of_models([whole]))
    check(re.search(r'^cuda: changed since a machine ran it .*models/ops/add/cuda\.cu', said, re.M), f'a kernel that has changed: {said}')


finish()
