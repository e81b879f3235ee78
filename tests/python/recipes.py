#!/usr/bin/env python3
# Whose recipe it is and where it runs: --confine, pipes, short trials, a language with decimal commas.
#
#   GALLEY=… GALLEY_SOURCE=… GALLEY_BINARY=… tests/python/recipes.py [CASE]…
import tomllib

from errors_kit import *

fresh_folder()


def with_outside(name):
    """A folder whose recipe could reach files beside it."""
    folder = Folder(name)
    outside = os.path.join(folder.root, "outside")
    write(os.path.join(outside, "batch.safetensors"), batch())
    write(os.path.join(outside, "passwd"), "secret " * 50)
    shutil.copytree(folder.path("model"), os.path.join(outside, "model"))
    return folder, outside


# --- Files anywhere, or in the recipe's folder -----------------------------------------------------------------------------------
@case
def a_recipe_of_ones_own_names_any_file():
    folder, outside = with_outside("own")
    os.symlink("../outside", folder.path("linked"))
    for place in (outside, "../outside", "linked"):
        folder.recipe(RECIPE.replace("batch.safetensors", place + "/batch.safetensors").replace('"model"', '"%s/model"' % place))
        shutil.rmtree(folder.out, ignore_errors=True)
        trained(galley("train", folder.path("recipe.lua"), "--out", folder.out))
    write(os.path.join(outside, "common.lua"), "return { rate = 1e-3 }")
    folder.recipe('local common = require "../outside/common"\n' + RECIPE.replace("1e-3", "common.rate"))
    ended = galley("plan", folder.path("recipe.lua"))
    check(ended.returncode == 0, "exit code 0 was expected: %s" % ended)
    refused(folder, 2, "recipe.lua:1", "outside/common.lua leads out", more=["--confine"])


@case
def every_command_that_reads_a_recipe_confines_it():
    folder, outside = with_outside("commands")
    folder.recipe(RECIPE.replace("batch.safetensors", outside + "/batch.safetensors"))
    for command, more in (("plan", []), ("train", ["--out", folder.out]), ("data", []), ("eval", []), ("gradients", ["--out", folder.out])):
        ended = galley(command, folder.path("recipe.lua"), "--confine", *more)
        check_error(ended, 2, "recipe.lua:3", outside, "leads out of the recipe's folder", hint="--set")
        check("--confine" in galley(command, "--help").stdout, "%s --help must tell of --confine" % command)
    check(not os.path.exists(folder.out), "a refused command has left " + folder.out)


@case
def patterns_do_not_leave_through_links():
    folder, outside = with_outside("patterns")
    folder.write("text/sub/a.txt", "some text " * 50)
    os.symlink("../../../outside/passwd", folder.path("text/sub/passwd"))
    folder.recipe(TEXT.replace("STEPS", "1").replace('"text"', '"text/*/*"'))
    refused(folder, 2, "recipe.lua:3", "text/sub/passwd' leads out", outside + "/passwd", hint="--confine", more=["--confine"])
    trained(galley("train", folder.path("recipe.lua"), "--out", folder.out))
    # What the person at the command line names is the person's, and ends where the pattern begins.
    folder.recipe(TEXT.replace("STEPS", "1").replace('{ "text" }', 'arg("text")'))
    shutil.rmtree(folder.out)
    refused(folder, 2, "text/sub/passwd' leads out", more=["--confine", "--set", "text=%s/*/*" % folder.path("text")])
    os.remove(folder.path("text/sub/passwd"))
    trained(galley("train", folder.path("recipe.lua"), "--out", folder.out, "--confine", "--set", "text=%s/*/*" % folder.path("text")))


@case
def links_in_a_models_folder():
    folder, outside = with_outside("model-links")
    os.remove(folder.path("model/model.safetensors"))
    os.symlink(outside + "/model/model.safetensors", folder.path("model/model.safetensors"))
    refused(folder, 2, "model/model.safetensors' leads out of the recipe's folder", more=["--confine"])
    # A folder that the person names may be somebody else's, too.
    folder.recipe(RECIPE.replace('"model"', 'arg("model")'))
    refused(folder, 2, "model/model.safetensors' leads out", more=["--confine", "--set", "model=" + folder.path("model")])
    trained(galley("train", folder.path("recipe.lua"), "--out", folder.out, "--set", "model=" + folder.path("model")))


@case
def a_run_stays_confined():
    folder, outside = with_outside("resumed")
    trained(galley("train", folder.path("recipe.lua"), "--out", folder.out, "--confine"))
    with open(os.path.join(folder.out, "run.toml"), "rb") as file:
        check(tomllib.load(file)["recipe"]["confined"] is True, "run.toml does not say that the recipe was confined")
    os.remove(folder.path("batch.safetensors"))
    os.symlink(outside + "/batch.safetensors", folder.path("batch.safetensors"))
    for command in ("resume", "eval"):
        check_error(galley(command, folder.out), 2, "recipe.lua:3", "'batch.safetensors' leads out")


# --- Files that do not end ---------------------------------------------------------------------------------------------------------
@case
def a_pipe_as_a_recipe():
    folder = Folder("pipe")
    os.remove(folder.path("recipe.lua"))
    os.mkfifo(folder.path("recipe.lua"))
    for command in ("plan", "data", "eval"):
        check_error(galley(command, folder.path("recipe.lua"), timeout=10), 2, "recipe.lua", "not a file")


# --- Schedules -------------------------------------------------------------------------------------------------------------------
@case
def schedules_that_do_not_fit():
    folder = with_recipe("schedules", "lr = 1e-3", "lr = linear { peak = 1e-3, warmup = 5 }")
    ended = galley("train", folder.path("recipe.lua"), "--out", folder.out)
    check(ended.returncode == 0, "a short trial must run: %s" % ended)
    check(len(ended.lines) == 1 and "recipe.lua:5: the linear schedule of 'lr' never reaches its peak of 0.001" in ended.lines[0], "a warning was expected: %s" % ended)
    folder = with_recipe("floor", "lr = 1e-3", "lr = cosine { peak = 1e-3, floor = 1e-2 }")
    refused(folder, 2, "recipe.lua:5: the cosine schedule of 'lr' falls from its peak of 0.001 to a floor of 0.01")


@case
def the_last_step_trains():
    folder = with_recipe("last-step", "lr = 1e-3", "lr = linear { peak = 1e-3 }")
    trained(galley("train", folder.path("recipe.lua"), "--out", folder.out))
    with open(os.path.join(folder.out, "metrics.jsonl")) as file:
        rates = [json.loads(line)["lr"] for line in file]
    check(len(rates) == 3 and every(abs(a - b) < 1e-18 for a, b in zip(rates, (1e-3, 2e-3 / 3, 1e-3 / 3))), rates)


# --- Languages -------------------------------------------------------------------------------------------------------------------
@case
def numbers_have_points_whatever_the_language():
    folder = Folder("comma")
    locales = os.path.join(folder.root, "locales")
    os.makedirs(locales)
    # Without the sources of locales (the package "locales") only the streams of C++ get a comma.
    if shutil.which("localedef") and os.path.exists("/usr/share/i18n/locales/de_DE"):
        subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", os.path.join(locales, "de_DE.UTF-8")], check=True)
    else:
        skip("number formats of C", "the package locales is not installed")
    os.environ.update(LC_ALL="de_DE.UTF-8", LOCPATH=locales)
    seen = []
    for name, more in (("point", ""), ("comma", '  use "decimal-comma" {},')):
        text = TEXT.replace("steps = STEPS", "steps = 4, validate = { every = 2 }").replace('"bytes" }', '"bytes", validation = 0.5 }')
        folder.recipe(text.replace("1e-3", "cosine { peak = 0.0015, warmup = 2 }").replace('  use "adamw"', more + '  use "adamw"'))
        for i in range(4):
            folder.write("text/%d.txt" % i, "line %d of a text\n" % i * 400)
        out = os.path.join(folder.root, name)
        words = ["--plugin-path", os.path.join(TEST_PLUGINS, "decimal-comma")]
        trained(galley("train", folder.path("recipe.lua"), "--out", out, *words))
        plan = galley("plan", folder.path("recipe.lua"), "--json", "--memory", "1.5GiB", *words)
        loss = galley("eval", out, "--json", *words)
        table = galley("plan", folder.path("recipe.lua"), *words)
        with open(os.path.join(out, "metrics.jsonl")) as file:
            lines = [json.loads(line) for line in file]
        with open(os.path.join(out, "run.toml"), "rb") as file:
            record = tomllib.load(file)
        with open(os.path.join(out, "memory.json")) as file:
            memory = json.load(file)
        memory.pop("process")  # what the process had is measured
        for line in lines:
            line.pop("seconds", None)
        check(plan.returncode == 0 and loss.returncode == 0, "exit code 0 was expected: %s" % plan)
        seen.append((lines, json.loads(plan.stdout), json.loads(loss.stdout), record["target"], record["steps"], record["data"], memory,
                     [line for line in table.stdout.splitlines() if "recipe.lua" not in line]))
    for a, b in together(*seen):
        check(a == b, "%s\n%s" % (a, b))


finish()
