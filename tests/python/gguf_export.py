#!/usr/bin/env python3
"""`galley export --format gguf`: names, order of rows, keys, tokens and types of what is written, how near blocks are to the numbers, what is refused, and that a file
which does not compute what the model does is not kept. The files are read by a reader of the tests' own; tests/readback/gguf_written.py has llama.cpp read them."""
import functools
import gzip
import json
import math
import pathlib
import re
import shutil

from galley_test import (batch_of, case, cases, check, error, every, finish, fixtures, fresh_folder, from_config, from_folder, galley, load, program, recipe, run, save,
                         together, use)
from gguf_kit import divisors, f32, name_of, numbers_in, read, rows, turned
from steps_kit import trained

fresh_folder()
models = fixtures / 'models'
lib = pathlib.Path(program).resolve().parent


def exported(what, out, *flags, code=0):
    """What the export says, as JSON, and on standard error."""
    said = run('export', what, '--format', 'gguf', '--out', out, '--json', *flags, code=code)
    return (json.loads(said.stdout) if code == 0 else None), said.stderr


def refuses(what, out, *words, flags=(), code=2):
    """Nothing is left of an export that is refused."""
    before = sorted(pathlib.Path('.').iterdir())
    _, said = exported(what, out, *flags, code=code)
    for word in words:
        check(word in said, f'{out}: {word!r} is not in: {said}')
    check(sorted(pathlib.Path('.').iterdir()) == before, f'{out}: files are left: {sorted(set(pathlib.Path(".").iterdir()) - set(before))}')


def parameter_names(name):
    name = name if name.startswith(('model.', 'lm_head')) else 'model.' + name
    if '.self_attn.' in name and name.split('.')[-2] in ('q_norm', 'k_norm'):
        return f'blk.{name.split(".")[2]}.attn_{name.split(".")[-2]}.weight'
    if name.endswith('.bias'):
        return name_of(name.removesuffix('.bias') + '.weight').removesuffix('.weight') + '.bias'
    return name_of(name)


def expected(folder):
    """The tensors that the file of a folder has to have."""
    config, out = json.loads((folder / 'config.json').read_text()), {}
    heads, kv = config['num_attention_heads'], config.get('num_key_value_heads') or config['num_attention_heads']
    for name, (dtype, shape, numbers) in load(folder / 'model.safetensors').items():
        paired = config['model_type'] in ('llama', 'mistral') and (heads if 'q_proj' in name else kv if 'k_proj' in name else 0)
        if paired:
            numbers = [x for line in turned(rows(numbers, shape), paired) for x in line]
        out[parameter_names(name)] = ('F32', shape, list(numbers))
    return config, out


# ---- Models --------------------------------------------------------------------------------------------------------------------------------


@cases(['llama-gqa-tied', 'llama-rope-llama3', 'llama-stored-bf16', 'llama-bare', 'mistral-window', 'qwen2-bias-tied', 'qwen3-qknorm'])
def written(name):
    """Each number is where llama.cpp looks for it, in the dtype in which the model is saved, and Galley reads the same model of the file."""
    said, warned = exported(models / name, f'{name}.gguf')
    keys, tensors = read(f'{name}.gguf')
    config, expects = expected(models / name)
    vectors = {k: tensors.pop(k) for k in list(tensors) if k == 'rope_freqs.weight'}
    check(tensors.keys() == expects.keys(), f'{sorted(tensors.keys() ^ expects.keys())}')
    for tensor, (dtype, shape, numbers) in expects.items():
        check(tensors[tensor][:2] == (dtype, shape) and numbers_in(tensors[tensor]) == numbers, f'{tensor}: {tensors[tensor][:2]}, not {dtype} {shape}, or others')
    architecture = {'mistral': 'llama'}.get(config['model_type'], config['model_type'])
    head = config.get('head_dim') or config['hidden_size'] // config['num_attention_heads']
    rope, window = config['rope_parameters'], config.get('sliding_window')
    wants = {'general.architecture': ('STR', architecture), 'general.type': ('STR', 'model'), 'general.file_type': ('U32', 0),
             'tokenizer.ggml.model': ('STR', 'no_vocab')}
    wants.update({f'{architecture}.{k}': ('U32', x) for k, x in {
        'vocab_size': config['vocab_size'], 'context_length': window or config['max_position_embeddings'], 'embedding_length': config['hidden_size'],
        'block_count': config['num_hidden_layers'], 'feed_forward_length': config['intermediate_size'], 'attention.head_count': config['num_attention_heads'],
        'attention.head_count_kv': config['num_key_value_heads'], 'attention.key_length': head, 'attention.value_length': head, 'rope.dimension_count': head}.items()})
    for key, x in wants.items():
        check(keys.get(key) == x, f'{key}: {keys.get(key)}, not {x}')
    check(abs(keys[f'{architecture}.rope.freq_base'][1] - rope['rope_theta']) < 1, f'theta: {keys[f"{architecture}.rope.freq_base"]}')
    check(math.isclose(keys[f'{architecture}.attention.layer_norm_rms_epsilon'][1], config['rms_norm_eps'], rel_tol=1e-6), 'eps')
    check(bool(vectors) == (rope['rope_type'] == 'llama3'), f'{vectors}')
    for vector in vectors.values():
        both = together(numbers_in(vector), divisors(rope, head, rope['rope_theta']))
        check(every(math.isclose(a, b, rel_tol=1e-6) for a, b in both), f'frequencies: {both}')
    positions = min(32, window or 32)
    check(said['read_again'] == dict(positions=positions, apart=0, divergence=0, same=positions) or said['read_again']['apart'] < 1e-6, f'{said}')
    check(said['bytes'] == pathlib.Path(f'{name}.gguf').stat().st_size and 'has no tokenizer' in warned, f'{said}, {warned}')
    check(('a context of 9 tokens' in warned) == (name == 'mistral-window'), warned)


YARN = dict(rope_type='yarn', rope_theta=10000.0, factor=4.0, original_max_position_embeddings=8)
ROPES = {'linear': (dict(rope_type='linear', rope_theta=10000.0, factor=2.5), {'type': ('STR', 'linear'), 'factor': ('F32', 2.5)}),
         'yarn': (YARN, {'type': ('STR', 'yarn'), 'factor': ('F32', 4.0), 'original_context_length': ('U32', 8)}),
         'yarn-attention': (dict(YARN, attention_factor=0.1 * math.log(4) + 1), {'attn_factor': ('F32', 1.0)}),
         'yarn-mscale': (dict(YARN, mscale=1.0, mscale_all_dim=1.0), {'attn_factor': ('F32', f32(1 / (0.1 * math.log(4) + 1)))})}


@cases(ROPES)
def rope(name, of):
    of, wants = of
    config = dict(json.loads((models / 'llama-gqa-tied' / 'config.json').read_text()), rope_parameters=of)
    shutil.copytree(models / 'llama-gqa-tied', name)
    pathlib.Path(name, 'config.json').write_text(json.dumps(config))
    said, _ = exported(name, f'{name}.gguf')
    keys, _ = read(f'{name}.gguf')
    check(every(keys[f'llama.rope.scaling.{key}'] == x for key, x in wants.items()), f'{keys}')
    check(('llama.rope.scaling.attn_factor' in keys) == ('attn_factor' in wants) and said['read_again']['apart'] < 1e-6, f'{said}, {keys}')


@case
def phi3():
    """Products stay fused; the window, which llama.cpp does not compute, bounds the context."""
    sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
                 pad_token_id=0)
    for name, window, positions in (('phi', None, 32), ('phi-window', 20, 20)):
        more = dict(sizes, sliding_window=window) if window else sizes
        run('export', recipe(f'{name}.lua', from_config('phi3', **more), 'data.random {}', batch=1, length=8, steps=1, seed=3), '--out', name)
        said, warned = exported(name, f'{name}.gguf')
        keys, tensors = read(f'{name}.gguf')
        wants = {'general.architecture': ('STR', 'phi3'), 'phi3.context_length': ('U32', window or 64), 'phi3.rope.dimension_count': ('U32', 8)}
        check(every(keys[k] == x for k, x in wants.items()), f'{keys}')
        check(said['read_again'] == dict(positions=positions, apart=0, divergence=0, same=positions), f'{said}')
        plain = load(f'{name}/model.safetensors')
        for ours, theirs in (('blk.0.attn_qkv', 'self_attn.qkv_proj'), ('blk.0.ffn_up', 'mlp.gate_up_proj'), ('blk.0.ffn_down', 'mlp.down_proj')):
            check(numbers_in(tensors[f'{ours}.weight']) == list(plain[f'model.layers.0.{theirs}.weight'][2]), f'{ours}: other numbers')
        check(('a context of 20 tokens' in warned) == bool(window), warned)


@case
def of_a_recipe():
    """In the dtype in which the recipe saves its model."""
    path = recipe('saved.lua', from_folder(models / 'llama-stored-bf16'), 'data.random {}', batch=1, length=8, steps=1, save=dict(dtype='bf16'))
    exported(path, 'saved.gguf')
    keys, tensors = read('saved.gguf')
    check(keys['general.file_type'] == ('U32', 32) and every(kind == ('F32' if len(shape) == 1 else 'BF16') for kind, shape, _ in tensors.values()), f'{keys}')
    for tensor, (_, _, numbers) in expected(models / 'llama-stored-bf16')[1].items():
        check(numbers_in(tensors[tensor]) == numbers, f'{tensor}: other numbers')


def tuned(name, *uses, model='llama-gqa-tied'):
    """A run with an adapter."""
    return trained(recipe(f'{name}.lua', from_folder(models / model), batch_of(models / model / 'batch.safetensors'), *uses, use('sgd', lr=0.5), steps=2, seed=3), name)


def lora(**options):
    return use('lora', **dict(dict(rank=2, alpha=4), **options))


@case
def of_a_run():
    """An adapter is merged; the file is what the merged folder gives."""
    one = tuned('lora', lora())
    run('export', one.path, '--merge', '--out', 'merged')
    exported(one.path, 'merged.gguf', '--merge', '--reference')
    exported('merged', 'again.gguf')
    check(read('merged.gguf')[1] == read('again.gguf')[1], 'a merged run gives another file than the merged folder')
    run('export', one.path, '--merge', '--format', 'gguf', '--dtype', 'f16', '--out', 'merged-f16.gguf')
    check(read('merged-f16.gguf')[0]['general.file_type'] == ('U32', 1), 'no F16')


@case
def of_a_head_that_was_tied():
    """An adapter of it is merged into a head of its own."""
    one = tuned('untied', lora(targets=['q_proj', 'lm_head']))
    said = run('export', one.path, '--merge', '--format', 'gguf', '--out', 'untied.gguf')
    check('the head is no longer the embedding: it is saved apart, as output.weight' in said.stdout, said)
    tensors = read('untied.gguf')[1]
    check(error(numbers_in(tensors['output.weight']), numbers_in(tensors['token_embd.weight'])) > 0, 'the head is the embedding')


# The architecture, and what is beside rank and alpha.
ADAPTERS = {'llama': ('llama-gqa-tied', {}, 4), 'qwen2': ('qwen2-bias-tied', {}, 4), 'rslora': ('llama-gqa-tied', dict(rslora=True), 4 * 2 ** 0.5)}


@cases(ADAPTERS)
def adapters(name, of):
    """Each matrix under the name of its weight, B of queries and keys in the order of the file's rows."""
    model, options, alpha = of
    one = tuned(f'adapter-{name}', lora(targets='all-linear', **options), model=model)
    run('export', one.path, '--out', f'adapter-{name}-folder')
    config, parts = json.loads((models / model / 'config.json').read_text()), load(f'adapter-{name}-folder/adapter_model.safetensors')
    for dtype in ('f32', 'f16'):
        exported(one.path, f'adapter-{name}-{dtype}.gguf', '--dtype', dtype)
        keys, tensors = read(f'adapter-{name}-{dtype}.gguf')
        wants = {'general.type': 'adapter', 'adapter.type': 'lora', 'general.architecture': config['model_type']}
        check(every(keys[k] == ('STR', x) for k, x in wants.items()), f'{keys}')
        check(math.isclose(keys['adapter.lora.alpha'][1], alpha, rel_tol=1e-6), f'alpha: {keys["adapter.lora.alpha"]}')
        check(len(tensors) == len(parts) == 2 * 7 * config['num_hidden_layers'], f'{sorted(tensors)}, of {sorted(parts)}')
        for part, (_, shape, numbers) in parts.items():
            module, kind = part.removeprefix('base_model.model.').removesuffix('.weight').rsplit('.lora_', 1)
            heads = config['num_attention_heads'] if 'q_proj' in module else config['num_key_value_heads'] if 'k_proj' in module else 0
            if heads and kind == 'B' and config['model_type'] == 'llama':
                numbers = [x for line in turned(rows(list(numbers), shape), heads) for x in line]
            written = tensors[f'{parameter_names(module + ".weight")}.lora_{kind.lower()}']
            check(written[:2] == (dtype.upper(), shape) and error(numbers_in(written), list(numbers)) < (1e-3 if dtype == 'f16' else 1e-12), f'{part}: {written[:2]}')


@cases({'dora': (dict(dora=True), "an adapter with 'use_dora': true"), 'alphas': (dict(alpha_pattern=[dict(match='q_proj', alpha=8)]), "an adapter with 'alpha_pattern'"),
        'ranks': (dict(rslora=True, rank_pattern=[dict(match='q_proj', rank=4)]), "'use_rslora' and ranks from 2 to 4")})
def refused_adapters(name, of):
    options, words = of
    refuses(tuned(f'refused-{name}', lora(**options)).path, f'refused-{name}.gguf', words, '--merge writes the model')


@case
def refused_words_of_adapters():
    refuses(tuned('in-blocks', lora()).path, 'adapter.gguf', "an adapter's matrices are not written in q4_k", flags=('--dtype', 'q4_k'))
    refuses(tuned('ia3', use('ia3', targets='k_proj')).path, 'ia3.gguf', "an adapter with 'peft_type': \"IA3\"")
    both = tuned('both', use('freeze', **{'except': ['model.norm.weight']}), lora())
    refuses(both.path, 'both.gguf', 'saves an adapter beside a model that it has changed, which are two files')
    refuses(tuned('head', lora(targets='lm_head'), model='llama-gqa-tied').path, 'head.gguf', 'an adapter with matrices of a head that is the embedding')


# ---- Types ---------------------------------------------------------------------------------------------------------------------------------

# The relative root mean square that numbers of a normal distribution lose at most; and what the head is in.
TYPES = {'f32': (0, 'F32'), 'f16': (3e-4, 'F16'), 'bf16': (2.1e-3, 'BF16'), 'q8_0': (5.9e-3, 'Q8_0'), 'q6_k': (1.8e-2, 'Q6_K'), 'q4_k': (7.6e-2, 'Q6_K'),
         'q4_0': (8.7e-2, 'Q6_K')}


@functools.cache
def wide():
    """A folder whose rows are whole blocks of 256, but for one matrix of a layer, which has rows of 96."""
    model = from_config('llama', vocab_size=64, hidden_size=256, intermediate_size=96, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
                        max_position_embeddings=32, tie_word_embeddings=False)
    run('export', recipe('wide.lua', model, 'data.random {}', batch=1, length=8, steps=1, seed=3), '--out', 'wide')
    return expected(pathlib.Path('wide'))[1]


@cases(TYPES)
def types(name, of):
    most, head = of
    plain = wide()
    said, warned = exported('wide', f'{name}.gguf', '--dtype', name)
    keys, tensors = read(f'{name}.gguf')
    kind = name.upper()
    instead = {'Q4_K': 'Q5_0', 'Q6_K': 'Q8_0'}.get(kind, kind)
    for tensor, (_, shape, numbers) in plain.items():
        wants = 'F32' if len(shape) == 1 else head if tensor == 'output.weight' else instead if shape[-1] == 96 else kind
        check(tensors[tensor][:2] == (wants, shape), f'{tensor}: {tensors[tensor][:2]}, not {wants}')
        bound = 0 if wants == 'F32' else TYPES['q6_k'][0] if wants == 'Q6_K' else 4.3e-2 if wants == 'Q5_0' else TYPES[wants.lower()][0]
        off = error(numbers_in(tensors[tensor]), numbers)
        check(off <= bound, f'{tensor} in {wants} is off by {off}')
    check(('1 matrix whose rows are no whole blocks of' in warned) == (instead != kind), warned)
    check(('general.quantization_version' in keys) == name.startswith('q'), f'{keys}')
    check(said['read_again']['positions'] == 32 and (said['read_again']['apart'] > 0) == (name != 'f32'), f'{said}')
    # The file is a model like any other.
    run('export', folder_of(name), '--out', f'{name}-back')
    back = load(f'{name}-back/model.safetensors')['model.layers.0.mlp.up_proj.weight'][2]
    check(error(back, numbers_in(tensors['blk.0.ffn_up.weight'])) < 1e-6, 'Galley reads other numbers')


def folder_of(name):
    folder = pathlib.Path(f'{name}-folder')
    folder.mkdir()
    shutil.copy(f'{name}.gguf', folder)
    return folder


@case
def unusual_numbers():
    """Rows of zeros, of one number, of numbers of one sign, with outliers, and of very small numbers come back as near as their types allow."""
    wide()
    shutil.copytree('wide', 'unusual')
    tensors = load('unusual/model.safetensors')
    name = 'model.layers.0.mlp.up_proj.weight'
    dtype, shape, numbers = tensors[name]
    lines = rows(list(numbers), shape)
    lines[0], lines[1], lines[2] = [0.0] * 256, [0.25] * 256, [-0.5] * 256
    lines[3], lines[4] = [abs(x) + 0.1 for x in lines[3]], [-abs(x) - 0.1 for x in lines[4]]
    lines[5][7], lines[6] = 8.0, [x * 1e-2 for x in lines[6]]
    tensors[name] = (dtype, shape, [x for line in lines for x in line])
    save('unusual/model.safetensors', tensors)
    lines = rows(list(load('unusual/model.safetensors')[name][2]), shape)
    for kind, most in (('q8_0', 0.01), ('q6_k', 0.04), ('q4_k', 0.12), ('q4_0', 0.13)):
        exported('unusual', f'unusual-{kind}.gguf', '--dtype', kind, '--unchecked')
        back = rows(numbers_in(read(f'unusual-{kind}.gguf')[1]['blk.0.ffn_up.weight']), shape)
        check(back[0] == lines[0], f'{kind}: zeros are {back[0][:4]}')
        for at in (1, 2, 3, 4, 6):
            check(error(back[at], lines[at]) < most, f'{kind}: row {at} is off by {error(back[at], lines[at])}')
        check(abs(back[5][7] - 8) < 0.3, f'{kind}: the outlier is {back[5][7]}')


# ---- Tokens --------------------------------------------------------------------------------------------------------------------------------


def tokenizer_of(kind):
    return json.loads(gzip.decompress((fixtures / f'tokenizers/{kind}/tokenizer.json.gz').read_bytes()))


def sentencepiece():
    """A small one: every merge that makes a token, in the order of the tokens."""
    pieces = ['▁t', 'he', '▁the', 'in', '▁in', 'es', 'the']
    letters = ['▁', 't', 'h', 'e', 'i', 'n', 's']
    tokens = ['<unk>', '<s>', '</s>', *(f'<0x{i:02X}>' for i in range(256)), *pieces, *letters]
    known = set(pieces + letters)
    return {'version': '1.0', 'normalizer': {'type': 'Sequence', 'normalizers': [{'type': 'Prepend', 'prepend': '▁'},
                                                                                 {'type': 'Replace', 'pattern': {'String': ' '}, 'content': '▁'}]},
            'pre_tokenizer': None, 'decoder': None,
            'added_tokens': [dict(id=i, content=tokens[i], single_word=False, lstrip=False, rstrip=False, normalized=False, special=True) for i in range(3)],
            'post_processor': {'type': 'TemplateProcessing', 'pair': None,
                               'single': [{'SpecialToken': {'id': '<s>', 'type_id': 0}}, {'Sequence': {'id': 'A', 'type_id': 0}}],
                               'special_tokens': {'<s>': {'id': '<s>', 'ids': [1], 'tokens': ['<s>']}}},
            'model': {'type': 'BPE', 'unk_token': '<unk>', 'fuse_unk': True, 'byte_fallback': True, 'vocab': {t: i for i, t in enumerate(tokens)},
                      'merges': [[t[:i], t[i:]] for t in pieces for i in range(1, len(t)) if t[:i] in known and t[i:] in known]}}


def talking(name, tokenizer, vocabulary=1536, **about):
    """The folder of a small model with a tokenizer, and with what tokenizer_config.json says."""
    folder = pathlib.Path(name)
    run('export', recipe(f'{name}.lua', from_config('llama', vocab_size=vocabulary, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
                                                    max_position_embeddings=16), 'data.random {}', batch=1, length=8, steps=1, seed=3), '--out', folder)
    (folder / 'tokenizer.json').write_text(json.dumps(tokenizer))
    (folder / 'tokenizer_config.json').write_text(json.dumps(about))
    return folder


# The name of the way to split, and the ids of the tokens that begin and end a text.
TOKENIZERS = {'gpt2': ('gpt-2', None, 0), 'llama3': ('llama-bpe', 0, 1), 'qwen2': ('qwen2', None, 2), 'smollm': ('smollm', 1, 2)}


@cases(TOKENIZERS)
def tokens(name, of):
    pre, begin, end = of
    tokenizer = tokenizer_of(name)
    texts = {a['id']: a['content'] for a in tokenizer['added_tokens']}
    about = dict(eos_token=texts[end], chat_template='{{ messages }}')
    if begin is not None:
        about['bos_token'] = dict(content=texts[begin])
    _, warned = exported(talking(f'talks-{name}', tokenizer, **about), f'{name}-talks.gguf', '--unchecked')
    keys, _ = read(f'{name}-talks.gguf')
    get = lambda key: keys.get(f'tokenizer.ggml.{key}', (None, None))[1]
    check(get('model') == 'gpt2' and get('pre') == pre and get('eos_token_id') == end, f'{get("model")}, {get("pre")}, {get("eos_token_id")}')
    check(begin is None or get('bos_token_id') == begin, f'bos {get("bos_token_id")}')
    check(get('add_bos_token') == (name == 'llama3') and get('add_eos_token') is False, 'what goes around a text')
    (_, names), (_, kinds), (_, merges) = get('tokens'), get('token_type'), get('merges')
    vocabulary = {**tokenizer['model']['vocab'], **{a['content']: a['id'] for a in tokenizer['added_tokens']}}
    check(len(names) == 1536 and every(names[i] == t for t, i in vocabulary.items()), 'other tokens')
    check(every(kinds[a['id']] == (3 if a['special'] else 4) for a in tokenizer['added_tokens']) and kinds[-1] == 5 and names[-1] == '[PAD1535]', 'other types')
    check(merges == [x if isinstance(x, str) else ' '.join(x) for x in tokenizer['model']['merges']], 'other merges')
    check(keys['tokenizer.chat_template'] == ('STR', '{{ messages }}'), 'no template')
    check(('NFC' in warned) == (name == 'qwen2') and 'may not take the white space' in warned, warned)


@case
def tokens_of_sentencepiece():
    exported(talking('talks-sp', sentencepiece(), bos_token='<s>', eos_token='</s>'), 'sp.gguf')
    keys, _ = read('sp.gguf')
    get = lambda key: keys[f'tokenizer.ggml.{key}'][1]
    check(get('model') == 'llama' and get('add_space_prefix') is True and get('add_bos_token') is True and get('unknown_token_id') == 0, f'{sorted(keys)}')
    (_, kinds), (_, scores) = get('token_type'), get('scores')
    check(kinds[:4] == [2, 3, 3, 6] and kinds[258] == 6 and kinds[259] == 1, f'{kinds[:4]}')
    check(scores[259:266] == [0, -1, -2, -3, -4, -5, -6] and max(scores[266:273]) < -6, f'{scores[259:273]}')


@case
def tokens_that_end():
    """Whatever else ends a text by generation_config.json does so in llama.cpp; other templates keep their names."""
    folder = talking('ends', tokenizer_of('llama3'), bos_token='<|begin_of_text|>', chat_template=[dict(name='default', template='a'), dict(name='tools', template='b')])
    (folder / 'generation_config.json').write_text(json.dumps(dict(eos_token_id=[1, 7, 9])))
    _, warned = exported(folder, 'ends.gguf', '--unchecked')
    keys, _ = read('ends.gguf')
    check([keys[f'tokenizer.ggml.{k}_token_id'][1] for k in ('eos', 'eot', 'eom')] == [1, 7, 9], f'{keys.get("tokenizer.ggml.eos_token_id")}')
    check(keys['tokenizer.chat_template'][1] == 'a' and keys['tokenizer.chat_template.tools'][1] == 'b', 'templates')
    check(keys['tokenizer.chat_templates'] == ('ARR', ('STR', ['tools'])), 'names of templates')
    (folder / 'generation_config.json').unlink()
    _, warned = exported(folder, 'no-end.gguf', '--unchecked')
    check('which token ends a text' in warned, warned)


def changed(tokenizer, change):
    change(tokenizer)
    return tokenizer


def model_has(**entries):
    return lambda t: t['model'].update(entries)


def renamed(t):
    t['model']['vocab']['a\0'] = 273


def twice(t):
    t['added_tokens'] += [dict(t['added_tokens'][0], id=300, content='▁the', special=False), dict(t['added_tokens'][0], id=301, content=' the', special=False)]


def around(t):
    t['post_processor']['single'].append({'SpecialToken': {'id': '<s>', 'type_id': 0}})


REFUSED_TOKENS = {
    'splits': ('gpt2', lambda t: t.update(pre_tokenizer={'type': 'Sequence', 'pretokenizers': [{'type': 'Punctuation', 'behavior': 'Isolated'}, t['pre_tokenizer']]}),
               ("no name for ('tokenizer.ggml.pre')", 'Punctuation', 'known are those of gpt-2')),
    'prefix': ('gpt2', lambda t: t['pre_tokenizer'].update(add_prefix_space=True), ("no name for ('tokenizer.ggml.pre')", 'add_prefix_space')),
    'ignores': ('gpt2', model_has(ignore_merges=True), ("no name for ('tokenizer.ggml.pre')", "with 'ignore_merges'")),
    'normalizer': ('gpt2', lambda t: t.update(normalizer={'type': 'Lowercase'}), ("no 'normalizer' of type 'Lowercase'",)),
    'merges': ('sp', lambda t: t['model']['merges'].pop(), ("the merges of 'the' are not SentencePiece's", 'llama.cpp would split texts otherwise')),
    'order': ('sp', lambda t: t['model']['merges'].append(t['model']['merges'].pop(2)), ("are not SentencePiece's",)),
    'marks': ('sp', lambda t: t.update(normalizer=None), ("no rule of the tokenizer writes spaces as '▁'",)),
    'other-marks': ('sp', lambda t: t.update(normalizer={'type': 'NFKC'}), ("no 'normalizer' of this kind for SentencePiece's encoding",)),
    'other-pre': ('sp', lambda t: t.update(pre_tokenizer={'type': 'Digits', 'individual_digits': True}),
                  ("no 'pre_tokenizer' of this kind for SentencePiece's encoding",)),
    'nul': ('sp', renamed, ('token 273 has a byte 0 in its text',)),
    'same': ('sp', twice, ("are both written ' the'",)),
    'suffix': ('sp', model_has(end_of_word_suffix='</w>'), ("llama.cpp knows no 'end_of_word_suffix' of byte-pair encoding",)),
    'bytes': ('sp', lambda t: t['model']['vocab'].pop('<0x0A>'), ("'byte_fallback' is true, and 255 of the 256 tokens '<0x00>' … '<0xFF>' are there",)),
}


@cases(REFUSED_TOKENS)
def refused_tokens(name, of):
    kind, change, words = of
    folder = talking(f'refused-{name}', changed(sentencepiece() if kind == 'sp' else tokenizer_of(kind), change))
    refuses(folder, f'{name}.gguf', 'tokenizer.json: ', *words)


@case
def other_tokenizers():
    refuses(talking('large', tokenizer_of('gpt2'), 1000), 'large.gguf', 'the tokenizer has 15', 'tokens, and the model 1000')
    small = tokenizer_of('bert')
    small['model']['vocab'] = {t: i for t, i in small['model']['vocab'].items() if i < 200}
    refuses(talking('wordpiece', small), 'wordpiece.gguf', "a tokenizer of type 'WordPiece' is not written", "written are 'BPE'")


def metaspace(scheme):
    return lambda t: t.update(normalizer=None, pre_tokenizer={'type': 'Metaspace', 'replacement': '▁', 'prepend_scheme': scheme, 'split': False})


@cases({'first': (metaspace('first'), True, 'after a special token'), 'never': (metaspace('never'), False, ''),
        'around': (around, True, 'puts tokens around a text that are not bos and eos')})
def marks(name, of):
    change, prefix, words = of
    _, warned = exported(talking(f'marks-{name}', changed(sentencepiece(), change), bos_token='<s>', eos_token='</s>'), f'marks-{name}.gguf', '--unchecked')
    check(read(f'marks-{name}.gguf')[0]['tokenizer.ggml.add_space_prefix'] == ('BOOL', prefix) and words in warned, warned)


# ---- What is refused -----------------------------------------------------------------------------------------------------------------------


def like(name, base='llama-gqa-tied', **entries):
    shutil.copytree(models / base, name)
    config = json.loads((models / base / 'config.json').read_text())
    pathlib.Path(name, 'config.json').write_text(json.dumps(dict(config, **entries)))
    return name


@cases({'family': ('gpt-neo-local', ("models of type 'gpt_neo' are not written as GGUF files",  "these are: 'bloom', 'gemma'")),
        'task': ('llama-rows', ("a model whose task is 'sequence-classification' is not written as a GGUF file",)),
        'dynamic': ('dynamic-llama', ("is not written (default, linear, yarn, llama3, longrope)",))})
def refused_models(name, of):
    folder, words = of
    refuses(models / folder, f'{name}.gguf', *words)


@cases({'activation': (dict(hidden_act='gelu'), "llama.cpp computes 'hidden_act' = silu in models of type 'llama', and here it is gelu"),
        'yarn': (dict(rope_parameters=dict(YARN, beta_fast=16.0)), "RoPE of type 'yarn' with 'beta_fast' = 16.0, 'beta_slow' = 1"),
        'frequencies': (dict(rope_parameters=dict(rope_type='llama3', rope_theta=10000.0, factor=8.0, low_freq_factor=2.0, high_freq_factor=4.0,
                                                  original_max_position_embeddings=16)),
                        "RoPE of type 'llama3' with 'low_freq_factor' = 2.0 and 'high_freq_factor' = 4.0 is not written (1, 4)")})
def refused_configurations(name, of):
    entries, words = of
    refuses(like(f'config-{name}', **entries), f'config-{name}.gguf', 'this model is not written as a GGUF file', words)


@case
def confined():
    """What is written aside is read again, also where a model may read its own folder only."""
    shutil.copytree(models / 'llama-gqa-tied', 'confined-model')
    said, _ = exported('confined-model', 'confined.gguf', '--confine')
    check(said['read_again']['apart'] == 0, f'{said}')
    run('export', 'confined-model', '--out', 'confined-shards', '--shard', '20KiB', '--confine')
    check(len(list(pathlib.Path('confined-shards').glob('*.safetensors'))) > 1, 'it was to be split')


@case
def biases_of_qwen3():
    model = from_config('qwen3', vocab_size=32, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, head_dim=16,
                        max_position_embeddings=16, attention_bias=True)
    refuses(recipe('biases.lua', model, 'data.random {}', batch=1, length=8, steps=1), 'biases.gguf', "llama.cpp knows no 'attention_bias' of 'qwen3'")


# ---- Modelfiles ----------------------------------------------------------------------------------------------------------------------------


def go(template, messages):
    """What Go's text/template makes of the few actions that such a template has: constants, .Content, range over .Messages, and if, else if, end."""
    parts = [x for x in re.split(r'({{ .*? }}(?!}))', template) if x]
    check(every(x.startswith('{{') for x in parts), f'text outside of actions: {template}')
    actions = [x[3:-3] for x in parts]

    def run_at(at, message, writes):
        """Runs up to the `end` or `else` of this block; returns what was written and where that stands."""
        out = ''
        while at < len(actions) and actions[at] != 'end' and not actions[at].startswith('else'):
            action = actions[at]
            if action.startswith('"') or action == '.Content':
                out += (json.loads(action) if action != '.Content' else message['content']) if writes else ''
                at += 1
            elif action == 'range .Messages':
                pieces = [run_at(at + 1, x, writes) for x in messages]
                out, at = out + ''.join(x for x, _ in pieces), pieces[0][1] + 1
            else:
                done, branch = False, action
                while branch != 'end':
                    role, wanted = re.fullmatch(r'(?:else )?if (eq \.Role|ne \(index \.Messages 0\)\.Role) "(\w+)"', branch).groups()
                    holds = message['role'] == wanted if role.startswith('eq') else messages[0]['role'] != wanted
                    text, at = run_at(at + 1, message, writes and holds and not done)
                    out, done, branch = out + text, done or holds, actions[at]
                at += 1
        return out, at

    return run_at(0, None, True)[0]


def modelfile_of(name, template, *warned, **about):
    """The instructions of a Modelfile, read by the grammar of Ollama's docs/modelfile.md."""
    folder = talking(f'ollama-{name}', tokenizer_of('smollm'), chat_template=template, eos_token='<|im_end|>', **about)
    _, said = exported(folder, f'{name}.gguf', '--unchecked', '--modelfile', f'{name}.Modelfile')
    check(not [x for x in warned if x not in said] and ('Modelfile' in said) == bool(warned), said)
    text, out = pathlib.Path(f'{name}.Modelfile').read_text(), []
    while text:
        found = re.match(r'#.*\n|(FROM|PARAMETER|TEMPLATE) (?:"""((?:.|\n)*?)"""|"([^"\n]*)"|([^"\n]*?(?: "[^"\n]*")?))\n', text)
        if not check(found, f'no instruction: {text!r}'):
            break
        if found[1]:
            out.append((found[1], next(x for x in found.groups()[1:] if x is not None)))
        text = text[found.end():]
    check(out[0] == ('FROM', f'./{name}.gguf') and ('PARAMETER', 'num_ctx 16') in out and ('PARAMETER', 'stop "<|im_end|>"') in out, f'{out}')
    return dict(out).get('TEMPLATE')


CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
TALK = [dict(role='system', content='Say "no".'), dict(role='user', content='a\n{{ b }}'), dict(role='assistant', content='c'), dict(role='user', content='d')]


@case
def modelfiles():
    """A template of pieces, one that begins otherwise without a system message, one without such messages, and one that is no sequence of pieces."""
    chatml = modelfile_of('chatml', CHATML)
    wanted = ''.join(f'<|im_start|>{m["role"]}\n{m["content"]}<|im_end|>\n' for m in TALK) + '<|im_start|>assistant\n'
    check(go(chatml, TALK) == wanted and go(chatml, TALK[1:]) == wanted[wanted.index('<|im_start|>user'):], chatml)
    default = modelfile_of('default', "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nBe kind.<|im_end|>\n{% endif %}" + CHATML)
    kind = '<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\na\n{{ b }}<|im_end|>\n<|im_start|>assistant\n'
    check(go(default, TALK) == wanted and go(default, TALK[1:2]) == kind, default)
    bare = modelfile_of('bare', "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}"
                                "[{{ m['role'] }}]{{ m['content'] }}{% endfor %}[assistant]")
    check(go(bare, TALK[1:]) == '[user]a\n{{ b }}[assistant]c[user]d[assistant]' and 'system' not in bare, bare)
    counted = modelfile_of('counted', "{% for m in messages %}{{ loop.index }}: {{ m['content'] }}\n{% endfor %}", 'the Modelfile has no TEMPLATE')
    check(counted is None, counted)
    plain = talking('ollama-plain', tokenizer_of('smollm'), eos_token='<|im_end|>')
    exported(plain, 'plain.gguf', '--unchecked', '--modelfile', 'plain.Modelfile')
    check(pathlib.Path('plain.Modelfile').read_text().endswith('TEMPLATE "{{ .Prompt }}"\n'), 'a model of texts')
    ended = galley('export', plain, '--out', 'folder', '--modelfile', 'x')
    check(ended.returncode == 2 and '--modelfile requires --format gguf' in ended.stderr, ended)


@case
def refused_words():
    folder = models / 'llama-gqa-tied'
    for words, flags, said in (('x.bin', (), 'the name of such a file has the ending .gguf'), ('x.gguf', ('--dtype', 'q5_k'), 'f32, f16, bf16, q8_0, q6_k, q4_k, q4_0')):
        refuses(folder, words, said, flags=flags)
    pathlib.Path('there.gguf').write_text('mine')
    refuses(folder, 'there.gguf', 'is there already')
    check(pathlib.Path('there.gguf').read_text() == 'mine', 'another file was replaced')
    for flags, words in ((('--format', 'onnx'), "--format 'onnx' is not a format"), (('--unchecked',), '--unchecked requires --format gguf'),
                         (('--dtype', 'q4_k'), 'with --format gguf also q4_k'), (('--dtype', 'f64'), 'is not a dtype to save in')):
        said = run('export', folder, '--out', 'none', *flags, code=2)
        check(words in said.stderr, f'{flags}: {said.stderr}')


@cases({'quantize-int8': {}, 'quantize-nf4': {}})
def refused_formats(name, of):
    """Codes are no numbers: they are not written under the names of such."""
    path = recipe(f'{name}.lua', from_folder(models / 'llama-gqa-tied'), 'data.random {}', use(name, **of), batch=1, length=8, steps=1)
    refuses(path, f'{name}.gguf', "the model is saved in 4 or 8 bit ('quantization_config')")


@case
def numbers_that_do_not_fit():
    tensors = load(models / 'llama-gqa-tied' / 'model.safetensors')
    name = 'model.layers.0.mlp.up_proj.weight'
    for number, kind, words in ((1e6, 'f16', 'numbers around 1000000 are too large for F16'), (1e8, 'q4_0', 'are too large for Q4_0')):
        folder = like(f'large-{kind}')
        dtype, shape, numbers = tensors[name]
        save(f'{folder}/model.safetensors', dict(tensors, **{name: (dtype, shape, [number] * 40 + list(numbers)[40:])}))
        refuses(folder, f'large-{kind}.gguf', words, '--dtype f32', flags=('--dtype', kind), code=1)


@case
def another_model():
    """A file that does not compute what the model does is not kept: here the family says another theta than the model has."""
    place = pathlib.Path('other')
    place.mkdir()
    shutil.copy(program, place / 'galley')
    shutil.copytree(lib / 'models', place / 'models', symlinks=False)
    (place / 'plugins').symlink_to(lib / 'plugins')
    file = place / 'models' / 'lib' / 'gguf.lua'
    text, said_of = file.read_text(), 'key.number and value + 0.0 or value'
    check(text.count(said_of) == 1, 'the family has changed')
    file.chmod(0o644)
    file.write_text(text.replace(said_of, 'key.name == "rope_theta" and value * 1.5 or ' + said_of))
    said = galley('export', models / 'llama-gqa-tied', '--format', 'gguf', '--out', 'other.gguf', executable=place / 'galley')
    check(said.returncode == 1 and 'the file that was written computes something else' in said.stderr, said)
    check(not list(pathlib.Path('.').glob('other.gguf*')), 'it was kept')
    file.write_text(text.replace(said_of, 'key[1] == "block_count" and value + 1 or ' + said_of))
    said = galley('export', models / 'llama-gqa-tied', '--format', 'gguf', '--out', 'other.gguf', executable=place / 'galley')
    check(said.returncode == 1 and 'the file that was written is not read again' in said.stderr and not list(pathlib.Path('.').glob('other.gguf*')), said)


@case
def too_little_memory():
    """A model that fits when it is exported, and not when it is read: then the file is written where nobody asks for the comparison."""
    least = 0
    for memory in range(200, 4000, 50):
        said = galley('export', models / 'llama-gqa-tied', '--format', 'gguf', '--out', 'memory.gguf', '--memory', f'{memory}KB')
        if 'cannot be compared with the model' in said.stderr:
            least = memory
            break
        check(said.returncode in (0, 3), said)
        if said.returncode == 0:
            break
    check(least > 0 and said.returncode == 3 and '--unchecked' in said.stderr and not list(pathlib.Path('.').glob('memory.gguf*')), said)
    run('export', models / 'llama-gqa-tied', '--format', 'gguf', '--out', 'memory.gguf', '--memory', f'{least}KB', '--unchecked')
    check(len(read('memory.gguf')[1]) > 5, 'no file')


finish(turns=2)
