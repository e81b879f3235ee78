#!/usr/bin/env python3
"""What a person meets first: arguments as people type them, names of other trainers, optimizers and patterns that do nothing, plans that do not fit, where a run is and
how it goes on, what it leaves."""
import functools
import json
import pathlib
import re
import signal
import time
import tomllib

from galley_test import (Run, case, cases, check, end_of, every, finish, fresh_folder, from_config, processor_time, recipe, require, run, source, start, train, until,
                         use)
from steps_kit import recipes, refused

fresh_folder()
model = from_config('gpt2', n_layer=1, n_embd=16, n_head=2, n_positions=16, vocab_size=64, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
written = recipes(model, 'data.random {}', batch=1, length=16, steps=2)
adam, lora = use('adamw', lr=1e-3), use('lora', rank=2)


def refuses(texts, *uses, **entries):
    refused(written('refused', *uses, **entries), *texts)


# ---- Arguments ----------------------------------------------------------------------------------------------------------------------------

TEXT = ('return recipe { model = %s, data = data.random {}, batch = arg("batch", 1), length = 16, steps = arg("steps", 2), '
        'arg("sums", false) and use "accumulate" { steps = 2 }, %s }')
pathlib.Path('arguments.lua').write_text(TEXT % (model, adam))


@case
def arguments():
    positions = re.search(r'a step +(\d+) positions', run('plan', 'arguments.lua', '--set', 'steps=1e1', '--set', 'batch=4', '--set', 'sums=True').stdout)
    check(positions and positions.group(1) == '128', f'{positions}')


@cases({'steps=0.5': 'for fractions, the recipe has to give a default such as 2.0', 'steps=ten': 'which decides the type\n', 'batch_size=4': "did you mean 'batch'?",
        'gradient_accumulation_steps=2': "there is no argument 'gradient_accumulation_steps'\n", 'sums=yes': 'must be true or false'})
def wrong_arguments(given, words):
    refused('arguments.lua', words, flags=('--set', given))


@cases([x.stem for x in sorted((source / 'scripts').glob('*.lua'))])
def arguments_of_scripts(name):
    text = (source / 'scripts' / f'{name}.lua').read_text()
    asked = set(re.findall(r'arg\("(\w+)"', text))
    # What `galley fit` is to choose stands in its script as one_of.
    wanted = {'length', 'steps'} if name == 'fit' else {'lr', 'batch', 'accumulate', 'length', 'steps'} | ({'rank'} if 'use "lora"' in text else set())
    check(wanted <= asked, f'it takes no {sorted(wanted - asked)}')


# ---- Names of other trainers --------------------------------------------------------------------------------------------------------------

OF_OTHERS = {
    'batch_size': "did you mean 'batch'?", 'per_device_train_batch_size': "did you mean 'batch'?", 'num_train_epochs': "did you mean 'epochs'?",
    'max_seq_length': "did you mean 'length'?", 'gradient_accumulation_steps': 'use "accumulate" { steps = 4 }', 'learning_rate': 'use "adamw" { lr = 2e-5 }',
    'precision': 'use "amp" { compute = "bf16" }', 'bf16': 'use "amp"', 'load_in_4bit': 'use "quantize-nf4"', 'warmup_steps': 'warmup = 100',
    'lr_scheduler_type': 'cosine', 'gradient_checkpointing': 'use "recompute" {}', 'save_steps': 'save = { every = 100', 'eval_steps': 'validate = { every = 50',
    'output_dir': '--out DIR', 'lora_alpha': 'use "lora"',
}


@cases(OF_OTHERS)
def names_of_other_trainers(name, words):
    refuses([f"unknown option '{name}' of the recipe", words], adam, **{name: 2})


@case
def torch_dtype():
    pathlib.Path('torch.lua').write_text(TEXT.replace('model = %s', 'model = model { path = "x", torch_dtype = "bfloat16" }') % adam)
    refused('torch.lua', 'use "amp"')


# ---- What does nothing ----------------------------------------------------------------------------------------------------------------------


@case
def optimizer_without_parameters():
    refuses(['refused.lua:8: adamw has nothing to update: every parameter that is trained is that of muon (refused.lua:9)', 'parameters ='], lora, use('adamw', lr=1e-3),
            use('muon', lr=1e-3, rest='none'))


@case
def no_optimizer():
    refuses(['the recipe has no optimizer'])
    refuses(['clip needs an optimizer, and the recipe has none'], use('clip', norm=1.0))


ZZZ, NEAR = dict(match='zzz*', lr_factor=2.0), '; the nearest '
NOTHING = {
    'adamw of an adapter': (lora, use('adamw', lr=1e-3, groups=[ZZZ])), 'adamw': (use('adamw', lr=1e-3, groups=[ZZZ]),),
    'lion8bit': (lora, use('lion8bit', lr=1e-3, parameters='zzz*'), adam), 'sgd': (use('sgd', lr=1e-3, groups=[ZZZ]),),
    'adafactor': (use('adafactor', lr=1e-3, parameters='zzz*'), adam), 'muon': (use('muon', lr=1e-3, rest_lr=1e-3, groups=[ZZZ]),),
    'update-in-backward': (use('update-in-backward', parameters='zzz*'), adam), 'split-states': (use('amp'), use('split-states', parameters='zzz*'), adam),
    'freeze': (use('freeze', patterns='zzz*'), adam), 'freeze all but': (use('freeze', **{'except': 'zzz*'}), adam),
}


@cases(NOTHING)
def no_such_parameter(_, uses):
    refuses([f"no parameter is called 'zzz*'{NEAR}"], *uses)


@case
def patterns_of_nothing():
    refuses([f"no node is called 'zzz*'{NEAR}"], use('amp', **{'except': 'zzz*'}), adam)
    refuses([f"no state is called 'zzz*'{NEAR}"], use('amp'), use('split-states', states='zzz*'), adam)
    refuses([f"'*attn.c_attn.weight' names parameters that are not trained{NEAR}are 'base_model"],
            lora, use('adamw', lr=1e-3, groups=[dict(match='*attn.c_attn.weight')]))
    run('plan', written('matches', lora, use('adamw', lr=1e-3, groups=[dict(match='*lora_B*', lr_factor=2.0)])))


# ---- Words before jargon --------------------------------------------------------------------------------------------------------------------


@case
def two_strategies():
    refuses(['update-in-backward (refused.lua:7) updates each parameter before all gradients are there, and clip (refused.lua:8) needs all of them: '],
            use('update-in-backward'), use('clip', norm=1.0), adam)
    refuses(['two strategies decide what is trained: lora (refused.lua:7) trains ', 'vera (refused.lua:8) freezes it'], lora, use('vera', rank=2), adam)


@case
def missing_comma():
    pathlib.Path('comma.lua').write_text('return recipe {\n  batch = 2,\n  length = 16\n  use "sgd" { lr = 0.1 },\n}\n')
    refused('comma.lua', 'comma.lua:4: ', 'line 4: use "sgd" { lr = 0.1 },', 'a comma may be missing at the end of line 3: length = 16')


# ---- Plans that do not fit ------------------------------------------------------------------------------------------------------------------

wide = recipes(from_config('gpt2', n_layer=2, n_embd=64, n_head=2, n_positions=64, vocab_size=64), 'data.random {}', use('adamw', lr=1e-3), batch=64, length=64, steps=2)


@case
def does_not_fit():
    path = wide('wide')
    ran = run('plan', path, '--memory', '2MiB', code=3)
    check("memory 'host'" in ran.stdout and 'does not fit' in ran.stdout and 'a smaller batch (now 64 rows of 64)' in ran.stderr and 'saved, ' in ran.stderr, f'{ran}')
    check('bytes on' not in ran.stderr and 'recomputation' in ran.stderr, f'{ran.stderr}')
    run('train', path, '--memory', '2MiB', '--out', 'unfit', code=3)
    check(not pathlib.Path('unfit').exists(), 'a run that does not fit')


@case
def does_not_fit_recomputed():
    said = run('plan', wide('recomputed', use('recompute')), '--memory', '2MiB', code=3).stderr
    check('recomputation' not in said and 'a smaller batch' in said, said)


@case
def states_do_not_fit():
    said = run('plan', wide('states', batch=1, length=2), '--memory', '100KiB', '--json', code=3)
    check(json.loads(said.stdout)['classes'] and 'batch' not in said.stderr, f'{said}')
    check(said.stderr.index('states, ') < said.stderr.index('an optimizer that keeps less'), said.stderr)


# ---- Where a run is -------------------------------------------------------------------------------------------------------------------------

pathlib.Path('text.txt').write_text('one two three four five six seven eight nine ten. ' * 60)
corpus = 'data.text { files = "text.txt", tokenizer = "bytes", validation = 0.2 }'
bytes_model = model.replace('["vocab_size"] = 64', '["vocab_size"] = 256')
path = recipe('run.lua', bytes_model, corpus, use('lora', rank=2), 'use "adamw" { lr = cosine { peak = 1e-3, warmup = 2 } }', batch=2, length=16, steps=6,
              validate=dict(every=2), save=dict(every=3))


@functools.cache
def in_three_calls():
    """A run until step 4, until where it is, and to its end: what each call has said."""
    return [run(*words).stdout for words in (('train', path, '--out', 'run', '--until', 4), ('resume', 'run', '--until', 4), ('resume', 'run'))]


@case
def where_a_run_is():
    began, still, went_on = in_three_calls()
    check('training gpt2: ' in began and 'step 1 of 6 comes next' in began, began)
    check('step 4 of 6 is done and saved\ngo on with: galley resume run\n' in began and 'done:' not in began, began)
    check('step 4 of 6 is done' in still, f'until where it is: {still}')
    check('training gpt2: ' in went_on and 'resumed after step 4 of 6' in went_on, went_on)
    check('done: run\n  galley sample run --prompt TEXT\n  galley export run --merge --out NEW\n' in went_on, went_on)
    check(re.search(r'validation loss \d\.\d+  perplexity [\d.]+  token_accuracy \d\.\d+ at step 6; the lowest loss \d\.\d+ at step \d\n', went_on) and 'tok/s' in went_on and 'pos/s' not in went_on, went_on)


@cases(['SIGINT', 'SIGTERM'])
def signal_is_answered(name):
    """At once, in a step that takes minutes."""
    said = [pathlib.Path(f'long-{name}.{x}') for x in ('stdout', 'stderr')]
    with said[0].open('wb') as out, said[1].open('wb') as err:
        process = start('train', written(f'long-{name}', use('accumulate', steps=4096), adam, steps=50), '--out', f'long-{name}', stdout=out, stderr=err)
        try:
            require(until(lambda: 'comes next' in said[0].read_text(), process), f'it does not begin: {said[1].read_text()}')
            begin = processor_time(process)
            require(until(lambda: processor_time(process) > begin + 0.5, process), f'it does not compute: {said[1].read_text()}')
            process.send_signal(getattr(signal, name))
            require(until(lambda: said[1].read_text().endswith('\n'), process), f'no answer while it runs: {said[1].read_text()}')
            first = said[1].read_text()
            stops = re.fullmatch(r'stopping after step (\d+); (?:Ctrl-C|the same signal) again ends at once\n', first)
            check(stops, f'answer: {first}')
        finally:
            ended = end_of(process)
    told = said[1].read_text()
    check(ended.returncode == 130 and stops and f'interrupted after step {stops[1]},' in told, f'exit code {ended.returncode}: {told}')


# ---- What a run leaves ----------------------------------------------------------------------------------------------------------------------


def whole_run():
    in_three_calls()
    return Run('run')


@case
def record():
    text = (whole_run().path / 'run.toml').read_text()
    known = tomllib.loads(text)
    check(known['strategies'][0] == {'name': 'lora', 'options': dict(known['strategies'][0]['options'], rank=2)}, f'{known["strategies"]}')
    check(known['strategies'][1]['options']['betas'] == [0.9, 0.999], f'{known["strategies"]}')
    check(known['recipe']['text'] == pathlib.Path(path).read_text() and "text = '''\nreturn recipe {\n" in text, 'the recipe is not there as it is written')
    check(known['command'].startswith('galley train run.lua') and '--until 4' in known['command'] and abs(known['begun'].timestamp() - time.time()) < 900,
          f'{known["command"]} {known["begun"]}')
    check(list(known)[:5] == ['mark', 'format', 'galley', 'begun', 'command'], f'{list(known)}')


@case
def usage():
    made = whole_run()
    used = json.loads((made.path / 'usage.json').read_text())
    losses = {x['step']: x['validation_loss'] for x in made.lines if 'validation_loss' in x}
    best = min(losses, key=losses.get)
    check(used['run']['from_step'] == 4 and used['run']['to_step'] == 6 and used['run']['loss'] == made.steps[-1][0] and used['run']['validation_loss'] == losses[6] and
          used['run']['best'] == dict(step=best, validation_loss=losses[best]) and used['run']['seconds'] >= 0, f'{used}')
    process = made.memory['process']
    check(process == used['process'] and process['resident_peak'] > process['planned'] > 0, f'{process}')


@case
def card_of_an_adapter():
    card = (whole_run().path / 'adapter/README.md').read_text()
    check(card.startswith('---\nlibrary_name: peft\n') and 'PeftModel.from_pretrained' in card, card)


def toml(value):
    return json.dumps(value) if not isinstance(value, dict) else '{ ' + ', '.join(f'{k} = {toml(v)}' for k, v in value.items()) + ' }'


def lines(table):
    return ''.join(f'{k} = {toml(v)}\n' for k, v in table.items())


@case
def run_of_an_earlier_version():
    """Options as JSON in a text, the recipe escaped, no date."""
    run('train', path, '--out', 'old', '--until', 3)
    old = pathlib.Path('old/run.toml')
    text = old.read_text()
    made = tomllib.loads(text)
    tables = ('recipe', 'target', 'plugins', 'data', 'origins', 'strategies')
    as_before = lines({k: v for k, v in made.items() if k not in ('begun', 'command', *tables)})
    as_before += '[recipe]\n' + lines(made['recipe'])
    for name in ('plugins', 'data', 'origins'):
        as_before += ''.join(f'[[{name}]]\n' + lines(x) for x in made[name])
    as_before += ''.join(f'[[strategies]]\nname = "{x["name"]}"\noptions = {json.dumps(json.dumps(x.get("options", {})))}\n' for x in made['strategies'])
    old.write_text(as_before + text[text.index('[target'):])
    run('resume', 'old', '--unconfined')  # what was edited is no longer marked as one's own
    adapter = 'adapter/adapter_model.safetensors'
    check(Run('old').bytes(adapter) == whole_run().bytes(adapter), 'it ends elsewhere')


@case
def tokenizer_beside_an_adapter():
    run('tokenize', '--train', 'text.txt', '--vocab', 300, '--out', 'bpe')
    tokens = train(recipe('tokens.lua', bytes_model.replace('256', '320'), corpus.replace('"bytes"', '"bpe"'), lora, adam, batch=2, length=16, steps=1), 'tokens')
    check((tokens.path / 'adapter/tokenizer.json').read_bytes() == pathlib.Path('bpe/tokenizer.json').read_bytes(), 'no tokenizer beside the adapter')


# ---- Columns --------------------------------------------------------------------------------------------------------------------------------


@case
def columns():
    table = [x for x in run('--help').stdout.splitlines() if re.match(r'  galley \w+ [A-Z\[]', x)]
    ends = {re.search(r'\S  +\S', x[len('  galley '):]).end() for x in table if len(x.split('  ')[1]) <= 26}
    check(0 < len(ends) <= 2 and any('…' in x for x in table), f'columns: {table}')
    for block in run('plugins').stdout.split('\n\n')[:3]:
        rows = block.splitlines()
        at = rows[0].index('version')
        check(every(x[at - 1] == ' ' and x[at].isdigit() for x in rows[1:]), f'columns of galley plugins: {rows[:30]}')


finish()
