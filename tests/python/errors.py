#!/usr/bin/env python3
# One case for every error that a person can meet at the command line (those of a model's files are in errors_files.py): the exit code, one line of cause with place and value, at most
# one line of hint, and an input that stays as it was.
#
#   GALLEY=… GALLEY_SOURCE=… GALLEY_BINARY=… tests/python/errors.py [CASE]…
import resource

from errors_kit import *

fresh_folder()

# --- Right before wrong --------------------------------------------------------------------------------------------------------
@case
def what_every_case_spoils_is_right():
    folder = Folder("right")
    before = digest(folder.input)
    trained(galley("train", folder.path("recipe.lua"), "--out", folder.out))
    check(digest(folder.input) == before, "the input has changed")
    check(os.path.exists(os.path.join(folder.out, "model", "model.safetensors")), "no model was left")


# --- Data ----------------------------------------------------------------------------------------------------------------------
@case
def data_empty():
    folder = Folder("data-empty")
    file = folder.write("batch.safetensors", b"")
    refused(folder, 2, "recipe.lua:3", file, "0 bytes")
    folder.write("batch.safetensors", batch(ids=[], labels=[], rows=0))
    refused(folder, 2, "recipe.lua:3", file, "(0, 8)")
    os.remove(file)
    refused(folder, 2, "recipe.lua:3", file)


@case
def batch_in_which_nothing_counts():
    folder = Folder("nothing-counts")
    file = folder.write("batch.safetensors", batch(labels=[-100] * 16))
    refused(folder, 2, "recipe.lua:3", file, "nothing would train")
    folder.write("batch.safetensors", batch(labels=[-100] * 15 + [1]))
    trained(galley("train", folder.path("recipe.lua"), "--out", folder.out))


@case
def text_empty():
    folder = Folder("text-empty")
    folder.recipe(TEXT.replace("STEPS", "3"))
    refused(folder, 2, "recipe.lua:3", "text")
    folder.write("text/a.txt", "")
    refused(folder, 2, "recipe.lua:3", "no text", "1 are smaller")


@case
def id_beyond_the_vocabulary():
    folder = Folder("vocabulary")
    file = folder.write("batch.safetensors", batch(ids=[0] * 15 + [V]))
    refused(folder, 2, "recipe.lua:3", file, "row 1", "[7]", " %d" % V)


@case
def length_beyond_the_positions():
    folder = Folder("positions")
    folder.write("batch.safetensors", batch(length=17))
    refused(folder, 2, "length = 17", "16 positions")
    folder.write("text/a.txt", "a text " * 100)
    folder.recipe(TEXT.replace("STEPS", "3").replace("length = 8", "length = 17"))
    refused(folder, 2, "recipe.lua:", "length = 17", "16 positions")


# --- The recipe ----------------------------------------------------------------------------------------------------------------
@case
def option_unknown():
    refused(with_recipe("option", "lr = 1e-3", "lrr = 1e-3"), 2, "recipe.lua:5", "'lrr'", "adamw", "did you mean 'lr'?", hint="weight_decay")


@case
def strategy_unknown():
    refused(with_recipe("strategy", '"adamw"', '"adamww"'), 2, "recipe.lua:5", "'adamww'", "did you mean 'adamw'?")


@case
def entry_unknown():
    refused(with_recipe("entry", "steps = 3", "stepz = 3"), 2, "recipe.lua:4", "'stepz'", "did you mean 'steps'?", hint="seed")


@case
def set_unknown():
    folder = with_recipe("set", "steps = 3", 'steps = arg("steps", 3)')
    refused(folder, 2, "recipe.lua", "'stpes'", "did you mean 'steps'?", hint="steps = 3", more=["--set", "stpes=4"])
    refused(folder, 2, "recipe.lua:4", "'steps'", '"x"', more=["--set", "steps=x"])
    refused(folder, 2, "--set", "steps", more=["--set", "steps"])


@case
def argument_missing():
    folder = Folder("argument")
    folder.recipe(RECIPE.replace("steps = 3", 'steps = arg("steps", 3)').replace('"model" }', 'arg("model") }').replace('"batch.safetensors"', 'arg("batch")'))
    ended = refused(folder, 2, "recipe.lua:2", "'model'", "'batch'")
    for part in ("model (needed)", "batch (needed)", "steps = 3"):
        check(part in ended.lines[1], "the hint must list %r: %s" % (part, ended))


@case
def global_undefined():
    refused(with_recipe("global", "steps = 3", "steps = stpes"), 2, "recipe.lua:4", "'stpes'")


@case
def syntax_wrong():
    refused(with_recipe("syntax", "return recipe {", "return recipe {{"), 2, "recipe.lua:7", "'}' expected")
    refused(with_recipe("no-recipe", "return recipe", "local r = recipe"), 2, "recipe.lua")


@case
def option_of_another_type():
    refused(with_recipe("type", "lr = 1e-3", ""), 2, "recipe.lua:5", "'lr' of adamw is missing", hint="1e-5 to 5e-5")
    refused(with_recipe("type", "lr = 1e-3", 'lr = "fast"'), 2, "recipe.lua:5", "'lr'", "adamw", "number", "'fast'")
    refused(with_recipe("type", "lr = 1e-3", "lr = 1e-3, amsgrad = 1"), 2, "recipe.lua:5", "'amsgrad'", "1")
    refused(with_recipe("type", "lr = 1e-3", "lr = 1e-3, betas = 0.9"), 2, "recipe.lua:5", "'betas'", "0.9")
    refused(with_recipe("type", "steps = 3", "steps = 2.5"), 2, "recipe.lua:4", "'steps'", "2.5")


@case
def option_out_of_range():
    refused(with_recipe("range", "lr = 1e-3", "lr = -1"), 2, "recipe.lua:5", "'lr'", "[0, inf)", "-1")
    refused(with_recipe("range", "lr = 1e-3", "lr = 1e-3, betas = { 0.9, 1.5 }"), 2, "recipe.lua:5", "'betas'", "[0, 1)", "1.5")
    refused(with_recipe("range", "lr = 1e-3", 'lr = 1e-3, decay_on = "some"'), 2, "recipe.lua:5", "'decay_on'", "some")
    refused(with_recipe("range", "steps = 3", "steps = 0"), 2, "recipe.lua:4", "'steps'", "0")
    refused(with_recipe("range", ADAMW, '  use "clip" { norm = 0 },\n' + ADAMW), 2, "recipe.lua:5", "'norm'", "(0, inf)")
    refused(with_recipe("range", ADAMW, '  use "clip" { },\n' + ADAMW), 2, "recipe.lua:5", "'norm'", "clip")


@case
def eps_of_nothing():
    for optimizer in ("adam", "adamw", "adamw8bit", "adafactor", "muon"):
        refused(with_recipe("eps", ADAMW, '  use "%s" { lr = 1e-3, eps = 0 },\n' % optimizer), 2, "recipe.lua:5", "'eps'", "(0, inf)", "0")


@case
def threads_that_are_no_number():
    folder = with_recipe("threads", "steps = 3", "steps = 2")
    for threads in ("abc", "-1", "0", "5000", "2x"):
        ended = galley("plan", folder.path("recipe.lua"), OMP_NUM_THREADS=threads)
        check_error(ended, 2, "OMP_NUM_THREADS is '%s'" % threads, "from 1 to 4096")


@case
def two_owners_of_one_facet():
    refused(with_recipe("owners", ADAMW, ADAMW + '  use "sgd" { lr = 1e-3 },\n'), 2, "'update'", "adamw (", "recipe.lua:5)", "sgd (", "recipe.lua:6)")


@case
def nobody_updates():
    refused(with_recipe("nobody", ADAMW, ""), 2, "'transformer.wte.weight'", hint="optimizer")


# --- The command line ----------------------------------------------------------------------------------------------------------
@case
def command_line():
    folder = Folder("command-line")
    recipe, model, run = folder.path("recipe.lua"), folder.path("model"), os.path.join(folder.root, "run")
    write(os.path.join(run, "run.toml"), "")
    for arguments, parts, hint in (
        (["tran"], ["'tran'"], "did you mean 'train'?"),
        (["frobnicate"], ["'frobnicate'"], "--help"),
        (["train"], ["RECIPE"], None),
        (["train", recipe], ["--out"], None),
        (["train", recipe, "--out"], ["--out"], None),
        (["train", recipe, "--out", folder.out, "--memry", "1"], ["'--memry'"], "did you mean '--memory'?"),
        (["train", recipe, "--out", folder.out, "--memory", "lots"], ["'lots'"], "24GiB"),
        (["train", recipe, "--out", folder.out, "--memory", "-5"], ["'-5'"], "24GiB"),
        (["train", recipe, "--out", folder.out, "--out", "b"], ["--out", "twice"], None),
        (["train", recipe, recipe, "--out", folder.out], [recipe], None),
        (["train", recipe, "--out", folder.out, "--poison=1"], ["--poison"], None),
        (["train", recipe, "--out", folder.out, "--target", "none.toml"], ["none.toml"], None),
        (["train", folder.path("none.lua"), "--out", folder.out], [folder.path("none.lua")], None),
        (["train", folder.input, "--out", folder.out], [folder.input], None),
        (["plan", recipe, "--out", folder.out], ["'--out'"], None),
        (["resume", folder.out], [folder.out], None),
        (["resume", folder.input], [folder.input, "run.toml"], None),
        (["eval", recipe], ["recipe.lua:3", "validation"], "validation = "),
        (["plugins", "adamv"], ["'adamv'"], None),
        (["plan", recipe, "--set", "steps=4", "--set", "steps=5"], ["--set steps is given twice"], None),
        (["data", recipe, "--rows", "-1"], ["--rows '-1' is not an integer of at least 0"], None),
        (["tokenize", recipe, "--threads", "0"], ["--threads '0' is not an integer of at least 1"], None),
        (["tokenize", recipe, "--threads", "2x"], ["--threads '2x' is not an integer"], None),
        (["tokenize", recipe, "--decode", "--special"], ["--special cannot be combined with --decode"], None),
        *((["tokenize", "--train", recipe, word], ["--train takes no TOKENIZER_JSON, --decode or --special"], None)
          for word in ("t.json", "--decode", "--special")),
        (["sample", model], ["--prompt or --chat is missing"], "--prompt TEXT"),
        *((["sample", model, "--prompt", "a", flag, "chatml"], [flag + " requires --chat"], None) for flag in ("--system", "--template")),
        (["sample", run, "--prompt", "a", "--length", "9"], ["--length applies to a model's folder only"], None),
        (["sample", run, "--prompt", "a", "--base", model], ["--base applies to an adapter's folder only"], None),
        (["sample", folder.out, "--prompt", "a"], [folder.out, "no such folder"], "hf download"),
    ):
        before = digest(folder.root)
        ended = galley(*arguments)
        check_error(ended, 2, *parts, hint=hint)
        check(digest(folder.root) == before, "something has changed after %s: %s" % (arguments, ended))


@case
def logits_of_several_micro_batches():
    folder = with_recipe("logits", ADAMW, '  batch = 1,\n  use "accumulate" { steps = 2 },\n' + ADAMW)
    more = ["--logits", "--out", os.path.join(folder.root, "g.safetensors")]
    cause = "--logits needs a window of one micro-batch; this recipe's window has 2"
    refused(folder, 2, cause, hint="omit --logits", more=more, command="gradients")


@case
def memory_too_small():
    folder = Folder("memory")
    ended = refused(folder, 3, "--memory", "64.00 KiB", more=["--memory", "64KiB"])
    refused(folder, 3, "--memory", "64.00 KiB", more=["--memory", "64KiB"], command="plan")
    target = folder.write("target.toml", "memory_limit = 65536\n")
    refused(folder, 3, "the target's memory_limit has 64.00 KiB", more=["--target", target], command="plan")
    folder.write("target.toml", "threads = 100000\n")
    refused(folder, 2, "target.toml:1: 'threads' of the target must be a whole number in [1, 1024], not 100000", more=["--target", target])
    folder.write("target.toml", "threads = 64\n")
    trained(galley("train", folder.path("recipe.lua"), "--target", target, "--out", folder.out))
    shutil.rmtree(folder.out)
    check("MiB" in ended.lines[0] and "weights" in ended.lines[0], "the cause must say what is needed, and by whom: %s" % ended)


@case
def output_directory():
    folder = Folder("output")
    recipe = folder.path("recipe.lua")
    write(os.path.join(folder.out, "precious"), "kept")
    before = digest(folder.root)
    check_error(galley("train", recipe, "--out", folder.out), 2, folder.out, "not empty", hint="name a new directory with --out")
    write(os.path.join(folder.root, "run", "run.toml"), "")
    check_error(galley("train", recipe, "--out", os.path.join(folder.root, "run")), 2, "not empty", hint="galley resume")
    before = digest(folder.root)
    check_error(galley("train", recipe, "--out", recipe), 2, recipe, "not a directory")
    below = os.path.join(recipe, "run")  # Nobody can write there, root neither
    check_error(galley("train", recipe, "--out", below), 1, recipe)
    check_error(galley("tokenize", "--train", recipe, "--vocab", "300", "--out", below), 1, "cannot create '%s': " % below)
    if os.geteuid() != 0:
        os.chmod(folder.input, 0o555)
        check_error(galley("train", recipe, "--out", folder.path("run")), 1, folder.path("run"))
        os.chmod(folder.input, 0o755)
    check(digest(folder.root) == before, "something has changed")


# --- The disk ------------------------------------------------------------------------------------------------------------------
SAVES = RECIPE.replace(ADAMW, "  save = { every = 1, keep = 2 },\n" + ADAMW)


def undisturbed(folder):
    out = os.path.join(folder.root, "undisturbed")
    trained(galley("train", folder.path("recipe.lua"), "--out", out))
    return digest(os.path.join(out, "model"))


@case
def file_too_large_for_its_limit():
    def limited():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (40000, 40000))

    folder = Folder("file-limit")
    folder.recipe(SAVES)
    before = digest(folder.input)
    ended = galley("train", folder.path("recipe.lua"), "--out", folder.out, before=limited)
    check_error(ended, 1, os.path.join(folder.out, "state"), "File too large")
    check_no_halves(ended, folder.out)
    trained(galley("resume", folder.out))
    check(digest(os.path.join(folder.out, "model")) == undisturbed(folder), "the model differs from that of a run that nobody disturbed")
    check(digest(folder.input) == before, "the input has changed")


@case
def disk_full():
    folder = Folder("disk-full")
    folder.recipe(SAVES)
    disk = os.path.join(folder.root, "disk")
    folder.out = os.path.join(disk, "out")
    os.makedirs(disk)
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100k", "galley-errors", disk], stderr=subprocess.DEVNULL).returncode
    if mount != 0:
        skip("disk_full", "no right to mount")
        return
    try:
        ended = galley("train", folder.path("recipe.lua"), "--out", folder.out)
        check_error(ended, 1, os.path.join(folder.out, "state"), "No space left on device")
        check_no_halves(ended, folder.out)
        check(os.listdir(os.path.join(folder.out, "state")) == ["step-00000001"], "the state that did fit must be there: %s" % ended)
        subprocess.run(["mount", "-o", "remount,size=1m", disk], check=True)
        trained(galley("resume", folder.out))
        check(digest(os.path.join(folder.out, "model")) == undisturbed(folder), "the model differs from that of a run that nobody disturbed")
    finally:
        subprocess.run(["umount", disk], check=True)


@case
def state_damaged():
    folder = Folder("state-damaged")
    trained(galley("train", folder.path("recipe.lua"), "--out", folder.out))
    model = digest(os.path.join(folder.out, "model"))
    shutil.rmtree(os.path.join(folder.out, "model"))
    file = os.path.join(folder.out, "state", "step-00000003", "state.safetensors")
    with open(file, "rb") as state:
        good = state.read()
    flipped = bytearray(good)
    flipped[-20] ^= 1
    for bad, part in ((good[:-50], "data_offsets"), (good[:4], "4 bytes"), (bytes(flipped), "checksum")):
        write(file, bytes(bad))
        before = digest(folder.out)
        ended = galley("resume", folder.out)
        check_error(ended, 1, "step-00000003", part)
        check(digest(folder.out) == before, "the run directory has changed: %s" % ended)
    write(file, good)
    trained(galley("resume", folder.out))
    check(digest(os.path.join(folder.out, "model")) == model, "the model differs from that of before")


# --- Plugins -------------------------------------------------------------------------------------------------------------------
@case
def plugin_from_later():
    folder = with_recipe("from-later", ADAMW, '  use "from-later" { },\n' + ADAMW)
    check_error(galley("train", folder.path("recipe.lua"), "--out", folder.out, "--plugin-path", os.path.join(TEST_PLUGINS, "from-later")), 4, "from-later", "recipe.lua:5", "flags that this version does not know: 1073741824")


@case
def facets_of_later():
    for claim, parts in (('facet = "compute", value = "f8"', ["to compute in 'f8'"]),
                         ('facet = "gradient_dtype", value = "f8"', ["'grad.transformer.", "to be in 'f8'"])):
        folder = with_recipe("facet-" + "".join(c for c in claim if c.isalnum()), ADAMW, '  use "claims" { %s },\n' % claim + ADAMW)
        refused(folder, 2, "claims (", "recipe.lua:5", *parts, more=("--plugin-path", os.path.join(TEST_PLUGINS, "claims")))


@case
def plugin_throws():
    for where in ("create", "rewrite", "claim", "build", "prepare", "kernel"):
        for what in ("exception", "number"):
            folder = with_recipe("throws-%s-%s" % (where, what), ADAMW, '  use "throws" { where = "%s", what = "%s" },\n' % (where, what) + ADAMW)
            before = digest(folder.input)
            ended = galley("train", folder.path("recipe.lua"), "--out", folder.out, "--plugin-path", os.path.join(TEST_PLUGINS, "throws"))
            check_error(ended, 4, "throws", "recipe.lua:5", *(["thrown in "] if what == "exception" else []))
            check(digest(folder.input) == before, "the input has changed: %s" % ended)
            check(not os.path.exists(folder.out), "a run that trained nothing must leave nothing: %s" % ended)
    folder = with_recipe("throws-nowhere", ADAMW, '  use "throws" { where = "nowhere" },\n' + ADAMW)
    trained(galley("train", folder.path("recipe.lua"), "--out", folder.out, "--plugin-path", os.path.join(TEST_PLUGINS, "throws")))


@case
def plugin_fails_in_a_step():
    folder = Folder("fails-in-step")
    folder.recipe(SAVES.replace("steps = 3", "steps = 5").replace(ADAMW, '  use "fails-in-step" { step = 4 },\n' + ADAMW))
    before, states, path = digest(folder.input), os.path.join(folder.out, "state"), ["--plugin-path", os.path.join(TEST_PLUGINS, "fails-in-step")]
    ended = galley("train", folder.path("recipe.lua"), "--out", folder.out, *path)
    check_error(ended, 4, "fails_in_step", "fails-in-step (", "recipe.lua:", "told to fail in step 4")
    check_no_halves(ended, folder.out)
    check(sorted(os.listdir(states)) == ["step-00000002", "step-00000003"], "the states before must be there: %s" % ended)
    check([m["step"] for m in metrics(folder.out)] == [1, 2, 3], "one line for each step that was done: %s" % ended)
    kept = digest(states)
    again = galley("resume", folder.out, *path)  # Goes on at step 4, and meets the same end
    check_error(again, 4, "told to fail in step 4")
    check(digest(states) == kept, "the states must stay as they were: %s" % again)
    # They are those of a run that stops there by itself.
    folder.recipe(SAVES.replace(ADAMW, '  use "fails-in-step" { step = 4 },\n' + ADAMW))
    whole = os.path.join(folder.root, "whole")
    trained(galley("train", folder.path("recipe.lua"), "--out", whole, *path))
    same = "state/step-00000003/state.safetensors"
    with open(os.path.join(folder.out, same), "rb") as a, open(os.path.join(whole, same), "rb") as b:
        check(a.read() == b.read(), same + " differs from that of a run that stops there")
    folder.recipe(SAVES.replace("steps = 3", "steps = 5").replace(ADAMW, '  use "fails-in-step" { step = 4 },\n' + ADAMW))
    check(digest(folder.input) == before, "the input has changed")


def manifest(id, abi="0.4", more='[provides]\nops = ["nothing"]\n'):
    return 'id = "%s"\nversion = "1.0.0"\nabi = "%s"\n%s' % (id, abi, more)


@case
def plugins_that_nobody_needs():
    with open(os.path.join(TEST_PLUGINS, "throws", "throws.so"), "rb") as file:
        library = bytearray(file.read())
    library[18:20] = struct.pack("<H", 243)  # ELF's e_machine: RISC-V
    folder = Folder("plugins")
    strategy = '[[strategy]]\nname = "gone-strategy"\nsummary = "None"\nexactness = "bits"\n'
    folder.write("plugins/broken/plugin.toml", "id = \"broken\n")
    folder.write("plugins/missing/plugin.toml", manifest("missing"))
    folder.write("plugins/too-new/plugin.toml", manifest("too-new", "99.0"))
    folder.write("plugins/newer/plugin.toml", manifest("newer", "1.99"))
    folder.write("plugins/junk/plugin.toml", manifest("junk"))
    folder.write("plugins/junk/junk.so", b"no library at all\n" * 10)
    folder.write("plugins/empty/plugin.toml", manifest("empty"))
    folder.write("plugins/empty/empty.so", b"")
    folder.write("plugins/cut/plugin.toml", manifest("cut"))
    folder.write("plugins/cut/cut.so", bytes(library[:4096]))
    folder.write("plugins/machine/plugin.toml", manifest("machine"))
    folder.write("plugins/machine/machine.so", bytes(library))
    folder.write("plugins/gone/plugin.toml", manifest("gone", more=strategy))
    before = digest(folder.input)
    ended = galley("train", folder.path("recipe.lua"), "--out", folder.out, "--plugin-path", folder.path("plugins"), "--plugin-path", folder.path("nowhere"))
    check(ended.returncode == 0, "exit code 0 was expected: %s" % ended)
    warnings = [line for line in (ended.stdout + ended.stderr).splitlines() if "warning" in line]
    for id, part in (("broken", "plugin.toml:1"), ("missing", "no such library"), ("too-new", "99.0"), ("newer", "1.99"), ("junk", "ELF"), ("empty", ""), ("cut", ""), ("machine", "riscv")):
        found = [line for line in warnings if folder.path("plugins/%s/" % id) in line and part in line]
        check(len(found) == 1, "one warning with %r was expected about '%s': %s" % (part, id, ended))
    check(len([line for line in warnings if folder.path("nowhere") in line]) == 1, "one warning was expected about the missing folder: %s" % ended)
    check(digest(folder.input) == before, "the input has changed: %s" % ended)
    shutil.rmtree(folder.out)
    folder.recipe(RECIPE.replace(ADAMW, '  use "gone-strategy" { },\n' + ADAMW))
    path = ["--plugin-path", folder.path("plugins/gone")]
    refused(folder, 4, "recipe.lua:5", "gone-strategy", folder.path("plugins/gone/gone.so"), more=path, hint="make build")


@case
def no_plugins_at_all():
    folder = Folder("no-plugins")
    alone = shutil.copy(program, folder.path("galley"))
    os.mkdir(folder.path("plugins"))
    check_error(galley("plugins", executable=alone), 1, "there is no plugin in '%s'" % folder.path("plugins"), hint="--plugin-path")


# --- Ways out of the sandbox ---------------------------------------------------------------------------------------------------
ESCAPES = (
    ('os.execute("touch escaped")', "'os'"),
    ('_G["os"].execute("touch escaped")', "'os'"),
    ('io.open("escaped", "w")', "'io'"),
    ('package.loadlib("libc.so.6", "system")', "'package'"),
    ("debug.getregistry()", "'debug'"),
    ('dofile("../outside/secret.lua")', "'dofile'"),
    ('loadfile("../outside/secret.lua")', "'loadfile'"),
    ("string.dump(function() end)", "'dump'"),
    ('assert(load("\\27Lua\\x54\\0\\x19\\x93\\r\\n\\x1a\\n"))()', "'load'"),
    ('local s = string.rep("x", 1 << 30)', "1024 MiB"),
    ('pcall(string.rep, "x", 1 << 30) pcall(string.rep, "x", 1 << 30)', "1024 MiB"),
    ('local t = {} for i = 1, math.huge do t[i] = ("x"):rep(1 << 18) .. i end', "64 MiB of memory"),
    ("while true do pcall(function() while true do end end) end", "processor time"),
    ("while true do xpcall(error, function() while true do end end) end", "'xpcall'"),
    ("coroutine.wrap(function() while true do end end)()", "'coroutine'"),
    ("local function f() return 1 + f() end f()", "too deeply"),
    ("local function f() return 1 + f() end pcall(f) f()", "too deeply"),
    ("setmetatable({}, { __gc = function() while true do end end })", "__gc"),
    ('require "link"', "link.lua"),
    ('require "linked/secret"', "secret.lua"),
    ('require "../outside/secret"', "outside/secret.lua leads out"),
)


@case
def sandbox():
    folder = Folder("sandbox")
    write(os.path.join(folder.root, "outside", "secret.lua"), "return 'secret'")
    os.symlink("../outside/secret.lua", folder.path("link.lua"))
    os.symlink("../outside", folder.path("linked"))
    for script, part in ESCAPES:
        folder.recipe(script + "\n" + RECIPE)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ended = refused(folder, 2, "recipe.lua:1:", part, more=["--confine"])
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        # Of processor time: a machine that is busy otherwise is not the program's fault.
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        check(used < 2, "%s took %.2f s of processor time: %s" % (script, used, ended))


@case
def paths_that_lead_out_of_the_folder():
    folder = Folder("paths")
    outside = write(os.path.join(folder.root, "outside", "batch.safetensors"), batch())
    shutil.copytree(folder.path("model"), os.path.join(folder.root, "outside", "model"))
    os.symlink("../outside/batch.safetensors", folder.path("link.safetensors"))
    os.symlink("../outside", folder.path("linked"))
    for name in ("link.safetensors", "linked/batch.safetensors", "../outside/batch.safetensors", "model/../../outside/batch.safetensors", outside):
        folder.recipe(RECIPE.replace("batch.safetensors", name))
        refused(folder, 2, "recipe.lua:3", "'%s'" % name, "leads out", "outside/batch.safetensors", hint="--set", more=["--confine"])
    for name in ("linked/model", "../outside/model"):
        folder.recipe(RECIPE.replace('"model"', '"%s"' % name))
        refused(folder, 2, "recipe.lua:2", "'%s'" % name, "leads out", more=["--confine"])
    # What the person at the command line names may lie anywhere.
    folder.recipe(RECIPE.replace('"batch.safetensors"', 'arg("batch")'))
    trained(galley("train", folder.path("recipe.lua"), "--out", folder.out, "--set", "batch=" + outside, "--confine"))


@case
def text_that_a_link_brings_in():
    folder = Folder("text-link")
    write(os.path.join(folder.root, "outside", "secret.txt"), "secret " * 200)
    os.makedirs(folder.path("text"))
    folder.recipe(TEXT.replace("STEPS", "3"))
    os.symlink("../../outside/secret.txt", folder.path("text/link.txt"))
    os.symlink("../../outside", folder.path("text/sub"))
    refused(folder, 2, "recipe.lua:3", "no text")


finish()
