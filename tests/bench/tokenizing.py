#!/usr/bin/env python3
"""Times `galley tokenize` beside the tokenizers library (pip install tokenizers), interleaved: whole processes of ours, JSON in and out included, against
encode_batch of theirs alone, one thread each; and two threads of ours. Equality of the ids is the business of tests/python/tokenizer_files.py.

Usage: tokenizing.py GALLEY TEXTS_JSONL ROUNDS TOKENIZER_JSON…     TEXTS_JSONL: lines {"text": …}
"""
import json
import os
import statistics
import subprocess
import sys
import time

os.environ.update(TOKENIZERS_PARALLELISM='false', RAYON_NUM_THREADS='1')
import tokenizers  # noqa: E402: it reads its threads from the environment

if len(sys.argv) < 5:
    sys.exit(__doc__)
galley, lines, rounds, files = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
texts = [json.loads(line)['text'] for line in open(lines, encoding='utf-8', newline='\n')]


def ours(file, threads):
    begin = time.perf_counter()
    with open(lines, 'rb') as source:
        subprocess.run([galley, 'tokenize', file, '--threads', str(threads)], stdin=source, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def theirs(file):
    tokenizer = tokenizers.Tokenizer.from_file(file)
    begin = time.perf_counter()
    for at in range(0, len(texts), 1000):
        tokenizer.encode_batch(texts[at:at + 1000], add_special_tokens=False)
    return time.perf_counter() - begin


print(f'{os.path.getsize(lines) / 1e6:.1f} MB, seconds, median of {rounds}; tokenizers {tokenizers.__version__}')
print(f'{"tokenizer":24} {"library":>8} {"galley":>8} {"ratio":>6} {"2 threads":>10} {"ratio":>6}')
for file in files:
    seconds = [(theirs(file), ours(file, 1), ours(file, 2)) for _ in range(rounds)]
    library, one, two = (statistics.median(column) for column in zip(*seconds))
    ratios = statistics.median(a / b for a, b, _ in seconds), statistics.median(b / c for _, b, c in seconds)
    print(f'{os.path.basename(os.path.dirname(file)):24} {library:8.2f} {one:8.2f} {ratios[0]:6.2f} {two:10.2f} {ratios[1]:6.2f}', flush=True)
