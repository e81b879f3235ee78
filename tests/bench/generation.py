#!/usr/bin/env python3
"""Tokens a second of `galley sample` beside transformers' generate() and llama.cpp, greedy, on the CPU: one text, a batch of texts, and how long the first token takes.

Usage: PYTHON tests/bench/generation.py GALLEY [rounds=5] [tokens=64] [prompt=20] [batch=8] [threads=2] [dtype=f32|bf16] [llama=LLAMA_BENCH] [out=FILE]

PYTHON has torch and transformers; LLAMA_BENCH is llama.cpp's llama-bench, which gets the same weights as `galley export --format gguf` writes them. The model has random
weights in the shape of SmolLM2-135M. The sides run in turn, the other one first each time. A token's time is that from the first quarter of the tokens to the last one, as
they are printed; in a batch it is the difference between two runs, of `tokens` and of a quarter as many, so that loading does not count. The first token's is that of a
run of one token over that of one after a prompt of one, the least of three each. First of all both sides have to write the same tokens (in F32; in BF16 it is said how
many are equal); if they do not, no time is printed. `read` is how fast memory is read here: a sum of 512 MB by torch, the fastest of ten."""
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

galley = pathlib.Path(sys.argv[1]).resolve()
given = dict(x.split('=', 1) for x in sys.argv[2:])
rounds, tokens, prompt, batch, threads = (int(given.get(k, v)) for k, v in (('rounds', 5), ('tokens', 64), ('prompt', 20), ('batch', 8), ('threads', 2)))
dtype, llama = given.get('dtype', 'f32'), given.get('llama')
os.environ['OMP_NUM_THREADS'] = str(threads)
import torch
import transformers

transformers.logging.set_verbosity_error()
torch.set_num_threads(threads)
few = tokens // 4
folder = pathlib.Path(tempfile.mkdtemp(prefix='galley-generation-'))


def made():
    torch.manual_seed(5)
    config = transformers.LlamaConfig(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
                                      head_dim=64, max_position_embeddings=2048, rope_theta=100000.0, tie_word_embeddings=True, bos_token_id=None, eos_token_id=None,
                                      pad_token_id=None)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for x in model.parameters():
            if x.dim() > 1:
                x.normal_(0, .04)
    model = model.to(torch.bfloat16 if dtype == 'bf16' else torch.float32)
    model.save_pretrained(folder / 'bare')
    model.save_pretrained(folder / 'model')
    vocabulary = {'type': 'WordLevel', 'vocab': {f'w{i}': i for i in range(config.vocab_size)}, 'unk_token': 'w0'}
    (folder / 'model/tokenizer.json').write_text(json.dumps({'version': '1.0', 'truncation': None, 'padding': None, 'added_tokens': [], 'normalizer': None,
                                                             'pre_tokenizer': {'type': 'WhitespaceSplit'}, 'post_processor': None, 'decoder': None, 'model': vocabulary}))
    return model.eval()


def ids_of(text, length):
    return [(37 * i + 101 * text + 5) % 49000 for i in range(length)]


def seconds(work):
    begin = time.perf_counter()
    out = work()
    return time.perf_counter() - begin, out


def by_galley(texts, length, n):
    lines = ''.join(json.dumps(' '.join(f'w{i}' for i in ids_of(t, length))) + '\n' for t in range(texts))
    words = [galley, 'sample', folder / 'model', '--lines', '--batch', texts, '--temperature', 0, '--tokens', n, '--length', 512]
    out = subprocess.run([str(x) for x in words], input=lines, capture_output=True, text=True, check=True).stdout
    return [[int(x[1:]) for x in json.loads(line)['text'].split()] for line in out.splitlines()]


def streamed(n):
    """Seconds a token, by when words are printed."""
    words = [galley, 'sample', folder / 'model', '--prompt', ' '.join(f'w{i}' for i in ids_of(0, prompt)), '--temperature', 0, '--tokens', n, '--length', 512]
    process = subprocess.Popen([str(x) for x in words], stdout=subprocess.PIPE)
    seen, begin, at, text = 0, 0, 0, b''
    while piece := os.read(process.stdout.fileno(), 1 << 16):
        at, text = time.perf_counter(), text + piece
        if not begin and text.count(b'w') >= prompt + n // 4:
            begin, seen = at, text.count(b'w')
    process.wait()
    return (at - begin) / (text.count(b'w') - seen)


def by_transformers(texts, length, n):
    ids = torch.tensor([ids_of(t, length) for t in range(texts)])
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=n, min_new_tokens=n, do_sample=False)
    return out[:, length:].tolist()


def by_llama(n):
    words = [llama, '-m', str(folder / 'model.gguf'), '-t', str(threads), '-p', str(prompt), '-n', str(n), '-r', '1', '-o', 'json']
    out = subprocess.run(words, capture_output=True, text=True, check=True)
    return {'first' if x['n_prompt'] else 'token': 1 / x['avg_ts'] * (x['n_prompt'] or 1) for x in json.loads(out.stdout)}


def measured(work):
    """Seconds of a token, of a token of a batch, and of the first one."""
    apart = lambda texts: (seconds(lambda: work(texts, prompt, tokens))[0] - seconds(lambda: work(texts, prompt, few))[0]) / (tokens - few)
    one, many = streamed(tokens) if work is by_galley else apart(1), apart(batch)
    least = [min(seconds(lambda: work(1, n, 1))[0] for _ in range(3)) for n in (prompt, 1)]
    first = least[0] - least[1] + one
    return dict(token=one, batch=many / batch, first=first)


model = made()
if llama:
    subprocess.run([str(galley), 'export', str(folder / 'bare'), '--format', 'gguf', '--out', str(folder / 'model.gguf'), '--unchecked'], check=True, capture_output=True)
data = torch.ones(128 << 20)
read = max(data.numel() * 4 / seconds(data.sum)[0] for _ in range(10)) / 1e9
weights = sum(x.numel() * x.element_size() for x in model.parameters())
ours, theirs = by_galley(2, prompt, tokens), by_transformers(2, prompt, tokens)
same = [next((i for i, (a, b) in enumerate(zip(x, y)) if a != b), len(y)) for x, y in zip(ours, theirs)]
if dtype == 'f32' and same != [tokens, tokens]:
    sys.exit(f'the sides write other tokens: {same} of {tokens} are equal')
sides = {'galley': lambda: measured(by_galley), 'transformers': lambda: measured(by_transformers), **({'llama.cpp': lambda: by_llama(tokens)} if llama else {})}
found = {name: [] for name in sides}
for turn in range(rounds):
    for name in list(sides)[::1 if turn % 2 == 0 else -1]:
        time.sleep(2)  # torch's threads wait for work without rest for a while
        found[name].append(sides[name]())
        print(f'round {turn + 1}: {name} ' + ', '.join(f'{k} {1000 * v:.1f} ms' for k, v in found[name][-1].items()), file=sys.stderr, flush=True)
middle = {name: {k: statistics.median(x[k] for x in runs) for k in runs[0]} for name, runs in found.items()}
cpu = re.search(r'model name\s*: (.*)', pathlib.Path('/proc/cpuinfo').read_text())[1]
lines = [f'SmolLM2-135M\'s shape, {dtype}, {threads} threads, {cpu}; prompt of {prompt}, {tokens} tokens, {rounds} rounds; {same[0]} and {same[1]} of {tokens} tokens equal '
         'to those of transformers', '',
         '| side | ms a token | tokens/s | ms a token, batch of %d | ms to the first token |' % batch, '|---|---|---|---|---|']
for name, x in middle.items():
    many = f'{1000 * x["batch"]:.1f}' if 'batch' in x else '–'
    lines.append(f'| {name} | {1000 * x["token"]:.1f} | {1 / x["token"]:.1f} | {many} | {1000 * x["first"]:.0f} |')
ratios = {name: [a['token'] / b['token'] for a, b in zip(found[name], found['galley'])] for name in sides if name != 'galley'}
lines += ['', *(f'{name} takes {min(r):.2f} to {max(r):.2f} times as long a token, by rounds; the middle is {statistics.median(r):.2f}.' for name, r in ratios.items()),
          f'{weights / middle["galley"]["token"] / 1e9:.1f} GB/s of weights, {weights / middle["galley"]["token"] / 1e9 / read:.2f} of how fast memory is read '
          f'({read:.1f} GB/s).',
          f'A batch of {batch} makes {middle["galley"]["token"] / middle["galley"]["batch"]:.2f} times the tokens of one text.']
print('\n'.join(lines))
if 'out' in given:
    pathlib.Path(given['out']).write_text('\n'.join(lines) + '\n')
