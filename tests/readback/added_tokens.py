#!/usr/bin/env python3
"""model { add_tokens, add_special_tokens } beside transformers: tokenizers of every kind of the fixtures get the same tokens by `tokenizer.add_tokens`, and texts have the same
ids by the tokenizer that a run has saved; a model that transformers enlarges, with the mean in its new rows, has the run's parameters after a step that changes nothing,
and the loss that Galley finds.

Usage: added_tokens.py     GALLEY, GALLEY_SOURCE and GALLEY_BINARY as tests have them, in a scratch folder; in an environment with torch and transformers.
"""
import gzip
import json
import logging
import os
import pathlib
import random
import sys
import warnings

warnings.filterwarnings('ignore')
logging.disable(logging.WARNING)
os.environ.setdefault('TQDM_DISABLE', '1')
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'python'))
from galley_test import cases, check, every, finish, fixtures, fresh_folder, recipe, run, use
del sys.path[0]  # files there are called like packages that torch looks for (cuda.py, tokenizers.py)

import torch
import transformers

torch.set_num_threads(1)
fresh_folder()
PLAIN, SPECIAL = ['<call>', 'Result:', ' weiß'], ['<|mine|>', '[END]']
TOKENIZERS = sorted(x.name for x in (fixtures / 'tokenizers').iterdir() if (x / 'tokenizer.json.gz').exists())
PIECES = ['Hello', ' there', '<call>', ' a<call>b', 'Result:', ' Result: ', 'result:', ' weiß', 'weiß', '<|mine|>', ' [END] ', '[end]', '\n', '  ', '你好', "it's", ' 12.5']
texts = [''.join(random.Random(i).choices(PIECES, k=6)) for i in range(300)]
LLAMA = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64)


def lua(names):
    return '{ ' + ', '.join(json.dumps(x, ensure_ascii=False) for x in names) + ' }'


@cases(TOKENIZERS)
def beside(kind, _=None):
    torch.manual_seed(4)
    base = pathlib.Path(f'{kind}-base')
    base.mkdir()
    base.joinpath('tokenizer.json').write_bytes(gzip.decompress((fixtures / 'tokenizers' / kind / 'tokenizer.json.gz').read_bytes()))
    base.joinpath('tokenizer_config.json').write_text(json.dumps({'tokenizer_class': 'PreTrainedTokenizerFast'}))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(base / 'tokenizer.json'))
    ids = dict(vocab_size=len(tokenizer), bos_token_id=None, eos_token_id=None, pad_token_id=None)
    model = transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(**LLAMA, **ids, tie_word_embeddings=len(kind) % 2 == 0))
    model.save_pretrained(base)
    pathlib.Path(f'{kind}.jsonl').write_text(''.join(json.dumps({'text': x}) + '\n' for x in texts[:40]))
    data = f'data.jsonl {{ files = "{kind}.jsonl", validation = "{kind}.jsonl" }}'
    more = f'model {{ path = "{base}", add_tokens = {lua(PLAIN)}, add_special_tokens = {lua(SPECIAL)} }}'
    path = recipe(f'{kind}.lua', more, data, use('sgd', lr=1e-30), batch=2, length=64, steps=1, seed=1, validate=dict(every=1))
    run('train', path, '--out', kind)
    tokenizer.add_tokens(PLAIN)
    tokenizer.add_tokens(SPECIAL, special_tokens=True)
    saved = transformers.AutoTokenizer.from_pretrained(f'{kind}/model')
    check(len(saved) == len(tokenizer), f'{kind}: {len(saved)} tokens, not {len(tokenizer)}')
    ours = run('tokenize', f'{kind}/model/tokenizer.json', input=''.join(json.dumps({'text': x}) + '\n' for x in texts)).stdout.splitlines()
    for text, said in zip(texts, ours, strict=True):
        wanted = tokenizer.encode(text, add_special_tokens=False)
        check(json.loads(said)['ids'] == wanted, f'{kind}, {text!r}: {said}, not {wanted}')
        check(saved.encode(text, add_special_tokens=False) == wanted, f'{kind}, {text!r}: the saved tokenizer, by transformers')
    grown = len(tokenizer) - model.config.vocab_size
    if grown > 0:
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        with torch.no_grad():
            for table in {id(x): x for x in (model.get_input_embeddings().weight, model.get_output_embeddings().weight)}.values():
                table[-grown:] = table[:-grown].double().mean(0).float()
    trained = transformers.AutoModelForCausalLM.from_pretrained(f'{kind}/model', dtype=torch.float32)
    theirs = dict(trained.named_parameters())
    check(every(theirs[k].shape == x.shape and (theirs[k] - x).abs().max().item() <= 1e-8 for k, x in model.named_parameters()), f'{kind}: other parameters')
    print(f'{kind}: {len(texts)} texts, {len(tokenizer)} tokens, {grown} rows more')


finish()
