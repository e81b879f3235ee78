#!/usr/bin/env python3
"""What goes in comes out: the config.json that is saved has each key of the one that was read, with its value and its type (10 is not 10.0, which transformers tells
apart), and beside these what is listed here. Of every model of tests/fixtures/models, trained for a step, and of popular models (tests/fixtures/configs), made small."""
import json
import pathlib

from galley_test import batch_of, case, cases, check, every, finish, fixtures, fresh_folder, from_folder, recipe, run, train, use

fresh_folder()
models = {x.name: x for x in sorted((fixtures / 'models').iterdir()) if x.is_dir()}
published = json.loads((fixtures / 'configs/published.json').read_text())
check(len(models) == 48 and len(published) == 66, f'{len(models)} models, {len(published)} configurations')
sgd = use('sgd', lr=1e-2)

# ---- What is added, on purpose: what transformers would take for a key that is not there. A function is called with the configuration -----------------


def heads(c):
    return c['num_attention_heads']


def share_of_head(c):
    return c['hidden_size'] // c['num_attention_heads']


def whole_attention(c):
    return ['full_attention'] * c['num_hidden_layers']


def by_pattern(c):
    """Layers of Gemma: each so many looks at all of the row."""
    each = 2 if c['model_type'] == 'gemma2' else c.get('sliding_window_pattern', 6)
    return ['full_attention' if (i + 1) % each == 0 else 'sliding_attention' for i in range(c['num_hidden_layers'])]


def problem(c):
    """What a classifier learns: said where it follows from the number of labels."""
    if 'SequenceClassification' in str(c['architectures']):
        return 'single_label_classification' if len(c['id2label']) > 1 else 'regression'


def unit(c):
    return 'gelu_new' if c['feed_forward_proj'] == 'gated-gelu' else c['feed_forward_proj']


tied = dict(tie_word_embeddings=True)
decoder = dict(attention_dropout=0.0, head_dim=share_of_head, num_key_value_heads=heads)
encoder = dict(tied, problem_type=problem)
t5 = dict(tied, relative_attention_max_distance=128, num_decoder_layers=lambda c: c['num_layers'], feed_forward_proj='relu', dense_act_fn=unit,
          is_gated_act=lambda c: 'gated' in c['feed_forward_proj'])
ADDED = {
    'gpt2': dict(tied, add_cross_attention=False, scale_attn_by_inverse_layer_idx=False, scale_attn_weights=True),
    'llama': dict(decoder, attention_bias=False, mlp_bias=False), 'mistral': decoder,
    'qwen2': dict(decoder, layer_types=whole_attention), 'qwen3': dict(decoder, layer_types=whole_attention),
    'gemma': tied, 'gemma2': dict(tied, layer_types=by_pattern), 'gemma3_text': dict(tied, layer_types=by_pattern),
    'phi3': dict(partial_rotary_factor=1.0),
    'gpt_neox': dict(attention_bias=True, attention_dropout=0.0, hidden_dropout=0.0, rotary_emb_base=10000.0, rotary_pct=0.25, use_parallel_residual=True),
    'gpt_neo': tied, 'opt': dict(tied, enable_bias=True), 'bloom': dict(tied, hidden_size=lambda c: c['n_embed'], n_head=lambda c: c['num_attention_heads']),
    'bert': encoder, 'roberta': encoder, 'distilbert': encoder,
    't5': dict(t5, scale_decoder_outputs=lambda c: c['tie_word_embeddings']), 'mt5': dict(t5, feed_forward_proj='gated-gelu'),
}
no_rope = {'gpt2', 'gpt_neo', 'gpt_neox', 'opt', 'bloom', 'bert', 'roberta', 'distilbert', 't5', 'mt5'}


def with_rope(c):
    """RoPE as it is saved: all that the type reads, in the place where the configuration says it."""
    given = c.get('rope_scaling')
    theta = (given or {}).get('rope_theta', c.get('rope_theta', 10000.0))
    if c['model_type'] == 'gemma3_text':
        of = dict(full_attention=c.get('rope_theta', 1000000.0), sliding_attention=c.get('rope_local_base_freq', 10000.0))
        return {'rope_parameters': {k: dict(rope_type='default', rope_theta=float(v)) for k, v in of.items()}}
    if not given:
        return dict(rope_theta=theta)
    kind = given.get('rope_type', given.get('type'))
    table = {**given, 'rope_type': kind, 'rope_theta': theta}
    if c['model_type'] == 'phi3':
        table = dict(partial_rotary_factor=c['partial_rotary_factor'], original_max_position_embeddings=c['original_max_position_embeddings']) | table
    if kind == 'su':  # what longrope was called first
        table['rope_type'] = 'longrope'
        del table['type']
    return dict(rope_scaling=table, rope_theta=theta)


# ---- What is changed, on purpose ---------------------------------------------------------------------------------------------------------------------

own_head = dict(tie_word_embeddings=False)  # transformers 5 says true of every T5, and the file has a head of its own
CHANGED = {
    'llama-bare': dict(architectures=['LlamaForCausalLM']), 'mt5-own-head': own_head, 't5-own-head': own_head,
    'google/gemma-2b': dict(hidden_act='gelu_pytorch_tanh'),  # what "gelu" means in the first files
}
# Of the code beside a model, which is not saved; and what "dtype" is called now.
GONE = {'auto_map', 'torch_dtype'}


def expected_of(name, given):
    out = {k: v for k, v in given.items() if k not in GONE} | dict(dtype='float32')
    for key, value in ADDED[given['model_type']].items():
        if key not in out:
            value = value(out) if callable(value) else value
            out |= {key: value} if value is not None else {}
    if 'rope_parameters' not in given and given['model_type'] not in no_rope:
        out |= with_rope(out)
    return out | CHANGED.get(name, {})


def check_saved(name, given, folder):
    saved, expected = json.loads((pathlib.Path(folder) / 'config.json').read_text()), expected_of(name, given)
    for key in sorted(set(saved) | set(expected)):
        text = [json.dumps(x[key], sort_keys=True) if key in x else 'nothing' for x in (saved, expected)]
        check(text[0] == text[1], f'{name}: {key} is saved as {text[0]}, not as {text[1]}; it was {json.dumps(given[key]) if key in given else "not there"}')


def exported(folder, path, model, target_length):
    words = ('--set', f'model={model}') if path else ()
    if path:
        pathlib.Path(path).write_text('return recipe { model = model { path = arg("model"), init = "random" }, data = data.random {}, batch = 1, length = 8, '
                                      f'{"target_length = 4, " if target_length else ""}steps = 1, {sgd} }}\n')
    return run('export', path or model, *words, '--out', folder)


# ---- Models of the fixtures --------------------------------------------------------------------------------------------------------------------------


@cases(models)
def fixture(name, folder):
    given = json.loads((folder / 'config.json').read_text())
    train(recipe(f'{name}.lua', from_folder(folder), batch_of(folder / 'batch.safetensors'), sgd, steps=1), name)
    check_saved(name, given, f'{name}/model')
    exported(f'{name}-export', None, folder, None)
    texts = [pathlib.Path(x, 'config.json').read_text() for x in (f'{name}/model', f'{name}-export')]
    check(texts[0] == texts[1], f'{name}: galley export writes another config.json than a run')


# ---- Popular models, made small ----------------------------------------------------------------------------------------------------------------------

VOCABULARY = 64
SIZES = dict(dict.fromkeys(('hidden_size', 'n_embd', 'n_embed', 'dim', 'd_model'), 32),
             **dict.fromkeys(('intermediate_size', 'ffn_dim', 'hidden_dim', 'd_ff', 'n_inner'), 24),
             **dict.fromkeys(('num_hidden_layers', 'n_layer', 'n_layers', 'num_layers', 'num_decoder_layers'), 2), vocab_size=VOCABULARY,
             **dict.fromkeys(('num_attention_heads', 'n_head', 'n_heads', 'num_heads'), 2), head_dim=8, d_kv=8)


def small_id(v):
    return [x % VOCABULARY for x in v] if isinstance(v, list) else v % VOCABULARY


def made_small(c):
    """The same keys and types; sizes, lists of layers or factors, and ids of tokens are others."""
    out = {k: SIZES[k] if k in SIZES and v is not None else small_id(v) if k.endswith('token_id') and v is not None else v for k, v in c.items()}
    if 'num_key_value_heads' in c:
        out['num_key_value_heads'] = 2 if c['num_key_value_heads'] == c['num_attention_heads'] else 1
    if 'word_embed_proj_dim' in c:
        out['word_embed_proj_dim'] = 32 if c['word_embed_proj_dim'] == c['hidden_size'] else 8
    if 'layer_types' in c:
        out['layer_types'] = c['layer_types'][-2:]
    if 'attention_types' in c:
        out['attention_layers'], out['attention_types'] = c['attention_layers'][:2], [[c['attention_types'][0][0], 1]]
    if 'long_factor' in (c.get('rope_scaling') or {}):
        pairs = int(16 * c.get('partial_rotary_factor', 1)) // 2
        out['rope_scaling'] = {k: v[:pairs] if isinstance(v, list) else v for k, v in c['rope_scaling'].items()}
    return out


def save_of(name, given):
    """What is saved of a configuration: as one of a folder that is new, and of the folder that was saved."""
    short = ''.join(x if x.isalnum() else '-' for x in name)
    model = pathlib.Path(f'{short}-model').resolve()
    model.mkdir()
    (model / 'config.json').write_text(json.dumps(given))
    exported(f'{short}-saved', f'{short}.lua', model, given['model_type'] in ('t5', 'mt5'))
    exported(f'{short}-again', None, f'{short}-saved', None)
    texts = [pathlib.Path(x, 'config.json').read_text() for x in (f'{short}-saved', f'{short}-again')]
    check(texts[0] == texts[1], f'{name}: what was saved is saved as something else')
    return f'{short}-saved'


@cases(published)
def popular(name, config):
    given = made_small(config)
    check_saved(name, given, save_of(name, given))


@case
def each_type_of_model():
    known = {x['model_type'] for x in published.values()}
    check(known == set(ADDED), f'{known ^ set(ADDED)}')
    read = {json.loads((x / 'config.json').read_text())['model_type'] for x in models.values()}
    check(read == known, f'{read ^ known}')
    check(every(x in published for x in CHANGED if '/' in x) and every(x in models for x in CHANGED if '/' not in x), 'a name is wrong')


# ---- Numbers with and without a fraction, and null ----------------------------------------------------------------------------------------------------

# Model, what its configuration says, what is saved if it is not the same.
llama, neox, gemma2 = 'meta-llama/Meta-Llama-3-8B', 'EleutherAI/pythia-160m', 'google/gemma-2-2b'
WRITTEN = [
    (llama, dict(rope_theta=10000)), (llama, dict(rope_theta=10000.0)), (llama, dict(rope_theta=12345.5)), (llama, dict(attention_dropout=0)),
    (llama, dict(rope_scaling=dict(rope_type='linear', factor=4))), (llama, dict(rope_scaling=dict(rope_type='linear', factor=4.0, rope_theta=10000), rope_theta=10000)),
    (llama, dict(rope_scaling=dict(rope_type='yarn', factor=2, original_max_position_embeddings=16, beta_fast=32, beta_slow=1.0, attention_factor=1, truncate=False))),
    (llama, dict(rope_scaling=dict(rope_type='dynamic', factor=2))), (llama, dict(rope_scaling={})),
    (llama, dict(eos_token_id=None, bos_token_id=None, pad_token_id=None)), (llama, dict(eos_token_id=[3, 4], bos_token_id=5)),
    (llama, dict(head_dim=None, num_key_value_heads=None), dict(head_dim=16, num_key_value_heads=2)),
    (llama, dict(initializer_range=1, rms_norm_eps=0), dict(initializer_range=1.0, rms_norm_eps=0.0)), (llama, dict(pretraining_tp=1.0)),
    (neox, dict(rotary_emb_base=10000.0, rotary_pct=1)), (neox, dict(rotary_pct=1.0, attention_dropout=0, hidden_dropout=0.25)),
    (gemma2, dict(query_pre_attn_scalar=10)), (gemma2, dict(query_pre_attn_scalar=10.0), dict(query_pre_attn_scalar=10)), (gemma2, dict(query_pre_attn_scalar=10.5)),
    (gemma2, dict(final_logit_softcapping=None, attn_logit_softcapping=None)),
    (gemma2, dict(final_logit_softcapping=30, attn_logit_softcapping=50), dict(final_logit_softcapping=30.0, attn_logit_softcapping=50.0)),
    ('microsoft/Phi-3-mini-4k-instruct', dict(partial_rotary_factor=1, sliding_window=None)),
    ('mistralai/Mistral-7B-v0.1', dict(sliding_window=None)),
    ('Qwen/Qwen2-0.5B', dict(use_sliding_window=True, max_window_layers=0, sliding_window=3), dict(layer_types=['sliding_attention'] * 2)),
    ('openai-community/gpt2', dict(n_inner=None, attn_pdrop=0, embd_pdrop=0.5)), ('EleutherAI/gpt-neo-125m', dict(intermediate_size=40)),
    ('google-bert/bert-base-uncased', dict(classifier_dropout=None, hidden_dropout_prob=0)),
    ('google-bert/bert-base-uncased', dict(classifier_dropout=0.5, layer_norm_eps=1e-5)),
    ('google-t5/t5-small', dict(num_decoder_layers=None, dropout_rate=0), dict(num_decoder_layers=2)),
    ('google-t5/t5-small', dict(initializer_factor=1), dict(initializer_factor=1.0)),
    # What nobody reads comes out as it went in, however it is nested.
    ('openai-community/gpt2', dict(license='x', task_specific_params={'a': [1, 1.0, None, {'b': [], 'c': {}, 'd': 'é\n"'}], 'e': 1e300, 'f': -0.0,
                                                                      'g': 9007199254740993})),
]


@cases({f'{i}.{row[0]}': row for i, row in enumerate(WRITTEN)})
def written(name, row):
    model, changes, *saved = row
    given = made_small(published[model]) | changes
    folder = save_of(f'written-{name}', given)
    check_saved(model, given | (saved[0] if saved else {}), folder)


finish(turns=2)
