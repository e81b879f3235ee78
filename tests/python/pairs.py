#!/usr/bin/env python3
"""Strategies beside each other, as `galley plugins` lists them, in that order, and in the other one by tests/python/pairs_all.py: every pair is planned and proved
on the shadow device; every optimizer is trained with all that go with it at once, half of the optimizers with each commit, so that every pair of them has trained; no
byte more or less than planned. A strategy that changes no number gives, with all the others, the bytes that they give without it: a sixth of them with each commit.
All of it is in pairs_all.py.
`plugins/FOLDER/example.lua` says how a strategy is used; one that takes no options needs none, and one that has nothing to do without another names it there: the
two are used together. The device has several memories, for strategies that move tensors to another one."""
import itertools
import shutil
import sys

from discrete_kit import discrete
from galley_test import check, every, finish, fresh_folder, from_config, plan, recipe, run, strategies, train, turn

fresh_folder()
uses, beside = strategies()
listed = list(uses)
if sys.argv[1:] == ['turned']:
    listed.reverse()
model = from_config('gpt2', vocab_size=61, n_positions=32, n_embd=32, n_layer=3, n_head=4)


def complete(names):
    """With those that these need."""
    names = list(names)
    return names + list(dict.fromkeys(beside[n][0] for n in names if beside.get(n) and not set(beside[n]) & set(names)))


def write(names):
    return recipe('+'.join(names) + '.lua', model, 'data.random {}', *(uses[n] for n in complete(names)), batch=2, length=16, steps=3, seed=9)


def words(names, *flags):
    """What planning says; None where it works."""
    path = write(names)
    try:
        run('plan', path, *discrete, *flags)
    except SystemExit as failed:
        return str(failed)


# An optimizer is what makes a recipe complete by itself.
optimizers = [n for n in listed if words([n]) is None]
others = [n for n in listed if n not in optimizers]
check(optimizers, 'no strategy updates parameters')
for n in others:
    said = words([n])
    check('no strategy updates it' in said or f"{n} needs an optimizer" in said, f'{n} alone: {said}')

refused = set()
for a, b in itertools.combinations(listed, 2):
    names = [a, b] if {a, b} & set(optimizers) else [a, b, optimizers[0]]
    said = words(names, '--check')
    if said is None:
        continue
    refused.add(frozenset((a, b)))
    check('exit code 2' in said and f'{a} (' in said and f'{b} (' in said, f'{a} and {b}: {said}')
check(every(frozenset(pair) in refused for pair in itertools.combinations(optimizers, 2)), 'two optimizers update one parameter')


def trained(names):
    label = '+'.join(names)
    shutil.rmtree(label, ignore_errors=True)
    r = train(write(names), label, *discrete)
    r.check_memory(label)
    check(len(r.steps) == 3, f'{label}: {len(r.steps)} steps')
    planned = {memory: x['planned'] for memory, x in plan(f'{label}.lua', *discrete)['classes'].items()}
    check({memory: x['planned'] for memory, x in r.memory['classes'].items()} == planned, f'{label}: plan and run differ')
    return {str(x.relative_to(r.path)): x.read_bytes() for x in r.path.rglob('*.safetensors')}, r.steps


def compatible(names):
    """The largest start of each rest: lists of strategies that may stand together, so that every pair that is not refused is in one of them."""
    groups = []
    for a, b in itertools.combinations(names, 2):
        if frozenset((a, b)) in refused or any({a, b} <= set(g) for g in groups):
            continue
        group = [a, b]
        for n in names:
            if n not in group and every(frozenset((n, m)) not in refused for m in group):
                group.append(n)
        groups.append([n for n in listed if n in group])
    return groups


turns = 6  # of exactness, for each half of the optimizers
this = turn(2 * turns)
mine = optimizers if this is None else optimizers[this // turns::2]
runs = {}
for optimizer in mine:
    for group in compatible([optimizer, *others]):
        if optimizer in group:
            runs[tuple(group)] = trained(group)
covered = {pair for names in runs for pair in itertools.combinations(names, 2)}
wanted = {pair for pair in itertools.combinations([n for n in listed if n in [*mine, *others]], 2) if frozenset(pair) not in refused}
check(wanted <= covered, f'pairs that have not trained: {sorted(wanted - covered)}')

# What changes no number alone changes none beside others.
plain = trained([optimizers[0]])
exact = [n for n in others if trained([n, optimizers[0]]) == plain]
check({'recompute', 'offload-optimizer', 'offload-activations'} <= set(exact), f'strategies that change no number: {exact}')
for k, (names, made) in enumerate(runs.items()):
    for n in sorted(set(names) & set(exact)) if this is None or this % turns == k % turns else []:
        check(trained([x for x in names if x != n]) == made, f'{"+".join(names)} is not the same without {n}, to the bit')
print(f'{len(listed)} strategies, {len(optimizers)} of them optimizers, {len(refused)} pairs refused, {len(runs)} trainings; exactness: ' + ('of all' if this is None else f'of part {this % turns} of {turns}'))
finish()
