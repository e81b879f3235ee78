# What tests/python/runs.py and interrupts.py share: runs that are taken back to their middle, and go on.
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
    check(digest(folder.out) == before, "a refused resume has changed the run")


def resumed(folder, *more):
    trained(galley("resume", folder.out, *more))
    for part, wanted in folder.whole.items():
        check(digest(os.path.join(folder.out, part)) == wanted, part + "/ differs from that of a run that nobody disturbed")


def edit(path, old, new, write=write):
    with open(path) as file:
        text = file.read()
    check(old in text, "%r is not in %s" % (old, path))
    write(path, text.replace(old, new))
