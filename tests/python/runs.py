#!/usr/bin/env python3
# Runs and what can happen to them: what they come from changes before they go on, two processes want one, signals, odd disks.
#
#   GALLEY=… GALLEY_SOURCE=… GALLEY_BINARY=… tests/python/runs.py [CASE]…
import fcntl
import re

from errors_kit import *

SAVES = RECIPE.replace("steps = 3", "steps = 4").replace(ADAMW, "  save = { every = 2, keep = 3 },\n" + ADAMW)
LORA = SAVES.replace(ADAMW, '  use "lora" { rank = 2, targets = { "c_attn" } },\n' + ADAMW)


def whole(folder, *more):
    trained(galley("train", folder.path("recipe.lua"), "--out", folder.out, *more))
    return {part: digest(os.path.join(folder.out, part)) for part in ("model", "adapter", "state") if os.path.exists(os.path.join(folder.out, part))}


def take_back(folder):
    """The run as it was after step 2 of 4."""
    shutil.rmtree(os.path.join(folder.out, "state", "step-00000004"))
    for part in ("model", "adapter"):
        shutil.rmtree(os.path.join(folder.out, part), ignore_errors=True)


def halfway(name, recipe=SAVES, prepare=lambda folder: None, more=()):
    folder = Folder(name)
    folder.recipe(recipe)
    prepare(folder)
    folder.whole = whole(folder, *more)
    take_back(folder)
    return folder


def not_resumed(folder, *parts, hint=None, more=(), code=2):
    before = digest(folder.out)
    check_error(galley("resume", folder.out, *more), code, *parts, hint=hint)
    assert digest(folder.out) == before, "a refused resume has changed the run"


def resumed(folder, *more):
    trained(galley("resume", folder.out, *more))
    for part, wanted in folder.whole.items():
        assert digest(os.path.join(folder.out, part)) == wanted, part + "/ differs from that of a run that nobody disturbed"


def edit(path, old, new):
    with open(path) as file:
        text = file.read()
    assert old in text, "%r is not in %s" % (old, path)
    write(path, text.replace(old, new))


# --- What a run comes from -----------------------------------------------------------------------------------------------------
@case
def nothing_has_changed():
    resumed(halfway("same"))
    resumed(halfway("same-lora", LORA))


@case
def base_model_changed():
    folder = halfway("base", LORA)
    tensors = weights()
    dtype, shape, data = tensors["transformer.h.0.mlp.c_fc.weight"]
    tensors["transformer.h.0.mlp.c_fc.weight"] = (dtype, shape, data[:-4] + struct.pack("<f", 0.5))
    folder.model(tensors)
    not_resumed(folder, "base model has changed", "'transformer.h.0.mlp.c_fc.weight'", hint="put the model's files back")
    folder.model()
    resumed(folder)
    take_back(folder)
    folder.config(layer_norm_epsilon=1e-4)
    not_resumed(folder, "configuration", folder.path("model/config.json"), "has changed", hint="put the file back")


@case
def recipe_changed():
    folder = halfway("recipe")
    edit(folder.path("recipe.lua"), "1e-3", "1e-2")
    not_resumed(folder, "the recipe '" + folder.path("recipe.lua"), "has changed", hint="--recorded")
    resumed(folder, "--recorded")
    take_back(folder)
    os.remove(folder.path("recipe.lua"))
    resumed(folder)
    take_back(folder)
    edit(os.path.join(folder.out, "recipe.lua"), "1e-3", "1e-2")
    not_resumed(folder, "its recipe.lua has changed", hint="remove it")
    os.remove(os.path.join(folder.out, "recipe.lua"))
    resumed(folder)
    take_back(folder)
    edit(os.path.join(folder.out, "run.toml"), "lr = 1e-3", "lr = 1e-2")
    os.remove(os.path.join(folder.out, "recipe.lua"))
    ended = galley("resume", folder.out)
    check_error(ended, 2, "the recipe was", hint="as it was")


MODULE = SAVES.replace("return recipe", 'local common = require "lib.common"\nreturn recipe').replace("1e-3", "common.lr")


@case
def module_changed():
    prepare = lambda folder: folder.write("lib/common.lua", "return { lr = 1e-3 }\n")
    folder = halfway("module", MODULE, prepare)
    file = folder.write("lib/common.lua", "return { lr = 1.0 }\n")
    not_resumed(folder, "the module '" + file, "has changed", hint="--recorded")
    resumed(folder, "--recorded")
    os.remove(file)
    take_back(folder)
    resumed(folder)
    ended = galley("sample", folder.out, "--prompt", "ab", "--tokens", "3")
    check(ended, "common" not in ended.err, "sample must not need the module's file")


@case
def data_changed():
    folder = halfway("batch")
    file = folder.write("batch.safetensors", batch(ids=[1] * 16))
    not_resumed(folder, "data file '" + file, "has changed", hint="put the file back")
    folder.write("batch.safetensors", batch())
    resumed(folder)

    text = TEXT.replace("STEPS", "4").replace("every = 50, keep = 2", "every = 2, keep = 3")

    def prepare(folder):
        for i in range(4):
            folder.write("text/%d.txt" % i, "text %d of some words\n" % i * 40)
    folder = halfway("text", text, prepare)
    file = folder.write("text/2.txt", "other words\n" * 70)
    not_resumed(folder, "data file '" + file, "has changed")
    os.remove(file)
    not_resumed(folder, "data file '" + file, "has gone")
    prepare(folder)
    extra = folder.write("text/5.txt", "more words than there were\n" * 9)
    not_resumed(folder, "data file '" + extra, "has come")
    os.remove(extra)
    resumed(folder)


@case
def machine_and_version_changed():
    folder = halfway("machine")
    record = os.path.join(folder.out, "run.toml")
    with open(record) as file:
        good = file.read()
    machine = re.search(r'^machine = "(.*)"$', good, re.M).group(1)
    write(record, good.replace('machine = "%s"' % machine, 'machine = "x86-64-v9"'))
    not_resumed(folder, "instruction set was 'x86-64-v9'", "'%s' now" % machine)
    write(record, re.sub(r'^galley = ".*"$', 'galley = "0.0.1"', good, flags=re.M))
    not_resumed(folder, "Galley was 0.0.1", hint="version")
    write(record, good)
    resumed(folder)


# --- Plugins of a run ----------------------------------------------------------------------------------------------------------
EMA = SAVES.replace(ADAMW, ADAMW + '  use "ema" { decay = 0.5 },\n')


def copied(folder, to):
    shutil.copytree(os.path.join(TEST_PLUGINS, "ema"), to)
    return to


def library_of(plugin):
    return next(os.path.join(plugin, name) for name in sorted(os.listdir(plugin)) if name.endswith(".so"))


@case
def plugin_changed():
    folder = Folder("plugin")
    folder.recipe(EMA)
    plugin = copied(folder, os.path.join(folder.root, "plugins", "ema"))
    folder.whole = whole(folder, "--plugin-path", plugin)
    take_back(folder)
    resumed(folder)  # From where it was, which nobody has to name again
    take_back(folder)
    with open(library_of(plugin), "ab") as library:
        library.write(b"\0")
    for more in ((), ("--plugin-path", plugin)):
        not_resumed(folder, "plugin 'ema'", plugin, "has changed", more=more)
    check_error(galley("sample", folder.out, "--prompt", "a"), 2, "plugin 'ema'", "has changed", hint="--plugin-path")
    shutil.rmtree(plugin)
    not_resumed(folder, "plugin 'ema'", plugin, "any more", hint="--plugin-path")
    moved = copied(folder, os.path.join(folder.root, "elsewhere"))
    resumed(folder, "--plugin-path", moved)


@case
def plugin_of_a_stranger():
    """A run that came from somebody else is data: what it names in itself is not run."""
    folder = Folder("stranger")
    folder.recipe(EMA)
    plugin = copied(folder, os.path.join(folder.root, "ema"))
    folder.whole = whole(folder, "--plugin-path", plugin)
    take_back(folder)
    inside = shutil.move(plugin, os.path.join(folder.out, "ema"))
    record = os.path.join(folder.out, "run.toml")
    with open(record) as file:
        good = file.read()
    link = os.path.join(folder.root, "link")
    os.symlink(inside, link)
    for named, part in ((inside, "own directory"), (link, "own directory"), ("ema", "no absolute path"), ("./ema", "no absolute path")):
        write(record, good.replace(plugin, named))
        for words in (["resume", folder.out], ["sample", folder.out, "--prompt", "a"], ["eval", folder.out]):
            ended = galley(*words, cwd=folder.out)
            check_error(ended, 2, "plugin 'ema'", part, hint="--plugin-path")
    resumed(folder, "--plugin-path", inside)  # Who names it has decided
    shutil.rmtree(inside)
    write(record, good)


@case
def flags_of_another_recipe():
    folder = halfway("flags")
    for flag, value in (("--set", "steps=3"), ("--device", "cpu")):
        check_error(galley("eval", folder.out, flag, value), 2, flag)


if __name__ == "__main__":
    sys.exit(run_all(sys.argv[1:]))
