#!/usr/bin/env python3
"""200 tokens, always the likeliest, as they are and with a repetition penalty, beside transformers' generate(): a run of LoRA that is not merged, one on NF4, T5, Mistral
with a window shorter than the text, BLOOM. transformers reads what `galley export --merge` writes of a run. Where a token differs, the two logits are shown: nearly equal
ones may be taken either way.

Usage: greedy.py     GALLEY, GALLEY_SOURCE and GALLEY_BINARY as tests have them, in a scratch folder; in an environment with torch and transformers.
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
from galley_test import cases, check, finish, fresh_folder, recipe, run, use
del sys.path[0]  # files there are called like packages that torch looks for (cuda.py, tokenizers.py)

import torch
import transformers

torch.set_num_threads(1)
fresh_folder()
TOKENS, WORDS, NEAR = 200, 499, 1e-3
PROMPTS = [[5, 9, 33], [7], list(range(20, 90, 3))]
tokenizer = {'version': '1.0', 'truncation': None, 'padding': None, 'added_tokens': [], 'normalizer': None, 'pre_tokenizer': {'type': 'WhitespaceSplit'},
             'post_processor': None, 'decoder': None, 'model': {'type': 'WordLevel', 'vocab': {f'w{i}': i for i in range(WORDS)}, 'unk_token': 'w0'}}
sizes = dict(vocab_size=WORDS, bos_token_id=None, eos_token_id=None, pad_token_id=None)
wide = dict(hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512,
            tie_word_embeddings=False)
MODELS = {'llama': transformers.LlamaConfig(**wide, **sizes), 'mistral': transformers.MistralConfig(**wide, **sizes, sliding_window=24),
          'bloom': transformers.BloomConfig(hidden_size=64, n_layer=3, n_head=4, **sizes),
          't5': transformers.T5Config(d_model=64, d_kv=16, d_ff=160, num_layers=3, num_heads=4, dropout_rate=0, decoder_start_token_id=0, **sizes)}
LORA = use('lora', rank=4, alpha=16, targets='all-linear')
KINDS = {'lora': ('llama', [LORA]), 'nf4': ('llama', [use('quantize-nf4'), LORA]), 't5': ('t5', []), 'mistral-window': ('mistral', []), 'bloom': ('bloom', [])}


def made(kind):
    path = pathlib.Path(kind)
    if not path.exists():
        torch.manual_seed(6)
        config = MODELS[kind]
        model = (transformers.T5ForConditionalGeneration if kind == 't5' else transformers.AutoModelForCausalLM.from_config)(config)
        with torch.no_grad():
            for key, x in model.named_parameters():  # of a size at which texts do not run in circles at once
                if x.dim() > 1:
                    x.normal_(0, .12 if kind in ('llama', 'mistral') else .05 if 'embed' in key or 'shared' in key else .4)
        model.save_pretrained(path)
        path.joinpath('tokenizer.json').write_text(json.dumps(tokenizer))
    return path


def continued(folder, prompt, *words):
    text = ' '.join(f'w{i}' for i in prompt)
    lines = run('sample', folder, '--lines', '--temperature', 0, '--tokens', TOKENS, *words, input=json.dumps(text) + '\n').stdout
    return [int(x[1:]) for x in json.loads(lines)['text'].split()]


@cases(KINDS)
def as_transformers(kind, what):
    name, uses = what
    folder = theirs = made(name)
    if uses:
        pathlib.Path('text.jsonl').write_text(''.join(json.dumps({'text': ' '.join(f'w{(7 * i + j * j) % WORDS}' for j in range(40))}) + '\n' for i in range(40)))
        data = 'data.jsonl { files = { "text.jsonl" } }'
        path = recipe(f'{kind}.lua', f'model {{ path = "{folder}" }}', data, *uses, use('adamw', lr=1e-2), batch=1, length=320, steps=6)
        run('train', path, '--out', f'run-{kind}')
        run('export', f'run-{kind}', '--merge', '--out', f'merged-{kind}')
        folder, theirs = pathlib.Path(f'run-{kind}'), pathlib.Path(f'merged-{kind}')
    model = (transformers.T5ForConditionalGeneration if name == 't5' else transformers.AutoModelForCausalLM).from_pretrained(theirs, dtype=torch.float32)
    equal = 0
    for prompt, penalty in ((x, y) for x in PROMPTS for y in (1, 1.3)):
        ours = continued(folder, prompt, '--repetition-penalty', penalty, *([] if uses else ['--length', 320]))
        with torch.no_grad():
            made_ids = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), max_new_tokens=TOKENS, min_new_tokens=TOKENS,
                                      do_sample=False, repetition_penalty=float(penalty), use_cache=True, output_scores=True, return_dict_in_generate=True)
        ids = made_ids.sequences[0].tolist()[1 if name == 't5' else len(prompt):]
        same = next((i for i, (a, b) in enumerate(zip(ours, ids)) if a != b), min(len(ours), len(ids)))
        equal += same
        if same < TOKENS and same < len(ours):
            logits = made_ids.scores[same][0]
            gap = abs(logits[ours[same]] - logits[ids[same]]).item()
            check(gap < NEAR, f'{kind}, {len(prompt)} tokens: token {same} is {ours[same]} and not {ids[same]}, logits {gap} apart')
        else:
            check(same == TOKENS and (penalty == 1 or len(set(ids)) > 10), f'{kind}, {len(prompt)} tokens: {len(ours)} tokens, {len(set(ids))} different ones')
    print(f'{kind}: {equal} of {2 * TOKENS * len(PROMPTS)} tokens')


finish()
