#!/usr/bin/env python3
"""How far gradients in BF16 are from those of float64 on a real model: Galley's, and those of PyTorch's autocast on the CPU. One text at a time, the norm of the
difference over the norm, of the whole gradient; then by layer and matrix where it is large. Prints tables in Markdown; asserts nothing.

Usage: bf16_gradients.py [--galley PROGRAM] [--scratch DIR] [--texts FILE] [--except PATTERN …] [--only N …] [--shake SEED] MODEL

`noise` is what BF16 takes at the least, whatever the order of its roundings: gradients in F32 where each input of a linear layer is off by a random share of up to
2^-9, and nothing else. Two draws.

MODEL is the folder of a Llama whose weights are in BF16 (SmolLM2-135M), so that rounding them changes nothing. float64 is transformers' model in float64; it computes
norms and softmax in F32. By hand, in a scratch environment: python3 -m venv DIR && DIR/bin/pip install torch transformers safetensors."""
import argparse
import math
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

LARGE = 0.1  # errors from which on they are shown by layer and matrix
MATRICES = {'q': 'q_proj', 'k': 'k_proj', 'v': 'v_proj', 'o': 'o_proj', 'gate': 'gate_proj', 'up': 'up_proj', 'down': 'down_proj', 'norms': 'layernorm'}


def gradients(model, ids):
    model.zero_grad(set_to_none=True)
    model(input_ids=ids, labels=ids).loss.backward()
    found = {name: p.grad for name, p in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    return found


def autocast(model, ids, attention):
    model.set_attn_implementation(attention)
    with torch.autocast('cpu', torch.bfloat16):
        return gradients(model, ids)


def disturbed(model, ids, seed):
    model.set_attn_implementation('eager')
    generator = torch.Generator().manual_seed(seed)

    def disturb(_, inputs):
        x = inputs[0]
        return x * (1 + 2**-9 * (2 * torch.rand(x.shape, generator=generator) - 1))
    hooks = [m.register_forward_pre_hook(disturb) for m in model.modules() if isinstance(m, torch.nn.Linear)]
    found = gradients(model, ids)
    for hook in hooks:
        hook.remove()
    return found


def galley(ids, scratch):
    save_file({'input_ids': ids, 'labels': ids.clone()}, scratch / 'batch.safetensors')
    except_ = ', '.join(f'"{x}"' for x in arguments.except_)
    (scratch / 'text.lua').write_text(f'''return recipe {{
  model = model {{ path = "{arguments.model}" }}, data = data.batch {{ path = "{scratch}/batch.safetensors" }},
  batch = 1, length = {ids.shape[1]}, steps = 1, seed = 1, use "amp" {{ compute = "bf16", except = {{ {except_} }} }}, use "sgd" {{ lr = 1e-3 }},
}}''')
    done = subprocess.run([arguments.galley, 'gradients', scratch / 'text.lua', '--out', scratch / 'gradients'], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f'galley gradients: exit code {done.returncode}\n{done.stderr}')
    found = load_file(scratch / 'gradients')
    return {name.removeprefix('grad.'): g for name, g in found.items() if name.startswith('grad.')}


def parts(found, exact):
    """Of each tensor: the squared norm of the difference, and of what it should be."""
    return {name: ((found[name] - g).square().sum().item(), g.square().sum().item()) for name, g in exact.items()}


def shaken(model, scratch, seed):
    """A copy of the model in F32, the weights of its first norm off by a random 1e-4 of each: all roundings after it are drawn anew."""
    to = scratch / 'model'
    shutil.copytree(model, to, ignore=shutil.ignore_patterns('*.safetensors'))
    weights = {name: w.float() for name, w in load_file(model / 'model.safetensors').items()}
    first = weights['model.layers.0.input_layernorm.weight']
    first *= 1 + 1e-4 * torch.randn(first.shape, generator=torch.Generator().manual_seed(seed))
    save_file(weights, to / 'model.safetensors', {'format': 'pt'})
    return to


def error(of, names=None):
    """The norm of the difference over the norm, of all tensors or of some."""
    chosen = [of[n] for n in (of if names is None else names)]
    return math.sqrt(sum(apart for apart, _ in chosen) / sum(size for _, size in chosen))


def by_matrix(of):
    layers = 1 + max(int(n.split('.')[2]) for n in of if n.startswith('model.layers.'))
    groups = {str(i): range(i, i + 1) for i in range(4)} | {f'4 to {layers - 1}': range(4, layers)}
    return {title: [error(of, [n for n in of if n.startswith(tuple(f'model.layers.{i}.' for i in which)) and part in n]) for part in MATRICES.values()]
            for title, which in groups.items()}


def main(scratch):
    if arguments.shake is not None:
        arguments.model = shaken(arguments.model, scratch, arguments.shake)
    texts = arguments.texts.read_text('utf-8').rstrip('\n').split('\n%%\n')
    tokenizer = Tokenizer.from_file(str(arguments.model / 'tokenizer.json'))
    load = dict(attn_implementation='eager')
    wide, narrow = (AutoModelForCausalLM.from_pretrained(arguments.model, dtype=t, **load).eval() for t in (torch.float64, torch.float32))
    ways = {'galley': lambda ids: galley(ids, scratch), 'eager': lambda ids: autocast(narrow, ids, 'eager'), 'sdpa': lambda ids: autocast(narrow, ids, 'sdpa')}
    errors, large = {way: [] for way in ways}, []
    print('| text | begins | tokens | norm | galley | eager | sdpa | noise |\n|---|---|---|---|---|---|---|---|', flush=True)
    for i, text in enumerate(texts):
        if arguments.only and i + 1 not in arguments.only:
            continue
        ids = torch.tensor([tokenizer.encode(text).ids])
        exact = {name: g.float() for name, g in gradients(wide, ids).items()}
        tables = {}
        for way, compute in ways.items():
            of = parts(compute(ids), exact)
            errors[way].append(error(of))
            tables[way] = by_matrix(of)
        noise = sorted(error(parts(disturbed(narrow, ids, seed), exact)) for seed in range(2))
        size = math.sqrt(sum(size for _, size in of.values()))
        begins = ' '.join(text.split())[:24].replace('|', ' ')
        print(f'| {i + 1} | `{begins}` | {ids.shape[1]} | {size:.1f} | ' + ' | '.join(f'{e[-1]:.3f}' for e in errors.values()) +
              f' | {noise[0]:.3f} to {noise[-1]:.3f} |', flush=True)
        if max(e[-1] for e in errors.values()) >= LARGE:
            large.append((i, tables))
    print('\n| | galley | eager | sdpa |\n|---|---|---|---|')
    for title, of in (('median', statistics.median), ('largest', max)):
        print(f'| {title} | ' + ' | '.join(f'{of(e):.3f}' for e in errors.values()) + ' |')
    less = {way: sum(a < b for a, b in zip(errors['galley'], errors[way])) for way in ('eager', 'sdpa')}
    print(f'\nGalley is nearer than eager attention on {less["eager"]} of {len(errors["galley"])} texts, and than sdpa on {less["sdpa"]}.')
    for i, tables in large:
        print(f'\nText {i + 1}:\n\n| layers | way | {" | ".join(MATRICES)} |\n|---|---|{"---|" * len(MATRICES)}')
        for layers in tables['galley']:
            for way in tables:
                print(f'| {layers} | {way} | ' + ' | '.join(f'{e:.2f}' for e in tables[way][layers]) + ' |')


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
here = pathlib.Path(__file__).parent
parser.add_argument('--galley', default=str(here.parents[1] / 'build' / 'release' / 'galley'), help='the program (build/release/galley)')
parser.add_argument('--scratch', help='a folder with room for the gradients in F32')
parser.add_argument('--texts', type=pathlib.Path, default=here / 'short_texts.txt', help='texts with a line %%%% between them (short_texts.txt)')
parser.add_argument('--except', dest='except_', action='append', default=[], metavar='PATTERN', help='nodes that Galley computes in F32')
parser.add_argument('--only', type=int, nargs='+', metavar='N', help='these texts, counted from 1')
parser.add_argument('--shake', type=int, metavar='SEED', help='with the weights of the first norm off by 1e-4: nearly the same gradients, other roundings')
parser.add_argument('--threads', type=int, default=1)
parser.add_argument('model', type=pathlib.Path)
arguments = parser.parse_args()
arguments.galley, arguments.model = str(pathlib.Path(arguments.galley).resolve()), arguments.model.resolve()
torch.set_num_threads(arguments.threads)
with tempfile.TemporaryDirectory(dir=arguments.scratch) as folder:
    main(pathlib.Path(folder))
