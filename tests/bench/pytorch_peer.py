#!/usr/bin/env python3
"""The side of PyTorch, for tests/bench/pytorch.py: each call is a process of its own.

  pytorch_peer.py make FOLDER full|lora|qlora f32|bf16 ROWS LENGTH [MODEL]    writes model/, batch.safetensors and, for adapters, adapter/ into FOLDER, by its shape.json
  pytorch_peer.py train FOLDER full|lora|qlora f32|bf16 STEPS THREADS [compile]     trains on them, and prints a line of JSON: losses and seconds of all steps
  pytorch_peer.py versions                                                    says which libraries these are
"""
import json
import logging
import os
import pathlib
import sys
import time
import warnings

warnings.filterwarnings('ignore')
logging.disable(logging.WARNING)
os.environ.setdefault('TQDM_DISABLE', '1')
import torch
import transformers

DTYPES = {'f32': torch.float32, 'bf16': torch.bfloat16}


def stored_in(kind, dtype):
    """The frozen weights of adapters are in the dtype that is computed in; what is trained is in F32."""
    return torch.float32 if kind == 'full' else DTYPES[dtype]


def make(folder, kind, dtype, rows, length, model=None):
    import peft
    from safetensors.torch import save_file
    torch.manual_seed(0)
    if model:
        made = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=stored_in(kind, dtype))
    else:
        made = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**json.loads((folder / 'shape.json').read_text())))
    made.to(stored_in(kind, dtype)).save_pretrained(folder / 'model')
    (folder / 'model' / 'generation_config.json').unlink(missing_ok=True)
    ids = torch.randint(3, made.config.vocab_size, (int(rows), int(length)), dtype=torch.int32)
    save_file({'input_ids': ids, 'labels': ids.clone()}, folder / 'batch.safetensors')
    if kind == 'full':
        return
    options = peft.LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, target_modules='all-linear', task_type='CAUSAL_LM')
    adapted = peft.get_peft_model(made.float(), options)
    adapted.save_pretrained(folder / 'adapter')
    config = folder / 'adapter' / 'adapter_config.json'
    config.write_text(json.dumps(json.loads(config.read_text()) | {'base_model_name_or_path': None}))


def model_of(folder, kind, dtype):
    options = dict(dtype=stored_in(kind, dtype), attn_implementation='sdpa')
    if kind == 'qlora':
        options['quantization_config'] = transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type='nf4', bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=DTYPES[dtype])
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / 'model', **options)
    model.config.use_cache = False
    if kind == 'full':
        return model
    import peft
    if kind == 'qlora':
        model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    return peft.PeftModel.from_pretrained(model, str(folder / 'adapter'), is_trainable=True)


def train(folder, kind, dtype, steps, threads, compiled=None):
    from safetensors.torch import load_file
    torch.set_num_threads(int(threads))
    model = model_of(folder, kind, dtype).train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1, fused=True)
    ids = load_file(folder / 'batch.safetensors')['input_ids'].long()
    forward, losses, seconds = torch.compile(model) if compiled else model, [], []
    for _ in range(int(steps)):
        begin = time.perf_counter()
        with torch.autocast('cpu', torch.bfloat16, enabled=dtype == 'bf16'):
            loss = forward(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        seconds.append(time.perf_counter() - begin)
    print(json.dumps(dict(losses=losses, seconds=seconds)))


def versions():
    import bitsandbytes
    import peft
    print(f'PyTorch {torch.__version__}, transformers {transformers.__version__}, PEFT {peft.__version__}, bitsandbytes {bitsandbytes.__version__}')


what, *words = sys.argv[1:] or ['']
if what == 'versions':
    versions()
elif what in ('make', 'train') and len(words) >= 5:
    {'make': make, 'train': train}[what](pathlib.Path(words[0]), *words[1:])
else:
    sys.exit(__doc__)
