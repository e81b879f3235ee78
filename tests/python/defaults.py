#!/usr/bin/env python3
"""What models have of which config.json says nothing: what transformers (5.24) gives a configuration of each type. tests/fixtures/model-defaults has its
numbers, and how many parameters a model with all of them has."""
import json
import math
import re

from galley_test import case, cases, check, finish, fixtures, fresh_folder, from_config, recipe, run, train, use

fresh_folder()
known = json.loads((fixtures / 'model-defaults' / 'defaults.json').read_text())
small = dict(vocab_size=31, hidden_size=8, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=4,
             max_position_embeddings=16)
gpt2 = dict(vocab_size=31, n_positions=16, n_embd=8, n_layer=1, n_head=2)
distilbert = dict(vocab_size=31, dim=8, hidden_dim=12, n_layers=1, n_heads=2, max_position_embeddings=16)
t5 = dict(vocab_size=31, d_model=8, d_kv=4, d_ff=12, num_layers=1, num_decoder_layers=1, num_heads=2)
plain = {k: v for k, v in small.items() if k not in ('num_key_value_heads', 'head_dim')}
sizes = dict(gpt2=gpt2, distilbert=distilbert, t5=t5, mt5=t5, bert=plain, roberta=plain, gpt_neox=plain, phi3={**plain, 'num_key_value_heads': 1},
             opt=dict(vocab_size=31, hidden_size=8, ffn_dim=12, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=16, word_embed_proj_dim=8),
             gpt_neo=dict(vocab_size=31, hidden_size=8, num_layers=1, num_heads=2, max_position_embeddings=16, attention_types=[[['global'], 1]]),
             bloom=dict(vocab_size=31, hidden_size=8, n_layer=1, n_head=2))
# Galley writes none of these: heads of other models, what nothing is computed by, and what can have one value only.
elsewhere = re.compile(r'summary_|slow_but_exact|classifier_dropout|embd_pdrop|reorder_and_upcast|use_bidirectional|qa_dropout|attn_logit_softcapping|'
                       r'_sliding_window_pattern|layer_norm_elementwise_affine|add_cross_attention')


def compared(kind):
    """{key: what transformers gives it} of what Galley writes where config.json says nothing."""
    given = sizes.get(kind, small)
    return {k: v for k, v in known[kind]['config'].items() if k not in given and v is not None and not elsewhere.match(k)}


def entries(kind):
    return dict(batch=1, length=8, steps=1, **({'target_length': 4} if 't5' in kind else {}))


adamw = use('adamw', lr=1e-3)


@cases(known)
def parameters(kind, expected):
    graph = run('plan', recipe('whole.lua', from_config(kind), 'data.random {}', adamw, **entries(kind)), '--dump', 'rewrite').stdout
    count = sum(math.prod(map(int, shape.split(','))) for shape in re.findall(r'^  parameter \S+ f32\(([\d,]+)\)', graph, re.M))
    check(count == expected['parameters'], f'without a word it has {count} parameters, not {expected["parameters"]}')


@cases(known)
def configuration(kind, _):
    made = train(recipe(f'{kind}.lua', from_config(kind, **sizes.get(kind, small)), 'data.random {}', adamw, **entries(kind)), kind)
    saved = json.loads((made.path / 'model/config.json').read_text())
    for key, value in compared(kind).items():
        found = saved.get(key)
        if key == 'rope_parameters' and key not in saved:  # as older configurations write it
            found = dict(rope_theta=saved.get('rope_theta'))
            if kind == 'gpt_neox':
                found = dict(rope_theta=saved['rotary_emb_base'], partial_rotary_factor=saved['rotary_pct'])
            value = {k: v for k, v in value.items() if k in found}
        check(found == value and type(found) is type(value), f'{key} is {found!r} where config.json says nothing, not {value!r}')


@case
def all_that_there_are():
    count = sum(len(compared(kind)) for kind in known)
    check(len(known) == 18 and count > 100, f'only {count} defaults of {len(known)} types are compared')


finish()
