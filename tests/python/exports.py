#!/usr/bin/env python3
"""What a run saves for other programs: merging in mixed precision, the dtype of the files, `galley export` of runs, models and adapters, and what is refused."""
import functools
import json
import pathlib
import shutil
import struct

from galley_test import (batch_of, case, cases, check, error, every, finish, fixtures, fresh_folder, from_config, from_folder, load, lua, recipe, require, run, save, use)
from steps_kit import recipes, refused, trained

fresh_folder()
gpt2, llama = fixtures / 'models' / 'gpt2-packed', fixtures / 'models' / 'llama-stored-bf16'
sgd = use('sgd', lr=0.5)
alpha, rank = 8, 4


def dtypes(path):
    return {dtype for dtype, _, _ in load(path).values()}


def rounded(x, dtype):
    """The number of that dtype that is nearest to an F32 number, ties to even."""
    if dtype == 'F16':
        return struct.unpack('<e', struct.pack('<e', x))[0]
    bits, = struct.unpack('<I', struct.pack('<f', x))
    return struct.unpack('<f', struct.pack('<I', (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000))[0] if dtype == 'BF16' else x


def matrices_of(adapter, name):
    """A and B of a weight, with their shapes, or None."""
    a, b = (adapter.get(f'base_model.model.{name.removesuffix(".weight")}.lora_{x}.weight') for x in 'AB')
    return a and (a[1], a[2], b[1], b[2])


def merged_by_hand(base, adapter, kept):
    """W + alpha / rank * B A in double precision, of the weights as the run keeps them."""
    weights, parts = load(base / 'model.safetensors'), load(adapter / 'adapter_model.safetensors')
    out = {}
    for name, (_, shape, w) in weights.items():
        matrices = matrices_of(parts, name)
        if not matrices:
            continue
        (r, n_in), a, (n_out, _), b = matrices
        rows, columns = shape
        transposed = 'transformer.' in name  # GPT-2's Conv1D: (in, out)
        check((rows, columns) == ((n_in, n_out) if transposed else (n_out, n_in)), f'{name}: {shape}')
        change = [[alpha / rank * sum(b[o * r + k] * a[k * n_in + i] for k in range(r)) for i in range(n_in)] for o in range(n_out)]
        out[name] = [rounded(w[i * columns + j], kept) + (change[j][i] if transposed else change[i][j]) for i in range(rows) for j in range(columns)]
    return out


def of(case, *last, **entries):
    return recipes(from_folder(case), batch_of(case / 'batch.safetensors'), *last, **entries)


def size(numbers):
    return sum(x * x for x in numbers) ** 0.5


def same_bytes(a, b, text):
    check(pathlib.Path(a).read_bytes() == pathlib.Path(b).read_bytes(), text)


def exported(*words):
    """What `galley export --json` says."""
    return json.loads(run('export', *words, '--json').stdout)


# ---- Runs that several cases export: each is trained by the first one that needs it ---------------------------------------------------------
PRECISIONS = {'f32': ([], 'F32'), 'bf16': ([use('amp')], 'BF16'), 'cast': ([use('amp', weights='cast-on-use')], 'BF16'), 'alone': ([use('amp', weights='bf16')], 'BF16'),
              'fp16': ([use('amp', compute='fp16', init=1024)], 'F16')}
sizes = dict(rank=rank, alpha=alpha, targets='all-linear')


@functools.cache
def lora_run(case, label):
    name = f'{case.name}-{label}'
    return trained(of(case)(name, use('lora', **sizes), *PRECISIONS[label][0], sgd, steps=3, save=dict(keep=1)), name)


@functools.cache
def merging_run(case, label):
    name = f'{case.name}-{label}-merge'
    return trained(of(case)(name, use('lora', merge=True, **sizes), *PRECISIONS[label][0], sgd, steps=3), name)


whole = of(gpt2, sgd, steps=2)  # of all parameters
full = functools.cache(lambda: trained(whole('full'), 'full'))
quiet = functools.cache(lambda: trained(of(gpt2)('quiet', use('lora', **sizes), use('sgd', lr=1e-3), steps=2), 'quiet'))
on_codes = functools.cache(lambda: trained(of(llama)('on-codes', use('quantize-nf4'), use('lora', **sizes), sgd, steps=3), 'on-codes'))


# ---- Merging: by the recipe and by the command, in each precision ---------------------------------------------------------------------------
@cases({f'{case.name}-{label}': (case, label) for case in (gpt2, llama) for label in PRECISIONS})
def merging(name, what):
    case, label = what
    apart, by_recipe = lora_run(case, label), merging_run(case, label)
    run('export', name, '--merge', '--out', f'{name}-exported')
    check(by_recipe.steps == apart.steps, f'{name}: merging at the end changes the training')
    files = [by_recipe.path / 'model', pathlib.Path(f'{name}-exported')]
    same_bytes(*(x / 'model.safetensors' for x in files), f'{name}: the recipe and the command merge otherwise')
    config = json.loads((files[1] / 'config.json').read_text())
    saved = load(files[1] / 'model.safetensors')
    base = 'F32' if case == gpt2 else 'BF16'  # as PEFT's merge, it keeps the dtype of the base
    check(dtypes(files[1] / 'model.safetensors') == {base}, f'{name}: saved in {dtypes(files[1] / "model.safetensors")}, not {base}')
    check(config['dtype'] == {'F32': 'float32', 'BF16': 'bfloat16'}[base], f'{name}: config.json says {config["dtype"]}')
    run('export', name, '--merge', '--dtype', 'f32', '--out', f'{name}-f32')
    exact = load(f'{name}-f32/model.safetensors')
    check({dtype for dtype, _, _ in exact.values()} == {'F32'}, f'{name}: --dtype f32 gives other dtypes')
    expected = merged_by_hand(case, apart.path / 'adapter', PRECISIONS[label][1])
    check(expected, f'{name}: nothing is merged')
    for tensor, numbers in expected.items():
        e = error(exact[tensor][2], numbers)
        check(e < 1e-6, f'{name}: {tensor} in F32 is {e:.1e} from W + s B A')
        check(list(saved[tensor][2]) == [rounded(x, base) for x in exact[tensor][2]], f'{name}: {tensor} is not the F32 one, rounded once')
    kept_in = {'BF16' if label == 'alone' else 'F32'}
    check(dtypes(apart.path / 'adapter/adapter_model.safetensors') == kept_in, f'{name}: the adapter has another dtype than it is kept in')


# ---- What a run keeps is what is saved, unless another dtype is asked for ---------------------------------------------------------------------
@case
def saved_in_another_dtype():
    full()
    trained(whole('half', save=dict(dtype='bf16')), 'half')
    check(dtypes('full/model/model.safetensors') == {'F32'} and dtypes('half/model/model.safetensors') == {'BF16'}, 'save.dtype')
    exact, halves = load('full/model/model.safetensors'), load('half/model/model.safetensors')
    check(every(list(halves[k][2]) == [rounded(x, 'BF16') for x in exact[k][2]] for k in exact), 'save.dtype = "bf16" does not round to the nearest')
    run('export', 'half', '--dtype', 'f32', '--out', 'half-f32')
    check(load('half-f32/model.safetensors') == exact, 'a run that was saved in BF16 is not exported in F32 from its state')


@cases({'master': ([use('amp')], 'F32'), 'alone': ([use('amp', weights='bf16')], 'BF16'),
        'partly': ([use('amp'), use('freeze', patterns=['*mlp*', '*attn*', '*wte*'])], 'F32')})  # a master is not rounded, because others are frozen
def saved_as_kept(name, what):
    uses, dtype = what
    trained(whole(name, *uses), name)
    check(dtypes(f'{name}/model/model.safetensors') == {dtype}, f'{name}: saved in {dtypes(f"{name}/model/model.safetensors")}, not {dtype}')


# ---- What rounding takes is said for each tensor: of what was merged into few bits, too -------------------------------------------------------
@cases(['BF16', 'F16'])
def rounding(dtype):
    on_codes()
    told = exported('on-codes', '--merge', '--dtype', 'f32', '--out', f'codes-f32-{dtype}')
    check(told['rounded'] == [] and told['exported'] == f'codes-f32-{dtype}' and told['bytes'] > 0, f'merged in F32: {told}')
    exact = load(f'codes-f32-{dtype}/model.safetensors')
    told = exported('on-codes', '--merge', '--dtype', dtype.lower(), '--out', f'codes-{dtype}')['rounded']
    check({x['tensor'] for x in told} == exact.keys() and {(x['file'], x['dtype']) for x in told} == {('model/model.safetensors', dtype.lower())}, f'{told}')
    for x in told:
        numbers = exact[x['tensor']][2]
        expected = error([rounded(v, dtype) for v in numbers], numbers)
        check(abs(x['error'] - expected) <= 1e-6 * expected and x['numbers'] == len(numbers), f'{x}, not {expected}')
    merged = [x['error'] for x in told if '_proj.' in x['tensor']]
    least, most = (1e-3, 2.5e-3) if dtype == 'BF16' else (1e-4, 3e-4)  # a uniform error of up to half a place
    check(merged and least < min(merged) and max(merged) < most, f'errors of {merged}')
    text = run('export', 'on-codes', '--merge', '--dtype', dtype.lower(), '--out', f'codes-{dtype}-again').stdout
    some = [x['error'] for x in told if x['tensor'].endswith('.mlp.up_proj.weight')]
    line = f'  {min(some):.2e} to {max(some):.2e}, '
    check('\nrounded, ' in text and 'model.layers.*.mlp.up_proj.weight' in text and line in text and f'in {len(some)} tensors\n' in text, f'{text}, not {line}')
    nothing = run('export', f'codes-{dtype}', '--out', f'codes-{dtype}-same').stdout
    check('rounded' not in nothing, f'a folder that stays in its dtype: {nothing}')


# ---- ... and over what was trained: the norm of s B A, of the weights that the adapter is beside; a warning where it is much -------------------
@cases({'quiet': quiet, 'gpt2-packed-f32': lambda: lora_run(gpt2, 'f32'), 'on-codes': on_codes})
def rounding_of_adapters(name, made):
    made()
    told = exported(name, '--merge', '--dtype', 'bf16', '--out', f'{name}-share')
    run('export', name, '--merge', '--dtype', 'f32', '--out', f'{name}-share-f32')
    exact = load(f'{name}-share-f32/model.safetensors')
    parts = load(f'{name}/adapter/adapter_model.safetensors')
    lost = changed = 0
    for x in told['rounded']:
        matrices = matrices_of(parts, x['tensor'])
        if not matrices:
            check(x['of_trained'] is None, f'{x} was not trained')
            continue
        (r, n_in), a, (n_out, _), b = matrices
        change = alpha / rank * size(sum(b[j * r + k] * a[k * n_in + i] for k in range(r)) for j in range(n_out) for i in range(n_in))
        taken = size(v - rounded(v, 'BF16') for v in exact[x['tensor']][2])
        check(abs(x['of_trained'] - taken / change) <= 2e-3 * taken / change, f'{x}, not {taken / change}')
        lost, changed = lost + taken ** 2, changed + change ** 2
    require(changed > 0, 'nothing was trained')
    share = (lost / changed) ** 0.5
    check(abs(told['rounding_of_trained'] - share) <= 2e-3 * share, f'{told["rounding_of_trained"]} in all, not {share}')
    text = run('export', name, '--merge', '--dtype', 'bf16', '--out', f'{name}-said').stdout
    check((', and over that of what was trained:' in text) and (('warning: rounding takes ' in text and '--dtype f32' in text) == (share > 0.05)), f'{share}: {text}')


@case
def rounding_of_all_parameters():
    """What was trained is the difference from the model's files."""
    full()
    told = exported('full', '--dtype', 'bf16', '--out', 'full-share')
    exact, began = load('full/model/model.safetensors'), load(gpt2 / 'model.safetensors')
    known = [x for x in told['rounded'] if x['of_trained'] is not None]
    check(len(known) > 10, f'{len(known)} of {len(told["rounded"])} tensors are known to be trained')
    for x in known:
        numbers, first = exact[x['tensor']][2], began[x['tensor']][2]
        taken, change = (size(u - v for u, v in zip(numbers, others, strict=True)) for others in ([rounded(v, 'BF16') for v in numbers], first))
        check(abs(x['of_trained'] - taken / change) <= 2e-3 * taken / change, f'{x}, not {taken / change}')


@case
def adapter_alone_is_not_rounded():
    quiet()
    check(exported('quiet', '--out', 'quiet-apart')['rounding_of_trained'] is None, 'an adapter alone is rounded')


# ---- A run that has not ended, a run whose states are gone, a model, an adapter -----------------------------------------------------------------
@functools.cache
def adapter_folder():
    """The adapter of a run, exported; and merged into its model."""
    lora_run(gpt2, 'f32')
    run('export', 'gpt2-packed-f32', '--out', 'adapter')
    run('export', 'adapter', '--merge', '--out', 'adapter-merged')
    return pathlib.Path('adapter').resolve()


@case
def adapter():
    adapter_folder()
    for name in ('adapter_model.safetensors', 'adapter_config.json'):
        same_bytes(f'adapter/{name}', f'gpt2-packed-f32/adapter/{name}', f'{name} is exported otherwise')
    files = sorted(x.name for x in pathlib.Path('adapter').iterdir())
    check(files == ['README.md', 'adapter_config.json', 'adapter_model.safetensors'], f'the folder of an adapter holds {files}')
    merging_run(gpt2, 'f32')
    same_bytes('adapter-merged/model.safetensors', 'gpt2-packed-f32-merge/model/model.safetensors', 'an adapter is merged otherwise than the run that made it')
    run('export', 'adapter', '--dtype', 'bf16', '--out', 'adapter-bf16')
    check(dtypes('adapter-bf16/adapter_model.safetensors') == {'BF16'}, 'an adapter in BF16')


@case
def model():
    full()
    run('export', 'full/model', '--dtype', 'f16', '--out', 'full-f16')
    check(dtypes('full-f16/model.safetensors') == {'F16'} and json.loads(pathlib.Path('full-f16/config.json').read_text())['dtype'] == 'float16', 'a model in F16')


@case
def run_without_states():
    adapter_folder()
    shutil.copytree('gpt2-packed-f32', 'stateless')
    shutil.rmtree('stateless/state')
    run('export', 'stateless', '--merge', '--out', 'stateless-merged')
    same_bytes('stateless-merged/model.safetensors', 'adapter-merged/model.safetensors', 'a run without states')


@case
def run_that_has_not_ended():
    full()
    trained(of(gpt2, sgd)('unfinished', steps=3, save=dict(every=2, final=False)), 'unfinished')
    run('export', 'unfinished', '--out', 'two-steps')
    check(load('two-steps/model.safetensors') == load('full/model/model.safetensors'), 'a state of two steps is not what two steps give')
    nothing_is_left('two-steps')


# ---- What is refused --------------------------------------------------------------------------------------------------------------------------
def nothing_is_left(out):
    check(not [x for x in pathlib.Path('.').iterdir() if x.name.startswith(f'{out}.') and '.tmp' in x.name], 'something is left beside an export')


def refused_without_trace(command, path, *texts, flags=(), code=2):
    refused(path, *texts, command=command, flags=[*flags, '--out', 'x'] if command == 'export' else flags, code=code)
    check(not pathlib.Path('x').exists(), 'what is refused leaves a folder')
    nothing_is_left('x')


@cases({
    'nothing to merge': ('export', 'full', ['--merge'], ['nothing to merge', 'leave out --merge']),
    'dtype': ('export', 'full', ['--dtype', 'int8'], ["--dtype 'int8'", 'f32, bf16 or f16']),
    'base of a run': ('export', 'full', ['--base', 'y'], ['--base applies']),
    'base that is not here': ('export', 'adapter', ['--base', 'nowhere/model'], ['--base nowhere/model', 'Hugging Face hub', 'hf download nowhere/model']),
    'name of the hub': ('export', 'org/name', [], ['org/name: there is no such folder', 'hf download org/name']),
    'name of the hub to sample': ('sample', 'org/name', ['--prompt', 'a'], ['org/name: there is no such folder', 'hf download org/name']),
    'evaluation of an adapter': ('eval', 'adapter', [], ['no run']),
})
def refuses(_, what):
    command, path, flags, texts = what
    if path in ('full', 'adapter'):
        {'full': full, 'adapter': adapter_folder}[path]()
    refused_without_trace(command, path, *texts, flags=flags)


@case
def refuses_what_is_in_the_way():
    full()
    pathlib.Path('taken').mkdir()
    pathlib.Path('taken/file').write_text('mine')
    refused('full', 'taken is not empty', '--out', command='export', flags=['--out', 'taken'])
    check([x.name for x in pathlib.Path('taken').iterdir()] == ['file'], 'what was there is touched')


@case
def refuses_too_little_memory():
    full()
    refused_without_trace('export', 'full', 'needs', flags=['--memory', '1KiB'], code=3)


@case
def refuses_a_model_of_the_hub():
    refused(recipe('hub.lua', 'model { path = "org/name" }', 'data.random { }', sgd, steps=1, batch=1, length=8), 'no config.json', 'hf download')


@case
def moved_base():
    """The configuration of an adapter names its base; the command line may name another place."""
    shutil.copytree(adapter_folder(), 'elsewhere')
    config = pathlib.Path('elsewhere/adapter_config.json')
    moved = json.loads(config.read_text()) | {'base_model_name_or_path': 'org/gpt2'}
    config.write_text(json.dumps(moved))
    refused_without_trace('export', 'elsewhere', "'org/gpt2' is not a folder here", '--base DIR', flags=['--merge'])
    run('export', 'elsewhere', '--merge', '--base', gpt2, '--out', 'adapter-moved')
    same_bytes('adapter-moved/model.safetensors', 'adapter-merged/model.safetensors', '--base')
    config.write_text(json.dumps(moved | {'peft_type': 'NOSUCH'}))
    refused_without_trace('export', 'elsewhere', 'nosuch', flags=['--merge', '--base', gpt2])


@case
def number_that_does_not_fit():
    full()
    large = load('full/model/model.safetensors')
    large['transformer.h.0.ln_1.weight'][2][3] = 1e5
    pathlib.Path('large').mkdir()
    shutil.copy('full/model/config.json', 'large')
    save('large/model.safetensors', large)
    refused_without_trace('export', 'large', "'transformer.h.0.ln_1.weight', element 3", '100000', 'does not fit F16', 'bf16', flags=['--dtype', 'f16'], code=1)
    left = [pathlib.Path('x.tmp-0123456789abcdef'), pathlib.Path('x.tmp-of-mine')]
    for folder in left:
        folder.mkdir()
        (folder / 'model.safetensors').write_bytes(b'half')
    refused('large', 'does not fit F16', command='export', flags=['--dtype', 'f16', '--out', 'x'], code=1)
    check([folder.exists() for folder in left] == [False, True], 'what a killed export has left beside its folder is not removed, or more than that is')
    shutil.rmtree(left[1])
    check(not pathlib.Path('x').exists(), 'an export that fails leaves a folder')
    nothing_is_left('x')


# ---- An adapter's folder is sampled as the run and the merged model are --------------------------------------------------------------------------
@functools.cache
def adapter_on_a_base():
    """A run on a model with a tokenizer, in base/."""
    pathlib.Path('text.txt').write_text('one two three four five six seven. ' * 200)
    run('tokenize', '--train', 'text.txt', '--vocab', 270, '--out', 'tokenizer')
    text = f'data.text {{ files = {{ {lua(pathlib.Path("text.txt"))} }}, tokenizer = {lua(pathlib.Path("tokenizer/tokenizer.json"))}, validation = 0.2 }}'
    tiny = from_config('llama', vocab_size=270, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                       max_position_embeddings=32)
    shape = dict(batch=2, length=32)
    trained(recipe('make-base.lua', tiny, text, sgd, steps=2, **shape), 'make-base')
    shutil.move('make-base/model', 'base')
    lora = use('lora', rank=4, alpha=32, targets='all-linear')
    return trained(recipe('on-base.lua', from_folder('base'), text, lora, use('adamw', lr=2e-2), steps=20, **shape), 'on-base')


def sampled(*words):
    return run('sample', *words, '--prompt', 'one two', '--tokens', 12, '--temperature', 0).stdout  # of a folder, in the model's 32 positions


@case
def samples():
    adapter_on_a_base()
    run('export', 'on-base', '--merge', '--out', 'on-base-merged')
    continued = sampled('on-base')
    check(sampled('on-base/adapter') == continued, "an adapter's folder continues a prompt otherwise than its run")
    check(sampled('on-base-merged') == continued, 'a merged model continues a prompt otherwise than its run')
    check(sampled('base') != continued, 'nothing is seen of the adapter')
    shutil.copytree('on-base/adapter', 'moved')
    refused('moved', '--base nowhere', command='sample', flags=['--base', 'nowhere', '--prompt', 'a'])
    config = json.loads(pathlib.Path('moved/adapter_config.json').read_text())
    pathlib.Path('moved/adapter_config.json').write_text(json.dumps(config | {'base_model_name_or_path': 'org/base'}))
    refused('moved', "'org/base' is not a folder here", '--base DIR', command='sample', flags=['--prompt', 'a'])
    check(sampled('moved', '--base', 'base') == continued, "--base of an adapter's folder")


@case
def base_that_has_changed():
    """Another base model than the run began with."""
    adapter_on_a_base()
    loss = run('eval', 'on-base', '--json').stdout
    weights = load('base/model.safetensors')
    name = next(k for k in weights if 'attn' in k and k.endswith('.weight'))
    weights[name][2][0] += 0.25
    shutil.copy('base/model.safetensors', 'kept')
    save('base/model.safetensors', weights)
    said = ['base/model.safetensors', f"tensor '{name}' is not what it was", 'the base model has changed', 'put the model']
    for command, flags in (('export', ['--merge']), ('sample', ['--prompt', 'a']), ('eval', [])):
        refused_without_trace(command, 'on-base', *said, flags=flags)
    refused('on-base', 'base model has changed', name, command='resume')
    run('export', 'on-base', '--out', 'on-base-adapter')  # reads no base model
    shutil.copy('kept', 'base/model.safetensors')
    check(run('eval', 'on-base', '--json').stdout == loss, 'with the base model as it was, eval says something else')


# ---- Shards ----------------------------------------------------------------------------------------------------------------------------------


@cases({'some': ('100KB', 100_000), 'each': ('1KB', 0), 'all': ('1MB', 1_000_000)})
def shards(name, of):
    """A model in several files is the same model: each file is as large as it may be at most, or has a single tensor."""
    size, most = of
    run('export', llama, '--out', f'{name}-whole')
    run('export', llama, '--shard', size, '--out', f'{name}-parts')
    whole, files = load(f'{name}-whole/model.safetensors'), sorted(pathlib.Path(f'{name}-parts').glob('*.safetensors'))
    if name == 'all':
        check([x.name for x in files] == ['model.safetensors'] and not pathlib.Path(f'{name}-parts/model.safetensors.index.json').exists(), f'{files}')
        return
    index = json.loads(pathlib.Path(f'{name}-parts/model.safetensors.index.json').read_text())
    check([x.name for x in files] == [f'model-{k + 1:05}-of-{len(files):05}.safetensors' for k in range(len(files))] and len(files) > 2, f'{files}')
    parts = {x.name: load(x) for x in files}
    check({t: x for part in parts.values() for t, x in part.items()} == whole, 'other tensors')
    check(index['weight_map'] == {t: x for x, part in parts.items() for t in part}, f'{index}')
    check(index['metadata']['total_size'] == sum(4 * len(x[2]) for x in whole.values()), f'{index}')
    check(every(len(part) == 1 or sum(4 * len(x[2]) for x in part.values()) <= most for part in parts.values()), 'a file is too large')
    run('export', f'{name}-parts', '--out', f'{name}-again')
    same_bytes(f'{name}-again/model.safetensors', f'{name}-whole/model.safetensors', 'read again, the model is another')


@case
def refused_shards():
    for flags, words in ((('--shard', '0.5'), "--shard '0.5' leaves no room for a tensor"), (('--shard', 'many'), "galley export: --shard: 'many' is no amount"),
                         (('--shard', '1MB', '--format', 'gguf'), "--shard is for folders in Hugging Face's format")):
        said = run('export', llama, '--out', 'no-shards', *flags, code=2)
        check(words in said.stderr and not pathlib.Path('no-shards').exists(), said)


finish(turns=2)
