#!/usr/bin/env python3
"""Folders that bitsandbytes has quantized to 4 and 8 bit: read, trained on, saved again with the same bytes, merged; and what is wrong with broken ones."""
import json
import pathlib
import shutil

from galley_test import batch_of, check, error, every, finish, fixtures, fresh_folder, from_folder, gradients, load, recipe, run, save, train, use

fresh_folder()
quantized = fixtures / 'quantized'
batch = batch_of(quantized / 'batch.safetensors')
lora, adamw = use('lora', rank=2, alpha=4), use('adamw', lr=1e-2)


def made(name, folder, *uses, **entries):
    return recipe(f'{name}.lua', from_folder(folder), batch, *uses, **dict(dict(steps=2, seed=3), **entries))


def tensors(folder):
    return load(pathlib.Path(folder) / 'model.safetensors')


weight_of_both = 'model.layers.0.mlp.up_proj.weight'


def parsed(state):
    return json.loads(bytes(state[2]))


kinds = {'nf4': {}, 'fp4-double': dict(type='fp4', double=True)}
for kind, options in kinds.items():
    folder, theirs = quantized / kind, tensors(quantized / kind)
    # What they give, whether the recipe says how they are quantized or not.
    for name, more in (('follows', {}), ('says', options)):
        got = gradients(made(f'{kind}-{name}', folder, use('quantize-nf4', **more), lora, adamw), f'{kind}-{name}.safetensors', '--logits')
        off = error(got['logits'][2], load(folder / 'expect.safetensors')['logits'][2])
        check(off < 1e-5, f'{kind}, {name}: logits are off by {off}')
    # Out again, with the bytes that came in.
    run('export', made(f'{kind}-again', folder, use('quantize-nf4')), '--out', f'{kind}-again', '--reference')
    again = tensors(f'{kind}-again')
    check(set(again) == set(theirs), f'{kind}: saved {sorted(set(again) ^ set(theirs))}')
    for name, (dtype, shape, numbers) in theirs.items():
        if 'quant_state' in name:
            a, b = parsed(again[name]), parsed(theirs[name])
            check(a.keys() == b.keys() and every(a[k] == b[k] for k in a if k not in ('nested_offset', 'dtype')), f'{kind}: {name}: {a}, not {b}')
            check('nested_offset' not in b or abs(a['nested_offset'] - b['nested_offset']) < 2e-12 * b['nested_offset'], f'{kind}: {name}: {a}, not {b}')
        else:
            check(again[name] == (dtype, shape, numbers), f'{kind}: {name} is not what was read')
    said, config = (json.loads((x / 'config.json').read_text())['quantization_config'] for x in (pathlib.Path(f'{kind}-again'), folder))
    check(said.keys() == config.keys() and every(said[k] == config[k] for k in said if k != 'llm_int8_skip_modules'), f'{kind}: config.json: {said}, not {config}')
    check(said['llm_int8_skip_modules'] == ['lm_head'], f'{kind}: skipped {said["llm_int8_skip_modules"]}')
    # Quantized here, a model has the same bytes; but of absmax in 8 bit, bitsandbytes' kernel for the CPU takes another code than the nearest now and then.
    run('export', made(f'{kind}-own', quantized / 'plain', use('quantize-nf4', **options)), '--out', f'{kind}-own')
    own = tensors(f'{kind}-own')
    for name, (dtype, shape, numbers) in theirs.items():
        if name.endswith('proj.weight') or 'absmax' in name or 'quant_map' in name:
            apart = [abs(a - b) for a, b in zip(own[name][2], numbers)]
            check(own[name][:2] == (dtype, shape) and (max(apart) == 0 or dtype == 'U8' and 'absmax' in name and max(apart) <= 4 and sum(x > 0 for x in apart) < 6), f'{kind}: {name} differs: {apart}')
    # An adapter is trained, and evaluated, resumed, merged; the base is saved where that is asked for.
    one = train(made(f'{kind}-train', folder, use('quantize-nf4', save=True), lora, adamw, steps=4, save=dict(every=2)), f'{kind}-train')
    one.check_memory(kind)
    check(one.steps[-1][0] < one.steps[0][0], f'{kind}: the loss does not fall: {one.steps}')
    check(every(tensors(one.path / 'model')[name][2] == x[2] for name, x in theirs.items() if 'quant_state' not in name), f'{kind}: the base that is saved is not what was read')
    shutil.copytree(one.path, f'{kind}-resumed')
    for gone in ('state/step-00000004', 'model', 'adapter'):
        shutil.rmtree(f'{kind}-resumed/{gone}')
    run('resume', f'{kind}-resumed')
    adapter = 'adapter/adapter_model.safetensors'
    check((one.path / adapter).read_bytes() == pathlib.Path(f'{kind}-resumed', adapter).read_bytes(), f'{kind}: resumed to other bytes')
    run('export', one.path, '--merge', '--out', f'{kind}-merged')
    merged = tensors(f'{kind}-merged')
    config = json.loads(pathlib.Path(f'{kind}-merged/config.json').read_text())
    check(not any('absmax' in x or 'quant' in x for x in merged) and 'quantization_config' not in config, f'{kind}: merged: {sorted(merged)}')
    after = [gradients(made(f'{kind}-{name}', base, *uses), f'{kind}-{name}.safetensors', '--logits')['logits'][2]
             for name, base, uses in (('beside', folder, (use('quantize-nf4'), use('lora', path=one.path.resolve() / 'adapter'), adamw)), ('merged', f'{kind}-merged', (adamw,)))]
    check(error(*after) < 1e-5, f'{kind}: merged logits are off by {error(*after)}')

# In 8 bit: codes and scales are read, made and saved as they are there.
eight = quantized / 'int8'
for how in ('quantize-int8', 'quantize-llm-int8'):
    for name, folder in (('again', eight), ('own', quantized / 'plain')):
        run('export', made(f'{how}-{name}', folder, use(how)), '--out', f'{how}-{name}')
        check(tensors(f'{how}-{name}') == tensors(eight), f'{how}, {name}: not the tensors that transformers saves')
        said = json.loads(pathlib.Path(f'{how}-{name}/config.json').read_text())['quantization_config']
        check(said['load_in_8bit'] and said['quant_method'] == 'bitsandbytes' and said['llm_int8_skip_modules'] == ['lm_head'], f'{how}: config.json: {said}')
    got = gradients(made(f'{how}-gives', eight, use(how), lora, adamw), f'{how}.safetensors', '--logits')['logits'][2]
    off = error(got, load(eight / 'expect.safetensors')['logits'][2])  # LLM.int8() rounds inputs, too
    check(off < (1e-5 if how == 'quantize-int8' else 0.02), f'{how}: logits are off by {off}')
    one = train(made(f'{how}-train', eight, use(how), lora, adamw, steps=4), f'{how}-train')
    check(one.steps[-1][0] < one.steps[0][0], f'{how}: the loss does not fall: {one.steps}')
    run('export', one.path, '--merge', '--out', f'{how}-merged')
    check(not any('SCB' in x or 'format' in x for x in tensors(f'{how}-merged')), f'{how}: merged: {sorted(tensors(f"{how}-merged"))}')
said = run('plan', made('four-of-eight', eight, use('quantize-nf4'), lora, adamw), code=2).stderr
check('not quantized to 4 bit' in said and 'quantize-int8' in said, f'4 bit of 8: {said}')

# What trains beside frozen layers is saved with them.
half = train(made('half', quantized / 'nf4', use('freeze', patterns=['*_proj.weight']), use('quantize-nf4'), adamw, steps=2, save=dict(every=2)), 'half')
saved, before = tensors(half.path / 'model'), tensors(quantized / 'nf4')
check(every(saved[x] == before[x] for x in before if 'proj' in x and 'quant_state' not in x) and saved['model.norm.weight'] != before['model.norm.weight'], 'half: what is saved')

for how, path in (('quantize-nf4', half.path), ('quantize-int8', None)):
    if not path:
        path = train(made('half-int8', eight, use('freeze', patterns=['*_proj.weight']), use(how), adamw, steps=2, save=dict(every=2)), 'half-int8').path
    said = json.loads((path / 'model/config.json').read_text())['quantization_config']
    check(said['llm_int8_skip_modules'] == ['lm_head'], f'half, {how}: {said}')

# A run that has trained some of the weights beside others in few bits: what it evaluates, samples from and exports is what it trained.
for how in ('quantize-nf4', 'quantize-int8'):
    some = made(f'{how}-some', quantized / 'plain', use('freeze', patterns=['*.mlp.*']), use(how), adamw, steps=3, save=dict(every=3))
    one = train(some, f'{how}-some')
    run('export', one.path, '--out', f'{how}-some-out')
    check(tensors(f'{how}-some-out') == tensors(one.path / 'model'), f'{how}: exported is not what the run saved')
    said = json.loads(pathlib.Path(f'{how}-some-out/config.json').read_text())['quantization_config']
    trained = {x.removesuffix('.weight') for x, (dtype, _, _) in tensors(f'{how}-some-out').items() if x.endswith('proj.weight') and dtype == 'F32'}
    check(trained and trained < set(said['llm_int8_skip_modules']), f'{how}: {said["llm_int8_skip_modules"]} are left out, and {sorted(trained)} are numbers')
    off = [gradients(made(f'{how}-some-{n}', f, *uses), f'{how}-some-{n}.safetensors', '--logits')['logits'][2]
           for n, f, uses in (('beside', quantized / 'plain', (use('freeze', patterns=['*.mlp.*']), use(how), adamw)), ('alone', quantized / 'plain', (use(how), lora, adamw)))]
    check(error(*off) > 0, f'{how}: weights that a run would train are packed')

# Commands that take a folder find out by themselves how its weights are stored; an adapter's too.
for how, folder, options in (('quantize-nf4', quantized / 'nf4', {}), ('quantize-int8', eight, {})):
    kept = train(made(f'{how}-kept', folder, use(how), lora, adamw), f'{how}-kept')
    run('export', folder, '--out', f'{how}-copied')
    run('export', kept.path / 'adapter', '--base', folder, '--merge', '--out', f'{how}-both')
    check(tensors(f'{how}-copied')[weight_of_both] == tensors(folder)[weight_of_both], f'{how}: a copy has other codes')
    check(tensors(f'{how}-both')[weight_of_both][0] == 'F32', f'{how}: what is merged has codes')

# A plan needs no weights.
for kind, how in (('nf4', 'quantize-nf4'), ('fp4-double', 'quantize-nf4'), ('int8', 'quantize-int8')):
    pathlib.Path(f'bare-{kind}').mkdir(exist_ok=True)
    shutil.copy(quantized / kind / 'config.json', f'bare-{kind}/config.json')
    bare, whole = (json.loads(run('plan', made(f'{name}-{kind}', f, use(how), lora, adamw), '--json').stdout)['classes']['host']['planned'] for name, f in (('bare', f'bare-{kind}'), ('whole', quantized / kind)))
    check(abs(bare - whole) < 0.02 * whole, f'{kind}: {bare} bytes planned without weights, {whole} with them')  # whose dtypes are known then

# A head that the folder has in 8 bit is read so. What bitsandbytes says of outliers is followed, and said again; so is that nothing is left out.
def head(content, config):
    _, (rows, columns), numbers = content['model.embed_tokens.weight']
    scales = [max(abs(x) for x in numbers[r * columns:(r + 1) * columns]) for r in range(rows)]
    content['lm_head.weight'] = ('I8', [rows, columns], [round(127 * x / scales[i // columns]) for i, x in enumerate(numbers)])
    config['tie_word_embeddings'] = False
    content['lm_head.SCB'], content['lm_head.weight_format'] = ('F32', [rows], scales), ('U8', [], [0])
    config['quantization_config'].update(llm_int8_skip_modules=[], llm_int8_threshold=1e-7)


def broken(name, change, kind='nf4'):
    """A copy of a folder with a change to its tensors and its configuration."""
    shutil.rmtree(name, ignore_errors=True)
    shutil.copytree(quantized / kind, name)
    content, config = tensors(name), json.loads(pathlib.Path(name, 'config.json').read_text())
    change(content, config)
    save(pathlib.Path(name, 'model.safetensors'), content)
    pathlib.Path(name, 'config.json').write_text(json.dumps(config))
    return name


broken('head', head, 'int8')
run('export', made('head', 'head', use('quantize-llm-int8')), '--out', 'head-again')
check(tensors('head-again') == tensors('head'), 'a head in 8 bit is not what was read')
said = json.loads(pathlib.Path('head-again/config.json').read_text())['quantization_config']
check(said['llm_int8_skip_modules'] == [] and said['llm_int8_threshold'] == 1e-7, f'a head in 8 bit: {said}')


def untie(content, config):
    content.update({name: ('F32', shape, numbers) for name, (_, shape, numbers) in content.items()})
    content['lm_head.weight'] = content['model.embed_tokens.weight']
    config['tie_word_embeddings'] = False


run('export', made('all', broken('untied', untie, 'plain'), use('quantize-nf4', skip=[])), '--out', 'all')
check(json.loads(pathlib.Path('all/config.json').read_text())['quantization_config']['llm_int8_skip_modules'] == [], 'nothing is left out, and config.json does not say so')
said = json.loads(pathlib.Path('quantize-int8-own/config.json').read_text())['quantization_config']
check(said['llm_int8_threshold'] == 6, f'quantize-int8: inputs that transformers rounds have no outliers: {said}')

# DoRA's own product of the layer is made as the layer makes it.
said = run('plan', made('dora', quantized / 'plain', use('quantize-llm-int8'), use('lora', rank=2, alpha=4, dora=True), adamw), '--dump', 'rewrite').stdout
check('base_layer: linear_int8(' in said and 'base_layer: linear(' not in said, 'DoRA multiplies the weight as a linear layer does, and not as LLM.int8()')

# GPT-2's layers lie as (inputs, outputs). transformers puts others in their place to quantize them, which lie as (outputs, inputs); so blocks of 4 bits and scales of 8
# are others, and neither program can read what the other one stores, also where a matrix is square.
gpt2 = fixtures / 'lora' / 'gpt2-conv1d' / 'base'
for how, bits in (('quantize-nf4', 4), ('quantize-int8', 8), ('quantize-llm-int8', 8)):
    for layer, (rows, columns) in (('attn.c_attn', (192, 64)), ('attn.c_proj', (64, 64))):
        folder = pathlib.Path(f'gpt2-{bits}-{layer}')
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(gpt2, folder)
        content, config = tensors(folder), json.loads((folder / 'config.json').read_text())
        weight = next(x for x in content if x.endswith(f'h.0.{layer}.weight'))
        n = rows * columns
        if bits == 4:
            content[weight] = ('U8', [n // 2, 1], [7 * i % 256 for i in range(n // 2)])
            content[f'{weight}.absmax'] = ('F32', [n // 64], [0.1] * (n // 64))
            content[f'{weight}.quant_map'] = tensors(quantized / 'nf4')['model.layers.0.mlp.up_proj.weight.quant_map']
            text_of = json.dumps(dict(quant_type='nf4', blocksize=64, dtype='float32', shape=[rows, columns])).encode()
            content[f'{weight}.quant_state.bitsandbytes__nf4'] = ('U8', [len(text_of)], list(text_of))
        else:
            content[weight] = ('I8', [rows, columns], [7 * i % 255 - 127 for i in range(n)])
            content[weight.replace('.weight', '.SCB')] = ('F32', [rows], [0.1] * rows)
            content[weight.replace('.weight', '.weight_format')] = ('U8', [], [0])
        config['quantization_config'] = json.loads((quantized / ('nf4' if bits == 4 else 'int8') / 'config.json').read_text())['quantization_config']
        (folder / 'config.json').write_text(json.dumps(config))
        save(folder / 'model.safetensors', content)
        said = run('plan', made('gpt2', folder, use(how), lora, adamw), code=2).stderr
        check(every(x in said for x in (how, str(folder), weight if bits == 4 else '.weight', '(outputs, inputs)', 'take the folder that was quantized')), f'{how}, {layer}: {said}')
    run('export', made('gpt2-out', gpt2, use(how)), '--out', f'gpt2-{how}')
    said = json.loads(pathlib.Path(f'gpt2-{how}/config.json').read_text())
    check('quantization_config' not in said and {x[0] for x in tensors(f'gpt2-{how}').values()} == {'F32'}, f'{how}: GPT-2 is saved as {said.get("quantization_config")}')
    off = {n: error(x[2], tensors(gpt2)[n][2]) for n, x in tensors(f'gpt2-{how}').items() if '.c_' in n and n.endswith('weight')}
    check(every(0.001 < x < 0.2 for x in off.values()), f'{how}: of GPT-2 the numbers that are kept are saved: {off}')

# ---- What is refused ---------------------------------------------------------------------------------------------------------------------

weight = 'model.layers.0.mlp.up_proj.weight'
state = f'{weight}.quant_state.bitsandbytes__nf4'


def text(content, **changes):
    content[state] = ('U8', [0], list(json.dumps({**parsed(content[state]), **changes}).encode()))
    content[state] = ('U8', [len(content[state][2])], content[state][2])


def put(name, value):
    return lambda content, config: content.__setitem__(name, value)


refusals = {
    'cut': (put(state, ('U8', [9], list(b'{"quant_t'))), (state, 'is not JSON')),
    'list': (put(state, ('U8', [2], list(b'[]'))), (state, 'not a JSON object')),
    'type': (lambda t, c: text(t, quant_type='int4'), (state, "'quant_type' is 'int4'")),
    'block': (lambda t, c: text(t, blocksize=128), (state, 'in blocks of 128', 'in one way')),
    'no-block': (lambda t, c: text(t, blocksize='64'), (state, "'blocksize' has to be a whole number")),
    'shape': (lambda t, c: text(t, shape=[64, 128]), (weight, '(64, 128)', '(128, 64)')),
    'negative': (lambda t, c: text(t, shape=[-1, 64]), (state, "'shape' has to hold whole numbers")),
    'doubled': (lambda t, c: text(t, nested_blocksize=256, nested_offset=1.0), (state, 'with double quantization')),
    'no-power': (lambda t, c: text(t, blocksize=48), (state, "'blocksize' is 48; 32, 64, 128")),
    'huge': (lambda t, c: text(t, blocksize=2**63 + 64), (state, "'blocksize' has to be a whole number")),
    'orphan': (lambda t, c: t.__setitem__('model.layers.9.mlp.up_proj.weight.quant_state.bitsandbytes__nf4', t[state]), ('model.layers.9.mlp.up_proj.weight', 'no linear layer of the model')),
    'long': (put(state, ('U8', [5000], [32] * 5000)), (state, '5000 bytes')),
    'book': (put(f'{weight}.quant_map', ('F32', [16], [0.1] * 16)), (f'{weight}.quant_map', 'another code book')),
    'no-absmax': (lambda t, c: t.pop(f'{weight}.absmax'), (f'{weight}.absmax', 'missing')),
    'absmax': (put(f'{weight}.absmax', ('F32', [3], [1.0] * 3)), (f'{weight}.absmax', 'F32 (3)')),
    'nan': (lambda t, c: t[f'{weight}.absmax'][2].__setitem__(5, float('nan')), (f'{weight}.absmax', 'NaN')),
    'no-codes': (lambda t, c: t.pop(weight), (weight, 'missing')),
    'extra': (put('model.extra', ('F32', [1], [1.0])), ('model.extra', 'unknown')),
    'none': (lambda t, c: [t.pop(x) for x in list(t) if 'quant_state' in x], ('no tensor is called', 'quantization_config')),
    'gptq': (lambda t, c: c['quantization_config'].update(quant_method='gptq'), ("quantized by 'gptq'", 'config.json')),
    'storage': (lambda t, c: c['quantization_config'].update(bnb_4bit_quant_storage='bfloat16'), ("stored as 'bfloat16'", 'config.json')),
    'eight': (lambda t, c: c['quantization_config'].update(load_in_4bit=False, load_in_8bit=True), ('not quantized to 4 bit', 'quantize-int8')),
    'text': (lambda t, c: c.update(quantization_config='nf4'), ('quantization_config', 'not a JSON object')),
}
eights = {
    'int8-gptq': (lambda t, c: c['quantization_config'].update(quant_method='gptq'), ("quantized by 'gptq'", 'config.json')),
    'int8-text': (lambda t, c: c.update(quantization_config='int8'), ('quantization_config', 'not a JSON object')),
    'int8-order': (put('model.layers.0.mlp.up_proj.weight_format', ('U8', [], [2])), ('model.layers.0.mlp.up_proj.weight_format', 'another order than row by row')),
    'int8-none': (lambda t, c: c['quantization_config'].update(load_in_8bit=False), ('neither load_in_4bit nor load_in_8bit',)),
    'int8-far': (lambda t, c: c['quantization_config'].update(llm_int8_threshold='x'), ("'llm_int8_threshold' has to be a number",)),
    'int8-four': (lambda t, c: c['quantization_config'].update(load_in_8bit=False, load_in_4bit=True), ('quantized to 4 bit, not to 8', 'quantize-nf4')),
}
for name, (change, words) in eights.items():
    said = run('plan', made(f'refused-{name}', broken(name, change, 'int8'), use('quantize-llm-int8'), lora, adamw), code=2).stderr
    check(every(w in said for w in words), f'{name}: {said}')
doubled = state.replace('nf4', 'fp4')
for offset in (-1.0, 1e300, 'x', None):
    def offsets(content, config):
        said = list(json.dumps({**parsed(content[doubled]), 'nested_offset': offset}).encode())
        content[doubled] = ('U8', [len(said)], said)
    said = run('plan', made('offset', broken('offset', offsets, 'fp4-double'), use('quantize-nf4'), lora, adamw), code=2).stderr
    check(doubled in said and "'nested_offset' has to be a number of at least 0" in said, f'offset {offset}: {said}')
said = run('plan', made('int8-skip', eight, use('quantize-int8', skip=['up_proj']), lora, adamw), code=2).stderr
check("leave 'skip' out" in said, said)
for name, (change, words) in refusals.items():
    said = run('train', made(f'refused-{name}', broken(name, change), use('quantize-nf4'), lora, adamw), '--out', f'refused-{name}', code=2).stderr
    check(every(w in said for w in words), f'{name}: {said}')
    check(not pathlib.Path(f'refused-{name}').exists(), f'{name}: a run was begun')
for name, uses, words in (('nobody', (lora, adamw), ("key 'quantization_config'", 'use "quantize-nf4"')), ('other', (use('quantize-nf4', double=True), lora, adamw), ('double = false', 'leave')),
                          ('skip', (use('quantize-nf4', skip=['*.up_proj']), lora, adamw), ("leave 'skip' out",)), ('full', (use('quantize-nf4'), adamw), ('all linear layers are trained', 'lora'))):
    said = run('plan', made(f'plan-{name}', quantized / 'nf4', *uses), code=2).stderr
    check(every(w in said for w in words), f'{name}: {said}')

# What transformers leaves as numbers whatever config.json says is left so here: T5's wo, which it keeps in F32, and a layer whose name ends with that of one that is left.
# GPT-NeoX's head has one name in files and another in its classes since version 5.
for how in ('quantize-nf4', 'quantize-int8'):
    for case, kept, names in (('t5-relu-tied', '.wo.weight', 'decoder.block.1.layer.2.DenseReluDense.wo'), ('distilbert-rows', 'pre_classifier.weight', 'pre_classifier'),
                              ('gpt-neox-partial', 'embed_out.weight', 'lm_head')):
        base = fixtures / 'models' / case
        run('export', recipe('kept.lua', from_folder(base), batch_of(base / 'batch.safetensors'), use(how), steps=1), '--out', f'{how}-{case}')
        there, before = tensors(f'{how}-{case}'), tensors(base)
        numbers = [x for x in before if x.endswith(kept)]
        check(numbers and every(there[x] == before[x] for x in numbers), f'{how}, {case}: {[there[x][0] for x in numbers]}')
        check(any('absmax' in x or x.endswith('.SCB') for x in there), f'{how}, {case}: nothing is quantized')
        said = json.loads(pathlib.Path(f'{how}-{case}/config.json').read_text())['quantization_config']['llm_int8_skip_modules']
        check(names in said, f'{how}, {case}: {said}')

finish()
