"""A machine that has only been lent, for tests of tests/gpu: an empty environment, one folder of programs without git, apt and compilers, no network where the
kernel lets a test take it away."""
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

from galley_test import binary, source

device = binary / 'emulated' / 'cuda-emulated' / 'cuda-emulated.so'
_unshare = shutil.which('unshare')
_offline = [_unshare, '--user', '--map-root-user', '--net'] if _unshare and subprocess.run([_unshare, '--user', '--map-root-user', '--net', 'true'], capture_output=True).returncode == 0 else []


def programs():
    """The folder of the machine's programs: Python, and what a test adds."""
    folder = pathlib.Path('bin').resolve()
    if not folder.exists():
        folder.mkdir()
        os.symlink(sys.executable, folder / 'python3')
    return folder


def stand_in(name, text):
    """A program of the machine."""
    file = programs() / name
    file.write_text(f'#!/bin/sh\n{text}\n')
    file.chmod(0o755)


def on_lent(command, timeout=600, **environment):
    """Runs a command there. Ten minutes are all it gets."""
    folder = programs()
    return subprocess.run([*_offline, *map(str, command)], capture_output=True, text=True, errors='replace', timeout=timeout,
                          env={'PATH': str(folder), 'HOME': str(folder), 'GALLEY_TEST_DEVICE': str(device), **environment})


def brought(archive):
    """What tests/gpu/pack has packed, unpacked there: the folder."""
    with tarfile.open(archive) as packed:
        packed.extractall()
    return pathlib.Path('galley').resolve()


def lent(tool, *words, **environment):
    build = [] if '--build' in words else ['--build', binary]
    return on_lent([source / 'tests' / 'gpu' / tool, *build, *words], **environment)
