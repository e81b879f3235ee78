#!/usr/bin/env python3
# label: all
"""tests/readback/drawn.py with a fixed seed: configurations drawn at random, beside transformers, PEFT and bitsandbytes."""
import os

from readback_kit import run_readback

run_readback('drawn.py', '--galley', os.environ['GALLEY'], '--seed', '40', '--cases', '180', modules='torch, transformers, accelerate, peft, bitsandbytes, safetensors')
