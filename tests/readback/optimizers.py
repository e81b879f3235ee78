#!/usr/bin/env python3
"""Ten steps of each optimizer through the command line, beside those of PyTorch, transformers and bitsandbytes, on a new Llama with random weights and a new batch. Prints
the largest relative difference of a parameter from theirs, by norms, and of a number; ours is trained in F32, theirs in float64, bitsandbytes' in F32.

Usage: optimizers.py GALLEY [seed=N] [only=NAME,NAME]      (pip install torch transformers bitsandbytes safetensors)
Exit 0 where all are within 1e-4, those in 8 bit and Lion, where rounding decides a sign next to 0, within 2e-3. Muon's iteration is discontinuous where it rounds, so it is held to PyTorch's with its products in float64."""
import pathlib
import subprocess
import sys
import tempfile
import time

import bitsandbytes as bnb
import torch
from safetensors.torch import load_file, save_file
from torch.optim import _muon
from transformers import Adafactor, LlamaConfig, LlamaForCausalLM

galley = pathlib.Path(sys.argv[1]).resolve()
options = dict(x.split('=', 1) for x in sys.argv[2:])
seed = int(options.get('seed', time.time_ns() % 10**6))
torch.manual_seed(seed)
torch.set_num_threads(2)
config = LlamaConfig(vocab_size=320, hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
                     tie_word_embeddings=True, attn_implementation='eager')
start = LlamaForCausalLM(config)
ids = torch.randint(0, 320, (3, 32))


def is_hidden(name, p):
    return p.ndim == 2 and 'embed' not in name and 'lm_head' not in name


def groups(model, decay):
    """Norms do not decay."""
    return [dict(params=[p for p in model.parameters() if (p.ndim > 1) == matrices], weight_decay=decay if matrices else 0) for matrices in (True, False)]


class MuonAndAdamW:
    def __init__(self, model):
        hidden = [p for n, p in model.named_parameters() if is_hidden(n, p)]
        rest = [dict(params=[p for n, p in model.named_parameters() if not is_hidden(n, p) and (p.ndim > 1) == matrices], weight_decay=0.1 if matrices else 0) for matrices in (True, False)]
        self.parts = torch.optim.Muon(hidden, lr=2e-2, weight_decay=0.1), torch.optim.AdamW(rest, lr=1e-3, betas=(0.9, 0.95), eps=1e-10)

    def step(self):
        for part in self.parts:
            part.step()

    def zero_grad(self):
        for part in self.parts:
            part.zero_grad()


def in_float64(grad, coefficients, steps, eps):
    """torch.optim.Muon's iteration, without its rounding."""
    a, b, c = coefficients
    x = grad.T if grad.size(0) > grad.size(1) else grad
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if grad.size(0) > grad.size(1) else x


_muon._zeropower_via_newtonschulz = in_float64
# States in 8 bit differ by rounding, in proportion to the rate. In a head of its own they differ more, for there bitsandbytes stores small means of squares as 0, and steps get
# as large as the mean of gradients lets them; after ten steps with 1e-3 its AdamW in 8 bit is .9 % from its own in F32, ours .75 %.
cases = {
    'sgd': ('use "sgd" { lr = 0.1, momentum = 0.9, weight_decay = 0.1 }', lambda m: torch.optim.SGD(groups(m, 0.1), lr=0.1, momentum=0.9)),
    'adam': ('use "adam" { lr = 1e-3, weight_decay = 0.01 }', lambda m: torch.optim.Adam(groups(m, 0.01), lr=1e-3)),
    'amsgrad': ('use "adamw" { lr = 1e-3, amsgrad = true, weight_decay = 0.1 }', lambda m: torch.optim.AdamW(groups(m, 0.1), lr=1e-3, amsgrad=True)),
    'adamw': ('use "adamw" { lr = 1e-3, betas = { 0.9, 0.95 }, weight_decay = 0.1 }', lambda m: torch.optim.AdamW(groups(m, 0.1), lr=1e-3, betas=(0.9, 0.95))),
    'lion': ('use "lion" { lr = 1e-4, weight_decay = 0.1 }', lambda m: bnb.optim.Lion(groups(m, 0.1), lr=1e-4, betas=(0.9, 0.99))),
    'adamw8bit': ('use "adamw8bit" { lr = 3e-4, betas = { 0.9, 0.95 }, weight_decay = 0.1 }', lambda m: bnb.optim.AdamW8bit(groups(m, 0.1), lr=3e-4, betas=(0.9, 0.95), min_8bit_size=4096)),
    'lion8bit': ('use "lion8bit" { lr = 1e-4, weight_decay = 0.1 }', lambda m: bnb.optim.Lion8bit(groups(m, 0.1), lr=1e-4, betas=(0.9, 0.99), min_8bit_size=4096)),
    'adafactor': ('use "adafactor" {  }', lambda m: Adafactor(m.parameters(), relative_step=True, scale_parameter=True, warmup_init=False)),
    'adafactor-fixed': ('use "adafactor" { lr = 1e-3, relative_step = false, scale_parameter = false, beta1 = 0.9 }',
                         lambda m: Adafactor(m.parameters(), lr=1e-3, relative_step=False, scale_parameter=False, warmup_init=False, beta1=0.9)),
    'muon': ('use "muon" { lr = 2e-2, rest_lr = 1e-3, rest_betas = { 0.9, 0.95 }, compute = "f32" }', MuonAndAdamW),
    'split-states': ('use "split-states" { gradients = false }, use "adamw" { lr = 3e-4, betas = { 0.9, 0.95 }, weight_decay = 0.1 }',
                     lambda m: torch.optim.AdamW(groups(m, 0.1), lr=3e-4, betas=(0.9, 0.95))),
}
failed = []
with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    start.save_pretrained(folder / 'model')
    save_file({'input_ids': ids.int(), 'labels': ids.int()}, folder / 'batch.safetensors')
    print(f'seed={seed}')
    for name, (use, optimizer) in cases.items():
        if name not in options.get('only', name).split(','):
            continue
        wide = '8bit' not in name and 'lion' not in name
        model = LlamaForCausalLM(config)
        model.load_state_dict(start.state_dict())
        model = model.double() if wide else model
        if '8bit' in name:  # ours keeps the states of embeddings in F32, as bitsandbytes' documentation advises
            bnb.optim.GlobalOptimManager.get_instance().register_module_override(model.model.embed_tokens, 'weight', {'optim_bits': 32})
            bnb.optim.GlobalOptimManager.get_instance().register_parameters(model.parameters())
        steps = optimizer(model)
        for _ in range(10):
            logits = model(input_ids=ids).logits
            torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
            steps.step()
            steps.zero_grad()
        recipe = folder / 'recipe.lua'
        recipe.write_text(f'return recipe {{ model = model {{ path = "{folder}/model" }}, data = data.batch {{ path = "{folder}/batch.safetensors" }}, steps = 10, seed = 1, {use} }}')
        out = folder / name.replace(' ', '')
        ran = subprocess.run([galley, 'train', recipe, '--out', out], capture_output=True, text=True)
        if ran.returncode:
            sys.exit(f'{name}: {ran.stderr}')
        ours, theirs, before = load_file(out / 'model/model.safetensors'), dict(model.named_parameters()), dict(start.named_parameters())
        apart = {n: ours[n].double() - p.double() for n, p in theirs.items()}
        off = max(((d.norm() / theirs[n].double().norm()).item(), n) for n, d in apart.items())
        most = max(d.abs().max().item() for d in apart.values())
        moved = max((p.double() - before[n].double()).abs().max().item() for n, p in theirs.items())
        bound = 2e-3 if '8bit' in name or name in ('split-states', 'lion') else 1e-4
        failed += [name] * (off[0] > bound)
        print(f'{"ok  " if off[0] <= bound else "FAIL"} {name:18} off by {off[0]:.1e}, in {off[1]}; a number by {most:.1e}, where steps come to {moved:.1e}', flush=True)
sys.exit(bool(failed))
