#!/usr/bin/env python3
"""What configurations mean, and what saving writes of them: every value that the family took, in the words of transformers 5.

A model that is made from a sparse configuration is saved with a whole one, which gives the same model when it is read again, and reads the
same in transformers, which fills in other numbers for each of these families.
"""
import json
import pathlib

from galley_test import batch_of, check, error, finish, fixtures, fresh_folder, from_config, from_folder, gradients, load, lua, recipe, run, save, train, use

fresh_folder()
small = {'vocab_size': 61, 'hidden_size': 32, 'intermediate_size': 48, 'num_hidden_layers': 2, 'num_attention_heads': 4,
         'max_position_embeddings': 32}
adamw = use('adamw', lr=1e-3)


def saved(path):
    return json.loads((pathlib.Path(path) / 'model/config.json').read_text())


def check_saved(case, config, expected):
    for key, value in expected.items():
        found = config.get(key, 'nothing')
        check(found == value and type(found) is type(value), f'{case}: saved {key} = {found!r}, not {value!r}')


# ---- From a recipe, with as little as a family takes ----
common = {'initializer_range': 0.02, 'rms_norm_eps': 1e-6, 'hidden_act': 'silu', 'tie_word_embeddings': False, 'attention_dropout': 0.0,
          'rope_theta': 10000.0, 'dtype': 'float32', 'eos_token_id': None}
some = {'use_sliding_window': False, 'max_window_layers': 28, 'layer_types': ['full_attention'] * 2}
cases = {
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
for family, (config, expected) in cases.items():
    path = recipe(f'{family}.lua', from_config(family, **config), 'data.random {}', adamw, batch=2, length=16, steps=1, seed=1)
    out = train(path, family)
    config_out = saved(family)
    check_saved(family, config_out, {**config, **expected, 'model_type': family, 'architectures': [architectures[family]]})
    # Read again it is complete: another save adds nothing.
    path = recipe(f'{family}-again.lua', from_folder(f'{family}/model'), 'data.random {}', adamw, batch=2, length=16, steps=1, seed=2)
    train(path, f'{family}-again')
    check(saved(f'{family}-again') == config_out, f'{family}: what was saved is read as another configuration')


# ---- From a folder ----
def folder(name, source, changes, drop=()):
    """A copy of a reference model with another configuration."""
    path = pathlib.Path(name)
    path.mkdir()
    (path / 'model.safetensors').symlink_to((source / 'model.safetensors').resolve())
    config = {k: v for k, v in json.loads((source / 'config.json').read_text()).items() if k not in drop}
    (path / 'config.json').write_text(json.dumps({**config, **changes}))
    return path


def logits_of(name, path, source):
    batch = f'data.batch {{ path = "{name}.batch" }}'
    pathlib.Path(f'{name}.batch').write_bytes((source / 'batch.safetensors').read_bytes())
    return gradients(recipe(f'{name}.lua', from_folder(path), batch, adamw, steps=1), f'{name}.safetensors', '--logits')['logits'][2]


models = fixtures / 'models'
source = models / 'mistral-window'
asked = logits_of('window', folder('window-model', source, {}), source)
whole = logits_of('null', folder('null-model', source, {'sliding_window': None}), source)
absent = logits_of('absent', folder('absent-model', source, {}, drop=['sliding_window']), source)
check(asked != whole, 'a window of 9 changes nothing')
check(absent == whole, 'a window beyond the row changes something')
train(recipe('absent-train.lua', from_folder('absent-model'), 'data.random {}', adamw, batch=1, length=16, steps=1), 'absent-run')
check_saved('mistral without sliding_window', saved('absent-run'), {'sliding_window': 4096})
train(recipe('null-train.lua', from_folder('null-model'), 'data.random {}', adamw, batch=1, length=16, steps=1), 'null-run')
check(saved('null-run')['sliding_window'] is None, 'sliding_window = null is saved as something else')

# Windows from some layer on: 28 is where they begin if nobody says.
source = models / 'qwen2-bias-tied'
plain = logits_of('plain', folder('plain-model', source, {}), source)
qwen = {'use_sliding_window': True, 'sliding_window': 3}
drop = ['layer_types', 'max_window_layers']
check(logits_of('late', folder('late-model', source, qwen, drop=drop), source) == plain, 'windows begin before layer 28 of qwen2')
first = logits_of('first', folder('first-model', source, {**qwen, 'max_window_layers': 1}, drop=['layer_types']), source)
check(first != plain, 'max_window_layers is not read')
types = {**qwen, 'layer_types': ['full_attention', 'sliding_attention']}
check(logits_of('types', folder('types-model', source, types), source) == first, 'layer_types does not go before max_window_layers')
train(recipe('first-train.lua', from_folder('first-model'), 'data.random {}', adamw, batch=1, length=16, steps=1), 'first-run')
check_saved('qwen2', saved('first-run'), {**types, 'max_window_layers': 1, 'num_key_value_heads': 2})

# RoPE's base, wherever it stands.
source = models / 'llama-rope-llama3'
asked = logits_of('rope', folder('rope-model', source, {}), source)
parameters = json.loads((source / 'config.json').read_text())['rope_parameters']
scaling = {k: v for k, v in parameters.items() if k != 'rope_theta'}
drop = ['rope_parameters']
for name, changes in (('beside', {'rope_scaling': scaling, 'rope_theta': 500000}), ('inside', {'rope_scaling': parameters}),
                      ('both', {'rope_scaling': parameters, 'rope_parameters': parameters})):
    found = logits_of(f'rope-{name}', folder(f'rope-{name}-model', source, changes, drop=drop), source)
    check(found == asked, f'rope_theta {name} is read otherwise')
train(recipe('rope-train.lua', from_folder('rope-inside-model'), 'data.random {}', adamw, batch=1, length=16, steps=1), 'rope-run')
check_saved('rope_scaling', saved('rope-run'), {'rope_scaling': parameters, 'rope_theta': 500000.0})

# The class that saved the weights, and code that is not saved with them.
source = models / 'gpt2-packed'
other = {'architectures': ['GPT2Model'], 'auto_map': {'AutoModel': 'modeling.Other'}, 'torch_dtype': 'float16'}
folder('class-model', source, other)
train(recipe('class.lua', from_folder('class-model'), 'data.random {}', adamw, batch=1, length=16, steps=1), 'class-run')
config = saved('class-run')
check_saved('GPT2Model', config, {'architectures': ['GPT2LMHeadModel'], 'dtype': 'float32'})
check('auto_map' not in config and 'torch_dtype' not in config, 'auto_map or torch_dtype is saved')

# What tensors are called in files: of other classes, and of other versions.
def without(prefix):
    return lambda name: [name.removeprefix(prefix)]


for case, names in {'bert-old-names': without('bert.'), 'roberta-left-padding': without('roberta.'), 'distilbert-mlm': without('distilbert.'),
                    'gemma-geglu': without('model.'), 'phi3-longrope': without('model.'), 'opt-preln': without('model.'),
                    'bloom-six-heads': without('transformer.'), 'gpt-neox-partial': lambda name: [name.replace('embed_out', 'lm_head')],
                    't5-relu-tied': lambda name: [name] if name != 'shared.weight' else ['encoder.embed_tokens.weight', 'lm_head.weight']}.items():
    path = pathlib.Path(f'names-{case}')
    path.mkdir()
    (path / 'config.json').write_bytes((models / case / 'config.json').read_bytes())
    save(path / 'model.safetensors', {new: x for old, x in load(models / case / 'model.safetensors').items() for new in names(old)})
    computed = gradients(recipe(f'names-{case}.lua', from_folder(path), batch_of(models / case / 'batch.safetensors'), adamw, steps=1), f'names-{case}.safetensors')
    e = error(computed['loss'][2], [json.loads((models / case / 'expect.json').read_text())['loss']])
    check(e <= 1e-6, f'{case} under other names: the loss is off by {e:.1e}')

# Keys that change nothing, other names of keys, and what a model cannot be.
def planned(name, family, config, code=0):
    r = run('plan', recipe(f'{name}.lua', from_config(family, **config), 'data.random {}', adamw, batch=1, length=8, steps=1), '--dump', 'rewrite', code=code)
    return r.stderr if code else r.stdout


gpt2 = cases['gpt2'][0]
asked = planned('keys', 'gpt2', gpt2)
harmless = {'n_special': 0, 'predict_special_tokens': True, 'output_past': True, '_num_labels': 1, 'unsloth_fixed': True, 'unsloth_version': '2025.1',
            '_attn_implementation_autoset': True, 'max_sequence_length': 32, 'custom_pipelines': {'a': 1}}
check(planned('keys', 'gpt2', {**gpt2, **harmless}) == asked, 'a key without a meaning changes a model')
check(planned('keys', 'gpt2', {**gpt2, 'n_embd': 64, 'hidden_size': 32}) == asked, "gpt2: 'hidden_size' does not go before 'n_embd'")
bloom = {'vocab_size': 61, 'hidden_size': 32, 'n_layer': 2, 'n_head': 4}
asked = planned('names', 'bloom', bloom)
check(planned('names', 'bloom', {**bloom, 'n_head': 2, 'num_attention_heads': 4}) == asked, "bloom: 'num_attention_heads' does not go before 'n_head'")
asked = planned('layers', 'llama', small)
check(planned('layers', 'llama', {**small, 'layer_types': ['full_attention'] * 2}) == asked, 'llama: layer_types of whole attention change something')
said = planned('layers', 'llama', {**small, 'layer_types': ['full_attention', 'sliding_attention']}, code=2)
check("'layer_types' is not 'full_attention'" in said, f'llama with windows: {said}')
gemma = {**small, 'head_dim': 8, 'num_key_value_heads': 4}
asked = planned('gate', 'gemma', gemma)
check(planned('gate', 'gemma', {**gemma, 'hidden_activation': 'relu', 'hidden_act': 'gelu'}) == asked, "gemma: 'hidden_activation' counts")
opt = {'vocab_size': 61, 'hidden_size': 32, 'ffn_dim': 48, 'num_hidden_layers': 1, 'num_attention_heads': 4, 'learned_embeddings': False}
check("'learned_embeddings' = false" in planned('learned', 'opt', opt, code=2), 'opt without learned positions is not refused by name')

# A number keeps its type: 256 is an integer to transformers, and 256.0 is not.
typed = {**small, 'head_dim': 8, 'num_key_value_heads': 2, 'sliding_window': 5}
for given, number in ((10, 10), (10.0, 10), (10.5, 10.5)):
    train(recipe('typed.lua', from_config('gemma2', **typed, query_pre_attn_scalar=given, attention_dropout=0, initializer_range=1), 'data.random {}', adamw, batch=1,
                 length=8, steps=1), f'typed-{given}')
    check_saved(f'gemma2 with {given}', saved(f'typed-{given}'), {'query_pre_attn_scalar': number, 'attention_dropout': 0, 'initializer_range': 1.0})

# A new model knows the tokens of the tokenizer that it is trained with, so that other programs know where a text ends.
words = ['<unk>', '<s>', '</s>', '<pad>', *(f'w{i}' for i in range(12))]
special = [{'id': i, 'content': words[i], 'special': True, **dict.fromkeys(('single_word', 'lstrip', 'rstrip', 'normalized'), False)} for i in range(4)]
pathlib.Path('words').mkdir()
pathlib.Path('words/tokenizer.json').write_text(json.dumps({'version': '1.0', 'added_tokens': special, 'pre_tokenizer': {'type': 'WhitespaceSplit'},
                                                            'model': {'type': 'WordLevel', 'vocab': {w: i for i, w in enumerate(words)}, 'unk_token': '<unk>'}}))
pathlib.Path('words/tokenizer_config.json').write_text(json.dumps({'bos_token': '<s>', 'eos_token': {'content': '</s>'}, 'pad_token': '<pad>'}))
pathlib.Path('words.jsonl').write_text(''.join(json.dumps({'text': f'w{i % 12} w{i % 5} w1', 'prompt': 'w1', 'answer': 'w2'}) + '\n' for i in range(9)))
ids = {'bos_token_id': 1, 'eos_token_id': 2, 'pad_token_id': 3}
t5 = {'vocab_size': 61, 'd_model': 16, 'd_kv': 8, 'd_ff': 24, 'num_layers': 1, 'num_heads': 2}
for name, family, config, data in (('new', 'llama', small, 'jsonl'), ('named', 'llama', {**small, 'eos_token_id': 7}, 'jsonl'), ('seq2seq', 't5', t5, 'prompts')):
    path = recipe(f'{name}.lua', from_config(family, **config), f'data.{data} {{ files = {{ "words.jsonl" }}, tokenizer = {lua(pathlib.Path("words"))} }}', adamw,
                  batch=1, length=16, steps=1, **({'target_length': 8} if family == 't5' else {}))
    train(path, name)
    expected = {**ids, **({'decoder_start_token_id': 3} if family == 't5' else {}), **{k: v for k, v in config.items() if k in ids}}
    check_saved(name, saved(name), expected)
    generation = json.loads(pathlib.Path(name, 'model/generation_config.json').read_text())
    check(generation == {'_from_model_config': True, **expected}, f'{name}: generation_config.json is {generation}')

# An adapter says which model it belongs to, for whoever loads it by itself; one that said so already goes on saying it.
def adapter_config(name, *uses):
    train(recipe(f'{name}.lua', from_folder('class-model'), 'data.random {}', adamw, *uses, batch=1, length=16, steps=1), name)
    return json.loads((pathlib.Path(name) / 'adapter/adapter_config.json').read_text())


here = str(pathlib.Path('class-model').resolve())
config = adapter_config('adapter', use('lora', rank=2))
check(config['base_model_name_or_path'] == here, f'base_model_name_or_path is {config["base_model_name_or_path"]!r}, not {here!r}')
rest = (config['r'], config['lora_alpha'], config['lora_dropout'], config['exclude_modules'])
check(rest == (2, 2, 0.0, None), f'the rest has changed: {config}')
path = pathlib.Path('adapter/adapter/adapter_config.json')
path.write_text(json.dumps({**config, 'base_model_name_or_path': 'someone/model'}))
config = adapter_config('adapter-again', use('lora', path=pathlib.Path('adapter/adapter')))
check(config['base_model_name_or_path'] == 'someone/model', f'base_model_name_or_path is {config["base_model_name_or_path"]!r}')
finish()
