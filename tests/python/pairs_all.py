#!/usr/bin/env python3
# label: all
"""tests/python/pairs.py has strategies in one order: here is the other one."""
import os
import pathlib
import sys

os.execv(sys.executable, [sys.executable, str(pathlib.Path(__file__).with_name('pairs.py')), 'turned'])
