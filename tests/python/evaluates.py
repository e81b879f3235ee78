#!/usr/bin/env python3
"""Validation, sampling and what is saved, by values that stand for the model's weights (eval_as): a mean that never moves, one that follows at once, values that a node
makes, and what the commands make of a run that keeps one."""
import json
import math
import pathlib

from galley_test import case, cases, check, every, finish, fresh_folder, from_config, load, recipe, run, together, train, use

fresh_folder()
pathlib.Path('text.txt').write_text('one two three four five six seven eight nine ten. ' * 60)
model = from_config('gpt2', n_layer=1, n_embd=32, n_head=2, n_positions=16, vocab_size=256, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
data = 'data.text { files = { arg("text") }, tokenizer = "bytes", validation = 0.2 }'


def made(name, *uses):
    path = recipe(f'{name}.lua', model, data, *uses, use('adamw', lr=1e-2), batch=2, length=16, steps=4, seed=5, validate=dict(every=2, start=True),
                  save=dict(every=4))
    return train(path, name, '--set', 'text=text.txt')


def saved_loss(one, amp):
    """What the model that the run has saved gives on the same rows."""
    path = recipe(f'{one.path.name}-saved.lua', f'model {{ path = "{one.path}/model" }}', data, *amp, batch=2, length=16, steps=1, validate=dict(every=1))
    return json.loads(run('eval', path, '--set', 'text=text.txt', '--json').stdout)['validation_loss']


def validated(of):
    return [x['validation_loss'] for x in of.lines if 'validation_loss' in x]


AMP = {'fp32': [], 'master': [use('amp')], 'cast-on-use': [use('amp', weights='cast-on-use')]}


@cases(AMP)
def means(kind, amp):
    plain = made(f'{kind}-plain', *amp)
    still = made(f'{kind}-still', *amp, use('ema', decay=1, warmup=False))
    follows = made(f'{kind}-follows', *amp, use('ema', decay=0))
    aside = made(f'{kind}-aside', *amp, use('ema', decay=0.5, evaluate=False))
    first, *later = validated(plain)
    check(len(later) == 2 and every(x < first for x in later), f'validation {first}, {later} does not fall')
    check(validated(still) == [first] * 3, f'a mean that never moves gives {validated(still)}, not {first}')
    check(validated(follows) == validated(plain), f'a mean that follows at once gives {validated(follows)}, not {validated(plain)}')
    check(validated(aside) == validated(plain), f'a mean that nobody evaluates by gives {validated(aside)}, not {validated(plain)}')
    for one in (plain, still, follows):
        check(one is still or one.bytes() == plain.bytes(), f'{one.path}: evaluating has changed the model')
        check(saved_loss(one, amp) == validated(one)[-1], f'{one.path}: the saved model gives {saved_loss(one, amp)}, not {validated(one)[-1]}')
        loss = json.loads(run('eval', one.path, '--json').stdout)['validation_loss']
        check(loss == validated(one)[-1], f'{one.path}: eval says {loss}, not {validated(one)[-1]}')
        run('sample', one.path, '--prompt', 'one')


@case
def token_accuracy():
    """Beside the loss: the share of tokens that the model finds likeliest, as sampling one token after each beginning shows, whatever the head's chunks are; and e to the
    loss."""
    pathlib.Path('words').mkdir()
    vocabulary = {f'w{i}': i for i in range(24)}
    pathlib.Path('words/tokenizer.json').write_text(json.dumps({
        'version': '1.0', 'truncation': None, 'padding': None, 'added_tokens': [], 'normalizer': None, 'pre_tokenizer': {'type': 'WhitespaceSplit'},
        'post_processor': None, 'decoder': None, 'model': {'type': 'WordLevel', 'vocab': vocabulary, 'unk_token': 'w0'}}))
    texts = [[f'w{1 + (i * 5 + k * k) % 23}' for k in range(7 + i % 3)] for i in range(24)]
    for name, some in (('learned', texts[:18]), ('held', texts[18:])):
        pathlib.Path(f'{name}.jsonl').write_text(''.join(json.dumps({'text': ' '.join(x)}) + '\n' for x in some))
    words = from_config('gpt2', n_layer=1, n_embd=32, n_head=2, n_positions=32, vocab_size=24, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    held = 'data.jsonl { files = "learned.jsonl", validation = "held.jsonl", tokenizer = "words" }'

    def made(name, **more):
        path = recipe(f'{name}.lua', words, held, use('adamw', lr=2e-2), **{**dict(batch=2, length=24, steps=6, seed=5, validate=dict(every=2)), **more})
        return train(path, name, '--reference')

    one, chunks = made('accuracy'), made('accuracy-chunks', head_rows=5)
    lines = [x for x in one.lines if 'validation_loss' in x]
    beginnings = [(x[:k], x[k]) for x in texts[18:] for k in range(1, len(x))]
    asked = ''.join(json.dumps({'prompt': ' '.join(x)}) + '\n' for x, _ in beginnings)
    answers = [json.loads(x) for x in run('sample', one.path, '--lines', '--tokens', 1, '--temperature', 0, input=asked).stdout.splitlines()]
    check(len(answers) == len(beginnings) == 42, f'{len(answers)} answers to {len(beginnings)} beginnings')
    hits = sum(answer['text'].split() == [word] for answer, (_, word) in together(answers, beginnings))
    check(0 < hits < len(beginnings), f'{hits} hits show nothing')
    check(lines[-1]['token_accuracy'] == hits / len(beginnings), f'{lines[-1]}, of tokens {hits} / {len(beginnings)}')
    check(len(lines) == 3 and every(abs(x['perplexity'] - math.exp(x['validation_loss'])) < 1e-9 for x in lines), f'{lines}')
    accuracies = [[x['token_accuracy'] for x in of.lines if 'validation_loss' in x] for of in (one, chunks)]
    check(accuracies[0] == accuracies[1] and len(set(accuracies[0])) > 1, f'in chunks {accuracies[1]}, not {accuracies[0]}')
    said = json.loads(run('eval', one.path, '--json').stdout)
    check((said['token_accuracy'], said['perplexity']) == (lines[-1]['token_accuracy'], lines[-1]['perplexity']), f'eval: {said}')
    check(f'token_accuracy {said["token_accuracy"]:.4f}' in run('eval', one.path).stdout, 'eval does not say it')


@case
def means_of_adapters():
    """Averages of an adapter: evaluated, saved and merged are W + alpha / rank · B·A of the averages, as by hand; the run goes on from what it has trained."""
    start = train(recipe('start.lua', model, data, use('adamw', lr=1e-30), batch=2, length=16, steps=1, seed=5), 'start', '--set', 'text=text.txt')
    base = f'model {{ path = "{start.path}/model" }}'
    path = recipe('means.lua', base, data, use('lora', rank=4, alpha=8), use('adamw', lr=3e-2), use('ema', decay=0.5, warmup=False), batch=2, length=16, steps=4, seed=5,
                  validate=dict(every=2), save=dict(every=4))
    means = train(path, 'means', '--set', 'text=text.txt', '--reference')
    last = validated(means)[-1]
    for command in (('eval', means.path, '--json'), ('export', means.path, '--merge', '--out', 'means-merged')):
        said = run(*command, '--reference').stdout
        check(command[0] != 'eval' or json.loads(said)['validation_loss'] == last, f'adapters: eval says {said}, not {last}')
    merged = recipe('means-merged.lua', 'model { path = "means-merged" }', data, batch=2, length=16, steps=1, validate=dict(every=1))
    loss = json.loads(run('eval', merged, '--set', 'text=text.txt', '--json').stdout)['validation_loss']
    check(abs(loss - last) < 1e-6, f'adapters: the merged model gives {loss}, the run {last}')
    state = {k: v for file in (means.path / 'state').rglob('*.safetensors') for k, v in load(file).items()}
    whole, after = load(start.path / 'model' / 'model.safetensors'), load('means-merged/model.safetensors')
    own = load(means.path / 'adapter' / 'adapter_model.safetensors')
    modules = sorted(k[len('base_model.model.'):-len('.lora_A.weight')] for k in own if k.endswith('.lora_A.weight'))
    check(len(modules) == 4, f'adapters: {modules}')
    for module in modules:
        prefix = f'base_model.model.{module}'
        for part in ('lora_A', 'lora_B'):
            name = f'{prefix}.{part}.weight'
            check(own[name][2] == state[f'{name}.ema'][2], f'adapters: {name} is not saved as its average')
            check(own[name][2] != state[name][2], f'adapters: {name} and its average are equal, so that nothing is shown')
        (_, (rank, columns), a), (_, (rows, _), b) = (state[f'{prefix}.{part}.weight.ema'] for part in ('lora_A', 'lora_B'))
        w, got = whole[f'{module}.weight'][2], after[f'{module}.weight'][2]
        # GPT-2 keeps its weights as (in, out).
        worst = max(abs(got[i * rows + o] - (w[i * rows + o] + 2 * sum(b[o * rank + k] * a[k * columns + i] for k in range(rank))))
                    for i in range(columns) for o in range(rows))
        check(worst < 1e-6, f'adapters: {module} is merged {worst} from W + 2 B A of the averages')


finish()
