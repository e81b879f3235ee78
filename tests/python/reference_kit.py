"""What the tests of reference mode share: strategies as `galley plugins` lists them, tiny models of each family, and a recipe that is trained, saved, evaluated and
sampled from under --reference."""
import collections
import itertools
import json
import os
import pathlib
import shutil
import subprocess

import galley_test
from galley_test import binary, check, from_config, in_slice, program, recipe, use

text = 'one two three four five six seven eight nine ten. ' * 12
data = 'data.text { files = { arg("text") }, tokenizer = "bytes", validation = 0.2 }'
llama = dict(vocab_size=256, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=16)
models = {
    'gpt2': from_config('gpt2', vocab_size=256, n_positions=16, n_embd=16, n_layer=2, n_head=2),
    'llama': from_config('llama', **llama),
    'mistral': from_config('mistral', sliding_window=5, **llama),
    'qwen2': from_config('qwen2', tie_word_embeddings=True, **llama),
}
computes = ('fp32', 'bf16', 'fp16')


uses, beside = galley_test.strategies()
worst = collections.defaultdict(lambda: dict(outputs=0, numbers=0, worst=0, at=''))
segments = collections.Counter()
without = collections.Counter()
runs = 0


def use_of(name, family, compute):
    if name == 'amp':
        return 'use "amp" ' + ('{ compute = "fp16", loss_scale = 256 }' if compute == 'fp16' else '{ compute = "bf16" }')
    text = uses[name]
    if family != 'gpt2':
        text = text.replace('"transformer.h.0.*"', '"model.layers.0.*"').replace('{ "*.c_attn", "*.c_proj" }', '{ "*.q_proj", "*.down_proj" }')
    return text


def command(where, *words):
    """Runs a command of the program under --reference and adds up what it compared; None, or what it says."""
    global runs
    out = pathlib.Path('report.json').resolve()
    out.unlink(missing_ok=True)
    r = subprocess.run([program, *map(str, words), '--reference', '--reference-out', out], capture_output=True, text=True, errors='replace', timeout=600,
                       env=dict(os.environ, OMP_NUM_THREADS='1'))
    runs += 1
    if not check(r.returncode == 0, f'{where}: {" ".join(map(str, words))}: exit code {r.returncode}: {r.stderr[-1500:]}'):
        return
    report = json.loads(out.read_text())
    segments.update(report['segments'])
    without.update(report['without'])
    for op, dtypes in report['ops'].items():
        for dtype, x in dtypes.items():
            to = worst[op, dtype]
            to['outputs'] += x['outputs']
            to['numbers'] += x['numbers']
            if x['worst'] >= to['worst']:
                to['worst'], to['at'] = x['worst'], f'{where}, {x["at"]}'


def everything(names, family, compute, train=(), also=(), uses=(), where='', model=None, seed=9, counted=False, **more):
    """Trains, validates, exports, evaluates, samples and, with adapters, merges. `train`: flags for training; `also`: for every command; `uses`: what is used besides,
    in Lua, or in the place of a strategy of the same name; `where`: a name for these; `counted`: the caller has asked in_slice()."""
    names = [n for n in complete(names) if n != 'amp'] + (['amp'] if compute != 'fp32' else [])
    label = '+'.join(names) + f'-{family}-{compute}' + (where and f'-{where}')
    if not counted and not in_slice():
        return label
    pathlib.Path('text.txt').write_text(text)
    shutil.rmtree(label, ignore_errors=True)
    entries = dict(batch=2, length=12, steps=2, seed=seed, head_rows=7, validate=dict(every=1))
    entries.update(more)
    own = {x.split('"')[1]: x for x in uses}
    lines = {**{n: use_of(n, family, compute) for n in names}, **own}
    path = recipe(f'{label}.lua', model or models[family], data, *lines.values(), **entries)
    command(label, 'train', path, '--out', label, '--set', 'text=text.txt', *train, *also)
    if pathlib.Path(label, 'state').exists():
        command(label, 'eval', label, *also)
        command(label, 'sample', label, '--prompt', 'one two', '--tokens', 2, *also)
        if {'lora', 'vera', 'ia3'} & set(lines):
            shutil.rmtree(f'{label}-merged', ignore_errors=True)
            command(label, 'export', label, '--merge', '--out', f'{label}-merged', *also)
    return label


def complete(names):
    """With those without which they have nothing to do."""
    return [*names, *dict.fromkeys(beside[n][0] for n in names if beside.get(n) and not set(beside[n]) & set(names))]


def planned(names, compute=None):
    """Whether they go together; with `compute`: in this dtype."""
    names = complete(names)
    texts = [uses[n] for n in names if n != 'amp' or not compute] + ([use_of('amp', 'gpt2', compute)] if compute and compute != 'fp32' else [])
    path = recipe('plan.lua', models['gpt2'], 'data.random {}', *texts, batch=2, length=12, steps=2)
    return subprocess.run([program, 'plan', str(path)], capture_output=True).returncode == 0


optimizers = [n for n in uses if planned([n])]
others = [n for n in uses if n not in optimizers and planned([n, optimizers[0]])]  # what needs another memory: see `rests`


def pairs():
    """Each pair that goes together, with an optimizer."""
    for a, b in itertools.combinations(uses, 2):
        names = [a, b] if {a, b} & set(optimizers) else [a, b, optimizers[0]]
        if planned(names):
            yield names


def on(device, *names):
    """Of `everything`: on a device, with plugins that only tests load, or that lie elsewhere."""
    paths = [x for name in names for x in ('--plugin-path', binary / 'tests' / 'plugins' / name)]
    return dict(train=['--device', device], also=paths, where=device)


def rests(memory):
    """Parameters that rest elsewhere, states that do, and saved tensors."""
    return (use('second-memory', memory=memory, parameters=['*.c_fc.weight', '*.down_proj.weight']), use('offload-optimizer', memory=memory, min_size=1),
            use('offload-activations', memory=memory, min_size=1))


# Devices whose memory the host cannot touch: memory, copies and chains are others there, and kernels on the GPU.
discrete = on('discrete', 'discrete', 'second-memory')
gpu = on('cuda-emulated', binary / 'emulated')
all_at_once = ['adamw', 'clip', 'recompute', 'accumulate']
dropout = use('lora', rank=2, alpha=4, targets='all-linear', dropout=0.2)


def table():
    print(f'{runs} commands; instructions by segment: {dict(segments)}')
    for (op, dtype), x in sorted(worst.items()):
        print(f'  {op:28} {dtype:5} {x["outputs"]:8} outputs {x["numbers"]:10} numbers  {x["worst"]:.3f} of the bound  {x["at"]}')
    check(not without, f'ops without a reference: {dict(without)}')
