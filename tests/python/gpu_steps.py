#!/usr/bin/env python3
"""tests/gpu/test and tests/gpu/bench.py on the emulated GPU, as they run on a machine that has only been lent: no git, no apt, no network, little time. The
whole of both is rehearsed by gpu_rehearsal.py."""
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import time

from galley_test import binary, check, every, finish, fresh_folder, source

sys.path.insert(0, str(source / 'tests' / 'gpu'))
import steps
from gpu_kit import lent, on_lent, stand_in

fresh_folder()


def tests_of_kernels():
    said = lent('test', '--list')
    listed = [x.split()[1] for x in said.stdout.splitlines()]
    check(said.returncode == 0 and {'first/add', 'kernels/attention', 'kernels/linear', 'suites/Gpu', 'recipes/scripts'} <= set(listed), f'--list: {said.stdout}{said.stderr}')
    # Some by name.
    said = lent('test', '--out', 'kept', 'kernels/add', 'suites/Gpu', 'recipes/freeze')
    check(said.returncode == 3 and every(f'ok      {x}, ' in said.stdout for x in ('kernels/add', 'suites/Gpu', 'recipes/freeze')), f'three steps: {said.stdout}{said.stderr}')
    check(f'3 of {len(listed)} steps are done, 0 failed' in said.stdout and said.stdout.splitlines()[-1].startswith('next: tests/gpu/test --build '), said.stdout)
    margins = pathlib.Path('kept/margins.txt').read_text()
    check('add.cuda f32' in margins and every(0 <= float(x.split()[0]) <= 1 for x in margins.splitlines()), f'margins: {margins}')
    # A call without time does one step, and none that is done.
    before = pathlib.Path('kept/test.jsonl').read_text()
    said = lent('test', '--out', 'kept', '--seconds', '0')
    after = [json.loads(x)['step'] for x in pathlib.Path('kept/test.jsonl').read_text().splitlines()]
    check(said.returncode == 3 and sorted(after[:3]) == ['kernels/add', 'recipes/freeze', 'suites/Gpu'] and after[3:] == ['first/add'] and before, f'a call of 0 s: {said.stdout}{said.stderr} {after}')
    # What fails hides nothing else, and is said.
    said = lent('test', '--out', 'kept', 'kernels/add', 'kernels/copy', GALLEY_DISCRETE_LOST='1')
    check(said.returncode == 1 and 'FAILED  kernels/add' in said.stdout and 'FAILED  kernels/copy' in said.stdout and 'the device was lost' in said.stdout, f'a lost device: {said.stdout}')
    check(said.stdout.splitlines()[-1].startswith('next: '), said.stdout)
    said = lent('test', '--out', 'kept', '--list')
    check('FAILED  kernels/add' in said.stdout and 'ok      suites/Gpu' in said.stdout, f'--list: {said.stdout}')
    said = lent('test', '--out', 'kept', 'kernels/ad')
    check(said.returncode == 1 and "no step 'kernels/ad'" in said.stderr, said.stderr)
    # A fault ends a process; the tests that it leaves run in another one, as long as there is patience.
    lost = re.findall(r'^        (Ops/\S+/add_\S+?)[;\s]', pathlib.Path('kept/test.txt').read_text(), re.M)
    check(len(lost) == len(set(lost)) == 6, f'tests that ended their process: {lost}')
    # Several at once.
    said = lent('test', '--out', 'several', '--jobs', '3', 'kernels/fill', 'kernels/add', 'kernels/random', 'kernels/values')
    check(said.returncode == 3 and said.stdout.count('ok      kernels/') == 4 and '--jobs 3' in said.stdout.splitlines()[-1], f'--jobs 3: {said.stdout}{said.stderr}')


def benchmarks():
    said = lent('bench.py', '--out', 'kept', 'tiny')
    check('ok      tiny/galley/1, ' in said.stdout and 'tokens/s' in said.stdout and said.returncode == 3, f'bench.py: {said.stdout}{said.stderr}')
    table = pathlib.Path('kept/bench.md').read_text()
    check('| tiny | ' in table and 'commit unknown' in table and 'emulated' in table, f'bench.md: {table}')
    check(not (source / 'tests' / 'results' / 'gpu.md').exists() or 'tiny' not in (source / 'tests' / 'results' / 'gpu.md').read_text(), 'the source is written to')


def limits():
    """A step that hangs is ended, with all that it has started."""
    made = steps.Steps('test', 'hanging', binary, 10)
    begin = time.monotonic()
    result = made.run('a/hang', ['/bin/sh', '-c', 'sleep 300 & echo $! > child; wait'], 1)
    child = int(pathlib.Path(result['scratch'], 'child').read_text())
    check(not result['ok'] and 'over its 1 s' in result['why'] and time.monotonic() - begin < 8, f'a step that hangs: {result}')

    def ended():  # it has been killed, which takes its moment on a busy machine
        try:
            return pathlib.Path(f'/proc/{child}/stat').read_text().split()[2] in 'ZX'
        except OSError:
            return True

    end = time.monotonic() + 10
    while not ended() and time.monotonic() < end:
        time.sleep(0.05)
    check(ended(), 'what a step started goes on behind it')
    made.keep(result)
    # Results of another build are not taken for this one's.
    shutil.copytree('hanging', 'other')
    file = pathlib.Path('other/test.jsonl')
    file.write_text(file.read_text().replace(made.of_build, 'another'))
    check(steps.Steps('test', 'other', binary, 10).done == {} and 'a/hang' in steps.Steps('test', 'hanging', binary, 10).done, 'results by build')


def fat(*entries):
    """A library with code for GPUs, as nvcc leaves it: (kind, architecture)."""
    body = b''.join(struct.pack('<HHIQIIHHI', kind, 0x101, 64, 8, 0, 0, 0, 0, sm) + bytes(32) + b'\xff' * 8 for kind, sm in entries)
    return b'\x7fELF' + bytes(60) + b'\x50\xed\x55\xba' + struct.pack('<HHQ', 1, 16, len(body)) + body + bytes(100)


def architectures():
    build = pathlib.Path('built')
    library = build / 'plugins' / 'models' / 'models-cuda.so'
    library.parent.mkdir(parents=True)
    for place in ('tests/bin', 'plugins/cuda'):
        (build / place).mkdir(parents=True)
    shutil.copy(binary / 'tests' / 'bin' / 'models', build / 'tests' / 'bin')
    for there, here, taken in (([(2, 80), (1, 80)], '9.0', False), ([(2, 90)], '9.0', True), ([(2, 80)], '8.6', True), ([(2, 89)], '8.6', False),
                               ([(2, 80), (2, 100), (2, 120)], '12.0', True), ([(1, 80)], '8.0', False)):
        library.write_bytes(fat(*there))
        stand_in('nvidia-smi', f'echo "NVIDIA of the tests, 81559 MiB, 580.65, {here}"')
        said = lent('test', '--build', build, '--list', GALLEY_TEST_DEVICE='')
        refused = f'-DCMAKE_CUDA_ARCHITECTURES={here.replace(".", "")}' in said.stderr
        check(refused != taken, f'code {there} on a GPU of {here}: {said.stdout}{said.stderr}')
        check(taken or (1, 80) not in there or 'compile each kernel at its first use' in said.stderr, said.stderr)
    built = binary / 'plugins' / 'models' / 'models-cuda.so'
    if built.exists():
        code, ptx = steps.architectures(built)
        check(code and every(80 <= x <= 130 for x in code | ptx), f'{built}: {code}, {ptx}')
    stand_in('nvidia-smi', 'echo "NVIDIA-SMI has failed"; exit 9')
    said = lent('test', '--list', GALLEY_TEST_DEVICE='')
    check(said.returncode == 1 and 'nvidia-smi finds no GPU' in said.stderr, said.stderr)
    os.unlink('bin/nvidia-smi')
    said = lent('test', '--list', GALLEY_TEST_DEVICE='')
    check(said.returncode == 1 and 'there is no nvidia-smi, so no NVIDIA driver' in said.stderr, said.stderr)


def packed():
    """One archive of one architecture, which is all that a GPU's machine needs."""
    built = pathlib.Path('built')
    kernels = built / 'plugins' / 'models' / 'models-cuda.so'
    (built / 'galley').write_text('#!/bin/sh\n')
    for there, word in (([(2, 80), (2, 90)], 'has code for sm_80, sm_90: build for one'), ([(2, 90), (1, 90)], 'and PTX: build for one')):
        kernels.write_bytes(fat(*there))
        said = lent('pack', '--build', built, '--out', 'two.tar.xz')
        check(said.returncode == 1 and word in said.stderr and not os.path.exists('two.tar.xz'), f'code {there}: {said.stdout}{said.stderr}')
    kernels.write_bytes(fat((2, 90)))
    (built / 'plugins' / 'models' / 'models-cuda-emulated.so').write_text('of no use there')
    said = lent('pack', '--build', built, '--out', 'one.tar.xz')
    names = tarfile.open('one.tar.xz').getnames() if said.returncode == 0 else []
    check({'galley/COMMIT', 'galley/build/cuda/galley', 'galley/build/cuda/plugins/models/models-cuda.so', 'galley/build/cuda/tests/bin/models', 'galley/tests/gpu/test',
           'galley/tests/python/cuda.py', 'galley/scripts/finetune.lua', 'galley/models/targets/h100.toml'} <= set(names) and not any('emulated.so' in x for x in names),
          f'pack: {said.stdout}{said.stderr} {names}')


def carried():
    """`make test-gpu` with a build that was carried here: neither apt nor cmake."""
    for path in ('tests/gpu', 'build/cuda', '.ci'):
        os.makedirs(f'carried/{path}')
    shutil.copy(source / 'Makefile', 'carried')
    for path, text in (('tests/gpu/test', 'echo tested'), ('tests/gpu/bench.py', 'echo timed'), ('build/cuda/galley', 'true'), ('.ci/setup', 'echo apt-get; exit 1')):
        pathlib.Path('carried', path).write_text(f'#!/bin/sh\n{text}\n')
        os.chmod(f'carried/{path}', 0o755)
    for tool in ('make', 'bash', 'sh', 'sed', 'find', 'date', 'nproc', 'dirname'):
        if not os.path.exists(f'bin/{tool}'):
            os.symlink(shutil.which(tool), f'bin/{tool}')
    for target, word in (('test-gpu', 'tested'), ('bench-gpu', 'timed')):
        said = on_lent(['make', '-C', 'carried', target])
        check(said.returncode == 0 and word in said.stdout and 'apt-get' not in said.stdout, f'make {target}: {said.stdout}{said.stderr}')


tests_of_kernels()
benchmarks()
limits()
architectures()
packed()
carried()
finish()
