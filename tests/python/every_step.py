#!/usr/bin/env python3
"""A run that is stopped after any of its steps, and goes on with another number of threads, ends as one that was left alone: the model, the adapter, the state, the best
state and the metrics, to the byte. Of models of every task, too, and where --poison spoils what no kernel may read."""
import json
import pathlib
import shutil

from galley_test import cases, check, finish, fresh_folder, from_config, lines_of, recipe, run, untimed, use

fresh_folder()
import families_kit  # noqa: E402

pathlib.Path('text.txt').write_text(''.join(f'{i} {"one two three" if i % 3 else "the cat sat on the mat"}\n\n' for i in range(30)))
pathlib.Path('sums.jsonl').write_text(''.join(json.dumps(dict(text=f'{i % 5} and {i % 7} are {i % 5 + i % 7}')) + '\n' for i in range(40)))
STEPS = 6
text = 'data.text { files = { "text.txt" }, tokenizer = "bytes", validation = 0.2 }'
lines = 'data.jsonl { files = { "sums.jsonl" }, tokenizer = "bytes" }'
gpt2 = from_config('gpt2', vocab_size=256, n_positions=32, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1)
llama = from_config('llama', vocab_size=256, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                    max_position_embeddings=32)
adamw = use('adamw', lr=1e-2)
rate = 'use "adamw" { lr = %s }'


def stack(*uses, model=gpt2, data=text, flags=(), **entries):
    length = dict(steps=STEPS) if 'epochs' not in entries else {}
    return flags, (model, data, *uses), {**dict(batch=2, length=32, seed=5, save=dict(every=2, keep=3), validate=dict(every=3)), **length, **entries}


stacks = {
    'epochs': stack(rate % 'cosine { peak = 1e-2, warmup = 0.3 }', use('clip', norm=0.5), use('accumulate', steps=2), epochs=1.5),
    'best and patience': stack(use('adamw', lr=0.3), validate=dict(every=1, patience=4), save=dict(every=1, keep=1, best=True)),
    'ema': stack(use('ema', decay=0.8), use('lion', lr=1e-3), use('recompute', every=1)),
    'steps that are skipped': stack(adamw, use('amp', compute='fp16', init=2.0 ** 24, growth_interval=2)),
    'QDoRA': stack(use('quantize-nf4', double=True), use('lora', rank=4, alpha=8, dora=True, dropout=0.1), use('adamw8bit', lr=1e-2), model=llama),
    'a mix': stack(rate % 'wsd { peak = 1e-2, warmup = 2, decay = 2 }', data=f'data.mix {{ {text}, {lines}, weights = {{ 2, 1 }} }}'),
    'a function': stack(rate % 'function(step) return 1e-2 / (1 + step) end', use('layer-decay', decay=0.9), use('update-in-backward'), model=llama),
    'muon in BF16': stack(use('muon', lr=1e-2, rest_lr=1e-3), use('amp', compute='bf16', weights='bf16')),
    'adafactor': stack(use('adafactor', lr=1e-2, beta1=0.9), use('ia3', targets=['k_proj', 'v_proj', 'down_proj']), model=llama),
}
# Models of other tasks.
for task, uses in {'masked': [adamw, use('recompute', every=1)], 'rows': [adamw, use('ema', decay=0.9)], 'several': [use('lion', lr=1e-3)],
                   'tokens': [adamw, use('accumulate', steps=2)], 'pairs': [use('sgd', lr=1e-2, momentum=0.9)], 'decoder-values': [adamw, use('update-in-backward')],
                   't5': [use('lora', rank=2, init='olora', dropout=0.1), adamw]}.items():
    model, data = families_kit.cases[task]
    more = dict(target_length=10) if task == 't5' else {}
    stacks[task] = stack(*uses, model=model, data=data, length=24, steps=4, **more)
split = [use('amp', compute='bf16'), use('split-states', min_size=1), adamw]
stacks |= {
    'split states': stack(*split), 'split states, Lion': stack(use('amp', compute='bf16'), use('split-states', min_size=1), use('lion', lr=1e-3), model=llama),
    'poison': stack(use('lora', rank=4, dropout=0.1), use('recompute', every=1), use('clip', norm=0.5), adamw, steps=3, flags=('--poison',)),
    'poison, split states': stack(*split, model=llama, steps=3, flags=('--poison',)),
}
THREADS = (3, 2, 7)  # by the step: those of the rest


def left(folder):
    """{what: content} of a run: its tensors, and its metrics but for times."""
    out = {str(x.relative_to(folder)): x.read_bytes() for x in pathlib.Path(folder).rglob('*.safetensors')}
    out['metrics'] = untimed(lines_of(folder))
    return out


@cases(stacks, turns=2)
def stopped_after_each_step(name, made):
    flags, (model, data, *uses), entries = made
    folder = name.replace(' ', '-').replace(',', '')
    path = recipe(f'{folder}.lua', model, data, *uses, **entries)
    run('train', path, '--out', folder, *flags)
    whole = left(folder)
    steps = max(x['step'] for x in whole['metrics'] if 'step' in x)
    check(entries.get('steps', STEPS) <= steps <= 20, f'{steps} steps')
    if name == 'steps that are skipped':
        skipped = [x['step'] for x in whole['metrics'] if x.get('skipped')]
        check(0 < len(skipped) < STEPS, f'skipped: {skipped} of {whole["metrics"]}')
    for step in range(1, steps):
        part = f'{folder}-{step}'
        run('train', path, '--out', part, '--until', step, *flags)
        check(not pathlib.Path(part, 'model').exists() and not pathlib.Path(part, 'adapter').exists(), f'after step {step}: it is done')
        check(left(part)['metrics'] != whole['metrics'], f'after step {step}: it has gone on')
        run('resume', part, *flags, threads=THREADS[step % len(THREADS)])
        again = left(part)
        check(set(again) == set(whole), f'after step {step}: {sorted(set(again) ^ set(whole))}')
        for what in sorted(whole):
            check(again[what] == whole[what], f'after step {step}: {what} is another one')
        shutil.rmtree(part)


finish()
