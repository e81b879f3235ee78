#!/usr/bin/env python3
# label: all
"""Every pair of strategies, and every triple with amp and lora, against the references of their ops, in each dtype and on models of each family; then seeds."""
import sys

from galley_test import finish, fresh_folder

fresh_folder()
from reference_kit import computes, everything, models, optimizers, others, pairs, planned, table  # noqa: E402

families = list(models)
done = set()
number = 0
for names in pairs():
    for compute in computes:
        sets = [names]
        if 'lora' not in names and compute != 'fp32' and planned(names + ['lora']):
            sets.append(names + ['lora'])
        for chosen in sets:
            key = (frozenset(chosen) - {'amp'}, compute)
            if key in done:
                continue
            done.add(key)
            for family in families if '--families' in sys.argv else [families[number % len(families)]]:
                everything(chosen, family, compute)
            number += 1
for seed in range(100, 110):
    for compute in computes:
        everything([optimizers[seed % len(optimizers)], 'lora'], families[seed % len(families)], compute, seed=seed)
table()
finish()
