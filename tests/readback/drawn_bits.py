"""Folders in 4 and 8 bit, made here or by transformers: for drawn.py."""
import json
import math

import bitsandbytes
import torch
import transformers

from drawn import NotComparable, Wrong, in_files, new_model, read, use
from drawn_models import loss_of, twin


def numbers_of(folder, plain):
    """`plain` with the numbers that a quantized folder holds, in float64. From the file: bitsandbytes turns its codes around for the processor, and its kernel there that makes
    numbers of them is wrong where rows are no multiples of 64."""
    out, stored = twin(plain), read(folder / 'model.safetensors')
    parameters = {in_files(plain, n): p for n, p in out.named_parameters(remove_duplicate=False)}
    with torch.no_grad():
        for name, codes in stored.items():
            module = name.removesuffix('.weight')
            state = next((bytes(v.tolist()) for k, v in stored.items() if k.startswith(name + '.quant_state')), None)
            if not name.endswith('.weight'):
                continue
            if module + '.SCB' in stored:
                weight = codes.double() * stored[module + '.SCB'].double()[:, None] / 127
            elif state:
                state = json.loads(state)
                scale, book = stored[name + '.absmax'], stored[name + '.quant_map'].double()
                if 'nested_offset' in state:
                    nested = stored[name + '.nested_absmax'].double().repeat_interleave(state['nested_blocksize'])[:len(scale)]
                    scale = stored[name + '.nested_quant_map'].double()[scale.long()] * nested + state['nested_offset']
                codes = codes.flatten().long()
                count = math.prod(state['shape'])
                weight = book[torch.stack((codes >> 4, codes & 15), 1).flatten()[:count]] * scale.double().repeat_interleave(state['blocksize'])[:count]
                weight = weight.reshape(state['shape'])
            else:
                continue
            to = parameters[name]
            to.copy_(weight.t() if is_turned(plain, module) else weight)
    return out


def is_turned(model, name):
    return name != 'embed_out' and type(model.get_submodule(name)).__name__ == 'Conv1D'


class Rounded(torch.nn.Module):
    """What LLM.int8() computes of a layer, its sums exact."""

    def __init__(self, layer, threshold):
        super().__init__()
        self.weight, self.bias, self.threshold = layer.weight, layer.bias, threshold

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        codes, scale, columns = bitsandbytes.functional.int8_vectorwise_quant(rows.half(), threshold=float(self.threshold))
        multiplied = codes.to(x.dtype) * (scale.to(x.dtype)[:, None] / 127)
        if columns is not None and len(columns):
            multiplied[:, columns] = rows[:, columns]
        return torch.nn.functional.linear(multiplied.nan_to_num(), self.weight, self.bias).reshape(*x.shape[:-1], -1)


def rounded(model, folder, threshold, dtype):
    """`model`, with the numbers of a folder, as LLM.int8() computes it."""
    model = twin(model, dtype)
    stored = read(folder / 'model.safetensors')
    for name in [x.removesuffix('.SCB') for x in stored if x.endswith('.SCB')]:
        parent, _, last = name.rpartition('.')
        setattr(model.get_submodule(parent), last, Rounded(model.get_submodule(name), threshold))
    return model


def opened(folder, model):
    quantized, report = type(model).from_pretrained(folder, dtype=torch.float32, attn_implementation='eager', output_loading_info=True)
    wrong = [f'{kind}: {sorted(map(str, names))[:3]}' for kind, names in report.items() if names]
    return quantized.eval(), wrong


def loss_here(work, base, model, how, options):
    """That of the model in few bits; what is trained beside it is one vector."""
    vector = next(in_files(model, n) for n, p in reversed(list(model.named_parameters())) if p.dim() == 1)
    recipe = work.recipe('here', base, use(how, **options), use('freeze', **{'except': [vector]}), use('adamw', lr=1e-2))
    return work.gradients(recipe)['loss'].item()


def saved(r, work, family):
    model, batch, task = new_model(r, work, family)
    how = r.choice(('quantize-nf4', 'quantize-nf4', 'quantize-int8', 'quantize-llm-int8'))
    options = dict(type=r.choice(('nf4', 'fp4')), double=r.random() < .5, block=r.choice((64, 64, 128))) if how == 'quantize-nf4' else {}
    if how == 'quantize-llm-int8':
        options = dict(threshold=r.choice((0, 1.5, 3, 6)))
    recipe = work.recipe('export', work / 'base', use(how, **options))
    work.run('export', recipe, '--out', work / 'saved')
    if 'quantization_config' not in json.loads((work / 'saved' / 'config.json').read_text()):
        return f'{task}, {how}: saved as numbers'
    right = loss_here(work, work / 'base', model, how, options)
    again = loss_here(work, work / 'saved', model, how, {})
    if not abs(again - right) <= 1e-6 * max(abs(right), 1e-3):
        raise Wrong(f'{how} {options}: saved {again:.7f}, from numbers {right:.7f}')
    numbers = numbers_of(work / 'saved', model)
    try:
        quantized, wrong = opened(work / 'saved', model)
        with torch.no_grad():
            # In evaluation, layers in 4 bit turn their codes around for kernels that not all shapes have.
            theirs = loss_of(quantized.train(how == 'quantize-nf4'), batch, task).item()
    except Exception as e:
        raise Wrong(f'{how} {options}: transformers does not run the folder: {type(e).__name__}: {str(e)[:150]}') from e
    if wrong:
        raise Wrong(f'{how} {options}: transformers opens the folder with {wrong}')
    if not math.isfinite(theirs):
        raise Wrong(f'{how} {options}: transformers computes {theirs}')
    with torch.no_grad():
        exact = loss_of(numbers, batch, task).item()
        if how != 'quantize-llm-int8':
            if not abs(exact - right) <= 1e-5 * max(abs(right), 1e-3):
                raise Wrong(f'{how} {options}: the numbers of the folder give {exact:.7f}, here {right:.7f}')
            return f'{task}, {how}'
        double, single = (loss_of(rounded(numbers, work / 'saved', options['threshold'], dtype), batch, task).item() for dtype in (torch.float64, torch.float32))
    # A code beside a tie is another one where what it is made of is rounded otherwise: bitsandbytes multiplies by 6.200124e-05, which is 1 / 127² but for 1.8e-5.
    if not abs(right - double) <= max(2e-5 * abs(double), 8 * abs(single - double), abs(theirs - double)):
        raise Wrong(f'{how} {options}: {right:.7f} here, LLM.int8() with exact sums {double:.7f}, in float32 {single:.7f}, bitsandbytes {theirs:.7f}, without rounding {exact:.7f}')
    return f'{task}, {how}'


def theirs(r, work, family):
    model, batch, task = new_model(r, work, family)
    four = r.random() < .6
    try:
        config = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=r.choice(('nf4', 'fp4')), bnb_4bit_use_double_quant=r.random() < .5,
                                                 bnb_4bit_compute_dtype=torch.float32) if four else transformers.BitsAndBytesConfig(load_in_8bit=True)
        made = type(model).from_pretrained(work / 'base', quantization_config=config, dtype=torch.float32, attn_implementation='eager')
        made.train().save_pretrained(work / 'theirs')
        _, wrong = opened(work / 'theirs', model)
        if wrong:
            raise ValueError(f'opened with {wrong}')
        with torch.no_grad():
            right = loss_of(numbers_of(work / 'theirs', model), batch, task).item()
    except Exception as e:
        raise NotComparable(f'transformers: {type(e).__name__}: {str(e)[:120]}') from e
    ours = loss_here(work, work / 'theirs', model, 'quantize-nf4' if four else 'quantize-int8', {})
    if not abs(ours - right) <= 1e-5 * max(abs(right), 1e-3):
        raise Wrong(f'bitsandbytes in {4 if four else 8} bit: {ours:.7f}, the numbers of the folder give {right:.7f}')
    return f'{task}, {4 if four else 8} bit'
