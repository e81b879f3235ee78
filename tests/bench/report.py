#!/usr/bin/env python3
"""How fast the memory map of a page is, measured by the page itself in headless Chromium: maps of models of 30 to 1,000 layers. Prints a table, asserts nothing.

    GALLEY=build/release/galley tests/bench/report.py
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

source = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(source / 'tests' / 'python'))
from browser_kit import Browser  # noqa: E402

program = pathlib.Path(os.environ['GALLEY']).resolve()
target = source / 'tests' / 'golden' / 'target.toml'
lora = 'use "lora" { rank = 8 }, use "adamw" { lr = 1e-4 }, use "clip" { norm = 1 }, use "recompute" {}'
cases = {'30 layers': (30, 'use "adamw" { lr = 1e-4 }'), '250 layers': (250, 'use "adamw" { lr = 1e-4 }'), '1,000 layers': (1000, 'use "adamw" { lr = 1e-4 }'),
         '1,000 layers, LoRA, recomputed': (1000, lora)}
os.chdir(tempfile.mkdtemp())
print('| plan | rectangles | page | planned and written in | window | ready and drawn after | of this, its script | frames/s | a frame, median | worst |\n|---|---|---|---|---|---|---|---|---|---|')
with Browser() as browser:
    for name, (layers, uses) in cases.items():
        pathlib.Path('bench.lua').write_text(
            'return recipe {\n  model = model { family = "llama", config = { vocab_size = 32000, hidden_size = 64, intermediate_size = 128, num_attention_heads = 4, '
            f'num_key_value_heads = 4, num_hidden_layers = {layers}, max_position_embeddings = 4096, tie_word_embeddings = false }} }},\n'
            f'  data = data.random {{}}, batch = 1, length = 512, steps = 1,\n  {uses} }}\n')
        begin = time.monotonic()
        subprocess.run([program, 'plan', 'bench.lua', '--target', target, '--html', 'bench.html'], check=True, capture_output=True)
        seconds = time.monotonic() - begin
        size = os.path.getsize('bench.html')
        for width, height in ((1280, 900), (1920, 1080), (390, 844)):
            browser.open('bench.html', width, height, touch=width < 500, fragment='#measure')
            browser.until('document.getElementById("measured") !== null', 120)
            seen = json.loads(browser.run('document.getElementById("measured").textContent'))
            print(f'| {name} | {seen["rectangles"]:,} | {size / 1e6:.1f} MB | {seconds:.1f} s | {width} × {height} | {seen["load_ms"] / 1e3:.2f} s | {seen["first_draw_ms"] / 1e3:.2f} s '
                  f'| {seen["frames_per_second"]:.0f} | {seen["frame_ms_median"]:.1f} ms | {seen["frame_ms_worst"]:.1f} ms |', flush=True)
            complaints = browser.complaints()
            if complaints:
                sys.exit(f'the page complains: {complaints}')
