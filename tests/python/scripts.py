#!/usr/bin/env python3
"""Every script runs as its header says: each command there, with a tiny model and tiny data in the places of DIR, FILE, PATH and books, and two steps."""
import os
import pathlib
import re
import shlex
import subprocess

import scripts_kit
from galley_test import binary, check, finish, fresh_folder, program, run, source

fresh_folder()

scripts_kit.make()

# ---- The commands of each header --------------------------------------------------------------------------------------------------------

on_two_memories = {'--device cuda': f'--device discrete --plugin-path {shlex.quote(str(binary / "tests" / "plugins" / "discrete"))}'}
for script, header in scripts_kit.scripts():
    lines = scripts_kit.commands(header)
    check(len(lines) >= 2 and any(' train ' in x for x in lines) and any(x in y for y in lines for x in (' sample ', ' eval ')), f'{script.name}: its header says {lines}')
    check(re.search(r'\btokens\b|\bbytes\b', header) and re.search(r'[Bb]ytes', header), f'{script.name}: no arithmetic of tokens and bytes in its header')
    for line in lines:
        words = shlex.split(scripts_kit.filled(script, line, **on_two_memories))
        if words[1] in ('plan', 'data', 'train', 'compare', 'fit'):
            if words[2] != 'mine.lua':  # what galley fit has written
                check(words[2] == f'scripts/{script.name}', f'{script.name}: another script in {line}')
                words[2] = str(script)
            words += scripts_kit.sizes(script)
        if words[1] == 'sample':
            words += ['--tokens', '4', '--plugin-path', str(binary / 'tests' / 'plugins' / 'discrete')]
        ran = subprocess.run([program, *words[1:]], capture_output=True, text=True, errors='replace', timeout=300, input='How many?\n',
                             env=dict(os.environ, GALLEY_CACHE=os.path.abspath('cache'), OMP_NUM_THREADS='1'))
        check(ran.returncode == 0, f'{script.name}: exit code {ran.returncode} of {shlex.join(words)}\n{ran.stdout[-500:]}{ran.stderr[-1000:]}')

# What the headers name as choices.
for script, sets in (('finetune', ['precision=bf16', 'weights=bf16']), ('finetune', ['recompute=false']), ('lora', ['precision=bf16', 'recompute=false']),
                     ('chat', ['adapter=true', 'precision=bf16']),
                     ('pretrain', ['precision=bf16', 'layers=1', 'width=32', 'heads=2', 'vocab=400', 'tokenizer=bpe'])):
    given = [*sets, *dict(finetune=['text=books', 'model=base/model'], lora=['data=prompts.jsonl', 'model=base/model'],
                          chat=['chat=chat.jsonl', 'model=base/model'], pretrain=['text=books'])[script], 'steps=1', 'length=64']
    out = f'{script}-{sets[0]}'
    run('train', source / 'scripts' / f'{script}.lua', '--out', out, *[x for y in given for x in ('--set', y)])
    check((pathlib.Path(out) / 'metrics.jsonl').exists(), f'{out}: no metrics')
finish()
