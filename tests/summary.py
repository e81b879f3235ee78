#!/usr/bin/env python3
"""The last lines of `make test`: for which levels of the processor kernels ran, and what was left out, by name. Exit code 1 if something was left out that tests/may_skip.txt
does not have, or a level or a kernel that this processor could have run.

Usage: tests/summary.py BUILD                          the build folder, after ctest
       tests/summary.py --add FILE PART CODE [BUILD]   notes for test-all what a part of it did, which ended with this exit code, and whose tests ctest ran in BUILD
       tests/summary.py --write PAGE FILE              makes a page of what FILE has; exit code 1 if a part failed
A program of GoogleTest says what it leaves out by GTEST_SKIP, a script by a line "skipped: …" (skip() of galley_test.py), a whole one by exit code 77 and its last line."""
import datetime
import fnmatch
import json
import os
import pathlib
import platform
import re
import subprocess
import sys

import kernels_seen

tests = pathlib.Path(__file__).resolve().parent
LEVELS = {'x86-64-v3': {'avx2', 'fma', 'bmi2'}, 'x86-64-v4': {'avx2', 'fma', 'bmi2', 'avx512f', 'avx512bw', 'avx512dq', 'avx512vl'}}  # and what Linux calls what they need


def outputs(build):
    """(test, what it printed, "Passed", "Failed" or "Skipped", seconds), in the order of the log. ctest calls a test passed there that ended with exit code 77, and keeps the
    names of such tests in a file of its own, which it writes only where there are some: the Makefile removes both before each run."""
    folder = pathlib.Path(build) / 'Testing/Temporary'
    log, others = folder / 'LastTest.log', folder / 'LastTestsDisabled.log'
    skipped = {line.split(':', 1)[1] for line in others.read_text().splitlines() if ':' in line} if others.exists() else set()
    for part in re.split(r'^\d+/\d+ Testing: ', log.read_text(errors='replace') if log.exists() else '', flags=re.M)[1:]:
        name = part.split('\n', 1)[0]
        text = part.split('Output:\n', 1)[-1].split('\n', 1)[-1].split('<end of output>')[0]
        passed, took = re.search(r'^Test Passed', part, re.M), re.findall(r'^Test time = +([\d.]+) sec', part, re.M)
        yield name, text, 'Skipped' if name in skipped else 'Passed' if passed else 'Failed', float(took[-1]) if took else 0


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
    """[(test, how often, reason)], {kernel: the flag without which it may not run}, and {kernels: the other test that runs them}."""
    may, kernels, elsewhere = [], {}, {}
    for line in (tests / 'may_skip.txt').read_text().splitlines():
        if line.startswith('kernel '):
            _, name, flag = line.split()
            kernels[name] = flag
        elif line.startswith('elsewhere '):
            _, names, test = line.split()
            elsewhere[names] = test
        elif line and not line.startswith('#'):
            test, count, reason = line.split(None, 2)
            may.append((test, int(count), reason))
    return may, kernels, elsewhere


def seen(build):
    """(the levels that ran, what was left out, what of that nobody allowed)."""
    may, kernel_flags, elsewhere = allowed()
    levels_text, wrong, left = '', [], []
    ran_whole = {test for test, _, status, _ in outputs(build) if status == 'Passed'}
    for test, text, status, _ in outputs(build):
        counts = {}
        for reason in skips(text, status == 'Skipped'):
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
        levels_text = ran[-1]
        for level, needs in LEVELS.items():
            if level not in levels:
                (wrong if needs <= has else left).append(f'models: {level}' + (', which this processor has, did not run' if needs <= has else ': this processor has it not'))
        for kernel in filter(None, ', '.join(re.findall(r'^kernels that did not run: (.*)$', text, re.M)).split(', ')):
            flag = kernel_flags.get(kernel.split(' at ')[0])
            if flag and flag not in has:
                left.append(f'models: {kernel}: this processor has no {flag}')
            elif not any(fnmatch.fnmatchcase(kernel.split(' at ')[0], names) and test in ran_whole for names, test in elsewhere.items()):
                wrong.append(f'models: no test ran the kernel {kernel}')
    return levels_text, left, wrong


def show(build):
    levels, left, wrong = seen(build)
    if levels:
        print(f'levels that ran: {levels}')
    print('left out here: ' + ('nothing' if not left else '') + ''.join(f'\n  {x}' for x in left))
    for line in kernels_seen.told(levels.split(', ')) if levels else ():
        print(line)
    for x in wrong:
        print(f'FAILED: {x}')
    return 1 if wrong else 0


def git(*words):
    return subprocess.run(['git', '-C', tests, *words], capture_output=True, text=True).stdout.strip()


def commit():
    return git('rev-parse', 'HEAD') + (', with changes' if git('status', '--porcelain', '--untracked-files=no') else '')


def add(file, part, code, build=None):
    ran = [(name, status, took) for name, _, status, took in outputs(build)] if build else []
    levels, left, _ = seen(build) if build else ('', [], [])
    with open(file, 'a') as out:
        out.write(json.dumps(dict(part=part, code=int(code), tests=ran, levels=levels, left=left, commit=commit(), ended=datetime.datetime.now().isoformat(timespec='seconds'))) + '\n')
    return 0


def write(page, file):
    parts = [json.loads(x) for x in pathlib.Path(file).read_text().splitlines()]
    commits = list(dict.fromkeys(x['commit'] for x in parts))  # of parts that ran on different days there may be several
    model = next((x.split(':', 1)[1].strip() for x in pathlib.Path('/proc/cpuinfo').read_text().splitlines() if x.startswith('model name')), platform.processor())
    levels = next((x['levels'] for x in parts if x['levels']), 'none')
    for level in levels.split(', ') if parts[0]['code'] == 0 else ():
        if level in kernels_seen.LEVELS:
            kernels_seen.note(level)
    took = datetime.datetime.fromisoformat(parts[-1]['ended']) - datetime.datetime.fromisoformat(parts[0]['ended'])
    of_part = lambda x: f' ({x["commit"][:8]})' if len(commits) > 1 else ''
    lines = ['# What `make test-all` did when it last ran', '', 'Written by it (`tests/summary.py`).', '', '| | |', '|---|---|', f'| commit | {"; ".join(commits)} |',
             f'| date | {parts[-1]["ended"][:10]} |', f'| processor | {model}, {os.cpu_count()} processors |', f'| levels | {levels} |',
             *([f'| from the end of `make test` on | {took.total_seconds() / 60:.0f} minutes |'] if len(commits) == 1 else []), '', '| part | passed | failed | skipped | seconds of all tests | exit code |', '|---|---|---|---|---|---|']
    for x in parts:
        counts = [sum(status == want for _, status, _ in x['tests']) for want in ('Passed', 'Failed', 'Skipped')]
        cells = [*counts, round(sum(t for *_, t in x['tests']))] if x['tests'] else ['–'] * 4
        lines.append(f'| {x["part"]}{of_part(x)} | {" | ".join(map(str, cells))} | {x["code"]} |')
    for title, tests_of in (('Failed', lambda x: [name for name, status, _ in x['tests'] if status == 'Failed']), ('Left out', lambda x: x['left'])):
        names = [f'{x["part"]}: {name}' for x in parts for name in tests_of(x)]
        lines += ['', f'{title}: ' + ('nothing.' if not names else ''), *([''] if names else []), *(f'- {x}' for x in names)]
    lines += ['', 'What took longest, seconds:', '']
    longest = sorted(((t, name, x['part']) for x in parts for name, _, t in x['tests']), reverse=True)[:15]
    lines += [f'- {name} ({part}): {t:.0f}' for t, name, part in longest]
    pathlib.Path(page).write_text('\n'.join(lines) + '\n')
    print(f'galley: {page} has what ran')
    return 1 if any(x['code'] for x in parts) else 0


commands = {'--add': add, '--write': write}
if __name__ == '__main__':
    sys.exit(commands[sys.argv[1]](*sys.argv[2:]) if sys.argv[1:2] and sys.argv[1] in commands else show(*sys.argv[1:]))
