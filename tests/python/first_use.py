#!/usr/bin/env python3
"""What a person meets first: arguments as people type them, names of other trainers, optimizers and patterns that do nothing, plans that do not fit, where a run is and how it
goes on, what it leaves."""
import json
import pathlib
import re
import signal
import subprocess
import time
import tomllib

from galley_test import check, every, finish, fresh_folder, from_config, program, recipe, run, source, train, use

fresh_folder()
model = from_config('gpt2', n_layer=1, n_embd=16, n_head=2, n_positions=16, vocab_size=64, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
small = dict(batch=1, length=16, steps=2)
adam = use('adamw', lr=1e-3)


def refused(words, *uses, code=2, flags=(), **entries):
    said = run('plan', recipe('refused.lua', model, 'data.random {}', *uses, **dict(small, **entries)), *flags, code=code).stderr
    for word in [words] if isinstance(words, str) else words:
        check(word in said, f'{uses}, {entries}: not "{word}" in {said}')


# ---- Arguments ----------------------------------------------------------------------------------------------------------------------------

text = 'return recipe { model = %s, data = data.random {}, batch = arg("batch", 1), length = 16, steps = arg("steps", 2), arg("sums", false) and use "accumulate" { steps = 2 }, %s }'
pathlib.Path('arguments.lua').write_text(text % (model, adam))
positions = re.search(r'a step +(\d+) positions', run('plan', 'arguments.lua', '--set', 'steps=1e1', '--set', 'batch=4', '--set', 'sums=True').stdout)
check(positions and positions.group(1) == '128', f'{positions}')
for given, words in (('steps=0.5', 'for fractions, the recipe has to give a default such as 2.0'), ('steps=ten', 'which decides the type\n'), ('batch_size=4', "did you mean 'batch'?"),
                     ('gradient_accumulation_steps=2', "there is no argument 'gradient_accumulation_steps'\n"), ('sums=yes', 'must be true or false')):
    said = run('plan', 'arguments.lua', '--set', given, code=2).stderr
    check(words in said, f'--set {given}: {said}')
for script in sorted((source / 'scripts').glob('*.lua')):
    asked = set(re.findall(r'arg\("(\w+)"', script.read_text()))
    # What `galley fit` is to choose stands in its script as one_of.
    wanted = {'length', 'steps'} if script.name == 'fit.lua' else {'lr', 'batch', 'accumulate', 'length', 'steps'} | ({'rank'} if 'use "lora"' in script.read_text() else set())
    check(wanted <= asked, f'{script.name} takes no {sorted(wanted - asked)}')

# ---- Names of other trainers --------------------------------------------------------------------------------------------------------------

for name, words in (('batch_size', "did you mean 'batch'?"), ('per_device_train_batch_size', "did you mean 'batch'?"), ('num_train_epochs', "did you mean 'epochs'?"),
                    ('max_seq_length', "did you mean 'length'?"), ('gradient_accumulation_steps', 'use "accumulate" { steps = 4 }'), ('learning_rate', 'use "adamw" { lr = 2e-5 }'),
                    ('precision', 'use "amp" { compute = "bf16" }'), ('bf16', 'use "amp"'), ('load_in_4bit', 'use "quantize-nf4"'), ('warmup_steps', 'warmup = 100'),
                    ('lr_scheduler_type', 'cosine'), ('gradient_checkpointing', 'use "recompute" {}'), ('save_steps', 'save = { every = 100'), ('eval_steps', 'validate = { every = 50'),
                    ('output_dir', '--out DIR'), ('lora_alpha', 'use "lora"')):
    refused([f"unknown option '{name}' of the recipe", words], adam, **{name: 2})
pathlib.Path('torch.lua').write_text(text.replace('model = %s', 'model = model { path = "x", torch_dtype = "bfloat16" }') % adam)
check('use "amp"' in run('plan', 'torch.lua', code=2).stderr, 'torch_dtype of model')

# ---- What does nothing ----------------------------------------------------------------------------------------------------------------------

lora = use('lora', rank=2)
refused(["refused.lua:8: adamw has nothing to update: every parameter that is trained is that of muon (refused.lua:9)", 'parameters ='], lora, use('adamw', lr=1e-3),
        use('muon', lr=1e-3, rest='none'))
refused('the recipe has no optimizer')
refused("clip needs an optimizer, and the recipe has none", use('clip', norm=1.0))
zzz = dict(match='zzz*', lr_factor=2.0)
near = "the nearest "
for uses in ((lora, use('adamw', lr=1e-3, groups=[zzz])), (use('adamw', lr=1e-3, groups=[zzz]),), (lora, use('lion8bit', lr=1e-3, parameters='zzz*'), adam),
             (use('sgd', lr=1e-3, groups=[zzz]),), (use('adafactor', lr=1e-3, parameters='zzz*'), adam), (use('muon', lr=1e-3, rest_lr=1e-3, groups=[zzz]),),
             (use('update-in-backward', parameters='zzz*'), adam), (use('amp'), use('split-states', parameters='zzz*'), adam), (use('freeze', patterns='zzz*'), adam),
             (use('freeze', **{'except': 'zzz*'}), adam)):
    refused(["no parameter is called 'zzz*'; " + near], *uses)
refused(["no node is called 'zzz*'; " + near], use('amp', **{'except': 'zzz*'}), adam)
refused(["no state is called 'zzz*'; " + near], use('amp'), use('split-states', states='zzz*'), adam)
refused(["'*attn.c_attn.weight' names parameters that are not trained; " + near + "are 'base_model"], lora, use('adamw', lr=1e-3, groups=[dict(match='*attn.c_attn.weight')]))
run('plan', recipe('matches.lua', model, 'data.random {}', lora, use('adamw', lr=1e-3, groups=[dict(match='*lora_B*', lr_factor=2.0)]), **small))

# ---- Words before jargon --------------------------------------------------------------------------------------------------------------------

refused(['update-in-backward (refused.lua:7) updates each parameter before all gradients are there, and clip (refused.lua:8) needs all of them: '],
        use('update-in-backward'), use('clip', norm=1.0), adam)
refused(['two strategies decide what is trained: lora (refused.lua:7) trains ', 'vera (refused.lua:8) freezes it'], lora, use('vera', rank=2), adam)
pathlib.Path('comma.lua').write_text('return recipe {\n  batch = 2,\n  length = 16\n  use "sgd" { lr = 0.1 },\n}\n')
said = run('plan', 'comma.lua', code=2).stderr
check('comma.lua:4: ' in said and 'line 4: use "sgd" { lr = 0.1 },' in said and 'a comma may be missing at the end of line 3: length = 16' in said, said)

# ---- Plans that do not fit ------------------------------------------------------------------------------------------------------------------

wide = recipe('wide.lua', from_config('gpt2', n_layer=2, n_embd=64, n_head=2, n_positions=64, vocab_size=64), 'data.random {}', use('adamw', lr=1e-3), batch=64, length=64, steps=2)
ran = run('plan', wide, '--memory', '2MiB', code=3)
check("memory 'host'" in ran.stdout and 'does not fit' in ran.stdout and 'a smaller batch (now 64 rows of 64)' in ran.stderr and 'saved, ' in ran.stderr, f'{ran.stdout}{ran.stderr}')
check('bytes on' not in ran.stderr and 'recomputation' in ran.stderr, f'{ran.stderr}')
recomputed = recipe('recomputed.lua', from_config('gpt2', n_layer=2, n_embd=64, n_head=2, n_positions=64, vocab_size=64), 'data.random {}', use('recompute'), use('adamw', lr=1e-3), batch=64,
                    length=64, steps=2)
check('recomputation' not in run('plan', recomputed, '--memory', '2MiB', code=3).stderr, 'recomputation where it is on')
states = recipe('states.lua', from_config('gpt2', n_layer=2, n_embd=64, n_head=2, n_positions=64, vocab_size=64), 'data.random {}', use('adamw', lr=1e-3), batch=1, length=2, steps=2)
said = run('plan', states, '--memory', '100KiB', '--json', code=3)
check(json.loads(said.stdout)['classes'] and said.stderr.index('states, ') < said.stderr.index('an optimizer that keeps less') and 'batch' not in said.stderr, said.stderr)
run('train', wide, '--memory', '2MiB', '--out', 'unfit', code=3)
check(not pathlib.Path('unfit').exists(), 'a run that does not fit')

# ---- Where a run is -------------------------------------------------------------------------------------------------------------------------

pathlib.Path('text.txt').write_text('one two three four five six seven eight nine ten. ' * 60)
corpus = 'data.text { files = "text.txt", tokenizer = "bytes", validation = 0.2 }'
bytes_model = model.replace('["vocab_size"] = 64', '["vocab_size"] = 256')
path = recipe('run.lua', bytes_model, corpus, use('lora', rank=2), 'use "adamw" { lr = cosine { peak = 1e-3, warmup = 2 } }', batch=2, length=16, steps=6,
              validate=dict(every=2), save=dict(every=3))
said = run('train', path, '--out', 'run', '--until', 4).stdout
check('training gpt2: ' in said and 'step 1 of 6 comes next' in said and 'step 4 of 6 is done and saved\ngo on with: galley resume run\n' in said and 'done:' not in said, said)
check('step 4 of 6 is done' in run('resume', 'run', '--until', 4).stdout, 'until where it is')
said = run('resume', 'run').stdout
check('training gpt2: ' in said and 'resumed after step 4 of 6' in said and 'done: run\n  galley sample run --prompt TEXT\n  galley export run --merge --out NEW\n' in said, said)
check(re.search(r'validation loss \d\.\d+ at step 6; the lowest loss \d\.\d+ at step \d\n', said) and 'tok/s' in said and 'pos/s' not in said, said)

# ---- Ctrl-C is answered at once ---------------------------------------------------------------------------------------------------------------

long = recipe('long.lua', model, 'data.random {}', use('accumulate', steps=4096), adam, **dict(small, steps=50))
for sent in (signal.SIGINT, signal.SIGTERM):
    process = subprocess.Popen([program, 'train', long, '--out', f'long-{sent}'], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while 'comes next' not in process.stdout.readline():
        pass
    time.sleep(0.3)  # it is in its first step
    process.send_signal(sent)
    first = process.stderr.readline()
    stops = re.fullmatch(r'stopping after step (\d+); (?:Ctrl-C|the same signal) again ends at once\n', first)
    check(stops and process.poll() is None, f'answer: {first}')
    out, err = process.communicate(timeout=60)
    check(process.returncode == 130 and f'interrupted after step {stops and stops.group(1)},' in err, f'{process.returncode} {first}{err}')

# ---- What a run leaves ----------------------------------------------------------------------------------------------------------------------

record = pathlib.Path('run/run.toml')
written = record.read_text()
known = tomllib.loads(written)
check(known['strategies'][0] == {'name': 'lora', 'options': dict(known['strategies'][0]['options'], rank=2)} and known['strategies'][1]['options']['betas'] == [0.9, 0.999], f'{known["strategies"]}')
check(known['recipe']['text'] == pathlib.Path(path).read_text() and "text = '''\nreturn recipe {\n" in written, 'the recipe is not there as it is written')
check(known['command'].startswith('galley train run.lua') and '--until 4' in known['command'] and abs(known['begun'].timestamp() - time.time()) < 600, f'{known["command"]} {known["begun"]}')
check(list(known)[:5] == ['mark', 'format', 'galley', 'begun', 'command'], f'{list(known)}')
used, memory = (json.loads(pathlib.Path('run', x).read_text()) for x in ('usage.json', 'memory.json'))
lines = [json.loads(x) for x in pathlib.Path('run/metrics.jsonl').read_text().splitlines()]
losses = {x['step']: x['validation_loss'] for x in lines if 'validation_loss' in x}
best = min(losses, key=losses.get)
check(used['run']['from_step'] == 4 and used['run']['to_step'] == 6 and used['run']['loss'] == [x['loss'] for x in lines if 'loss' in x][-1] and used['run']['validation_loss'] == losses[6] and
      used['run']['best'] == dict(step=best, validation_loss=losses[best]) and used['run']['seconds'] >= 0, f'{used}')
check(memory['process'] == used['process'] and memory['process']['resident_peak'] > memory['process']['planned'] > 0, f'{memory["process"]}')
card = pathlib.Path('run/adapter/README.md').read_text()
check(card.startswith('---\nlibrary_name: peft\n') and 'PeftModel.from_pretrained' in card, card)

# A run of an earlier version: options as JSON in a text, the recipe escaped, no date.
run('train', path, '--out', 'old', '--until', 3)
old = pathlib.Path('old/run.toml')
made = tomllib.loads(old.read_text())


def toml(value):
    return json.dumps(value) if not isinstance(value, dict) else '{ ' + ', '.join(f'{k} = {toml(v)}' for k, v in value.items()) + ' }'


head = {k: v for k, v in made.items() if k not in ('begun', 'command') and not isinstance(v, dict) and not (isinstance(v, list) and v and isinstance(v[0], dict))}
as_before = ''.join(f'{k} = {toml(v)}\n' for k, v in head.items())
as_before += '[recipe]\n' + ''.join(f'{k} = {toml(v)}\n' for k, v in made['recipe'].items())
for name in ('plugins', 'data', 'origins'):
    as_before += ''.join(f'[[{name}]]\n' + ''.join(f'{k} = {toml(v)}\n' for k, v in x.items()) for x in made[name])
as_before += ''.join(f'[[strategies]]\nname = "{x["name"]}"\noptions = {json.dumps(json.dumps(x.get("options", {})))}\n' for x in made['strategies'])
target = old.read_text()[old.read_text().index('[target'):]
old.write_text(as_before + target)
run('resume', 'old', '--unconfined')  # what was edited is no longer marked as one's own
check((pathlib.Path('old/adapter/adapter_model.safetensors')).read_bytes() == pathlib.Path('run/adapter/adapter_model.safetensors').read_bytes(), 'a run of an earlier version')

# The tokenizer beside an adapter.
run('tokenize', '--train', 'text.txt', '--vocab', 300, '--out', 'bpe')
with_tokenizer = recipe('tokens.lua', bytes_model.replace('256', '320'), corpus.replace('"bytes"', '"bpe"'), use('lora', rank=2), adam, batch=2, length=16, steps=1)
tokens = train(with_tokenizer, 'tokens')
check((tokens.path / 'adapter/tokenizer.json').read_bytes() == pathlib.Path('bpe/tokenizer.json').read_bytes(), 'no tokenizer beside the adapter')

# ---- Columns --------------------------------------------------------------------------------------------------------------------------------

table = [x for x in run('--help').stdout.splitlines() if re.match(r'  galley \w+ [A-Z\[]', x)]
check(len({re.search(r'\S  +\S', x[len('  galley '):]).end() for x in table if len(x.split('  ')[1]) <= 26}) <= 2 and any('…' in x for x in table), f'columns: {table}')
listed = run('plugins').stdout.split('\n\n')
for block in listed[:2]:
    rows = block.splitlines()
    at = rows[0].index('version')
    check(every(x[at - 1] == ' ' and x[at].isdigit() for x in rows[1:]), f'columns of galley plugins: {rows[:30]}')
finish()
