#!/usr/bin/env python3
"""What manifests say of other plugins: those that a plugin requires are there, in a version that is new enough; what a strategy needs, another one of the
recipe decides."""
import pathlib
import shutil

from galley_test import binary, check, finish, fresh_folder, from_config, plan, recipe, run, use

fresh_folder()
model = from_config('gpt2', vocab_size=61, n_positions=16, n_embd=16, n_layer=1, n_head=2)
small = dict(batch=2, length=8, steps=1)


def altered(name, plugin, before, after):
    """A copy of a built-in plugin with another manifest, which hides the built-in one."""
    shutil.copytree(binary / 'plugins' / plugin, f'{name}/{plugin}')
    path = pathlib.Path(name) / plugin / 'plugin.toml'
    text = path.read_text()
    check(before in text, f'{plugin}/plugin.toml has no {before!r}')
    path.write_text(text.replace(before, after, 1))
    return name


clipped = recipe('clipped.lua', model, 'data.random {}', use('sgd', lr=0.1), use('clip', norm=1.0), **small)
for requirement, says in (('sgd', None), ('sgd >= 1', None), ('sgd >= 1.0.0', None),
                          ('sgd >= 2', "requires 'sgd >= 2', and there is version 1.0.0"), ('sdg >= 1', "requires 'sdg >= 1', and there is no such plugin")):
    folder = altered(requirement.replace(' ', ''), 'clip', 'abi = "0.3"\n', f'abi = "0.3"\nrequires = ["{requirement}"]\n')
    said = run('plan', clipped, '--plugin-path', folder, code=4 if says else 0).stderr
    check(says is None or (says in said and "plugin 'clip'" in said), f'{requirement}: {said}')

alone = recipe('alone.lua', model, 'data.random {}', use('clip', norm=1.0), **small)
said = run('plan', alone, code=2).stderr
check("alone.lua:7: clip needs an optimizer, and the recipe has none" in said and "'adam', 'adamw'" in said, f'clip alone: {said}')
plan(clipped)
for value, says in (('"sgd"', None), ('"adamw"', 'clipped.lua:8: clip needs update = \'adamw\', but sgd (clipped.lua:7) makes it \'sgd\'')):
    folder = altered(f'needs-{value.strip(chr(34))}', 'clip', 'needs = [{ facet = "update" }]', f'needs = [{{ facet = "update", value = {value} }}]')
    said = run('plan', clipped, '--plugin-path', folder, code=2 if says else 0).stderr
    check(says is None or says in said, f'needs {value}: {said}')
folder = altered('when', 'clip', 'needs = [{ facet = "update" }]', 'needs = [{ facet = "window", value = "micro-batches", when = { norm = 2.0 } }]')
run('plan', clipped, '--plugin-path', folder)
strict = recipe('strict.lua', model, 'data.random {}', use('sgd', lr=0.1), use('clip', norm=2.0), **small)
said = run('plan', strict, '--plugin-path', folder, code=2).stderr
check("clip needs a strategy that decides 'window' = " in said and "'accumulate'" in said, f'a need with a condition: {said}')
finish()
