#!/usr/bin/env python3
"""What manifests say of other plugins: those that a plugin requires are there, in a version that is new enough; what a strategy needs, another one of the
recipe decides."""
import pathlib
import shutil

from galley_test import binary, case, cases, check, finish, fresh_folder, from_config, run, use
from steps_kit import planned, recipes, refused

fresh_folder()
model = from_config('gpt2', vocab_size=61, n_positions=16, n_embd=16, n_layer=1, n_head=2)
written = recipes(model, 'data.random {}', batch=2, length=8, steps=1)


def altered(name, plugin, before, after):
    """A copy of a built-in plugin with another manifest, which hides the built-in one."""
    shutil.copytree(binary / 'plugins' / plugin, f'{name}/{plugin}')
    path = pathlib.Path(name) / plugin / 'plugin.toml'
    text = path.read_text()
    check(before in text, f'{plugin}/plugin.toml has no {before!r}')
    path.write_text(text.replace(before, after, 1))
    return name


clipped = written('clipped', use('sgd', lr=0.1), use('clip', norm=1.0))
NEED = 'needs = [{ facet = "update" }]'
REQUIREMENTS = {'sgd': None, 'sgd >= 1': None, 'sgd >= 1.0.0': None, 'sgd >= 2': "requires 'sgd >= 2', and there is version 1.0.0",
                'sdg >= 1': "requires 'sdg >= 1', and there is no such plugin"}


@cases(REQUIREMENTS)
def requires(requirement, says):
    folder = altered(requirement.replace(' ', ''), 'clip', 'abi = "0.4"\n', f'abi = "0.4"\nrequires = ["{requirement}"]\n')
    if says:
        refused(clipped, says, "plugin 'clip'", code=4, flags=('--plugin-path', folder))
    else:
        run('plan', clipped, '--plugin-path', folder)


PROVIDES = '[provides]\nops = ["clip_factor", "clip_values"]\n'
PROMISE = '[[promise]]\nformat = "cut"\nwithin = 0.5\n'
OPTION = '[[strategy.option]]\nname = "more"\ndescription = "More."\ntype = '
# What stands in front of the first strategy, or after the last option: what is said of it.
BROKEN = {
    'provides': (PROVIDES, 'provides = ["clip_factor"]\n', "'provides' must be a table: [provides]"),
    'no block': (PROVIDES, f'{PROVIDES}formats = ["cut"]\n{PROMISE}', "[[promise]] without 'block'"),
    'no within': (PROVIDES, f'{PROVIDES}formats = ["cut"]\n[[promise]]\nformat = "cut"\nblock = 8\n', "[[promise]] without 'within'"),
    'block': (PROVIDES, f'{PROVIDES}formats = ["cut"]\n{PROMISE}block = 0\n', "'block' must be a number of at least 1, \"row\", or an attribute's name"),
    'when': (PROVIDES, f'{PROVIDES}formats = ["cut"]\n{PROMISE}block = 8\nwhen = 3\n', "'when' must be a table"),
    'format': (PROVIDES, f'{PROVIDES}{PROMISE}block = 8\n', "'format' names 'cut', which is not among the formats that [provides] lists"),
    'range': ('range = "(0, inf)"', 'range = 3', "'range' must be a string like \"[0, 1)\""),
    'range and min': ('range = "(0, inf)"', 'range = "(0, inf)"\nmin = 1', "'range' stands beside neither 'min' nor 'max'"),
    'no field': ('[[strategy.option]]\nname = "norm"', f'{OPTION}"tables"\n[[strategy.option]]\nname = "norm"', "has no 'field'"),
    'no choices': ('[[strategy.option]]\nname = "norm"', f'{OPTION}"choice"\n[[strategy.option]]\nname = "norm"', "has no 'choices'"),
    'type': ('[[strategy.option]]\nname = "norm"', f'{OPTION}"numbr"\n[[strategy.option]]\nname = "norm"', "unknown type 'numbr'"),
    'exactness': ('exactness = "rounding"', 'exactness = "perfect"', "'exactness' must be 'bits', 'rounding' or 'approximate', not 'perfect'"),
    'always': ('exactness = "rounding"', 'exactness = "rounding"\nalways = "yes"', "'always' must be true or false"),
    'control': ('exactness = "rounding"', 'exactness = "rounding"\ncontrol = 1', "'control' must be true or false"),
    'facet': ('facet = "update"', 'facet = "updates"', "unknown facet 'updates'"),
    'needs when': (NEED, 'needs = [{ facet = "update", when = 3 }]', "'when' must be a table: { option = value }"),
    'when of no option': (NEED, 'needs = [{ facet = "update", when = { norms = 3 } }]', "'when' names 'norms', which is no option of clip"),
}


@cases(BROKEN)
def broken(name, of):
    """Such a plugin is left out, with a warning: here the built-in one is taken."""
    before, after, says = of
    folder = altered(f'broken-{name}', 'clip', before, after)
    said = run('plan', clipped, '--plugin-path', folder).stderr
    check(said.startswith('galley: warning: ') and f'{folder}/clip/plugin.toml:' in said and says in said and said.count('\n') <= 2, f'{name}: {said}')


@case
def needs_an_optimizer():
    refused(written('alone', use('clip', norm=1.0)), 'alone.lua:7: clip needs an optimizer, and the recipe has none', "'adam', 'adamw'")
    planned(clipped)


@cases({'sgd': None, 'adamw': "clipped.lua:8: clip needs update = 'adamw', but sgd (clipped.lua:7) makes it 'sgd'"})
def needs_a_value(value, says):
    folder = altered(f'needs-{value}', 'clip', NEED, f'needs = [{{ facet = "update", value = "{value}" }}]')
    if says:
        refused(clipped, says, flags=('--plugin-path', folder))
    else:
        run('plan', clipped, '--plugin-path', folder)


@case
def needs_where_an_option_says_so():
    folder = altered('when', 'clip', NEED, 'needs = [{ facet = "window", value = "micro-batches", when = { norm = 2.0 } }]')
    run('plan', clipped, '--plugin-path', folder)
    strict = written('strict', use('sgd', lr=0.1), use('clip', norm=2.0))
    refused(strict, "clip needs a strategy that decides 'window' = ", "'accumulate'", flags=('--plugin-path', folder))


finish()
