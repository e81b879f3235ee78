#!/usr/bin/env python3
"""What the README and docs/ say of memory is what the planner says: the table of what fits which card, and the plans that they show. `tests/python/fits.py --update`,
with the variables of galley_test.py, writes them anew."""
import concurrent.futures
import functools
import json
import os
import re
import shlex
import subprocess
import sys

from galley_test import cases, check, finish, program, require, source, together

os.chdir(source)
update = '--update' in sys.argv

# From small to large: the target, and how people call it.
cards = [('rtx4060', '8 GB (RTX 4060)'), ('rtx3060', '12 GB (RTX 3060)'), ('rtx4080', '16 GB (RTX 4080)'), ('rtx4090', '24 GB (RTX 4090)'),
         ('rtx5090', '32 GB (RTX 5090)'), ('l40s', '48 GB (L40S)'), ('h100', '80 GB (H100)'), ('h200', '141 GB (H200)')]
finetune, lora = 'scripts/finetune.lua --set text=LICENSE', 'scripts/lora.lua --set data=docs/fits/prompts.jsonl'
qlora = 'scripts/qlora.lua --set text=LICENSE'
seven = 'scripts/seven-bytes.lua --set text=LICENSE'
methods = {
    'all parameters, F32': finetune,
    'all parameters, BF16': f'{finetune} --set precision=bf16',
    'all parameters, 7 bytes': seven,
    'all parameters, 5 bytes': f'{seven} --set release=true',
    'LoRA, F32': lora,
    'LoRA, BF16': f'{lora} --set precision=bf16',
    'LoRA, BF16, nothing recomputed': f'{lora} --set precision=bf16 --set recompute=false',
    'LoRA beside 4 bit, BF16': qlora,
}
# One batch for all rows of a model.
batches = {'SmolLM2-135M': 4, 'Qwen2.5-0.5B': 4, 'Llama-3.2-1B': 2, 'Llama-3.2-3B': 1, 'Llama-3-8B': 1}
seven_of = ['all parameters, 7 bytes', 'all parameters, 5 bytes']
loras = ['LoRA, BF16', 'LoRA, BF16, nothing recomputed']
trained = {'SmolLM2-135M': ['all parameters, F32', 'all parameters, BF16'],
           'Qwen2.5-0.5B': ['all parameters, F32', 'all parameters, BF16', 'LoRA, BF16'],
           'Llama-3.2-1B': ['all parameters, F32', 'all parameters, BF16', *seven_of, 'LoRA, F32', *loras],
           'Llama-3.2-3B': ['all parameters, BF16', *seven_of, *loras, 'LoRA beside 4 bit, BF16'],
           'Llama-3-8B': ['all parameters, BF16', *seven_of, *loras, 'LoRA beside 4 bit, BF16']}


def command(model, method, batch, card):
    return f'galley plan {methods[method]} --set model=docs/fits/{model} --set tokenizer=bytes --set batch={batch} --set length=2048 --target {card}'


def planned(words, *more):
    """The plan's text, or None where it does not fit."""
    ran = subprocess.run([program, *shlex.split(words)[1:], *more], capture_output=True, text=True)
    if ran.returncode not in (0, 3):
        sys.exit(f'FAILED: exit code {ran.returncode}: {words}\n{ran.stderr}')
    return ran.stdout if ran.returncode == 0 else None


def gib(row, card):
    text = planned(command(*row, card), '--json')
    return text and json.loads(text)['classes']['device']['planned'] / 2**30


def smallest(row):
    """Of a row: the first card that takes it, and the GiB there. The table says which: it is enough to ask that card and the one before."""
    said = None if update else recorded.get(row[:2])
    at = next((i for i, card in enumerate(cards) if card[1] == said), None)
    if at is not None and (at == 0 or gib(row, cards[at - 1][0]) is None):
        if found := gib(row, cards[at][0]):
            return at, found
    for i, card in enumerate(cards):
        if found := gib(row, card[0]):
            return i, found
    sys.exit(f'FAILED: {row} fits no card')


def between(text, name):
    """The part of a page that this script writes."""
    found = re.search(f'<!-- {name} -->\n(.*?)<!-- /{name} -->\n', text, re.S)
    return found.group(1) if found else sys.exit(f'FAILED: no <!-- {name} --> in the page')


pages = {name: (source / name).read_text() for name in ('README.md', 'docs/fits.md', 'docs/plan.md')}
recorded = {}
for line in between(pages['README.md'], 'fits').splitlines():
    cells = [x.strip() for x in line.split('|')[1:-1]]
    if len(cells) == 5:
        recorded[cells[0], cells[1]] = cells[4]

HEADS = {'README.md': '| model | what is trained | batch | memory | smallest card |\n|---|---|---|---|---|\n',
         'docs/fits.md': '| model | what is trained | memory | smallest card | command |\n|---|---|---|---|---|\n'}


@functools.cache
def lines_of(model):
    """The rows of a model in the table of each page."""
    rows = [(model, method, batches[model]) for method in trained[model]]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = list(pool.map(smallest, rows))
    out = dict.fromkeys(HEADS, '')
    for row, (at, size) in together(rows, found):
        out['README.md'] += f'| {row[0]} | {row[1]} | {row[2]} × 2,048 | {size:.1f} GiB | {cards[at][1]} |\n'
        out['docs/fits.md'] += f'| {row[0]} | {row[1]} | {size:.2f} GiB | {cards[at][1]} | `{command(*row, cards[at][0])}` |\n'
    return out


def rows_on(page, model):
    return ''.join(x for x in between(pages[page], 'fits').splitlines(keepends=True) if x.startswith(f'| {model} |'))


def plan_on(page):
    """A plan: what the command above it prints, up to the second memory."""
    words = re.search(r'^    (galley plan .*)$', between(pages[page], 'plan'), re.M)
    require(words, f'{page}: no command in <!-- plan -->')
    made = planned(words.group(1))
    require(made, f'{page}: what {words.group(1)} plans does not fit')
    plan = made.split("\n  memory 'pinned'")[0].rstrip()
    return f'    {words.group(1)}\n\n```\n{plan}\n```\n'


def write(page, name, text):
    before, after = pages[page].split(f'<!-- {name} -->\n')[0], pages[page].split(f'<!-- /{name} -->\n')[1]
    pages[page] = f'{before}<!-- {name} -->\n{text}<!-- /{name} -->\n{after}'
    (source / page).write_text(pages[page])


if update:
    for page, head in HEADS.items():
        write(page, 'fits', head + ''.join(lines_of(model)[page] for model in trained))
    for page in ('README.md', 'docs/plan.md'):
        write(page, 'plan', plan_on(page))


@cases(trained)
def rows(model, _):
    for page in HEADS:
        wanted = lines_of(model)[page]
        check(rows_on(page, model) == wanted, f'{page}, <!-- fits -->, is not what the planner says of {model}:\n{wanted}')


@cases(HEADS)
def nothing_else(page, head):
    """The table has the rows of these models in this order, and no others."""
    wanted = head + ''.join(rows_on(page, model) for model in trained)
    check(between(pages[page], 'fits') == wanted, f'{page}, <!-- fits -->, has other lines than those of its models:\n{wanted}')


@cases(['README.md', 'docs/plan.md'])
def shown(page):
    wanted = plan_on(page)
    check(between(pages[page], 'plan') == wanted, f'{page}, <!-- plan -->, is not what the planner says:\n{wanted}')


finish()
