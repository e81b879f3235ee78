#!/usr/bin/env python3
"""Times `galley tokenize` beside the tokenizers library (pip install tokenizers), interleaved: whole processes of ours, JSON in and out included, against
encode_batch of theirs alone, one thread each; and two threads of ours. First the ids of all texts are compared: where they differ, no time is printed. Rounds take the
other one first each time.

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


def check_ids(file):
    """Of all texts, by both, also with two threads."""
    tokenizer = tokenizers.Tokenizer.from_file(file)
    wanted = [x.ids for x in tokenizer.encode_batch(texts, add_special_tokens=False)]
    for threads in ('1', '2'):
        with open(lines, 'rb') as source:
            said = subprocess.run([galley, 'tokenize', file, '--threads', threads], stdin=source, capture_output=True, check=True).stdout
        made = [json.loads(line)['ids'] for line in said.splitlines()]
        wrong = [i for i, (a, b) in enumerate(zip(made, wanted)) if a != b]
        if wrong or not wanted or len(made) != len(wanted):
            sys.exit(f'{file}, {threads} threads: {len(wrong)} of {len(wanted)} texts have other ids than by the library, the first is line {wrong[:1]}')


def turned(round, file):
    parts = [lambda: theirs(file), lambda: ours(file, 1), lambda: ours(file, 2)]
    seconds = {i: parts[i]() for i in (range(3) if round % 2 == 0 else reversed(range(3)))}
    return seconds[0], seconds[1], seconds[2]


for file in files:
    check_ids(file)
print(f'{os.path.getsize(lines) / 1e6:.1f} MB, seconds, median of {rounds}; tokenizers {tokenizers.__version__}')
print(f'{"tokenizer":24} {"library":>8} {"galley":>8} {"ratio":>6} {"2 threads":>10} {"ratio":>6}')
for file in files:
    seconds = [turned(k, file) for k in range(rounds)]
    library, one, two = (statistics.median(column) for column in zip(*seconds))
    ratios = statistics.median(a / b for a, b, _ in seconds), statistics.median(b / c for _, b, c in seconds)
    print(f'{os.path.basename(os.path.dirname(file)):24} {library:8.2f} {one:8.2f} {ratios[0]:6.2f} {two:10.2f} {ratios[1]:6.2f}', flush=True)
