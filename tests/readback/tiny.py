#!/usr/bin/env python3
"""Writes small models with random weights as transformers saves them, with the tokenizer of a real one, so that readback.py takes seconds a run: GPT-2, whose head
is its embedding, and Llama with a head of its own and without.

Usage: tiny.py TOKENIZER_DIR OUT_DIR     (writes OUT_DIR/gpt2, llama-tied and llama-untied)"""
import pathlib
import shutil
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, LlamaConfig

tokenizer, out = map(pathlib.Path, sys.argv[1:])
known = AutoTokenizer.from_pretrained(tokenizer)
ends = dict(vocab_size=len(known), bos_token_id=known.bos_token_id, eos_token_id=known.eos_token_id)
llama = dict(hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128)
configs = {'gpt2': GPT2Config(n_embd=64, n_layer=2, n_head=4, n_positions=128, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **ends),
           'llama-tied': LlamaConfig(tie_word_embeddings=True, **llama, **ends), 'llama-untied': LlamaConfig(tie_word_embeddings=False, **llama, **ends)}
for name, config in configs.items():
    torch.manual_seed(20)
    AutoModelForCausalLM.from_config(config).save_pretrained(out / name)
    for file in ('tokenizer.json', 'tokenizer_config.json'):
        shutil.copy(tokenizer / file, out / name)
