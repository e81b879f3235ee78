#!/usr/bin/env python3
# label: all
# Files of somebody else: every way out of its folder that a recipe can try, with --confine and without.
#
#   GALLEY=… GALLEY_SOURCE=… GALLEY_BINARY=… tests/python/strangers_all.py [CASE]…
from strangers_kit import *


def ways(table, more):
    bad = []
    for name, make, part, command in table:
        try:
            refuses(name, make, part, command, more)
        except AssertionError as problem:
            bad.append("%s: %s" % (name, problem))
    assert not bad, "%d of %d\n%s" % (len(bad), len(table), "\n".join(bad))


@case
def a_recipe_with_confine():
    assert len(RECIPES) > 50
    ways(RECIPES, ["--confine"])


@case
def a_recipe_without():
    ways(OPENLY, [])


if __name__ == "__main__":
    sys.exit(run_all(sys.argv[1:]))
