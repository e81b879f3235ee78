"""What the tests of GGUF share: a writer of such files, blocks of its types made and read number by number, and a small model as file and as folder. Sources:
ggml/docs/gguf.md and ggml-common.h of https://github.com/ggml-org/ggml. The standard library only."""
import json
import math
import pathlib
import random
import struct

import galley_test

# Types of tensors: number, numbers of a block, bytes of a block.
types = {'F32': (0, 1, 4), 'F16': (1, 1, 2), 'BF16': (30, 1, 2), 'Q4_0': (2, 32, 18), 'Q4_1': (3, 32, 20), 'Q5_0': (6, 32, 22), 'Q5_1': (7, 32, 24), 'Q8_0': (8, 32, 34),
         'Q4_K': (12, 256, 144), 'Q5_K': (13, 256, 176), 'Q6_K': (14, 256, 210)}
# Types of values: number, how it is packed.
values = {'U8': (0, 'B'), 'I8': (1, 'b'), 'U16': (2, 'H'), 'I16': (3, 'h'), 'U32': (4, 'I'), 'I32': (5, 'i'), 'F32': (6, 'f'), 'BOOL': (7, '?'), 'U64': (10, 'Q'),
          'I64': (11, 'q'), 'F64': (12, 'd')}


def text(x):
    x = x if isinstance(x, bytes) else x.encode()
    return struct.pack('<Q', len(x)) + x


def value(kind, x):
    """A value after its type: ('U32', 5), ('STR', 'a'), ('ARR', ('U32', [1, 2]))."""
    if kind == 'STR':
        return struct.pack('<I', 8) + text(x)
    if kind == 'ARR':
        of, entries = x
        number = 8 if of == 'STR' else values[of][0]
        return struct.pack('<IIQ', 9, number, len(entries)) + b''.join(text(e) if of == 'STR' else struct.pack('<' + values[of][1], e) for e in entries)
    number, code = values[kind]
    return struct.pack('<I', number) + struct.pack('<' + code, x)


def write(path, keys, tensors, version=3, alignment=32):
    """keys: {name: (kind, value)}; tensors: {name: (type, shape, bytes)}, the shape with the fastest dimension last."""
    out = b'GGUF' + struct.pack('<IQQ', version, len(tensors), len(keys))
    for name, x in keys.items():
        out += text(name) + value(*x)
    data = b''
    for name, (kind, shape, content) in tensors.items():
        data += b'\0' * (-len(data) % alignment)
        out += text(name) + struct.pack(f'<I{len(shape)}QIQ', len(shape), *reversed(shape), types[kind][0], len(data))
        data += content
    out += b'\0' * (-len(out) % alignment)
    pathlib.Path(path).write_bytes(out + data)
    return path


def read(path):
    """{name of a key: (kind, value)} and {name of a tensor: (type, shape, bytes)} of a file, as write() takes them. Whatever is no such file is an exception."""
    data, at = pathlib.Path(path).read_bytes(), 4

    def take(code):
        nonlocal at
        at += struct.calcsize('<' + code)
        return struct.unpack_from('<' + code, data, at - struct.calcsize('<' + code))

    def words():
        return take(f'{take("Q")[0]}s')[0].decode()

    kinds, found = {number: (kind, code) for kind, (number, code) in values.items()}, {number: kind for kind, (number, _, _) in types.items()}

    def value_of(number):
        if number == 8:
            return 'STR', words()
        if number == 9:
            of, length = take('IQ')
            if of == 8:
                return 'ARR', ('STR', [words() for _ in range(length)])
            kind, code = kinds[of]
            return 'ARR', (kind, list(take(f'{length}{code}')))
        kind, code = kinds[number]
        return kind, take(code)[0]

    assert data[:4] == b'GGUF', data[:4]
    version, tensors, keys = take('IQQ')
    assert version == 3, version
    said = {}
    for _ in range(keys):
        name = words()
        assert name not in said, name
        said[name] = value_of(take('I')[0])
    lines = []
    for _ in range(tensors):
        name = words()
        shape = list(reversed(take(f'{take("I")[0]}Q')))
        lines.append((name, shape, *take('IQ')))
    begin, out = (at + 31) // 32 * 32, {}
    for name, shape, number, offset in lines:
        kind = found[number]
        _, numbers, length = types[kind]
        size = math.prod(shape) // numbers * length
        assert offset % 32 == 0 and shape[-1] % numbers == 0 and name not in out and begin + offset + size <= len(data), (name, shape, kind, offset)
        out[name] = (kind, shape, data[begin + offset:begin + offset + size])
    assert len(data) == max(begin + o + len(out[n][2]) for n, _, _, o in lines), 'bytes after the last tensor'
    return said, out


def numbers_in(tensor):
    """The numbers of a tensor as read() gives it."""
    kind, _, content = tensor
    _, numbers, length = types[kind]
    if numbers == 1:
        return list(galley_test._numbers(kind, content))
    return [x for i in range(0, len(content), length) for x in decode(kind, content[i:i + length])]


def f32(x):
    return struct.unpack('<f', struct.pack('<f', x))[0]


def bytes_of(kind, numbers):
    if kind == 'BF16':
        return b''.join(struct.pack('<f', x)[2:] for x in numbers)
    return struct.pack(f'<{len(numbers)}{dict(F32="f", F16="e")[kind]}', *numbers)


# ---- Blocks: made of random codes, so that every bit of them occurs ------------------------------------------------------------------------


def scales_of(packed):
    """The eight scales and minimums of 6 bits of a block of Q4_K or Q5_K."""
    low = [(packed[j] & 63, packed[j + 4] & 63) for j in range(4)]
    return low + [((packed[j + 4] & 15) | packed[j - 4] >> 6 << 4, packed[j + 4] >> 4 | packed[j] >> 6 << 4) for j in range(4, 8)]


def decode(kind, block):
    """The numbers of a block, exact but for the last difference."""
    half = lambda at: struct.unpack_from('<e', block, at)[0]
    bit = lambda at, i: block[at + i // 8] >> i % 8 & 1
    nibble = lambda at, i: block[at + i % 16] >> 4 * (i // 16) & 15
    if kind == 'Q8_0':
        return [half(0) * x for x in struct.unpack_from('<32b', block, 2)]
    if kind == 'Q4_0':
        return [half(0) * (nibble(2, i) - 8) for i in range(32)]
    if kind == 'Q4_1':
        return [half(0) * nibble(4, i) + half(2) for i in range(32)]
    if kind == 'Q5_0':
        return [half(0) * ((nibble(6, i) | bit(2, i) << 4) - 16) for i in range(32)]
    if kind == 'Q5_1':
        return [half(0) * (nibble(8, i) | bit(4, i) << 4) + half(2) for i in range(32)]
    if kind in ('Q4_K', 'Q5_K'):
        scales, out = scales_of(block[4:16]), []
        for i in range(256):
            group, at = i // 32, (48 if kind == 'Q5_K' else 16) + i // 64 * 32 + i % 32
            code = block[at] >> 4 * (group % 2) & 15
            if kind == 'Q5_K':
                code |= (block[16 + i % 32] >> group & 1) << 4
            out.append(half(0) * scales[group][0] * code - half(2) * scales[group][1])
        return out
    out, scales = [], struct.unpack_from('<16b', block, 192)
    for i in range(256):
        part, within = i // 128, i % 128
        low = block[part * 64 + within % 64] >> 4 * (within // 64) & 15
        high = block[128 + part * 32 + within % 32] >> 2 * (within // 32) & 3
        out.append(half(208) * scales[i // 16] * ((low | high << 4) - 32))
    return out


def block(kind, generator, size=0.02):
    """A random block whose numbers are about as large as `size`."""
    _, numbers, length = types[kind]
    out = bytearray(generator.randbytes(length))
    spread = size * generator.uniform(0.5, 2)
    halves = {'Q8_0': [(0, spread / 64)], 'Q4_0': [(0, spread / 4)], 'Q5_0': [(0, spread / 8)], 'Q4_1': [(0, spread / 4), (2, -2 * spread)], 'Q5_1': [(0, spread / 8), (2, -2 * spread)],
              'Q4_K': [(0, spread / 128), (2, spread / 16)], 'Q5_K': [(0, spread / 256), (2, spread / 16)], 'Q6_K': [(208, spread / 2048)]}
    for at, x in halves[kind]:
        struct.pack_into('<e', out, at, x)
    return bytes(out)


def coded(kind, shape, generator):
    """(type, shape, bytes) and the numbers of a tensor in blocks, row by row."""
    _, numbers, _ = types[kind]
    count = 1
    for extent in shape:
        count *= extent
    blocks = [block(kind, generator) for _ in range(count // numbers)]
    return (kind, shape, b''.join(blocks)), [f32(x) for b in blocks for x in decode(kind, b)]


# ---- A model -------------------------------------------------------------------------------------------------------------------------------

names = {'model.embed_tokens.weight': 'token_embd.weight', 'model.norm.weight': 'output_norm.weight', 'lm_head.weight': 'output.weight', 'input_layernorm': 'attn_norm',
         'post_attention_layernorm': 'ffn_norm', 'self_attn.q_proj': 'attn_q', 'self_attn.k_proj': 'attn_k', 'self_attn.v_proj': 'attn_v', 'self_attn.o_proj': 'attn_output',
         'mlp.gate_proj': 'ffn_gate', 'mlp.up_proj': 'ffn_up', 'mlp.down_proj': 'ffn_down'}


def name_of(parameter):
    if parameter in names:
        return names[parameter]
    _, _, i, rest = parameter.split('.', 3)
    return f'blk.{i}.{names[rest.removesuffix(".weight")]}.weight'


def rows(numbers, shape):
    width = shape[-1] if len(shape) > 1 else 1
    return [numbers[i:i + width] for i in range(0, len(numbers), width)]


def turned(lines, heads):
    """Rows as a GGUF file has those of queries and keys, of rows as transformers has them."""
    size = len(lines) // heads
    return [lines[h * size + s * (size // 2) + i] for h in range(heads) for i in range(size // 2) for s in range(2)]


def turned_back(lines, heads):
    size, out = len(lines) // heads, [None] * len(lines)
    for at, line in enumerate(turned(list(range(len(lines))), heads)):
        out[line] = lines[at]
    return out


def heads_of(name, config):
    return config['num_attention_heads'] if 'q_proj' in name else config['num_key_value_heads'] if 'k_proj' in name else 0


def keys_of(config, **more):
    p = 'llama.'
    out = {'general.architecture': ('STR', 'llama'), 'general.name': ('STR', 'small'), p + 'context_length': ('U32', config['max_position_embeddings']),
           p + 'embedding_length': ('U32', config['hidden_size']), p + 'block_count': ('U32', config['num_hidden_layers']),
           p + 'feed_forward_length': ('U32', config['intermediate_size']), p + 'attention.head_count': ('U32', config['num_attention_heads']),
           p + 'attention.head_count_kv': ('U32', config['num_key_value_heads']), p + 'attention.layer_norm_rms_epsilon': ('F32', config['rms_norm_eps']),
           p + 'rope.freq_base': ('F32', config['rope_theta']), p + 'rope.dimension_count': ('U32', config['hidden_size'] // config['num_attention_heads']),
           p + 'vocab_size': ('U32', config['vocab_size']), 'tokenizer.ggml.tokens': ('ARR', ('STR', [f't{i}' for i in range(config['vocab_size'])])),
           'tokenizer.ggml.scores': ('ARR', ('F32', [0.5] * 3000))}
    out.update(more)
    return out


def shapes_of(config):
    c, f, d = config['hidden_size'], config['intermediate_size'], config['hidden_size'] // config['num_attention_heads']
    out = {'model.embed_tokens.weight': [config['vocab_size'], c]}
    for i in range(config['num_hidden_layers']):
        p = f'model.layers.{i}.'
        kv = d * config['num_key_value_heads']
        out.update({p + 'input_layernorm.weight': [c], p + 'self_attn.q_proj.weight': [c, c], p + 'self_attn.k_proj.weight': [kv, c], p + 'self_attn.v_proj.weight': [kv, c],
                    p + 'self_attn.o_proj.weight': [c, c], p + 'post_attention_layernorm.weight': [c], p + 'mlp.gate_proj.weight': [f, c], p + 'mlp.up_proj.weight': [f, c],
                    p + 'mlp.down_proj.weight': [c, f]})
    out['model.norm.weight'] = [c]
    if not config['tie_word_embeddings']:
        out['lm_head.weight'] = [config['vocab_size'], c]
    return out


def divisors(scaling, head, theta):
    """By what Llama 3's RoPE divides the frequencies of a head."""
    out = []
    for i in range(head // 2):
        turns = scaling['original_max_position_embeddings'] * theta ** (-2 * i / head) / (2 * math.pi)
        low, high = scaling['low_freq_factor'], scaling['high_freq_factor']
        share = min(max((turns - low) / (high - low), 0), 1)
        out.append(1 / ((1 - share) / scaling['factor'] + share))
    return out


def make(folder, config, kind_of, seed=1, freqs=None, **more):
    """A model of random numbers: folder/model.gguf with each parameter in the type that kind_of(name, shape) says, and folder/plain, the same numbers in F32 as
    transformers has them. Returns {name of the parameter: its numbers}."""
    generator, folder = random.Random(seed), pathlib.Path(folder)
    (folder / 'plain').mkdir(parents=True)
    packed, plain = {}, {}
    for name, shape in shapes_of(config).items():
        kind, heads = kind_of(name, shape), heads_of(name, config)
        if types[kind][1] > 1:
            packed[name_of(name)], numbers = coded(kind, shape, generator)
        else:
            count = shape[0] * (shape[1] if len(shape) > 1 else 1)
            numbers = [f32(1 + generator.gauss(0, 0.1) if len(shape) == 1 else generator.gauss(0, 0.08)) for _ in range(count)]
            content = bytes_of(kind, numbers)
            if kind != 'F32':
                numbers = list(galley_test._numbers(kind, content))
            packed[name_of(name)] = (kind, shape, content)
        if heads:
            numbers = [x for line in turned_back(rows(numbers, shape), heads) for x in line]
        plain[name] = ('F32', shape, numbers)
    if freqs:
        packed['rope_freqs.weight'] = ('F32', [len(freqs)], bytes_of('F32', freqs))
    write(folder / 'model.gguf', keys_of(config, **more), packed)
    galley_test.save(folder / 'plain' / 'model.safetensors', plain)
    (folder / 'plain' / 'config.json').write_text(json.dumps(dict(config, model_type='llama', architectures=['LlamaForCausalLM'], hidden_act='silu')))
    return {name: x[2] for name, x in plain.items()}
