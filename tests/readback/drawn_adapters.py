"""Adapters drawn at random, made by PEFT and continued here, or begun here and read by PEFT: for drawn.py."""
import copy
import json

import peft
import torch
from peft.utils import get_peft_model_state_dict
from safetensors.torch import save_file
from transformers.pytorch_utils import Conv1D

from drawn import NotComparable, Wrong, expect_gradients, expect_near, new_model, read, use
from drawn_models import gradients_of, in_dtype, loss_of, open_folder, twin

types = {'causal-lm': 'CAUSAL_LM', 'seq2seq-lm': 'SEQ_2_SEQ_LM', 'token-classification': 'TOKEN_CLS', 'masked-lm': None}


def type_of(task):
    return types.get(task, 'SEQ_CLS')


def layers_of(model):
    """The names of linear layers, and of the head among them."""
    names = [n for n, m in model.named_modules() if isinstance(m, (torch.nn.Linear, Conv1D))]
    head = model.get_output_embeddings()
    return names, next((n for n, m in model.named_modules() if m is head), None)


def words_of(r, names, head, heads=.15):
    """Last words of some names, which may mean several layers; the head now and then."""
    words = sorted({n.split('.')[-1] for n in names if n != head and not n.split('.')[-1].isdigit()})
    out = r.sample(words, r.randint(1, len(words)))
    if head and r.random() < heads:
        out.append(head)
    return out


def modules_to_save(r, model, task):
    """A norm, a table or a head, by its whole name."""
    if r.random() < .7:
        return None
    norms = [n for n, m in model.named_modules() if 'Norm' in type(m).__name__]
    tables = [n for n, m in model.named_modules() if isinstance(m, torch.nn.Embedding)]
    whole = [n for n, m in model.named_children() if n in ('cls', 'lm_head', 'classifier', 'score', 'vocab_projector')]
    names = [x for x in (*whole, *r.sample(norms, min(1, len(norms))), *r.sample(tables, min(1, len(tables)))) if x]
    return r.sample(names, 1 if r.random() < .8 else min(2, len(names)))


def drawn_config(r, model, task):
    names, head = layers_of(model)
    conv = any(isinstance(m, Conv1D) for m in model.modules())
    kind = r.choice(('lora', 'lora', 'lora', 'vera', 'ia3'))
    targets, common = words_of(r, names, head), dict(task_type=type_of(task), modules_to_save=modules_to_save(r, model, task))
    if conv:
        common['fan_in_fan_out'] = True
    if kind == 'ia3':
        inputs = r.sample(targets, r.randint(0, len(targets)))
        return peft.IA3Config(target_modules=targets, feedforward_modules=inputs, **common)
    if kind == 'vera':
        # A layer of another kind than linear is none of VeRA's; its biases are those of some layers or of all.
        return peft.VeraConfig(r=r.randint(2, 8), target_modules=targets, projection_prng_key=r.randrange(1000), save_projection=r.random() < .7, d_initial=.3,
                               bias=r.choice(('none', 'none', 'vera_only', 'all')), **common)
    shapes = [m.weight.shape for n, m in model.named_modules() if isinstance(m, (torch.nn.Linear, Conv1D)) and (n in targets or n.split('.')[-1] in targets)]
    most = min(min(x) for x in shapes)
    init = r.choice((True, True, True, 'gaussian', 'pissa', 'olora'))
    rank = most if init in ('pissa', 'olora') and r.random() < .4 else r.randint(1, min(most, 8))
    more = {}
    if r.random() < .3:
        more['rank_pattern'] = {r.choice(targets): r.randint(1, rank)}
    if r.random() < .3:
        more['alpha_pattern'] = {r.choice(targets): r.randint(1, 9)}
    return peft.LoraConfig(r=rank, lora_alpha=r.randint(1, 16), target_modules='all-linear' if r.random() < .15 else targets, init_lora_weights=init, use_rslora=r.random() < .3,
                           use_dora=r.random() < .25, bias=r.choice(('none', 'none', 'lora_only', 'all')), **more, **common)


def clean(name):
    return name.replace('.modules_to_save.default', '').replace('.default', '').replace('lora_magnitude_vector.weight', 'lora_magnitude_vector')


@torch.no_grad()
def take_principal(model, init):
    """Of PiSSA and OLoRA, which PEFT makes in float32 only: what is left of each weight without the part that its adapter begins with."""
    for module in model.modules():
        if init not in ('pissa', 'olora') or not isinstance(module, peft.tuners.lora.LoraLayer):
            continue
        weight = module.get_base_layer().weight
        w, rank = weight.t() if module.fan_in_fan_out else weight, module.r['default']
        if init == 'pissa':
            left, values, right = torch.linalg.svd(w, full_matrices=False)
            part = left[:, :rank] * values[:rank] @ right[:rank]
        else:
            q, r = torch.linalg.qr(w)
            part = module.scaling['default'] * q[:, :rank] @ r[:rank]
        weight -= part.t() if module.fan_in_fan_out else part


def of_peft(r, work, family):
    model, batch, task = new_model(r, work, family)
    try:
        config = drawn_config(r, model, task)
        torch.manual_seed(r.randrange(2**31))
        # A twin, since PEFT changes the model.
        single = peft.get_peft_model(twin(model, torch.float32), copy.deepcopy(config))
        with torch.no_grad():
            for n, p in single.named_parameters():
                if p.requires_grad:
                    p += torch.randn(p.shape) * (.1 if '.lora_' in n or 'vera_lambda' in n or 'ia3_l' in n else .02)
        plain = copy.deepcopy(config)
        if hasattr(plain, 'init_lora_weights'):
            plain.init_lora_weights = True
        with in_dtype(torch.float64):
            double = peft.get_peft_model(twin(model), plain)
            double.load_state_dict({k: v for k, v in single.state_dict().items() if '.base_layer.weight' not in k}, strict=False)
            double = double.double()
        take_principal(double, getattr(config, 'init_lora_weights', True))
        right, gradients = gradients_of(double.train(False), batch, task)
        narrow, narrow_gradients = gradients_of(single.train(False), batch, task)
    except Exception as e:
        raise NotComparable(f'PEFT: {type(e).__name__}: {str(e)[:120]}') from e
    text = f'{task}, {config.peft_type.value.lower()}'
    (work / 'adapter').mkdir()
    save_file({k: v.contiguous().clone() for k, v in get_peft_model_state_dict(single).items()}, work / 'adapter' / 'adapter_model.safetensors')
    config.base_model_name_or_path = None
    config.save_pretrained(work / 'adapter')
    kind = config.peft_type.value.lower()
    recipe = work.recipe('continued', work / 'base', use(kind, path=work / 'adapter'), use('adamw', lr=1e-2), steps=3)
    ours = work.gradients(recipe)
    expect_near('loss', ours['loss'].item(), right, narrow, 1e-6, 8)
    # Only what the adapter trains, and each once.
    frozen = {clean(n) for n, p in double.named_parameters() if not p.requires_grad}
    wanted = {n: g for n, g in gradients.items() if clean(n) not in frozen}
    mine = {('grad.' + clean(k.removeprefix('grad.')) if k.startswith('grad.') else k): v for k, v in ours.items()}
    mine = {k: v for k, v in mine.items() if k.removeprefix('grad.') in {clean(n) for n in wanted} or v.abs().max() > 0}
    expect_gradients(mine, wanted, narrow_gradients, clean)
    work.losses(recipe, 'run')
    read_back(work, model, batch, task, kind)
    return text


def read_back(work, model, batch, task, kind):
    """The adapter of the run as this project continues it, as PEFT reads it, and merged."""
    again = work.recipe('again', work / 'base', use(kind, path=work / 'run' / 'adapter'), use('adamw', lr=1e-2))
    right = work.gradients(again)['loss'].item()
    bound = 3e-5 * max(abs(right), 1e-3)
    fresh = twin(model, torch.float32)
    try:
        from_peft = peft.PeftModel.from_pretrained(fresh, str(work / 'run' / 'adapter'), autocast_adapter_dtype=False)
    except Exception as e:
        raise Wrong(f'PEFT does not read what was saved: {type(e).__name__}: {str(e)[:150]}') from e
    with torch.no_grad():
        loss = loss_of(from_peft.eval(), batch, task).item()
        if not abs(loss - right) <= bound:
            raise Wrong(f'saved: as PEFT reads it {loss:.7f}, here {right:.7f}')
        work.run('export', work / 'run', '--merge', '--out', work / 'merged')
        merged, wrong = open_folder(work / 'merged', model)
        if wrong:
            raise Wrong(f'merged: transformers opens the folder with {wrong}')
        loss = loss_of(merged, batch, task).item()
        if not abs(loss - right) <= bound:
            raise Wrong(f'merged: as transformers opens it {loss:.7f}, here {right:.7f}')


def drawn_use(r, model, task):
    """Of a recipe, and the strategy's name."""
    names, head = layers_of(model)
    kind = r.choice(('lora', 'lora', 'lora', 'vera', 'ia3'))
    targets, more = words_of(r, names, head), {}
    saved = modules_to_save(r, model, task)
    if saved:
        more['modules_to_save'] = saved
    if kind == 'ia3':
        inputs = r.sample(targets, r.randint(0, len(targets)))
        return kind, dict(targets=targets, **(dict(feedforward=inputs) if inputs else {}), **more)
    if kind == 'vera':
        return kind, dict(rank=r.randint(2, 8), targets=targets, seed=r.randrange(1000), save_projection=r.random() < .7, d_initial=.3, bias=r.choice(('none', 'vera_only', 'all')), **more)
    if r.random() < .3:
        targets = r.choice(('all-linear', 'attention'))
    shapes = [m.weight.shape for n, m in model.named_modules() if isinstance(m, (torch.nn.Linear, Conv1D)) and (not isinstance(targets, list) or n in targets or n.split('.')[-1] in targets)]
    most = min(min(x) for x in shapes)
    init = r.choice(('default', 'default', 'gaussian', 'orthogonal', 'pissa', 'pissa_niter_4', 'olora'))
    rank = most if init in ('pissa', 'olora') and r.random() < .4 else 2 * r.randint(1, 4) if init == 'orthogonal' else r.randint(1, min(most, 8))
    return kind, dict(rank=rank, alpha=r.randint(1, 16), targets=targets, init=init, rslora=r.random() < .3, dora=r.random() < .25, bias=r.choice(('none', 'none', 'lora_only', 'all')), **more)


def begun(r, work, family):
    model, batch, task = new_model(r, work, family)
    kind, options = drawn_use(r, model, task)
    recipe = work.recipe('begun', work / 'base', use(kind, **options), use('adamw', lr=1e-2), steps=3)
    work.losses(recipe, 'run')
    read_back(work, model, batch, task, kind)
    return f'{task}, {kind}'
