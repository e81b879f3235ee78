#!/usr/bin/env python3
# label: all
"""More strategies as plugins that are built with the installed SDK alone: what of the ABI they use, others use too. Noise on gradients, APOLLO,
ReLoRA, and ops from a table."""
import functools
import shutil

from galley_test import case, check, finish, fresh_folder, from_config, recipe, source, train, use
from sdk_kit import DATA, build_together, in_every_segment, llama, outside, states_of, tensors, write_text

fresh_folder()
write_text()
BRIDGES = {'bridge-a': 'sine', 'bridge-b': 'cube'}


def bridge(id):
    """The source of a bridge under this id."""
    folder = outside / f'source-{id}'
    shutil.copytree(source / 'tests' / 'sdk' / 'bridge', folder)
    manifest = folder / 'plugin.toml'
    manifest.write_text(manifest.read_text().replace('BRIDGE', id).replace('FIRST', BRIDGES[id]))
    return folder


@functools.cache
def built():
    """Where all of these plugins lie."""
    names = ['gradient-noise', 'apollo', 'relora']
    return build_together({**{name: source / 'tests' / 'sdk' / name for name in names}, **{id: bridge(id) for id in BRIDGES}}, {id: f'BRIDGE="{id}"' for id in BRIDGES})


@case
def gradients_are_changed():
    """Gradient noise before the built-in optimizers: no noise changes no byte, noise has its variance, and nothing holds a copy of a gradient."""
    plugins = built() / 'gradient-noise'
    model = from_config('gpt2', vocab_size=61, n_positions=16, n_embd=48, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)

    def trains(name, optimizer, eta=None, norm=None, **more):
        noise = [use('gradient-noise', eta=eta)] if eta is not None else []
        clip = [use('clip', norm=norm)] if norm else []
        path = recipe(f'{name}.lua', model, 'data.random {}', *noise, optimizer, *clip, batch=2, length=16, seed=5, **more)
        return train(path, name, '--plugin-path', plugins)

    adamw = use('adamw', lr=1e-2)
    plain, silent = trains('noise-none', adamw, steps=3), trains('noise-zero', adamw, eta=0, steps=3)
    check(plain.bytes() == silent.bytes(), 'noise of variance 0 changes the model')
    planned = [r.memory['classes']['host']['planned'] for r in (plain, silent)]
    check(planned[1] <= planned[0] + 4096, f'planned with gradient noise {planned[1]}, without {planned[0]} bytes')
    # One step of plain SGD: the difference over the rate is the noise itself, whether the gradients are clipped or not.
    for norm in (None, 0.1):
        sgd = use('sgd', lr=1.0)
        quiet, noisy = trains(f'quiet-{norm}', sgd, norm=norm, steps=1), trains(f'noisy-{norm}', sgd, eta=0.01, norm=norm, steps=1)
        a, b = tensors(quiet), tensors(noisy)
        noise = [y - x for name in sorted(a) for x, y in zip(a[name], b[name])]
        mean = sum(noise) / len(noise)
        deviation = (sum(x * x for x in noise) / len(noise) - mean * mean) ** 0.5
        check(abs(mean) < 0.002 and abs(deviation - 0.1) < 0.002, f'clip {norm}: noise of mean {mean} and deviation {deviation}, not 0 and 0.1')


@case
def optimizers_in_small_spaces():
    """APOLLO: its states have the projection's shape; what it leaves to adamw_step is that op's work."""
    plugins = ['--plugin-path', built() / 'apollo']
    entries = dict(batch=2, length=16, seed=3, steps=8, validate=dict(every=4, start=True), save=dict(every=4))
    made = train(recipe('apollo.lua', llama(), DATA, use('apollo', lr=3e-3, rank=4, every=5), use('clip', norm=1.0), **entries), 'apollo', *plugins, '--reference')
    made.check_memory('apollo')
    validated = in_every_segment(made, plugins, 'apollo')
    check(validated[-1] < validated[0] - 0.3, f'apollo: validation went from {validated[0]} to {validated[-1]} only')
    state = states_of(made)
    moments = {x: x.rsplit('.exp_avg', 1)[0] for x in state if '.exp_avg' in x}
    check(len(moments) == 2 * 21, f'apollo: {sorted(moments)}')
    for name, weight in moments.items():
        shape, of = state[name][1], state[weight][1]
        check(shape == ([4, max(of)] if len(of) == 2 else of), f'apollo: {name} is {shape}, its parameter {of}')


@case
def adapters_are_merged_by_the_update():
    """ReLoRA: weights without gradients, which the update writes. A merge changes no loss, and leaves what an adapter begins with."""
    plugins = ['--plugin-path', built() / 'relora']

    def trains(name, every, steps):
        path = recipe(f'{name}.lua', llama(), DATA, use('relora', rank=4, every=every), use('adamw', lr=1e-2), batch=2, length=16, seed=3, steps=steps,
                      validate=dict(every=4, start=True), save=dict(every=4))
        made = train(path, name, *plugins, '--reference')
        made.check_memory(name)
        return made

    merged, apart = trains('relora-merged', 4, 4), trains('relora-apart', 100, 4)
    validated = [in_every_segment(r, plugins, r.path.name) for r in (merged, apart)]
    check(merged.steps == apart.steps, 'relora: steps before the first merge differ')
    check(abs(validated[0][-1] - validated[1][-1]) < 1e-5, f'relora: merging changes the validation from {validated[1][-1]} to {validated[0][-1]}')
    saved = [tensors(r) for r in (merged, apart)]
    check(saved[0].keys() == saved[1].keys(), f'relora: saved {sorted(saved[0].keys() ^ saved[1].keys())}')
    check(max(abs(x - y) for k in saved[0] for x, y in zip(saved[0][k], saved[1][k])) < 1e-6, 'relora: the saved models differ')
    after = states_of(merged)
    adapters = [k for k in after if k.endswith('.B') and k.startswith('relora.')]
    check(len(adapters) == 14, f'relora: {sorted(after)}')
    for b in adapters:
        zero = [k for k in (b, *(f'{b[:-1]}{part}{kind}' for part in 'AB' for kind in ('.exp_avg', '.exp_avg_sq'))) if any(after[k][2])]
        check(not zero, f'relora: {zero} are not zero after a merge')
        check(any(after[b[:-1] + 'A'][2]), f'relora: {b[:-1]}A is zero')
    longer = trains('relora-longer', 4, 8)
    fell = in_every_segment(longer, plugins, 'relora-longer')
    check(fell[-1] < fell[0] - 0.1 and len(fell) == 3, f'relora: validations {fell}')


@case
def ops_from_a_table():
    """Two plugins of one source, each with one set of functions for all of its ops, kernels and strategies."""
    plugins = [x for id in BRIDGES for x in ('--plugin-path', built() / id)]
    losses = []
    for name, uses in (('one', ('bridge-b.half',)), ('all', ('bridge-a.sine', 'bridge-b.cube', 'bridge-b.half')),
                       ('turned', ('bridge-b.half', 'bridge-b.cube', 'bridge-a.sine'))):
        path = recipe(f'bridge-{name}.lua', llama(), DATA, *(use(x) for x in uses), use('adamw', lr=1e-2), batch=2, length=16, seed=3, steps=2, validate=dict(every=2))
        made = train(path, f'bridge-{name}', *plugins, *(['--reference'] if name == 'all' else []))
        if name == 'all':
            in_every_segment(made, plugins, f'bridge-{name}')
        losses.append(made.steps)
    check(losses[0] != losses[1] and losses[1] == losses[2], f'ops from a table: {losses}')


finish()
