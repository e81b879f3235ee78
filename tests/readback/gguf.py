#!/usr/bin/env python3
"""GGUF files beside gguf's own library and transformers: makes GGUF files of a Llama's folder with gguf's writer and quantizers, computes the loss of the numbers that
gguf itself makes of their blocks with transformers, and compares that of GALLEY beside an adapter that does nothing yet. Exit code 1 if one is above its bound.

Usage: gguf.py GALLEY MODEL_DIR      by hand, in an environment with torch, transformers, safetensors and gguf

Types of 256 numbers a block, for which the library has no quantizer, get a simple one here; as with llama.cpp, rows that are no whole blocks of them get Q5_0 or Q8_0."""
import pathlib
import subprocess
import sys
import tempfile

# The folder of this file is the first place where modules are looked for, and this one is called as the library.
sys.path = [x for x in sys.path if pathlib.Path(x or '.').resolve() != pathlib.Path(__file__).resolve().parent]
import gguf
import numpy as np
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file

galley, folder = sys.argv[1], pathlib.Path(sys.argv[2])
Type = gguf.GGMLQuantizationType
config = transformers.AutoConfig.from_pretrained(folder)
model = transformers.AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32)
names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)


def half(x):
    return np.asarray(x, np.float32).astype(np.float16)


def q4_k(x):
    """The scale and the minimum of each 32 numbers are those of their range."""
    x = x.reshape(-1, 8, 32)
    low = np.minimum(x.min(-1), 0)
    scales, least = (x.max(-1) - low) / 15, -low
    d, m = half(scales.max(-1) / 63), half(least.max(-1) / 63)
    s = np.clip(np.rint(scales / np.maximum(d.astype(np.float32), 1e-30)[:, None]), 0, 63).astype(np.uint8)
    t = np.clip(np.rint(least / np.maximum(m.astype(np.float32), 1e-30)[:, None]), 0, 63).astype(np.uint8)
    step, base = d.astype(np.float32)[:, None] * s, m.astype(np.float32)[:, None] * t
    q = np.clip(np.rint((x + base[..., None]) / np.maximum(step, 1e-30)[..., None]), 0, 15).astype(np.uint8)
    packed = np.concatenate([s[:, :4] | s[:, 4:] >> 4 << 6, t[:, :4] | t[:, 4:] >> 4 << 6, s[:, 4:] & 15 | (t[:, 4:] & 15) << 4], 1)
    return np.concatenate([d[:, None].view(np.uint8), m[:, None].view(np.uint8), packed, (q[:, 0::2] | q[:, 1::2] << 4).reshape(-1, 128)], 1)


def q6_k(x):
    """The scale of each 16 numbers is that of the largest."""
    x = x.reshape(-1, 16, 16)
    scales = np.abs(x).max(-1) / 31
    d = half(scales.max(-1) / 127)
    s = np.clip(np.rint(scales / np.maximum(d.astype(np.float32), 1e-30)[:, None]), 0, 127).astype(np.int8)
    step = d.astype(np.float32)[:, None] * s
    q = (np.clip(np.rint(x / np.maximum(step, 1e-30)[..., None]), -32, 31) + 32).astype(np.uint8).reshape(-1, 2, 4, 32)
    low = np.concatenate([q[:, :, :2] & 15 | (q[:, :, 2:] & 15) << 4], 2).reshape(-1, 128)
    high = (q >> 4)[:, :, 0] | (q >> 4)[:, :, 1] << 2 | (q >> 4)[:, :, 2] << 4 | (q >> 4)[:, :, 3] << 6
    return np.concatenate([low, high.reshape(-1, 64), s.view(np.uint8), d[:, None].view(np.uint8)], 1)


own = {Type.Q4_K: q4_k, Type.Q6_K: q6_k}


def quantized(x, kind):
    if kind in own and x.shape[-1] % 256:
        kind = {Type.Q4_K: Type.Q5_0, Type.Q6_K: Type.Q8_0}[kind]
    if kind in own:
        return own[kind](x).reshape(x.shape[0], -1), kind
    return gguf.quants.quantize(x, kind), kind


def permuted(x, heads):
    return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def write(path, kind_of):
    """The file, and a model of the numbers that it holds."""
    writer = gguf.GGUFWriter(path, 'llama')
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_theta if hasattr(config, 'rope_theta') else config.rope_parameters['rope_theta'])
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_vocab_size(config.vocab_size)
    writer.add_token_list([f'token {i}' for i in range(config.vocab_size)])
    state = model.state_dict()
    with safe_open(folder / 'model.safetensors', 'pt') as file:
        stored = set(file.keys())
    for name in sorted(stored):
        x = state[name].numpy()
        heads = config.num_attention_heads if 'q_proj' in name else config.num_key_value_heads if 'k_proj' in name else 0
        called = names.get_name(name, try_suffixes=('.weight',))
        kind = Type.F32 if x.ndim == 1 else kind_of(name)
        data, kind = quantized(permuted(x, heads) if heads else x, kind)
        writer.add_tensor(called, data, raw_dtype=kind)
        numbers = gguf.quants.dequantize(data, kind).astype(np.float32)
        if heads:
            numbers = numbers.reshape(heads, x.shape[0] // heads // 2, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)
        state[name] = torch.from_numpy(np.ascontiguousarray(numbers))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    if config.tie_word_embeddings:
        state['lm_head.weight'] = state['model.embed_tokens.weight']
    read = transformers.AutoModelForCausalLM.from_config(config, torch_dtype=torch.float32).eval()
    read.load_state_dict(state)
    return read


files = {
    'F16': lambda name: Type.F16, 'BF16': lambda name: Type.BF16, 'Q8_0': lambda name: Type.Q8_0, 'Q4_0': lambda name: Type.Q4_0,
    'as Q4_K_M': lambda name: Type.Q6_K if 'v_proj' in name or 'down_proj' in name and '.1' in name or 'embed' in name else Type.Q4_K,
}
failed = False
with tempfile.TemporaryDirectory() as scratch:
    scratch = pathlib.Path(scratch)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = (pathlib.Path(__file__).parent / 'short_texts.txt').read_text().replace('\n', ' ')
    ids = torch.tensor(tokenizer(texts)['input_ids'][:4 * 256]).reshape(4, 256)
    save_file({'input_ids': ids, 'labels': ids.clone()}, scratch / 'batch.safetensors')
    print(f'{"file":12} {"bytes":>12} {"transformers":>13} {"galley":>10} {"apart":>8}')
    for name, kind_of in files.items():
        path = scratch / 'model.gguf'
        read = write(path, kind_of)
        with torch.no_grad():
            theirs = float(read(input_ids=ids, labels=ids).loss)
        (scratch / 'recipe.lua').write_text('return recipe { model = model { path = arg("model") }, data = data.batch { path = "batch.safetensors" }, steps = 1,\n'
                                            '  use "quantize-gguf" {}, use "lora" { rank = 1 }, use "sgd" { lr = 0.1 } }\n')
        done = subprocess.run([galley, 'gradients', scratch / 'recipe.lua', '--set', f'model={path}', '--out', scratch / 'out.safetensors'], capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        with safe_open(scratch / 'out.safetensors', 'pt') as file:
            ours = float(file.get_tensor('loss'))
        apart = abs(ours - theirs) / theirs
        failed |= not apart < 1e-5
        print(f'{name:12} {path.stat().st_size:12} {theirs:13.6f} {ours:10.6f} {apart:8.1e}')
sys.exit(failed)
