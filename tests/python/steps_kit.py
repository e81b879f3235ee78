"""What scripts do with their recipes: write them alike but for a few entries, plan and train them with what holds of every plan and run checked, and see them refused."""
from galley_test import check, plan, recipe, run, train


def recipes(model, data, *last, **entries):
    """A function that writes NAME.lua with this model, this data and these entries: of its own strategies, then of `last`."""
    def made(name, *uses, **more):
        return recipe(f'{name}.lua', model, data, *uses, *last, **{**entries, **more})
    return made


def planned(path, *flags):
    """The plan of a recipe, proved on the shadow device."""
    return plan(path, '--check', *flags)


def trained(path, out, *flags, threads=1):
    """The run of a recipe: with a step, and with the memory that was planned."""
    made = train(path, out, *flags, threads=threads)
    check(made.steps, f'{out}: there are no steps')
    made.check_memory(out)
    return made


def refused(path, *texts, code=2, command='plan', flags=()):
    """What `galley COMMAND PATH FLAGS` says when it refuses a recipe, or whatever PATH is; each of `texts` has to be in it."""
    said = run(command, path, *flags, code=code)
    check(said.stderr.startswith('galley: '), f'{command} {path}: the cause does not begin with "galley: ": {said}')
    for text in texts:
        check(text in said.stderr, f'{command} {path}: {text!r} is not in: {said.stderr}')
    return said.stderr
