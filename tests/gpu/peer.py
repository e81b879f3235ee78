#!/usr/bin/env python3
"""The same work in PyTorch, for tests/gpu/bench.py: a transformers model from its configuration, random tokens, BF16 autocast over F32 weights with fused
AdamW and clipping; with `lora`, PEFT over a model in BF16. Prints a line of JSON: tokens/s (median step) and peak bytes.

  peer.py CONFIG.json BATCH LENGTH STEPS [compile] [lora=RANK]"""
import json
import statistics
import sys
import time

import torch
import transformers

config, batch, length, steps = json.load(open(sys.argv[1])), *map(int, sys.argv[2:5])
words = sys.argv[5:]
rank = next((int(x[5:]) for x in words if x.startswith('lora=')), 0)
torch.manual_seed(0)
torch.backends.cuda.matmul.allow_tf32 = True
settings = transformers.AutoConfig.for_model(**config)
settings.use_cache = False
with torch.device('cuda'):
    model = transformers.AutoModelForCausalLM.from_config(settings, attn_implementation='sdpa', dtype=torch.bfloat16 if rank else torch.float32)
if rank:
    import peft
    model = peft.get_peft_model(model, peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules='all-linear', task_type='CAUSAL_LM'))
model.train()
trained = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.1, fused=True)
forward = torch.compile(model) if 'compile' in words else model
seconds = []
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
print(json.dumps({'tokens': batch * length / statistics.median(seconds[len(seconds) // 3:]), 'bytes': torch.cuda.max_memory_allocated()}))
