#!/usr/bin/env python3
"""CUDA kernels in whole runs, on a GPU that is emulated (sdk/emulated): they train as the processor does; and plans for machines that are
not here.

`tests/python/cuda_runs.py --device=cuda` tries another device, and `--list` prints the cases that a GPU runs: steps of tests/gpu/test, each a process."""
import functools
import json
import os
import pathlib
import re
import shutil
import sys

from galley_test import (Run, binary, case, check, error, every, finish, fixtures, fresh_folder, from_config, galley, load, recipe, run, source, take_turns, together, train,
                         use)
from mark_kit import write_marked
from steps_kit import refused, trained

device = next((x.removeprefix('--device=') for x in sys.argv[1:] if x.startswith('--device=')), 'cuda-emulated')
plugins = ['--plugin-path', binary / 'emulated']
gpu = ['--device', device, *plugins]
targets = sorted(x.stem for x in (source / 'models' / 'targets').glob('*.toml'))
small = dict(vocab_size=97, n_positions=32, n_embd=32, n_layer=2, n_head=4)
gpt2 = from_config('gpt2', **small)
llama = from_config('llama', vocab_size=99, max_position_embeddings=64, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=6,
                    num_key_value_heads=2, tie_word_embeddings=True)
adamw, clip = use('adamw', lr=1e-2), use('clip', norm=0.5)
entries = dict(batch=2, length=16, steps=4, seed=4, save=dict(every=2, keep=2))
if '--list' not in sys.argv:
    fresh_folder()

# How far a loss and a norm may be from the processor's, relative and for each step: training drives rounding apart. Of losses the largest was 2e-8 in F32 and 9e-5 in
# 16 bit and TF32, of norms 3e-7 and 1.2e-2. Sums of a GPU's libraries have other orders than the emulation's, which are the processor's.
BOUNDS = {'f32': (1e-5, 1e-5), 'short': (1e-3, 3e-2)} if device != 'cuda' else {'f32': (1e-4, 1e-3), 'short': (1e-2, 1e-1)}

# ---- What the cases are ------------------------------------------------------------------------------------------------------------------

of_a_gpu = []


def step(name, function, *words, **more):
    """A case of this name, which a GPU runs too."""
    call = functools.partial(function, *words, **more)
    call.__name__ = name
    of_a_gpu.append(name)
    case(call)


def on_a_gpu(function):
    step(function.__name__, function)
    return function


def of_the_emulation(function):
    """A case of what a GPU that is here cannot be asked for."""
    return case(function) if device == 'cuda-emulated' else function


# ---- Training ----------------------------------------------------------------------------------------------------------------------------


def near(who, a, b, dtype='f32'):
    """Losses and norms of two runs, step by step."""
    for n, (x, y) in enumerate(together(a.steps, b.steps), 1):
        for what, p, q, bound in together(('loss', 'norm'), x, y, BOUNDS[dtype]):
            check(abs(p - q) <= n * bound * max(abs(p), 1e-6), f'{who}: {what} of step {n} is {q}, on the processor {p}')


def trains(name, *uses, model=gpt2, data='data.random {}', dtype='f32', again=False, **more):
    """As the processor does. `again`: with the same bytes in a second run; an emulation runs blocks and threads in one order."""
    path = recipe(f'{name}.lua', model, data, *uses, **{**entries, **more})
    run('plan', path, '--check', *gpu)
    cpu, first = train(path, f'{name}-cpu'), trained(path, f'{name}-gpu', *gpu)
    near(name, cpu, first, dtype)
    check(every(first.memory['classes'][c]['planned'] > 0 for c in ('device', 'pinned')), f'{name}: {first.memory["classes"]}')
    if device == 'cuda' or again:
        second = train(path, f'{name}-again', *gpu)
        files = sorted(x.relative_to(first.path) for part in ('model', 'adapter', 'state') for x in (first.path / part).rglob('*.safetensors'))
        check(files, f'{name}: there is nothing to compare')
        for file in files:
            check(first.bytes(file) == second.bytes(file), f'{name}: {file} is another one in a second run')
    return first


def training(name, *uses, **more):
    """A case that trains as the processor does."""
    step(name, trains, name, *uses, **more)


training('llama', clip, adamw, model=llama)
training('stacked', use('recompute', every=1), use('accumulate', steps=3), clip, adamw)
training('lora', use('lora', rank=2, alpha=4, targets='all-linear', dropout=0.1), adamw, model=llama)
training('dora', use('lora', rank=2, alpha=4, dora=True, dropout=0.1), adamw, model=llama)
training('dora_conv1d', use('lora', rank=2, alpha=4, dora=True, bias='all'), use('accumulate', steps=2), adamw)
training('pissa', use('lora', rank=2, init='pissa'), adamw, model=llama)
training('vera', use('vera', rank=4, dropout=0.1), adamw)
training('ia3', use('ia3', targets='all-linear', feedforward='down_proj'), adamw, model=llama)
training('dropout', clip, adamw, model=from_config('gpt2', **small, resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1), again=True)
training('freeze', use('freeze', **{'except': ['transformer.h.1.*']}), use('sgd', lr=1e-2, momentum=0.9, nesterov=True))
training('clipped', use('clip', norm=0.5, value=0.01), adamw)
for compute in ('bf16', 'fp16'):
    training(f'amp_{compute}', use('amp', compute=compute), clip, adamw, model=llama, dtype='short')


@on_a_gpu
def full():
    text = f'data.text {{ files = {{ {str(source / "models" / "families" / "gpt2.lua")!r} }}, tokenizer = "bytes", validation = 0.2 }}'
    made = trains('full', clip, adamw, data=text, model=from_config('gpt2', **{**small, 'vocab_size': 257}), again=True, validate=dict(every=2))
    check(sum('validation_loss' in x for x in made.lines) == 2, 'there are not two validations')
    check(len(run('sample', made.path, '--prompt', 'local', '--tokens', 5, *plugins).stdout) > 5, 'nothing was sampled')


def offloaded(name, *uses):
    """States and saved tensors in the memory of the host: the same bytes."""
    made = []
    for where, more in (('here', ()), ('there', (use('offload-optimizer', min_size=1), use('offload-activations', min_size=1)))):
        path = recipe(f'{name}-{where}.lua', llama, 'data.random {}', *uses, *more, clip, adamw, **entries)
        run('plan', path, '--check', *gpu)
        made.append(trained(path, f'{name}-{where}', *gpu))
    for file in ('model/model.safetensors', 'state/step-00000004/state.safetensors'):
        check(made[0].bytes(file) == made[1].bytes(file), f'{file} differs')
    states = [x.memory['classes']['device']['owners']['states'] for x in made]
    check(states[1] < states[0] / 4, f'{states} bytes of states on the device')


step('offloaded_f32', offloaded, 'offloaded_f32')
step('offloaded_scaled', offloaded, 'offloaded_scaled', use('amp', compute='fp16', loss_scale=256), use('accumulate', steps=2), use('recompute'))


def parts(name, made, rank):
    """What A and B began with, of an adapter that was saved for the weights as they were: the second half of each, and the first half, which has been trained."""
    first, trained_ = {}, {}
    for tensor, (_, (rows, columns), numbers) in load(made.path / 'adapter/adapter_model.safetensors').items():
        halves = (numbers[:rank * columns], numbers[rank * columns:]) if 'lora_A' in tensor else ([x for i in range(rows) for x in numbers[i * columns:][:rank]],
                                                                                                  [x for i in range(rows) for x in numbers[i * columns:][rank:2 * rank]])
        trained_[tensor], first[tensor] = halves
    check(len(first) == 6, f'{name}: it adapts {list(first)}')
    return first, trained_


def begun(init):
    """The host makes what adapters begin with, as on the processor to the last bit: of weights that are wide either way too, with more vectors than a small
    workspace holds."""
    rank = 40
    wide = from_config('llama', vocab_size=61, max_position_embeddings=32, hidden_size=96, intermediate_size=258, num_hidden_layers=1, num_attention_heads=4,
                       tie_word_embeddings=True)
    path = recipe(f'begun-{init}.lua', wide, 'data.random {}', use('lora', rank=rank, init=init, targets=['q_proj', 'up_proj', 'down_proj']), use('sgd', lr=1e-3),
                  **{**entries, 'steps': 1})
    pathlib.Path('narrow.toml').write_text('workspace_budget = 131072\n')
    there = [*gpu, '--target', 'narrow.toml']
    run('plan', path, '--check', *there)
    made = train(path, f'begun-{init}-cpu'), trained(path, f'begun-{init}-gpu', *there)
    (first, after), (first_there, after_there) = (parts(init, x, rank) for x in made)
    for tensor, numbers in first.items():
        check(first_there[tensor] == numbers, f'{tensor} begins with other numbers on the GPU')
        e = error(after_there[tensor], after[tensor])
        check(e < 1e-5 and after[tensor] != numbers, f'{tensor} is {e} off after a step')


for init in ('pissa', 'pissa_niter_4', 'olora'):
    step(f'begun_{init}', begun, init)


@of_the_emulation
def load_on_host():
    """Where it is computed, and that the memory that it takes of the host is planned, also for a GPU that is not here. Reference and poison mode find nothing."""
    path = recipe('host.lua', llama, 'data.random {}', use('lora', rank=2, init='pissa', targets=['down_proj']), adamw, **{**entries, 'steps': 1})
    plain = recipe('device.lua', llama, 'data.random {}', use('lora', rank=2, targets=['down_proj']), adamw, **{**entries, 'steps': 1})
    for where in ([*gpu], ['--target', 'h100']):
        plans = [json.loads(run('plan', x, '--json', '--check', *where).stdout) for x in (plain, path)]
        check([k['name'] for k in plans[1]['kernels']['lora_principal']] == ['lora_principal.cpu'], f'{where}: {plans[1]["kernels"]}')
        pinned = [x['classes']['pinned']['planned'] for x in plans]
        # Of one layer at a time: W, B and A.
        check(pinned[1] - pinned[0] <= 4 * (48 * 80 + 2 * (48 + 80)) + 3 * 256, f'{where}: {pinned} bytes of the host')
        dump = run('plan', path, '--dump', 'place', *where).stdout
        check(dump.count("principal' on the host: r ") == 2, dump)
    for mode in ('--reference', '--poison'):
        run('train', path, '--out', f'host{mode}', mode, *gpu)


@on_a_gpu
def tf32():
    made = trains('tf32', use('amp', compute='tf32'), clip, adamw, model=llama, dtype='short')
    plain = trains('f32', clip, adamw, model=llama)
    check(made.steps != plain.steps, 'amp { compute = "tf32" } changes nothing')


@on_a_gpu
def fused():
    """Rows that are one document each, of a length that cuDNN's attention takes."""
    whole = dict(batch=3, length=128, steps=2, seed=4)
    wide = from_config('llama', vocab_size=99, max_position_embeddings=128, hidden_size=64, intermediate_size=80, num_hidden_layers=2,
                       num_attention_heads=8, num_key_value_heads=2, tie_word_embeddings=True)
    trains('fused', use('amp', compute='bf16'), adamw, model=wide, dtype='short', **whole)
    trains('fused-packed', use('amp', compute='fp16'), adamw, model=from_config('gpt2', **{**small, 'n_positions': 128}), dtype='short', **whole)
    varies = recipe('varies.lua', wide, 'data.random {}', use('amp', compute='bf16'), adamw, deterministic=False, **whole)
    for name, path, said in (('fused', 'fused.lua', []), ('varies', varies, ['2 launches of attention_grad.cudnn: other bytes in another run'])):
        for where in ([*gpu], ['--target', 'h100']):
            kernels = json.loads(run('plan', path, '--json', *where).stdout)['kernels']
            check([k['name'] for op in ('attention', 'attention_grad') for k in kernels[op]] == ['attention.cudnn', 'attention_grad.cudnn'],
                  f'{name} {where}: {kernels}')
            shown = run('plan', path, *where).stdout
            check(all(x in shown for x in said) and ('varying' in shown) == bool(said), f'{name} {where}:\n{shown}')
    near('varies', train('fused.lua', 'fused-cpu-again'), train(varies, 'varies', *gpu), 'short')


@on_a_gpu
def tuned():
    """What kernels choose is kept for later runs on such a machine, and with the run."""
    def files():
        return sorted((pathlib.Path(os.environ['GALLEY_CACHE']).glob('*.choices')))

    path = recipe('tuned.lua', gpt2, 'data.random {}', clip, adamw, tune=True, **entries)
    for old in files():
        old.unlink()
    first = train(path, 'tuned', *gpu)
    check(len(files()) == 1, f'tune: {files()}')
    own = first.path / 'choices.json'
    check(own.read_text() == files()[0].read_text() and len(json.loads(own.read_text())) > 5, f'tune: {own.read_text()}')
    files()[0].write_text(own.read_text().replace('{', '{ "of others": "kept",', 1))
    again = train(path, 'tuned-again', *gpu)
    check('of others' in (again.path / 'choices.json').read_text(), 'tune: a second run does not take what the first one chose')
    check(again.bytes() == first.bytes(), 'tune: another result in a second run')
    files()[0].write_text('[]')
    said = run('train', path, '--out', 'tuned-broken', *gpu, code=1).stderr
    check('it is no table of choices' in said and 'remove it' in said, f'tune: a broken file: {said}')
    files()[0].unlink()


@on_a_gpu
def profiled():
    path = recipe('profiled.lua', gpt2, 'data.random {}', use('accumulate', steps=2), clip, adamw, **entries)
    for where, flags in (('cpu', []), (device, gpu)):
        said = run('train', path, '--out', f'profiled-{where}', '--profile', '--trace', f'{where}.json', *flags).stdout
        check('linear' in said and 'adamw (' in said and 'peak %' in said, f'--profile on {where}:\n{said}')
        events = json.load(open(f'{where}.json'))
        spans = [x for x in events if x['ph'] == 'X']
        check(len(spans) > 300 and {x['args']['segment'] for x in spans} >= {'window', 'micro', 'update'}, f'--trace on {where}: {len(spans)} spans')
        rows = {}
        for x in spans:
            rows.setdefault(x['tid'], []).append((x['ts'], x['ts'] + x['dur']))
        check(every(a[1] <= b[0] + 0.01 for x in rows.values() for a, b in zip(x, x[1:])), f'--trace on {where}: spans of a queue overlap')
        plain = train(path, f'plain-{where}', *flags)
        check(plain.bytes() == open(f'profiled-{where}/model/model.safetensors', 'rb').read(), f'--profile on {where} changes the result')


# ---- Every recipe that people run ----------------------------------------------------------------------------------------------------------


@functools.cache
def written_inputs():
    """What the scripts read."""
    shutil.copytree(fixtures / 'models' / 'llama-gqa-tied', 'model', ignore=shutil.ignore_patterns('*.npy', '*.safetensors'))
    # A tokenizer and a chat template: the weights of the fixture are of a smaller vocabulary, so that new ones are drawn.
    says = [dict(role='user', content='What is a galley?'), dict(role='assistant', content='A ship with oars, and its kitchen.')]
    pathlib.Path('chat.jsonl').write_text((json.dumps(dict(messages=says)) + '\n') * 40)
    pathlib.Path('prompts.jsonl').write_text((json.dumps(dict(prompt=says[0]['content'], answer=says[1]['content'])) + '\n') * 40)
    run('tokenize', '--train', 'chat.jsonl', '--vocab', 300, '--out', 'tokenizer')
    shutil.copy('tokenizer/tokenizer.json', 'model')
    config = json.loads((pathlib.Path('model') / 'config.json').read_text())
    (pathlib.Path('model') / 'config.json').write_text(json.dumps(dict(config, vocab_size=320, max_position_embeddings=96)))
    (pathlib.Path('model') / 'tokenizer_config.json').write_text(json.dumps(dict(json.load(open('tokenizer/tokenizer_config.json')), chat_template=(
        "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"))))
    with open('text.txt', 'w') as file:
        file.write('Some text for a small model to read.\n' * 60)
    # An encoder, and one with a decoder.
    pathlib.Path('labelled.jsonl').write_text(''.join(json.dumps(dict(text=says[i % 2]['content'], text2=says[1]['content'], label=i % 2)) + '\n' for i in range(40)))
    for folder, of in (('encoder', dict(model_type='bert', hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=96)),
                       ('decoder', dict(model_type='t5', d_model=32, d_kv=16, d_ff=48, num_layers=1, num_heads=2, decoder_start_token_id=0))):
        pathlib.Path(folder).mkdir()
        (pathlib.Path(folder) / 'config.json').write_text(json.dumps(dict(of, vocab_size=320)))
        for file in pathlib.Path('tokenizer').iterdir():
            shutil.copy(file, folder)


OTHERS = {'classify': dict(model='encoder', data='labelled.jsonl', batch='18', epochs='1'), 'seq2seq': dict(model='decoder', target='16')}
SETS = {'model': 'model', 'text': 'text.txt', 'data': 'prompts.jsonl', 'chat': 'chat.jsonl', 'steps': '2', 'length': '96', 'accumulate': '1', 'batch': '1',
        'layers': '1', 'width': '32', 'heads': '2', 'vocab': '320'}


def script(name, precision, two_targets):
    """Planned for two of the machines that ship, each of which has its turn, and trained for a step or two."""
    written_inputs()
    text = (source / 'scripts' / f'{name}.lua').read_text()
    words = [y for x, v in {**SETS, **OTHERS.get(name, {})}.items() if f'arg("{x}"' in text for y in ('--set', f'{x}={v}')]
    words += ['--set', f'precision={precision}'] if 'arg("precision"' in text else []
    words += ['--set', 'tokenizer=tokenizer'] if 'arg("tokenizer")' in text else []
    words += ['--set', 'variant=nf4'] if name == 'compare' else []
    path = pathlib.Path(f'{name}.lua')
    text = text.replace('path = arg("model")', 'path = arg("model"), init = "random"')
    if device != 'cuda':  # a step of 2 M parameters takes the emulation ten seconds
        text = text.replace('hidden_size = 192, intermediate_size = 512', 'hidden_size = 48, intermediate_size = 128').replace('batch = 4', 'batch = 1')
        text = text.replace('16 // batch', '2')
    path.write_text(text)
    for target in two_targets:
        p = json.loads(run('plan', path, '--json', '--target', target, *words).stdout)
        check(p['classes']['device']['planned'] > p['classes']['pinned']['planned'] > 0, f'for {target}: {p["classes"]}')
    made = []
    several = ['--device', 'discrete', '--plugin-path', binary / 'tests' / 'plugins' / 'discrete'] if '"offload-' in text else []  # memories of a processor
    for where, flags in (('cpu', several), ('gpu', gpu)):
        run('train', path, '--out', f'{name}-{precision}-{where}', *words, *flags)
        made.append([loss for loss, _ in Run(f'{name}-{precision}-{where}').steps])
    bound = 2e-2 if precision == 'bf16' or name == 'fit' else 1e-4  # of which the first choice is bf16
    check(len(made[0]) == 2 and every(abs(a - b) <= bound * abs(a) for a, b in together(*made)), f'losses {made}')


names = sorted(x.stem for x in (source / 'scripts').glob('*.lua'))
check(len(names) >= 5, f'scripts: {names}')
for i, (name, precision) in enumerate((x, p) for x in names for p in ('fp32', 'bf16') if p == 'fp32' or x == 'finetune'):
    step(f'script_{name}_{precision}', script, name, precision, [targets[(2 * i + k) % len(targets)] for k in range(2)])
if device != 'cuda':
    take_turns([x for x in of_a_gpu if x.startswith('script_')], 3)
    take_turns([x for x in of_a_gpu if not x.startswith('script_')], 2)


# ---- What only an emulation can be asked for -------------------------------------------------------------------------------------------------


@of_the_emulation
def targets_are_refused():
    path = recipe('refused.lua', gpt2, 'data.random {}', adamw, **entries)
    refused(path, "no such target; did you mean 'h100'?", 'rtx4090', flags=('--target', 'h10'))
    big = recipe('big.lua', from_config('llama', vocab_size=32000, max_position_embeddings=2048, hidden_size=4096, intermediate_size=11008,
                                        num_hidden_layers=32, num_attention_heads=32), 'data.random {}', adamw, **{**entries, 'length': 1024, 'save': dict(every=0)})
    refused(big, "of 'device'", 'states', flags=('--target', 'rtx4090'), code=3)
    a100 = (source / 'models' / 'targets' / 'a100.toml').read_text()
    pathlib.Path('old.toml').write_text(a100.replace('sm_80', 'sm_75'))
    refused(path, 'sm_75: sm_80 or later is needed', flags=('--target', 'old.toml'))


@of_the_emulation
def no_gpu():
    if not shutil.which('nvidia-smi'):
        path = recipe('no-gpu.lua', gpt2, 'data.random {}', adamw, **entries)
        r = galley('train', path, '--device', 'cuda', '--out', 'none')
        check(r.returncode == 2 and len(r.lines) <= 2, f'{r}')
    check(not os.path.exists('none'), 'there is a folder of a run that never was')


@of_the_emulation
def lost():
    """The GPU is lost in the middle of a run: a message, and the last state is whole."""
    path = recipe('lost.lua', gpt2, 'data.random {}', clip, adamw, **{**entries, 'steps': 6})
    whole = train(path, 'whole', *gpu)
    said = run('train', path, '--out', 'lost', *gpu, code=4, GALLEY_DISCRETE_LOST='500').stderr
    check('the device was lost' in said, said)
    states = sorted(x.name for x in (whole.path.parent / 'lost' / 'state').iterdir()) if os.path.isdir('lost/state') else []
    check(states and states[-1] in ('step-00000002', 'step-00000004'), f'it leaves the states {states}: choose another GALLEY_DISCRETE_LOST')
    # It begins again with the chunks of the head that it had, whatever would be chosen now.
    shutil.copytree('lost', 'narrow')
    shutil.rmtree('narrow/state')
    record = pathlib.Path('narrow/run.toml').read_text()
    write_marked('narrow/run.toml', re.sub(r'(?m)^head_rows = \d+', 'head_rows = 4', record))
    run('resume', 'narrow', *plugins)
    launches = [Run(x).memory['launches']['a_step'] for x in ('lost', 'narrow')]
    check(launches[0] < launches[1], f'launches of a step with the chunks of the record: {launches}')
    run('resume', 'lost', *plugins)
    check(Run('lost').bytes() == whole.bytes(), 'a run on a GPU that was lost ends elsewhere')


def spoiled(name, code, *texts, **environment):
    """A run on a GPU that something is wrong with: the exit code, and texts of the one message. What CUDA's runtime may say to models/devices/cuda is in
    sdk/emulated/device/runtime.cpp."""
    path = recipe(f'{name}.lua', gpt2, 'data.random {}', adamw, **entries)
    said = run('train', path, '--out', name, *gpu, code=code, **environment).stderr
    check(every(x in said for x in texts) and said.count('galley: ') == 1, f'{name}: {said}')
    return said


@of_the_emulation
def gpus_that_cannot_be_used():
    spoiled('old', 2, 'is too old: it is sm_75, and sm_80 (Ampere) or later is needed', GALLEY_EMULATED_CAPABILITY='75')
    spoiled('driverless', 4, 'no NVIDIA GPU can be used here', 'nvidia-smi', GALLEY_EMULATED_DRIVER='0')
    spoiled('taken', 3, 'cudaMalloc', 'are free', 'nvidia-smi', GALLEY_EMULATED_FREE='100000')
    for name in ('old', 'driverless', 'taken'):
        check(not os.path.exists(name), f'{name}: there is a folder of a run that never was')


@functools.cache
def captured():
    """A recipe and its run on a GPU as it should be."""
    path = recipe('plain.lua', gpt2, 'data.random {}', adamw, **entries)
    return pathlib.Path(path).resolve(), train(path, 'captured', *gpu)


@of_the_emulation
def without_captures():
    """A run has the same bytes."""
    path, whole = captured()
    for name, environment in (('uncaptured', {'GALLEY_EMULATED_CAPTURE': '0'}), ('synchronous', {'GALLEY_CUDA_SYNC': '1'})):
        said = run('train', path, '--out', name, *gpu, **environment).stderr
        check(('cannot be captured' in said) == (name == 'uncaptured'), f'{name}: {said}')
        check(Run(name).bytes() == whole.bytes(), f'{name}: another model')


@of_the_emulation
def without_libraries():
    path, _ = captured()
    pathlib.Path('alone.toml').write_text('libraries = {}\n')
    said = run('train', path, '--out', 'alone', '--target', 'alone.toml', *gpu).stderr
    check('cuBLASLt was not found' in said, said)


@of_the_emulation
def libraries_without_algorithms():
    """A library that has none for a product, and a GPU that does not tell its clocks, end no run."""
    path, whole = captured()
    for name, environment in (('unknown', {'GALLEY_EMULATED_LT_REFUSES': '1'}), ('clockless', {'GALLEY_EMULATED_CLOCK': '0'})):
        said = run('train', path, '--out', name, *gpu, **environment).stderr
        check(('it has no algorithm' in said) == (name == 'unknown'), f'{name}: {said}')
        steps = Run(name).steps
        check(len(steps) == 4 and every(abs(a - b) < 1e-5 for (a, _), (b, _) in together(whole.steps, steps)), f'{name}: {steps}, not {whole.steps}')


@of_the_emulation
def usage():
    _, whole = captured()
    system = json.loads((whole.path / 'usage.json').read_text())
    check(whole.memory['classes']['device']['allocated'] <= system['device']['taken'] < system['device']['capacity'], f'usage.json: {system}')
    check(system['process']['resident_peak'] > 0, f'usage.json: {system}')


@of_the_emulation
def launch_that_fails():
    """Without captures an error names it."""
    said = spoiled('named', 4, 'was lost', "kernel '", GALLEY_DISCRETE_LOST='300', GALLEY_CUDA_SYNC='1')
    check('instruction' in said, f'an error does not name the launch: {said}')
    spoiled('unnamed', 4, 'was lost', 'GALLEY_CUDA_SYNC=1', GALLEY_DISCRETE_LOST='300')


if '--list' in sys.argv:
    print(*of_a_gpu, sep='\n')
    sys.exit()
finish()
