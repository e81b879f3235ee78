#!/usr/bin/env python3
"""Adapters beside PEFT, by hand: in an environment with torch, transformers, peft and safetensors.

tests/readback/adapters.py read GALLEY       trains every kind of adapter with GALLEY, loads what it saved with PEFT on the same base, and
                                             compares the loss of both; and that of the merged model
tests/readback/adapters.py loftq GALLEY      the error of W − (Q + B·A) under LoftQ, beside that of plain NF4 and of PEFT's own loftq_init
"""
import importlib.util
import inspect
import json
import pathlib
import subprocess
import sys
import tempfile

import peft
import torch
import transformers
from safetensors.torch import load_file

fixtures = pathlib.Path(__file__).resolve().parents[1] / 'fixtures' / 'lora'
spec = importlib.util.spec_from_file_location('make', fixtures / 'make.py')
make = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make)
base_model, loss_of = make.base_model, make.loss_of

# What a recipe says of each kind of adapter.
RECIPES = {
    'lora': 'use "lora" { rank = 4, alpha = 8, targets = "attention", bias = "all", modules_to_save = "LAST" }',
    'patterns': 'use "lora" { rank = 4, rslora = true, exclude = "re:.*0.*", rank_pattern = { { match = "re:.*[1].*", rank = 3 } } }',
    'dora': 'use "lora" { rank = 4, alpha = 2, dora = true }',
    'pissa': 'use "lora" { rank = 4, alpha = 8, init = "pissa", rslora = true }',
    'pissa_niter': 'use "lora" { rank = 4, init = "pissa_niter_4", dora = true }',
    'olora': 'use "lora" { rank = 4, alpha = 2, init = "olora" }',
    'tokens': 'use "lora" { rank = 4, trainable_token_indices = { 34, 3, 210 } }',
    'tokens-apart': 'use "lora" { rank = 4, trainable_token_modules = { { module = "TABLE", indices = { 34, 3 } }, { module = "lm_head", indices = { 210, 59, 3 } } } }',
    'vera': 'use "vera" { rank = 8, seed = 3 }',
    'vera-drawn': 'use "vera" { rank = 8, seed = 3, save_projection = false }',
    'ia3': 'use "ia3" { targets = { "attention", "FEEDFORWARD" }, feedforward = "FEEDFORWARD" }',
}


def read(galley):
    worst = 0
    for base, last, feedforward, table in (('qv', 'model.norm', 'down_proj', 'embed_tokens'), ('gpt2-conv1d', 'ln_f', 'mlp.c_proj', 'wte'),
                                           ('lm-head', 'model.norm', 'down_proj', 'embed_tokens')):
        batch = load_file(fixtures / base / 'batch.safetensors')
        for name, uses in RECIPES.items():
            uses = uses.replace('LAST', last).replace('FEEDFORWARD', feedforward).replace('TABLE', table)
            with tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                recipe = folder / 'recipe.lua'

                def run(*words):
                    r = subprocess.run([galley, *map(str, words)], capture_output=True, text=True)
                    if r.returncode:
                        sys.exit(f'{base} {name}: {r.stderr or r.stdout}')

                recipe.write_text(f'''return recipe {{ model = model {{ path = "{fixtures / base / 'base'}" }}, data = data.batch {{ path = "{fixtures / base / 'batch.safetensors'}" }},
  steps = 5, seed = 1, {uses}, use "adamw" {{ lr = 1e-2 }} }}''')
                run('train', recipe, '--out', folder / 'run')
                again = folder / 'again.lua'
                kind = json.loads((folder / 'run/adapter/adapter_config.json').read_text())['peft_type'].lower()
                again.write_text(recipe.read_text().replace(uses, f'use "{kind}" {{ path = "{folder / "run/adapter"}" }}'))
                run('gradients', again, '--out', folder / 'ours.safetensors')
                ours = float(load_file(folder / 'ours.safetensors')['loss'].flatten()[0])
                run('export', folder / 'run', '--merge', '--out', folder / 'merged')
                with torch.no_grad():
                    model = peft.PeftModel.from_pretrained(base_model(base), folder / 'run/adapter')
                    theirs = loss_of(model.double(), batch)[0].item()
                    merged = transformers.AutoModelForCausalLM.from_pretrained(folder / 'merged', dtype=torch.float32)
                    whole = loss_of(merged.double(), batch)[0].item()
                error = max(abs(ours - theirs), abs(whole - theirs)) / theirs
                worst = max(worst, error)
                print(f'{base:12} {name:12} galley {ours:.7f}  PEFT {theirs:.7f}  merged {whole:.7f}  {"ok" if error < 1e-5 else "FAILED"}', flush=True)
    sys.exit(worst >= 1e-5)


@torch.no_grad()
def loftq(galley):
    """PEFT's function runs as it stands, but for the device that it asks for: bitsandbytes computes on the processor, too."""
    import bitsandbytes
    from peft.utils import loftq_utils
    source = inspect.getsource(loftq_utils.loftq_init).replace('else "cuda"', 'else "cpu"')
    theirs = {}
    exec(source.replace('@torch.no_grad()\n', ''), vars(loftq_utils), theirs)
    base, rank, good = fixtures / 'qv' / 'base', 8, True
    weights = {n: w for n, w in base_model('qv').state_dict().items() if n.endswith(('q_proj.weight', 'o_proj.weight', 'gate_proj.weight'))}  # rows of whole blocks
    for times in (1, 2, 5):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / 'recipe.lua').write_text(f'''return recipe {{ model = model {{ path = "{base}" }}, data = data.random {{}}, batch = 1, length = 8, steps = 1, seed = 1,
  use "quantize-nf4" {{}}, use "lora" {{ rank = {rank}, init = "loftq", loftq_iter = {times}, targets = {{ "q_proj", "o_proj", "gate_proj" }} }}, use "sgd" {{ lr = 1e-30 }} }}''')
            for words in (('train', folder / 'recipe.lua', '--out', folder / 'run'), ('export', folder / 'run', '--merge', '--out', folder / 'merged')):
                r = subprocess.run([galley, *map(str, words)], capture_output=True, text=True)
                if r.returncode:
                    sys.exit(r.stderr)
            ours = load_file(folder / 'merged' / 'model.safetensors')
        errors = []
        for n, w in weights.items():
            codes, state = bitsandbytes.functional.quantize_4bit(w, quant_type='nf4')
            plain = bitsandbytes.functional.dequantize_4bit(codes, state)
            q, a, b = theirs['loftq_init'](w, num_bits=4, reduced_rank=rank, num_iter=times)
            errors.append([((w - x).norm() / w.norm()).item() for x in (plain, q + b @ a, ours[n])])
        mean = torch.tensor(errors).mean(0).tolist()
        worst = max(abs(x[2] / x[1] - 1) for x in errors)
        good = good and worst < 1e-3 and all(x[2] < x[0] for x in errors)
        print(f'{len(errors)} weights, rank {rank}, {times} iterations: NF4 {mean[0]:.5f}  PEFT {mean[1]:.5f}  galley {mean[2]:.5f}, apart by {worst:.1e} at most', flush=True)
    sys.exit(not good)


if len(sys.argv) == 3 and sys.argv[1] == 'read':
    read(sys.argv[2])
elif len(sys.argv) == 3 and sys.argv[1] == 'loftq':
    loftq(sys.argv[2])
else:
    sys.exit(__doc__)
