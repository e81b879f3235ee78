#!/usr/bin/env python3
"""The last lines of `make test`: for which levels of the processor kernels ran, and what was left out, by name. Exit code 1 if something was left out that tests/may_skip.txt
does not have, or a level or a kernel that this processor could have run.

Usage: tests/summary.py BUILD      the build folder, after ctest
A program of GoogleTest says what it leaves out by GTEST_SKIP, a script by a line "skipped: …" (skip() of galley_test.py), a whole one by exit code 77 and its last line."""
import fnmatch
import pathlib
import re
import sys

tests = pathlib.Path(__file__).resolve().parent


def outputs(log):
    """(test, what it printed, whether ctest says that it was skipped), in the order of the log."""
    for part in re.split(r'^\d+/\d+ Testing: ', log, flags=re.M)[1:]:
        name = part.split('\n', 1)[0]
        text = part.split('Output:\n', 1)[-1].split('\n', 1)[-1].split('<end of output>')[0]
        yield name, text, 'Test Skipped' in part


def skips(text, whole):
    lines = text.splitlines()
    for i, line in enumerate(lines):
        if re.search(r'\.[ch]pp:\d+: Skipped$', line):
            yield lines[i + 1].strip() if i + 1 < len(lines) and lines[i + 1].strip() else 'without a reason'
        elif line.startswith('skipped: '):
            yield line.removeprefix('skipped: ').strip()
    if whole:
        yield next((x.strip() for x in reversed(lines) if x.strip()), 'without a reason')


def flags():
    """What the processor has, as Linux calls it."""
    for line in pathlib.Path('/proc/cpuinfo').read_text().splitlines():
        if line.startswith('flags'):
            return set(line.split(':', 1)[1].split())
    return set()


def allowed():
    """[(test, how often, reason)] and {kernel: the flag without which it may not run}."""
    may, kernels = [], {}
    for line in (tests / 'may_skip.txt').read_text().splitlines():
        if line.startswith('kernel '):
            _, name, flag = line.split()
            kernels[name] = flag
        elif line and not line.startswith('#'):
            test, count, reason = line.split(None, 2)
            may.append((test, int(count), reason))
    return may, kernels


def main():
    log = (pathlib.Path(sys.argv[1]) / 'Testing/Temporary/LastTest.log').read_text(errors='replace')
    may, kernel_flags = allowed()
    wrong, left = [], []
    for test, text, whole in outputs(log):
        counts = {}
        for reason in skips(text, whole):
            counts[reason] = counts.get(reason, 0) + 1
        for reason, count in counts.items():
            most = max((n for name, n, r in may if name == test and fnmatch.fnmatchcase(reason, r)), default=0)
            left.append(f'{test}: {reason}' + (f' ({count} times)' if count > 1 else ''))
            if count > most:
                wrong.append(f'{left[-1]}: tests/may_skip.txt has ' + (f'{most} of them' if most else 'no such line'))
        if test != 'models':
            continue
        ran = re.findall(r'^levels: (.*)$', text, re.M)
        has = flags()
        if not ran:
            wrong.append('models: it does not say which levels ran')
            continue
        levels = ran[-1].split(', ')
        print(f'levels that ran: {ran[-1]}')
        for level, needs in (('x86-64-v3', {'avx2', 'fma', 'bmi2'}), ('x86-64-v4', {'avx2', 'fma', 'bmi2', 'avx512f', 'avx512bw', 'avx512dq', 'avx512vl'})):
            if level not in levels:
                (wrong if needs <= has else left).append(f'models: {level}' + (', which this processor has, did not run' if needs <= has else ': this processor has it not'))
        for kernel in filter(None, ', '.join(re.findall(r'^kernels that did not run: (.*)$', text, re.M)).split(', ')):
            flag = kernel_flags.get(kernel.split(' at ')[0])
            if flag and flag not in has:
                left.append(f'models: {kernel}: this processor has no {flag}')
            else:
                wrong.append(f'models: no test ran the kernel {kernel}')
    print('left out here: ' + ('nothing' if not left else '') + ''.join(f'\n  {x}' for x in left))
    for x in wrong:
        print(f'FAILED: {x}')
    return 1 if wrong else 0


sys.exit(main())
