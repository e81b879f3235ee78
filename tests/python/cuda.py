#!/usr/bin/env python3
"""CUDA kernels in whole runs, on a GPU that is emulated (tests/plugins/cuda-emulated): they train as the processor does; and plans for machines that are
not here.

`tests/python/cuda.py DEVICE` tries another device (cuda), `tests/python/cuda.py DEVICE PART…` these parts only (tests/gpu/test: one a process), and
`tests/python/cuda.py DEVICE --list` prints those that a GPU runs."""
import itertools
import json
import os
import pathlib
import re
import shutil
import sys

from galley_test import binary, check, every, finish, fixtures, fresh_folder, from_config, plan, program, recipe, run, source, together, train, use
from mark_kit import write_marked

import subprocess

device = sys.argv[1] if len(sys.argv) > 1 else 'cuda-emulated'
plugins = ['--plugin-path', binary / 'tests' / 'plugins' / 'cuda-emulated']
gpu = ['--device', device, *plugins]
targets = sorted(x.stem for x in (source / 'models' / 'targets').glob('*.toml'))
small = dict(vocab_size=97, n_positions=32, n_embd=32, n_layer=2, n_head=4)
gpt2 = from_config('gpt2', **small)
llama = from_config('llama', vocab_size=99, max_position_embeddings=64, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=6,
                    num_key_value_heads=2, tie_word_embeddings=True)
adamw, clip = use('adamw', lr=1e-2), use('clip', norm=0.5)
entries = dict(batch=2, length=16, steps=4, seed=4, save=dict(every=2, keep=2))


def near(who, a, b, bound):
    """Losses and norms of two runs, step by step; training drives rounding apart. Sums of a GPU's libraries have other orders than the emulation's, which
    are the processor's."""
    if device == 'cuda':
        bound = max(bound, 1e-4)
    check(len(a.steps) == len(b.steps) > 0, f'{who}: {len(a.steps)} and {len(b.steps)} steps')
    for step, (x, y) in enumerate(together(a.steps, b.steps), 1):
        for what, p, q in together(('loss', 'norm'), x, y):
            wide = bound * step * (10 if what == 'norm' else 1)
            check(abs(p - q) <= wide * max(abs(p), 1e-6), f'{who}: {what} of step {step} is {q}, on the processor {p}')


def trains_as_the_processor(name, *uses, model=gpt2, data='data.random {}', bound=1e-5, **more):
    path = recipe(f'{name}.lua', model, data, *uses, **{**entries, **more})
    run('plan', path, '--check', *gpu)
    cpu, first = (train(path, f'{name}-{where}', *flags) for where, flags in (('cpu', []), ('gpu', gpu)))
    near(name, cpu, first, bound)
    first.check_memory(name)
    check(every(first.memory['classes'][c]['planned'] > 0 for c in ('device', 'pinned')), f'{name}: {first.memory["classes"]}')
    if device == 'cuda' or name in ('full', 'dropout'):  # an emulation runs blocks and threads in one order
        second = train(path, f'{name}-again', *gpu)
        for file in sorted(x.relative_to(first.path) for part in ('model', 'adapter', 'state') for x in (first.path / part).rglob('*.safetensors')):
            check(first.bytes(file) == second.bytes(file), f'{name}: {file} is another one in a second run')
    return first


def full():
    text = f'data.text {{ files = {{ {str(source / "models" / "families" / "gpt2.lua")!r} }}, tokenizer = "bytes", validation = 0.2 }}'
    full = trains_as_the_processor('full', clip, adamw, data=text, model=from_config('gpt2', **{**small, 'vocab_size': 257}), validate=dict(every=2))
    check(sum('validation_loss' in x for x in full.lines) == 2, 'full: there are not two validations')
    check(len(run('sample', full.path, '--prompt', 'local', '--tokens', 5, *plugins).stdout) > 5, 'full: nothing was sampled')


def amp():
    for dtype in ('bf16', 'fp16'):
        trains_as_the_processor(f'amp-{dtype}', use('amp', compute=dtype), clip, adamw, model=llama, bound=1e-2)


def offloaded():
    """States and saved tensors in the memory of the host: the same bytes."""
    for name, uses in (('f32', ()), ('scaled', (use('amp', compute='fp16', loss_scale=256), use('accumulate', steps=2), use('recompute')))):
        made = []
        for where, more in (('here', ()), ('there', (use('offload-optimizer', min_size=1), use('offload-activations', min_size=1)))):
            path = recipe(f'offloaded-{name}-{where}.lua', llama, 'data.random {}', *uses, *more, clip, adamw, **entries)
            run('plan', path, '--check', *gpu)
            made.append(train(path, f'offloaded-{name}-{where}', *gpu))
            made[-1].check_memory(f'offloaded {name}')
        for file in ('model/model.safetensors', 'state/step-00000004/state.safetensors'):
            check(made[0].bytes(file) == made[1].bytes(file), f'offloaded {name}: {file} differs')
        states = [x.memory['classes']['device']['owners']['states'] for x in made]
        check(states[1] < states[0] / 4, f'offloaded {name}: {states} bytes of states on the device')


def tf32():
    tf32 = trains_as_the_processor('tf32', use('amp', compute='tf32'), clip, adamw, model=llama, bound=1e-2)
    plain = trains_as_the_processor('f32', clip, adamw, model=llama)
    check(tf32.steps != plain.steps, 'amp { compute = "tf32" } changes nothing')


def fused():
    """Rows that are one document each, of a length that cuDNN's attention takes."""
    whole = dict(batch=3, length=128, steps=2, seed=4)
    wide = from_config('llama', vocab_size=99, max_position_embeddings=128, hidden_size=64, intermediate_size=80, num_hidden_layers=2,
                       num_attention_heads=8, num_key_value_heads=2, tie_word_embeddings=True)
    trains_as_the_processor('fused', use('amp', compute='bf16'), adamw, model=wide, bound=1e-2, **whole)
    trains_as_the_processor('fused-packed', use('amp', compute='fp16'), adamw, model=from_config('gpt2', **{**small, 'n_positions': 128}), bound=1e-2, **whole)
    varies = recipe('varies.lua', wide, 'data.random {}', use('amp', compute='bf16'), adamw, deterministic=False, **whole)
    for name, path, said in (('fused', 'fused.lua', []), ('varies', varies, ['2 launches of attention_grad.cudnn: other bytes in another run'])):
        for where in ([*gpu], ['--target', 'h100']):
            kernels = json.loads(run('plan', path, '--json', *where).stdout)['kernels']
            check([k['name'] for op in ('attention', 'attention_grad') for k in kernels[op]] == ['attention.cudnn', 'attention_grad.cudnn'],
                  f'{name} {where}: {kernels}')
            shown = run('plan', path, *where).stdout
            check(all(x in shown for x in said) and ('varying' in shown) == bool(said), f'{name} {where}:\n{shown}')
    near('varies', train('fused.lua', 'fused-cpu-again'), train(varies, 'varies', *gpu), 1e-2)


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


def scripts():
    """Every recipe that people run: each planned for two of the machines that ship, each of which has its turn, and trained for a step or two."""
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
    others = {'classify.lua': dict(model='encoder', data='labelled.jsonl', batch='18', epochs='1'), 'seq2seq.lua': dict(model='decoder', target='16')}
    sets = {'model': 'model', 'text': 'text.txt', 'data': 'prompts.jsonl', 'chat': 'chat.jsonl', 'steps': '2', 'length': '96', 'accumulate': '1', 'batch': '1',
            'layers': '1', 'width': '32', 'heads': '2', 'vocab': '320'}
    names = sorted(x.name for x in (source / 'scripts').glob('*.lua'))
    check(len(names) >= 5, f'scripts: {names}')
    turns = itertools.cycle(targets)
    for name, precision in [(x, p) for x in names for p in ('fp32', 'bf16') if p == 'fp32' or x == 'finetune.lua']:
        text = (source / 'scripts' / name).read_text()
        words = [y for x, v in {**sets, **others.get(name, {})}.items() if f'arg("{x}"' in text for y in ('--set', f'{x}={v}')]
        words += ['--set', f'precision={precision}'] if 'arg("precision"' in text else []
        words += ['--set', 'tokenizer=tokenizer'] if 'arg("tokenizer")' in text else []
        words += ['--set', 'variant=nf4'] if name == 'compare.lua' else []
        path = pathlib.Path(name)
        text = text.replace('path = arg("model")', 'path = arg("model"), init = "random"')
        if device != 'cuda':  # a step of 2 M parameters takes the emulation ten seconds
            text = text.replace('hidden_size = 192, intermediate_size = 512', 'hidden_size = 48, intermediate_size = 128').replace('batch = 4', 'batch = 1').replace('16 // batch', '2')
        path.write_text(text)
        for target in itertools.islice(turns, 2):
            p = json.loads(run('plan', path, '--json', '--target', target, *words).stdout)
            check(p['classes']['device']['planned'] > p['classes']['pinned']['planned'] > 0, f'{name} for {target}: {p["classes"]}')
        made = []
        several = ['--device', 'discrete', '--plugin-path', binary / 'tests' / 'plugins' / 'discrete'] if '"offload-' in text else []  # memories of a processor
        for where, flags in (('cpu', several), ('gpu', gpu)):
            run('train', path, '--out', f'{name}-{precision}-{where}', *words, *flags)
            made.append([json.loads(x)['loss'] for x in open(f'{name}-{precision}-{where}/metrics.jsonl') if '"loss"' in x])
        bound = 2e-2 if precision == 'bf16' or name == 'fit.lua' else 1e-4  # of which the first choice is bf16
        check(len(made[0]) == 2 and every(abs(a - b) <= bound * abs(a) for a, b in zip(*made)), f'{name}, {precision}: losses {made}')


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


def refusals():
    path = recipe('refused.lua', gpt2, 'data.random {}', adamw, **entries)
    said = run('plan', path, '--target', 'h10', code=2).stderr
    check("no such target; did you mean 'h100'?" in said and 'rtx4090' in said, f'a target that is not there: {said}')
    big = recipe('big.lua', from_config('llama', vocab_size=32000, max_position_embeddings=2048, hidden_size=4096, intermediate_size=11008,
                                        num_hidden_layers=32, num_attention_heads=32), 'data.random {}', adamw, **{**entries, 'length': 1024, 'save': dict(every=0)})
    said = run('plan', big, '--target', 'rtx4090', code=3).stderr
    check("of 'device'" in said and 'states' in said, f'7B with AdamW on 24 GB: {said}')
    old = (source / 'models' / 'targets' / 'a100.toml').read_text().replace('sm_80', 'sm_75')
    open('old.toml', 'w').write(old)
    said = run('plan', path, '--target', 'old.toml', code=2).stderr
    check('sm_75: sm_80 or later is needed' in said, f'a GPU that is too old: {said}')
    # Singular vectors that a workspace does not hold are not cut short.
    principal = recipe('principal.lua', llama, 'data.random {}', use('lora', rank=2, init='pissa', targets=['q_proj']), adamw, **entries)
    small_workspace = (source / 'models' / 'targets' / 'a100.toml').read_text()
    open('small.toml', 'w').write(re.sub(r'workspace_budget = \d+', 'workspace_budget = 65536', small_workspace))
    said = run('plan', principal, '--target', 'small.toml', code=2).stderr
    check("takes 48 Lanczos vectors at least, and the target's workspace, 65536 bytes, holds" in said, f'PiSSA in a workspace of 64 KiB: {said}')
    if not shutil.which('nvidia-smi'):
        r = subprocess.run([program, 'train', path, '--device', 'cuda', '--out', 'none'], capture_output=True, text=True)
        check(r.returncode == 2 and len(r.stderr.strip().splitlines()) <= 2 and not os.path.exists('none'),
              f'no GPU: exit code {r.returncode}: {r.stderr}')


def lost():
    """The GPU is lost in the middle of a run: a message, and the last state is whole."""
    path = recipe('lost.lua', gpt2, 'data.random {}', clip, adamw, **{**entries, 'steps': 6})
    whole = train(path, 'whole', *gpu)
    os.environ['GALLEY_DISCRETE_LOST'] = '500'
    r = subprocess.run([program, 'train', path, '--out', 'lost', *map(str, gpu)], capture_output=True, text=True)
    del os.environ['GALLEY_DISCRETE_LOST']
    check(r.returncode == 4 and 'the device was lost' in r.stderr, f'a lost GPU: exit code {r.returncode}: {r.stderr}')
    states = sorted(x.name for x in (whole.path.parent / 'lost' / 'state').iterdir()) if os.path.isdir('lost/state') else []
    check(states and states[-1] in ('step-00000002', 'step-00000004'), f'a lost GPU leaves the states {states}: choose another GALLEY_DISCRETE_LOST')
    # It begins again with the chunks of the head that it had, whatever would be chosen now.
    shutil.copytree('lost', 'narrow')
    shutil.rmtree('narrow/state')
    record = open('narrow/run.toml').read()
    write_marked('narrow/run.toml', re.sub(r'(?m)^head_rows = \d+', 'head_rows = 4', record))
    run('resume', 'narrow', *plugins)
    launches = [json.loads(open(f'{x}/memory.json').read())['launches']['a_step'] for x in ('lost', 'narrow')]
    check(launches[0] < launches[1], f'launches of a step with the chunks of the record: {launches}')
    run('resume', 'lost', *plugins)
    check(open('lost/model/model.safetensors', 'rb').read() == whole.bytes(), 'a run on a GPU that was lost ends elsewhere')


def spoiled(name, code, *texts, **environment):
    """A run on a GPU that something is wrong with: the exit code, and texts of the one message."""
    path = recipe(f'{name}.lua', gpt2, 'data.random {}', adamw, **entries)
    r = subprocess.run([program, 'train', path, '--out', name, *map(str, gpu)], capture_output=True, text=True, env={**os.environ, **environment})
    check(r.returncode == code and every(x in r.stderr for x in texts) and r.stderr.count('galley: ') == 1, f'{name}: exit code {r.returncode}: {r.stderr}')
    return r


def errors():
    """What CUDA's runtime may say to models/devices/cuda (tests/plugins/cuda-emulated/runtime.cpp)."""
    spoiled('old', 2, 'is too old: it is sm_75, and sm_80 (Ampere) or later is needed', GALLEY_EMULATED_CAPABILITY='75')
    spoiled('driverless', 4, 'no NVIDIA GPU can be used here', 'nvidia-smi', GALLEY_EMULATED_DRIVER='0')
    spoiled('taken', 3, 'cudaMalloc', 'are free', 'nvidia-smi', GALLEY_EMULATED_FREE='100000')
    for name in ('old', 'driverless', 'taken'):
        check(not os.path.exists(name), f'{name}: there is a folder of a run that never was')
    # Without captures a run has the same bytes, and an error names the launch.
    path = recipe('plain.lua', gpt2, 'data.random {}', adamw, **entries)
    whole = train(path, 'captured', *gpu)
    for name, environment in (('uncaptured', {'GALLEY_EMULATED_CAPTURE': '0'}), ('synchronous', {'GALLEY_CUDA_SYNC': '1'})):
        r = subprocess.run([program, 'train', path, '--out', name, *map(str, gpu)], capture_output=True, text=True, env={**os.environ, **environment})
        check(r.returncode == 0 and ('cannot be captured' in r.stderr) == (name == 'uncaptured'), f'{name}: exit code {r.returncode}: {r.stderr}')
        check(open(f'{name}/model/model.safetensors', 'rb').read() == whole.bytes(), f'{name}: another model')
    open('alone.toml', 'w').write('libraries = {}\n')
    r = subprocess.run([program, 'train', path, '--out', 'alone', '--target', 'alone.toml', *map(str, gpu)], capture_output=True, text=True)
    check(r.returncode == 0 and 'cuBLASLt was not found' in r.stderr, f'without libraries: exit code {r.returncode}: {r.stderr}')
    # A library that has no algorithm for a product, and a GPU that does not tell its clocks, end no run.
    for name, environment in (('unknown', {'GALLEY_EMULATED_LT_REFUSES': '1'}), ('clockless', {'GALLEY_EMULATED_CLOCK': '0'})):
        r = subprocess.run([program, 'train', path, '--out', name, *map(str, gpu)], capture_output=True, text=True, env={**os.environ, **environment})
        check(r.returncode == 0 and ('it has no algorithm' in r.stderr) == (name == 'unknown'), f'{name}: exit code {r.returncode}: {r.stderr}')
        losses = [[json.loads(x)['loss'] for x in open(f'{y}/metrics.jsonl') if '"loss"' in x] for y in ('captured', name)]
        check(len(losses[1]) == 4 and every(abs(a - b) < 1e-5 for a, b in zip(*losses)), f'{name}: losses {losses}')
    system = json.loads(open('captured/usage.json').read())
    check(whole.memory['classes']['device']['allocated'] <= system['device']['taken'] < system['device']['capacity'], f'usage.json: {system}')
    check(system['process']['resident_peak'] > 0, f'usage.json: {system}')
    named = spoiled('named', 4, 'was lost', "kernel '", GALLEY_DISCRETE_LOST='300', GALLEY_CUDA_SYNC='1')
    check('instruction' in named.stderr, f'an error does not name the launch: {named.stderr}')
    spoiled('unnamed', 4, 'was lost', 'GALLEY_CUDA_SYNC=1', GALLEY_DISCRETE_LOST='300')


parts = {
    'full': full,
    'llama': lambda: trains_as_the_processor('llama', clip, adamw, model=llama),
    'stacked': lambda: trains_as_the_processor('stacked', use('recompute', every=1), use('accumulate', steps=3), clip, adamw),
    'lora': lambda: trains_as_the_processor('lora', use('lora', rank=2, alpha=4, targets='all-linear', dropout=0.1), adamw, model=llama),
    'dora': lambda: trains_as_the_processor('dora', use('lora', rank=2, alpha=4, dora=True, dropout=0.1), adamw, model=llama),
    'dora-conv1d': lambda: trains_as_the_processor('dora-conv1d', use('lora', rank=2, alpha=4, dora=True, bias='all'), use('accumulate', steps=2), adamw),
    'pissa': lambda: trains_as_the_processor('pissa', use('lora', rank=2, init='pissa'), adamw, model=llama, bound=1e-4),
    'vera': lambda: trains_as_the_processor('vera', use('vera', rank=4, dropout=0.1), adamw),
    'ia3': lambda: trains_as_the_processor('ia3', use('ia3', targets='all-linear', feedforward='down_proj'), adamw, model=llama),
    'dropout': lambda: trains_as_the_processor('dropout', clip, adamw, model=from_config('gpt2', **small, resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1)),
    'freeze': lambda: trains_as_the_processor('freeze', use('freeze', **{'except': ['transformer.h.1.*']}), use('sgd', lr=1e-2, momentum=0.9, nesterov=True)),
    'clipped': lambda: trains_as_the_processor('clipped', use('clip', norm=0.5, value=0.01), adamw), 'offloaded': offloaded,
    'amp': amp, 'tf32': tf32, 'fused': fused, 'tuned': tuned, 'scripts': scripts, 'profiled': profiled,
}
of_the_emulation = {'lost': lost, 'errors': errors, 'refusals': refusals}
if '--list' in sys.argv:
    sys.exit(print(*parts, sep='\n'))
fresh_folder()
for name, part in {**parts, **(of_the_emulation if device == 'cuda-emulated' else {})}.items():
    if name in sys.argv[2:] or not sys.argv[2:]:
        part()
finish()
