#!/usr/bin/env python3
"""evaluate = { prompts = … }: what a model writes while it is trained is what `galley sample` writes with the run's model; how texts are judged; that training itself is
not changed by it; resumed runs, every number by its reference, memory, devices, and what is refused."""
import json
import pathlib
import shutil

from errors_kit import check_error
from galley_test import binary, case, cases, check, every, finish, fixtures, fresh_folder, from_config, galley, plan, recipe, run, train, use

fresh_folder()
pathlib.Path('text.txt').write_text('one two three four five six seven eight nine ten. ' * 60)
pathlib.Path('lines.jsonl').write_text(''.join(json.dumps({'text': ' '.join(['one two three four', 'five six', 'seven'][i % 3:])}) + '\n' for i in range(40)))
pathlib.Path('pairs.jsonl').write_text(''.join(json.dumps({'prompt': f'{i % 7} and {i % 5}', 'answer': f'is {i % 7 + i % 5}'}) + '\n' for i in range(60)))
WORDS = {'version': '1.0', 'truncation': None, 'padding': None, 'added_tokens': [], 'normalizer': None, 'pre_tokenizer': {'type': 'WhitespaceSplit'},
         'post_processor': None, 'decoder': None, 'model': {'type': 'WordLevel', 'vocab': {f'w{i}': i for i in range(61)}, 'unk_token': 'w0'}}
TEXTS = 'data.text { files = { "text.txt" }, tokenizer = "bytes" }'
PACKED = 'data.jsonl { files = { "lines.jsonl" }, tokenizer = "bytes" }'
gpt2 = from_config('gpt2', n_layer=2, n_embd=32, n_head=2, n_positions=32, vocab_size=256)
llama = from_config('llama', num_hidden_layers=2, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2, vocab_size=256,
                    max_position_embeddings=32)
mistral = from_config('mistral', num_hidden_layers=2, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2, vocab_size=256,
                      max_position_embeddings=32, sliding_window=6)
PROMPTS = ['one two', 'five', 'seven eight nine', 'x']


def prompts(name, lines):
    path = pathlib.Path(f'{name}.jsonl')
    path.write_text(''.join(json.dumps(x) + '\n' for x in lines))
    return str(path)


def generated(of):
    return [json.loads(x) for x in pathlib.Path(getattr(of, 'path', of), 'generated.jsonl').read_text().splitlines()]


def made(name, model, data, *uses, asked=None, flags=(), rate=1e-2, **more):
    entries = {**dict(batch=2, length=24, steps=4, seed=3), **more}
    if asked is not None:
        entries['evaluate'] = asked
    path = recipe(f'{name}.lua', model, data, *uses, use('adamw', lr=rate), **entries)
    one = train(path, name, *flags)
    one.check_memory(name)
    return one


ASKED = dict(prompts=prompts('four', [{'prompt': x} for x in PROMPTS]), every=2, tokens=8)
# Learned positions; rows of several documents, which attention keeps apart; a window; an average that stands for the weights; adapters on weights in four bit; bf16.
KINDS = {'gpt2': (gpt2, TEXTS, []), 'packed': (llama, PACKED, []), 'window': (mistral, PACKED, []), 'ema': (gpt2, TEXTS, [use('ema', decay=.5, warmup=False)]),
         'clone': (llama, PACKED, [use('recompute')]), 'bf16': (llama, TEXTS, [use('amp')]),
         'dropout': (gpt2.replace('["n_layer"]', '["resid_pdrop"] = 0.3, ["n_layer"]'), TEXTS, [])}


def sampled(folder, texts, n, *words):
    out = run('sample', folder, '--lines', '--temperature', 0, '--tokens', n, *words, input=''.join(json.dumps(x) + '\n' for x in texts)).stdout
    return [json.loads(x)['text'] for x in out.splitlines()]


@cases(KINDS)
def as_sample(kind, what):
    model, data, uses = what
    plain, one = made(f'{kind}-plain', model, data, *uses), made(kind, model, data, *uses, asked=ASKED)
    check(one.bytes() == plain.bytes(), f'{kind}: writing texts has changed the model')
    texts = generated(one)
    check([(x['step'], x['index'], x['prompt']) for x in texts] == [(s, i, x) for s in (2, 4) for i, x in enumerate(PROMPTS)], f'{kind}: {texts}')
    check([x['text'] for x in texts[4:]] == sampled(one.path, PROMPTS, 8), f'{kind}: {texts[4:]}')
    check(every(x['tokens'] == 8 and x['ended'] == 'length' and 'match' not in x for x in texts), f'{kind}: {texts}')
    lines = [x for x in one.lines if 'samples' in x]
    check([(x['step'], x['samples']) for x in lines] == [(2, 4), (4, 4)], f'{kind}: {lines}')
    if not uses:
        held_out = data.replace('"bytes"', '"bytes", validation = 0.2')
        path = recipe(f'{kind}-eval.lua', f'model {{ path = "{kind}/model" }}', held_out, batch=3, length=24, steps=1, validate=dict(every=1), evaluate=ASKED)
        told = json.loads(run('eval', path, '--json').stdout)
        check([x['text'] for x in told['texts']] == [x['text'] for x in texts[4:]] and told['validation_loss'] > 0, f'{kind}: eval writes {told}')


@case
def without_held_out_data():
    path = recipe('bare-eval.lua', gpt2, TEXTS, batch=2, length=24, steps=1, evaluate=dict(ASKED, match='^one'))
    told = json.loads(run('eval', path, '--json').stdout)
    check(sorted(told) == ['match', 'texts'] and [x['prompt'] for x in told['texts']] == PROMPTS, f'{told}')
    check(run('eval', path).stdout == 'match 0.0000 over 4 texts\n', 'in words')


@case
def adapters():
    base = made('base', llama, TEXTS)
    folder = f'model {{ path = "{base.path}/model" }}'
    one = made('adapter', folder, TEXTS, use('quantize-nf4'), use('lora', rank=2, alpha=4), asked=ASKED, steps=6)
    check([x['text'] for x in generated(one)[-4:]] == sampled(one.path, PROMPTS, 8), f'{generated(one)}')


@case
def sources():
    """A model with a source: each row has its own."""
    folder = pathlib.Path('t5')
    shutil.copytree(fixtures / 'models/t5-relu-tied', folder)
    folder.joinpath('tokenizer.json').write_text(json.dumps(WORDS))
    pairs = prompts('t5-pairs', [{'prompt': f'w{3 + i % 9} w{4 + i % 7}', 'answer': f'w{5 + i % 4}'} for i in range(30)])
    texts = ['w5 w6', 'w9 w8 w7', 'w4', 'w3 w4 w5 w6 w7']
    asked = dict(prompts=prompts('t5-prompts', [{'prompt': x} for x in texts]), tokens=6)
    one = made('t5-run', 'model { path = "t5" }', f'data.prompts {{ files = {{ "{pairs}" }} }}', asked=asked, batch=3, length=12, target_length=8, rate=1e-4)
    found = [x['text'] for x in generated(one)]
    check(found == sampled(one.path, texts, 6) and len(set(found)) > 1, f'{found}, {sampled(one.path, texts, 6)}')


@case
def resumed():
    """A run that is interrupted between two evaluations, and one that is killed after it has written, leave what a whole one leaves."""
    asked = dict(ASKED, every=1, start=True)
    whole = made('whole', gpt2, TEXTS, asked=asked, save=dict(every=1, keep=9))
    check([x['step'] for x in generated(whole)[::4]] == [0, 1, 2, 3, 4], f'{generated(whole)}')
    part = made('part', gpt2, TEXTS, asked=asked, save=dict(every=1, keep=9), flags=('--until', 2))
    with open('part/generated.jsonl', 'a') as file:
        file.write(json.dumps({'step': 3, 'index': 0, 'prompt': 'lost', 'text': '', 'ended': 'end', 'tokens': 0}) + '\n{"step": 3, "ind')
    run('resume', 'part')
    check(part.bytes('generated.jsonl') == whole.bytes('generated.jsonl') and part.bytes() == whole.bytes(), 'a resumed run wrote something else')
    pathlib.Path('four.jsonl').write_text('"other"\n')
    check_error(galley('resume', 'part'), 2, 'four.jsonl', 'has changed')
    prompts('four', [{'prompt': x} for x in PROMPTS])


@case
def judged():
    first = made('first', gpt2, TEXTS, asked=ASKED)
    texts = [x['text'] for x in generated(first)[4:]]

    def match_of(name, match, lines, write=str):
        path = recipe(f'{name}.lua', gpt2, TEXTS, use('adamw', lr=1e-2), batch=2, length=24, steps=4, seed=3,
                      evaluate=dict(prompts=prompts(name, lines), tokens=8, match='MATCH'))
        pathlib.Path(path).write_text(pathlib.Path(path).read_text().replace('"MATCH"', match))
        one = train(path, f'judged-{name}')
        check([x['text'] for x in generated(one)] == texts, f'{name}: {generated(one)}')
        line = next(x for x in one.lines if 'samples' in x)
        found = [x['match'] for x in generated(one)]
        check(abs(line['match'] - sum(found) / len(found)) < 1e-12, f'{line}, {found}')
        return found

    right = [{'prompt': x, 'expected': f'  {y}\n'} for x, y in zip(PROMPTS, texts)]
    wrong = [right[0], {'prompt': PROMPTS[1], 'answer': 'no'}, right[2], {'prompt': PROMPTS[3], 'expected': texts[3] + '!'}]
    check(match_of('exact', '"exact"', wrong) == [1, 0, 1, 0], 'exact')
    check(match_of('rouge', '"rouge-l"', [{'prompt': x, 'expected': ''} for x in PROMPTS]) == [0] * 4, 'nothing in common with nothing')
    check(match_of('pattern', '"^.(...)"', [{'prompt': x, 'expected': y if i % 2 else 'x\x01\x02\x03'} for i, (x, y) in enumerate(zip(PROMPTS, texts))]) == [0, 1, 0, 1],
          'pattern')
    check(match_of('finds', '"no such text."', [{'prompt': x} for x in PROMPTS]) == [0] * 4, 'a pattern that finds nothing')
    check(match_of('function', 'function(text, expected, line) return expected == nil and line.n + #text / 1000 or expected == "yes" end',
                   [{'prompt': x, 'n': i} if i else {'prompt': x, 'expected': 'yes'} for i, x in enumerate(PROMPTS)]) ==
          [1] + [i + len(t.encode()) / 1000 for i, t in enumerate(texts) if i], 'function')


@case
def conversations():
    tokenizer = {**WORDS, 'added_tokens': [{'id': 61 + i, 'content': x, 'special': True, 'single_word': False, 'lstrip': False, 'rstrip': False, 'normalized': False}
                                           for i, x in enumerate(['<|im_start|>', '<|im_end|>', 'user', 'assistant', 'system'])]}
    folder = pathlib.Path('tokens')
    folder.mkdir()
    folder.joinpath('tokenizer.json').write_text(json.dumps(tokenizer))
    chats = [{'messages': [{'role': 'user', 'content': f'w{2 + i % 5}'}, {'role': 'assistant', 'content': f'w{9 + i % 5}'}]} for i in range(40)]
    model = from_config('llama', num_hidden_layers=1, hidden_size=32, intermediate_size=48, num_attention_heads=2, vocab_size=66, max_position_embeddings=32)
    data = 'data.chat { files = { "chats.jsonl" }, tokenizer = "tokens/tokenizer.json", template = "chatml" }'
    prompts('chats', chats)
    shared = [{'conversations': [{'from': 'human', 'value': 'w3'}, {'from': 'gpt', 'value': 'w10'}]}]
    one = made('chat', model, data, batch=4, length=24, steps=60, asked=dict(prompts=prompts('asked', chats[:3] + shared), match='exact', tokens=6))
    texts = generated(one)
    check([x['expected'] for x in texts] == ['w9', 'w10', 'w11', 'w10'] and every(x['prompt'].endswith('assistant\n') for x in texts), f'{texts}')
    check([x['match'] for x in texts] == [1, 1, 1, 1] and every(x['ended'] == 'end' for x in texts), f'it was to learn these: {texts}')


RESTS = [use('second-memory', memory='file', parameters=['*.down_proj.weight']), use('offload-activations', memory='file', min_size=1)]
DEVICES = {'discrete': [], 'discrete-rests': RESTS, 'cuda-emulated': []}


@cases(DEVICES)
def on_devices(kind, uses):
    """Where the host does not reach what computes, where parameters and what backward keeps rest elsewhere, and by the kernels of GPUs: the processor's texts."""
    device = kind.removesuffix('-rests')
    folders = ['emulated'] if device == 'cuda-emulated' else ['tests/plugins/discrete', 'tests/plugins/second-memory']
    where = [x for folder in folders for x in ('--plugin-path', binary / folder)]
    texts = generated(made(f'on-{kind}', llama, PACKED, *uses, asked=ASKED, flags=('--device', device, *where)))
    check([x['text'] for x in texts] == [x['text'] for x in generated(made(f'cpu-{kind}', llama, PACKED, asked=ASKED))], f'{kind}: {texts}')


@case
def by_reference():
    for name, model, data in (('gpt2', gpt2, TEXTS), ('packed', llama, PACKED)):
        for flag in ('--reference', '--poison'):
            made(f'{name}{flag}', model, data, asked=dict(ASKED, tokens=3), steps=2, flags=(flag,))


@case
def compared():
    """Runs of a comparison write texts as any other; what they wrote is no step of theirs."""
    paths = [recipe(f'arm-{name}.lua', gpt2, TEXTS, use(name, lr=1e-3), batch=2, length=24, steps=4, evaluate=ASKED) for name in ('adamw', 'lion')]
    run('compare', *paths, '--out', 'compared', '--seeds', '1,2', timeout=120)
    found = json.loads(pathlib.Path('compared/compare.json').read_text())
    check(len(found['arms']) == 2, f'{found["arms"]}')
    files = list(pathlib.Path('compared').rglob('generated.jsonl'))
    check(len(files) >= 4 and every(len(x.read_text().splitlines()) == 8 for x in files), f'{files}')


@case
def planned():
    """Caches live while texts are written, beside what a step needs: the plan says to whom they belong, and that they take no memory from a step that needs more."""
    path = recipe('planned.lua', llama, TEXTS, use('adamw', lr=1e-2), batch=2, length=24, steps=4, evaluate=ASKED)
    plain = recipe('unplanned.lua', llama, TEXTS, use('adamw', lr=1e-2), batch=2, length=24, steps=4)
    more, less = (plan(x, '--tensors') for x in (path, plain))
    caches = [x for x in more['tensors'] if x['owner'] == 'caches']
    check(len(caches) == 4 and every(x['life'] == 'texts' and x['bytes'] == 2 * 24 * 16 * 4 for x in caches), f'{caches}')
    kept = sum(x['bytes'] for x in caches)
    grown = more['classes']['host']['planned'] - less['classes']['host']['planned']
    check(grown < kept, f'{grown} bytes more, for {kept} bytes of caches')
    run('plan', path, '--check')


@case
def refused():
    def of(name, lines, hint=None, parts=(), model=gpt2, data=TEXTS, text=None, **asked):
        path = recipe(f'{name}.lua', model, data, use('adamw', lr=1e-2), batch=2, length=24, steps=1, evaluate=dict(prompts=prompts(name, lines), **asked))
        if text:
            pathlib.Path(path).write_text(pathlib.Path(path).read_text().replace('"MATCH"', text))
        check_error(galley('train', path, '--out', f'{name}-out'), 2, *parts, hint=hint)
        check(not pathlib.Path(f'{name}-out').exists(), f'{name}: a run was left')

    of('none', [], parts=("has no prompts",))
    of('bare', ['a'], match='exact', parts=("bare.jsonl:1: there is no 'expected'", 'match = "exact"'))
    of('typed', ['a', {'prompt': 'a', 'expected': 3}], match='exact', samples=0, parts=('typed.jsonl:1: there is no',))
    of('number', [{'prompt': 'a', 'expected': 3}], parts=("number.jsonl:1: 'expected' is integer and no text",))
    of('other', [{'text': 'a'}], parts=('other.jsonl:1: a line has to be a string or an object',))
    of('long', ['a' * 24], parts=("long.jsonl:1: the prompt has 24 tokens; the model's context is 24 with the answer",), hint="a larger 'length'")
    of('name', ['a'], match='exakt', parts=("'evaluate.match'",), hint="did you mean 'exact'?")
    of('pattern', ['a'], match='%', parts=("the pattern of 'match'",))
    of('raises', ['a'], match='MATCH', text='function(text) return text.length.much end', parts=('raises.jsonl:1', 'attempt to index'))
    of('returns', ['a'], match='MATCH', text='function(text) return {} end', parts=("the function of 'match' returned",))
    of('position', ['a'], match='()', parts=("the pattern of 'match'", 'a capture is integer and no text'))
    bert = from_config('bert', num_hidden_layers=1, hidden_size=32, intermediate_size=48, num_attention_heads=2, vocab_size=256, max_position_embeddings=32)
    of('masks', ['a'], model=bert, parts=("'evaluate' lets the model write texts, but",), hint="leave 'evaluate' out")
    path = recipe('missing.lua', gpt2, TEXTS, use('adamw', lr=1e-2), batch=2, length=24, steps=1, evaluate=dict(prompts='nowhere.jsonl'))
    check_error(galley('train', path, '--out', 'missing-out'), 2, "missing.lua:7: there is no file '", "nowhere.jsonl'")


finish()
