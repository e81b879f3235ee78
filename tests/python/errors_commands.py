#!/usr/bin/env python3
"""Command lines that say what cannot be: a table of the words and of what is said. Then recipes: patterns of Lua, data, comparisons."""
import functools
import json
import os
import pathlib
import struct

from errors_kit import ADAMW, RECIPE, Folder, cases, check_error, finish, fresh_folder, galley, safetensors, weights, write
from galley_test import case, check, from_config, recipe, run, source, use

fresh_folder()
right = Folder('right')
R, EMPTY = right.path('recipe.lua'), os.path.abspath('empty')
os.mkdir(EMPTY)
LLAMA = dict(vocab_size=320, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=32)
PAIRS = [dict(text=f'is it {i}?', second=f'it is {i % 3}', kind=i % 2, words=['a', 'b'], tags=[0, 1]) for i in range(20)]
pathlib.Path('pairs.jsonl').write_text(''.join(json.dumps(x) + '\n' for x in PAIRS))
pathlib.Path('empty.txt').write_text('')
pathlib.Path('text.txt').write_text('one two three four five\n' * 40)


@functools.cache
def bpe():
    """A tokenizer that joins two texts."""
    run('tokenize', '--train', 'text.txt', '--vocab', 270, '--out', 'bpe')
    first, second = (dict(Sequence=dict(id=x, type_id=i)) for i, x in enumerate('AB'))
    file = pathlib.Path('bpe/tokenizer.json')
    joins = dict(type='TemplateProcessing', single=[first], pair=[first, second], special_tokens={})
    file.write_text(json.dumps(dict(json.loads(file.read_text()), post_processor=joins)))


@functools.cache
def made(kind):
    """A run of one step: of texts, of an adapter, of labels, of labels of two texts. It is made when a case first needs it."""
    if kind in ('text', 'adapter'):
        lora = [use('lora', rank=2, targets='c_attn')] if kind == 'adapter' else []
        model = f'model {{ path = "{made("text")}/model" }}' if lora else from_config('gpt2', vocab_size=256, n_positions=16, n_embd=16, n_layer=1, n_head=2)
        path = recipe(f'{kind}.lua', model, 'data.text { files = { "text.txt" }, tokenizer = "bytes" }', *lora, use('sgd', lr=0.1), batch=2, length=8, steps=1)
    else:
        bpe()
        model = from_config('llama', **LLAMA)[:-2] + ', task = "sequence-classification", labels = 2 }'
        pair = ', pair = "second"' if kind == 'pairs' else ''
        path = recipe(f'{kind}.lua', model, f'data.jsonl {{ files = "pairs.jsonl", tokenizer = "bpe", text = "text", label = "kind"{pair} }}', use('sgd', lr=0.1),
                      batch=2, length=16, steps=1)
    run('train', path, '--out', f'run-{kind}')
    return f'run-{kind}'


# ---- Command lines ---------------------------------------------------------------------------------------------------------------------
# Words, or a function that makes a run and returns them; what is said; what the hint has.
COMMANDS = [
    (('plann', R), "unknown command 'plann'", 'plan'), (('xyzzy',), "unknown command 'xyzzy'", 'galley --help lists them'),
    (('plan', R, '--json=1'), 'galley plan: --json takes no value', ''), (('plan', R, '--dump'), 'galley plan: --dump needs a value: --dump ', ''),
    (('plan', R, 'more'), "galley plan: unexpected argument 'more'", 'usage: galley plan'), (('train',), 'galley train: RECIPE is missing', 'usage: galley train'),
    (('plan', R, '--dump', 'bond'), '--dump bond: there is no such pass', ''), (('plan', R, '--set', '=3'), '--set =3: expected NAME=VALUE', None),
    (('plan', R, '--target', ''), "--target '' names no target", 'a TOML file, or the name of a target'),
    (('plan', R, '--device', 'tpu'), '--device tpu: no plugin provides it', 'cpu'),
    (('train', R, '--out', ''), "--out '' names no directory", None),
    (('train', R, '--out', 'never', '--target', 'h100'), "--target h100 is of device 'cuda', and this runs on 'cpu'", 'look at the plan only: galley plan RECIPE'),
    (('data', R, '--validation'), 'there is no validation data', 'hold some out'),
    (('plugins', 'model'), "'model' is an entry of a recipe and no plugin or strategy", 'galley recipe model shows what it takes'),
    (('plugins', 'loraa'), "no plugin or strategy 'loraa'", "did you mean 'lora'?"),
    (('resume', EMPTY), 'empty is not a run: it has no run.toml', 'a run is made by galley train RECIPE'),
    (('sample', EMPTY, '--prompt', 'x'), 'empty has no run.toml, config.json or adapter_config.json', "a run's directory"),
    (('tokenize', '--train', 'empty.txt', '--vocab', 300, '--out', 'never'), '--train: there is no text in the files', None),
    (('tokenize', '--train', 'text.txt'), 'galley tokenize: --train needs --vocab N and --out DIR', None),
    (lambda: ('sample', made('text'), '--prompt', 'x', '--temperature', 'warm'), "--temperature 'warm' is not a number", None),
    (lambda: ('sample', made('text'), '--prompt', 'x', '--stop', ''), 'galley sample: --stop is empty', 'omit --stop'),
    (lambda: ('sample', made('text'), '--prompt', 'x', '--overlong', 'fold'), "galley sample: --overlong 'fold'", 'known: refuse, cut'),
    (lambda: ('sample', made('text'), '--prompt', 'x' * 9), "the prompt has 9 tokens; the model's context is 8",
     "a run's context is its recipe's length; --overlong cut shows it the last 8"),
    (lambda: ('sample', made('text'), '--prompt', 'x', '--length', 8), "galley sample: --length applies to a model's folder only; a run uses its recipe's length", None),
    (lambda: ('sample', made('labels'), '--prompt', 'x'), "galley sample: a model whose task is 'sequence-classification' generates no text", 'galley predict'),
    (lambda: ('embed', made('text'), '--pool', 'sum'), "galley embed: --pool 'sum'", 'known: mean, first, last, none'),
    (lambda: ('embed', made('text'), '--pool', 'none', '--normalize'), 'galley embed: --normalize needs a vector: leave out --pool none', None),
    (lambda: ('embed', made('text'), '--length', 8), "galley embed: --length applies to a model's folder only; a run uses its recipe's length", None),
    (lambda: ('predict', made('text')), "galley predict: a model whose task is 'causal-lm' has no labels or values of whole texts", None),
    (lambda: ('predict', made('labels'), '--length', 8), "galley predict: --length applies to a model's folder only; a run uses its recipe's length", None),
    (lambda: ('predict', made('labels'), '--pair', 'x'), 'galley predict: --pair is the second text beside --text', None),
    (lambda: ('predict', made('pairs'), '--text', 'x', '--text', 'y', '--pair', 'z'), 'galley predict: there are 2 --text and 1 --pair', None),
    (lambda: ('predict', made('pairs'), '--text', 'x'), 'galley predict: the model tells something of two texts', 'give the second one by --pair TEXT'),
    (lambda: ('eval', made('text'), '--set', 'a=1'), 'galley eval: --set applies to a recipe only; a run uses its own', None),
    (lambda: ('eval', made('text'), '--device', 'cpu'), 'galley eval: --device applies to a recipe only; a run uses its own', None),
    (lambda: ('export', made('text'), '--out', 'never', '--set', 'a=1'), 'galley export: --set applies to a recipe only', None),
    (lambda: ('export', made('text'), '--out', 'never', '--use', 'ema'), 'galley export: --use applies to a recipe only', None),
    (lambda: ('export', made('text'), '--out', 'never', '--dtype', 'int8'), "galley export: --dtype 'int8' is not a dtype to save in", 'f32, bf16 or f16'),
]


@cases({f'{i}.{row[1][:40]}': row for i, row in enumerate(COMMANDS)})
def command(_, row):
    words, says, hint = row
    words = words() if callable(words) else words
    check_error(galley(*words), 2, says, hint=hint)
    check(not os.path.exists('never'), f'{words}: something was written')


@case
def line_of_two_texts():
    says = "stdin:1: the model tells something of two texts, in fields 'text' and 'second'"
    check_error(galley('predict', made('pairs'), input='"a text"\n'), 2, says)


@case
def plan_that_has_grown():
    folder = Folder('grown')
    path, lock = folder.path('recipe.lua'), folder.path('plan.lock')
    run('plan', path, '--lock', lock)
    run('plan', path, '--against', lock)
    folder.recipe(RECIPE.replace(ADAMW, '  use "ema" { decay = 0.9 },\n' + ADAMW))
    check_error(galley('plan', path, '--against', lock), 1, f'the plan has grown against {lock}: ', ' bytes more', hint=f'lock it: galley plan RECIPE --lock {lock}')


@case
def weight_in_8_bit_that_is_to_be_trained():
    model = from_config('llama', **LLAMA)
    path = recipe('trained.lua', model, 'data.random {}', use('quantize-llm-int8'), use('freeze', **{'except': '*.q_proj.weight'}), use('sgd', lr=0.1),
                  batch=1, length=8, steps=1)
    says = "quantize-llm-int8: 'model.layers.0.self_attn.q_proj.weight' is to be trained, and quantize-llm-int8 multiplies it in 8 bit"
    check_error(galley('plan', path), 2, says, hint='freeze it, or leave it out by skip = { "model.layers.0.self_attn.q_proj" }')


@case
def target_whose_memory_does_not_fit():
    text = (source / 'tests/golden/target.toml').read_text()
    pathlib.Path('target.toml').write_text(text.replace('alignment = 64', 'alignment = 32', 1))
    ended = galley('train', R, '--out', 'never', '--target', 'target.toml')
    check_error(ended, 2, "--target target.toml: memory class 'host' has the alignment 32; kernels of device 'cpu' rely on 64", hint="give the device's own, or more")


@case
def gradients_that_are_not_finite():
    """The file is there, for whoever looks for the place."""
    folder = Folder('infinite')
    numbers = weights()
    dtype, shape, data = numbers['transformer.wte.weight']
    folder.model({**numbers, 'transformer.wte.weight': (dtype, shape, struct.pack('<f', 3e38) * (len(data) // 4))})
    ended = galley('gradients', folder.path('recipe.lua'), '--out', 'infinite.safetensors')
    check_error(ended, 1, 'infinite.safetensors is written, but the loss is ')
    check(os.path.getsize('infinite.safetensors') > 1000, 'there is no file')


ADAPTER = {'no type': (lambda c: c.pop('peft_type'), "adapter_config.json: no 'peft_type'"),
           'no base': (lambda c: c.update(base_model_name_or_path=None), "'base_model_name_or_path' is not set"),
           'base elsewhere': (lambda c: c.update(base_model_name_or_path='org/name'), "the base model 'org/name' is not a folder here")}


@cases(ADAPTER)
def adapter(_, of):
    change, says = of
    folder = pathlib.Path(made('adapter'), 'adapter')
    content = (folder / 'adapter_config.json').read_text()
    config = json.loads(content)
    change(config)
    (folder / 'adapter_config.json').write_text(json.dumps(config))
    ended = galley('sample', folder, '--prompt', 'x')
    (folder / 'adapter_config.json').write_text(content)
    check_error(ended, 2, says)


@cases({'arms': dict(seeds=[1], differ=[]), 'seeds': dict(arms=[], differ=[])})
def comparison_of_others(_, content):
    os.makedirs('foreign', exist_ok=True)
    write('foreign/compare.json', json.dumps(content))
    check_error(galley('report', 'foreign'), 1, "compare.json: no 'arms', 'seeds' or 'differ'", hint='not one that Galley wrote')


# ---- Patterns of Lua -------------------------------------------------------------------------------------------------------------------
LUA = {
    '("a"):find("%")': "malformed pattern (ends with '%')", '("a"):find("[a")': "malformed pattern (missing ']')",
    '("a"):find("%f")': "missing '[' after '%f' in pattern",
    '("a"):find("%bx")': "malformed pattern (missing arguments to '%b')", '("a"):find("(a")': 'unfinished capture', '("a"):match("a)")': 'invalid pattern capture',
    '("a"):find("(a%1)")': 'invalid capture index %1', '("a"):find(("()"):rep(40))': 'too many captures',
    '("a"):gsub("a", "%x")': "invalid use of '%' in replacement string",
    '("a"):gsub("a", "%2")': 'invalid capture index %2', '("a"):gsub(".", function() return {} end)': 'invalid replacement value (a table)',
}


@cases(LUA)
def pattern(text, says):
    path = write('patterns/pattern.lua', f'local found = {text}\n' + RECIPE)
    check_error(galley('plan', path), 2, 'pattern.lua:1: ', says)


# ---- Recipes ---------------------------------------------------------------------------------------------------------------------------
GPT2 = from_config('gpt2', vocab_size=256, n_positions=16, n_embd=16, n_layer=1, n_head=2)
BERT = from_config('bert', vocab_size=320, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=32)
T5 = from_config('t5', vocab_size=320, d_model=16, d_ff=16, d_kv=8, num_layers=1, num_heads=2)
TOKENS = from_config('roberta', vocab_size=320, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
                     max_position_embeddings=40)[:-2] + ', task = "token-classification", labels = 2 }'
ROWS = from_config('llama', **LLAMA)[:-2] + ', task = "sequence-classification"'
ENTRIES = ', batch = 2, length = 8, steps = 1, use "sgd" { lr = 0.1 }'
WORDS = 'data.jsonl { files = "words.jsonl", tokenizer = "bpe", text = "words", label = "tags" }'


def of(model, data, more=ENTRIES):
    return f'return recipe {{ model = {model}, data = {data}{more} }}\n'


TEXTS = 'data.text { files = { "text.txt" }, tokenizer = "bytes" }'
BPE = TEXTS.replace('"bytes"', '"bpe"')
FILES = {'seven.bin': bytes(7), 'ids.bin': struct.pack('<4I', 1, 1 << 31, 2, 3), 'no-type/config.json': '{}',
         'empty-answer.jsonl': json.dumps(dict(prompt='a', answer='')) + '\n'}
RECIPES = [
    (of(GPT2, TEXTS, ENTRIES.replace('steps = 1', 'epochs = 1e6')), "'epochs' are more than 10000000 steps here"),
    ('return compare "two"', 'compare takes a table in braces'), ('return recipe "one"', 'recipe takes a table in braces'),
    ('return compare { variants = 3 }', "'variants' of the comparison must be a table of variants by name"),
    (of(GPT2, 'data.mix { }'), 'there is nothing to mix'), (of(GPT2, f'data.mix {{ {TEXTS}, weights = {{ 0 }} }}'), 'all weights are 0'),
    (of(GPT2, TEXTS, ENTRIES + ', target_length = 4'), "the recipe gives a target_length, but the model's task 'causal-lm' has no target"),
    (of(GPT2, TEXTS, ', use "amp" { compute = "tf32", weights = "bf16" }' + ENTRIES), 'weights = "bf16" goes with 16 bit: with tf32, weights are F32'),
    (of(GPT2, TEXTS, ', use "amp" { compute = "fp16", weights = "bf16" }' + ENTRIES), 'weights = "bf16" goes with compute = "bf16"'),
    (of(GPT2, 'data.tokens { files = { "ids.bin" }, dtype = "uint32" }'), "ids.bin' has 2147483648 at byte 4; ids are below 2^31"),
    (of(GPT2, 'data.tokens { files = { "seven.bin" }, dtype = "uint32" }'), "seven.bin' has 7 bytes, which is no whole number of tokens of 4 bytes"),
    (of(GPT2, 'data.prompts { files = "empty-answer.jsonl", tokenizer = "bytes" }'), "empty-answer.jsonl:1: field 'answer' is empty"),
    (of('model { path = "no-type" }', TEXTS), "config.json: no 'model_type'"),
    (of(BERT, BPE), 'the model learns masked tokens, but its tokenizer has no mask'),
    (of(T5, BPE, ENTRIES + ', target_length = 4'), "the model's task 'seq2seq-lm' learns targets of sources, which data.text does not have"),
    (of(ROWS + ', labels = 2 }', BPE), "the model's task 'sequence-classification' learns labels, which data.text does not have"),
    (of(GPT2[:-2] + ', labels = 2 }', TEXTS), "'labels' = 2, but the task 'causal-lm' has no labels"),
    (of(GPT2[:-2] + ', task = "sorting" }', TEXTS), "'task' = 'sorting' is none that models of type 'gpt2' have"),
    (of('model { family = "gpt9", config = {} }', TEXTS), "no family for model_type 'gpt9'"),
]


@cases({f'{i}.{says[:40]}': (text, says) for i, (text, says) in enumerate(RECIPES)})
def refused_recipe(_, what):
    text, says = what
    bpe()
    for file, content in FILES.items():
        write(os.path.abspath(file), content)
    pathlib.Path('refused.lua').write_text(text)
    check_error(galley('data', 'refused.lua'), 2, *([] if 'model_type' in says else ['refused.lua:1: ']), says)


LABELS = [
    (TOKENS, dict(words=['a', 'b'], tags=[0]), "fields 'words' and 'tags' have to be lists of as many words as labels"),
    (TOKENS, dict(words='a b', tags=[0, 1]), "fields 'words' and 'tags' have to be lists of as many words as labels"),
    (TOKENS, dict(words=['a', 3], tags=[0, 1]), "field 'words' has integer where a word belongs"),
    (TOKENS, dict(words=['a', 'b'], tags=[-100, -100]), 'nothing in it has a label'),
    (TOKENS, dict(words=['a', 'b'], tags=[0, 2]), "label 2 is none of the model's: 0 to 1"),
    (TOKENS, 3, 'a line has to be an object, this is integer'),
]


@cases({f'{i}.{says[:40]}': (model, line, says) for i, (model, line, says) in enumerate(LABELS)})
def labels_of_words(_, what):
    model, line, says = what
    bpe()
    pathlib.Path('words.jsonl').write_text(json.dumps(line) + '\n')
    pathlib.Path('words.lua').write_text(of(model, WORDS))
    hint = None if 'none of the model' in says else 'skip_bad = true leaves such lines out and counts them'
    check_error(galley('data', 'words.lua'), 2, 'words.lua:1: data.jsonl: ', 'words.jsonl:1: ', says, hint=hint)


@case
def words_that_are_right():
    bpe()
    pathlib.Path('words.jsonl').write_text(''.join(json.dumps(x) + '\n' for x in PAIRS))
    pathlib.Path('words.lua').write_text(of(TOKENS, WORDS))
    facts = json.loads(run('data', 'words.lua', '--json').stdout.splitlines()[0])['data'][0]
    check(facts['documents'] == len(PAIRS), f'{facts}')


@case
def labels_that_are_texts():
    """More than 10,000 different ones are no labels."""
    bpe()
    pathlib.Path('many.jsonl').write_text(''.join(json.dumps(dict(text='a', kind=f'kind {i}')) + '\n' for i in range(10001)))
    pathlib.Path('many.lua').write_text(of(ROWS + ' }', 'data.jsonl { files = "many.jsonl", tokenizer = "bpe", label = "kind" }'))
    check_error(galley('data', 'many.lua'), 2, "the field 'kind' has more than ", 'different texts: those are no labels', hint='say which field the label is')


VALUES = {
    'dtype': ('regression', 1, ('I32', (2, 1), [1, 2]), "tensor 'labels' is I32 (2, 1); values must be F32"),
    'no number': ('regression', 1, ('F32', (2, 1), [1.0, float('nan')]), 'row 1: labels[0] is no finite number'),
    'flags': ('multi-label-classification', 3, ('I32', (2, 3), [0, 1, 0, 1, 2, 0]), 'row 1: labels[1] is 2; it must be -100, or a label: 0 to 1'),
    'too many': ('regression', 1, ('F32', (2, 2), [1.0] * 4), 'labels has 2 numbers a row; the model takes 1'),
}


@cases(VALUES)
def labels_of_a_batch(name, of_batch):
    task, labels, tensor, says = of_batch
    file = write(os.path.abspath('batch/batch.safetensors'), safetensors({'input_ids': ('I32', (2, 4), [1] * 8), 'labels': tensor}))
    model = from_config('llama', **LLAMA)[:-2] + f', task = "{task}", labels = {labels} }}'
    pathlib.Path('batch.lua').write_text(of(model, 'data.batch { path = "batch/batch.safetensors" }', ', steps = 1, use "sgd" { lr = 0.1 }'))
    check_error(galley('train', 'batch.lua', '--out', f'batch-{name}'), 2, f'batch.lua:1: data.batch: {file}', says)


# ---- Comparisons ---------------------------------------------------------------------------------------------------------------------------
ARMS = 'seeds = { 1 }, baseline = "a", variants = { a = { use "sgd" { lr = 0.1 } }, b = { use "sgd" { lr = 0.2 } } }'


def compared(more='steps = 2'):
    text = f'return compare {{ model = {GPT2}, data = {TEXTS[:-2]}, validation = 0.2 }}, batch = 2, length = 8, validate = {{ every = 2 }}, {more}, {ARMS} }}\n'
    pathlib.Path('compare.lua').write_text(text)
    return 'compare.lua'


@case
def comparison_into_a_file():
    ended = galley('compare', compared(), '--out', 'text.txt/below')
    check_error(ended, 2, '--out text.txt/below: cannot be created: ')


@case
def line_without_a_step():
    run('compare', compared(), '--out', 'comparison')
    metrics = pathlib.Path('comparison/arms/a/seed-1/metrics.jsonl')
    metrics.write_text(metrics.read_text() + '{"loss": 3.0}\n')
    check_error(galley('compare', 'compare.lua', '--out', 'comparison'), 1, 'metrics.jsonl: a line has no step', hint="remove the run's folder")


@case
def times_of_another_hand():
    write(os.path.abspath('timed/budget.json'), '{}')
    ended = galley('compare', compared('budget = { seconds = 0.01 }'), '--out', 'timed')
    check_error(ended, 1, "budget.json: it has no 'seconds_of_a_step'", hint='trial runs measure again')


@case
def budget_that_a_comparison_lacks():
    says = '--set budget is what differs between the runs of a comparison'
    check_error(galley('plan', compared(), '--set', 'budget=4'), 2, says, hint='write budget = { tokens = 1e6 } into the recipe')
    ended = galley('train', compared(), '--out', 'never', '--set', 'variant=a', '--set', 'budget=4')
    check_error(ended, 2, '--set budget=4: the comparison has no budget', hint='it says how many steps there are')


@case
def long_field():
    bpe()
    pathlib.Path('long.csv').write_text('text,kind\na,0\n' + 'x' * (17 << 20) + ',1\n')
    pathlib.Path('long.lua').write_text(of(ROWS + ', labels = 2 }', 'data.jsonl { files = "long.csv", tokenizer = "bpe", label = "kind" }'))
    check_error(galley('data', 'long.lua'), 2, 'long.csv, row 2: a field of more than 16 MiB')
    os.remove('long.csv')


@case
def quote_without_end():
    bpe()
    pathlib.Path('open.csv').write_text('text,kind\n"never closed,0\n')
    pathlib.Path('open.lua').write_text(of(ROWS + ', labels = 2 }', 'data.jsonl { files = "open.csv", tokenizer = "bpe", label = "kind" }'))
    check_error(galley('data', 'open.lua'), 2, 'open.csv: a double quote is never closed')


finish()
