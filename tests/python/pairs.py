#!/usr/bin/env python3
"""Every pair of strategies on one model: proved on the shadow device, trained, and no byte more or less than planned. A strategy that is
exact to the bit gives, beside any other, the bytes that the other gives alone."""
import itertools
import shutil

from galley_test import check, finish, fresh_folder, from_config, plan, recipe, run, train, use

fresh_folder()
# What each needs to be itself; what changes no number beside another one is `exact`.
options = {'accumulate': dict(steps=2), 'freeze': dict(patterns='transformer.h.0.*'), 'clip': dict(norm=0.3), 'sgd': dict(lr=1e-2, momentum=0.9), 'adamw': dict(lr=1e-3),
           'recompute': dict(every=1), 'lora': dict(rank=4, alpha=8, targets=['*.c_attn', '*.c_proj'], dropout=0.1)}
exact = {'recompute'}
updates = {'sgd', 'adamw'}
listed = {line.split()[0] for line in run('plugins').stdout.split('\n\n')[0].splitlines()[1:]}
check(listed == set(options), f'galley plugins lists {sorted(listed)}, and this test knows {sorted(options)}')


def one(names):
    names = [*names, *(() if updates & set(names) else ('adamw',))]
    label = '+'.join(names)
    model = from_config('gpt2', vocab_size=61, n_positions=32, n_embd=32, n_layer=3, n_head=4)
    path = recipe(f'{label}.lua', model, 'data.random {}', *(use(n, **options[n]) for n in names), batch=2, length=16, steps=3, seed=9)
    run('plan', path, '--check')
    shutil.rmtree(label, ignore_errors=True)
    r = train(path, label)
    r.check_memory(label)
    check(len(r.steps) == 3, f'{label}: {len(r.steps)} steps')
    check(r.memory['classes']['host']['planned'] == plan(path)['classes']['host']['planned'], f'{label}: plan and run differ')
    return {str(x.relative_to(r.path)): x.read_bytes() for x in r.path.rglob('*.safetensors')}, r.steps


alone = {n: one([n]) for n in options}
for a, b in itertools.combinations(options, 2):
    if {a, b} <= updates:
        path = recipe('two.lua', from_config('gpt2', vocab_size=61, n_positions=32, n_embd=32, n_layer=1, n_head=4), 'data.random {}', use(a, **options[a]),
                      use(b, **options[b]), batch=2, length=16, steps=3)
        said = run('plan', path, code=2).stderr
        check(f'{a} (' in said and f'{b} (' in said, f'{a} and {b}: {said}')
        continue
    for order in ((a, b), (b, a)):
        files, steps = one(order)
        for name in exact & {a, b}:
            other = a if name == b else b
            check(files == alone[other][0] and steps == alone[other][1], f'{"+".join(order)} is not {other} alone, to the bit')
finish()
