#!/usr/bin/env python3
"""Families of one's own that are wrong: in a copied installation, what is said of a line of `build`, by file and line; shapes and attributes that an op does
not take; and files that are no family."""
import os
import pathlib
import shutil

from errors_kit import case, cases, check_error, finish, fresh_folder, galley
from galley_test import binary, check, program, recipe, require, use

fresh_folder()
own = pathlib.Path('installation').resolve()
(own / 'models').mkdir(parents=True)
shutil.copy(program, own / 'galley')
os.symlink(pathlib.Path(binary) / 'plugins', own / 'plugins')
for folder in ('families', 'lib', 'targets'):
    shutil.copytree(pathlib.Path(binary) / 'models' / folder, own / 'models' / folder)
MODEL = 'model { family = "mine", config = { vocab_size = 32 } }'
path = recipe('own.lua', MODEL, 'data.random {}', use('sgd', lr=0.1), batch=2, length=8, steps=1)

# What the lines below have: a function that makes a parameter, the shapes (2, 8, 16), (16, 16) and (16), the ids (2, 8).
FAMILY = '''return {{ model_types = {{ "mine" }}, architecture = "MineForCausalLM", harmless = {{ "vocab_size" }}, build = function(config, g)
  local function P(name, ...) return g:parameter {{ name = name, shape = {{ ... }}, init = {{ "random_normal", std = 0.02 }} }} end
  local x, w, b, ids, random = P("x", 2, 8, 16), P("w", 16, 16), P("b", 16), g:input("input_ids"), g:scalar("random")
  {line}
end }}
'''
RIGHT = '''return { model_types = { "mine" }, architecture = "MineForCausalLM", harmless = { "vocab_size" }, build = function(config, g)
  local function P(name, ...) return g:parameter { name = name, shape = { ... }, init = { "random_normal", std = 0.02 } } end
  local h, head = g:node("embedding", "e", { g:input { name = "input_ids", below = 32 }, P("table", 32, 16) }), P("lm_head.weight", 32, 16)
  g:loss("cross_entropy", "loss", { g:node("linear", "lm_head", { h, head }), g:input("labels") })
end }
'''


def planned(text):
    (own / 'models/families/mine.lua').write_text(text)
    return galley('plan', path, executable=own / 'galley')


# ---- What a family says --------------------------------------------------------------------------------------------------------------
LINES = [
    ('P("p", 0)', 'extent 1 of a shape is no positive integer'), ('P("p", 16, 1.5)', 'extent 2 of a shape is no positive integer'),
    ('g:mark_block_input("x")', 'a tensor is wanted, got string'), ('g:node("gelu", "n", { 12345 })', 'no tensor 12345'),
    ('g:node("gelu", "n", { x }, { approximate = { "a" } })', "attribute 'approximate' has a string in its list"),
    ('g:node("gelu", "n", { x }, { approximate = { a = 1 } })', "attribute 'approximate' is a table"),
    ('g:node("gulu", "n", { x })', "no plugin provides the op 'gulu'"), ('g:scalar("luck")', "no step scalar 'luck'"),
    ('g:input("words")', "no data fills an input 'words'; say with what: fill = …, or call it one of input_ids"),
    ('g:input { name = "words", fill = "letters" }', "no data fills inputs with 'letters'; known are tokens"),
    ('g:input { fill = "tokens" }', 'an input has no name'),
    ('g:input { name = "words", fill = "tokens", shape = { 3 } }', "input 'words' is filled with 'tokens', which has another shape"),
]
# Calls of ops, with other inputs or attributes than they take.
ROPE = 'g:node("rope_table", "n", {}, { positions = 8, head_dim = 4, %s })'
OPS = [
    ('g:node("attention", "n", { w, w, w }, { heads = 2 })', 'q is (16, 16); it has to be (B, S, columns)'),
    ('g:node("attention", "n", { x, x, x }, { heads = 3, kv_heads = 2, head_dim = 4 })', 'heads = 3, kv_heads = 2; heads has to be a multiple of kv_heads'),
    ('g:node("attention", "n", { x, x, x }, { heads = 2, by_head = 1 })', 'by_head is for q, k and v in one operand'),
    ('g:node("attention", "n", { x }, { heads = 4, kv_heads = 2, by_head = 1 })', 'heads = 4, kv_heads = 2; by_head, each head has a key head'),
    ('g:node("attention", "n", { x }, { heads = 2, head_dim = 3 })', 'q with k and v packed after it is (2, 8, 16); 6 heads of 3 take 18 columns'),
    ('g:node("attention", "n", { x, x, x }, { heads = 2, head_dim = 4 })', 'q is (2, 8, 16); 2 heads of 4 take 8 columns'),
    ('g:node("attention", "n", { x, x, x }, { heads = 2, dropout = 1 })', 'dropout = 1.000000; it has to be at least 0 and below 1'),
    ('g:node("attention", "n", { x, x, x }, { heads = 2, dropout = 0.5 })', "dropout = 0.500000, but there is no input random to draw from"),
    ('g:node("attention", "n", { x, x, x, false, false, false, false, ids }, { heads = 2, dropout = 0.5 })', 'random has to be I64 (4): seed, window, first row, 0'),
    ('g:node("dropout", "n", { x, random }, { p = 1.5 })', 'p = 1.500000; it has to be between 0 and 1'),
    ('g:node("dropout", "n", { x, ids }, { p = 0.5 })', 'random has to be I64 (4): seed, window, first row, 0'),
    ('g:node("embedding", "n", { ids, b })', 'table is (16); it has to be (V, C)'),
    ('g:node("embedding_grad", "n", { x, ids }, { rows = 4, padding = 5 })', 'padding = 5; it has to be one of the 4 rows, or their number'),
    ('g:node("gelu", "n", { x }, { approximate = "erf" })', "approximate = 'erf'; it is 'tanh' or 'none'"),
    ('g:node("mean_rows", "n", { w, ids })', 'x is (16, 16); it has to be (B, S, C)'),
    ('g:node("mean_rows_grad", "n", { x, ids })', 'dy is (2, 8, 16), and mask (2, 8); they have to be (B, C) and (B, S)'),
    ('g:node("take_rows_grad", "n", { w }, { shape = { 16, 16 } })', 'x is (16, 16); without an index it has to be (B, S, C), beside dy (16, 16)'),
    ('g:node("attention_grad", "n", { x, x, x, false, false, false, false, false, x, ids, x }, { heads = 2 })', 'lse is (2, 8); it has to be (B, heads, Sq) in F32'),
    ('g:node("take_rows", "n", { w })', 'x is (16, 16); without an index it has to be (B, S, C)'),
    ('g:node("take_rows", "n", { x }, { position = 8 })', 'position = 8; sequences have positions 0 to 7'),
    ('g:node("take_rows", "n", { x, ids })', 'index is (2, 8); it has to be (n)'),
    ('g:node("linear", "n", { x, P("v", 16, 8) })', 'x (2, 8, 16) has rows of 16, but w (16, 8) (N × K) takes 8'),
    ('g:node("linear_int8", "n", { x, P("v", 16, 8) })', 'x (2, 8, 16) has rows of 16, but w (16, 8) (N × K) takes 8'),
    ('g:node("linear_int8", "n", { x, P("v", 8, 16) }, { transposed = 1 })', 'x (2, 8, 16) has rows of 16, but w (8, 16) (transposed: K × N) takes 8'),
    ('g:node("linear_int8", "n", { x, w }, { threshold = -1.0 })', 'threshold has to be at least 0'),
    ('g:node("rope_table", "n", {}, { positions = 8, head_dim = 5 })', 'head_dim = 5; it has to be even and positive'),
    (ROPE % 'theta = -1.0', 'theta and factor have to be positive'), (ROPE % 'factor = 0.0', 'theta and factor have to be positive'),
    (ROPE % 'type = "llama3", original_max_position = 0.0', 'original_max_position has to be positive'),
    (ROPE % 'type = "llama3", low_freq_factor = 4.0, high_freq_factor = 2.0', 'high_freq_factor has to be larger than low_freq_factor'),
    (ROPE % 'type = "yarn", beta_slow = 0.0', 'beta_slow has to be positive, and beta_fast not less'),
    (ROPE % 'type = "yarn", theta = 1.0', 'theta has to be above 1'),
    (ROPE % 'type = "longrope", factors = { 1.0, -1.0 }', "'factors' have to be positive, not -1"),
    ('g:node("rope_table", "n", {}, { positions = 7, head_dim = 4, type = "longrope", factors = { 1.0, 1.0 }, long_factors = { 1.0, 1.0 } })',
     'positions = 7; of two tables it has to be even'),
    ('g:node("norm_finish", "n", { P("s", 1), P("r", 1) })', 'sums of squares have to be F64'),
    ('g:node("scheduled", "n", { ids, ids, b })', 'has to be I64 (1)'),
]


@cases({f'{i}.{says[:50]}': (line, says) for i, (line, says) in enumerate(LINES + OPS)})
def line(_, what):
    text, says = what
    place = 'mine.lua:2: ' if text.startswith('P(') else 'mine.lua:4: '
    check_error(planned(FAMILY.format(line=text)), 2, 'own.lua:2: ', place, says)


@case
def right():
    ended = planned(RIGHT)
    check(ended.returncode == 0, f'a family that is right: {ended}')


@case
def no_blocks():
    (own / 'models/families/mine.lua').write_text(RIGHT)
    decay = recipe('decay.lua', MODEL, 'data.random {}', use('layer-decay', decay=0.9), use('sgd', lr=0.1), batch=2, length=8, steps=1)
    check_error(galley('plan', decay, executable=own / 'galley'), 2, 'decay.lua:7: layer-decay: the model has no blocks, so that no layer is before another')


@case
def no_hidden_state():
    (own / 'models/families/mine.lua').write_text(RIGHT.replace('32', '256'))
    pathlib.Path('text.txt').write_text('one two three four\n' * 20)
    texts = 'data.text { files = { "text.txt" }, tokenizer = "bytes" }'
    bytes_ = recipe('bytes.lua', MODEL.replace('32', '256'), texts, use('sgd', lr=0.1), batch=2, length=8, steps=1)
    ended = galley('train', bytes_, '--out', 'of-bytes', executable=own / 'galley')
    require(ended.returncode == 0, f'{ended}')
    check_error(galley('embed', 'of-bytes', input='"one"\n', executable=own / 'galley'), 2, 'this model marks no hidden state to show')


# ---- Files -----------------------------------------------------------------------------------------------------------------------------
BUILD = 'build = function() end'
FILES = [
    ('return 3 -- mine', 'mine.lua: a family returns a table { model_types, architecture, harmless, build }'),
    ('return { model_types = { "mine" }, architecture = "Mine", harmless = {} }', "a family has a function 'build'"),
    (f'return {{ model_types = {{ "mine" }}, tasks = {{ 3 }}, {BUILD} }}', "a family's 'tasks' is a list of tables { name, labels, architecture }"),
    (f'return {{ model_types = {{ "mine" }}, tasks = {{ {{ name = "sums", labels = "digits", architecture = "Mine" }} }}, {BUILD} }}',
     "task 'sums': there are no labels 'digits'"),
]


@cases({f'{i}.{says[:50]}': (text, says) for i, (text, says) in enumerate(FILES)})
def file(_, what):
    text, says = what
    check_error(planned(text), 2, says)


finish()
