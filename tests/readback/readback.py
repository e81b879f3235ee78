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
# What a run may use that is not used where only the numbers of a folder are evaluated.
NUMBERS_ONLY = 'lora', 'vera', 'ia3', 'amp', 'quantize-nf4', 'quantize-int8', 'quantize-llm-int8'


def galley(*words, cwd=None):
    done = subprocess.run([arguments.galley, *map(str, words)], capture_output=True, text=True, cwd=cwd)
    if done.returncode:
        sys.exit(f'galley {" ".join(map(str, words))}: exit code {done.returncode}\n{done.stderr}')
    return done.stdout


def settings(recipe):
    return [word for name, value in recipe['sets'].items() for word in ('--set', f'{name}={value}')]


def parts(row):
    """Where the documents of a row begin and end, padding as one of them."""
    first, begin = row['first_key'], 0
    for s in range(1, len(first) + 1):
        if s == len(first) or first[s] != begin:
            yield begin, s
            begin = s


def validation_documents(recipe):
    """The documents of the validation data as the run packs them: token ids and labels, which stand at the position that predicts them."""
    shown = galley('data', recipe['path'], '--validation', '--rows', 1_000_000, '--json', *settings(recipe), cwd=recipe['working_directory'])
    documents = []
    for row in map(json.loads, shown.splitlines()[1:]):
        for begin, end in parts(row):
            if any(x != NO_LABEL for x in row['labels'][begin:end]):
                documents.append((row['input_ids'][begin:end], row['labels'][begin:end]))
    return documents


@torch.no_grad()
def loss_of(model, documents, autocast=False):
    model.eval()
    total, count = 0.0, 0
    for ids, labels in documents:
        with torch.autocast('cpu', torch.bfloat16, enabled=autocast):
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


def changed(run, recipe, scratch, uses, model=None):
    """The run's recipe with other options of strategies, or without them, and with another model: the words that a command takes. `uses`: in Lua, by name."""
    path = scratch / 'changed.lua'
    path.write_text('local plain_use, plain_model = use, model\n'
                    f'local own = {{ {", ".join(f"[{json.dumps(k)}] = {v}" for k, v in uses.items())} }}\n'
                    'local function use(name) return function(x) if own[name] == false then return false end return plain_use(name)(own[name] or x) end end\n'
                    + (f'local function model() return plain_model {{ path = {json.dumps(str(model))} }} end\n' if model else '')
                    + (run / 'recipe.lua').read_text())
    return [path, *settings(recipe)]


def loss_by_galley(run, recipe, scratch, uses, model=None):
    words = changed(run, recipe, scratch, uses, model)
    return json.loads(galley('eval', *words, '--json', cwd=recipe['working_directory']))['validation_loss']


@torch.no_grad()
def logits_apart(run, recipe, scratch):
    """The largest difference between the logits that `galley gradients` writes for the adapter's folder, which names a dropout, and PEFT's in float64; that of PEFT in
    F32; and the largest logit."""
    from safetensors.torch import load_file
    words = changed(run, recipe, scratch, {'lora': f'{{ path = {json.dumps(str(run / "adapter"))} }}', 'accumulate': 'false'})
    galley('gradients', *words, '--logits', '--out', scratch / 'logits.safetensors', cwd=recipe['working_directory'])
    logits = load_file(scratch / 'logits.safetensors')['logits']
    rows = [json.loads(x) for x in galley('data', *words, '--rows', 1_000_000, '--json', cwd=recipe['working_directory']).splitlines()[1:]]
    logits = logits.reshape(-1, len(rows[0]['input_ids']), logits.shape[-1])
    of_galley = of_peft = largest = 0.0
    exact, narrow = (load_adapter(run / 'adapter', dtype).eval() for dtype in (torch.float64, torch.float32))
    for row, of in zip(rows, logits):
        for begin, end in parts(row):
            if all(x == NO_LABEL for x in row['labels'][begin:end]):
                continue  # padding
            ids = torch.tensor([row['input_ids'][begin:end]])
            wanted, theirs = exact(input_ids=ids).logits[0], narrow(input_ids=ids).logits[0]
            of_galley = max(of_galley, (of[begin:end] - wanted).abs().max().item())
            of_peft = max(of_peft, (theirs - wanted).abs().max().item())
            largest = max(largest, wanted.abs().max().item())
    return of_galley, of_peft, largest


def forms(run, scratch, narrow, quantized):
    """What the run is exported as: a name, how it is loaded, how far its loss may be from that of the run where this computes in F32, and the folder, where it holds a
    model. There is no bound for what rounding takes back of what a short run has changed: of weights that all were trained, and of a run that computed in F32."""
    f32, bf16 = torch.float32, torch.bfloat16
    galley('export', run, '--out', scratch / 'own')
    adapter = (scratch / 'own' / 'adapter_config.json').exists()
    if adapter:
        # Of a base that the run has in fewer bits, PEFT reads all.
        yield 'adapter in PEFT, computed in F32', lambda: load_adapter(scratch / 'own', f32), None if quantized else 2e-5, None
        yield 'adapter in PEFT, computed in BF16', lambda: load_adapter(scratch / 'own', bf16), 3e-2 if narrow and not quantized else None, None
    what, flags = ('merged', ['--merge']) if adapter else ('model', [])
    for dtype, bound in (('f32', 2e-5 if adapter or not narrow else None), ('bf16', 3e-2 if adapter and narrow else None), ('f16', 2e-3 if adapter and narrow else None)):
        folder = scratch / dtype
        galley('export', run, *flags, '--dtype', dtype, '--out', folder)
        if dtype != 'f32':
            check_rounded(scratch / 'f32', folder, {'bf16': bf16, 'f16': torch.float16}[dtype])
        yield f'{what} in {dtype}, computed in F32', lambda: load_model(folder, f32), bound, folder
    yield f'{what} in bf16, computed in BF16', lambda: load_model(scratch / 'bf16', bf16), 3e-2 if adapter and narrow else None, None


def read_back(run):
    """Whether all forms of the run agree with it."""
    record = tomllib.loads((run / 'run.toml').read_text())
    strategies = {x['name']: json.loads(x['options']) for x in record['strategies']}
    narrow = next((o['compute'] for o in strategies.values() if o.get('compute') in ('bf16', 'fp16')), None)
    quantized = any(name.startswith('quantize-') for name in strategies)
    least = {'bf16': 3e-2, 'fp16': 3e-3, None: 0}[narrow]  # of the run's own 16 bit
    wanted = json.loads(galley('eval', run, '--json'))['validation_loss']
    metrics = [json.loads(x) for x in (run / 'metrics.jsonl').read_text().splitlines()]
    last = [x for x in metrics if 'validation_loss' in x][-1:]
    documents = validation_documents(record['recipe'])
    tokens = sum(x != NO_LABEL for _, labels in documents for x in labels)
    print(f'{run}: {len(documents)} documents, {tokens} tokens that count; computed in {narrow or "f32"}')
    print(f'  {"what":36} {"loss":>11} {"difference":>11} {"bound":>8}')  # from the run; of a folder, from what transformers says of it

    def line(what, loss, bound):
        holds = bound is None or abs(loss - wanted) <= bound
        print(f'  {what:36} {loss:11.6f} {loss - wanted:+11.2e} {"–" if bound is None else f"{bound:.0e}":>8}{"" if holds else "   ABOVE ITS BOUND"}', flush=True)
        return holds
    print(f'  {"galley eval":36} {wanted:11.6f}')
    good = all([line(f'validation of the run, step {x["step"]}', x['validation_loss'], 0) for x in last if x['step'] == metrics[-1]['step']])
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as scratch:
        if (run / 'adapter').exists():
            recipe = record['recipe']
            without = {'lora': f'{{ path = {json.dumps(str(run / "adapter"))}, dropout = 0 }}'}
            good = line("the adapter's folder, dropout 0", loss_by_galley(run, recipe, pathlib.Path(scratch), without), 0) and good
            if not narrow and not quantized:
                apart, theirs, largest = logits_apart(run, recipe, pathlib.Path(scratch))
                bound = max(1e-4, 1e-5 * largest)
                print(f'  logits up to {largest:.1f}, the adapter opened by path: {apart:.2e} from PEFT in float64 at most (PEFT in F32: {theirs:.2e}), '
                      f'bound {bound:.1e}{"" if apart <= bound else "   ABOVE ITS BOUND"}', flush=True)
                good = apart <= bound and good
        if narrow == 'bf16':  # weights in F32 that are rounded where they are read, as the run does
            if (run / 'adapter').exists():
                model = load_adapter(run / 'adapter', torch.float32)
            else:
                galley('export', run, '--dtype', 'f32', '--out', pathlib.Path(scratch) / 'cast')
                model = load_model(pathlib.Path(scratch) / 'cast', torch.float32)
            good = line('in F32, under autocast to BF16', loss_of(model, documents, autocast=True), 3e-2) and good
        for what, load, bound, folder in forms(run, pathlib.Path(scratch), narrow, quantized):
            loss = loss_of(load(), documents)
            good = line(what, loss, bound and max(bound, least)) and good
            if folder:  # what galley says of the same folder, in F32
                own = loss_by_galley(run, record['recipe'], pathlib.Path(scratch), dict.fromkeys(NUMBERS_ONLY, 'false'), folder)
                print(f'  {"  galley eval of this folder, in F32":36} {own:11.6f} {own - loss:+11.2e} {2e-5:8.0e}{"" if abs(own - loss) <= 2e-5 else "   ABOVE ITS BOUND"}')
                good = abs(own - loss) <= 2e-5 and good
    return good


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument('--galley', default=str(pathlib.Path(__file__).parents[2] / 'build' / 'release' / 'galley'), help='the program (build/release/galley)')
parser.add_argument('--scratch', help='a folder with room for a few copies of the model')
parser.add_argument('runs', nargs='+', type=pathlib.Path)
arguments = parser.parse_args()
arguments.galley = str(pathlib.Path(arguments.galley).resolve())
sys.exit(0 if all([read_back(run.resolve()) for run in arguments.runs]) else 1)
