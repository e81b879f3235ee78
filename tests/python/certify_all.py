#!/usr/bin/env python3
# label: all
"""galley certify over every strategy that comes with Galley: what it declares holds, on a small model of both families, of a GGUF file, and in the recipes in
scripts/, as their headers train them; and adapters beside quantizers over all families and tasks, with several seeds. galley check over the ops of all models."""
import json
import pathlib
import re
import shlex

import gguf_kit
import scripts_kit
from discrete_kit import discrete
from galley_test import binary, check, every, finish, fresh_folder, from_config, in_slice, lua, recipe, run, sliced, strategies, use

fresh_folder()
import families_kit  # noqa: E402

uses, beside = strategies()
models = {'gpt2': from_config('gpt2', vocab_size=61, n_positions=32, n_embd=32, n_layer=3, n_head=4),
          'llama': from_config('llama', vocab_size=61, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                               max_position_embeddings=32)}
uses['freeze'] = 'use "freeze" { blocks = 1 }'
uses['lora'] = 'use "lora" { rank = 4, alpha = 8, targets = "all-linear", dropout = 0.1 }'
# Held by their ops alone: what they compute is their own.
by_references = {'adafactor', 'adam', 'adamw', 'lion', 'muon', 'sgd', 'ema'}
adamw = use('adamw', lr=1e-3, weight_decay=0.1)


def certify(name, path, *words):
    r = run('certify', path, '--json', f'{name}.json', *words)
    said = json.loads(pathlib.Path(f'{name}.json').read_text())
    check(not any(x['verdict'] == 'BREACH' for x in said['strategies']) and not said['fault'], f'{name}: {r.stdout}')
    return {x['strategy']: x for x in said['strategies']}


held = {}
for family, model in models.items():
    for name in uses:
        if name == 'quantize-gguf' or not in_slice():  # the first is nothing without such a file, below
            continue
        names = [*beside.get(name, [])[:1], name]
        said = None
        for optimizer in ([], [adamw]):
            path = recipe(f'{family}-{name}.lua', model, 'data.random {}', *(uses[n] for n in names), *optimizer, batch=2, length=16, steps=3, seed=9)
            try:
                run('plan', path, *discrete)
            except SystemExit:
                continue
            said = certify(f'{family}-{name}', path, *discrete)
            break
        check(said and said[name]['verdict'] == 'holds', f'{family}, {name}: {said and said[name]}')
        if said:
            held[name] = said[name]
            check((said[name]['against'] == 'references') == (name in by_references), f'{name} is held against {said[name]["against"]}')
llama = dict(model_type='llama', vocab_size=61, hidden_size=256, intermediate_size=512, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=32, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False)
gguf_kit.make('blocks', llama, lambda name, shape: 'F32' if len(shape) == 1 else 'Q8_0')
path = recipe('gguf.lua', f'model {{ path = {lua(pathlib.Path("blocks/model.gguf"))} }}', 'data.random {}', use('quantize-gguf'), uses['lora'], adamw,
              batch=2, length=16, steps=3)
held.update({k: x for k, x in certify('gguf', path).items() if k == 'quantize-gguf'})
check(held['quantize-gguf']['verdict'] == 'holds', held['quantize-gguf'])

# ---- The recipes in scripts/: each strategy holds, or its row says why it is not held
scripts_kit.make()
certified = 0
for script, header in scripts_kit.scripts():
    for line in scripts_kit.commands(header):
        if not line.startswith('galley train ') or not in_slice():
            continue
        line = scripts_kit.filled(script, line, **{'tokenizer=tokenizer': 'tokenizer=bpe'})
        words = shlex.split(re.sub(r' --out \S+| --device cuda', '', line))[3:] + scripts_kit.sizes(script)
        if '--device cuda' in line:
            words += discrete
        seen = certify(script.stem, script, *map(str, words))
        check(every(x['verdict'] == 'holds' or x['sentence'] for x in seen.values()), f'{script.name}: {seen}')
        certified += 1
        for x in seen.values():
            if x['verdict'] != 'holds':
                print(f'{script.name}: {x["strategy"]} is not held: {x["sentence"]}')
check(sliced or certified >= 12, f'{certified} command lines')

# ---- Adapters beside quantizers, over families and tasks: another seed each
cases = dict(families_kit.cases)
for name, config in (('roberta', families_kit.roberta), ('distilbert', families_kit.distil)):
    cases[name + '-rows'] = (families_kit.of(name, config, 'sequence-classification', labels=2), families_kit.labels + ' }')
adapters = {'lora': use('lora', rank=2), 'vera': use('vera', rank=4, targets='all-linear'), 'ia3': use('ia3', targets='attention')}
quantizers = [use('quantize-nf4'), use('quantize-nf4', type='fp4', double=True), use('quantize-int8')]
for k, (case, (model, data)) in enumerate(sorted(cases.items())):
    for a, (adapter, line) in enumerate(adapters.items()):
        for seed in (1 + k, 31 + k):
            if not in_slice():
                continue
            amp = [use('amp', compute='bf16')] if (k + a + seed) % 2 else []
            path = recipe(f'{case}-{adapter}-{seed}.lua', model, data, *amp, quantizers[(k + a + seed) % 3], line, use('adamw', lr=1e-3), batch=1, length=24, steps=3,
                          seed=seed, **({'target_length': 10} if case.startswith('t5') else {}))
            said = certify(f'{case}-{adapter}-{seed}', path)
            check(said[adapter]['against'] == 'start' and said[adapter]['verdict'] == 'holds', f'{case}, {adapter}: {said[adapter]}')

# ---- The ops of all models, with numbers of another seed than the tests'
if not sliced:
    r = run('check', binary / 'plugins' / 'models', '--seed', 3)
    check(r.stdout.splitlines()[-1].endswith('nothing found'), r.stdout[-2000:])

for name, x in sorted(held.items()):
    print(f'{name:20} {x["declared"]:12} {x["against"]:12}', *(f'{x[k]["largest"]:9.1e}' if x[k] else f'{"-":>9}' for k in ('loss', 'gradients', 'updates')))
check(sliced or len(held) == len(uses), f'strategies without a certificate: {sorted(set(uses) - set(held))}')
finish()
