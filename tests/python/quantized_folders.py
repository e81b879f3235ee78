#!/usr/bin/env python3
"""Folders that bitsandbytes has quantized to 4 and 8 bit: read, trained on, saved again with the same bytes, merged; and what is wrong with broken ones."""
import functools
import json
import pathlib
import shutil

from galley_test import batch_of, case, cases, check, error, every, finish, fixtures, fresh_folder, from_folder, gradients, load, plan, recipe, run, save, together, use
from steps_kit import refused, trained

fresh_folder()
quantized = fixtures / 'quantized'
eight = quantized / 'int8'
batch = batch_of(quantized / 'batch.safetensors')
lora, adamw = use('lora', rank=2, alpha=4), use('adamw', lr=1e-2)
ADAPTER = 'adapter/adapter_model.safetensors'


def made(name, folder, *uses, **entries):
    return recipe(f'{name}.lua', from_folder(folder), batch, *uses, **dict(dict(steps=2, seed=3), **entries))


def tensors(folder):
    return load(pathlib.Path(folder) / 'model.safetensors')


def config_of(folder):
    return json.loads(pathlib.Path(folder, 'config.json').read_text())


def quantization(folder):
    return config_of(folder)['quantization_config']


def logits(name, folder, *uses):
    return gradients(made(name, folder, *uses), f'{name}.safetensors', '--logits')['logits'][2]


def expected(folder):
    return load(folder / 'expect.safetensors')['logits'][2]


def falls(one):
    check(one.steps[-1][0] < one.steps[0][0], f'{one.path}: the loss does not fall: {one.steps}')


def broken(name, change, kind='nf4'):
    """A copy of a folder with a change to its tensors and its configuration."""
    shutil.rmtree(name, ignore_errors=True)
    shutil.copytree(quantized / kind, name)
    content, config = tensors(name), config_of(name)
    change(content, config)
    save(pathlib.Path(name, 'model.safetensors'), content)
    pathlib.Path(name, 'config.json').write_text(json.dumps(config))
    return name


# ---- In 4 bit ----------------------------------------------------------------------------------------------------------------------------

KINDS = {'nf4': {}, 'fp4-double': dict(type='fp4', double=True)}


def parsed(state):
    return json.loads(bytes(state[2]))


@cases(KINDS)
def gives(kind, options):
    """Whether the recipe says how the weights are quantized or not."""
    for name, more in (('follows', {}), ('says', options)):
        off = error(logits(f'{kind}-{name}', quantized / kind, use('quantize-nf4', **more), lora, adamw), expected(quantized / kind))
        check(off < 1e-5, f'{name}: logits are off by {off}')


@cases(KINDS)
def saved_again(kind, _):
    """Out go the bytes that came in."""
    folder, theirs = quantized / kind, tensors(quantized / kind)
    run('export', made(f'{kind}-again', folder, use('quantize-nf4')), '--out', f'{kind}-again', '--reference')
    again = tensors(f'{kind}-again')
    check(again.keys() == theirs.keys() and sum('quant_state' in x for x in theirs) == 7, f'saved {sorted(again.keys() ^ theirs.keys())}')
    for name, (dtype, shape, numbers) in theirs.items():
        if 'quant_state' in name:
            a, b = parsed(again[name]), parsed(theirs[name])
            check(a.keys() == b.keys() and every(a[k] == b[k] for k in a if k not in ('nested_offset', 'dtype')), f'{name}: {a}, not {b}')
            check('nested_offset' not in b or abs(a['nested_offset'] - b['nested_offset']) < 2e-12 * b['nested_offset'], f'{name}: {a}, not {b}')
        else:
            check(again[name] == (dtype, shape, numbers), f'{name} is not what was read')
    said, config = quantization(f'{kind}-again'), quantization(folder)
    check(said.keys() == config.keys() and every(said[k] == config[k] for k in said if k != 'llm_int8_skip_modules'), f'config.json: {said}, not {config}')
    check(said['llm_int8_skip_modules'] == ['lm_head'], f'skipped {said["llm_int8_skip_modules"]}')


@cases(KINDS)
def quantized_here(kind, options):
    """A model has the same bytes; but of absmax in 8 bit, bitsandbytes' kernel for the CPU takes another code than the nearest now and then."""
    run('export', made(f'{kind}-own', quantized / 'plain', use('quantize-nf4', **options)), '--out', f'{kind}-own')
    own, theirs = tensors(f'{kind}-own'), tensors(quantized / kind)
    for name, (dtype, shape, numbers) in theirs.items():
        if name.endswith('proj.weight') or 'absmax' in name or 'quant_map' in name:
            check(own[name][:2] == (dtype, shape), f'{name} is {own[name][:2]}, not {(dtype, shape)}')
            apart = [abs(a - b) for a, b in together(own[name][2], numbers)]
            check(max(apart) == 0 or dtype == 'U8' and 'absmax' in name and max(apart) <= 4 and sum(x > 0 for x in apart) < 6, f'{name} differs: {apart}')


@functools.cache
def with_an_adapter(kind):
    """A run on a folder, which saves the base, too."""
    return trained(made(f'{kind}-train', quantized / kind, use('quantize-nf4', save=True), lora, adamw, steps=4, save=dict(every=2)), f'{kind}-train')


@cases(KINDS)
def trains(kind, _):
    one, theirs = with_an_adapter(kind), tensors(quantized / kind)
    falls(one)
    check(every(tensors(one.path / 'model')[name][2] == x[2] for name, x in theirs.items() if 'quant_state' not in name), 'the base that is saved is not what was read')
    shutil.copytree(one.path, f'{kind}-resumed')
    for gone in ('state/step-00000004', 'model', 'adapter'):
        shutil.rmtree(f'{kind}-resumed/{gone}')
    run('resume', f'{kind}-resumed')
    check(one.bytes(ADAPTER) == pathlib.Path(f'{kind}-resumed', ADAPTER).read_bytes(), 'resumed to other bytes')


@cases(KINDS)
def is_merged(kind, _):
    one, folder = with_an_adapter(kind), quantized / kind
    run('export', one.path, '--merge', '--out', f'{kind}-merged')
    merged = tensors(f'{kind}-merged')
    check(not any('absmax' in x or 'quant' in x for x in merged) and 'quantization_config' not in config_of(f'{kind}-merged'), f'{sorted(merged)}')
    beside = logits(f'{kind}-beside', folder, use('quantize-nf4'), use('lora', path=one.path.resolve() / 'adapter'), adamw)
    off = error(beside, logits(f'{kind}-after', f'{kind}-merged', adamw))
    check(off < 1e-5, f'merged logits are off by {off}')


# ---- In 8 bit ----------------------------------------------------------------------------------------------------------------------------

EIGHT = ('quantize-int8', 'quantize-llm-int8')


@cases([f'{how}-{name}' for how in EIGHT for name in ('again', 'own')])
def codes_and_scales(who):
    """They are read, made and saved as they are there."""
    how, name = who.rsplit('-', 1)
    run('export', made(who, eight if name == 'again' else quantized / 'plain', use(how)), '--out', who)
    check(tensors(who) == tensors(eight), 'not the tensors that transformers saves')
    said = quantization(who)
    check(said['load_in_8bit'] and said['quant_method'] == 'bitsandbytes' and said['llm_int8_skip_modules'] == ['lm_head'], f'config.json: {said}')
    if how == 'quantize-int8':
        check(said['llm_int8_threshold'] == 6, f'inputs that transformers rounds have no outliers: {said}')


@cases(EIGHT)
def in_8_bit(how):
    off = error(logits(f'{how}-gives', eight, use(how), lora, adamw), expected(eight))  # LLM.int8() rounds inputs, too
    check(off < (1e-5 if how == 'quantize-int8' else 0.02), f'logits are off by {off}')
    one = trained(made(f'{how}-train', eight, use(how), lora, adamw, steps=4), f'{how}-train')
    falls(one)
    run('export', one.path, '--merge', '--out', f'{how}-merged')
    check(not any('SCB' in x or 'format' in x for x in tensors(f'{how}-merged')), f'merged: {sorted(tensors(f"{how}-merged"))}')


@case
def four_of_eight():
    refused(made('four-of-eight', eight, use('quantize-nf4'), lora, adamw), 'not quantized to 4 bit', 'quantize-int8')


@case
def head_in_8_bit():
    """A head that the folder has in 8 bit is read so. What bitsandbytes says of outliers is followed, and said again; so is that nothing is left out."""
    def change(content, config):
        _, (rows, columns), numbers = content['model.embed_tokens.weight']
        scales = [max(abs(x) for x in numbers[r * columns:(r + 1) * columns]) for r in range(rows)]
        content['lm_head.weight'] = ('I8', [rows, columns], [round(127 * x / scales[i // columns]) for i, x in enumerate(numbers)])
        config['tie_word_embeddings'] = False
        content['lm_head.SCB'], content['lm_head.weight_format'] = ('F32', [rows], scales), ('U8', [], [0])
        config['quantization_config'].update(llm_int8_skip_modules=[], llm_int8_threshold=1e-7)

    run('export', made('head', broken('head', change, 'int8'), use('quantize-llm-int8')), '--out', 'head-again')
    check(tensors('head-again') == tensors('head'), 'not what was read')
    said = quantization('head-again')
    check(said['llm_int8_skip_modules'] == [] and said['llm_int8_threshold'] == 1e-7, f'{said}')


@case
def nothing_is_left_out():
    def untie(content, config):
        content.update({name: ('F32', shape, numbers) for name, (_, shape, numbers) in content.items()})
        content['lm_head.weight'] = content['model.embed_tokens.weight']
        config['tie_word_embeddings'] = False

    run('export', made('all', broken('untied', untie, 'plain'), use('quantize-nf4', skip=[])), '--out', 'all')
    check(quantization('all')['llm_int8_skip_modules'] == [], 'config.json does not say so')


@case
def dora():
    """DoRA's own product of the layer is made as the layer makes it."""
    said = run('plan', made('dora', quantized / 'plain', use('quantize-llm-int8'), use('lora', rank=2, alpha=4, dora=True), adamw), '--dump', 'rewrite').stdout
    check('base_layer: linear_int8(' in said and 'base_layer: linear(' not in said, 'DoRA multiplies the weight as a linear layer does, and not as LLM.int8()')


# ---- What trains beside ------------------------------------------------------------------------------------------------------------------

HOWS = {'quantize-nf4': quantized / 'nf4', 'quantize-int8': eight}


@cases(HOWS)
def half(how, folder):
    """What trains beside frozen layers is saved with them."""
    one = trained(made(f'{how}-half', folder, use('freeze', patterns=['*_proj.weight']), use(how), adamw, steps=2, save=dict(every=2)), f'{how}-half')
    saved, before = tensors(one.path / 'model'), tensors(folder)
    check(every(saved[x] == before[x] for x in before if 'proj' in x and 'quant_state' not in x), 'what is frozen is saved as something else')
    check(saved['model.norm.weight'] != before['model.norm.weight'], 'what is trained is not saved')
    said = quantization(one.path / 'model')
    check(said['llm_int8_skip_modules'] == ['lm_head'], f'{said}')


@cases(HOWS)
def some(how, _):
    """A run that has trained some of the weights beside others in few bits: what it evaluates, samples from and exports is what it trained."""
    freeze, plain, name = use('freeze', patterns=['*.mlp.*']), quantized / 'plain', f'{how}-some'
    one = trained(made(name, plain, freeze, use(how), adamw, steps=3, save=dict(every=3)), name)
    run('export', one.path, '--out', f'{name}-out')
    check(tensors(f'{name}-out') == tensors(one.path / 'model'), 'exported is not what the run saved')
    said = quantization(f'{name}-out')
    whole = {x.removesuffix('.weight') for x, (dtype, _, _) in tensors(f'{name}-out').items() if x.endswith('proj.weight') and dtype == 'F32'}
    check(whole and whole < set(said['llm_int8_skip_modules']), f'{said["llm_int8_skip_modules"]} are left out, and {sorted(whole)} are numbers')
    off = error(logits(f'{name}-beside', plain, freeze, use(how), adamw), logits(f'{name}-alone', plain, use(how), lora, adamw))
    check(off > 0, 'weights that a run would train are packed')


@cases(HOWS)
def by_path(how, folder):
    """Commands that take a folder find out by themselves how its weights are stored; an adapter's too."""
    weight = 'model.layers.0.mlp.up_proj.weight'
    kept = trained(made(f'{how}-kept', folder, use(how), lora, adamw), f'{how}-kept')
    run('export', folder, '--out', f'{how}-copied')
    run('export', kept.path / 'adapter', '--base', folder, '--merge', '--out', f'{how}-both')
    check(tensors(f'{how}-copied')[weight] == tensors(folder)[weight], 'a copy has other codes')
    check(tensors(f'{how}-both')[weight][0] == 'F32', 'what is merged has codes')


@cases({'nf4': 'quantize-nf4', 'fp4-double': 'quantize-nf4', 'int8': 'quantize-int8'})
def plan_without_weights(kind, how):
    pathlib.Path(f'bare-{kind}').mkdir(exist_ok=True)
    shutil.copy(quantized / kind / 'config.json', f'bare-{kind}/config.json')
    bare, whole = (plan(made(f'{name}-{kind}', folder, use(how), lora, adamw))['classes']['host']['planned']
                   for name, folder in (('bare', f'bare-{kind}'), ('whole', quantized / kind)))
    check(abs(bare - whole) < 0.02 * whole, f'{bare} bytes planned without weights, {whole} with them')  # whose dtypes are known then


@cases([f'{how}-{case}' for how in HOWS for case in ('t5-relu-tied', 'distilbert-rows', 'gpt-neox-partial')])
def left_as_numbers(who):
    """What transformers leaves as numbers whatever config.json says is left so here: T5's wo, which it keeps in F32, and a layer whose name ends with that of one that is
    left. GPT-NeoX's head has one name in files and another in its classes since version 5."""
    how, model = next((how, who[len(how) + 1:]) for how in HOWS if who.startswith(how))
    kept, names = {'t5-relu-tied': ('.wo.weight', 'decoder.block.1.layer.2.DenseReluDense.wo'), 'distilbert-rows': ('pre_classifier.weight', 'pre_classifier'),
                   'gpt-neox-partial': ('embed_out.weight', 'lm_head')}[model]
    base = fixtures / 'models' / model
    run('export', recipe(f'{who}.lua', from_folder(base), batch_of(base / 'batch.safetensors'), use(how), steps=1), '--out', who)
    there, before = tensors(who), tensors(base)
    numbers = [x for x in before if x.endswith(kept)]
    check(every(there[x] == before[x] for x in numbers), f'{[there[x][0] for x in numbers]}')
    check(any('absmax' in x or x.endswith('.SCB') for x in there), 'nothing is quantized')
    said = quantization(who)['llm_int8_skip_modules']
    check(names in said, f'{said}')


# ---- GPT-2 -------------------------------------------------------------------------------------------------------------------------------

# Its layers lie as (inputs, outputs). transformers puts others in their place to quantize them, which lie as (outputs, inputs); so blocks of 4 bits and scales of 8
# are others, and neither program can read what the other one stores, also where a matrix is square.
gpt2 = fixtures / 'lora' / 'gpt2-conv1d' / 'base'
BITS = {'quantize-nf4': 4, 'quantize-int8': 8, 'quantize-llm-int8': 8}
SHAPES = {'attn.c_attn': (192, 64), 'attn.c_proj': (64, 64)}


@cases([f'{how}-{layer}' for how in BITS for layer in SHAPES])
def codes_of_gpt2(who):
    how, layer = next((how, who[len(how) + 1:]) for how in BITS if who.startswith(how) and who[len(how) + 1:] in SHAPES)
    bits, (rows, columns), folder = BITS[how], SHAPES[layer], pathlib.Path(f'gpt2-{who}')
    shutil.copytree(gpt2, folder)
    content, config = tensors(folder), config_of(folder)
    weight = next(x for x in content if x.endswith(f'h.0.{layer}.weight'))
    n = rows * columns
    if bits == 4:
        content[weight] = ('U8', [n // 2, 1], [7 * i % 256 for i in range(n // 2)])
        content[f'{weight}.absmax'] = ('F32', [n // 64], [0.1] * (n // 64))
        content[f'{weight}.quant_map'] = tensors(quantized / 'nf4')['model.layers.0.mlp.up_proj.weight.quant_map']
        state = json.dumps(dict(quant_type='nf4', blocksize=64, dtype='float32', shape=[rows, columns])).encode()
        content[f'{weight}.quant_state.bitsandbytes__nf4'] = ('U8', [len(state)], list(state))
    else:
        content[weight] = ('I8', [rows, columns], [7 * i % 255 - 127 for i in range(n)])
        content[weight.replace('.weight', '.SCB')] = ('F32', [rows], [0.1] * rows)
        content[weight.replace('.weight', '.weight_format')] = ('U8', [], [0])
    config['quantization_config'] = quantization(quantized / 'nf4' if bits == 4 else eight)
    (folder / 'config.json').write_text(json.dumps(config))
    save(folder / 'model.safetensors', content)
    refused(made('gpt2', folder, use(how), lora, adamw), how, str(folder), weight if bits == 4 else '.weight', '(outputs, inputs)', 'take the folder that was quantized')


@cases(BITS)
def gpt2_is_saved_as_numbers(how, _):
    run('export', made('gpt2-out', gpt2, use(how)), '--out', f'gpt2-{how}')
    found, before = tensors(f'gpt2-{how}'), tensors(gpt2)
    check('quantization_config' not in config_of(f'gpt2-{how}') and {x[0] for x in found.values()} == {'F32'}, f'it is saved as {config_of(f"gpt2-{how}")}')
    off = {n: error(x[2], before[n][2]) for n, x in found.items() if '.c_' in n and n.endswith('weight')}
    check(every(0.001 < x < 0.2 for x in off.values()), f'the numbers that are kept are saved: {off}')


# ---- What is refused ---------------------------------------------------------------------------------------------------------------------

weight = 'model.layers.0.mlp.up_proj.weight'
state = f'{weight}.quant_state.bitsandbytes__nf4'


def text(content, **changes):
    content[state] = ('U8', [0], list(json.dumps({**parsed(content[state]), **changes}).encode()))
    content[state] = ('U8', [len(content[state][2])], content[state][2])


def put(name, value):
    return lambda content, config: content.__setitem__(name, value)


REFUSED = {
    'cut': (put(state, ('U8', [9], list(b'{"quant_t'))), (state, 'is not JSON')),
    'list': (put(state, ('U8', [2], list(b'[]'))), (state, 'not a JSON object')),
    'type': (lambda t, c: text(t, quant_type='int4'), (state, "'quant_type' is 'int4'; nf4 and fp4 are read")),
    'block': (lambda t, c: text(t, blocksize=128), (state, f"nf4 in blocks of 128 without double quantization; that of 'model.", 'is not\n', 'in one way')),
    'no-block': (lambda t, c: text(t, blocksize='64'), (state, "'blocksize' has to be a whole number")),
    'shape': (lambda t, c: text(t, shape=[64, 128]), (weight, '(64, 128)', '(128, 64)')),
    'negative': (lambda t, c: text(t, shape=[-1, 64]), (state, "'shape' has to hold whole numbers")),
    'doubled': (lambda t, c: text(t, nested_blocksize=256, nested_offset=1.0), (state, "nf4 in blocks of 64 with double quantization; that of 'model.")),
    'no-shape': (lambda t, c: text(t, shape=64), (state, "'shape' has to be a list")),
    'no-power': (lambda t, c: text(t, blocksize=48), (state, "'blocksize' is 48; 32, 64, 128")),
    'huge': (lambda t, c: text(t, blocksize=2**63 + 64), (state, "'blocksize' has to be a whole number")),
    'orphan': (lambda t, c: t.__setitem__(state.replace('.0.', '.9.'), t[state]), (weight.replace('.0.', '.9.'), 'no linear layer of the model')),
    'long': (put(state, ('U8', [5000], [32] * 5000)), (state, '5000 bytes')),
    'book': (put(f'{weight}.quant_map', ('F32', [16], [0.1] * 16)), (f'{weight}.quant_map', 'another code book')),
    'no-absmax': (lambda t, c: t.pop(f'{weight}.absmax'), (f'{weight}.absmax', 'missing')),
    'absmax': (put(f'{weight}.absmax', ('F32', [3], [1.0] * 3)), (f'{weight}.absmax', 'F32 (3)')),
    'nan': (lambda t, c: t[f'{weight}.absmax'][2].__setitem__(5, float('nan')), (f'{weight}.absmax', 'NaN')),
    'no-codes': (lambda t, c: t.pop(weight), (weight, 'missing')),
    'extra': (put('model.extra', ('F32', [1], [1.0])), ('model.extra', 'unknown')),
    'none': (lambda t, c: [t.pop(x) for x in list(t) if 'quant_state' in x], ('no tensor is called', 'quantization_config')),
    'gptq': (lambda t, c: c['quantization_config'].update(quant_method='gptq'), ("config.json: 'quantization_config': the folder is quantized by 'gptq', which is not read here",)),
    'storage': (lambda t, c: c['quantization_config'].update(bnb_4bit_quant_storage='bfloat16'), ("stored as 'bfloat16'", 'config.json')),
    'eight': (lambda t, c: c['quantization_config'].update(load_in_4bit=False, load_in_8bit=True), ('not quantized to 4 bit', 'quantize-int8')),
    'text': (lambda t, c: c.update(quantization_config='nf4'), ('quantization_config', 'not a JSON object')),
}
REFUSED_IN_8_BIT = {
    'int8-gptq': (lambda t, c: c['quantization_config'].update(quant_method='gptq'), ("quantized by 'gptq'", 'config.json')),
    'int8-text': (lambda t, c: c.update(quantization_config='int8'), ('quantization_config', 'not a JSON object')),
    'int8-order': (put('model.layers.0.mlp.up_proj.weight_format', ('U8', [], [2])), ('model.layers.0.mlp.up_proj.weight_format', 'another order than row by row')),
    'int8-none': (lambda t, c: c['quantization_config'].update(load_in_8bit=False), ('neither load_in_4bit nor load_in_8bit',)),
    'int8-far': (lambda t, c: c['quantization_config'].update(llm_int8_threshold='x'), ("'llm_int8_threshold' has to be a number",)),
    'int8-four': (lambda t, c: c['quantization_config'].update(load_in_8bit=False, load_in_4bit=True), ('quantized to 4 bit, not to 8', 'quantize-nf4')),
}


@cases(REFUSED)
def refusals(name, of):
    change, words = of
    refused(made(f'refused-{name}', broken(name, change), use('quantize-nf4'), lora, adamw), *words, command='train', flags=('--out', f'refused-{name}'))
    check(not pathlib.Path(f'refused-{name}').exists(), 'a run was begun')


@cases(REFUSED_IN_8_BIT)
def refusals_in_8_bit(name, of):
    change, words = of
    refused(made(f'refused-{name}', broken(name, change, 'int8'), use('quantize-llm-int8'), lora, adamw), *words)


@cases({'list': (dict(llm_int8_skip_modules='lm_head'), "'llm_int8_skip_modules' has to be a list"),
        'names': (dict(llm_int8_skip_modules=[3]), "'llm_int8_skip_modules' has to hold names"),
        'type': (dict(bnb_4bit_quant_type='int4'), "'bnb_4bit_quant_type' is 'int4'; nf4 and fp4 are read")})
def refused_without_weights(name, of):
    """Where there are none, the configuration says how they will be stored."""
    changes, says = of
    folder = broken(f'bare-{name}', lambda content, config: config['quantization_config'].update(changes))
    pathlib.Path(folder, 'model.safetensors').unlink()
    refused(made(f'refused-bare-{name}', folder, use('quantize-nf4'), lora, adamw), "config.json: 'quantization_config'", says)


@case
def nested_block():
    doubled = state.replace('nf4', 'fp4')

    def change(content, config):
        said = list(json.dumps({**parsed(content[doubled]), 'nested_blocksize': 128}).encode())
        content[doubled] = ('U8', [len(said)], said)

    refused(made('nested', broken('nested', change, 'fp4-double'), use('quantize-nf4'), lora, adamw), doubled, "'nested_blocksize' has to be 256")


@cases([-1.0, 1e300, 'x', None])
def nested_offset(offset):
    doubled = state.replace('nf4', 'fp4')

    def change(content, config):
        said = list(json.dumps({**parsed(content[doubled]), 'nested_offset': offset}).encode())
        content[doubled] = ('U8', [len(said)], said)

    refused(made('offset', broken('offset', change, 'fp4-double'), use('quantize-nf4'), lora, adamw), doubled, "'nested_offset' has to be a number of at least 0")


@cases({'nobody': ('nf4', (lora, adamw), ("key 'quantization_config'", 'use "quantize-nf4"')),
        'other': ('nf4', (use('quantize-nf4', double=True), lora, adamw), ('nf4 is quantized with double = false', 'leave')),
        'skip': ('nf4', (use('quantize-nf4', skip=['*.up_proj']), lora, adamw), ("leave 'skip' out",)),
        'skip-int8': ('int8', (use('quantize-int8', skip=['up_proj']), lora, adamw), ('is quantized already, and says which layers are not', "leave 'skip' out")),
        'full': ('nf4', (use('quantize-nf4'), adamw), ('all linear layers are trained', 'lora'))})
def refused_by_the_recipe(name, of):
    kind, uses, words = of
    refused(made(f'plan-{name}', quantized / kind, *uses), *words)


finish(turns=2)
