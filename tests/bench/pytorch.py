#!/usr/bin/env python3
"""Whole training steps beside PyTorch on the CPU: the same model, rows, steps and dtype; and LoRA and QLoRA beside PEFT and bitsandbytes.

Usage: PYTHON tests/bench/pytorch.py GALLEY [only=CASE,…] [dtype=f32,bf16] [rounds=3] [steps=8] [threads=2] [model=DIR] [compile=yes] [out=FILE]

PYTHON has torch, transformers, peft, bitsandbytes, accelerate and safetensors. Without `only` all cases run but those that begin with `tiny`, which are there to try
this script. Models have random weights in the shape of the case; model=DIR is a folder in Hugging Face's format for the cases lora and qlora. Every step takes the same
rows.

PyTorch (tests/bench/pytorch_peer.py) has fused attention and fused AdamW, autocast in bf16, and settings of malloc that keep memory: without them, page faults cost it
half its speed. compile=yes takes torch.compile beside that. The weights of LoRA's and QLoRA's models are in the dtype of the case; QLoRA is NF4 with double
quantization. A busy machine distorts the ratio: threads of PyTorch wait for each other without rest.

In the first round the losses of all steps are compared: both sides have to have computed the same, within BOUNDS; if they have not, no time is printed. Rounds run the
sides in turn, the other one first each time. The table has medians over the rounds of a run's median step, without its first two, and the ratio of each round."""
import json
import os
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile

GPT2 = dict(model_type='gpt2', vocab_size=50304, n_positions=1024, n_embd=768, n_layer=12, n_head=12, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
LLAMA = dict(model_type='llama', vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
             max_position_embeddings=2048, rope_parameters=dict(rope_type='default', rope_theta=100000.0), rms_norm_eps=1e-5, tie_word_embeddings=True)
TINY = dict(LLAMA, vocab_size=320, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1)
# name: shape, what is trained, rows, length
CASES = {
    'gpt2-4x64': (GPT2, 'full', 4, 64),
    'gpt2-1x512': (GPT2, 'full', 1, 512),
    'llama-4x64': (LLAMA, 'full', 4, 64),
    'llama-1x512': (LLAMA, 'full', 1, 512),
    'lora': (LLAMA, 'lora', 1, 512),
    'qlora': (LLAMA, 'qlora', 1, 512),
    'tiny': (TINY, 'full', 2, 32),
    'tiny-lora': (TINY, 'lora', 2, 32),
    'tiny-qlora': (TINY, 'qlora', 2, 32),
}
# How far the loss of a step may be from the other side's, as a share. In F32 only the order of sums differs, but AdamW makes whole steps of gradients that are
# rounding alone; in BF16 products round to 8 bits at other places.
BOUNDS = {'f32': 1e-5, 'bf16': 5e-3}
KEEPS_MEMORY = dict(MALLOC_MMAP_MAX_='0', MALLOC_TRIM_THRESHOLD_='100000000000', MALLOC_TOP_PAD_='268435456')
peer = pathlib.Path(__file__).resolve().with_name('pytorch_peer.py')


class Options:
    def __init__(self, words):
        given = dict(x.split('=', 1) for x in words[1:])
        unknown = set(given) - {'only', 'dtype', 'rounds', 'steps', 'threads', 'model', 'compile', 'out'}
        if not words or unknown:
            sys.exit(f'{__doc__}\n{unknown or ""}')
        self.galley = pathlib.Path(words[0]).resolve()
        self.cases = given['only'].split(',') if 'only' in given else [x for x in CASES if not x.startswith('tiny')]
        self.dtypes = given.get('dtype', 'f32,bf16').split(',')
        self.rounds, self.steps, self.threads = (int(given.get(k, v)) for k, v in (('rounds', 3), ('steps', 8), ('threads', 2)))
        self.model = pathlib.Path(given['model']).resolve() if 'model' in given else None
        self.compiled, self.out = given.get('compile') == 'yes', given.get('out')
        if set(self.cases) - set(CASES) or set(self.dtypes) - set(BOUNDS):
            sys.exit(f'there are the cases {", ".join(CASES)}, in {", ".join(BOUNDS)}')
        if self.rounds < 1 or self.steps < 3:
            sys.exit('it takes a round at least, and 3 steps, of which the first two do not count')


def run(words, environment):
    """What it printed, and the peak of its resident memory in GiB."""
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen([str(x) for x in words], stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **environment})
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        said = out.read().decode(errors='replace')
    if child.returncode:
        sys.exit(f'{" ".join(map(str, words))}\n{said[-3000:]}')
    return said, usage.ru_maxrss / 2 ** 20


def recipe(folder, kind, dtype, steps):
    """On what pytorch_peer.py has made in `folder`."""
    amp = 'use "amp" { compute = "bf16" }, ' if dtype == 'bf16' else ''
    bits = 'use "quantize-nf4" { double = true }, ' if kind == 'qlora' else ''
    lora = '' if kind == 'full' else f'use "lora" {{ path = "{folder}/adapter" }}, '
    return (f'return recipe {{\n  model = model {{ path = "{folder}/model" }}, data = data.batch {{ path = "{folder}/batch.safetensors" }},\n'
            f'  steps = {steps}, seed = 1, save = {{ every = 0, final = false }}, {amp}{bits}{lora}\n'
            '  use "clip" { norm = 1.0 }, use "adamw" { lr = 1e-4, weight_decay = 0.1, decay_on = "all" },\n}\n')


class Side:
    """One of those that are timed: runs its steps, and keeps what it said."""

    def __init__(self, name, words, environment):
        self.name, self.words, self.environment, self.seconds, self.resident, self.losses = name, words, environment, [], [], None

    def step(self):
        losses, seconds, resident = self.measured()
        if self.losses is None:
            self.losses = losses
        self.seconds.append(statistics.median(seconds[2:]))
        self.resident.append(resident)


class Ours(Side):
    def measured(self):
        with tempfile.TemporaryDirectory() as out:
            _, resident = run([*self.words, '--out', f'{out}/run'], self.environment)
            lines = [json.loads(x) for x in pathlib.Path(out, 'run', 'metrics.jsonl').read_text().splitlines()]
        steps = [x for x in lines if 'loss' in x]
        return [x['loss'] for x in steps], [x['seconds'] for x in steps], resident


class Theirs(Side):
    def measured(self):
        said, resident = run(self.words, self.environment)
        told = json.loads(said.splitlines()[-1])
        return told['losses'], told['seconds'], resident


def sides_of(options, folder, kind, dtype):
    threads = dict(OMP_NUM_THREADS=str(options.threads))
    (folder / 'recipe.lua').write_text(recipe(folder, kind, dtype, options.steps))
    train = [sys.executable, peer, 'train', folder, kind, dtype, options.steps, options.threads]
    sides = [Ours('Galley', [options.galley, 'train', folder / 'recipe.lua'], threads), Theirs('PyTorch', train, {**threads, **KEEPS_MEMORY})]
    if options.compiled:
        sides.append(Theirs('compiled', [*train, 'compile'], {**threads, **KEEPS_MEMORY}))
    return sides


def apart(ours, theirs):
    """The largest difference of the losses of a step, as a share."""
    if len(ours) != len(theirs) or not ours:
        return float('inf')
    return max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))


def measure(options, name, dtype, scratch):
    """A line of the table."""
    shape, kind, rows, length = CASES[name]
    folder = scratch / f'{name}-{dtype}'
    folder.mkdir()
    (folder / 'shape.json').write_text(json.dumps(shape))
    run([sys.executable, peer, 'make', folder, kind, dtype, rows, length, *([options.model] if options.model and kind != 'full' else [])], {})
    ours, *others = sides = sides_of(options, folder, kind, dtype)
    worst = 0.0
    for turn in range(options.rounds):
        for side in sides if turn % 2 == 0 else sides[::-1]:
            side.step()
        for other in others if turn == 0 else []:
            off = apart(ours.losses, other.losses)
            if not off <= BOUNDS[dtype]:
                sys.exit(f'{name}, {dtype}: {other.name} does not compute the same: losses differ by {off:.1e}, {BOUNDS[dtype]:.0e} is allowed\n'
                         f'Galley   {ours.losses}\n{other.name:8} {other.losses}')
            worst = max(worst, off)
        fallen = ours.losses[0] - ours.losses[-1]
        if not fallen > 0:
            sys.exit(f'{name}, {dtype}: nothing was trained: the loss goes from {ours.losses[0]} to {ours.losses[-1]}')
    speed = {s.name: rows * length / statistics.median(s.seconds) for s in sides}
    memory = {s.name: statistics.median(s.resident) for s in sides}
    best = max(others, key=lambda s: speed[s.name])  # of eager and compiled
    ratios = [b / a for a, b in zip(ours.seconds, best.seconds)]
    def columns(of, digits):
        return f'{of[ours.name]:.{digits}f} | {of[best.name]:.{digits}f} | {of[ours.name] / of[best.name]:.2f}'

    theirs = f'{name}, beside compiled' if best.name == 'compiled' else name
    return f'| {theirs} | {dtype} | {columns(speed, 0)} | {", ".join(f"{x:.2f}" for x in ratios)} | {columns(memory, 2)} | {worst:.1e} |'


def processor():
    names = [x.split(':', 1)[1].strip() for x in pathlib.Path('/proc/cpuinfo').read_text().splitlines() if x.startswith('model name')]
    return f'{names[0] if names else platform.machine()}, {len(os.sched_getaffinity(0))} processors'


def main():
    options = Options(sys.argv[1:])
    versions, _ = run([sys.executable, peer, 'versions'], {})
    lines = [f'    PYTHON tests/bench/pytorch.py GALLEY {shlex.join(sys.argv[2:])}'.rstrip(), '',
             f'{processor()}, load {os.getloadavg()[0]:.1f} at the start; {versions.splitlines()[-1]}; {options.threads} threads, medians of {options.rounds} rounds, '
             f'{options.steps} steps a run.', '',
             '| case | dtype | Galley, tokens/s | PyTorch | ratio | by round | resident, GiB | PyTorch | ratio | losses apart by |', '|' + '---|' * 10]
    print('\n'.join(lines), flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        for name in options.cases:
            for dtype in options.dtypes:
                lines.append(measure(options, name, dtype, pathlib.Path(scratch)))
                print(lines[-1], flush=True)
    if options.out:
        pathlib.Path(options.out).write_text('\n'.join(lines) + '\n')


if __name__ == '__main__':
    main()
