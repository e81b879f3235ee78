#!/usr/bin/env python3
"""What a run saves for other programs: merging in mixed precision, the dtype of the files, `galley export` of runs, models and adapters, and what is refused."""
import json
import pathlib
import shutil
import struct

from galley_test import batch_of, check, error, every, finish, fixtures, fresh_folder, from_config, from_folder, gradients, load, lua, recipe, run, save, train, use

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


def merged_by_hand(base, adapter, kept):
    """W + alpha / rank * B A in double precision, of the weights as the run keeps them."""
    weights, parts = load(base / 'model.safetensors'), load(adapter / 'adapter_model.safetensors')
    out = {}
    for name, (_, shape, w) in weights.items():
        a = parts.get(f'base_model.model.{name.removesuffix(".weight")}.lora_A.weight')
        b = parts.get(f'base_model.model.{name.removesuffix(".weight")}.lora_B.weight')
        if not a:
            continue
        (_, (r, n_in), a), (_, (n_out, _), b) = a, b
        rows, columns = shape
        transposed = 'transformer.' in name  # GPT-2's Conv1D: (in, out)
        check((rows, columns) == ((n_in, n_out) if transposed else (n_out, n_in)), f'{name}: {shape}')
        out[name] = [rounded(w[i * columns + j], kept) + alpha / rank * sum(b[(j if transposed else i) * r + k] * a[k * n_in + (i if transposed else j)] for k in range(r))
                     for i in range(rows) for j in range(columns)]
    return out


def lora_run(name, case, *uses, **entries):
    path = recipe(f'{name}.lua', from_folder(case), batch_of(case / 'batch.safetensors'), use('lora', rank=rank, alpha=alpha, targets='all-linear'), *uses, sgd, steps=3,
                  save=entries or dict(keep=1))
    return train(path, name)


# ---- Merging: by the recipe and by the command, in each precision ---------------------------------------------------------------------
places = {'F32': 2 ** -22, 'BF16': 2 ** -8, 'F16': 2 ** -11}
for case in (gpt2, llama):
    for label, uses, kept in (('f32', [], 'F32'), ('bf16', [use('amp')], 'BF16'), ('cast', [use('amp', weights='cast-on-use')], 'BF16'),
                              ('alone', [use('amp', weights='bf16')], 'BF16'), ('fp16', [use('amp', compute='fp16', init=1024)], 'F16')):
        name = f'{case.name}-{label}'
        apart = lora_run(name, case, *uses)
        path = recipe(f'{name}-merge.lua', from_folder(case), batch_of(case / 'batch.safetensors'),
                      use('lora', rank=rank, alpha=alpha, targets='all-linear', merge=True), *uses, sgd, steps=3)
        whole = train(path, f'{name}-merge')
        whole.check_memory(name)
        run('export', name, '--merge', '--out', f'{name}-exported')
        check(whole.steps == apart.steps, f'{name}: merging at the end changes the training')
        files = [pathlib.Path(f'{name}-merge/model'), pathlib.Path(f'{name}-exported')]
        check((files[0] / 'model.safetensors').read_bytes() == (files[1] / 'model.safetensors').read_bytes(), f'{name}: the recipe and the command merge otherwise')
        config = json.loads((files[1] / 'config.json').read_text())
        saved = load(files[1] / 'model.safetensors')
        base = 'F32' if case == gpt2 else 'BF16'  # as PEFT's merge, it keeps the dtype of the base
        check(dtypes(files[1] / 'model.safetensors') == {base}, f'{name}: saved in {dtypes(files[1] / "model.safetensors")}, not {base}')
        check(config['dtype'] == {'F32': 'float32', 'BF16': 'bfloat16'}[base], f'{name}: config.json says {config["dtype"]}')
        run('export', name, '--merge', '--dtype', 'f32', '--out', f'{name}-f32')
        exact = load(f'{name}-f32/model.safetensors')
        check({dtype for dtype, _, _ in exact.values()} == {'F32'}, f'{name}: --dtype f32 gives other dtypes')
        expected = merged_by_hand(case, pathlib.Path(name) / 'adapter', kept)
        check(expected, f'{name}: nothing is merged')
        for tensor, numbers in expected.items():
            e = error(exact[tensor][2], numbers)
            check(e < 1e-6, f'{name}: {tensor} in F32 is {e:.1e} from W + s B A')
            check(list(saved[tensor][2]) == [rounded(x, base) for x in exact[tensor][2]], f'{name}: {tensor} is not the F32 one, rounded once')
        check(dtypes(f'{name}/adapter/adapter_model.safetensors') == {'BF16' if label == 'alone' else 'F32'}, f'{name}: the adapter has another dtype than it is kept in')


def refused(*words, code=2, says=()):
    said = run(*words, code=code).stderr
    for part in says:
        check(part in said, f'{" ".join(map(str, words))}: says {said!r}, without {part!r}')


# ---- What a run keeps is what is saved, unless another dtype is asked for ----------------------------------------------------------------
full = recipe('full.lua', from_folder(gpt2), batch_of(gpt2 / 'batch.safetensors'), sgd, steps=2)
half = recipe('half.lua', from_folder(gpt2), batch_of(gpt2 / 'batch.safetensors'), sgd, steps=2, save=dict(dtype='bf16'))
whole, small = train(full, 'full'), train(half, 'half')
check(dtypes('full/model/model.safetensors') == {'F32'} and dtypes('half/model/model.safetensors') == {'BF16'}, 'save.dtype')
exact, halves = load('full/model/model.safetensors'), load('half/model/model.safetensors')
check(every(list(halves[k][2]) == [rounded(x, 'BF16') for x in exact[k][2]] for k in exact), 'save.dtype = "bf16" does not round to the nearest')
run('export', 'half', '--dtype', 'f32', '--out', 'half-f32')
check(load('half-f32/model.safetensors') == exact, 'a run that was saved in BF16 is not exported in F32 from its state')
master = train(recipe('master.lua', from_folder(gpt2), batch_of(gpt2 / 'batch.safetensors'), use('amp'), sgd, steps=2), 'master')
check(dtypes('master/model/model.safetensors') == {'F32'}, 'F32 masters are not saved in F32')
alone = train(recipe('alone.lua', from_folder(gpt2), batch_of(gpt2 / 'batch.safetensors'), use('amp', weights='bf16'), sgd, steps=2), 'alone')
check(dtypes('alone/model/model.safetensors') == {'BF16'}, 'weights that are kept in BF16 alone are not saved in BF16')
partly = train(recipe('partly.lua', from_folder(gpt2), batch_of(gpt2 / 'batch.safetensors'), use('amp'), use('freeze', patterns=['*mlp*', '*attn*', '*wte*']), sgd, steps=2), 'partly')
check(dtypes('partly/model/model.safetensors') == {'F32'}, 'a master in F32 is rounded, because others are frozen')

# ---- What rounding takes is said for each tensor: of what was merged into few bits, too ---------------------------------------------------
on_codes = recipe('on-codes.lua', from_folder(llama), batch_of(llama / 'batch.safetensors'), use('quantize-nf4'), use('lora', rank=rank, alpha=alpha, targets='all-linear'), sgd,
                  steps=3)
train(on_codes, 'on-codes')
told = json.loads(run('export', 'on-codes', '--merge', '--dtype', 'f32', '--out', 'codes-f32', '--json').stdout)
check(told['rounded'] == [] and told['exported'] == 'codes-f32' and told['bytes'] > 0, f'merged in F32: {told}')
exact = load('codes-f32/model.safetensors')
for dtype in ('BF16', 'F16'):
    told = json.loads(run('export', 'on-codes', '--merge', '--dtype', dtype.lower(), '--out', f'codes-{dtype}', '--json').stdout)['rounded']
    check({x['tensor'] for x in told} == exact.keys() and {(x['file'], x['dtype']) for x in told} == {('model/model.safetensors', dtype.lower())}, f'{dtype}: {told}')
    for x in told:
        numbers = exact[x['tensor']][2]
        expected = error([rounded(v, dtype) for v in numbers], numbers)
        check(abs(x['error'] - expected) <= 1e-6 * expected and x['numbers'] == len(numbers), f'{dtype}: {x}, not {expected}')
    merged = [x['error'] for x in told if '_proj.' in x['tensor']]
    least, most = (1e-3, 2.5e-3) if dtype == 'BF16' else (1e-4, 3e-4)  # a uniform error of up to half a place
    check(merged and least < min(merged) and max(merged) < most, f'{dtype}: errors of {merged}')
    text = run('export', 'on-codes', '--merge', '--dtype', dtype.lower(), '--out', f'codes-{dtype}-again').stdout
    some = [x['error'] for x in told if x['tensor'].endswith('.mlp.up_proj.weight')]
    line = f'  {min(some):.2e} to {max(some):.2e}, '
    check('\nrounded, ' in text and f'model.layers.*.mlp.up_proj.weight' in text and line in text and f'in {len(some)} tensors\n' in text, f'{dtype}: {text}, not {line}')
    nothing = run('export', f'codes-{dtype}', '--out', f'codes-{dtype}-same').stdout
    check('rounded' not in nothing, f'a folder in {dtype} that stays so: {nothing}')

# ---- ... and over what was trained: the norm of s B A, of the weights that the adapter is beside; a warning where it is much -------------------
quiet = recipe('quiet.lua', from_folder(gpt2), batch_of(gpt2 / 'batch.safetensors'), use('lora', rank=rank, alpha=alpha, targets='all-linear'), use('sgd', lr=1e-3), steps=2)
train(quiet, 'quiet')
for name in ('quiet', 'gpt2-packed-f32', 'on-codes'):
    told = json.loads(run('export', name, '--merge', '--dtype', 'bf16', '--out', f'{name}-share', '--json').stdout)
    run('export', name, '--merge', '--dtype', 'f32', '--out', f'{name}-share-f32')
    exact = load(f'{name}-share-f32/model.safetensors')
    parts = load(f'{name}/adapter/adapter_model.safetensors')
    lost = trained = 0
    for x in told['rounded']:
        a, b = (parts.get(f'base_model.model.{x["tensor"].removesuffix(".weight")}.lora_{m}.weight') for m in 'AB')
        if not a:
            check(x['of_trained'] is None, f'{name}: {x} was not trained')
            continue
        (_, (r, n_in), a), (_, (n_out, _), b) = a, b
        change = alpha / rank * sum(sum(b[j * r + k] * a[k * n_in + i] for k in range(r)) ** 2 for j in range(n_out) for i in range(n_in)) ** 0.5
        numbers = exact[x['tensor']][2]
        taken = sum((v - rounded(v, 'BF16')) ** 2 for v in numbers) ** 0.5
        check(abs(x['of_trained'] - taken / change) <= 2e-3 * taken / change, f'{name}: {x}, not {taken / change}')
        lost, trained = lost + taken ** 2, trained + change ** 2
    share = (lost / trained) ** 0.5
    check(trained > 0 and abs(told['rounding_of_trained'] - share) <= 2e-3 * share, f'{name}: {told["rounding_of_trained"]} in all, not {share}')
    text = run('export', name, '--merge', '--dtype', 'bf16', '--out', f'{name}-said').stdout
    check((', and over that of what was trained:' in text) and (('warning: rounding takes ' in text and '--dtype f32' in text) == (share > 0.05)), f'{name}, {share}: {text}')
# All parameters: what was trained is the difference from the model's files.
told = json.loads(run('export', 'full', '--dtype', 'bf16', '--out', 'full-share', '--json').stdout)
exact, began = load('full/model/model.safetensors'), load(gpt2 / 'model.safetensors')
known = [x for x in told['rounded'] if x['of_trained'] is not None]
check(len(known) > 10, f'{len(known)} of {len(told["rounded"])} tensors are known to be trained')
for x in known:
    numbers, first = exact[x['tensor']][2], began[x['tensor']][2]
    taken, change = (sum((u - v) ** 2 for u, v in zip(numbers, others)) ** 0.5 for others in ([rounded(v, 'BF16') for v in numbers], first))
    check(abs(x['of_trained'] - taken / change) <= 2e-3 * taken / change, f'full: {x}, not {taken / change}')
check(json.loads(run('export', 'quiet', '--out', 'quiet-apart', '--json').stdout)['rounding_of_trained'] is None, 'an adapter alone is rounded')

# ---- A run that has not ended, a run whose states are gone, a model, an adapter ------------------------------------------------------------
adapter = pathlib.Path('gpt2-packed-f32/adapter')
run('export', 'gpt2-packed-f32', '--out', 'adapter')
check((pathlib.Path('adapter') / 'adapter_model.safetensors').read_bytes() == (adapter / 'adapter_model.safetensors').read_bytes(), 'the adapter is exported otherwise')
check((pathlib.Path('adapter') / 'adapter_config.json').read_bytes() == (adapter / 'adapter_config.json').read_bytes(), 'adapter_config.json is exported otherwise')
check(sorted(x.name for x in pathlib.Path('adapter').iterdir()) == ['README.md', 'adapter_config.json', 'adapter_model.safetensors'], 'the folder of an adapter holds more')
run('export', 'adapter', '--merge', '--out', 'adapter-merged')
check((pathlib.Path('adapter-merged') / 'model.safetensors').read_bytes() == (pathlib.Path('gpt2-packed-f32-merge') / 'model/model.safetensors').read_bytes(),
      'an adapter is merged otherwise than the run that made it')
run('export', 'adapter', '--dtype', 'bf16', '--out', 'adapter-bf16')
check(dtypes('adapter-bf16/adapter_model.safetensors') == {'BF16'}, 'an adapter in BF16')
run('export', 'full/model', '--dtype', 'f16', '--out', 'full-f16')
check(dtypes('full-f16/model.safetensors') == {'F16'} and json.loads(pathlib.Path('full-f16/config.json').read_text())['dtype'] == 'float16', 'a model in F16')
shutil.copytree('gpt2-packed-f32', 'stateless')
shutil.rmtree('stateless/state')
run('export', 'stateless', '--merge', '--out', 'stateless-merged')
check((pathlib.Path('stateless-merged') / 'model.safetensors').read_bytes() == (pathlib.Path('adapter-merged') / 'model.safetensors').read_bytes(), 'a run without states')
unfinished = recipe('unfinished.lua', from_folder(gpt2), batch_of(gpt2 / 'batch.safetensors'), sgd, steps=3, save=dict(every=2, final=False))
train(unfinished, 'unfinished')
run('export', 'unfinished', '--out', 'two-steps')
check(load('two-steps/model.safetensors') == load('full/model/model.safetensors'), 'a state of two steps is not what two steps give')
check(not [x for x in pathlib.Path('.').iterdir() if '.tmp' in x.name], 'something is left beside an export')

refused('export', 'full', '--merge', '--out', 'x', says=['nothing to merge', 'leave out --merge'])
refused('export', 'full', '--out', 'half', says=['half is not empty', '--out'])
refused('export', 'full', '--dtype', 'int8', '--out', 'x', says=["--dtype 'int8'", 'f32, bf16 or f16'])
refused('export', 'full', '--base', 'y', '--out', 'x', says=['--base applies'])
refused('export', 'adapter', '--base', 'nowhere/model', '--out', 'x', says=['--base nowhere/model', 'Hugging Face hub', 'hf download nowhere/model'])
refused('export', 'full', '--memory', '1KiB', '--out', 'x', code=3, says=['needs'])
refused('export', 'org/name', '--out', 'x', says=['org/name: there is no such folder', 'hf download org/name'])
refused('sample', 'org/name', '--prompt', 'a', says=['org/name: there is no such folder', 'hf download org/name'])
refused('eval', 'adapter', says=['no run'])
refused('plan', recipe('hub.lua', 'model { path = "org/name" }', 'data.random { }', sgd, steps=1, batch=1, length=8), says=['no config.json', 'hf download'])
check(not pathlib.Path('x').exists(), 'what is refused leaves a folder')
moved = json.loads((pathlib.Path('adapter') / 'adapter_config.json').read_text())
moved['base_model_name_or_path'] = 'org/gpt2'
(pathlib.Path('adapter') / 'adapter_config.json').write_text(json.dumps(moved))
refused('export', 'adapter', '--merge', '--out', 'x', says=["'org/gpt2' is not a folder here", '--base DIR'])
run('export', 'adapter', '--merge', '--base', gpt2, '--out', 'adapter-moved')
check((pathlib.Path('adapter-moved') / 'model.safetensors').read_bytes() == (pathlib.Path('adapter-merged') / 'model.safetensors').read_bytes(), '--base')
moved['peft_type'] = 'NOSUCH'
(pathlib.Path('adapter') / 'adapter_config.json').write_text(json.dumps(moved))
refused('export', 'adapter', '--merge', '--base', gpt2, '--out', 'x', says=['nosuch'])
large = load('full/model/model.safetensors')
large['transformer.h.0.ln_1.weight'][2][3] = 1e5
pathlib.Path('large').mkdir()
shutil.copy('full/model/config.json', 'large')

save('large/model.safetensors', large)
refused('export', 'large', '--dtype', 'f16', '--out', 'x', code=1, says=["'transformer.h.0.ln_1.weight', element 3", '100000', 'does not fit F16', 'bf16'])
left = [pathlib.Path('x.tmp-0123456789abcdef'), pathlib.Path('x.tmp-of-mine')]
for folder in left:
    folder.mkdir()
    (folder / 'model.safetensors').write_bytes(b'half')
refused('export', 'large', '--dtype', 'f16', '--out', 'x', code=1, says=['does not fit F16'])
check([folder.exists() for folder in left] == [False, True], 'what a killed export has left beside its folder is not removed, or more than that is')
shutil.rmtree(left[1])
check(not pathlib.Path('x').exists() and not [y for y in pathlib.Path('.').iterdir() if '.tmp' in y.name], 'an export that fails leaves something')

# ---- An adapter's folder is sampled as the run and the merged model are --------------------------------------------------------------------
pathlib.Path('text.txt').write_text('one two three four five six seven. ' * 200)
run('tokenize', '--train', 'text.txt', '--vocab', 270, '--out', 'tokenizer')
text = f'data.text {{ files = {{ {lua(pathlib.Path("text.txt"))} }}, tokenizer = {lua(pathlib.Path("tokenizer/tokenizer.json"))}, validation = 0.2 }}'
tiny = from_config('llama', vocab_size=270, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                   max_position_embeddings=32)
shape = dict(batch=2, length=32)
train(recipe('make-base.lua', tiny, text, sgd, steps=2, **shape), 'make-base')
shutil.move('make-base/model', 'base')
on_base = recipe('on-base.lua', from_folder('base'), text, use('lora', rank=4, alpha=32, targets='all-linear'), use('adamw', lr=2e-2), steps=20, **shape)
train(on_base, 'on-base')
run('export', 'on-base', '--merge', '--out', 'on-base-merged')


def sampled(*words):
    return run('sample', *words, '--prompt', 'one two', '--tokens', 12, '--temperature', 0).stdout  # of a folder, in the model's 32 positions


continued = sampled('on-base')
check(sampled('on-base/adapter') == continued, "an adapter's folder continues a prompt otherwise than its run")
check(sampled('on-base-merged') == continued, 'a merged model continues a prompt otherwise than its run')
check(sampled('base') != continued, 'nothing is seen of the adapter')
shutil.copytree('on-base/adapter', 'moved')
refused('sample', 'moved', '--base', 'nowhere', '--prompt', 'a', says=['--base nowhere'])
config = json.loads(pathlib.Path('moved/adapter_config.json').read_text())
pathlib.Path('moved/adapter_config.json').write_text(json.dumps(config | {'base_model_name_or_path': 'org/base'}))
refused('sample', 'moved', '--prompt', 'a', says=["'org/base' is not a folder here", '--base DIR'])
check(sampled('moved', '--base', 'base') == continued, "--base of an adapter's folder")

# ---- Another base model than the run began with --------------------------------------------------------------------------------------------
loss = run('eval', 'on-base', '--json').stdout
weights = load('base/model.safetensors')
name = next(k for k in weights if 'attn' in k and k.endswith('.weight'))
weights[name][2][0] += 0.25
shutil.copy('base/model.safetensors', 'kept')
save('base/model.safetensors', weights)
for words in (('export', 'on-base', '--merge', '--out', 'x'), ('sample', 'on-base', '--prompt', 'a'), ('eval', 'on-base')):
    refused(*words, says=['base/model.safetensors', f"tensor '{name}' is not what it was", 'the base model has changed', 'put the model'])
refused('resume', 'on-base', says=['base model has changed', name])
run('export', 'on-base', '--out', 'on-base-adapter')  # reads no base model
shutil.copy('kept', 'base/model.safetensors')
check(run('eval', 'on-base', '--json').stdout == loss, 'with the base model as it was, eval says something else')
finish()
