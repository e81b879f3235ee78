#!/usr/bin/env python3
"""Configurations drawn at random, beside transformers, PEFT and bitsandbytes: of every family, with adapters and in few bits.

Usage: drawn.py [--galley PROGRAM] [--seed N] [--cases N] [--only FAMILY] [--kind KIND] [--case N] [--keep DIR]

In an environment with torch, transformers, accelerate, peft, bitsandbytes and safetensors. Without --seed, each run draws others, and prints its seed; --seed N --case K
runs the K-th case of such a run alone, and --keep leaves its files. Kinds:

  model    a new model and batch: loss, gradients, ten steps of AdamW, and the folder that is saved, as transformers opens it
  fixture  a model of tests/fixtures/models, trained for two steps, saved, and opened
  copy     a folder that is exported as it is, of encoders without a head: opened, with the same numbers
  peft     an adapter that PEFT has made, continued: loss and gradients, and then saved, read by PEFT, and merged
  begun    an adapter that a recipe begins: saved, read by PEFT, and merged
  bits     a folder that is saved in 4 or 8 bit, as transformers opens and runs it
  theirs   a folder that transformers has quantized, as this project reads it

"Right" is float64, with transformers' own casts to float32 lifted; float32 is its own in float32, and, where that is not enough, at worst of six. A case holds where the loss differs by no more than max(1e-6, 8 × that of
float32), each gradient by max(1e-5, 8 ×) of max(its norm, 1e-3 of all), the losses of AdamW by max(2e-5, 20 ×), and what is saved has the loss that it should have.
What a recipe is refused for is counted apart, as is what the others refuse to make. Exit code 1 if a case is wrong."""
import argparse
import collections
import copy
import json
import logging
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import traceback
import warnings

warnings.filterwarnings('ignore')
logging.disable(logging.WARNING)
os.environ.setdefault('TRANSFORMERS_VERBOSITY', 'error')
import torch

import drawn_models as drawn
from drawn_models import architecture, batch_of, families, gradients_of, loss_of, model_of, open_folder, task_of, task_of_model, twin

root = pathlib.Path(__file__).resolve().parents[2]
fixtures = root / 'tests' / 'fixtures' / 'models'


class Refused(Exception):
    """By this project, by name."""


class NotComparable(Exception):
    """The others do not make it, or do not read what they have made."""


class Wrong(Exception):
    pass


# ---- The program ---------------------------------------------------------------------------------------------------------------------


def lua(value):
    if isinstance(value, bool):
        return 'true' if value else 'false'
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return '{ ' + ', '.join(map(lua, value)) + ' }'
    if isinstance(value, dict):
        return '{ ' + ', '.join(f'["{k}"] = {lua(v)}' for k, v in value.items()) + ' }'
    return json.dumps(str(value))


def use(name, **options):
    return f'use "{name}" {lua(options)}'


class Work:
    """A folder for one case, and the program in it."""

    def __init__(self, path, r):
        self.path, self.threads = path, r.choice((1, 2, 3))

    def __truediv__(self, name):
        return self.path / name

    def recipe(self, name, base, *uses, steps=2):
        lines = [f'model = model {{ path = {lua(base)} }}', f'data = data.batch {{ path = {lua(self / "base" / "batch.safetensors")} }}', f'steps = {steps}', 'seed = 1', *uses]
        (self / f'{name}.lua').write_text('return recipe {\n' + ''.join(f'  {x},\n' for x in lines) + '}\n')
        return self / f'{name}.lua'

    def run(self, *words):
        done = subprocess.run([arguments.galley, *map(str, words)], capture_output=True, text=True, errors='replace', cwd=self.path, timeout=300,
                              env=dict(os.environ, OMP_NUM_THREADS=str(self.threads)))
        if done.returncode == 2:
            raise Refused(next((x for x in done.stderr.splitlines() if x.strip()), '?').replace(str(self.path), 'DIR'))
        if done.returncode:
            raise Wrong(f'galley {words[0]}: exit code {done.returncode}: {done.stderr.strip()[-300:]}')
        return done.stdout

    def gradients(self, recipe):
        out = self / 'gradients.safetensors'
        self.run('gradients', recipe, '--out', out)
        return read(out)

    def losses(self, recipe, out):
        self.run('train', recipe, '--out', self / out)
        return [x['loss'] for x in map(json.loads, (self / out / 'metrics.jsonl').read_text().splitlines()) if 'loss' in x]


def read(file):
    from safetensors.torch import load_file
    return load_file(file)


# ---- What has to hold ----------------------------------------------------------------------------------------------------------------


DRAWS = 6


def rounding(model, numbers_of):
    """How far float32 is from float64, each number as a share, at worst over copies of the model whose weights differ in the last bit. One run of float32 may be
    lucky: where an activation has a kink, or the logits are much larger than the loss, what rounding does is another thing each time."""
    worst = 0.0
    for draw in range(DRAWS):
        random = torch.Generator().manual_seed(draw)
        other = copy.deepcopy(model)
        with torch.no_grad():
            for p in other.parameters():
                p.mul_(1 + 6e-8 * torch.randn(p.shape, generator=random))
        right = numbers_of(twin(other))
        worst = max([worst, *(abs(a - b) / max(abs(b), 1e-9) for a, b in zip(numbers_of(other), right))])
    return worst


def expect_near(what, ours, right, narrow, least, times, otherwise=lambda: 0.0):
    """`otherwise`: what float32 is off by at worst, asked where one run of it is not enough."""
    error = abs(ours - right) / max(abs(right), 1e-9)
    bound = max(least, times * abs(narrow - right) / max(abs(right), 1e-9))
    if not error <= bound:
        bound = max(bound, times * otherwise())
    if not error <= bound:
        raise Wrong(f'{what}: {ours:.7f}, right {right:.7f}, float32 {narrow:.7f} (off by {error:.1e}, bound {bound:.1e})')


def expect_gradients(ours, right, narrow, called=lambda name: name):
    total = sum(g.norm().item() ** 2 for g in right.values()) ** .5
    worst = []
    seen = set()
    for name, g in right.items():
        mine = ours.get('grad.' + called(name))
        seen.add('grad.' + called(name))
        if mine is None:
            raise Wrong(f'no gradient of {called(name)}')
        size = max(g.norm().item(), 1e-3 * total, 1e-30)
        if mine.shape != g.shape:
            raise Wrong(f'gradient of {name}: {tuple(mine.shape)}, not {tuple(g.shape)}')
        error, bound = (mine.double() - g).norm().item() / size, max(1e-5, 8 * (narrow[name].double() - g).norm().item() / size)
        if not error <= bound:
            worst.append((error / bound, f'gradient of {name} off by {error:.1e}, bound {bound:.1e}'))
    more = sorted(x for x in ours if x.startswith('grad.') and x not in seen)
    if more:
        raise Wrong(f'gradients of what is frozen: {more[:3]}')
    if worst:
        raise Wrong(f'{max(worst)[1]} ({len(worst)} of {len(right)} gradients)')


def in_files(model, name):
    """What a parameter is called in files."""
    return name.replace('lm_head.', 'embed_out.') if model.config.model_type == 'gpt_neox' else name


def expect_folder(folder, like, batch, task, right, what, bound=2e-5):
    model, wrong = open_folder(folder, like)
    if wrong:
        raise Wrong(f'{what}: transformers opens the folder with {wrong}')
    loss = loss_of(twin(model), batch, task).item()
    if not abs(loss - right) <= bound * max(abs(right), 1e-3):
        raise Wrong(f'{what}: as transformers opens it {loss:.7f}, right {right:.7f}')


# ---- Kinds ---------------------------------------------------------------------------------------------------------------------------


def new_model(r, work, kind):
    task = task_of(r, kind)
    try:
        model = model_of(r, kind, task, r.randint(40, 120))
        batch = batch_of(r, model, task)
        drawn.save(model, batch, work / 'base')
        with torch.no_grad():
            loss_of(model, batch, task)
    except Exception as e:
        raise NotComparable(f'transformers: {type(e).__name__}: {str(e)[:120]}') from e
    return model, batch, task


def of_model(r, work, kind):
    model, batch, task = new_model(r, work, kind)
    double = twin(model)
    (right, gradients), (narrow, narrow_gradients) = gradients_of(double, batch, task), gradients_of(model, batch, task)
    lr, decay = r.choice((1e-3, 1e-2)), r.choice((0.0, .01))
    recipe = work.recipe('recipe', work / 'base', use('clip', norm=1.0), use('adamw', lr=lr, weight_decay=decay, decay_on='all'), steps=10)
    ours = work.gradients(recipe)
    begun = copy.deepcopy(model)  # AdamW changes the other one
    expect_near('loss', ours['loss'].item(), right, narrow, 1e-6, 8, lambda: rounding(begun, lambda m: [loss_of(m, batch, task).item()]))
    # What the loss does not depend on has a gradient of zeros here.
    ours = {k: v for k, v in ours.items() if k.removeprefix('grad.') in {in_files(model, x) for x in gradients} or v.abs().max() > 0}
    expect_gradients(ours, gradients, narrow_gradients, lambda name: in_files(model, name))
    losses = work.losses(recipe, 'run')
    rights, narrows = adamw_losses(double, batch, task, lr, decay), adamw_losses(model, batch, task, lr, decay)
    error32 = max(abs(a - b) / abs(b) for a, b in zip(narrows, rights))
    error = max(abs(a - b) / abs(b) for a, b in zip(losses, rights))
    if not error <= max(2e-5, 20 * error32):
        error32 = max(error32, rounding(begun, lambda m: adamw_losses(m, batch, task, lr, decay)))
    for step, (a, b) in enumerate(zip(losses, rights)):
        if not abs(a - b) <= max(2e-5, 20 * error32) * abs(b):
            raise Wrong(f'AdamW, step {step + 1}: {a:.7f}, right {b:.7f} (float32 is off by {error32:.1e})')
    with torch.no_grad():
        expect_folder(work / 'run' / 'model', model, batch, task, loss_of(double, batch, task).item(), 'saved', max(1e-4, 40 * error32))
    return task


def adamw_losses(model, batch, task, lr, decay):
    return drawn.adamw(model, batch, task, 10, lr, decay)


def of_fixture(r, work, kind):
    names = sorted(x.name for x in fixtures.iterdir() if (x / 'config.json').exists() and json.loads((x / 'config.json').read_text())['model_type'] == kind)
    if not names:
        raise NotComparable('no fixture')
    name = r.choice(names)
    shutil.copytree(fixtures / name, work / 'base')
    batch = {k: v if v.is_floating_point() else v.long() for k, v in read(work / 'base' / 'batch.safetensors').items()}
    recipe = work.recipe('recipe', work / 'base', use('adamw', lr=1e-2))
    work.losses(recipe, 'run')
    again = work.recipe('again', work / 'run' / 'model', use('adamw', lr=1e-2))
    right = work.gradients(again)['loss'].item()
    model, wrong = open_folder(work / 'run' / 'model', architecture(work / 'run' / 'model'))
    if wrong:
        raise Wrong(f'{name}: transformers opens the folder with {wrong}')
    task = task_of_model(model)
    loss = loss_of(twin(model), batch, task).item()
    if not abs(loss - right) <= 2e-5 * right:
        raise Wrong(f'{name}: as transformers opens it {loss:.7f}, here {right:.7f}')
    return name


def copied(r, work, kind):
    if kind in drawn.encoders or kind in ('t5', 'mt5'):
        model, task = drawn.encoder_of(r, kind, r.randint(40, 120)), 'feature-extraction'
        model.save_pretrained(work / 'base')
    else:
        model, _, task = new_model(r, work, kind)
    work.run('export', work / 'base', '--out', work / 'copy')
    again, wrong = open_folder(work / 'copy', model)
    there = again.state_dict()
    # What a text is embedded by is the last hidden state: BERT's pooler is no part of that, and is not kept.
    wrong = [x for x in wrong if 'pooler.' not in x]
    wrong += [f'{name} is another' for name, x in model.state_dict().items() if name not in there or not (torch.equal(x, there[name]) or name.startswith('pooler.'))]
    if wrong:
        raise Wrong(f'transformers opens the folder with {wrong[:3]}')
    return task


def verdict_of(kind, family, r, path):
    import drawn_adapters
    import drawn_bits
    cases = {'model': of_model, 'fixture': of_fixture, 'copy': copied, 'peft': drawn_adapters.of_peft, 'begun': drawn_adapters.begun, 'bits': drawn_bits.saved, 'theirs': drawn_bits.theirs}
    try:
        return 'held', cases[kind](r, Work(path, r), family)
    except Refused as e:
        return 'refused by name', str(e)
    except NotComparable as e:
        return 'not comparable', str(e)
    except Wrong as e:
        return 'wrong', str(e)
    except Exception as e:  # of this script, or of what the others make of what was saved here: to be looked at
        last = traceback.extract_tb(e.__traceback__)[-1]
        return 'wrong', f'{type(e).__name__}: {str(e)[:200]} ({pathlib.Path(last.filename).name}:{last.lineno})'


kinds = {'model': 8, 'fixture': 2, 'copy': 1, 'peft': 7, 'begun': 7, 'bits': 3, 'theirs': 2}


def main():
    torch.set_num_threads(1)
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(10**6)
    print(f'seed {seed}', flush=True)
    counts, refusals, wrong = collections.Counter(), collections.Counter(), []
    for case in [arguments.case] if arguments.case is not None else range(arguments.cases):
        r = random.Random(f'{seed}/{case}')
        kind = arguments.kind or r.choices(list(kinds), kinds.values())[0]
        # Each family in turn, so that a short run has them all.
        family = arguments.only or families[case % len(families)]
        torch.manual_seed(r.randrange(2**31))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(arguments.keep or folder).resolve()
            path.mkdir(parents=True, exist_ok=True)
            verdict, text = verdict_of(kind, family, r, path)
        counts[kind, verdict] += 1
        if verdict == 'refused by name':
            refusals[text] += 1
        if verdict == 'wrong':
            wrong.append(case)
        print(f'{case:4} {kind:8} {family:12} {verdict}: {text}', flush=True)
    verdicts = 'held', 'refused by name', 'wrong', 'not comparable'
    print(f'\n{"":10}{"tried":>8}' + ''.join(f'{x:>17}' for x in verdicts))
    for kind in (*kinds, 'all'):
        of = [sum(n for (k, v), n in counts.items() if v == x and kind in (k, 'all')) for x in verdicts]
        if sum(of):
            print(f'{kind:10}{sum(of):8}' + ''.join(f'{n:17}' for n in of))
    for text, n in refusals.most_common():
        print(f'refused {n} times: {text}')
    options = ''.join(f' --{x} {v}' for x in ('only', 'kind') if (v := getattr(arguments, x)))
    for case in wrong:
        print(f'wrong: {sys.argv[0]} --seed {seed}{options} --case {case} --keep DIR')
    sys.exit(1 if wrong else 0)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument('--galley', default=str(root / 'build' / 'release' / 'galley'))
parser.add_argument('--seed', type=int)
parser.add_argument('--cases', type=int, default=100)
parser.add_argument('--only', choices=families)
parser.add_argument('--kind', choices=kinds)
parser.add_argument('--case', type=int)
parser.add_argument('--keep')
if __name__ == '__main__':
    sys.modules['drawn'] = sys.modules['__main__']  # the kinds in files of their own read it
    arguments = parser.parse_args()
    arguments.galley = str(pathlib.Path(arguments.galley).resolve())
    main()
