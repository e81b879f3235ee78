#!/usr/bin/env python3
# Runs and what can happen to them: what they come from changes before they go on, odd disks, little memory.
#
#   GALLEY=… GALLEY_SOURCE=… GALLEY_BINARY=… tests/python/runs.py [CASE]…
import re

from runs_kit import *
from mark_kit import write_marked

fresh_folder()

# --- What a run comes from -----------------------------------------------------------------------------------------------------
@case
def nothing_has_changed():
    resumed(halfway("same"))
    resumed(halfway("same-lora", LORA))


@case
def base_model_changed():
    for recipe in (SAVES, LORA):  # Trained, and frozen
        folder = halfway("base", recipe)
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
    edit(os.path.join(folder.out, "run.toml"), "lr = 1e-3", "lr = 1e-2", write_marked)
    os.remove(os.path.join(folder.out, "recipe.lua"))
    ended = galley("resume", folder.out)
    check_error(ended, 2, "the recipe was", hint="as it was")


@case
def ended_by_a_strategy():
    """A strategy that has seen enough ends the run as its last step would: saved and exported, with the model of a run of so many steps. A resume has nothing left to do."""
    plugins = ["--plugin-path", os.path.join(TEST_PLUGINS, "ends")]
    ends = '  use "ends" { at = 3 },\n  use "adamw"'
    made = {}
    for name, recipe in (("early", SAVES.replace("steps = 4", "steps = 9").replace('  use "adamw"', ends)), ("whole", SAVES.replace("steps = 4", "steps = 3"))):
        folder = Folder("ended-" + name)
        folder.recipe(recipe)
        ended = galley("train", folder.path("recipe.lua"), "--out", folder.out, *plugins)
        trained(ended)
        with open(os.path.join(folder.out, "metrics.jsonl")) as file:
            losses = [json.loads(line)["loss"] for line in file]
        made[name] = losses, digest(os.path.join(folder.out, "model")), ended, folder
    early, whole_ = made["early"], made["whole"]
    check(early[:2] == whole_[:2] and len(early[0]) == 3, "it was to leave the model of three steps: %s" % early[2])
    check("step 3 is the last: ends (" in early[2].stdout and "it has seen enough" in early[2].stdout, "it was to be said who ended it, and why: %s" % early[2])
    before = digest(early[3].out)
    again = galley("resume", early[3].out, *plugins)
    trained(again)
    check("nothing left to do: all 3 steps are done" in again.stdout and digest(early[3].out) == before, "a resume was to change nothing: %s" % again)
    # Killed between its last save and the export: the next process only exports.
    shutil.rmtree(os.path.join(early[3].out, "model"))
    again = galley("resume", early[3].out, *plugins)
    trained(again)
    with open(os.path.join(early[3].out, "metrics.jsonl")) as file:
        check(digest(os.path.join(early[3].out, "model")) == early[1] and len(file.readlines()) == 3, "a resume was to export, and nothing else: %s" % again)


@case
def lines_of_metrics_are_lost():
    folder = halfway("lost-lines")
    path = os.path.join(folder.out, "metrics.jsonl")
    with open(path) as file:
        lines = file.readlines()
    write(path, "".join(lines[1:]))
    ended = galley("resume", folder.out)
    check(ended.returncode == 0 and path + " has the losses of 1 of the 2 steps that are done" in ended.stderr and "has a gap" in ended.stderr, "lost lines were to be said: %s" % ended)
    take_back(folder)
    os.remove(path)
    ended = galley("resume", folder.out)
    check(ended.returncode == 0 and "has the losses of 0 of the 2 steps" in ended.stderr, "a lost file was to be said: %s" % ended)
    with open(path) as file:
        check([json.loads(line)["step"] for line in file] == [3, 4], "the steps that were done now: %s" % ended)


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
    check("common" not in ended.stderr, "sample must not need the module's file: %s" % ended)


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
def data_named_twice():
    """A file in two sources, and for validation too, is one file when a run goes on."""
    text = 'data.text { files = { "text.txt" }, tokenizer = "bytes", validation = "text.txt" }'
    twice = TEXT.replace("STEPS", "4").replace("every = 50, keep = 2", "every = 2, keep = 3")
    folder = halfway("twice", re.sub(r"data\s*= .*,", "data = data.mix { %s, %s }," % (text, text), twice), lambda folder: folder.write("text.txt", "some words\n" * 99))
    resumed(folder)
    take_back(folder)
    file = folder.write("text.txt", "other words\n" * 99)
    not_resumed(folder, "data file '" + file, "has changed")


@case
def tokenizer_changed():
    folder = Folder("tokenizer")
    words = folder.write("text/a.txt", "some words of a text\n" * 50)
    trained(galley("tokenize", "--train", words, "--vocab", "270", "--out", folder.path("tokenizer")))
    folder.recipe(TEXT.replace("STEPS", "4").replace("every = 50, keep = 2", "every = 2, keep = 3").replace("vocab_size = 256", "vocab_size = 270")
                  .replace('"bytes"', '"tokenizer/tokenizer.json"'))
    folder.whole = whole(folder)
    take_back(folder)
    resumed(folder)
    take_back(folder)
    with open(folder.path("tokenizer/tokenizer.json"), "a") as file:
        file.write("\n")
    not_resumed(folder, "the tokenizer '" + folder.path("tokenizer/tokenizer.json"), "has changed")


def begun_from_adapter(name):
    """A run that continues from the adapter of another, taken back to its middle."""
    folder = Folder(name)
    folder.recipe(LORA)
    whole(folder)
    shutil.move(os.path.join(folder.out, "adapter"), folder.path("adapter"))
    shutil.rmtree(folder.out)
    folder.recipe(LORA.replace('{ rank = 2, targets = { "c_attn" } }', '{ path = "adapter" }'))
    folder.whole = whole(folder)
    take_back(folder)
    return folder


@case
def adapter_that_was_begun_from_changed():
    folder = begun_from_adapter("adapter")
    file = folder.path("adapter/adapter_config.json")
    with open(file) as adapter:
        config = json.load(adapter)
    write(file, json.dumps({**config, "lora_alpha": 3 * config["lora_alpha"]}))
    not_resumed(folder, "the file '" + file, "has changed")
    write(file, json.dumps(config))
    not_resumed(folder, "the file '" + file, "has changed")  # Bytes count, not what they say
    folder = begun_from_adapter("adapter-weights")
    with open(folder.path("adapter/adapter_model.safetensors"), "r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(struct.pack("<f", 0.25))
    not_resumed(folder, "base model has changed", "lora_")


@case
def machine_and_version_changed():
    folder = halfway("machine")
    record = os.path.join(folder.out, "run.toml")
    with open(record) as file:
        good = file.read()
    machine = re.search(r'^machine = "(.*)"$', good, re.M).group(1)
    write_marked(record, good.replace('machine = "%s"' % machine, 'machine = "x86-64-v9"'))
    not_resumed(folder, "instruction set was 'x86-64-v9'", "'%s' now" % machine)
    # Sums depend on the rows of a chunk: another number of them would go on with other bytes.
    rows = re.search(r"^head_rows = (.*)$", good, re.M).group(1)
    write_marked(record, good.replace("head_rows = " + rows, "head_rows = 3"))
    ended = galley("resume", folder.out)
    check_error(ended, 2, "the number of rows in a chunk of the head and loss was %s and is 3 now" % rows, hint="run.toml")
    write_marked(record, re.sub(r'^galley = ".*"$', 'galley = "0.0.1"', good, flags=re.M))
    not_resumed(folder, "Galley was 0.0.1", hint="version")
    write(record, good)
    resumed(folder)


# --- Plugins of a run ----------------------------------------------------------------------------------------------------------
CLAIMS = SAVES.replace(ADAMW, ADAMW + '  use "claims" { facet = "gradient_dtype", value = "f32" },\n')


def copied(folder, to):
    shutil.copytree(os.path.join(TEST_PLUGINS, "claims"), to)
    return to


def library_of(plugin):
    return next(os.path.join(plugin, name) for name in sorted(os.listdir(plugin)) if name.endswith(".so"))


@case
def plugin_changed():
    folder = Folder("plugin")
    folder.recipe(CLAIMS)
    plugin = copied(folder, os.path.join(folder.root, "plugins", "claims"))
    folder.whole = whole(folder, "--plugin-path", plugin)
    take_back(folder)
    not_resumed(folder, "needs plugin 'claims'", "not on the plugin path", hint="galley resume %s --plugin-path %s" % (folder.out, plugin))
    resumed(folder, "--plugin-path", os.path.dirname(plugin))
    take_back(folder)
    with open(library_of(plugin), "ab") as library:
        library.write(b"\0")
    not_resumed(folder, "plugin 'claims'", plugin, "has changed", more=("--plugin-path", plugin))
    shutil.rmtree(plugin)
    not_resumed(folder, "needs plugin 'claims'", hint="--plugin-path " + plugin)
    moved = copied(folder, os.path.join(folder.root, "elsewhere"))
    resumed(folder, "--plugin-path", moved)


@case
def flags_of_another_recipe():
    folder = halfway("flags")
    for flag, value in (("--set", "steps=3"), ("--use", "clip { norm = 1 }"), ("--device", "cpu")):
        check_error(galley("eval", folder.out, flag, value), 2, flag)


# --- What is asked of a disk ---------------------------------------------------------------------------------------------------
@case
def full_device():
    folder = Folder("full")
    for words in (["plan", folder.path("recipe.lua")], ["plan", folder.path("recipe.lua"), "--json"], ["data", folder.path("recipe.lua")], ["plugins"], ["--help"]):
        with open("/dev/full", "w") as full:
            ended = galley(*words, stdout=full)
        check_error(ended, 1, "cannot write to stdout")


@case
def stdout_that_is_closed():
    folder = Folder("closed")
    line = '"$0" train "$1" --out "$2" >&- 2>/dev/null'
    trained(galley("-c", line, program, folder.path("recipe.lua"), folder.out, executable="sh"))
    there = {name: digest(os.path.join(folder.out, name)) for name in ("model", "state")}
    lines = metrics(folder.out)
    shutil.rmtree(folder.out)
    check(whole(folder) == there and metrics(folder.out) == lines, "what was to be printed went into a file")


@case
def directory_that_is_gone():
    folder = Folder("gone")
    gone, recipe = os.path.join(folder.root, "gone"), folder.path("recipe.lua")

    def lost(*words):
        os.makedirs(gone)
        return galley(*words, before=lambda: (os.chdir(gone), os.rmdir(gone)))
    for words in (["train", recipe, "--out", folder.out], ["train", "recipe.lua", "--out", "out"], ["plan", recipe, "--plugin-path", "x"]):
        check_error(lost(*words), 1, "the current directory cannot be found", hint="go to one that exists")
    check_error(lost("resume", "x"), 2, "x: no such run directory")
    trained(galley("train", recipe, "--out", folder.out))
    trained(lost("resume", folder.out))


@case
def read_only_run():
    folder = halfway("read-only")
    if os.geteuid() == 0:  # To whom permissions mean nothing
        if subprocess.run(["mount", "--bind", folder.out, folder.out], stderr=subprocess.DEVNULL).returncode or \
           subprocess.run(["mount", "-o", "remount,ro,bind", folder.out], stderr=subprocess.DEVNULL).returncode:
            skip("read_only_run", "no right to mount")
            return
    else:
        os.chmod(folder.out, 0o555)
    try:
        not_resumed(folder, folder.out, "cannot", code=1)
        ended = galley("eval", folder.out)
        check("Read-only" not in ended.stderr and "denied" not in ended.stderr, "reading needs no right to write: %s" % ended)
    finally:
        if os.geteuid() == 0:
            subprocess.run(["umount", folder.out], check=True)
        else:
            os.chmod(folder.out, 0o755)
    resumed(folder)


# --- Memory --------------------------------------------------------------------------------------------------------------------
def memory_group(limit):
    """A cgroup below this process's with a limit, as a folder; none where that is not allowed."""
    for line in open("/proc/self/cgroup"):
        _, controllers, path = line.rstrip("\n").split(":", 2)
        if controllers not in ("", "memory"):
            continue
        mount, name = ("/sys/fs/cgroup", "memory.max") if controllers == "" else ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        group = os.path.join(mount + path, "galley-test-%d" % os.getpid())
        try:
            os.mkdir(group)
        except OSError:
            continue
        try:
            with open(os.path.join(group, name), "w") as file:
                file.write(str(limit))
            return group
        except OSError:
            os.rmdir(group)
    return None


@case
def memory_that_the_group_does_not_have():
    folder = Folder("group")
    folder.recipe(RECIPE.replace('model { path = "model" }', 'model { family = "gpt2", config = { vocab_size = 50000, n_positions = 16, n_embd = 256, n_layer = 1, n_head = 2 } }'))
    group = memory_group(128 << 20)
    if not group:
        return skip("memory_that_the_group_does_not_have", "no right to make a group with a limit")

    def enter():
        with open(os.path.join(group, "cgroup.procs"), "w") as file:
            file.write(str(os.getpid()))
    try:
        ended = galley("train", folder.path("recipe.lua"), "--out", folder.out, before=enter)
        check_error(ended, 3, "cannot allocate", "are available", hint="galley plan")
    finally:
        time.sleep(0.1)
        os.rmdir(group)


# --- Sampling ------------------------------------------------------------------------------------------------------------------
@case
def sampling():
    folder = Folder("sample")
    folder.write("text/a.txt", "".join("line %d of a text\n" % i for i in range(200)))
    folder.recipe(TEXT.replace("STEPS", "2"))
    trained(galley("train", folder.path("recipe.lua"), "--out", folder.out))

    def sampled(prompt, *more):
        return galley("sample", folder.out, "--tokens", "5", "--prompt", prompt, *more)
    plain = sampled("abcdefgh")
    trained(plain)
    check(plain.stdout.startswith("abcdefgh"), "the prompt, and what follows, were expected: %s" % plain)
    check_error(sampled("abcdefgh", "--stop", ""), 2, "--stop", "empty")
    check_error(sampled("abcdefghi"), 2, "the prompt has 9 tokens; the model's context is 8", hint="--overlong cut shows it the last 8")
    long = sampled("abcdefghi", "--overlong", "cut")
    check(long.returncode == 0 and "the prompt has 9 tokens, but the model sees only the last 8" in long.stderr and len(long.lines) == 1, "the beginning that is lost must be told of: %s" % long)
    shutil.rmtree(os.path.join(folder.out, "state"))
    check_error(sampled("abcdefgh"), 2, folder.out + ": this run has saved nothing yet", hint="first save")


# --- Numbers -------------------------------------------------------------------------------------------------------------------
@case
def states_that_are_kept():
    """Bytes on disk: no more states than the run ever saves."""
    sizes = {}
    for keep, every, steps in ((2 ** 53, 1, 4), (3, 1, 4), (4, 1, 4), (9, 2, 4), (1, 0, 4), (1, 3, 4)):
        folder = Folder("keep")
        folder.recipe(RECIPE.replace("steps = 3", "steps = %d, save = { every = %d, keep = %d }" % (steps, every, keep)))
        plan = json.loads(galley("plan", folder.path("recipe.lua"), "--json").stdout)
        sizes[keep, every] = plan["disk"]
    one = sizes[1, 0]
    state = sizes[1, 3] - one
    check(state > 0, "a second state takes %d bytes" % state)
    for (keep, every), states in {(2 ** 53, 1): 4, (3, 1): 4, (4, 1): 4, (9, 2): 2, (1, 0): 1, (1, 3): 2}.items():
        check(sizes[keep, every] == one + (states - 1) * state, str((keep, every, sizes, state)))


@case
def shares_of_a_peak():
    """More than all of it says that the target's peak is none."""
    for peak, shown in (("1e15", True), ("1", False)):
        folder = Folder("peak-" + peak)
        folder.recipe(RECIPE)
        folder.write("target.toml", "peak_flops = %s\n" % peak)
        ended = galley("train", folder.path("recipe.lua"), "--out", folder.out, "--target", folder.path("target.toml"))
        trained(ended)
        check(("% of peak" in ended.stdout) == shown, "a share of the peak was %sexpected: %s" % ("" if shown else "not ", ended))


finish()
