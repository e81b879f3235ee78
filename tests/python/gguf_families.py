#!/usr/bin/env python3
"""GGUF files of Gemma, GPT-2, GPT-NeoX, BLOOM and T5, and of BERT, which is read only: what `galley export --format gguf` writes of each tensor, and that what is read of
the file is the model; what is refused. tests/readback/gguf_written.py and gguf_t5.py have llama.cpp read them."""
import base64
import json
import math
import pathlib
import shutil
import struct

from galley_test import case, cases, check, error, every, finish, fixtures, fresh_folder, from_folder, load, recipe, run, save, together, use
from gguf_kit import bytes_of, numbers_in, read, rows, write
from steps_kit import trained

fresh_folder()
models = fixtures / 'models'
GEMMA = {'input_layernorm': 'attn_norm', 'self_attn.q_proj': 'attn_q', 'self_attn.k_proj': 'attn_k', 'self_attn.v_proj': 'attn_v', 'self_attn.o_proj': 'attn_output',
         'self_attn.q_norm': 'attn_q_norm', 'self_attn.k_norm': 'attn_k_norm', 'mlp.gate_proj': 'ffn_gate', 'mlp.up_proj': 'ffn_up', 'mlp.down_proj': 'ffn_down'}
GEMMA2 = dict(GEMMA, **{'post_attention_layernorm': 'post_attention_norm', 'pre_feedforward_layernorm': 'ffn_norm', 'post_feedforward_layernorm': 'post_ffw_norm'})
FUSED = {'input_layernorm': 'attn_norm', 'attention.query_key_value': 'attn_qkv', 'attention.dense': 'attn_output', 'self_attention.query_key_value': 'attn_qkv',
         'self_attention.dense': 'attn_output', 'post_attention_layernorm': 'ffn_norm', 'mlp.dense_h_to_4h': 'ffn_up', 'mlp.dense_4h_to_h': 'ffn_down'}
PACKED = {'ln_1': 'attn_norm', 'attn.c_attn': 'attn_qkv', 'attn.c_proj': 'attn_output', 'ln_2': 'ffn_norm', 'mlp.c_fc': 'ffn_up', 'mlp.c_proj': 'ffn_down'}
# By architecture: the parts of a model, and those of its blocks.
NAMES = {'gemma': ({'embed_tokens': 'token_embd', 'norm': 'output_norm'}, dict(GEMMA, post_attention_layernorm='ffn_norm')),
         'gemma2': ({'embed_tokens': 'token_embd', 'norm': 'output_norm'}, GEMMA2), 'gemma3': ({'embed_tokens': 'token_embd', 'norm': 'output_norm'}, GEMMA2),
         'gpt2': ({'wte': 'token_embd', 'wpe': 'position_embd', 'ln_f': 'output_norm'}, PACKED),
         'gptneox': ({'embed_in': 'token_embd', 'final_layer_norm': 'output_norm', 'embed_out': 'output'}, FUSED),
         'phi3': ({'embed_tokens': 'token_embd', 'norm': 'output_norm', 'lm_head': 'output'},
                  {'input_layernorm': 'attn_norm', 'self_attn.qkv_proj': 'attn_qkv', 'self_attn.o_proj': 'attn_output', 'post_attention_layernorm': 'ffn_norm',
                   'mlp.gate_up_proj': 'ffn_up', 'mlp.down_proj': 'ffn_down'}),
         'bloom': ({'word_embeddings': 'token_embd', 'word_embeddings_layernorm': 'token_embd_norm', 'ln_f': 'output_norm'}, FUSED)}


def like(name, base, **entries):
    """The folder of a fixture, with other entries in config.json."""
    shutil.copytree(models / base, name)
    config = dict(json.loads((models / base / 'config.json').read_text()), **entries)
    pathlib.Path(name, 'config.json').write_text(json.dumps(config))
    return config


def alone(file):
    """A folder with nothing but the file, which is a model to every command."""
    folder = pathlib.Path(file).with_suffix('.folder')
    folder.mkdir()
    shutil.copy(file, folder)
    return folder


def words(count):
    """A tokenizer with a word for each token."""
    return dict(version='1.0', truncation=None, padding=None, added_tokens=[], normalizer=None, pre_tokenizer=dict(type='WhitespaceSplit'), post_processor=None, decoder=None,
                model=dict(type='WordLevel', vocab={f'w{i}': i for i in range(count)}, unk_token='w0'))


def named(architecture, parameter):
    """What the file calls it, and the part of the model that it is."""
    whole, block = NAMES[architecture]
    module, part = parameter.removeprefix('model.').removeprefix('transformer.').removeprefix('gpt_neox.').rsplit('.', 1)
    if module in whole:
        return f'{whole[module]}.{part}', module
    _, number, module = module.split('.', 2)
    return f'blk.{number}.{block[module]}.{part}', module


def in_file(architecture, module, part, shape, numbers, heads):
    """Shape and numbers as the file has them."""
    if architecture.startswith('gemma') and module.endswith('norm'):
        return shape, [x + 1 for x in numbers]
    if architecture == 'gpt2' and part == 'weight' and '.c_' in module:
        return shape[::-1], [numbers[i * shape[1] + k] for k in range(shape[1]) for i in range(shape[0])]
    if module.endswith('query_key_value'):
        lines, size = rows(numbers, shape), shape[0] // heads // 3
        return shape, [x for kind in range(3) for h in range(heads) for i in range(size) for x in lines[(h * 3 + kind) * size + i]]
    return shape, numbers


# By name: the fixture, the architecture, what of its configuration is otherwise here, and keys of the file.
MODELS = {
    'gemma': ('gemma-geglu', 'gemma', {}, {'attention.key_length': 12, 'attention.head_count_kv': 1, 'rope.freq_base': 10000.0}),
    'gemma2': ('gemma2-softcap', 'gemma2', dict(query_pre_attn_scalar=12),
               {'attention.sliding_window': 7, 'attn_logit_softcapping': 5.0, 'final_logit_softcapping': 3.0, 'attention.sliding_window_pattern': None}),
    'gemma2-linear': ('gemma2-softcap', 'gemma2', dict(query_pre_attn_scalar=12, layer_types=['full_attention'] * 2,
                                                       rope_parameters=dict(rope_type='linear', rope_theta=10000.0, factor=2.0)),
                      {'attention.sliding_window': 40, 'rope.scaling.type': 'linear', 'rope.scaling.factor': 2.0}),
    'gemma3': ('gemma3-two-ropes', 'gemma3', dict(query_pre_attn_scalar=12),
               {'attention.sliding_window': 7, 'attention.sliding_window_pattern': [True, False], 'rope.freq_base': 1e6, 'rope.freq_base_swa': 10000.0}),
    'gemma3-whole': ('gemma3-two-ropes', 'gemma3', dict(query_pre_attn_scalar=12, layer_types=['full_attention'] * 2, final_logit_softcapping=3.0),
                     {'attention.sliding_window': None, 'attention.sliding_window_pattern': None, 'final_logit_softcapping': 3.0}),
    'gpt2': ('gpt2-packed', 'gpt2', {}, {'context_length': 64, 'feed_forward_length': 256, 'attention.head_count': 4}),
    'gpt-neox': ('gpt-neox-partial', 'gptneox', {}, {'use_parallel_residual': True, 'rope.dimension_count': 2}),
    'longrope': ('phi3-longrope', 'phi3', {}, {'rope.scaling.type': 'longrope', 'rope.scaling.original_context_length': 16, 'rope.dimension_count': 4,
                                               'rope.scaling.attn_factor': math.sqrt(1 + math.log(40 / 16) / math.log(16))}),
    'bloom': ('bloom-six-heads', 'bloom', {}, {'feed_forward_length': 144, 'attention.head_count': 6, 'context_length': 2048}),
}
# What llama.cpp computes a little otherwise, which is said.
NOTES = {'gpt-neox': 'llama.cpp approximates GELU by tanh', 'longrope': "llama.cpp takes LongRoPE's factors by the length of its context"}


@cases(MODELS)
def written_and_read(name, of):
    """Each number is where llama.cpp looks for it, in the form in which it takes it; what comes back of the file is the model, to rounding where one is added."""
    base, architecture, entries, wants = of
    config = like(name, base, **entries)
    said = run('export', name, '--format', 'gguf', '--out', f'{name}.gguf', '--json')
    check(NOTES.get(name, 'has no tokenizer') in said.stderr, said.stderr)
    again = json.loads(said.stdout)['read_again']
    check(again['apart'] < 1e-6 and again['same'] == again['positions'] > 16, f'{again}')
    keys, tensors = read(f'{name}.gguf')
    check(keys['general.architecture'] == ('STR', architecture), f'{keys}')
    for key, value in wants.items():
        said_of_it = keys.get(f'{architecture}.{key}', (None, None))[1]
        said_of_it = said_of_it[1] if isinstance(said_of_it, tuple) else said_of_it
        check(said_of_it == value or isinstance(value, float) and math.isclose(said_of_it, value, rel_tol=1e-6), f'{key}: {said_of_it}, not {value}')
    plain = load(models / base / 'model.safetensors')
    heads, seen = config.get('n_head') or config.get('num_attention_heads'), set()
    for parameter, (_, shape, numbers) in plain.items():
        called, module = named(architecture, parameter)
        shape, numbers = in_file(architecture, module, parameter.rsplit('.', 1)[1], shape, list(numbers), heads)
        seen.add(called)
        check(tensors[called][1] == shape and error(numbers_in(tensors[called]), numbers) < 1e-7, f'{called}: {tensors[called][:2]}, not {shape}, or other numbers')
    if name == 'longrope':
        for vector in ('short', 'long'):
            got = numbers_in(tensors.pop(f'rope_factors_{vector}.weight'))
            check(error(got, config['rope_parameters'][f'{vector}_factor']) < 1e-7, f'{vector}: {got}')
    check(seen == tensors.keys(), f'{sorted(seen ^ tensors.keys())}')
    run('export', alone(f'{name}.gguf'), '--out', f'{name}-back', '--reference')
    back = load(f'{name}-back/model.safetensors')
    check(back.keys() == plain.keys(), f'{sorted(back.keys() ^ plain.keys())}')
    for parameter, (_, shape, numbers) in plain.items():
        most = 1.2e-7 if 'gemma' in name else 0
        check(back[parameter][1] == shape and max(abs(a - b) for a, b in together(back[parameter][2], numbers)) <= most, f'{parameter} is another')
    ours = json.loads(pathlib.Path(f'{name}-back/config.json').read_text())
    for key in ('model_type', 'architectures', 'query_pre_attn_scalar', 'sliding_window', 'layer_types', 'rope_parameters', 'tie_word_embeddings',
                'use_parallel_residual'):
        theirs = config.get(key)
        if theirs is not None and (key, name) not in {('sliding_window', 'gemma2-linear'), ('layer_types', 'gemma2-linear'), ('sliding_window', 'gemma3-whole')}:
            given = ours.get(key)
            if key == 'rope_parameters' and given is None:
                given = ours.get('rope_scaling') or dict(rope_type='default', rope_theta=ours['rope_theta'])
            if name == 'longrope' and key == 'rope_parameters':
                given = {k: [round(x, 5) for x in v] if isinstance(v, list) else v for k, v in given.items() if k != 'attention_factor'}
            check(given == theirs, f'{key}: {given}, not {theirs}')


def t5_name(parameter):
    whole = {'shared.weight': 'token_embd.weight', 'lm_head.weight': 'output.weight', 'encoder.final_layer_norm.weight': 'enc.output_norm.weight',
             'decoder.final_layer_norm.weight': 'dec.output_norm.weight'}
    if parameter in whole:
        return whole[parameter]
    stack, _, block, _, layer, rest = parameter.split('.', 5)
    cross = '' if stack == 'encoder' or layer != '1' else 'cross_'
    units = layer == ('1' if stack == 'encoder' else '2')
    parts = {'layer_norm': 'ffn_norm' if units else f'{cross}attn_norm', 'wi': 'ffn_up', 'wi_0': 'ffn_gate', 'wi_1': 'ffn_up', 'wo': 'ffn_down',
             'relative_attention_bias': 'attn_rel_b', **{x: f'{cross}attn_{x}' for x in 'qkvo'}}
    return f'{stack[:3]}.blk.{block}.{parts[rest.removesuffix(".weight").rsplit(".", 1)[-1]]}.weight'


@cases(['t5-relu-tied', 't5-own-head', 'mt5-own-head'])
def encoders_and_decoders(name):
    """A T5 that scales what the decoder makes has the scale in the weights of its last norm, since llama.cpp has none."""
    said = run('export', models / name, '--format', 'gguf', '--out', f'{name}.gguf', '--json')
    again = json.loads(said.stdout)['read_again']
    check(again['apart'] < 1e-6 and again['same'] == again['positions'] == 32, f'{again}')
    config, plain = json.loads((models / name / 'config.json').read_text()), load(models / name / 'model.safetensors')
    keys, tensors = read(f'{name}.gguf')
    for key, x in {'block_count': config['num_layers'], 'decoder_block_count': config['num_decoder_layers'], 'attention.key_length': config['d_kv'],
                   'decoder_start_token_id': 0, 'attention.relative_buckets_count': 32}.items():
        check(keys[f't5.{key}'] == ('U32', x), f'{key}: {keys[f"t5.{key}"]}, not {x}')
    run('export', alone(f'{name}.gguf'), '--out', f'{name}-back', '--reference')
    back, seen = load(f'{name}-back/model.safetensors'), set()
    for parameter, (_, shape, numbers) in plain.items():
        scaled = parameter == 'decoder.final_layer_norm.weight' and config['model_type'] == 't5' and config['scale_decoder_outputs']
        scale = config['d_model'] ** -0.5 if scaled else 1
        wants = [x * scale for x in numbers]
        seen.add(t5_name(parameter))
        written = tensors[t5_name(parameter)]
        check(written[1] == shape and error(numbers_in(written), wants) < 1e-7, f'{parameter} is otherwise in the file')
        check(back[parameter][1] == shape and error(list(back[parameter][2]), wants) < 1e-7, f'{parameter} comes back otherwise')
    check(seen == tensors.keys() and back.keys() == plain.keys(), f'{sorted(seen ^ tensors.keys())}, {sorted(back.keys() ^ plain.keys())}')
    ours = json.loads(pathlib.Path(f'{name}-back/config.json').read_text())
    check(ours['scale_decoder_outputs'] is False and every(ours[key] == config[key] for key in ('is_gated_act', 'num_decoder_layers', 'num_layers')), f'{ours}')


@cases(['', 'bert.'])
def encoders(prefix):
    """BERT is read: its embeddings are those of the same numbers in transformers' format."""
    config, parts = json.loads((models / 'bert-mlm' / 'config.json').read_text()), load(models / 'bert-mlm' / 'model.safetensors')
    names = {'embeddings.word_embeddings': 'token_embd', 'embeddings.position_embeddings': 'position_embd', 'embeddings.token_type_embeddings': 'token_types',
             'embeddings.LayerNorm': 'token_embd_norm', 'attention.self.query': 'attn_q', 'attention.self.key': 'attn_k', 'attention.self.value': 'attn_v',
             'attention.output.dense': 'attn_output', 'attention.output.LayerNorm': 'attn_output_norm', 'intermediate.dense': 'ffn_up', 'output.dense': 'ffn_down',
             'output.LayerNorm': 'layer_output_norm'}
    tensors = {}
    for parameter, (_, shape, numbers) in parts.items():
        if parameter.startswith('bert.') and 'pooler' not in parameter:
            module, part = parameter.removeprefix('bert.').rsplit('.', 1)
            number = module.split('.')[2] if module.startswith('encoder') else None
            called = names[module.split('.', 3)[3]] if number else names[module]
            tensors[f'blk.{number}.{called}.{part}' if number else f'{called}.{part}'] = ('F32', shape, bytes_of('F32', numbers))
    keys = {'general.architecture': ('STR', 'bert'), 'bert.attention.causal': ('BOOL', False), 'bert.pooling_type': ('U32', 1),
            'bert.attention.layer_norm_epsilon': ('F32', config['layer_norm_eps']),
            **{f'bert.{k}': ('U32', config[x]) for k, x in {
                'context_length': 'max_position_embeddings', 'embedding_length': 'hidden_size', 'block_count': 'num_hidden_layers',
                'feed_forward_length': 'intermediate_size', 'attention.head_count': 'num_attention_heads'}.items()}}
    folders = pathlib.Path(f'encoder-{prefix}file'), pathlib.Path(f'encoder-{prefix}plain')
    for folder in folders:
        folder.mkdir()
        (folder / 'tokenizer.json').write_text(json.dumps(words(config['vocab_size'])))
    write(folders[0] / 'model.gguf', keys, tensors)
    (folders[1] / 'config.json').write_text(json.dumps(config))
    save(folders[1] / 'model.safetensors', {prefix + k.removeprefix('bert.'): x for k, x in parts.items() if k.startswith('bert.') and 'pooler' not in k})
    texts = ''.join(json.dumps(dict(text=' '.join(f'w{(7 * i + k * k) % 60 + 3}' for k in range(5 + 3 * i)))) + '\n' for i in range(3))
    ours, theirs = ([json.loads(x)['embedding'] for x in run('embed', folder, '--length', 40, input=texts).stdout.splitlines()] for folder in folders)
    check(every(error(a, b) < 1e-6 and len(a) == config['hidden_size'] for a, b in together(ours, theirs)), f'{ours[0][:4]}, not {theirs[0][:4]}')
    run('export', folders[0], '--out', f'encoder-{prefix}back')
    back = load(f'encoder-{prefix}back/model.safetensors')
    check(back.keys() == {k.removeprefix('bert.') for k in parts if k.startswith('bert.') and 'pooler' not in k}, f'{sorted(back)}')
    check(every(list(x[2]) == list(parts[f'bert.{k}'][2]) for k, x in back.items()), 'other numbers come back')
    untyped = {k: x for k, x in tensors.items() if k != 'token_types.weight'}
    for cause, *file in (("key 'bert.attention.causal' has to be false", dict(keys, **{'bert.attention.causal': ('BOOL', True)}), tensors),
                         ("there is no tensor 'token_types.weight'", keys, untyped)):
        write(folders[0] / 'model.gguf', *file)
        said = run('embed', folders[0], '--length', 40, input=texts, code=2)
        check(cause in said.stderr, said.stderr)


@case
def encoder_of_t5():
    """An encoder's file alone embeds as the whole model does."""
    config = like('whole-t5', 't5-relu-tied')
    run('export', 'whole-t5', '--format', 'gguf', '--out', 'whole-t5.gguf')
    keys, tensors = read('whole-t5.gguf')
    alone_keys = {k.replace('t5.', 't5encoder.'): x for k, x in keys.items() if 'decoder' not in k}
    folder = pathlib.Path('encoder-t5')
    folder.mkdir()
    write(folder / 'model.gguf', dict(alone_keys, **{'general.architecture': ('STR', 't5encoder')}), {k: x for k, x in tensors.items() if not k.startswith('dec.')})
    for place in ('whole-t5', folder):
        pathlib.Path(place, 'tokenizer.json').write_text(json.dumps(words(config['vocab_size'])))
    texts = ''.join(json.dumps(dict(text=' '.join(f'w{(7 * i + k * k) % 60 + 3}' for k in range(5 + 3 * i)))) + '\n' for i in range(3))
    ours, theirs = ([json.loads(x)['embedding'] for x in run('embed', place, '--length', 40, input=texts).stdout.splitlines()] for place in (folder, 'whole-t5'))
    check(every(error(a, b) < 1e-6 for a, b in together(ours, theirs)), f'{ours[0][:4]}, not {theirs[0][:4]}')


@case
def unigram():
    """The scores of a unigram model are the file's, and so are its normalizations."""
    shutil.copytree(models / 't5-relu-tied', 'pieces')
    vocab = [['<pad>', 0.0], ['</s>', 0.0], ['<unk>', 0.0], ['▁', -2.5], ['▁a', -3.25], ['b', -4.0]]
    map_of = base64.b64encode(struct.pack('<I4I', 16, 0, 0, 0, 0) + b'x\0').decode()
    metaspace = dict(type='Metaspace', replacement='▁', prepend_scheme='always', split=True)
    tokenizer = dict(version='1.0', truncation=None, padding=None, normalizer=None, pre_tokenizer=metaspace, post_processor=None, decoder=None, model=dict(
        type='Unigram', unk_id=2, vocab=vocab, byte_fallback=False), added_tokens=[dict(id=i, content=vocab[i][0], single_word=False, lstrip=False, rstrip=False,
                                                                                        normalized=False, special=True) for i in range(3)])
    for merges in (False, True):
        if merges:
            tokenizer['normalizer'] = dict(type='Sequence', normalizers=[dict(type='Precompiled', precompiled_charsmap=map_of),
                                                                         dict(type='Strip', strip_left=False, strip_right=True),
                                                                         dict(type='Replace', pattern=dict(Regex=' {2,}'), content='▁')])
        pathlib.Path('pieces/tokenizer.json').write_text(json.dumps(tokenizer))
        run('export', 'pieces', '--format', 'gguf', '--out', f'pieces-{merges}.gguf', '--unchecked')
        keys = {k.removeprefix('tokenizer.ggml.'): x for k, x in read(f'pieces-{merges}.gguf')[0].items()}
        scores, kinds = keys['scores'][1][1], keys['token_type'][1][1]
        check(keys['model'] == ('STR', 't5') and kinds[:7] == [3, 3, 2, 1, 1, 1, 5], f'{kinds}')
        check(keys['tokens'][1][1][:6] == [x for x, _ in vocab] and scores[:6] == [x for _, x in vocab], f'{scores}')
        check(keys['add_space_prefix'] == ('BOOL', True) and keys['remove_extra_whitespaces'] == ('BOOL', merges), f'{keys["remove_extra_whitespaces"]}')
        check(('precompiled_charsmap' in keys) == merges and (not merges or bytes(keys['precompiled_charsmap'][1][1]) == base64.b64decode(map_of)), 'another map')
    for other, words in ((dict(normalizer=dict(type='Lowercase')), "no 'normalizer' of this kind for a unigram model"),
                         (dict(pre_tokenizer=dict(metaspace, prepend_scheme='never')), "no 'pre_tokenizer' of this kind for a unigram model"),
                         (dict(pre_tokenizer=dict(type='WhitespaceSplit')), "no 'pre_tokenizer' writes spaces as")):
        pathlib.Path('pieces/tokenizer.json').write_text(json.dumps(dict(tokenizer, **other)))
        said = run('export', 'pieces', '--format', 'gguf', '--out', 'none.gguf', code=2)
        check(words in said.stderr, said.stderr)


@cases(['gpt2', 'gpt-neox'])
def adapters(name):
    """B is in the order of the weight's rows in the file; of GPT-2, whose weights PEFT turns around, too."""
    base = MODELS[name][0]
    lora = use('lora', rank=2, alpha=4, targets='all-linear')
    one = trained(recipe(f'lora-{name}.lua', from_folder(models / base), 'data.random {}', lora, use('sgd', lr=0.5), batch=1, length=8, steps=2, seed=3), f'lora-{name}')
    run('export', one.path, '--out', f'lora-{name}-folder')
    run('export', one.path, '--format', 'gguf', '--out', f'lora-{name}.gguf')
    keys, tensors = read(f'lora-{name}.gguf')
    architecture = MODELS[name][1]
    check(keys['general.architecture'] == ('STR', architecture) and keys['adapter.lora.alpha'][1] == 4.0, f'{keys}')
    for part, (_, shape, numbers) in load(f'lora-{name}-folder/adapter_model.safetensors').items():
        parameter, kind = part.removeprefix('base_model.model.').removesuffix('.weight').rsplit('.lora_', 1)
        called, module = named(architecture, parameter + '.weight')
        numbers = list(numbers)
        if kind == 'B' and architecture == 'gptneox':
            shape, numbers = in_file(architecture, module, 'weight', shape, numbers, 4)
        written = tensors[f'{called}.lora_{kind.lower()}']
        check(written[1] == shape and numbers_in(written) == numbers, f'{part}: {written[:2]}, not {shape}, or other numbers')


@case
def blocks_by_kind():
    """Rows of blocks are moved whole: the file computes what the model does, to what rounding takes."""
    said = run('export', models / 'gpt-neox-partial', '--format', 'gguf', '--dtype', 'q8_0', '--out', 'neox-q8.gguf', '--json')
    again = json.loads(said.stdout)['read_again']
    check(0 < again['apart'] < 0.05, f'{again}')
    name = 'gpt_neox.layers.1.attention.query_key_value.weight'
    _, shape, numbers = load(models / 'gpt-neox-partial' / 'model.safetensors')[name]
    wants = in_file('gptneox', 'attention.query_key_value', 'weight', shape, list(numbers), 4)[1]
    kind, extents, _ = tensor = read('neox-q8.gguf')[1]['blk.1.attn_qkv.weight']
    check((kind, extents) == ('Q8_0', shape) and error(numbers_in(tensor), wants) < 1e-2, f'{kind} {extents}')


@case
def turned_blocks():
    """Galley reads no blocks of matrices that lie the other way round: it writes them where nobody asks for the comparison."""
    said = run('export', models / 'gpt2-packed', '--format', 'gguf', '--dtype', 'q8_0', '--out', 'q8.gguf', code=2)
    check('the other way round' in said.stderr and '--unchecked' in said.stderr and not pathlib.Path('q8.gguf').exists(), said.stderr)
    run('export', models / 'gpt2-packed', '--format', 'gguf', '--dtype', 'q8_0', '--out', 'q8.gguf', '--unchecked')
    tensors = read('q8.gguf')[1]
    plain = load(models / 'gpt2-packed' / 'model.safetensors')
    name = next(x for x in plain if x.endswith('h.1.mlp.c_fc.weight'))
    shape, numbers = in_file('gpt2', 'mlp.c_fc', 'weight', plain[name][1], list(plain[name][2]), 4)
    kind, extents, _ = tensors['blk.1.ffn_up.weight']
    check((kind, extents) == ('Q8_0', shape) and error(numbers_in(tensors['blk.1.ffn_up.weight']), numbers) < 1e-2, f'{kind} {extents}')
    said = run('export', alone('q8.gguf'), '--out', 'q8-back', code=2)
    check('blk.0.' in said.stderr and 'Q8_0' in said.stderr, said.stderr)


REFUSED = {
    'scalar': ('gemma2-softcap', {}, "'query_pre_attn_scalar' = 12 in models of type 'gemma2', and here it is 10"),
    'cap': ('gemma2-softcap', dict(query_pre_attn_scalar=12, attn_logit_softcapping=None), "always has 'attn_logit_softcapping'"),
    'gate': ('gemma-geglu', dict(hidden_act='silu'), "'hidden_act' = gelu_pytorch_tanh"),
    'near': ('gemma3-two-ropes', dict(query_pre_attn_scalar=12, rope_parameters=dict(
        full_attention=dict(rope_type='default', rope_theta=1e6), sliding_attention=dict(rope_type='linear', rope_theta=1e4, factor=2.0))),
        "RoPE of type 'linear' of layers with a window is not written"),
    'yarn': ('gemma-geglu', dict(rope_parameters=dict(rope_type='yarn', rope_theta=1e4, factor=2.0, original_max_position_embeddings=20)),
             "RoPE of type 'yarn' is not written of such models (default, linear)"),
    'tied': ('gpt-neox-sequential', {}, "no model of type 'gpt_neox' whose head is its embedding"),
    'unscaled': ('gpt2-packed', dict(scale_attn_weights=False), "'scale_attn_weights' = true"),
    'distance': ('t5-relu-tied', dict(relative_attention_max_distance=64), "'relative_attention_max_distance' = 128"),
    'layers': ('t5-gated-untied', {}, "more layers of the decoder than of the encoder: 'num_decoder_layers' = 2, 'num_layers' = 1"),
    'units': ('t5-relu-tied', dict(feed_forward_proj='gelu_new'), "'dense_act_fn' = relu"),
    'residual': ('bloom-six-heads', dict(apply_residual_connection_post_layernorm=True), "'apply_residual_connection_post_layernorm' = false"),
}


@cases(REFUSED)
def refused(name, of):
    base, entries, words = of
    like(f'no-{name}', base, **entries)
    said = run('export', f'no-{name}', '--format', 'gguf', '--out', f'no-{name}.gguf', code=2)
    check(words in said.stderr and not pathlib.Path(f'no-{name}.gguf').exists(), said.stderr)


def changed(name, base, **keys):
    """The file of a model with other keys."""
    if not pathlib.Path(f'{base}-of').exists():
        folder, _, entries, _ = MODELS[base]
        like(f'{base}-of', folder, **entries)
        run('export', f'{base}-of', '--format', 'gguf', '--out', f'{base}-of.gguf')
    said, tensors = read(f'{base}-of.gguf')
    return write(f'{name}.gguf', dict(said, **{k.replace('__', '.'): x for k, x in keys.items()}), tensors)


KEYS = {'theta': ('gemma2', {'gemma2.rope__freq_base_swa': ('F32', 5.0)}, "key 'gemma2.rope.freq_base_swa' = 5.0 is not 'gemma2.rope.freq_base'"),
        'pattern': ('gemma3', {'gemma3.attention__sliding_window_pattern': ('STR', 'x')}, 'is no number and no list'),
        'layers': ('gemma3', {'gemma3.block_count': ('U32', 10 ** 6)}, "key 'gemma3.block_count' = 1000000 is no number of layers"),
        'inner': ('bloom', {'bloom.feed_forward_length': ('U32', 100)}, 'is not four times'),
        'kv': ('gpt2', {'gpt2.attention__head_count_kv': ('U32', 2)}, "key 'gpt2.attention.head_count_kv' = 2 is not supported (4)"),
        'parallel': ('gpt-neox', {'gptneox.use_parallel_residual': ('U32', 1)}, "there is no key 'gptneox.use_parallel_residual', true or false"),
        'turning': ('gpt-neox', {'gptneox.rope__dimension_count': ('U32', 9)}, "key 'gptneox.rope.dimension_count' = 9 is not the size of a head")}


@cases(KEYS)
def refused_keys(name, of):
    base, keys, words = of
    said = run('export', alone(changed(f'key-{name}', base, **keys)), '--out', f'key-{name}', code=2)
    check(words in said.stderr, said.stderr)


@case
def norms_in_16_bit():
    """Weights of Gemma's norms are larger by one in the file: in fewer bits than F32 they would be others."""
    changed('half', 'gemma')
    keys, tensors = read('half.gguf')
    kind, shape, data = tensors['output_norm.weight']
    tensors['output_norm.weight'] = ('BF16', shape, b''.join(data[i + 2:i + 4] for i in range(0, len(data), 4)))
    write('half.gguf', keys, tensors)
    said = run('export', alone('half.gguf'), '--out', 'half', code=1)
    check("'output_norm.weight' is in BF16, and can only be read in F32" in said.stderr, said.stderr)


finish(turns=2)
