#!/usr/bin/env python3
# Runs that are stopped: by signals, by another process, by a kill. Each waits for what it can see of the program, a line or a file, and says whether that came.
#
#   GALLEY=… GALLEY_SOURCE=… GALLEY_BINARY=… tests/python/interrupts.py [CASE]…
import fcntl

from galley_test import processor_time
from runs_kit import *

fresh_folder()


def handles(process, which):
    """Whether the process has a handler of its own for a signal."""
    with open("/proc/%d/status" % process.pid) as file:
        return any(int(line.split()[1], 16) >> which - 1 & 1 for line in file if line.startswith("SigCgt:"))


def computes(process):
    """Whether it has computed for a fifth of a second, many times what these recipes take elsewhere."""
    return processor_time(process) > 0.2


def lines(out):
    """How many lines of metrics there are so far."""
    path = os.path.join(out, "metrics.jsonl")
    if not os.path.exists(path):
        return 0
    with open(path, "rb") as file:
        return file.read().count(b"\n")


def long_run(name, micro_batches=1, steps=1000000, **pipes):
    """A run that is in the middle of its steps."""
    folder = Folder(name)
    folder.write("text/a.txt", "".join("line %d of a text\n" % i for i in range(200)))
    folder.recipe(TEXT.replace("STEPS", str(steps)).replace('  use "adamw"', '  use "accumulate" { steps = %d },\n  use "adamw"' % micro_batches).replace("every = 50", "every = 0"))
    run = start("train", folder.path("recipe.lua"), "--out", folder.out, **pipes)
    run.folder = folder
    # A single long step writes no line: that there is a file, and a handler, and that it then computes, says that the steps have begun.
    begun = lambda: os.path.exists(os.path.join(folder.out, "metrics.jsonl")) and handles(run, signal.SIGTERM)
    require(until(begun if micro_batches > 1 else lambda: lines(folder.out) > 0, run), "the steps do not begin: exit code %s" % run.poll())
    before = processor_time(run)
    require(micro_batches == 1 or until(lambda: processor_time(run) > before + 0.1, run), "it does not compute: exit code %s" % run.poll())
    return run


def saved(run):
    ended, folder = end_of(run), run.folder
    check_error(ended, 130, "interrupted after step ", "which is saved", hint="galley resume " + folder.out)
    step = int(ended.lines[0].split("interrupted after step ")[1].split(",")[0])
    check(os.listdir(os.path.join(folder.out, "state")) == ["step-%08d" % step], "the state of that step must be there: %s" % ended)
    check_no_halves(ended, folder.out)


# --- Two processes -------------------------------------------------------------------------------------------------------------
@case
def two_processes():
    folder = halfway("two")
    held = os.open(folder.out, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    not_resumed(folder, folder.out + " is in use by process %d" % os.getpid(), hint="interrupt it", code=1)
    os.close(held)
    before = set(os.listdir(folder.out))
    resumed(folder)
    new = [name for name in os.listdir(folder.out) if name not in before and not name.startswith("events.out.")]
    check(new == ["model"], "other files are left: %s" % new)
    run = long_run("two-running")
    try:
        check_error(galley("resume", run.folder.out), 1, "is in use by process %d" % run.pid)
    finally:
        run.kill()
        run.communicate()


# --- Signals -------------------------------------------------------------------------------------------------------------------
def interrupted(which):
    for steps in (100, 1000, 10000):  # Until the run is longer than it takes to stop it
        folder = Folder("interrupt-%d" % which)
        folder.write("text/a.txt", "".join("line %d of a text\n" % i for i in range(200)))
        folder.recipe(TEXT.replace("STEPS", str(steps)))
        before = digest(folder.input)
        run = start("train", folder.path("recipe.lua"), "--out", folder.out)
        until(lambda: lines(folder.out) > 0, run)
        run.send_signal(which)
        ended = end_of(run)
        if ended.returncode != 0:
            break
    check_error(ended, 130, "interrupted after step ", hint="galley resume " + folder.out)
    step = int(ended.lines[0].split("interrupted after step ")[1].split(",")[0])
    check(0 < step < steps, "a step in the middle was expected: %s" % ended)
    said = "Ctrl-C" if which == signal.SIGINT else "the same signal"
    check(ended.answers == ["stopping after step %d; %s again ends at once" % (step, said)], "the signal is answered with the step: %s: %s" % (ended.answers, ended))
    check("step-%08d" % step in os.listdir(os.path.join(folder.out, "state")), "the state of that step must be there: %s" % ended)
    check(len(metrics(folder.out)) == step and not os.path.exists(os.path.join(folder.out, "model")), "one line a step and no model yet were expected: %s" % ended)
    trained(galley("resume", folder.out))
    whole = os.path.join(folder.root, "whole")
    trained(galley("train", folder.path("recipe.lua"), "--out", whole))
    for part in ("model", "state"):
        check(digest(os.path.join(folder.out, part)) == digest(os.path.join(whole, part)), part + "/ differs from that of a run that nobody disturbed")
    check(metrics(folder.out) == metrics(whole), "the metrics differ from those of a run that nobody disturbed")
    check(digest(folder.input) == before, "the input has changed")


@case
def interrupt():
    interrupted(signal.SIGINT)


@case
def terminate():
    interrupted(signal.SIGTERM)


@case
def hang_up():
    run = long_run("hang-up")
    run.send_signal(signal.SIGHUP)
    run.send_signal(signal.SIGHUP)  # A closed terminal sends it from two sides
    saved(run)


@case
def hang_up_that_nohup_ignores():
    run = long_run("nohup", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    run.send_signal(signal.SIGHUP)
    done = lines(run.folder.out)
    check(until(lambda: lines(run.folder.out) > done + 20, run), "the run was to go on for 20 steps: nohup was not heeded")
    run.send_signal(signal.SIGTERM)
    saved(run)


@case
def reader_that_went_away():
    """train … | head -1"""
    run = long_run("head", restore_signals=True)
    run.stdout.readline()
    run.stdout.close()
    run.stdout = None
    saved(run)


@case
def second_interrupt():
    run = long_run("second", micro_batches=65536, steps=10)
    run.send_signal(signal.SIGINT)
    said = run.stderr.readline()
    check(said.startswith(b"stopping after step 1;"), "the first one is answered: %s" % said)
    time.sleep(0.2)  # Two within a tenth of a second are one
    require(run.poll() is None, "the first one must let the step come to its end: exit code %s" % run.poll())
    run.send_signal(signal.SIGINT)
    ended = end_of(run)
    check(ended.returncode == -signal.SIGINT and lines(run.folder.out) == 0, "the second one must end it in its first step: %s" % ended)


@case
def one_signal_that_comes_twice():
    run = long_run("twice")
    run.send_signal(signal.SIGTERM)
    run.send_signal(signal.SIGTERM)  # As timeout(1) does
    saved(run)


@case
def interrupt_of_what_can_be_begun_again():
    """Where there is no step to finish, the first signal ends the program."""
    folder = Folder("planning")
    folder.recipe(RECIPE.replace('model { path = "model" }', 'model { family = "gpt2", config = { vocab_size = 64, n_positions = 16, n_embd = 8, n_layer = 2000, n_head = 2 } }'))
    run = start("train", folder.path("recipe.lua"), "--out", folder.out)
    check(until(lambda: computes(run), run) and not handles(run, signal.SIGINT), "it was to plan: exit code %s" % run.poll())
    run.send_signal(signal.SIGINT)
    ended = end_of(run)
    check(ended.returncode == -signal.SIGINT, "the signal was to end it: %s" % ended)
    check(not os.path.exists(folder.out), "it has left " + folder.out)


@cases(("plan", "train", "data", "eval", "gradients"))
def ctrl_c_ends_a_pattern_that_runs_for_ever(command):
    folder = Folder("endless-" + command)
    folder.recipe('local x = ("a"):rep(1e5):find(("a*"):rep(50) .. "b")\n' + RECIPE)
    run = start(command, folder.path("recipe.lua"), *(["--out", folder.out] if command in ("train", "gradients") else []))
    check(until(lambda: computes(run), run), "it was to search for ever: exit code %s" % run.poll())
    run.send_signal(signal.SIGINT)
    ended = end_of(run)
    check(ended.returncode == -signal.SIGINT, "the signal was to end it: %s" % ended)
    check(not os.path.exists(folder.out), "it has left " + folder.out)


@case
def ctrl_c_ends_a_chat_template_that_runs_for_ever():
    folder = Folder("endless-template")
    folder.write("talk.jsonl", json.dumps({"messages": [{"role": "user", "content": "a" * 100000}, {"role": "assistant", "content": "b"}]}) + "\n")
    folder.recipe(TEXT.replace("STEPS", "1").replace(
        'data.text { files = { "text" }, tokenizer = "bytes" }',
        'data.chat { files = { "talk.jsonl" }, tokenizer = "bytes",\n'
        '  template = function(m) return { m[1].content:match(("a*"):rep(50) .. "b") or "x" } end }'))
    run = start("train", folder.path("recipe.lua"), "--out", folder.out)
    check(until(lambda: computes(run), run), "it was to render for ever: exit code %s" % run.poll())
    run.send_signal(signal.SIGINT)
    ended = end_of(run)
    check(ended.returncode == -signal.SIGINT, "the signal was to end it: %s" % ended)


# --- Kills ---------------------------------------------------------------------------------------------------------------------
@case
def killed_while_validating_and_exporting():
    """SIGKILL after what a run that validates and saves all the time has done: what goes on ends as an undisturbed one does."""
    folder = Folder("killed")
    folder.write("text/a.txt", "".join("line %d of a text\n" % i for i in range(400)))
    folder.recipe(TEXT.replace("STEPS", "12").replace('"bytes" }', '"bytes", validation = 0.5 }').replace("every = 50, keep = 2", "every = 3, keep = 2")
                  .replace("  save", "  validate = { every = 1, start = true },\n  save"))
    wanted = whole(folder)
    told = metrics(folder.out)
    check(len(told) == 25, "12 steps and 13 validations: %d lines" % len(told))
    state = lambda out, step: os.path.exists(os.path.join(out, "state", "step-%08d" % step))
    rounds = (  # Each process of a run is killed after its event, and another goes on.
        [lambda out: os.path.exists(os.path.join(out, "run.toml")), lambda out: lines(out) >= 1],  # Before, and after the first validation
        [lambda out: lines(out) >= 2, lambda out: lines(out) >= 15],  # In validations
        [lambda out: state(out, 3), lambda out: state(out, 9)],  # After saves, while older ones go
        [lambda out: lines(out) >= 7, lambda out: lines(out) >= 19],  # In saves
    )
    for number, events in enumerate(rounds):
        out = os.path.join(folder.root, "out-%d" % number)
        words = ["train", folder.path("recipe.lua"), "--out", out]
        for event in events:
            run = start(*words)
            came = until(lambda: event(out), run)
            run.kill()
            ended = end_of(run)
            check(came and ended.returncode == -signal.SIGKILL, "round %d: the kill did not hit: %s" % (number, ended))
            words = ["resume", out]
        goes_on(out, wanted, told)
    # The last line comes before the last state and the export: some of these kills hit them.
    hits = 0
    for number in range(8):
        out = os.path.join(folder.root, "last-%d" % number)
        run = start("train", folder.path("recipe.lua"), "--out", out)
        until(lambda: lines(out) == 25, run)
        run.kill()
        hits += end_of(run).returncode == -signal.SIGKILL and not os.path.exists(os.path.join(out, "model"))
        goes_on(out, wanted, told)
    check(hits > 0, "of 8 kills none hit between the last line and the model")


def goes_on(out, wanted, told):
    trained(galley("resume", out))
    for part, hash in wanted.items():
        check(digest(os.path.join(out, part)) == hash, "%s/ of %s differs" % (part, out))
    check(metrics(out) == told, "metrics of %s differ" % out)
    check_no_halves(None, out)


finish()
