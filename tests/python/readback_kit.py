"""Scripts of tests/readback as tests.

They need torch, transformers and more, which the tests do not: GALLEY_READBACK names the Python of an environment with them, if they are not in the one that runs
this. Where they are not, the test is left out by name (tests/may_skip.txt)."""
import os
import pathlib
import subprocess
import sys


def run_readback(script, *words, modules):
    python = os.environ.get('GALLEY_READBACK', sys.executable)
    if subprocess.run([python, '-c', f'import {modules}'], capture_output=True).returncode:
        print(f'this Python has not all of {modules}; GALLEY_READBACK names the Python of an environment that does')
        sys.exit(77)
    path = pathlib.Path(os.environ['GALLEY_SOURCE'], 'tests', 'readback', script)
    sys.exit(subprocess.run([python, path, *words]).returncode)
