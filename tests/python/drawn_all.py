#!/usr/bin/env python3
# label: all
"""tests/readback/drawn.py with a fixed seed: configurations drawn at random, beside transformers, PEFT and bitsandbytes. GALLEY_READBACK names the Python of an environment
with them, if they are not in the one that runs this."""
import os
import subprocess
import sys

python = os.environ.get('GALLEY_READBACK', sys.executable)
modules = 'torch, transformers, accelerate, peft, bitsandbytes, safetensors'
if subprocess.run([python, '-c', f'import {modules}'], capture_output=True).returncode:
    print(f'{python} has not all of {modules}; GALLEY_READBACK names the Python of an environment that does')
    sys.exit(77)
script = os.path.join(os.environ['GALLEY_SOURCE'], 'tests', 'readback', 'drawn.py')
sys.exit(subprocess.run([python, script, '--galley', os.environ['GALLEY'], '--seed', '40', '--cases', '180']).returncode)
