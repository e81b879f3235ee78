#!/usr/bin/env python3
"""Every script runs as its header says: each command there, with a tiny model and tiny data in the places of DIR, FILE, PATH and books, and two steps."""
import json
import os
import pathlib
import re
import shlex
import subprocess

from galley_test import binary, check, finish, fresh_folder, program, recipe, run, source, use

fresh_folder()

# ---- What people have: texts, JSON lines, a folder from Hugging Face with a tokenizer and a chat template -------------------------------

text = ''.join(f'It was day {i}, and the galley sailed on. The cook counted {i * 7 % 40} loaves.\n' for i in range(300))
pathlib.Path('books').mkdir()
for i in range(6):
    (pathlib.Path('books') / f'{i}.txt').write_text(text[i * 3000:i * 3000 + 3000])
pairs = [(f'How many loaves on day {i}?', f'The cook counted {i * 7 % 40} loaves.') for i in range(60)]
pathlib.Path('prompts.jsonl').write_text(''.join(json.dumps(dict(prompt=p, answer=a)) + '\n' for p, a in pairs))
pathlib.Path('chat.jsonl').write_text(''.join(
    json.dumps(dict(messages=[dict(role='user', content=p), dict(role='assistant', content=a)])) + '\n' for p, a in pairs))
run('tokenize', '--train', 'books/*.txt', '--vocab', 320, '--out', 'bpe')
base = recipe('base.lua', 'model { family = "llama", config = { vocab_size = 400, hidden_size = 32, intermediate_size = 48, num_hidden_layers = 2, '
              'num_attention_heads = 2, max_position_embeddings = 512, tie_word_embeddings = true } }',
              'data.text { files = "books", tokenizer = "bpe" }', use('sgd', lr=0.0), batch=1, length=16, steps=1)
run('train', base, '--out', 'base')
settings = pathlib.Path('base/model/tokenizer_config.json')
settings.write_text(json.dumps(dict(json.loads(settings.read_text()), chat_template=(
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"))))

# ---- The commands of each header --------------------------------------------------------------------------------------------------------

places = {'DIR': 'base/model', 'PATH': 'books', 'text=.': 'text=books', '50304': '320',
          '--device cuda': f'--device discrete --plugin-path {shlex.quote(str(binary / "tests" / "plugins" / "discrete"))}'}  # another device with two memories
small = dict(steps=2, length=64, layers=1, width=32, heads=2, vocab=400, accumulate=2, least=1)
for script in sorted((source / 'scripts').glob('*.lua')):
    header = re.match(r'(?:--.*\n)+', script.read_text()).group(0)
    lines = re.findall(r'^--   (galley .*?)(?: {6,}.*)?$', header, re.M)
    check(len(lines) >= 2 and any(' train ' in x for x in lines) and any(' sample ' in x for x in lines), f'{script.name}: its header says {lines}')
    check(re.search(r'\btokens\b|\bbytes\b', header) and re.search(r'[Bb]ytes', header), f'{script.name}: no arithmetic of tokens and bytes in its header')
    for line in lines:
        line = re.sub(r'  +', ' ', line)
        line = line.replace('FILE', 'chat.jsonl' if script.name in ('chat.lua', 'qlora.lua') else 'prompts.jsonl')
        for place, stands in places.items():
            line = line.replace(place, stands)
        words = shlex.split(line)
        if words[1] in ('plan', 'data', 'train', 'compare', 'fit'):
            if words[2] != 'mine.lua':  # what galley fit has written
                check(words[2] == f'scripts/{script.name}', f'{script.name}: another script in {line}')
                words[2] = str(script)
            words += [x for name, value in small.items() if f'arg("{name}"' in script.read_text() for x in ('--set', f'{name}={value}')]
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
