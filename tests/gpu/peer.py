#!/usr/bin/env python3
"""The same work in PyTorch, for tests/gpu/bench.py: a transformers model from its configuration, random tokens, BF16 autocast over F32 weights with fused
AdamW and clipping; with `lora`, PEFT over a model in BF16, whose linear layers `weights` stores by bitsandbytes: NF4 with double quantization, or LLM.int8().
With `adamw8bit`, its optimizer. Prints a line of JSON: tokens/s (median step), peak bytes, the first loss.

  peer.py CONFIG.json BATCH LENGTH STEPS [compile] [lora=RANK] [weights=nf4|int8] [adamw8bit]"""
import json
import logging
import statistics
import sys
import time

import torch
import transformers

config, batch, length, steps = json.load(open(sys.argv[1])), *map(int, sys.argv[2:5])
words = sys.argv[5:]
rank = next((int(x[5:]) for x in words if x.startswith('lora=')), 0)
stored = next((x[8:] for x in words if x.startswith('weights=')), '')
logging.disable(logging.WARNING)


def store(model):
    """Puts the linear layers but the head into bitsandbytes' modules, as transformers does where it loads a model so."""
    import bitsandbytes
    for name, layer in list(model.named_modules()):
        if not isinstance(layer, torch.nn.Linear) or name == 'lm_head':
            continue
        shape, numbers = (layer.in_features, layer.out_features, layer.bias is not None), layer.weight.data.cpu()
        if stored == 'nf4':
            made = bitsandbytes.nn.Linear4bit(*shape, compute_dtype=torch.bfloat16, compress_statistics=True, quant_type='nf4', device='meta')
            made.weight = bitsandbytes.nn.Params4bit(numbers, requires_grad=False, compress_statistics=True, quant_type='nf4', module=made)
        else:
            made = bitsandbytes.nn.Linear8bitLt(*shape, has_fp16_weights=False, threshold=6.0, device='meta')
            made.weight = bitsandbytes.nn.Int8Params(numbers, requires_grad=False, has_fp16_weights=False)
        made.bias = layer.bias
        model.set_submodule(name, made.to('cuda'))
    model.is_loaded_in_4bit, model.is_loaded_in_8bit = stored == 'nf4', stored == 'int8'  # PEFT asks for these
    model.requires_grad_(False)


torch.manual_seed(0)
torch.backends.cuda.matmul.allow_tf32 = True
settings = transformers.AutoConfig.for_model(**config)
settings.use_cache = False
with torch.device('cuda'):
    model = transformers.AutoModelForCausalLM.from_config(settings, attn_implementation='sdpa', dtype=torch.bfloat16 if rank else torch.float32)
if stored:
    store(model)
    torch.cuda.empty_cache()
if rank:
    import peft
    model = peft.get_peft_model(model, peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules='all-linear', task_type='CAUSAL_LM'))
model.train()
trained = [p for p in model.parameters() if p.requires_grad]
if 'adamw8bit' in words:
    import bitsandbytes
    optimizer = bitsandbytes.optim.AdamW8bit(trained, lr=1e-4, weight_decay=0.1)
else:
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.1, fused=True)
forward = torch.compile(model) if 'compile' in words else model
seconds, losses = [], []
torch.cuda.reset_peak_memory_stats()
for step in range(steps):
    ids = torch.randint(0, settings.vocab_size, (batch, length), device='cuda')
    torch.cuda.synchronize()
    begin = time.perf_counter()
    with torch.autocast('cuda', torch.bfloat16):
        loss = forward(input_ids=ids, labels=ids).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(trained, 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    seconds.append(time.perf_counter() - begin)
    losses.append(loss.item())
print(json.dumps({'tokens': batch * length / statistics.median(seconds[len(seconds) // 3:]), 'bytes': torch.cuda.max_memory_allocated(), 'loss': losses[0]}))
