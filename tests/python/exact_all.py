#!/usr/bin/env python3
# label: all
"""What changes no number changes none on models of every family and task, with each optimizer: ways of recomputing, updates in backward, other numbers of threads. The model and
the state are the same to the byte, and no byte more or less is allocated than was planned. With each commit, slices.py runs another part."""
import pathlib

from galley_test import check, finish, fresh_folder, in_slice, recipe, sliced, train, use

fresh_folder()
import families_kit  # noqa: E402

optimizers = {
    'adamw': use('adamw', lr=1e-2), 'sgd': use('sgd', lr=1e-2, momentum=0.9), 'lion': use('lion', lr=1e-3), 'adamw8bit': use('adamw8bit', lr=1e-2),
    'adafactor': use('adafactor', lr=1e-2), 'muon': use('muon', lr=1e-2, rest_lr=1e-3),
}
ways = {
    'each block': [use('recompute', every=1)], 'every second block': [use('recompute', every=2)], 'sqrt': [use('recompute', policy='sqrt')],
    'from the first block': [use('recompute', policy='input')], 'cheap': [use('recompute', policy='cheap')], 'in backward': [use('update-in-backward')],
    'both': [use('recompute', every=1), use('update-in-backward')],
}


def made(name, case, uses, threads=1, **more):
    model, data = families_kit.cases[case]
    name = name.replace(' ', '-')
    path = recipe(f'{name}.lua', model, data, *uses, **families_kit.entries(case, save=dict(every=2), **more))
    r = train(path, name, threads=threads)
    r.check_memory(name)
    tensors = {str(x.relative_to(r.path)): x.read_bytes() for x in r.path.rglob('*.safetensors')}
    check(len(tensors) == 2, f'{name}: {sorted(tensors)}')
    return tensors, r.steps


trained = 0
for case in families_kit.cases:
    for optimizer, uses in optimizers.items():
        if not in_slice():
            continue
        label = f'{case}-{optimizer}'
        plain = made(label, case, [uses])
        check(len(plain[1]) == 2, f'{label}: {plain[1]}')
        if optimizer == 'adamw':
            check(made(f'{label}-seed', case, [uses], seed=10)[0] != plain[0], f'{label}: another seed gives the same bytes')
        for way, more in ways.items():
            check(made(f'{label}-{way}', case, [uses, *more]) == plain, f'{label}: {way}: other bytes')
            trained += 1
        for threads in (2, 3, 7):
            check(made(f'{label}-{threads}', case, [uses], threads) == plain, f'{label}: {threads} threads: other bytes')
            trained += 1
check(trained == 18 * 6 * 10 if not sliced else trained > 0, f'{trained} trainings')
finish()
