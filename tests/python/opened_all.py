#!/usr/bin/env python3
# label: all
"""tests/readback/opened.py: what transformers and PEFT compute of every folder that is saved, of every family. `opened_all.py CASE …` runs some of its cases."""
import sys

from readback_kit import run_readback

run_readback('opened.py', *sys.argv[1:], modules='torch, transformers, peft, safetensors')
