#!/usr/bin/env python3
"""A device whose memory the host cannot touch (tests/plugins/discrete) trains to the bytes that the processor gives.

With --table it times copies beside kernels instead, for links from slow to fast, and prints what tests/results/overlap.md holds."""
import shutil
import sys

from discrete_kit import discrete, plugins, same, traced
from galley_test import check, every, finish, fresh_folder, from_config, plan, recipe, run, source, train, use

fresh_folder()
model = from_config('gpt2', vocab_size=97, n_positions=32, n_embd=32, n_layer=4, n_head=4)
text = f'data.text {{ files = {{ {", ".join(repr(str(x)) for x in sorted((source / "models").glob("families/*.lua")))} }}, tokenizer = "bytes", validation = 0.2 }}'
adamw, clip = use('adamw', lr=1e-2), use('clip', norm=0.5)
entries = dict(batch=2, length=16, steps=4, seed=4, save=dict(every=2, keep=2))


def trains_alike(name, *uses, data='data.random {}', model=model, **more):
    path = recipe(f'{name}.lua', model, data, *uses, **{**entries, **more})
    run('plan', path, '--check', *discrete)
    made = [train(path, f'{name}-{where}', *flags) for where, flags in {'cpu': plugins, 'discrete': discrete}.items()]
    same(name, *made, 'model', 'adapter', 'state')
    made[1].check_memory(name)
    check(every(made[1].memory['classes'][c]['planned'] > 0 for c in ('device', 'pinned')), f'{name}: {made[1].memory["classes"]}')
    return made


def strategies():
    full = trains_alike('full', clip, adamw, data=text, model=from_config('gpt2', vocab_size=257, n_positions=32, n_embd=32, n_layer=2, n_head=4),
                        validate=dict(every=2))
    check(sum('validation_loss' in x for x in full[1].lines) == 2, 'full: there are not two validations')
    said = [run('sample', x.path, '--prompt', 'local', '--tokens', 9, *plugins).stdout for x in full]
    check(said[0] == said[1] and len(said[0]) > 9, f'full: the two devices continue a text otherwise: {said}')
    trains_alike('lora', use('lora', rank=2, alpha=4, targets='all-linear', dropout=0.1), adamw)
    trains_alike('dora', use('lora', rank=2, alpha=4, dora=True, dropout=0.1), adamw)
    trains_alike('pissa', use('lora', rank=2, init='pissa'), adamw)
    trains_alike('vera', use('vera', rank=4, save_projection=False), adamw)
    trains_alike('stored', use('bf16-storage', parameters=['*.c_fc.weight'], states=['*']), clip, adamw)
    trains_alike('stacked', use('recompute', every=2), use('accumulate', steps=3), clip, adamw)


def other_classes():
    """Parameters and states that rest where nothing computes: in memory of the host, and in a file that has no addresses."""
    normal = train(recipe('normal.lua', model, 'data.random {}', use('accumulate', steps=2), clip, adamw, **entries), 'normal')
    for name, memory, more in (('pinned', 'pinned', ()), ('file', 'file', ()), ('later', 'file', (use('recompute', every=1),))):
        placed = use('second-memory', memory=memory, parameters=['*.c_fc.weight'], states=['*'])
        path = recipe(f'{name}.lua', model, 'data.random {}', use('accumulate', steps=2), *more, clip, placed, adamw, **entries)
        run('plan', path, '--check', *discrete)
        made = train(path, name, *discrete)
        same(name, normal, made, 'model')
        for step in (2, 4):
            state = f'state/step-{step:08}/state.safetensors'
            check(normal.bytes(state) == made.bytes(state), f'{name}: {state} differs')
        made.check_memory(name)
        planned = made.memory['classes'][memory]['planned']
        check(planned >= 8 * made.memory['trainable'], f'{name}: {planned} bytes in {memory}')
    # Frozen weights there: the host proves that they have not changed.
    lora = use('lora', rank=2, alpha=4, targets='all-linear')
    frozen = [train(recipe(f'frozen-{name}.lua', model, 'data.random {}', lora, clip, *more, adamw, **entries), f'frozen-{name}', *discrete)
              for name, more in (('here', ()), ('there', (use('second-memory', memory='file', parameters=['*.c_fc.weight']),)))]
    same('frozen weights in a file', *frozen, 'adapter')


def offloaded():
    """Saved tensors that rest elsewhere until backward reads them; what is recomputed from them, and what a budget makes of both."""
    with open('fast.toml', 'w') as file:
        file.write('link_bandwidth = 1e12\n')

    def made(name, *uses):
        path = recipe(f'offloaded-{name}.lua', model, 'data.random {}', *uses, clip, adamw, **{**entries, 'batch': 8, 'length': 32})
        run('plan', path, '--check', *discrete)
        out = train(path, f'offloaded-{name}', *discrete)
        out.check_memory(f'offloaded {name}')
        fast = plan(path, '--check', '--target', 'fast.toml', *discrete)['classes']
        return out, {k: v['planned'] for k, v in fast.items()}

    def away(memory, *patterns):
        return use('offload-activations', memory=memory, patterns=list(patterns), min_size=1)
    twice, recompute = use('accumulate', steps=2), use('recompute')
    normal, accumulated = made('none'), made('accumulated', twice)
    budget = normal[1]['device'] - 150000
    for memory in ('pinned', 'file'):
        for name, base, uses in (('all', normal, (away(memory, '*'),)), ('some', normal, (away(memory, '*.mlp.*'),)), ('twice', accumulated, (twice, away(memory, '*'))),
                                 ('before', normal, (away(memory, '*.attn*'), recompute)), ('behind', normal, (recompute, away(memory, '*'))),
                                 ('input', normal, (use('recompute', policy='input'), away(memory, '*'))),
                                 ('budget', normal, (use('recompute', budget=budget), away(memory, '*')))):
            x, planned = made(f'{name}-{memory}', *uses)
            who = f'offloaded {name} to {memory}'
            same(who, base[0], x, 'model')
            for step in (2, 4):
                state = f'state/step-{step:08}/state.safetensors'
                check(base[0].bytes(state) == x.bytes(state), f'{who}: {state} differs')
            there, gone = planned[memory] - base[1][memory], base[1]['device'] - planned['device']
            check(gone > 0 and there > 0, f'{who}: {there} bytes more there, {gone} fewer on the device')
            check(name not in ('all', 'some') or gone > 0.8 * there, f'{who}: {there} bytes more there, but {gone} fewer on the device')
            check(name != 'budget' or max(planned['device'], x.memory['classes']['device']['planned']) <= budget, f'{who}: {planned}, but {budget} is the budget')
    path = recipe('offloaded-wrong.lua', model, 'data.random {}', away('device', '*'), clip, adamw, **entries)
    said = run('plan', path, *discrete, code=2).stderr
    check("computes from the memory class 'device'" in said and "'pinned', 'file'" in said, f'offloaded to the device itself: {said}')


def table():
    """No link is so slow or fast that copies beside kernels take longer than copies that are waited for."""
    cases = {'nothing': (), 'states in the file': (use('second-memory', memory='file', states=['*']),),
             'saved tensors pinned': (use('offload-activations', memory='pinned', min_size=1),),
             'both, and recomputation': (use('second-memory', memory='file', states=['*']), use('recompute'), use('offload-activations', memory='pinned', min_size=1))}
    print('| what rests elsewhere | link, bytes/s | kernels, ms | copies in, ms | copies out, ms | together, ms | one by one / together | overlaps | planned = allocated, bytes |')
    print('|---|---|---|---|---|---|---|---|---|')
    for k, (case, uses) in enumerate(cases.items()):
        path = recipe(f'table-{k}.lua', model, 'data.random {}', *uses, clip, adamw, batch=8, length=32, steps=3, seed=4)
        for link in (1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11) if uses else (1e9,):
            with open('table.toml', 'w') as file:
                file.write(f'link_bandwidth = {link}\n')
            made, trace = traced(path, f'table-{k}-{link:.0f}', 'table.toml')
            made.check_memory(case)
            held = ', '.join(f"{x['planned']} {name}" for name, x in made.memory['classes'].items())
            overlaps = ', '.join(str(trace.together(*pair)) for pair in ((0, 1), (0, 2), (1, 2)))
            print(f'| {case} | {link:.0e} | {" | ".join(f"{x / 1e3:.2f}" for x in (*trace.busy, trace.whole))} | {sum(trace.busy) / trace.whole:.2f} | {overlaps} | {held} |')


def streams():
    """Updates of states in a file stream through small buffers, beside each other and beside kernels."""
    with open('slow.toml', 'w') as file:
        file.write('link_bandwidth = 4e6\n')  # parts of 4,000 bytes
    paths = [recipe(f'{name}.lua', model, 'data.random {}', clip, *more, adamw, batch=1, length=4, steps=3, seed=4)
             for name, more in (('here', ()), ('streamed', (use('second-memory', memory='file', states=['*']),)))]
    here = train(paths[0], 'here', *discrete, '--target', 'slow.toml')
    streamed, trace = traced(paths[1], 'streamed', 'slow.toml')
    same('streams', here, streamed, 'model')
    streamed.check_memory('streams')
    run('plan', paths[1], '--check', '--target', 'slow.toml', *discrete)
    planned = [x.memory['classes']['device'] for x in (here, streamed)]
    states = planned[0]['owners']['states']
    check(states >= 8 * here.memory['trainable'] and planned[1]['owners']['states'] <= 256, f'streams: {states} bytes of states')
    check(planned[0]['planned'] - planned[1]['planned'] > 0.9 * states, f'streams: states of {states} bytes, but {planned}')
    check(len(trace.spans[1]) >= 3 * states / 4000, f'trace: {len(trace.spans[1])} copies in')
    for a, b, what in ((0, 1, 'kernels beside copies in'), (0, 2, 'kernels beside copies out'), (1, 2, 'copies both ways')):
        check(trace.together(a, b) >= 20, f'trace: {what}: {trace.together(a, b)} times')
    check(trace.whole < 0.8 * sum(trace.busy), f'trace: {trace.whole} µs for work of {trace.busy}')
    for link in (1e3, 1e5, 1e7, 1e9, 1e11):
        with open('link.toml', 'w') as file:
            file.write(f'link_bandwidth = {link}\n')
        run('plan', paths[1], '--check', '--target', 'link.toml', *discrete)
        same(f'link of {link} bytes/s', here, train(paths[1], f'link-{link:.0f}', *discrete, '--target', 'link.toml'), 'model')


def streams_in_formats():
    """Parts of what is stored in formats are packed to the bytes that the whole is packed to, with random bits too."""
    with open('slower.toml', 'w') as file:
        file.write('link_bandwidth = 1e6\n')  # parts of 1,000 bytes
    momentum, blocks = use('sgd', lr=1e-2, momentum=0.9), use('bf16-storage', format='blocks', block=48, states=['*'])
    for name, packs, uses in (('blocks', 'momentum', (blocks, momentum)), ('weights', 'h.0', (use('amp', weights='bf16'), adamw))):
        made = []
        for memory in ('', 'file', 'pinned'):
            away = (use('second-memory', memory=memory, states=['*']),) if memory else ()
            path = recipe(f'in-{name}{memory}.lua', model, 'data.random {}', clip, *away, *uses, batch=1, length=4, steps=3, seed=4)
            flags = ('--target', 'slower.toml', *discrete)
            made.append(train(path, path[:-4], *flags))
            dump = run('plan', path, '--check', '--dump', 'place', *flags).stdout
            parts = sum(x.startswith('update[') and "'pack " in x and packs in x for x in dump.splitlines())
            made[-1].parts = parts
            made[-1].check_memory(f'{name} in {memory}')
        here = made[0]
        states = here.memory['classes']['device']['owners']['states']
        for x in made[1:]:
            same(f'{name} in parts', here, x, 'model')
            check(x.parts > 2 * here.parts > 0, f'{name}: {x.parts} parts of {here.parts} tensors')
            planned = [m.memory['classes']['device'] for m in (here, x)]
            check(planned[1]['owners']['states'] <= 256 and planned[0]['planned'] - planned[1]['planned'] > 0.9 * states,
                  f'{name}: states of {states} bytes, but {planned}')


def gradients():
    """Gradients that rest elsewhere from their last contribution until the update reads them, and between micro-batches."""
    away = use('second-memory', memory='file', gradients=['*'])
    tied = from_config('gpt2', vocab_size=97, n_positions=32, n_embd=32, n_layer=4, n_head=4, tie_word_embeddings=True)
    few = {**entries, 'steps': 2}  # --poison fills all memory behind each instruction, twice
    for name, uses in (('one', ()), ('three', (use('accumulate', steps=3),)), ('recomputed', (use('accumulate', steps=2), use('recompute'), use('amp', compute='bf16')))):
        paths = [recipe(f'gradients-{name}-{len(more)}.lua', tied, 'data.random {}', *uses, clip, *more, adamw, **few) for more in ((), (away,))]
        run('plan', paths[1], '--check', *discrete)
        here, there = (train(path, path[:-4], *discrete) for path in paths)
        same(f'gradients elsewhere, {name}', here, there, 'model')
        states = [x.bytes('state/step-00000002/state.safetensors') for x in (here, there)]
        check(states[0] == states[1], f'gradients elsewhere, {name}: the states differ')
        there.check_memory(f'gradients elsewhere, {name}')
        planned = [x.memory['classes']['device']['planned'] for x in (here, there)]
        held = there.memory['classes']['file']['planned']
        check(held >= 4 * here.memory['trainable'], f'gradients elsewhere, {name}: {held} bytes in the file')
        # Of one micro-batch no gradient is there yet where forward ends, at the peak.
        less = 0 if name == 'one' else 0.5 * held
        check(planned[1] < planned[0] - less, f'gradients elsewhere, {name}: {planned} bytes on the device, {held} in the file')
        if name == 'three':  # as 'recomputed', which has two micro-batches
            continue
        checked = train(paths[1], f'gradients-{name}-poisoned', '--poison', *discrete)
        same(f'gradients elsewhere, {name}, poisoned', here, checked, 'model')


def resume():
    path = recipe('resume.lua', model, 'data.random {}', use('second-memory', memory='file', states=['*']), clip, adamw, **entries)
    whole = train(path, 'whole', *discrete)
    shutil.copytree('whole', 'again')
    shutil.rmtree('again/state/step-00000004')
    shutil.rmtree('again/model')
    run('resume', 'again', *plugins)
    again = type(whole)('again')
    same('resume', whole, again, 'model', 'state')


def limits():
    """Every class has a limit of its own."""
    path = recipe('limits.lua', model, 'data.random {}', use('second-memory', memory='file', states=['*']), adamw, batch=2, length=16, steps=2)
    planned = {k: v['planned'] for k, v in plan(path, *discrete)['classes'].items()}
    lines = {'device': 'computes = true\nhost_access = false', 'pinned': 'computes = false', 'file': 'computes = false\nhost_access = false'}
    for small in (None, *planned):
        text = ''.join(f'[[memory]]\nname = "{k}"\n{v}\ncapacity = {planned[k] - (k == small)}\n' for k, v in lines.items())
        with open('target.toml', 'w') as file:
            file.write(text)
        said = run('plan', path, '--target', 'target.toml', *discrete, code=3 if small else 0)
        check(not small or f"of '{small}'" in said.stderr, f'{small} is too small: {said.stderr}')
    run('plan', path, '--memory', planned['device'], *discrete)
    run('plan', path, '--memory', planned['device'] - 1, *discrete, code=3)


parts = (strategies, other_classes, offloaded, streams, streams_in_formats, gradients, resume, limits)
for part in (table,) if '--table' in sys.argv else parts:
    part()
finish()
