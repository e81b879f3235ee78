#!/usr/bin/env python3
"""GGUF files that GALLEY writes, beside llama.cpp: small models of every family that is written, in every type of numbers, are exported. llama.cpp has to continue a text
with the tokens that transformers finds likeliest for the numbers that it reads of the same file, and to make the same ids of texts; its converter has to write the same
keys and tensors of the folder, but for what it says. Exit code 1 if one differs.

Usage: gguf_written.py GALLEY [MODEL…]     by hand, in an environment with torch, transformers, gguf and xllamacpp (llama.cpp's own code in a wheel); CONVERTER names
                                          llama.cpp's convert_hf_to_gguf.py, without which its files are not compared

Two tokens may change their places where transformers finds their logits closer than llama.cpp computes: it rounds activations to the 16 bits of weights, and to 8 beside
blocks."""
import ctypes
import gzip
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import urllib.request

# The folder of this file is the first place where modules are looked for, and gguf.py there is called as the library.
sys.path = [x for x in sys.path if pathlib.Path(x or '.').resolve() != pathlib.Path(__file__).resolve().parent]
import gguf
import numpy as np
import torch
import transformers
import xllamacpp
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Phi3Config, Qwen2Config, Qwen3Config

galley, wanted = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
tokenizers = pathlib.Path(__file__).resolve().parents[1] / 'fixtures' / 'tokenizers'
converter = os.environ.get('CONVERTER')
transformers.logging.set_verbosity_error()
types = ['f32', 'f16', 'bf16', 'q8_0', 'q6_k', 'q4_k', 'q4_0']
base = dict(hidden_size=256, intermediate_size=512, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256, initializer_range=.06,
            rms_norm_eps=1e-5)
llama3 = dict(rope_type='llama3', rope_theta=500000., factor=8., low_freq_factor=1., high_freq_factor=4., original_max_position_embeddings=64)
# Configuration and tokenizer. No name has phi3 in it: llama.cpp then looks for tokens of that model.
MODELS = {
    'llama-sentencepiece': (LlamaConfig(**base, tie_word_embeddings=False), 'sentencepiece'),
    'llama-biases-tied': (LlamaConfig(**base, tie_word_embeddings=True, attention_bias=True, mlp_bias=True), 'gpt2'),
    'llama-llama3': (LlamaConfig(**base, rope_parameters=llama3), 'llama3'),
    'llama-linear': (LlamaConfig(**dict(base, head_dim=32), rope_parameters=dict(rope_type='linear', rope_theta=10000., factor=4.)), 'smollm'),
    'llama-odd-rows': (LlamaConfig(**dict(base, hidden_size=96, intermediate_size=160, num_attention_heads=3, num_key_value_heads=3)), 'smollm'),
    'mistral': (MistralConfig(**base, sliding_window=None), 'sentencepiece'),
    'mistral-window': (MistralConfig(**base, sliding_window=64), 'llama3'),
    'qwen2-tied': (Qwen2Config(**base, tie_word_embeddings=True), 'qwen2'),
    'qwen3': (Qwen3Config(**base, head_dim=64), 'qwen2'),
    'fused': (Phi3Config(**base, pad_token_id=0), 'sentencepiece'),
}
ENDS = dict(sentencepiece=(1, 2), gpt2=(0, 0), llama3=(0, 1), smollm=(1, 2), qwen2=(0, 2))


def tokenizer_of(name):
    """That of the fixtures; 'sentencepiece': with every merge that makes a token of two, in the order of the tokens, as converted from SentencePiece."""
    out = json.loads(gzip.open(tokenizers / ('llama2' if name == 'sentencepiece' else name) / 'tokenizer.json.gz').read())
    out['added_tokens'] = [x for x in out['added_tokens'] if not (x['lstrip'] or x['rstrip'] or x['single_word'])]
    if name == 'sentencepiece':
        # llama.cpp ends a token at a byte 0.
        named = lambda t: t.replace('\0', '\ue000')
        out['model']['vocab'] = {named(t): i for t, i in out['model']['vocab'].items()}
        vocabulary, made = out['model']['vocab'], []
        for pair in out['model']['merges']:
            token = named(''.join(pair if isinstance(pair, list) else pair.split(' ')))
            if token not in made:
                made.append(token)
        out['model']['merges'] = [[t[:i], t[i:]] for t in made for i in range(1, len(t)) if t[:i] in vocabulary and t[i:] in vocabulary]
        reached = set(made)
        splits = lambda t: any(t[:i] in vocabulary and t[i:] in vocabulary for i in range(1, len(t)))
        assert all(t in reached or not splits(t) for t in vocabulary if not t.startswith('<')), 'other merges'
    return out


def make(folder, config, kind):
    torch.manual_seed(7)
    tokenizer = tokenizer_of(kind)
    count = max([*tokenizer['model']['vocab'].values(), *[a['id'] for a in tokenizer['added_tokens']]]) + 1
    config.vocab_size = (count + 31) // 32 * 32
    config.bos_token_id, config.eos_token_id = ENDS[kind]
    config.pad_token_id = None
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 1:
                p.copy_(torch.randn_like(p) * .1 + (1 if 'norm' in name else 0))
    model.save_pretrained(folder)
    (folder / 'tokenizer.json').write_text(json.dumps(tokenizer))
    added = {x['id']: x['content'] for x in tokenizer['added_tokens']}
    begin, end = (added.get(i) for i in ENDS[kind])
    (folder / 'tokenizer_config.json').write_text(json.dumps(dict(tokenizer_class='PreTrainedTokenizerFast', bos_token=begin, eos_token=end,
                                                                  chat_template='{% for m in messages %}{{ m.content }}{% endfor %}')))


def server(path, *adapters):
    p = xllamacpp.CommonParams()
    p.model.path = str(path)
    p.n_ctx, p.n_parallel, p.warmup = 128, 1, False
    p.cpuparams.n_threads = 1
    p.cache_type_k = p.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    p.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    p.cache_prompt = False
    p.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(str(x), 1.0) for x in adapters]
    return xllamacpp.Server(p)


def ask(of, what, **body):
    request = urllib.request.Request(f'{of.listening_address}/{what}', json.dumps(body).encode(), {'Content-Type': 'application/json'})
    return json.loads(urllib.request.urlopen(request).read())


def next_token(of, ids):
    """The likeliest one."""
    return ask(of, 'completion', prompt=ids, n_predict=1, temperature=0, return_tokens=True, cache_prompt=False)['tokens'][0]


def numbers_of(folder, path):
    """The model of the folder with the numbers that gguf's own library reads of the file."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    config, kind = model.config, {'mistral': 'llama'}.get(model.config.model_type, model.config.model_type)
    names = gguf.get_tensor_name_map({v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}[kind], config.num_hidden_layers)
    tensors = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32) for t in gguf.GGUFReader(path).tensors}
    tensors.pop('rope_freqs.weight', None)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            x = tensors.pop(names.get_name(name, try_suffixes=('.weight', '.bias')))
            heads = kind == 'llama' and (config.num_attention_heads if 'q_proj' in name else config.num_key_value_heads if 'k_proj' in name else 0)
            if heads:
                x = x.reshape(heads, x.shape[0] // heads // 2, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(x)))
    assert not tensors, sorted(tensors)
    return model


def greedy(model, of, count=16):
    """How many of the tokens that transformers continues with llama.cpp finds too, each after the same text; the largest lead that a token had which it does not find."""
    ids, same, lead = [random.Random(3).randrange(3, model.config.vocab_size) for _ in range(12)], 0, 0.
    for _ in range(count):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids])).logits[0, -1]
        best, theirs = int(logits.argmax()), next_token(of, ids)
        same += best == theirs
        lead = max(lead, float((logits[best] - logits[theirs]) / logits.std()))
        ids.append(best)
    return same, count, lead


def same_ids(of, folder):
    """How many texts llama.cpp reads as the `tokenizers` library does."""
    import tokenizers as library
    reader, same, all_texts = library.Tokenizer.from_file(str(folder / 'tokenizer.json')), 0, 0
    for line in gzip.open(tokenizers / 'texts.jsonl.gz', 'rt').read().splitlines()[::8]:
        text = json.loads(line)
        text = text if isinstance(text, str) else text['text']
        if not text or '\0' in text:
            continue
        all_texts += 1
        same += ask(of, 'tokenize', content=text, add_special=True, parse_special=True)['tokens'] == reader.encode(text).ids
    return same, all_texts


def contents(path):
    reader = gguf.GGUFReader(path)
    keys = {k: f.contents() for k, f in reader.fields.items() if not k.startswith('GGUF.')}
    return keys, {t.name: (t.tensor_type.name, t.data.tobytes(), list(t.shape)) for t in reader.tensors}


def converted(folder, ours, kind):
    """What llama.cpp's converter writes otherwise."""
    # It knows tokenizers by what they make of a text, and those of the tests have fewer tokens than the ones whose name they get here.
    theirs, pre = ours.with_name('theirs.gguf'), contents(ours)[0].get('tokenizer.ggml.pre')
    patched = ('import pathlib, runpy, sys; sys.argv = sys.argv[1:]; sys.path.insert(0, str(pathlib.Path(sys.argv[0]).parent)); import conversion.base; '
               f'conversion.base.TextModel.get_vocab_base_pre = lambda self, tokenizer: {pre!r}; runpy.run_path(sys.argv[0], run_name="__main__")')
    done = subprocess.run([sys.executable, '-c', patched, converter, folder, '--outfile', theirs, '--outtype', kind], capture_output=True, text=True)
    if done.returncode:
        return ['no file: ' + done.stderr.strip().splitlines()[-1]]
    (a, x), (b, y) = contents(ours), contents(theirs)
    out = [f'{k}: {str(a.get(k))[:60]}, not {str(b.get(k))[:60]}' for k in sorted(a.keys() | b.keys()) if a.get(k) != b.get(k)]
    return out + [f'tensor {k}' for k in sorted(x.keys() | y.keys()) if x.get(k) != y.get(k)]


def ratios(plain, path):
    """By type: the root mean square error of the file's blocks over that of llama.cpp's own quantizer, without an importance matrix."""
    library, out = ctypes.CDLL(xllamacpp.xllamacpp.__file__), {}
    library.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p]
    exact = {t.name: t.data for t in gguf.GGUFReader(plain).tensors}
    for t in gguf.GGUFReader(path).tensors:
        numbers, length = gguf.GGML_QUANT_SIZES[t.tensor_type]
        if numbers > 1:
            x = np.ascontiguousarray(exact[t.name], np.float32)
            theirs = np.zeros((x.shape[0], x.shape[1] // numbers * length), np.uint8)
            library.ggml_quantize_chunk(int(t.tensor_type), x.ctypes.data, theirs.ctypes.data, 0, x.shape[0], x.shape[1], None)
            errors = [float(((gguf.quants.dequantize(y, t.tensor_type) - x).astype(np.float64) ** 2).mean()) for y in (t.data, theirs)]
            out.setdefault(t.tensor_type.name, []).append((errors[0] / errors[1]) ** 0.5)
    return {kind: max(x) for kind, x in out.items()}


def adapted(folder, scratch):
    """An adapter's file beside that of its base model, against transformers with the adapter merged."""
    (scratch / 'lora.lua').write_text('return recipe { model = model { path = arg("model") }, data = data.random {}, batch = 2, length = 16, steps = 4,\n'
                                      '  use "lora" { rank = 4, alpha = 64, targets = "all-linear" }, use "adamw" { lr = 0.05 } }\n')
    for words in (['train', scratch / 'lora.lua', '--set', f'model={folder}', '--out', scratch / 'run'],
                  ['export', scratch / 'run', '--merge', '--out', scratch / 'merged'],
                  ['export', scratch / 'run', '--format', 'gguf', '--dtype', 'f32', '--out', scratch / 'adapter.gguf']):
        done = subprocess.run([galley, *words], capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
    return AutoModelForCausalLM.from_pretrained(scratch / 'merged', dtype=torch.float32).eval(), scratch / 'adapter.gguf'


failed = False
with tempfile.TemporaryDirectory() as scratch:
    scratch = pathlib.Path(scratch)
    for name, (config, kind) in MODELS.items():
        if wanted and name not in wanted:
            continue
        folder = scratch / name
        make(folder, config, kind)
        for dtype in types:
            path = scratch / f'{name}-{dtype}' / 'model.gguf'
            done = subprocess.run([galley, 'export', folder, '--format', 'gguf', '--dtype', dtype, '--out', path, '--json'], capture_output=True, text=True)
            if done.returncode:
                print(f'{name:20} {dtype:5} {done.stderr.strip()}')
                failed = True
                continue
            of = server(path)
            same, count, lead = greedy(numbers_of(folder, path), of)
            failed |= same < count and lead > {'f32': 1e-4, 'f16': 3e-3, 'bf16': 2e-2}.get(dtype, 0.1)
            line = f'{name:20} {dtype:5} {same} of {count} tokens' + (f', the others led by {lead:.1g} of the logits\' spread' if same < count else '')
            if dtype == 'f32':
                same, count = same_ids(of, folder)
                line += f'; {same} of {count} texts have the same ids'
            beside = ratios(scratch / f'{name}-f32' / 'model.gguf', path)
            failed |= any(x > 1.05 for x in beside.values())
            print(line + ''.join(f'; errors of {kind} at most {x:.3f} of llama.cpp\'s' for kind, x in beside.items()), flush=True)
            del of
            if converter and dtype in ('f32', 'f16', 'bf16'):
                for what in converted(folder, path, dtype):
                    print(f'  converter: {what}', flush=True)
        with tempfile.TemporaryDirectory() as place:
            merged, adapter = adapted(folder, pathlib.Path(place))
            base_file = scratch / f'{name}-f32' / 'model.gguf'
            plain, _, _ = greedy(merged, server(base_file))
            same, count, lead = greedy(merged, server(base_file, adapter))
            failed |= (same < count and lead > 1e-3) or plain == count
            print(f'{name:20} lora  {same} of {count} tokens, and {plain} without the adapter', flush=True)
sys.exit(failed)
