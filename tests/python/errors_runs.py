#!/usr/bin/env python3
# States and run.toml that somebody else wrote, by each of their fields: what is wrong is said by name, and a state with a right checksum is not
# believed for that. And plugins that a run did not have.
#
#   GALLEY=… GALLEY_SOURCE=… GALLEY_BINARY=… tests/python/errors_runs.py [CASE]…
import functools
import re

from runs_kit import *

fresh_folder()


@functools.cache
def run_of(name):
    return halfway(name)


def spoiled(file, change, *parts, hint=None, folder, code=1):
    """What is said of a run with a file that `change` has made of its text; the run is as before afterwards."""
    with open(file) as opened:
        text = opened.read()
    made = change(text)
    check(made != text, "nothing was changed")
    write(file, made)
    not_resumed(folder, *parts, hint=hint, code=code)
    write(file, text)


# ---- States ---------------------------------------------------------------------------------------------------------------------
SUM = re.compile(r"(# checksum of the lines above: )(\w{16})\n")


def line(name, value):
    """A change of a line of TOML; None takes it out."""
    return lambda text: re.sub(r"(?m)^%s = .*\n" % name, "" if value is None else "%s = %s\n" % (name, value), text, count=1)


# What a checksum does not say.
DAMAGED = "this state is damaged; delete its folder, and the run continues from the state before it"
WITHOUT_PLUGINS = "plugin = [3]\ndevice ="
STATES = {
    "format": (line("format", "99"), "the state has format 99, this Galley reads format", "resume it with the version that saved it"),
    "step": (line("attempted", None), "'attempted' is missing or of another type", None),
    "step of a text": (line("attempted", '"2"'), "'attempted' is missing or of another type", None),
    "window": (line("next_window", "1.5"), "'next_window' is missing or of another type", None),
    "data": (line("data", '"xyz"'), "'data' is missing or of another type", None),
    "gradients": (line("without_gradient", None), "'without_gradient' is missing", DAMAGED),
    "validation": (lambda text: text.replace("device =", "validation = { best_step = 'x' }\ndevice =", 1),
                   "validation: 'best_step' is missing or of another type", None),
    "plugins": (lambda text: text.split("\n[[plugin]]")[0].replace("device =", WITHOUT_PLUGINS, 1) + "\n[weights]\n[checksums]\n",
                "'plugin' is not a list of tables", DAMAGED),
    "id of a plugin": (line("id", None), "plugin: 'id' is missing or of another type", None),
    "weights": (lambda text: text.replace("[weights]", "[heights]"), "'weights' is missing", DAMAGED),
    "digits": (lambda text: re.sub(r'(?s)(\[weights\]\n"?[^\n]*= )"\w{16}"', r'\1"123"', text, count=1), "' is not 16 hexadecimal digits", DAMAGED),
}


def with_checksum(folder, file, text):
    """A text with the checksum that it has to have, which a refusal says."""
    body = SUM.sub("", text)
    write(file, body + "# checksum of the lines above: %016x\n" % 0)
    said = galley("resume", folder.out).stderr
    found = re.search(r"the checksum is not (\w{16}), so the file has changed", said)
    require(found, "no checksum is said: %s" % said)
    return body + "# checksum of the lines above: %s\n" % found[1]


@cases(STATES)
def state(name, of):
    change, says, hint = of
    folder = run_of("state")
    file = os.path.join(folder.out, "state", "step-00000002", "state.toml")
    with open(file) as opened:
        text = opened.read()
    made = with_checksum(folder, file, change(text))
    write(file, text)
    spoiled(file, lambda _: made, file, says, hint=hint, folder=folder)


@case
def checksum_of_a_state():
    folder = run_of("state")
    file = os.path.join(folder.out, "state", "step-00000002", "state.toml")
    spoiled(file, lambda text: SUM.sub("", text), file, "the line with its checksum is missing", hint=DAMAGED, folder=folder)
    spoiled(file, line("attempted", "3"), file, "the checksum is not ", "so the file has changed", hint=DAMAGED, folder=folder)


# ---- run.toml -------------------------------------------------------------------------------------------------------------------
RECORDS = {
    "format": (line("format", "99"), "format 99, this Galley knows ", None),
    "no recipe": (lambda text: text.replace("[recipe]", "[receipt]"), "no [recipe] or no [target]", "the file is not one that Galley wrote"),
    "no target": (lambda text: text.replace("[target", "[targets"), "no [recipe] or no [target]", "the file is not one that Galley wrote"),
    "no device": (line("device", None), "no 'device'", "the file is not one that Galley wrote"),
    "no version": (line("galley", "3"), "no 'galley'", "the file is not one that Galley wrote"),
    "no machine": (line("machine", None), "no 'machine'", "the file is not one that Galley wrote"),
    "no TOML": (lambda text: text + "= 3\n", "run.toml:", None),
}


@cases(RECORDS)
def record(name, of):
    change, says, hint = of
    folder = run_of("record")
    spoiled(os.path.join(folder.out, "run.toml"), change, os.path.join(folder.out, "run.toml"), says, hint=hint, folder=folder)


@case
def run_that_is_none():
    folder = run_of("record")
    check_error(galley("resume", folder.root), 2, "is not a run: it has no run.toml", hint="a run is made by galley train RECIPE --out")
    check_error(galley("resume", os.path.join(folder.root, "nowhere")), 2, "no such run directory")


# ---- Plugins --------------------------------------------------------------------------------------------------------------------
@case
def plugin_that_has_come():
    """One that computes what another has computed so far."""
    folder = run_of("plugins")
    plugin = os.path.join(TEST_PLUGINS, "hand")
    not_resumed(folder, "the plugin 'hand' in " + plugin, "has come", hint="take it off the plugin path, or begin a new run", more=("--plugin-path", plugin))


@case
def runs_are_as_they_were():
    for name in ("state", "record", "plugins"):
        resumed(run_of(name))


finish()
