#!/usr/bin/env python3
"""Adapters beside PEFT, by hand: in an environment with torch, transformers, peft and safetensors.

tests/readback/adapters.py record [CASE …]   makes the cases of tests/fixtures/lora that PEFT defines: on the bases that lie there, what PEFT
                                             computes of each kind of adapter in float64
tests/readback/adapters.py read GALLEY       trains every kind of adapter with GALLEY, loads what it saved with PEFT on the same base, and
                                             compares the loss of both; and that of the merged model
tests/readback/adapters.py loftq GALLEY      the error of W − (Q + B·A) under LoftQ, beside that of plain NF4 and of PEFT's own loftq_init
"""
import inspect
import json
import pathlib
import subprocess
import sys
import tempfile

import peft
import torch
import transformers
from safetensors.torch import load_file, save_file

fixtures = pathlib.Path(__file__).resolve().parents[1] / 'fixtures' / 'lora'
lora, vera, ia3 = peft.LoraConfig, peft.VeraConfig, peft.IA3Config

# Name of the case: the case whose base it stands on, and what PEFT is asked for.
CASES = {
    'dora': ('qv', lora, dict(r=4, lora_alpha=6, target_modules=['q_proj', 'k_proj', 'down_proj'], use_dora=True)),
    'dora-conv1d': ('gpt2-conv1d', lora, dict(r=4, lora_alpha=8, target_modules=['c_attn', 'c_proj'], use_dora=True, fan_in_fan_out=True)),
    'everything': ('gpt2-conv1d', lora, dict(r=4, lora_alpha=8, target_modules=r'transformer\.h\.\d\.(attn|mlp)\.c_.*', exclude_modules=['h.1.mlp.c_fc'],
                                             bias='all', rank_pattern={r'h\.0\.attn\.c_attn': 2}, alpha_pattern={'c_proj': 3}, use_rslora=True,
                                             modules_to_save=['ln_f', 'wpe'], fan_in_fan_out=True)),
    'whole-head': ('qv', lora, dict(r=2, lora_alpha=2, target_modules=['v_proj'], modules_to_save=['lm_head'])),
    'pissa': ('lm-head', lora, dict(r=4, lora_alpha=8, target_modules=['q_proj', 'down_proj'], init_lora_weights='pissa')),
    'pissa-conv1d': ('gpt2-conv1d', lora, dict(r=4, lora_alpha=2, target_modules=['c_attn'], init_lora_weights='pissa', fan_in_fan_out=True)),
    'olora': ('lm-head', lora, dict(r=4, lora_alpha=4, target_modules=['q_proj', 'gate_proj'], init_lora_weights='olora')),
    'vera': ('qv', vera, dict(r=8, target_modules=['q_proj', 'v_proj', 'down_proj'], projection_prng_key=7)),
    'vera-drawn': ('gpt2-conv1d', vera, dict(r=8, target_modules=['c_attn', 'c_proj'], projection_prng_key=11, save_projection=False, bias='vera_only',
                                             fan_in_fan_out=True)),
    'ia3': ('qv', ia3, dict(target_modules=['k_proj', 'v_proj', 'down_proj'], feedforward_modules=['down_proj'])),
    'ia3-conv1d': ('gpt2-conv1d', ia3, dict(target_modules=['c_attn', 'mlp.c_proj'], feedforward_modules=['mlp.c_proj'], fan_in_fan_out=True)),
    # A whole name is meant whatever its layer's number is.
    'layers': ('qv', lora, dict(r=4, lora_alpha=8, target_modules=['q_proj', 'down_proj', 'model.layers.0.self_attn.v_proj'], layers_to_transform=[1],
                                layers_pattern=['blocks', 'layers'])),
    # As many values as the weight has rows, of which there are fewer than columns.
    'pissa-wide': ('qv', lora, dict(r=32, lora_alpha=24, target_modules=['k_proj'], init_lora_weights='pissa')),
    'olora-wide': ('qv', lora, dict(r=32, lora_alpha=24, target_modules=['v_proj'], init_lora_weights='olora')),
    # A head that transformers calls by another name than files do.
    'neox-head': ('../models/gpt-neox-partial', lora, dict(r=4, lora_alpha=8, target_modules=['query_key_value'], modules_to_save=['lm_head'])),
    'neox-lora-head': ('../models/gpt-neox-partial', lora, dict(r=4, lora_alpha=8, target_modules=['lm_head', 'attention.dense'])),
    # A bias with two names.
    'bert-head': ('../models/bert-mlm', lora, dict(r=4, lora_alpha=8, target_modules=['query'], modules_to_save=['cls'])),
    'bert-decoder': ('../models/bert-mlm', lora, dict(r=4, lora_alpha=8, target_modules=['value'], modules_to_save=['predictions.decoder'])),
    'bert-biases': ('../models/bert-mlm', lora, dict(r=4, lora_alpha=8, target_modules=['key'], bias='all')),
    'roberta-head': ('../models/roberta-mlm', ia3, dict(target_modules=['value', 'output.dense'], feedforward_modules=['output.dense'], modules_to_save=['lm_head'])),
    'layers-vera': ('gpt2-conv1d', vera, dict(r=8, target_modules=['c_attn', 'c_fc'], projection_prng_key=7, layers_to_transform=0, fan_in_fan_out=True)),
}


def folder_of(case):
    return fixtures / case / 'base' if (fixtures / case / 'base').exists() else fixtures / case


def base_model(case):
    config = json.loads((folder_of(case) / 'config.json').read_text())
    return getattr(transformers, config['architectures'][0]).from_pretrained(folder_of(case), dtype=torch.float32)


def loss_of(model, batch):
    """Models of masked tokens predict a token at its own place, decoders at the one before."""
    logits = model(**{k: v.long() for k, v in batch.items() if k != 'labels'}).logits
    labels = batch['labels'].long()
    shift = 0 if model.config.architectures[0].endswith('ForMaskedLM') else 1
    return torch.nn.functional.cross_entropy(logits[:, :logits.shape[1] - shift].reshape(-1, logits.shape[-1]), labels[:, shift:].reshape(-1)), logits


def record(names):
    for k, (name, (base, config, options)) in enumerate(CASES.items()):
        if names and name not in names:
            continue
        torch.manual_seed(5 + k)
        generator = torch.Generator().manual_seed(41 + k)
        whole = base_model(base)
        model = peft.get_peft_model(whole, config(task_type=None if whole.config.architectures[0].endswith('ForMaskedLM') else 'CAUSAL_LM', **options))
        trained = {n: w for n, w in model.named_parameters() if w.requires_grad}
        with torch.no_grad():
            for n, w in trained.items():
                w += torch.randn(w.shape, generator=generator) * (0.05 if 'lora_' in n or 'vera' in n or 'ia3' in n else 0.01)
        folder = fixtures / name
        model.save_pretrained(folder / 'adapter', safe_serialization=True)
        (folder / 'adapter' / 'README.md').unlink(missing_ok=True)
        file = folder / 'adapter' / 'adapter_config.json'
        file.write_text(json.dumps(json.loads(file.read_text()) | {'base_model_name_or_path': None}, indent=2) + '\n')
        batch = load_file(fixtures / base / 'batch.safetensors')
        model = model.double()
        trained = {n: w for n, w in model.named_parameters() if w.requires_grad}
        loss, logits = loss_of(model, batch)
        loss.backward()
        gradients = {'grad.' + n.replace('.modules_to_save.default', ''): w.grad.float() for n, w in trained.items()}
        model.zero_grad()
        optimizer = torch.optim.AdamW(trained.values(), lr=1e-2, betas=(0.9, 0.999), weight_decay=0.0)
        losses = []
        for _ in range(5):
            step, _ = loss_of(model, batch)
            step.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(step.item())
        save_file({'logits': logits.float().detach().contiguous(), **gradients}, folder / 'expect.safetensors')
        expect = dict(loss=loss.item(), on=base, trainable=sum(w.numel() for w in trained.values()),
                      adamw=dict(lr=1e-2, betas=[0.9, 0.999], weight_decay=0.0, losses=losses))
        (folder / 'expect.json').write_text(json.dumps(expect, indent=1) + '\n')
        print(name, expect['loss'], expect['trainable'], flush=True)


# What a recipe says of each kind of adapter.
RECIPES = {
    'lora': 'use "lora" { rank = 4, alpha = 8, targets = "attention", bias = "all", modules_to_save = "LAST" }',
    'patterns': 'use "lora" { rank = 4, rslora = true, exclude = "re:.*0.*", rank_pattern = { { match = "re:.*[1].*", rank = 3 } } }',
    'dora': 'use "lora" { rank = 4, alpha = 2, dora = true }',
    'pissa': 'use "lora" { rank = 4, alpha = 8, init = "pissa", rslora = true }',
    'pissa_niter': 'use "lora" { rank = 4, init = "pissa_niter_4", dora = true }',
    'olora': 'use "lora" { rank = 4, alpha = 2, init = "olora" }',
    'vera': 'use "vera" { rank = 8, seed = 3 }',
    'vera-drawn': 'use "vera" { rank = 8, seed = 3, save_projection = false }',
    'ia3': 'use "ia3" { targets = { "attention", "FEEDFORWARD" }, feedforward = "FEEDFORWARD" }',
}


def read(galley):
    worst = 0
    for base, last, feedforward in (('qv', 'model.norm', 'down_proj'), ('gpt2-conv1d', 'ln_f', 'mlp.c_proj')):
        batch = load_file(fixtures / base / 'batch.safetensors')
        for name, uses in RECIPES.items():
            with tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                recipe = folder / 'recipe.lua'

                def run(*words):
                    r = subprocess.run([galley, *map(str, words)], capture_output=True, text=True)
                    if r.returncode:
                        sys.exit(f'{base} {name}: {r.stderr or r.stdout}')

                recipe.write_text(f'''return recipe {{ model = model {{ path = "{fixtures / base / 'base'}" }}, data = data.batch {{ path = "{fixtures / base / 'batch.safetensors'}" }},
  steps = 5, seed = 1, {uses.replace('LAST', last).replace('FEEDFORWARD', feedforward)}, use "adamw" {{ lr = 1e-2 }} }}''')
                run('train', recipe, '--out', folder / 'run')
                again = folder / 'again.lua'
                kind = json.loads((folder / 'run/adapter/adapter_config.json').read_text())['peft_type'].lower()
                again.write_text(recipe.read_text().replace(uses.replace('LAST', last).replace('FEEDFORWARD', feedforward),
                                                            f'use "{kind}" {{ path = "{folder / "run/adapter"}" }}'))
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


if sys.argv[1:2] == ['record']:
    record(sys.argv[2:])
elif len(sys.argv) == 3 and sys.argv[1] == 'read':
    read(sys.argv[2])
elif len(sys.argv) == 3 and sys.argv[1] == 'loftq':
    loftq(sys.argv[2])
else:
    sys.exit(__doc__)
