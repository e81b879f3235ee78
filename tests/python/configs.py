#!/usr/bin/env python3
"""What configurations mean, and what saving writes of them: every value that the family took, in the words of transformers 5.

A model that is made from a sparse configuration is saved with a whole one, which gives the same model when it is read again, and reads the
same in transformers, which fills in other numbers for each of these families.
"""
import functools
import json
import pathlib

from galley_test import (batch_of, case, cases, check, error, finish, fixtures, fresh_folder, from_config, from_folder, gradients, load, lua, recipe, run, save,
                         train, use)
from steps_kit import refused

fresh_folder()
small = {'vocab_size': 61, 'hidden_size': 32, 'intermediate_size': 48, 'num_hidden_layers': 2, 'num_attention_heads': 4,
         'max_position_embeddings': 32}
adamw = use('adamw', lr=1e-3)


def saved(path):
    return json.loads((pathlib.Path(path) / 'model/config.json').read_text())


def saved_by(name, model, *uses, length=16):
    """What a run of one step saves of a model."""
    return saved(train(recipe(f'{name}.lua', model, 'data.random {}', adamw, *uses, batch=1, length=length, steps=1, seed=1), name).path)


def check_saved(config, expected):
    for key, value in expected.items():
        found = config.get(key, 'nothing')
        check(found == value and type(found) is type(value), f'saved {key} = {found!r}, not {value!r}')


# ---- From a recipe, with as little as a family takes ----
common = {'initializer_range': 0.02, 'rms_norm_eps': 1e-6, 'hidden_act': 'silu', 'tie_word_embeddings': False, 'attention_dropout': 0.0,
          'rope_theta': 10000.0, 'dtype': 'float32', 'eos_token_id': None}
some = {'use_sliding_window': False, 'max_window_layers': 28, 'layer_types': ['full_attention'] * 2}
FAMILIES = {
    'llama': (small, {**common, 'num_key_value_heads': 4, 'head_dim': 8, 'attention_bias': False, 'mlp_bias': False}),
    'mistral': ({**small, 'num_key_value_heads': 2}, {**common, 'num_key_value_heads': 2, 'head_dim': 8, 'sliding_window': 4096}),
    'qwen2': ({**small, 'num_key_value_heads': 2}, {**common, **some, 'num_key_value_heads': 2, 'head_dim': 8}),
    'qwen3': ({**small, 'num_key_value_heads': 2}, {**common, **some, 'num_key_value_heads': 2, 'head_dim': 128, 'attention_bias': False}),
    'gpt2': ({'vocab_size': 61, 'n_positions': 32, 'n_embd': 32, 'n_layer': 2, 'n_head': 4},
             {'activation_function': 'gelu_new', 'layer_norm_epsilon': 1e-5, 'initializer_range': 0.02, 'embd_pdrop': 0.1, 'resid_pdrop': 0.1,
              'attn_pdrop': 0.1, 'scale_attn_weights': True, 'scale_attn_by_inverse_layer_idx': False, 'tie_word_embeddings': True,
              'add_cross_attention': False}),
}
architectures = {'llama': 'LlamaForCausalLM', 'mistral': 'MistralForCausalLM', 'qwen2': 'Qwen2ForCausalLM', 'qwen3': 'Qwen3ForCausalLM',
                 'gpt2': 'GPT2LMHeadModel'}


@cases(FAMILIES)
def sparse(family, of):
    """From a recipe, with as little as a family takes."""
    config, expected = of
    found = saved_by(family, from_config(family, **config))
    check_saved(found, {**config, **expected, 'model_type': family, 'architectures': [architectures[family]]})
    # Read again it is complete: another save adds nothing.
    check(saved_by(f'{family}-again', from_folder(f'{family}/model')) == found, 'what was saved is read as another configuration')


# ---- From a folder -------------------------------------------------------------------------------------------------------------------------

models = fixtures / 'models'


def folder(name, source, changes, drop=()):
    """A copy of a reference model with another configuration."""
    path = pathlib.Path(name)
    path.mkdir()
    (path / 'model.safetensors').symlink_to((source / 'model.safetensors').resolve())
    config = {k: v for k, v in json.loads((source / 'config.json').read_text()).items() if k not in drop}
    (path / 'config.json').write_text(json.dumps({**config, **changes}))
    return path


def logits_of(name, source, changes=None, drop=()):
    """What the model NAME-model, with these changes, gives."""
    path = folder(f'{name}-model', source, changes or {}, drop)
    return gradients(recipe(f'{name}.lua', from_folder(path), batch_of(source / 'batch.safetensors'), adamw, steps=1), f'{name}.safetensors', '--logits')['logits'][2]


@case
def sliding_window():
    source = models / 'mistral-window'
    asked, whole = logits_of('window', source), logits_of('null', source, {'sliding_window': None})
    absent = logits_of('absent', source, drop=['sliding_window'])
    check(asked != whole, 'a window of 9 changes nothing')
    check(absent == whole, 'a window beyond the row changes something')
    check_saved(saved_by('absent-run', from_folder('absent-model')), {'sliding_window': 4096})
    check(saved_by('null-run', from_folder('null-model'))['sliding_window'] is None, 'sliding_window = null is saved as something else')


@case
def windows_from_some_layer_on():
    """28 is where they begin if nobody says."""
    source = models / 'qwen2-bias-tied'
    plain = logits_of('plain', source)
    qwen = {'use_sliding_window': True, 'sliding_window': 3}
    check(logits_of('late', source, qwen, drop=['layer_types', 'max_window_layers']) == plain, 'windows begin before layer 28 of qwen2')
    first = logits_of('first', source, {**qwen, 'max_window_layers': 1}, drop=['layer_types'])
    check(first != plain, 'max_window_layers is not read')
    types = {**qwen, 'layer_types': ['full_attention', 'sliding_attention']}
    check(logits_of('types', source, types) == first, 'layer_types does not go before max_window_layers')
    check_saved(saved_by('first-run', from_folder('first-model')), {**types, 'max_window_layers': 1, 'num_key_value_heads': 2})


@case
def base_of_rope():
    """Wherever it stands."""
    source = models / 'llama-rope-llama3'
    asked = logits_of('rope', source)
    parameters = json.loads((source / 'config.json').read_text())['rope_parameters']
    scaling = {k: v for k, v in parameters.items() if k != 'rope_theta'}
    for name, changes in (('beside', {'rope_scaling': scaling, 'rope_theta': 500000}), ('inside', {'rope_scaling': parameters}),
                          ('both', {'rope_scaling': parameters, 'rope_parameters': parameters})):
        check(logits_of(f'rope-{name}', source, changes, drop=['rope_parameters']) == asked, f'rope_theta {name} is read otherwise')
    check_saved(saved_by('rope-run', from_folder('rope-inside-model')), {'rope_scaling': parameters, 'rope_theta': 500000.0})


def of_another_class(name):
    """A folder that the class GPT2Model has saved, with code that is not saved with it."""
    return folder(name, models / 'gpt2-packed', {'architectures': ['GPT2Model'], 'auto_map': {'AutoModel': 'modeling.Other'}, 'torch_dtype': 'float16'})


@case
def class_that_saved():
    config = saved_by('class-run', from_folder(of_another_class('class-model')))
    check_saved(config, {'architectures': ['GPT2LMHeadModel'], 'dtype': 'float32'})
    check('auto_map' not in config and 'torch_dtype' not in config, 'auto_map or torch_dtype is saved')


def without(prefix):
    return lambda name: [name.removeprefix(prefix)]


NAMES = {
    'bert-old-names': without('bert.'), 'roberta-left-padding': without('roberta.'), 'distilbert-mlm': without('distilbert.'), 'gemma-geglu': without('model.'),
    'phi3-longrope': without('model.'), 'opt-preln': without('model.'), 'bloom-six-heads': without('transformer.'),
    'gpt-neox-partial': lambda name: [name.replace('embed_out', 'lm_head')],
    't5-relu-tied': lambda name: [name] if name != 'shared.weight' else ['encoder.embed_tokens.weight', 'lm_head.weight'],
}


@cases(NAMES)
def names_in_files(model, names):
    """Of other classes, and of other versions."""
    path, before = pathlib.Path(f'names-{model}'), load(models / model / 'model.safetensors')
    path.mkdir()
    (path / 'config.json').write_bytes((models / model / 'config.json').read_bytes())
    after = {new: x for old, x in before.items() for new in names(old)}
    check(after.keys() != before.keys(), 'the names are the same')
    save(path / 'model.safetensors', after)
    computed = gradients(recipe(f'names-{model}.lua', from_folder(path), batch_of(models / model / 'batch.safetensors'), adamw, steps=1), f'names-{model}.safetensors')
    e = error(computed['loss'][2], [json.loads((models / model / 'expect.json').read_text())['loss']])
    check(e <= 1e-6, f'under other names the loss is off by {e:.1e}')


# ---- Keys that change nothing, other names of keys, and what a model cannot be -------------------------------------------------------------


def graph(family, config):
    return run('plan', recipe('graph.lua', from_config(family, **config), 'data.random {}', adamw, batch=1, length=8, steps=1), '--dump', 'rewrite').stdout


gpt2 = FAMILIES['gpt2'][0]
bloom = {'vocab_size': 61, 'hidden_size': 32, 'n_layer': 2, 'n_head': 4}
gemma = {**small, 'head_dim': 8, 'num_key_value_heads': 4}
harmless = {'n_special': 0, 'predict_special_tokens': True, 'output_past': True, '_num_labels': 1, 'unsloth_fixed': True, 'unsloth_version': '2025.1',
            '_attn_implementation_autoset': True, 'max_sequence_length': 32, 'custom_pipelines': {'a': 1}}
SAME = {
    'harmless': ('gpt2', gpt2, harmless),
    'hidden_size before n_embd': ('gpt2', gpt2, {'n_embd': 64, 'hidden_size': 32}),
    'num_attention_heads before n_head': ('bloom', bloom, {'n_head': 2, 'num_attention_heads': 4}),
    'layer_types of whole attention': ('llama', small, {'layer_types': ['full_attention'] * 2}),
    'hidden_activation before hidden_act': ('gemma', gemma, {'hidden_activation': 'relu', 'hidden_act': 'gelu'}),
}


@cases(SAME)
def same_model(_, of):
    family, config, changes = of
    check(graph(family, {**config, **changes}) == graph(family, config), 'it is another model')


@cases({'windows': ('llama', {**small, 'layer_types': ['full_attention', 'sliding_attention']}, "'layer_types' is not 'full_attention'"),
        'learned positions': ('opt', {'vocab_size': 61, 'hidden_size': 32, 'ffn_dim': 48, 'num_hidden_layers': 1, 'num_attention_heads': 4, 'learned_embeddings': False},
                              "'learned_embeddings' = false")})
def refusals(_, of):
    family, config, text = of
    refused(recipe('refused.lua', from_config(family, **config), 'data.random {}', adamw, batch=1, length=8, steps=1), text)


@cases({'10': (10, 10), '10.0': (10.0, 10), '10.5': (10.5, 10.5)})
def types_of_numbers(name, of):
    """A number keeps its type: 256 is an integer to transformers, and 256.0 is not."""
    given, number = of
    typed = dict(small, head_dim=8, num_key_value_heads=2, sliding_window=5, query_pre_attn_scalar=given, attention_dropout=0, initializer_range=1)
    check_saved(saved_by(f'typed-{name}', from_config('gemma2', **typed), length=8), {'query_pre_attn_scalar': number, 'attention_dropout': 0, 'initializer_range': 1.0})


# ---- What is said of a model to other programs ---------------------------------------------------------------------------------------------

ids = {'bos_token_id': 1, 'eos_token_id': 2, 'pad_token_id': 3}
t5 = {'vocab_size': 61, 'd_model': 16, 'd_kv': 8, 'd_ff': 24, 'num_layers': 1, 'num_heads': 2}


@functools.cache
def words():
    """A tokenizer, and lines for it."""
    words = ['<unk>', '<s>', '</s>', '<pad>', *(f'w{i}' for i in range(12))]
    special = [{'id': i, 'content': words[i], 'special': True, **dict.fromkeys(('single_word', 'lstrip', 'rstrip', 'normalized'), False)} for i in range(4)]
    path = pathlib.Path('words').resolve()
    path.mkdir()
    (path / 'tokenizer.json').write_text(json.dumps({'version': '1.0', 'added_tokens': special, 'pre_tokenizer': {'type': 'WhitespaceSplit'},
                                                     'model': {'type': 'WordLevel', 'vocab': {w: i for i, w in enumerate(words)}, 'unk_token': '<unk>'}}))
    (path / 'tokenizer_config.json').write_text(json.dumps({'bos_token': '<s>', 'eos_token': {'content': '</s>'}, 'pad_token': '<pad>'}))
    pathlib.Path('words.jsonl').write_text(''.join(json.dumps({'text': f'w{i % 12} w{i % 5} w1', 'prompt': 'w1', 'answer': 'w2'}) + '\n' for i in range(9)))
    return path


@cases({'new': ('llama', small, 'jsonl'), 'named': ('llama', {**small, 'eos_token_id': 7}, 'jsonl'), 'seq2seq': ('t5', t5, 'prompts')})
def tokens(name, of):
    """A new model knows those of the tokenizer that it is trained with, so that other programs know where a text ends."""
    family, config, data = of
    path = recipe(f'{name}.lua', from_config(family, **config), f'data.{data} {{ files = {{ "words.jsonl" }}, tokenizer = {lua(words())} }}', adamw,
                  batch=1, length=16, steps=1, **({'target_length': 8} if family == 't5' else {}))
    train(path, name)
    expected = {**ids, **({'decoder_start_token_id': 3} if family == 't5' else {}), **{k: v for k, v in config.items() if k in ids}}
    check_saved(saved(name), expected)
    generation = json.loads(pathlib.Path(name, 'model/generation_config.json').read_text())
    check(generation == {'_from_model_config': True, **expected}, f'generation_config.json is {generation}')


@case
def base_of_an_adapter():
    """It says which model it belongs to, for whoever loads it by itself; one that said so already goes on saying it."""
    base = of_another_class('adapted')

    def adapter_config(name, *uses):
        made = train(recipe(f'{name}.lua', from_folder(base), 'data.random {}', adamw, *uses, batch=1, length=16, steps=1), name)
        return json.loads((made.path / 'adapter/adapter_config.json').read_text())

    config = adapter_config('adapter', use('lora', rank=2))
    check(config['base_model_name_or_path'] == str(base.resolve()), f'base_model_name_or_path is {config["base_model_name_or_path"]!r}, not {base.resolve()}')
    rest = (config['r'], config['lora_alpha'], config['lora_dropout'], config['exclude_modules'])
    check(rest == (2, 2, 0.0, None), f'the rest has changed: {config}')
    pathlib.Path('adapter/adapter/adapter_config.json').write_text(json.dumps({**config, 'base_model_name_or_path': 'someone/model'}))
    config = adapter_config('adapter-again', use('lora', path=pathlib.Path('adapter/adapter')))
    check(config['base_model_name_or_path'] == 'someone/model', f'base_model_name_or_path is {config["base_model_name_or_path"]!r}')


finish()
