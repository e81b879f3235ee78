#!/usr/bin/env python3
# Files of somebody else: a recipe, a run, a model's folder and an adapter bring no code, and with --confine, a run by itself, they read nothing outside of
# their folder. strangers_all.py tries all that strangers_kit.py lists.
#
#   GALLEY=… GALLEY_SOURCE=… GALLEY_BINARY=… tests/python/strangers.py [CASE]…
import tomllib

from strangers_kit import *

fresh_folder()

OUT_OF_RUN = "leads out of the run's folder"


def read(path):
    with open(path) as file:
        return file.read()


def ends(ended, code, *parts, hint=None, warned=False):
    """As check_error(), after a line that says that the run is a stranger's."""
    check(any("has no mark of yours" in line for line in ended.lines[:1]) == warned, "one line was expected of whose run it is: %s: %s" % (warned, ended))
    if warned:
        check("--unconfined" in ended.lines[0], "the way to lift it was expected: %s" % ended)
        ended.lines = ended.lines[1:]
    if code:
        check_error(ended, code, *parts, hint=hint)
    else:
        check(ended.returncode == 0 and not ended.lines, "exit code 0 was expected, and no other line: %s" % ended)
    check(SECRET not in ended.stdout + ended.stderr, "the secret is told: %s" % ended)


# --- Recipes ---------------------------------------------------------------------------------------------------------------------
@case
def recipes():
    """A kind of way each; all of them are in strangers_all.py."""
    few = ("the current folder by /proc", "links in a row", "the weights", "beside the model: merges.txt", "beside a tokenizer: tokenizer_config.json", "an adapter's configuration",
           "a named pipe for generation_config.json")
    for name, make, part, command in RECIPES:
        if name in few:
            refuses(name, make, part, command, ["--confine"])
    for name, make, part, command in OPENLY:
        if name in ("beside the model: vocab.json", "a device"):
            refuses(name, make, part, command, [])


@case
def arguments_that_are_no_paths():
    folder = with_outside("arguments")
    for given, path in (("/", folder.outside + "/batch.safetensors"), (".", "./outside/batch.safetensors"), ("..", "../outside/batch.safetensors")):
        folder.recipe('local sep = arg("sep", " ")\n' + RECIPE.replace("batch.safetensors", path))
        ended = galley("plan", folder.path("recipe.lua"), "--confine", "--set", "sep=" + given, cwd=folder.root)
        check_error(ended, 2, "recipe.lua:4", "input/outside/batch.safetensors': No such file" if given == "." else OUT)
    # Nor is a value that names a folder, where no path begins with it.
    folder.recipe('local lang = arg("lang")\n' + RECIPE)
    link(folder, "batch.safetensors", folder.outside + "/batch.safetensors")
    ended = galley("plan", folder.path("recipe.lua"), "--confine", "--set", "lang=outside", cwd=folder.root)
    check_error(ended, 2, OUT)


# --- Runs ------------------------------------------------------------------------------------------------------------------------
RUN = WITH_TEXT.replace(ADAMW, LORA + ADAMW).replace("seed = 1", "seed = 1, save = { every = 1 }")
COMMANDS = {"sample": ["--prompt", "a", "--tokens", "1"], "eval": [], "export": ["--merge", "--out", "exported"], "embed": [], "resume": [], "report": []}
_made = {}


def run_within(name):
    """A run of somebody else that was packed with all that it reads: its paths lie in its own folder."""
    folder = with_outside(name)
    if not _made:
        folder.recipe(RUN)
        trained(galley("train", folder.path("recipe.lua"), "--out", folder.out))
        _made["run"] = os.path.abspath("kept-run")
        shutil.rmtree(_made["run"], ignore_errors=True)
        shutil.copytree(folder.out, _made["run"])
        _made["from"] = folder.input
        shutil.rmtree(folder.out)
    shutil.copytree(_made["run"], folder.out)
    os.rename(folder.input, folder.out + "/input")
    folder.input = folder.out + "/input"
    folder.record = os.path.join(folder.out, "run.toml")
    folder.good = unmarked(read(folder.record)).replace(_made["from"], folder.input)
    write(folder.record, folder.good)
    return folder


def uses(folder, command, *more, cwd=None):
    words = [x if x != "exported" else os.path.join(folder.root, "exported") for x in COMMANDS[command]]
    if command == "embed":
        return galley("embed", folder.out, *more, input='"a b"\n', cwd=cwd)
    ended = galley(command, folder.out, *words, *more, cwd=cwd or folder.outside)
    shutil.rmtree(os.path.join(folder.root, "exported"), ignore_errors=True)
    return ended


@case
def runs_of_ones_own():
    folder = with_outside("own")
    folder.recipe(RUN)
    trained(galley("train", folder.path("recipe.lua"), "--out", folder.out))
    for command in COMMANDS:
        ends(uses(folder, command), 0)
        if command != "report":
            ends(uses(folder, command, "--confine"), 2, OUT_OF_RUN, hint="without --confine")
    for command in ("predict", *COMMANDS):
        told = galley(command, "--help").stdout
        check("--confine" in told and "--unconfined" in told and "--plugin-path" in told, command)
    both = uses(folder, "eval", "--confine", "--unconfined")
    ends(both, 2, "--confine and --unconfined")
    ends(galley("eval", folder.path("recipe.lua"), "--unconfined"), 2, "--unconfined applies to a run's directory only")
    ends(galley("sample", folder.path("model"), "--prompt", "a", "--unconfined"), 2, "--unconfined applies to a run's directory only")
    # Its key tells; another user's does not know it, and neither does a text that has changed.
    text = read(os.path.join(folder.out, "run.toml"))
    state = os.environ.get("XDG_STATE_HOME")
    try:
        os.environ["XDG_STATE_HOME"] = os.path.join(folder.root, "state")
        ends(uses(folder, "eval"), 2, OUT_OF_RUN, hint="--unconfined", warned=True)
        ends(uses(folder, "eval", "--unconfined"), 0)
        # Where no key can be kept, a run is made all the same, and that is said.
        os.environ["XDG_STATE_HOME"] = folder.path("recipe.lua")
        ended = galley("train", folder.path("recipe.lua"), "--out", folder.out + "-2")
        check(ended.returncode == 0 and len(ended.lines) == 1 and "cannot be marked as yours" in ended.lines[0] and "XDG_STATE_HOME" in ended.lines[0], "a warning was expected: %s" % ended)
    finally:
        os.environ.pop("XDG_STATE_HOME")
        if state:
            os.environ["XDG_STATE_HOME"] = state
    write(os.path.join(folder.out, "run.toml"), text.replace("seed = 1", "seed = 2"))
    ends(uses(folder, "eval"), 2, OUT_OF_RUN, warned=True)


@case
def runs_of_somebody_else():
    folder = run_within("within")
    for command in COMMANDS:
        ends(uses(folder, command), 0, warned=True)
    ends(uses(folder, "eval", "--unconfined"), 0)
    out, text = folder.outside, folder.good
    state = os.path.join(folder.out, "state", "step-00000002")

    def moved(name):
        shutil.move(os.path.join(folder.out, name), os.path.join(out, os.path.basename(name)))
        os.symlink(os.path.join(out, os.path.basename(name)), os.path.join(folder.out, name))

    def named(old, new):
        check(old in text, old)
        write(folder.record, text.replace(old, new))

    ways = (  # what it is, how it is made, the command that is to refuse it, and parts of what it says
        ("an absolute path", lambda: named('path = "model"', 'path = "%s/model"' % out), "sample", OUT_OF_RUN),
        ("a path up", lambda: named('path = "model"', 'path = "../../outside/model"'), "export", OUT_OF_RUN),
        ("/proc/self/cwd", lambda: named('path = "model"', 'path = "/proc/self/cwd/model"'), "sample", OUT_OF_RUN),
        ("another place for the recipe", lambda: named(folder.input + "/recipe.lua", out + "/recipe.lua"), "embed", OUT_OF_RUN),
        ("a recipe by /proc", lambda: named(folder.input + "/recipe.lua", "/proc/self/cwd/recipe.lua"), "eval", OUT_OF_RUN),
        ("an argument", lambda: write(folder.record, text.replace('path = "model"', 'path = arg("m")') + '\n[recipe.sets]\nm = "%s/model"\n' % out), "eval",
         OUT_OF_RUN),
        ("data", lambda: named('text/*.txt', out + "/*.txt"), "eval", OUT_OF_RUN),
        ("data by a link", lambda: link(folder, "text/9.txt", out + "/secret.txt"), "eval", OUT_OF_RUN),
        ("the model by a link", lambda: link(folder, "model", out + "/model"), "sample", OUT_OF_RUN),
        ("config.json", lambda: link(folder, "model/config.json", out + "/model/config.json"), "sample", OUT_OF_RUN),
        ("the weights", lambda: link(folder, "model/model.safetensors", out + "/model/model.safetensors"), "sample", OUT_OF_RUN),
        ("the tokenizer", lambda: link(folder, "model/tokenizer.json", out + "/model/tokenizer.json"), "sample", OUT_OF_RUN),
        ("beside the tokenizer", lambda: link(folder, "model/tokenizer_config.json", out + "/model/tokenizer_config.json"), "sample", OUT_OF_RUN),
        ("what is exported", lambda: link(folder, "model/merges.txt", out + "/model/merges.txt"), "export", "leads out"),
        ("a state's tensors", lambda: moved("state/step-00000002/state.safetensors"), "sample", OUT_OF_RUN),
        ("a state's text", lambda: moved("state/step-00000002/state.toml"), "eval", OUT_OF_RUN),
        ("a state", lambda: moved("state/step-00000002"), "eval", OUT_OF_RUN),
        ("all states", lambda: moved("state"), "resume", OUT_OF_RUN),
        ("its metrics, that are shown", lambda: moved("metrics.jsonl"), "report", OUT_OF_RUN),
        ("its memory, that is shown", lambda: moved("memory.json"), "report", OUT_OF_RUN),
        ("its usage, that is shown", lambda: moved("usage.json"), "report", OUT_OF_RUN),
        ("its recipe", lambda: moved("recipe.lua"), "resume", OUT_OF_RUN),
        ("run.toml", lambda: moved("run.toml"), "sample", "is a link out of the run's directory"),
        ("a named pipe for run.toml", lambda: (os.remove(folder.record), os.mkfifo(folder.record)), "sample", "named pipe"),
        ("a named pipe for its metrics", lambda: (os.remove(folder.out + "/metrics.jsonl"), os.mkfifo(folder.out + "/metrics.jsonl")), "report", "named pipe"),
    )
    kept = os.path.join(folder.root, "kept")
    shutil.copytree(folder.out, kept, symlinks=True)
    shutil.copytree(out, kept + "-outside")
    for name, make, command, part in ways:
        for place, of in ((folder.out, kept), (out, kept + "-outside")):
            shutil.rmtree(place)
            shutil.copytree(of, place, symlinks=True)
        make()
        before = digest(out)
        ended = uses(folder, command)
        check(ended.returncode in (1, 2) and part in ended.stderr, "%s: %s was expected: %s" % (name, part, ended))
        check(SECRET not in ended.stdout + ended.stderr, "%s: the secret is told: %s" % (name, ended))
        check(digest(out) == before, "%s: something outside has changed: %s" % (name, ended))
    check(os.path.exists(state), "the run has lost its state")


@case
def a_run_writes_through_no_link():
    folder = run_within("writes")
    for name in ("model", "adapter"):
        shutil.rmtree(os.path.join(folder.out, name), ignore_errors=True)
    shutil.rmtree(os.path.join(folder.out, "state", "step-00000002"))
    precious = write(os.path.join(folder.outside, "precious"), "kept")
    metrics = os.path.join(folder.out, "metrics.jsonl")
    lines = read(metrics)
    for name in ("metrics.jsonl", "state", "adapter"):
        path = os.path.join(folder.out, name)
        away = path + "-kept"
        if os.path.exists(path):
            shutil.move(path, away)
        os.makedirs(os.path.join(folder.outside, "state"), exist_ok=True)
        os.symlink(precious if name == "metrics.jsonl" else os.path.join(folder.outside, "state"), path)
        before = digest(folder.outside)
        ended = uses(folder, "resume")
        check(ended.returncode in (1, 2) and digest(folder.outside) == before, "%s: something outside was written: %s" % (name, ended))
        os.remove(path)
        if os.path.exists(away):
            shutil.move(away, path)
    check(read(metrics).startswith(lines.splitlines()[0]), "the metrics of the run have changed")


# --- Code ------------------------------------------------------------------------------------------------------------------------
@case
def a_run_brings_no_code():
    folder = with_outside("code")
    plug = os.path.join(folder.root, "plug")
    shutil.copytree(os.path.join(TEST_PLUGINS, "claims"), plug)
    folder.recipe(RUN.replace(ADAMW, ADAMW + '  use "claims" { facet = "gradient_dtype", value = "f32" },\n'))
    trained(galley("train", folder.path("recipe.lua"), "--out", folder.out, "--plugin-path", plug))
    record = os.path.join(folder.out, "run.toml")
    text = read(record)
    check([x["folder"] for x in tomllib.loads(text)["plugins"] if x["id"] == "claims"] == [plug] and "mark = " in text, "run.toml names the plugin's folder: %s" % text)
    # What is loaded says so.
    touched = os.path.join(folder.root, "touched")
    library = next(os.path.join(plug, x) for x in sorted(os.listdir(plug)) if x.endswith(".so"))
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler:
        code = write(os.path.join(folder.root, "touch.c"), '#include <stdio.h>\n__attribute__((constructor)) static void touch(void) { fclose(fopen("%s", "w")); }\n' % touched)
        good = library + ".good"
        shutil.move(library, good)
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, code], check=True)
    else:
        skip("libraries that tell that they were loaded", "there is no C compiler")
    os.symlink(plug, os.path.join(folder.root, "link"))
    os.symlink("../plug", os.path.join(folder.out, "lib"))
    inside = shutil.copytree(plug, os.path.join(folder.out, "inside"))
    odd = shutil.copytree(plug, os.path.join(folder.root, "odd'; touch x;'"))
    places = {plug: None, os.path.join(folder.root, "link"): None, os.path.join(folder.out, "lib"): None, inside: None, odd: None, "/proc/self/cwd/plug": folder.root, "plug": folder.root,
              "./plug": folder.root, ".": plug, "": plug, "/proc/self/root" + plug: None, "../plug": folder.out, os.path.join(folder.out, "../plug"): None}
    for place, cwd in places.items():
        for write_record in (write_marked, lambda path, text: write(path, unmarked(text))):  # One's own word is no more worth
            write_record(record, text.replace('folder = "%s"' % plug, "folder = %s" % json.dumps(place)))
            for command in COMMANDS if place == plug else ("sample", "resume"):
                ended = uses(folder, command, "--unconfined", cwd=cwd)
                if command == "report":
                    check(ended.returncode == 0 and "needs plugin &#39;claims&#39;" in read(folder.out + "/report.html") or "needs plugin 'claims'" in read(folder.out + "/report.html"), "the page was to say what is missing: %s" % ended)
                    continue
                check_error(ended, 2, "this run needs plugin 'claims' 1.0.0, which is not on the plugin path", hint="if you trust what lies where it says: galley %s " % command)
                check(not os.path.exists(touched), "%r was loaded: %s" % (place, ended))
    # Neither do a recipe, a model and an adapter beside which one lies, in folders of the usual names and in the current one.
    shutil.copytree(folder.path("model"), os.path.join(folder.root, "model"))
    write(os.path.join(folder.root, "adapter", "adapter_config.json"), json.dumps({"peft_type": "CLAIMS", "base_model_name_or_path": folder.path("model")}))
    write(os.path.join(folder.root, "recipe.lua"), read(folder.path("recipe.lua")).replace('data.text { files = { "text/*.txt" }, validation = 0.5 }', "data.random {}"))
    for place in ("claims", "plugins/claims", "model/claims", "model/plugins/claims", "adapter/claims"):
        shutil.copytree(plug, os.path.join(folder.root, place))
    for at in ("model", "adapter"):
        shutil.copytree(plug, os.path.join(folder.root, at), dirs_exist_ok=True)
    for words, code in ((["plan", "recipe.lua"], 2), (["sample", "adapter", *SAMPLE], 2), (["sample", "model", *SAMPLE], 0)):
        ended = galley(*words, cwd=folder.root)
        check(ended.returncode == code and (not code or "unknown strategy 'claims'" in ended.stderr), "nobody has named the plugin's folder: %s" % ended)
        check(not os.path.exists(touched), "what lies beside was loaded: %s" % ended)
    # The command that the hint offers is right, also where the shell would read more into it.
    write_marked(record, text.replace('folder = "%s"' % plug, "folder = %s" % json.dumps(odd)))
    hint = galley("eval", folder.out).lines[1]
    command = hint[hint.index("galley eval"):hint.index(" (or GALLEY_PLUGIN_PATH)")]
    if compiler:
        done = galley("-c", "exec \"$GALLEY\" " + command[len("galley "):], executable="sh", cwd=folder.root)
        check(os.path.exists(touched) and not os.path.exists(os.path.join(folder.root, "x")), str((command, done.stderr)))
        os.remove(touched)
        shutil.move(good, library)
    write(record, text)
    for more, environment in ((["--plugin-path", plug], {}), ([], {"GALLEY_PLUGIN_PATH": "::" + plug})):
        ends(galley("eval", folder.out, *more, **environment), 0)


# --- Models and adapters ---------------------------------------------------------------------------------------------------------
SAMPLE = ["--prompt", "a", "--tokens", "1", "--length", "8"]


@case
def models():
    folder = with_outside("models")
    model = folder.path("model")
    ends(galley("sample", model, *SAMPLE, "--confine"), 0)
    ends(galley("export", model, "--out", folder.out, "--confine"), 0)
    for name in ("config.json", "model.safetensors", "tokenizer.json", *BESIDE):
        shutil.rmtree(folder.out, ignore_errors=True)
        kept = os.path.join(model, name)
        away = shutil.move(kept, kept + ".kept") if os.path.exists(kept) else None
        link(folder, "model/" + name, os.path.join(folder.outside, "model", name))
        read_by_sample = name not in ("added_tokens.json", "vocab.json", "merges.txt", "tokenizer.model")
        if read_by_sample:
            ends(galley("sample", model, *SAMPLE, "--confine"), 2, "leads out of", name)
        ends(galley("export", model, "--out", folder.out, "--confine"), 2, "leads out of", name)
        if name not in ("config.json", "model.safetensors"):  # Not read to be copied
            ends(galley("export", model, "--out", folder.out), 2, "leads out of its folder", "and would be saved with the model", hint="put the file itself there")
        os.remove(kept)
        os.mkfifo(kept)
        ended = galley("export", model, "--out", folder.out)
        check(ended.returncode in (1, 2) and "named pipe" in ended.stderr, "a named pipe for %s was to be refused: %s" % (name, ended))
        os.remove(kept)
        if away:
            shutil.move(away, kept)
    check(not os.path.exists(folder.out), "a refused export has left " + folder.out)


@case
def the_cache_of_hugging_face():
    folder = with_outside("hub")
    hub = os.path.join(folder.root, "hub", "models--org--name")
    snapshot, blobs = os.path.join(hub, "snapshots", "0123abcd"), os.path.join(hub, "blobs")
    os.makedirs(snapshot)
    os.makedirs(blobs)
    folder.write("model/merges.txt", "#version: 0.2\n")
    for i, name in enumerate(sorted(os.listdir(folder.path("model")))):
        shutil.move(folder.path("model/" + name), os.path.join(blobs, "%x" % i))
        os.symlink("../../blobs/%x" % i, os.path.join(snapshot, name))
    folder.recipe(WITH_TEXT.replace('"model"', 'arg("model")').replace("validation", 'tokenizer = arg("model") .. "/tokenizer.json", validation'))
    for more in ([], ["--confine"]):
        ends(galley("sample", snapshot, *SAMPLE, *more), 0)
        ends(galley("export", snapshot, "--out", folder.out, *more), 0)
        there = sorted(os.listdir(folder.out))
        check(there == ["config.json", "merges.txt", "model.safetensors", "tokenizer.json"] and not os.path.islink(folder.out + "/merges.txt"), "exported files: %s" % there)
        shutil.rmtree(folder.out)
        ends(galley("train", folder.path("recipe.lua"), "--out", folder.out, "--set", "model=" + snapshot, *more), 0)
        check(os.path.isfile(folder.out + "/model/merges.txt"), "merges.txt is not beside the model")
        shutil.rmtree(folder.out)
    os.remove(os.path.join(snapshot, "merges.txt"))
    os.symlink(folder.outside + "/model/merges.txt", os.path.join(snapshot, "merges.txt"))
    ends(galley("export", snapshot, "--out", folder.out), 2, "merges.txt' leads out of its folder")
    ends(galley("train", folder.path("recipe.lua"), "--out", folder.out, "--confine", "--set", "model=" + snapshot), 2, "merges.txt' leads out of")


@case
def adapters():
    folder = with_outside("adapters")
    adapter(folder)
    of, file = folder.path("adapter"), folder.path("adapter/adapter_config.json")
    config = json.loads(read(file))
    sample = lambda *more: galley("sample", of, *SAMPLE, *more, cwd=folder.outside)
    link(folder, "adapter/link", folder.path("model"))
    for base in (folder.path("model"), "../input/model", "model", "/proc/self/cwd/model", "/proc/self/root" + folder.path("model"), of + "/link", "/"):
        write(file, json.dumps(dict(config, base_model_name_or_path=base)))
        ends(sample("--confine"), 2, "'base_model_name_or_path'", "leads out of the adapter's folder", hint="--base DIR")
        ends(sample("--confine", "--base", folder.path("model")), 0)
    os.remove(of + "/link")
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        shutil.move(os.path.join(of, name), os.path.join(folder.outside, name))
        link(folder, "adapter/" + name, os.path.join(folder.outside, name))
        ends(sample("--confine", "--base", folder.path("model")), 2, "leads out of the adapter's folder", name)
        os.remove(os.path.join(of, name))
        os.mkfifo(os.path.join(of, name))
        ended = sample("--base", folder.path("model"))
        check(ended.returncode in (1, 2) and "named pipe" in ended.stderr, "a named pipe was to be refused: %s" % ended)
        os.remove(os.path.join(of, name))
        shutil.move(os.path.join(folder.outside, name), os.path.join(of, name))
    link(folder, "model/tokenizer_config.json", folder.outside + "/model/tokenizer_config.json")
    ends(sample("--confine", "--base", folder.path("model")), 2, "leads out of", "tokenizer_config.json")


# --- What commands write ---------------------------------------------------------------------------------------------------------
@case
def links_where_something_is_to_be_written():
    folder = with_outside("written")
    for name, to in (("dangling", "nowhere"), ("loop", "loop")):
        os.symlink(to, os.path.join(folder.root, name))
        for words in (["export", folder.path("model")], ["train", folder.path("recipe.lua")]):
            ends(galley(*words, "--out", os.path.join(folder.root, name)), 2, name, "is a link that leads to no directory")
        check(not os.path.exists(os.path.join(folder.root, "nowhere")), "something was written through a link that leads nowhere")
    precious = write(os.path.join(folder.root, "precious"), "kept")
    log = os.path.join(folder.out, "arms", "recipe", "seed-1.log")
    other = folder.write("other.lua", RECIPE.replace("1e-3", "2e-3"))
    os.makedirs(os.path.dirname(log))
    for make in (lambda: os.symlink(precious, log), lambda: os.mkfifo(log)):
        make()
        ended = galley("compare", folder.path("recipe.lua"), other, "--out", folder.out, "--seeds", "1,2")
        check(ended.returncode == 1 and "cannot write '%s': it is a" % log in ended.stderr, "the log was to be refused: %s" % ended)
        check(read(precious) == "kept", "a file of somebody else was written")
        os.remove(log)


@case
def a_comparison_of_somebody_else():
    folder = with_outside("comparison")
    folder.recipe(RECIPE.replace("steps = 3", "steps = 1"))
    trained(galley("train", folder.path("recipe.lua"), "--out", os.path.join(folder.outside, "run")))
    shared = os.path.join(folder.root, "shared")
    os.makedirs(os.path.join(shared, "arms"))
    os.symlink(folder.outside, os.path.join(shared, "arms", "link"))
    for run in ("../outside/run", "arms/link/run", os.path.join(folder.outside, "run"), "arms/../../outside/run"):
        write(os.path.join(shared, "compare.json"), json.dumps({"arms": [{"name": "a", "runs": [{"seed": 1, "directory": run}]}], "seeds": [1], "differ": []}))
        ends(galley("report", shared), 1, "the run '%s' does not lie below the comparison" % run)
    shutil.move(os.path.join(shared, "compare.json"), os.path.join(folder.outside, "compare.json"))
    os.symlink(os.path.join(folder.outside, "compare.json"), os.path.join(shared, "compare.json"))
    ends(galley("report", shared), 2, "compare.json' leads out of the comparison's folder")
    check(not os.path.exists(os.path.join(shared, "report.html")), "a refused report has left a page")


finish()
