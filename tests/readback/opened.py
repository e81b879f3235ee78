#!/usr/bin/env python3
"""What transformers and PEFT compute of every folder that is saved, of every family: full runs, exports, classifiers, adapters and merges. Each folder has to open
with nothing missing and nothing left over, and its logits, in float64, have to be those that this project computes of it.

Usage: opened.py [CASE …]     GALLEY, GALLEY_SOURCE and GALLEY_BINARY as tests have them, in a scratch folder; in an environment with torch, transformers, peft and
                              safetensors. `make test-all` runs it by tests/python/opened_all.py, where GALLEY_READBACK names such a Python.
"""
import json
import logging
import os
import pathlib
import sys
import warnings

warnings.filterwarnings('ignore')
logging.disable(logging.WARNING)
os.environ.setdefault('TQDM_DISABLE', '1')
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'python'))
from galley_test import batch_of, cases, check, finish, fixtures, fresh_folder, from_folder, recipe, require, run, train, use
del sys.path[0]  # files there are called like packages that torch looks for (cuda.py, tokenizers.py)

import peft
import torch
from drawn_models import architecture, logits_of, open_folder, task_of_model, twin
from safetensors.torch import load_file, save_file

torch.set_num_threads(1)
torch.manual_seed(11)  # of heads that a class adds, whose numbers the file replaces
fresh_folder()
BOUND = 1e-5  # of logits, by norms: Galley computes in F32, the other side in float64
ADAMW = use('adamw', lr=1e-2)
models = fixtures / 'models'
configs = {x.parent.name: json.loads(x.read_text()) for x in sorted(models.glob('*/config.json'))}

# ---- Logits of both sides --------------------------------------------------------------------------------------------------------------


def batch_in(file):
    return {k: v if v.is_floating_point() else v.long() for k, v in load_file(file).items()}


def logits_here(name, model, batch_file, *uses):
    out = f'{name}.safetensors'
    run('gradients', recipe(f'{name}-read.lua', model, batch_of(batch_file), *uses, ADAMW, steps=1), '--out', out, '--logits')
    return load_file(out)['logits'].double()


def seen(logits, batch):
    """Those of tokens: what a model computes for padding counts nowhere."""
    mask = batch.get('attention_mask')
    return logits if mask is None or mask.shape != logits.shape[:-1] else logits[mask.bool()]


def off(ours, theirs, batch):
    ours, theirs = seen(ours, batch), seen(theirs, batch)
    if ours.shape != theirs.shape:
        return float('inf')
    return ((ours - theirs).norm() / theirs.norm()).item()


def opened(what, folder):
    """The folder as transformers opens it, in F32."""
    model, wrong = open_folder(folder, architecture(pathlib.Path(folder)))
    check(not wrong, f'{what}: transformers opens the folder with {wrong}')
    if model.config.pad_token_id is None:
        model.config.pad_token_id = 0  # no batch here has it; without one, a decoder that classifies takes no two rows
    return model


@torch.no_grad()
def logits_there(model, batch):
    plain = model.get_base_model() if isinstance(model, peft.PeftModel) else model
    return logits_of(model, batch, task_of_model(plain))


def check_folder(what, folder, batch_file):
    """Returns what this project computes of it."""
    batch = batch_in(batch_file)
    theirs = logits_there(twin(opened(what, folder)), batch)
    ours = logits_here(what, from_folder(folder), batch_file)
    e = off(ours, theirs, batch)
    check(e <= BOUND, f'{what}: logits of transformers are off by {e:.1e}')
    return ours


# ---- Whole models ----------------------------------------------------------------------------------------------------------------------


@cases(configs)
def whole(name, _):
    """A run of all parameters, and what is exported of it."""
    base, batch_file = models / name, models / name / 'batch.safetensors'
    train(recipe(f'{name}.lua', from_folder(base), batch_of(batch_file), ADAMW, steps=2), name)
    trained = check_folder(f'{name}-saved', f'{name}/model', batch_file)
    batch = batch_in(batch_file)
    begun = load_file(base / 'expect.safetensors')['logits'].double()
    check(off(trained, begun, batch) > 1e-3, f'{name}: two steps have changed nothing')
    for dtype, least in (('f32', 0.0), ('bf16', 1e-4), ('f16', 1e-6)):
        run('export', name, '--dtype', dtype, '--out', f'{name}-{dtype}')
        exported = check_folder(f'{name}-in-{dtype}', f'{name}-{dtype}', batch_file)
        e = off(exported, trained, batch)
        check(least <= e <= 0.1, f'{name}: in {dtype} logits are {e:.1e} from those of the run')
        check(dtype != 'f32' or e == 0, f'{name}: exported in F32, logits are {e:.1e} from those of the run')


# ---- Heads that a task adds ------------------------------------------------------------------------------------------------------------

LABELS = 3
SEQ2SEQ, ENCODERS = ('t5', 'mt5'), ('bert', 'roberta', 'distilbert')


def languages_here():
    """{model type: a model that is nothing but a language model of this type, and its batch}."""
    gpt2 = fixtures / 'lora' / 'gpt2-conv1d'
    out = {'gpt2': (gpt2 / 'base', gpt2 / 'batch.safetensors')}
    for name, config in configs.items():
        odd = any(x in name for x in ('own-head', 'untied', 'old-names', 'bare', 'packed', 'left-padding', 'hub', 'stored', 'two-tokens'))
        if config['architectures'][0].endswith(('LMHeadModel', 'ForCausalLM', 'ForMaskedLM', 'ForConditionalGeneration')) and not odd:
            out.setdefault(config['model_type'], (models / name, models / name / 'batch.safetensors'))
    return out


languages = languages_here()
check(set(languages) == {x['model_type'] for x in configs.values()}, f'of some model type there is no language model here: {sorted(languages)}')


def rows_of(what, batch_file, task):
    """A batch with labels of another task."""
    batch = {k: v for k, v in load_file(batch_file).items() if k in ('input_ids', 'attention_mask', 'token_type_ids')}
    ids = batch['input_ids']
    shape = ids.shape[:1] if task == 'sequence-classification' else ids.shape
    batch['labels'] = torch.randint(0, LABELS, shape, generator=torch.Generator().manual_seed(3), dtype=torch.int32)
    if task == 'token-classification' and 'attention_mask' in batch:
        batch['labels'][batch['attention_mask'] == 0] = -100
    file = pathlib.Path(f'{what}.batch').resolve()
    save_file(batch, file)
    return file


classifiers = {f'{kind}-{task}': (kind, task) for kind in languages if kind not in SEQ2SEQ
               for task in (('sequence-classification', 'token-classification') if kind in ENCODERS else ('sequence-classification',))}


@cases(classifiers)
def classifier(what, case):
    kind, task = case
    base, batch_file = languages[kind]
    batch_file = rows_of(what, batch_file, task)
    train(recipe(f'{what}.lua', from_folder(base, task=task, labels=LABELS), batch_of(batch_file), ADAMW, steps=2), what)
    trained = check_folder(f'{what}-saved', f'{what}/model', batch_file)
    check(trained.shape[-1] == LABELS, f'{what}: logits have shape {tuple(trained.shape)}')
    run('export', what, '--out', f'{what}-exported')
    exported = check_folder(f'{what}-exported', f'{what}-exported', batch_file)
    check(torch.equal(exported, trained), f'{what}: exported, its logits are others')


# ---- Adapters --------------------------------------------------------------------------------------------------------------------------

ADAPTERS = {
    'lora': dict(strategy='lora', rank=2, alpha=6, targets='attention', bias='all'),
    'dora': dict(strategy='lora', rank=3, alpha=4, targets='all-linear', dora=True, rslora=True),
    'vera': dict(strategy='vera', rank=4, seed=5, targets='attention'),
    'ia3': dict(strategy='ia3', targets='attention'),
}


@cases([f'{kind}-{adapter}' for kind in languages for adapter in ADAPTERS])
def adapter(what):
    """As PEFT reads it on the base, and merged."""
    kind, how = what.rsplit('-', 1)
    base, batch_file = languages[kind]
    options = dict(ADAPTERS[how])
    strategy = options.pop('strategy')
    train(recipe(f'{what}.lua', from_folder(base), batch_of(batch_file), use(strategy, **options), ADAMW, steps=3), what)
    batch, saved = batch_in(batch_file), pathlib.Path(what, 'adapter')
    require((saved / 'adapter_config.json').exists(), f'{what}: there is no adapter')
    ours = logits_here(what, from_folder(base), batch_file, use(strategy, path=saved))
    plain = opened(f'{what}, its base', base)
    without = logits_there(twin(plain), batch)
    theirs = logits_there(peft.PeftModel.from_pretrained(plain, str(saved), autocast_adapter_dtype=False).double().eval(), batch)
    e = off(ours, theirs, batch)
    check(e <= BOUND, f'{what}: logits of PEFT are off by {e:.1e}')
    check(off(theirs, without, batch) > 1e-4, f'{what}: the adapter changes nothing')
    run('export', what, '--merge', '--out', f'{what}-merged')
    e = off(check_folder(f'{what}-merged', f'{what}-merged', batch_file), ours, batch)
    check(e <= BOUND, f'{what}: merged, its logits are off by {e:.1e}')


finish()
