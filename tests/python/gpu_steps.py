#!/usr/bin/env python3
"""tests/gpu/test and tests/gpu/bench.py on the emulated GPU, as they run on a machine that has only been lent: no git, no apt, no network, little time. The
whole of both is rehearsed by gpu_rehearsal.py."""
import functools
import json
import os
import pathlib
import re
import shutil
import struct
import sys
import tarfile
import time

from galley_test import binary, case, cases, check, every, finish, fresh_folder, source

sys.path.insert(0, str(source / 'tests' / 'gpu'))
import steps
from gpu_kit import lent, on_lent, programs, stand_in

fresh_folder()


@case
def list_of_steps():
    said = lent('test', '--list')
    listed = [x.split()[1] for x in said.stdout.splitlines()]
    check(said.returncode == 0 and {'first/add', 'kernels/attention', 'kernels/linear', 'suites/Gpu', 'recipes/script_finetune_bf16'} <= set(listed),
          f'--list: {said.stdout}{said.stderr}')
    said = lent('test', 'kernels/ad')
    check(said.returncode == 1 and "no step 'kernels/ad'" in said.stderr, said.stderr)


@case
def steps_by_name():
    every_step = len(lent('test', '--list').stdout.splitlines())
    names = ('kernels/add', 'recipes/freeze', 'suites/Gpu')
    said = lent('test', '--out', 'kept', *names)
    check(said.returncode == 3 and every(f'ok      {x}, ' in said.stdout for x in names), f'three steps: {said.stdout}{said.stderr}')
    check(f'3 of {every_step} steps are done, 0 failed' in said.stdout and said.stdout.splitlines()[-1].startswith('next: tests/gpu/test --build '), said.stdout)
    margins = pathlib.Path('kept/margins.txt').read_text()
    check('add.cuda f32' in margins and every(0 <= float(x.split()[0]) <= 1 for x in margins.splitlines()), f'margins: {margins}')
    # A call without time does one step, and none that is done.
    said = lent('test', '--out', 'kept', '--seconds', '0')
    after = [json.loads(x)['step'] for x in pathlib.Path('kept/test.jsonl').read_text().splitlines()]
    check(said.returncode == 3 and sorted(after[:3]) == sorted(names) and after[3:] == ['first/add'], f'a call of 0 s: {said.stdout}{said.stderr} {after}')
    # What fails takes the place of what was well, and leaves the rest.
    lent('test', '--out', 'kept', 'kernels/add', GALLEY_DISCRETE_LOST='1')
    said = lent('test', '--out', 'kept', '--list')
    check('FAILED  kernels/add' in said.stdout and 'ok      suites/Gpu' in said.stdout, f'--list: {said.stdout}')


@case
def lost_device():
    """What fails hides nothing else, and is said."""
    said = lent('test', '--out', 'lost', 'kernels/add', 'kernels/copy', GALLEY_DISCRETE_LOST='1')
    check(said.returncode == 1 and every(x in said.stdout for x in ('FAILED  kernels/add', 'FAILED  kernels/copy', 'the device was lost')), f'a lost device: {said.stdout}')
    check(said.stdout.splitlines()[-1].startswith('next: '), said.stdout)
    # A fault ends a process; the tests that it leaves run in another one, as long as there is patience.
    lost = re.findall(r'^        (Ops/\S+/add_\S+?)[;\s]', pathlib.Path('lost/test.txt').read_text(), re.M)
    check(len(lost) == len(set(lost)) == 6, f'tests that ended their process: {lost}')


@case
def several_at_once():
    said = lent('test', '--out', 'several', '--jobs', '3', 'kernels/fill', 'kernels/add', 'kernels/random', 'kernels/values')
    check(said.returncode == 3 and said.stdout.count('ok      kernels/') == 4 and '--jobs 3' in said.stdout.splitlines()[-1], f'--jobs 3: {said.stdout}{said.stderr}')


@case
def benchmarks():
    said = lent('bench.py', '--out', 'benched', 'tiny')
    check('ok      tiny/galley/1, ' in said.stdout and 'tokens/s' in said.stdout and said.returncode == 3, f'bench.py: {said.stdout}{said.stderr}')
    table = pathlib.Path('benched/bench.md').read_text()
    check('| tiny | ' in table and 'commit unknown' in table and 'emulated' in table, f'bench.md: {table}')
    check(not (source / 'tests' / 'results' / 'gpu.md').exists() or 'tiny' not in (source / 'tests' / 'results' / 'gpu.md').read_text(), 'the source is written to')


@case
def step_that_hangs():
    """It is ended, with all that it has started."""
    made = steps.Steps('test', 'hanging', binary, 10)
    begin = time.monotonic()
    result = made.run('a/hang', ['/bin/sh', '-c', 'sleep 300 & echo $! > child; wait'], 1)
    child = int(pathlib.Path(result['scratch'], 'child').read_text())
    check(not result['ok'] and 'over its 1 s' in result['why'] and time.monotonic() - begin < 100, f'a step that hangs: {result}')

    def ended():  # it has been killed, which takes its moment on a busy machine
        try:
            return pathlib.Path(f'/proc/{child}/stat').read_text().split()[2] in 'ZX'
        except OSError:
            return True

    end = time.monotonic() + 60
    while not ended() and time.monotonic() < end:
        time.sleep(0.05)
    check(ended(), 'what a step started goes on after it')


@case
def results_of_another_build():
    """They are not taken for this one's."""
    made = steps.Steps('test', 'own', binary, 10)
    made.keep(made.run('a/step', ['/bin/sh', '-c', 'true'], 60))
    shutil.copytree('own', 'other')
    file = pathlib.Path('other/test.jsonl')
    file.write_text(file.read_text().replace(made.of_build, 'another'))
    check(steps.Steps('test', 'other', binary, 10).done == {}, 'they are taken')
    check('a/step' in steps.Steps('test', 'own', binary, 10).done, 'its own results are forgotten')


def fat(*entries):
    """A library with code for GPUs, as nvcc leaves it: (kind, architecture)."""
    body = b''.join(struct.pack('<HHIQIIHHI', kind, 0x101, 64, 8, 0, 0, 0, 0, sm) + bytes(32) + b'\xff' * 8 for kind, sm in entries)
    return b'\x7fELF' + bytes(60) + b'\x50\xed\x55\xba' + struct.pack('<HHQ', 1, 16, len(body)) + body + bytes(100)


@functools.cache
def built():
    """A folder like a build for CUDA with tests, and the library in it that has code for GPUs."""
    build = pathlib.Path('built')
    for place in ('tests/bin', 'plugins/cuda', 'plugins/models'):
        (build / place).mkdir(parents=True)
    for program in ('models', 'session'):
        shutil.copy(binary / 'tests' / 'bin' / program, build / 'tests' / 'bin')
    return build, build / 'plugins' / 'models' / 'models-cuda.so'


CODES = {'two kinds of code': ([(2, 80), (1, 80)], '9.0', False), 'its own': ([(2, 90)], '9.0', True), 'of its generation': ([(2, 80)], '8.6', True),
         'of a newer one': ([(2, 89)], '8.6', False), 'for several': ([(2, 80), (2, 100), (2, 120)], '12.0', True), 'PTX': ([(1, 80)], '8.0', False)}


@cases(CODES)
def architectures(_, of):
    there, here, taken = of
    build, library = built()
    library.write_bytes(fat(*there))
    stand_in('nvidia-smi', f'echo "NVIDIA of the tests, 81559 MiB, 580.65, {here}"')
    said = lent('test', '--build', build, '--list', GALLEY_TEST_DEVICE='')
    refused = f'-DCMAKE_CUDA_ARCHITECTURES={here.replace(".", "")}' in said.stderr
    check(refused != taken, f'code {there} on a GPU of {here}: {said.stdout}{said.stderr}')
    check(taken or (1, 80) not in there or 'compile each kernel at its first use' in said.stderr, said.stderr)


@case
def architectures_of_a_library():
    """As fat() makes one, and as nvcc has made one, where it is here."""
    build, library = built()
    library.write_bytes(fat((2, 80), (2, 90), (1, 90)))
    check(steps.architectures(library) == ({80, 90}, {90}), f'{steps.architectures(library)}')
    nvcc = binary / 'plugins' / 'models' / 'models-cuda.so'
    if nvcc.exists():
        code, ptx = steps.architectures(nvcc)
        check(code and every(80 <= x <= 130 for x in code | ptx), f'{nvcc}: {code}, {ptx}')


@case
def no_driver():
    stand_in('nvidia-smi', 'echo "NVIDIA-SMI has failed"; exit 9')
    said = lent('test', '--list', GALLEY_TEST_DEVICE='')
    check(said.returncode == 1 and 'nvidia-smi finds no GPU' in said.stderr, said.stderr)
    (programs() / 'nvidia-smi').unlink()
    said = lent('test', '--list', GALLEY_TEST_DEVICE='')
    check(said.returncode == 1 and 'there is no nvidia-smi, so no NVIDIA driver' in said.stderr, said.stderr)


@case
def packed():
    """One archive of one architecture, which is all that a GPU's machine needs."""
    build, library = built()
    (build / 'galley').write_text('#!/bin/sh\n')
    for there, word in (([(2, 80), (2, 90)], 'has code for sm_80, sm_90: build for one'), ([(2, 90), (1, 90)], 'and PTX: build for one')):
        library.write_bytes(fat(*there))
        said = lent('pack', '--build', build, '--out', 'two.tar.xz')
        check(said.returncode == 1 and word in said.stderr and not os.path.exists('two.tar.xz'), f'code {there}: {said.stdout}{said.stderr}')
    library.write_bytes(fat((2, 90)))
    library.with_name('models-cuda-emulated.so').write_text('of no use there')
    said = lent('pack', '--build', build, '--out', 'one.tar.xz')
    names = tarfile.open('one.tar.xz').getnames() if said.returncode == 0 else []
    check({'galley/COMMIT', 'galley/build/cuda/galley', 'galley/build/cuda/plugins/models/models-cuda.so', 'galley/build/cuda/tests/bin/models', 'galley/tests/gpu/test',
           'galley/build/cuda/tests/bin/session', 'galley/tests/python/cuda_runs.py', 'galley/scripts/finetune.lua', 'galley/models/targets/h100.toml'} <= set(names),
          f'pack: {said.stdout}{said.stderr} {names}')
    check(not any('emulated.so' in x for x in names), f'pack: {names}')


@case
def carried():
    """`make test-gpu` with a build that was carried here: neither apt nor cmake."""
    for path in ('tests/gpu', 'build/cuda', '.ci'):
        os.makedirs(f'carried/{path}')
    shutil.copy(source / 'Makefile', 'carried')
    for path, text in (('tests/gpu/test', 'echo tested'), ('tests/gpu/bench.py', 'echo timed'), ('build/cuda/galley', 'true'), ('.ci/setup', 'echo apt-get; exit 1')):
        pathlib.Path('carried', path).write_text(f'#!/bin/sh\n{text}\n')
        os.chmod(f'carried/{path}', 0o755)
    for tool in ('make', 'bash', 'sh', 'sed', 'find', 'date', 'nproc', 'dirname'):
        os.symlink(shutil.which(tool), programs() / tool)
    for target, word in (('test-gpu', 'tested'), ('bench-gpu', 'timed')):
        said = on_lent(['make', '-C', 'carried', target])
        check(said.returncode == 0 and word in said.stdout and 'apt-get' not in said.stdout, f'make {target}: {said.stdout}{said.stderr}')


finish(turns=2)
