#!/usr/bin/env python3
"""Does `galley compare` call differences as often as its arithmetic says? A recipe beside itself with other seeds, and beside itself at a lower rate, in many comparisons.

Usage: tests/bench/compare.py GALLEY [COMPARISONS=40] [DIR]
Of comparisons of a recipe with itself, one in twenty may call a difference. The lower rate's effect is measured over all runs: mean and deviation of the differences; the share
of comparisons that find it is held against the power of a paired t-test with five pairs, drawn at random from a normal distribution with that effect.
"""
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile

galley, comparisons = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 40
folder = pathlib.Path(sys.argv[3] if len(sys.argv) > 3 else tempfile.mkdtemp())
folder.mkdir(exist_ok=True)
source = pathlib.Path(__file__).resolve().parents[2]
recipe = folder / 'aa.lua'
recipe.write_text('''
local function adamw(lr) return use "adamw" { lr = lr } end
return compare {
  model = model { family = "gpt2", config = { vocab_size = 256, n_positions = 32, n_embd = 32, n_layer = 2, n_head = 4, resid_pdrop = 0.1, embd_pdrop = 0.1, attn_pdrop = 0.1 } },
  data = data.text { files = { arg("text") }, tokenizer = "bytes", validation = 0.1 }, batch = 4, length = 32, steps = 30, validate = { every = 30 }, turns = 1,
  variants = { plain = { adamw(3e-3) }, again = { seed = 100000, adamw(3e-3) }, slower = { adamw(2.7e-3) } },
}
''')
called, found, differences = 0, 0, []
for k in range(comparisons):
    out = folder / f'comparison-{k}'
    seeds = ','.join(str(5 * k + i) for i in range(5))
    subprocess.run([galley, 'compare', recipe, '--out', out, '--seeds', seeds, '--set', f'text={source / "README.md"}'], check=True, stdout=subprocess.DEVNULL)
    arms = {a['name']: a for a in json.loads((out / 'compare.json').read_text())['arms']}
    apart = {n: not a['validation_difference']['low'] <= 0 <= a['validation_difference']['high'] for n, a in arms.items() if n != 'plain'}
    called += apart['again']
    found += apart['slower']
    differences += [a['validation'][-1][1] - b['validation'][-1][1] for a, b in zip(arms['slower']['runs'], arms['plain']['runs'])]
mean = sum(differences) / len(differences)
deviation = math.sqrt(sum((d - mean) ** 2 for d in differences) / (len(differences) - 1))
random.seed(1)


def excludes_zero(effect):
    x = [random.gauss(effect, 1) for _ in range(5)]
    m = sum(x) / 5
    return abs(m) > 2.7764451 * math.sqrt(sum((v - m) ** 2 for v in x) / 4 / 5)


power = sum(excludes_zero(mean / deviation) for _ in range(20000)) / 20000
print(f'{comparisons} comparisons of a recipe with itself: {called} call a difference ({comparisons / 20:.0f} expected)')
print(f'at .9 of the rate the validation loss is {mean:+.4f}, of which the deviation is {deviation:.4f}: found by {found}, {power * comparisons:.1f} expected '
      f'± {math.sqrt(power * (1 - power) * comparisons):.1f}')
