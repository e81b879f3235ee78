#!/usr/bin/env python3
"""What other programs read of a run: exports it in every form, loads each in transformers or PEFT, computes the validation loss on the same tokens, and compares it
with `galley eval RUN`. Prints a table; exit code 1 if a difference is above its bound.

Usage: readback.py [--galley PROGRAM] [--scratch DIR] RUN …

By hand, in a scratch environment: python3 -m venv DIR && DIR/bin/pip install torch transformers peft safetensors. A run in 16 bit is compared with computation in F32,
so that its difference is 16 bit's; a run in F32 has to agree to rounding."""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import tomllib

import torch
from transformers import AutoModelForCausalLM

NO_LABEL = -100


def galley(*words, cwd=None):
    done = subprocess.run([arguments.galley, *map(str, words)], capture_output=True, text=True, cwd=cwd)
    if done.returncode:
        sys.exit(f'galley {" ".join(map(str, words))}: exit code {done.returncode}\n{done.stderr}')
    return done.stdout


def validation_documents(run):
    """The documents of the validation data as the run packs them: token ids and labels, which stand at the position that predicts them."""
    recipe = tomllib.loads((run / 'run.toml').read_text())['recipe']
    sets = [word for name, value in recipe['sets'].items() for word in ('--set', f'{name}={value}')]
    shown = galley('data', recipe['path'], '--validation', '--rows', 1_000_000, '--json', *sets, cwd=recipe['working_directory'])
    documents = []
    for row in map(json.loads, shown.splitlines()[1:]):
        ids, labels, first = row['input_ids'], row['labels'], row['first_key']
        begin = 0
        for s in range(1, len(ids) + 1):
            if s == len(ids) or first[s] != begin:
                if any(x != NO_LABEL for x in labels[begin:s]):
                    documents.append((ids[begin:s], labels[begin:s]))
                begin = s
    return documents


@torch.no_grad()
def loss_of(model, documents):
    model.eval()
    total, count = 0.0, 0
    for ids, labels in documents:
        logits = model(input_ids=torch.tensor([ids])).logits[0].double()
        labels = torch.tensor(labels)
        total += torch.nn.functional.cross_entropy(logits, labels, ignore_index=NO_LABEL, reduction='sum').item()
        count += int((labels != NO_LABEL).sum())
    return total / count


def load_model(folder, dtype):
    model, report = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, output_loading_info=True)
    wrong = [f'{kind}: {sorted(names)[:3]}' for kind, names in report.items() if names]
    if wrong:
        sys.exit(f'{folder}: transformers does not read every tensor: {wrong}')
    return model


def load_adapter(folder, dtype):
    from peft import PeftModel
    base = json.loads((folder / 'adapter_config.json').read_text())['base_model_name_or_path']
    return PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype=dtype), str(folder), autocast_adapter_dtype=False)


def check_rounded(exact, folder, dtype):
    """Every number of the 16-bit export has to be that of the F32 export, rounded by PyTorch."""
    from safetensors.torch import load_file
    wide, narrow = (load_file(x / 'model.safetensors') for x in (exact, folder))
    wrong = [name for name in wide if narrow[name].dtype != dtype or not torch.equal(wide[name].to(dtype), narrow[name])]
    if wrong or wide.keys() != narrow.keys():
        sys.exit(f'{folder}: not the F32 export rounded to {dtype}: {wrong[:3]}')


def forms(run, scratch):
    """What the run is exported as: a name, how it is loaded, and how far its loss may be from that of the run where this computes in F32."""
    f32, bf16 = torch.float32, torch.bfloat16

    def export(dtype, *flags):
        galley('export', run, *flags, '--dtype', dtype, '--out', scratch / dtype)
        if dtype != 'f32':
            check_rounded(scratch / 'f32', scratch / dtype, {'bf16': bf16, 'f16': torch.float16}[dtype])
    galley('export', run, '--out', scratch / 'own')
    if not (scratch / 'own' / 'adapter_config.json').exists():
        for dtype, bound in (('f32', 2e-5), ('bf16', 2e-2), ('f16', 2e-3)):
            export(dtype)
            yield f'model in {dtype}, computed in F32', lambda d=dtype: load_model(scratch / d, f32), bound
        yield 'model in bf16, computed in BF16', lambda: load_model(scratch / 'bf16', bf16), 3e-2
        return
    yield 'adapter in PEFT, computed in F32', lambda: load_adapter(scratch / 'own', f32), 2e-5
    yield 'adapter in PEFT, computed in BF16', lambda: load_adapter(scratch / 'own', bf16), 3e-2
    for dtype, bound in (('f32', 2e-5), ('bf16', 2e-2), ('f16', 2e-3)):
        export(dtype, '--merge')
        yield f'merged in {dtype}, computed in F32', lambda d=dtype: load_model(scratch / d, f32), bound
    yield 'merged in bf16, computed in BF16', lambda: load_model(scratch / 'bf16', bf16), 3e-2


def read_back(run):
    """Whether all forms of the run agree with it."""
    strategies = {x['name']: json.loads(x['options']) for x in tomllib.loads((run / 'run.toml').read_text())['strategies']}
    narrow = next((o['compute'] for o in strategies.values() if o.get('compute') in ('bf16', 'fp16')), None)
    least = {'bf16': 3e-2, 'fp16': 3e-3, None: 0}[narrow]  # of the run's own 16 bit
    wanted = json.loads(galley('eval', run, '--json'))['validation_loss']
    metrics = [json.loads(x) for x in (run / 'metrics.jsonl').read_text().splitlines()]
    last = [x for x in metrics if 'validation_loss' in x][-1:]
    documents = validation_documents(run)
    tokens = sum(x != NO_LABEL for _, labels in documents for x in labels)
    print(f'{run}: {len(documents)} documents, {tokens} tokens that count; computed in {narrow or "f32"}')
    print(f'  {"what":36} {"loss":>11} {"difference":>11} {"bound":>8}')

    def line(what, loss, bound):
        far = abs(loss - wanted)
        print(f'  {what:36} {loss:11.6f} {loss - wanted:+11.2e} {bound:8.0e}{"" if far <= bound else "   ABOVE ITS BOUND"}', flush=True)
        return far <= bound
    print(f'  {"galley eval":36} {wanted:11.6f}')
    good = all([line(f'validation of the run, step {x["step"]}', x['validation_loss'], 0) for x in last if x['step'] == metrics[-1]['step']])
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as scratch:
        for what, load, bound in forms(run, pathlib.Path(scratch)):
            good = line(what, loss_of(load(), documents), max(bound, least)) and good
    return good


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument('--galley', default=str(pathlib.Path(__file__).parents[2] / 'build' / 'release' / 'galley'), help='the program (build/release/galley)')
parser.add_argument('--scratch', help='a folder with room for a few copies of the model')
parser.add_argument('runs', nargs='+', type=pathlib.Path)
arguments = parser.parse_args()
arguments.galley = str(pathlib.Path(arguments.galley).resolve())
sys.exit(0 if all([read_back(run.resolve()) for run in arguments.runs]) else 1)
