#!/usr/bin/env python3
# label: all
"""families.py with every strategy, in every dtype, and on devices whose memory the host cannot touch."""
import pathlib
import runpy
import sys

sys.argv.append('--all')
runpy.run_path(str(pathlib.Path(__file__).with_name('families.py')), run_name='__main__')
