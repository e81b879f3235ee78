#!/usr/bin/env python3
"""A device whose memory the host cannot touch (tests/plugins/discrete) trains to the bytes that the processor gives.

With --table it times copies beside kernels instead, for links from slow to fast, and prints what tests/results/overlap.md holds."""
import functools
import pathlib
import shutil
import sys

from discrete_kit import discrete, plugins, same, traced
from galley_test import Run, case, cases, check, every, finish, fresh_folder, from_config, plan, recipe, run, source, train, use
from steps_kit import recipes, refused, trained

fresh_folder()
model = from_config('gpt2', vocab_size=97, n_positions=32, n_embd=32, n_layer=4, n_head=4)
text = f'data.text {{ files = {{ {", ".join(repr(str(x)) for x in sorted((source / "models").glob("families/*.lua")))} }}, tokenizer = "bytes", validation = 0.2 }}'
adamw, clip = use('adamw', lr=1e-2), use('clip', norm=0.5)
entries = dict(batch=2, length=16, steps=4, seed=4, save=dict(every=2, keep=2))
written = recipes(model, 'data.random {}', **entries)
STATES = [f'state/step-{step:08}/state.safetensors' for step in (2, 4)]


def target(name, text):
    pathlib.Path(f'{name}.toml').write_text(text)
    return ('--target', f'{name}.toml')


def same_states(who, a, b):
    for state in STATES:
        check(a.bytes(state) == b.bytes(state), f'{who}: {state} differs')


# ---- The bytes that the processor gives --------------------------------------------------------------------------------------------------


def trains_alike(name, *uses, data='data.random {}', model=model, **more):
    path = recipe(f'{name}.lua', model, data, *uses, **{**entries, **more})
    run('plan', path, '--check', *discrete)
    made = train(path, f'{name}-cpu', *plugins), trained(path, f'{name}-discrete', *discrete)
    same(name, *made, 'model', 'adapter', 'state')
    check(every(made[1].memory['classes'][c]['planned'] > 0 for c in ('device', 'pinned')), f'{made[1].memory["classes"]}')
    return made


@case
def full():
    made = trains_alike('full', clip, adamw, data=text, model=from_config('gpt2', vocab_size=257, n_positions=32, n_embd=32, n_layer=2, n_head=4), validate=dict(every=2))
    check(sum('validation_loss' in x for x in made[1].lines) == 2, 'there are not two validations')
    said = [run('sample', x.path, '--prompt', 'local', '--tokens', 9, *plugins).stdout for x in made]
    check(said[0] == said[1] and len(said[0]) > 9, f'the two devices continue a text otherwise: {said}')


STRATEGIES = {
    'lora': (use('lora', rank=2, alpha=4, targets='all-linear', dropout=0.1), adamw),
    'dora': (use('lora', rank=2, alpha=4, dora=True, dropout=0.1), adamw),
    'pissa': (use('lora', rank=2, init='pissa'), adamw),
    'vera': (use('vera', rank=4, save_projection=False), adamw),
    'stored': (use('bf16-storage', parameters=['*.c_fc.weight'], states=['*']), clip, adamw),
    'stacked': (use('recompute', every=2), use('accumulate', steps=3), clip, adamw),
}


@cases(STRATEGIES)
def strategies(name, uses):
    trains_alike(name, *uses)


@case
def resume():
    whole = train(written('resume', use('second-memory', memory='file', states=['*']), clip, adamw), 'whole', *discrete)
    shutil.copytree('whole', 'again')
    shutil.rmtree('again/state/step-00000004')
    shutil.rmtree('again/model')
    run('resume', 'again', *plugins)
    same('resume', whole, Run('again'), 'model', 'state')


# ---- What rests where nothing computes: in memory of the host, and in a file that has no addresses ---------------------------------------


def rests(name, *uses, **more):
    """A run, and the bytes that are planned in each memory class for a device with a fast link."""
    path = written(name, *uses, clip, adamw, **more)
    run('plan', path, '--check', *discrete)
    made = trained(path, name, *discrete)
    fast = plan(path, '--check', *target('fast', 'link_bandwidth = 1e12\n'), *discrete)['classes']
    return made, {k: v['planned'] for k, v in fast.items()}


WIDE = dict(batch=8, length=32)
all_here = functools.cache(rests)  # with all of it on the device


@cases({'pinned': ('pinned', ()), 'file': ('file', ()), 'later': ('file', (use('recompute', every=1),))})
def parameters_and_states(name, of):
    memory, more = of
    normal, _ = all_here('normal', use('accumulate', steps=2))
    placed = use('second-memory', memory=memory, parameters=['*.c_fc.weight'], states=['*'])
    path = written(name, use('accumulate', steps=2), *more, clip, placed, adamw)
    run('plan', path, '--check', *discrete)
    made = trained(path, name, *discrete)
    same(name, normal, made, 'model')
    same_states(name, normal, made)
    planned = made.memory['classes'][memory]['planned']
    check(planned >= 8 * made.memory['trainable'], f'{planned} bytes in {memory}')


@case
def frozen_weights():
    """The host proves that they have not changed."""
    lora = use('lora', rank=2, alpha=4, targets='all-linear')
    frozen = [train(written(f'frozen-{name}', lora, clip, *more, adamw), f'frozen-{name}', *discrete)
              for name, more in (('here', ()), ('there', (use('second-memory', memory='file', parameters=['*.c_fc.weight']),)))]
    same('frozen weights in a file', *frozen, 'adapter')


def away(memory, *patterns):
    return use('offload-activations', memory=memory, patterns=list(patterns), min_size=1)


TWICE, RECOMPUTE = use('accumulate', steps=2), use('recompute')
# What else a run uses before and after what is away, and what is.
SAVED = {'all': ((), '*', ()), 'some': ((), '*.mlp.*', ()), 'twice': ((TWICE,), '*', ()), 'before': ((), '*.attn*', (RECOMPUTE,)), 'behind': ((RECOMPUTE,), '*', ()),
         'input': ((use('recompute', policy='input'),), '*', ()), 'budget': (None, '*', ())}


@cases([f'{name}-{memory}' for name in SAVED for memory in ('pinned', 'file')])
def saved_tensors(who):
    """Until backward reads them; what is recomputed from them, and what a budget makes of both."""
    name, memory = who.split('-')
    before, pattern, behind = SAVED[name]
    base, of_base = all_here('wide-twice', TWICE, **WIDE) if name == 'twice' else all_here('wide', **WIDE)
    budget = of_base['device'] - 150000
    if name == 'budget':
        before = (use('recompute', budget=budget),)
    made, planned = rests(f'saved-{who}', *before, away(memory, pattern), *behind, **WIDE)
    same(who, base, made, 'model')
    same_states(who, base, made)
    there, gone = planned[memory] - of_base[memory], of_base['device'] - planned['device']
    check(gone > 0 and there > 0, f'{there} bytes more there, {gone} fewer on the device')
    check(name not in ('all', 'some') or gone > 0.8 * there, f'{there} bytes more there, but {gone} fewer on the device')
    check(name != 'budget' or max(planned['device'], made.memory['classes']['device']['planned']) <= budget, f'{planned}, but {budget} is the budget')


@case
def to_the_device_itself():
    refused(written('wrong', away('device', '*'), clip, adamw), "computes from the memory class 'device'", "'pinned', 'file'", flags=discrete)


GRADIENTS = {'one': (), 'three': (use('accumulate', steps=3),), 'recomputed': (TWICE, RECOMPUTE, use('amp', compute='bf16'))}


@cases(GRADIENTS)
def gradients(name, uses):
    """From their last contribution until the update reads them, and between micro-batches."""
    tied = from_config('gpt2', vocab_size=97, n_positions=32, n_embd=32, n_layer=4, n_head=4, tie_word_embeddings=True)
    few = {**entries, 'steps': 2}  # --poison fills all memory after each instruction, twice
    placed = use('second-memory', memory='file', gradients=['*'])
    paths = [recipe(f'gradients-{name}-{where}.lua', tied, 'data.random {}', *uses, clip, *more, adamw, **few) for where, more in (('here', ()), ('there', (placed,)))]
    run('plan', paths[1], '--check', *discrete)
    here, there = (trained(path, path[:-4], *discrete) for path in paths)
    same('gradients elsewhere', here, there, 'model')
    check(here.bytes(STATES[0]) == there.bytes(STATES[0]), 'the states differ')
    planned = [x.memory['classes']['device']['planned'] for x in (here, there)]
    held = there.memory['classes']['file']['planned']
    check(held >= 4 * here.memory['trainable'], f'{held} bytes in the file')
    # Of one micro-batch no gradient is there yet where forward ends, at the peak.
    less = 0 if name == 'one' else 0.5 * held
    check(planned[1] < planned[0] - less, f'{planned} bytes on the device, {held} in the file')
    if name != 'three':  # which is as 'recomputed', with two micro-batches
        same('poisoned', here, train(paths[1], f'gradients-{name}-poisoned', '--poison', *discrete), 'model')


# ---- Copies beside kernels ---------------------------------------------------------------------------------------------------------------


def few(name, *uses):
    return recipe(f'{name}.lua', model, 'data.random {}', clip, *uses, adamw, batch=1, length=4, steps=3, seed=4)


@functools.cache
def with_states_here():
    slow = target('slow', 'link_bandwidth = 4e6\n')  # parts of 4,000 bytes
    return train(few('here'), 'here', *discrete, *slow)


def streamed():
    return few('streamed', use('second-memory', memory='file', states=['*']))


@case
def streams():
    """Updates of states in a file stream through small buffers, beside each other and beside kernels."""
    here, path = with_states_here(), streamed()
    made, trace = traced(path, 'streamed', 'slow.toml')
    same('streams', here, made, 'model')
    made.check_memory('streams')
    run('plan', path, '--check', '--target', 'slow.toml', *discrete)
    planned = [x.memory['classes']['device'] for x in (here, made)]
    states = planned[0]['owners']['states']
    check(states >= 8 * here.memory['trainable'] and planned[1]['owners']['states'] <= 256, f'{states} bytes of states')
    check(planned[0]['planned'] - planned[1]['planned'] > 0.9 * states, f'states of {states} bytes, but {planned}')
    check(len(trace.spans[1]) >= 3 * states / 4000, f'trace: {len(trace.spans[1])} copies in')
    for a, b, what in ((0, 1, 'kernels beside copies in'), (0, 2, 'kernels beside copies out'), (1, 2, 'copies both ways')):
        check(trace.together(a, b) >= 20, f'trace: {what}: {trace.together(a, b)} times')
    check(trace.whole < 0.8 * sum(trace.busy), f'trace: {trace.whole} µs for work of {trace.busy}')


@cases([1e3, 1e5, 1e7, 1e9, 1e11])
def bytes_of_a_link(link):
    """Bytes a second decide nothing of what is computed."""
    path, flags = streamed(), target('link', f'link_bandwidth = {link}\n')
    run('plan', path, '--check', *flags, *discrete)
    same(f'link of {link} bytes/s', with_states_here(), train(path, f'link-{link:.0f}', *discrete, *flags), 'model')


MOMENTUM, BLOCKS = use('sgd', lr=1e-2, momentum=0.9), use('bf16-storage', format='blocks', block=48, states=['*'])


@cases({'blocks': ('momentum', (BLOCKS, MOMENTUM)), 'weights': ('h.0', (use('amp', weights='bf16'), adamw))})
def streams_in_formats(name, of):
    """Parts of what is stored in formats are packed to the bytes that the whole is packed to, with random bits too."""
    packs, uses = of
    flags = (*target('slower', 'link_bandwidth = 1e6\n'), *discrete)  # parts of 1,000 bytes
    made, parts = {}, {}
    for memory in ('', 'file', 'pinned'):
        placed = (use('second-memory', memory=memory, states=['*']),) if memory else ()
        path = recipe(f'in-{name}{memory}.lua', model, 'data.random {}', clip, *placed, *uses, batch=1, length=4, steps=3, seed=4)
        made[memory] = trained(path, path[:-4], *flags)
        dump = run('plan', path, '--check', '--dump', 'place', *flags).stdout
        parts[memory] = sum(x.startswith('update[') and "'pack " in x and packs in x for x in dump.splitlines())
    here = made.pop('')
    states = here.memory['classes']['device']['owners']['states']
    for memory, there in made.items():
        same(f'parts in {memory}', here, there, 'model')
        check(parts[memory] > 2 * parts[''] > 0, f'{memory}: {parts[memory]} parts of {parts[""]} tensors')
        planned = [m.memory['classes']['device'] for m in (here, there)]
        check(planned[1]['owners']['states'] <= 256, f'{memory}: {planned[1]}')
        check(planned[0]['planned'] - planned[1]['planned'] > 0.9 * states, f'{memory}: states of {states} bytes, but {planned}')


# ---- Memory ------------------------------------------------------------------------------------------------------------------------------


@case
def limits():
    """Every class has a limit of its own."""
    path = recipe('limits.lua', model, 'data.random {}', use('second-memory', memory='file', states=['*']), adamw, batch=2, length=16, steps=2)
    planned = {k: v['planned'] for k, v in plan(path, *discrete)['classes'].items()}
    lines = {'device': 'computes = true\nhost_access = false', 'pinned': 'computes = false', 'file': 'computes = false\nhost_access = false'}
    check(planned.keys() == lines.keys(), f'{planned}')
    for small in (None, *planned):
        flags = target('target', ''.join(f'[[memory]]\nname = "{k}"\n{v}\ncapacity = {planned[k] - (k == small)}\n' for k, v in lines.items()))
        said = run('plan', path, *flags, *discrete, code=3 if small else 0)
        check(not small or f"of '{small}'" in said.stderr, f'{small} is too small: {said.stderr}')
    run('plan', path, '--memory', planned['device'], *discrete)
    run('plan', path, '--memory', planned['device'] - 1, *discrete, code=3)


def table():
    """No link is so slow or fast that copies beside kernels take longer than copies that are waited for."""
    kinds = {'nothing': (), 'states in the file': (use('second-memory', memory='file', states=['*']),),
             'saved tensors pinned': (use('offload-activations', memory='pinned', min_size=1),),
             'both, and recomputation': (use('second-memory', memory='file', states=['*']), use('recompute'), use('offload-activations', memory='pinned', min_size=1))}
    print('| what rests elsewhere | link, bytes/s | kernels, ms | copies in, ms | copies out, ms | together, ms | one by one / together | overlaps |'
          ' planned = allocated, bytes |')
    print('|---|---|---|---|---|---|---|---|---|')
    for k, (kind, uses) in enumerate(kinds.items()):
        path = recipe(f'table-{k}.lua', model, 'data.random {}', *uses, clip, adamw, batch=8, length=32, steps=3, seed=4)
        for link in (1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11) if uses else (1e9,):
            made, trace = traced(path, f'table-{k}-{link:.0f}', target('table', f'link_bandwidth = {link}\n')[1])
            made.check_memory(kind)
            held = ', '.join(f"{x['planned']} {name}" for name, x in made.memory['classes'].items())
            overlaps = ', '.join(str(trace.together(*pair)) for pair in ((0, 1), (0, 2), (1, 2)))
            ms = ' | '.join(f'{x / 1e3:.2f}' for x in (*trace.busy, trace.whole))
            print(f'| {kind} | {link:.0e} | {ms} | {sum(trace.busy) / trace.whole:.2f} | {overlaps} | {held} |')


if '--table' in sys.argv:
    table()
    sys.exit()
finish(turns=2)
