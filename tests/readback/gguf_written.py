#!/usr/bin/env python3
"""GGUF files that GALLEY writes, beside llama.cpp: small models of every family that is written, in every type of numbers, are exported. llama.cpp has to continue a text
with the tokens that transformers finds likeliest for the numbers that it reads of the same file, and to make the same ids of texts; five prompts it has to continue by
the 64 greedy tokens of `galley sample` of the folder, from the file in F32, but where two logits are within 1e-3; its converter has to write the same keys and tensors
of the folder, but for what it says. Exit code 1 if one differs.

Usage: gguf_written.py GALLEY [MODEL…] [TYPE…]     by hand, in an environment with torch, transformers, gguf and xllamacpp (llama.cpp's own code in a wheel); CONVERTER names
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
from transformers import (AutoModelForCausalLM, BloomConfig, Gemma2Config, Gemma3TextConfig, GemmaConfig, GPT2Config, GPTNeoXConfig, LlamaConfig, MistralConfig,
                          Phi3Config, Qwen2Config, Qwen3Config)

galley, wanted = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
tokenizers = pathlib.Path(__file__).resolve().parents[1] / 'fixtures' / 'tokenizers'
converter = os.environ.get('CONVERTER')
transformers.logging.set_verbosity_error()
types = ['f32', 'f16', 'bf16', 'q8_0', 'q6_k', 'q4_k', 'q4_0']
types, wanted = [x for x in types if x in wanted or x == 'f32' or not set(types) & set(wanted)], [x for x in wanted if x not in types]
base = dict(hidden_size=256, intermediate_size=512, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256, initializer_range=.06,
            rms_norm_eps=1e-5)
llama3 = dict(rope_type='llama3', rope_theta=500000., factor=8., low_freq_factor=1., high_freq_factor=4., original_max_position_embeddings=64)
yarn = dict(rope_type='yarn', rope_theta=10000., factor=4., original_max_position_embeddings=64)
gemma = dict(base, head_dim=64, tie_word_embeddings=True)
neox = {key: x for key, x in base.items() if key not in ('num_key_value_heads', 'rms_norm_eps')}
near = dict(sliding_attention=dict(rope_type='default', rope_theta=10000.))
# Configuration and tokenizer. No name has phi3 in it: llama.cpp then looks for tokens of that model.
MODELS = {
    'llama-sentencepiece': (LlamaConfig(**base, tie_word_embeddings=False), 'sentencepiece'),
    'llama-biases-tied': (LlamaConfig(**base, tie_word_embeddings=True, attention_bias=True, mlp_bias=True), 'gpt2'),
    'llama-llama3': (LlamaConfig(**base, rope_parameters=llama3), 'llama3'),
    'llama-linear': (LlamaConfig(**dict(base, head_dim=32), rope_parameters=dict(rope_type='linear', rope_theta=10000., factor=4.)), 'smollm'),
    'llama-odd-rows': (LlamaConfig(**dict(base, hidden_size=96, intermediate_size=160, num_attention_heads=3, num_key_value_heads=3)), 'smollm'),
    'mistral': (MistralConfig(**base, sliding_window=None), 'sentencepiece'),
    'mistral-window': (MistralConfig(**base, sliding_window=120), 'llama3'),
    'qwen2-tied': (Qwen2Config(**base, tie_word_embeddings=True), 'qwen2'),
    'qwen3': (Qwen3Config(**base, head_dim=64), 'qwen2'),
    'fused': (Phi3Config(**base, pad_token_id=0), 'sentencepiece'),
    # llama.cpp takes the short factors where its context, which is whole 256 tokens, is no longer than the original one.
    'fused-longrope': (Phi3Config(**dict(base, max_position_embeddings=1024), pad_token_id=0, original_max_position_embeddings=256, rope_parameters=dict(
        rope_type='longrope', rope_theta=10000., partial_rotary_factor=.75, original_max_position_embeddings=256, short_factor=[1. + .02 * i for i in range(24)],
        long_factor=[1. + .3 * i for i in range(24)])), 'sentencepiece'),
    'llama-yarn': (LlamaConfig(**base, rope_parameters=yarn), 'llama3'),
    'qwen3-yarn-attention': (Qwen3Config(**base, head_dim=64, rope_parameters=dict(yarn, attention_factor=1.2)), 'qwen2'),
    'gemma': (GemmaConfig(**gemma), 'sentencepiece'),
    'gemma2': (Gemma2Config(**gemma, query_pre_attn_scalar=64, sliding_window=20, attn_logit_softcapping=4., final_logit_softcapping=6.), 'sentencepiece'),
    'gemma2-whole': (Gemma2Config(**gemma, query_pre_attn_scalar=64, layer_types=['full_attention'] * 3), 'sentencepiece'),
    'gemma3': (Gemma3TextConfig(**dict(gemma, num_hidden_layers=7), query_pre_attn_scalar=64, sliding_window=20,
                                rope_parameters=dict(near, full_attention=dict(rope_type='linear', rope_theta=1e6, factor=8.))), 'sentencepiece'),
    'gemma3-pattern': (Gemma3TextConfig(**gemma, query_pre_attn_scalar=64, sliding_window=20, layer_types=['full_attention', 'sliding_attention', 'sliding_attention'],
                                        rope_parameters=dict(near, full_attention=dict(rope_type='default', rope_theta=1e6))), 'sentencepiece'),
    'gpt2': (GPT2Config(n_embd=256, n_layer=3, n_head=4, n_positions=256, n_ctx=256, initializer_range=.06), 'gpt2'),
    'gpt-neox': (GPTNeoXConfig(**neox), 'smollm'),
    'gpt-neox-sequential': (GPTNeoXConfig(**neox, use_parallel_residual=False,
                                          rope_parameters=dict(rope_type='default', rope_theta=10000., partial_rotary_factor=1.)), 'smollm'),
    'bloom-six-heads': (BloomConfig(hidden_size=384, n_layer=3, n_head=6, initializer_range=.06, seq_length=256), 'gpt2'),
}
# Of an embedding that is the head, and of other matrices: at these texts do not run in circles at once.
SIZES = {'gemma': (.02, .12), 'gemma2': (.004, .2), 'gemma3_text': (.004, .2), 'gpt2': (.004, .2), 'bloom': (.001, .2)}
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
                p.copy_(torch.randn_like(p) * .1 + (1 if ('norm' in name or '.ln_' in name) and name.endswith('weight') and 'gemma' not in config.model_type else 0))
            elif config.model_type in SIZES:
                table, others = SIZES[config.model_type]
                p.normal_(0, table if 'embed' in name or 'wte' in name else others)
    model.save_pretrained(folder)
    (folder / 'tokenizer.json').write_text(json.dumps(tokenizer))
    added = {x['id']: x['content'] for x in tokenizer['added_tokens']}
    begin, end = (added.get(i) for i in ENDS[kind])
    # The same model with a word for each token, so that texts are ids; no word ends a text.
    words = folder.with_name(folder.name + '-words')
    words.mkdir()
    (words / 'model.safetensors').symlink_to(folder / 'model.safetensors')
    (words / 'config.json').write_text(json.dumps(dict(json.loads((folder / 'config.json').read_text()), bos_token_id=None, eos_token_id=None)))
    (words / 'tokenizer.json').write_text(json.dumps({
        'version': '1.0', 'truncation': None, 'padding': None, 'added_tokens': [], 'normalizer': None, 'pre_tokenizer': {'type': 'WhitespaceSplit'},
        'post_processor': None, 'decoder': None, 'model': {'type': 'WordLevel', 'vocab': {f'w{i}': i for i in range(config.vocab_size)}, 'unk_token': 'w0'}}))
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


def continued(folder, of, prompts=5, count=64):
    """Of the greedy tokens of `galley sample`, how many llama.cpp finds, each after the same text; how many there are; the distance of the two logits where one is
    another, by transformers in F32; and how many different tokens the dullest text has."""
    generator, same, apart, with_words = random.Random(11), 0, [], folder.with_name(folder.name + '-words')
    vocabulary = json.loads((folder / 'config.json').read_text())['vocab_size']
    texts = [[generator.randrange(3, vocabulary) for _ in range(4 + 9 * i)] for i in range(prompts)]
    words = ''.join(json.dumps(' '.join(f'w{i}' for i in ids)) + '\n' for ids in texts)
    done = subprocess.run([galley, 'sample', with_words, '--lines', '--temperature', '0', '--tokens', str(count), '--length', '120'], input=words, capture_output=True,
                          text=True)
    if done.returncode:
        sys.exit(done.stderr)
    model, least = None, count
    for ids, line in zip(texts, done.stdout.splitlines(), strict=True):
        made = [int(x[1:]) for x in json.loads(line)['text'].split()]
        assert len(made) == count, line
        least = min(least, len(set(made)))
        for i, ours in enumerate(made):
            theirs = next_token(of, ids + made[:i])
            same += ours == theirs
            if ours != theirs:
                model = model or AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
                with torch.no_grad():
                    logits = model(input_ids=torch.tensor([ids + made[:i]])).logits[0, -1]
                apart.append(abs(float(logits[ours] - logits[theirs])))
    return same, prompts * count, least, apart


def numbers_of(folder, path):
    """The model of the folder with the numbers that gguf's own library reads of the file."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    config, kind = model.config, {'mistral': 'llama', 'gemma3_text': 'gemma3', 'gpt_neox': 'gptneox'}.get(model.config.model_type, model.config.model_type)
    names = gguf.get_tensor_name_map({v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}[kind], config.num_hidden_layers)
    tensors = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32) for t in gguf.GGUFReader(path).tensors}
    for vector in ('rope_freqs.weight', 'rope_factors_short.weight', 'rope_factors_long.weight'):
        tensors.pop(vector, None)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            x = tensors.pop(names.get_name(name.removeprefix('transformer.') if kind == 'bloom' else name, try_suffixes=('.weight', '.bias')))
            heads = kind == 'llama' and (config.num_attention_heads if 'q_proj' in name else config.num_key_value_heads if 'k_proj' in name else 0)
            if heads:
                x = x.reshape(heads, x.shape[0] // heads // 2, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)
            if 'query_key_value' in name:
                x = x.reshape(3, config.num_attention_heads, -1, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape)
            if kind.startswith('gemma') and name.endswith('norm.weight'):
                x = x - 1
            if kind == 'gpt2' and '.c_' in name and x.ndim == 2:
                x = x.T
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
    # Of Gemma it wants SentencePiece's own file.
    gemma = 'gemma' in json.loads((folder / 'config.json').read_text())['model_type']
    patched = ('import pathlib, runpy, sys; sys.argv = sys.argv[1:]; sys.path.insert(0, str(pathlib.Path(sys.argv[0]).parent)); '
               'import conversion.base, conversion.gemma; '
               + ''.join(f'conversion.gemma.{x}.set_vocab = lambda self: None; ' for x in ('GemmaModel', 'Gemma2Model', 'Gemma3Model') if gemma) +
               f'conversion.base.TextModel.get_vocab_base_pre = lambda self, tokenizer: {pre!r}; runpy.run_path(sys.argv[0], run_name="__main__")')
    done = subprocess.run([sys.executable, '-c', patched, converter, folder, '--outfile', theirs, '--outtype', kind], capture_output=True, text=True)
    if done.returncode:
        return ['no file: ' + done.stderr.strip().splitlines()[-1]]
    (a, x), (b, y) = contents(ours), contents(theirs)
    differ = [k for k in sorted(a.keys() | b.keys()) if a.get(k) != b.get(k) and not (gemma and k.startswith('tokenizer.'))]
    out = [f'{k}: {str(a.get(k))[:60]}, not {str(b.get(k))[:60]}' for k in differ]
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
            unchecked = ['--unchecked'] if config.model_type == 'gpt2' and dtype.startswith('q') else []   # Galley does not read blocks of the other way round
            done = subprocess.run([galley, 'export', folder, '--format', 'gguf', '--dtype', dtype, '--out', path, '--json', *unchecked], capture_output=True, text=True)
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
                same, count, least, apart = continued(folder, of)
                failed |= any(x > 1e-3 for x in apart) or least < 5
                line += f'; {same} of {count} greedy tokens of `galley sample`, at least {least} different ones in a text'
                line += (f', two logits at most {max(apart):.2g} apart at the others' if apart else '')
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
