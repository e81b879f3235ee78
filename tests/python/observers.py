#!/usr/bin/env python3
"""Listeners of a run (galley.observer/1) as plugins that are built with the installed SDK alone: the template `csv` has what metrics.jsonl has, however often the run
was stopped; one that fails is left out, or ends the run where it says so; nothing that is planned or computed is another. And the one that comes with Galley and
listens to every run, TensorBoard's."""
import functools
import os
import pathlib
import shutil
import signal

from galley_test import (Run, binary, case, cases, check, every, finish, fresh_folder, from_config, lines_of, plan, program, recipe, require, run, source, together,
                         untimed, use)
from sdk_kit import build, configure_and_build, outside

fresh_folder()

PLUGIN = '''// Listeners for tests.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <galley/cpp/strategy.hpp>

using namespace galley::sdk;

/// Whether it is now that the environment names: GALLEY_TEST_FAILS="step 3".
static bool asked(const char* variable, const std::string& now) {
  const char* at = std::getenv(variable);
  return at && now == at;
}

/// Writes down what it is told, and stops the process where that is asked.
class Tells final : public Listener {
 public:
  explicit Tells(const galley_started_event& run) : file_(std::string(run.directory) + "/told.txt", std::ios::app) {
    say("started " + std::to_string(run.steps_done) + " of " + std::to_string(run.steps));
    say(std::to_string(run.trainable) + " of " + std::to_string(run.parameters) + " in " + std::to_string(run.planned_bytes));
  }
  void step(const galley_step_event& e) override {
    const std::string now = "step " + std::to_string(e.step);
    say(now + (e.flags & GALLEY_STEP_APPLIED ? "" : " skipped"));
    if (asked("GALLEY_TEST_KILLS", now)) ::kill(::getpid(), SIGKILL);
    if (asked("GALLEY_TEST_INTERRUPTS", now)) ::raise(SIGTERM);
  }
  void validated(const galley_validated_event& e) override {
    say("validated " + std::to_string(e.step) + (e.flags & GALLEY_VALIDATED_BEST ? " best" : ""));
  }
  void saving() override { say("saving"); }
  void note(const char* text) override { say(text); }
  void ended(const galley_ended_event& e) override {
    say("ended " + std::to_string(e.how) + " at " + std::to_string(e.steps_done) + (e.error ? std::string(": ") + e.error : ""));
  }

 private:
  void say(const std::string& text) { file_ << text << std::endl; }
  std::ofstream file_;
};
struct Told {
  explicit Told(const Options&) {}
  std::unique_ptr<Listener> listen(const galley_started_event& run) const { return std::make_unique<Tells>(run); }
};

/// Fails at what the environment names.
class Failing final : public Listener {
 public:
  explicit Failing(const galley_started_event& run) : directory_(run.directory) { at("started"); }
  void step(const galley_step_event& e) override { at("step " + std::to_string(e.step)); }
  void validated(const galley_validated_event& e) override { at("validated " + std::to_string(e.step)); }
  void saving() override { at("saving"); }
  void ended(const galley_ended_event&) override {
    std::ofstream(directory_ + "/ended.txt", std::ios::app) << "ended" << std::endl;
    at("ended");
  }

 private:
  void at(const std::string& now) {
    if (asked("GALLEY_TEST_FAILS", now)) throw Failure(GALLEY_FAILED, "no room at " + now, "make some");
  }
  std::string directory_;
};
struct Fails {
  explicit Fails(const Options&) {}
  std::unique_ptr<Listener> listen(const galley_started_event& run) const { return std::make_unique<Failing>(run); }
};
struct Ends : Fails {
  using Fails::Fails;
  static constexpr bool ends_run = true;
};

/// Of a later version: its table has a flag that must be understood.
struct Later : Fails {
  using Fails::Fails;
};
static const void* later(void* self, const char* id) {
  static galley_observer table = *static_cast<const galley_observer*>(strategy<Later>("later")->get(self, GALLEY_OBSERVER));
  table.flags = FLAGS;
  table.revision = REVISION;
  return galley_same_text(id, GALLEY_OBSERVER) ? &table : nullptr;
}
static const galley_strategy* of_later() {
  static galley_strategy table = *strategy<Later>("later");
  table.get = later;
  return &table;
}

static const bool added = add(strategy<Told>("tells")) && add(strategy<Fails>("fails")) && add(strategy<Ends>("fails-and-ends")) && add(of_later());

GALLEY_PLUGIN("listeners", "1.0.0");
'''
STRATEGY = '''
[[strategy]]
name = "{}"
summary = "For tests"
exactness = "bits"
against = "without"
always = true  # which counts in plugins that come with Galley only
'''


def listeners(name='listeners', flags='0', revision='1'):
    """Where the plugin of PLUGIN lies; `flags` and `revision`: those of the table of `later`."""
    folder = outside / name
    folder.mkdir()
    (folder / 'plugin.cpp').write_text(PLUGIN)
    strategies = ''.join(map(STRATEGY.format, ('tells', 'fails', 'fails-and-ends', 'later')))
    (folder / 'plugin.toml').write_text('id = "listeners"\nversion = "1.0.0"\nabi = "0.4"\n' + strategies)
    (folder / 'CMakeLists.txt').write_text('cmake_minimum_required(VERSION 3.25)\nproject(listeners LANGUAGES CXX)\nfind_package(galley-sdk REQUIRED)\n'
                                           f'add_compile_definitions(FLAGS={flags} REVISION={revision})\ngalley_add_plugin(MANIFEST plugin.toml SOURCES plugin.cpp)\n')
    return configure_and_build(folder, name)


@functools.cache
def plugins():
    return ['--plugin-path', listeners(), '--plugin-path', build('csv', source / 'sdk' / 'templates' / 'listener')]


pathlib.Path('text.txt').write_text('one two three four five six seven eight nine ten. ' * 60)
model = from_config('gpt2', n_layer=1, n_embd=32, n_head=2, n_positions=16, vocab_size=256, resid_pdrop=0.1, embd_pdrop=0.0, attn_pdrop=0.0)
CSV = use('csv', file='steps.csv')


def written(name, *uses, **entries):
    """A recipe of 6 steps with a metric of a strategy (the loss scale of FP16), validations and states."""
    entries = dict(batch=2, length=16, steps=6, seed=5, validate=dict(every=2, start=True), save=dict(every=2, keep=3)) | entries
    data = 'data.text { files = { "text.txt" }, tokenizer = "bytes", validation = 0.2 }'
    return recipe(f'{name}.lua', model, data, use('amp', compute='fp16'), use('adamw', lr=1e-2), *uses, **entries)


def trained(name, *uses, code=0, **environment):
    """A run, and what it said."""
    said = run('train', written(name, *uses), '--out', name, *plugins(), code=code, **environment)
    return pathlib.Path(name), said


def line_of(name, strategy):
    return next(f'{name}.lua:{n}' for n, line in enumerate(pathlib.Path(f'{name}.lua').read_text().splitlines(), 1) if f'"{strategy}"' in line)


def saved(out):
    """{file: bytes} of the run's model and states."""
    files = {str(x.relative_to(out)): x.read_bytes() for part in ('model', 'state') for x in sorted((out / part).rglob('*.safetensors'))}
    check(len(files) >= 4, f'{out}: these are saved: {list(files)}')
    return files


@functools.cache
def plain():
    """The run without listeners."""
    run('train', written('plain'), '--out', 'plain')
    return Run('plain')


def rows(out):
    """The rows of the file as lines of metrics, and what has been lost of a row's form."""
    head, *text = (out / 'steps.csv').read_text().splitlines()
    check(head == 'step,name,value', f'{out}: the first row is {head}')
    lines = []
    for row in text:
        step, name, value = row.split(',')
        first = 'validation_loss' if name.startswith('validation') else 'loss'
        if name == first:
            lines.append({'step': int(step)})
        lines[-1][name] = float(value)
    return lines


def check_rows(out):
    """Each step and each validation stands in the file once, with the numbers of metrics.jsonl."""
    named = lambda k: f'validation_{k}' if k in ('perplexity', 'token_accuracy') else k
    metrics = [{named(k): v for k, v in x.items() if k not in ('positions', 'epoch', 'best', 'skipped')} for x in lines_of(out)]
    check([x['step'] for x in metrics if 'loss' in x] == [1, 2, 3, 4, 5, 6] and [x['step'] for x in metrics if 'validation_loss' in x] == [0, 2, 4, 6],
          f'{out}: metrics.jsonl: {metrics}')
    check(every('loss_scale' in x for x in metrics if 'loss' in x), f'{out}: no loss scale is reported: {metrics}')
    # A step that was skipped has a norm that JSON has no number for.
    numbers = [{k: v for k, v in x.items() if metrics[i].get(k, v) is not None} for i, x in enumerate(untimed(rows(out)))]
    check(numbers == [{k: v for k, v in x.items() if v is not None} for x in untimed(metrics)], f'{out}: {numbers}, not {untimed(metrics)}')
    seconds = [[x['seconds'] for x in lines if 'loss' in x] for lines in (rows(out), metrics)]
    check(every(abs(a - b) <= 1e-6 for a, b in together(*seconds)), f'{out}: {seconds}')
    check(untimed(lines_of(out)) == untimed(plain().lines), f'{out}: its metrics are others than without a listener')
    check(saved(out) == saved(plain().path), f'{out}: what is saved is not what a run without a listener saves')


# ---- A listener's file --------------------------------------------------------------------------------------------------------------------


@case
def whole():
    out, said = trained('whole', CSV)
    check(said.stderr == '' and not (out / 'told.txt').exists(), f'{said}')
    check_rows(out)


@case
def killed():
    """The process dies after its third step, two of which are saved. The rows of the third one are there when the run goes on."""
    out, _ = trained('killed', CSV, use('tells'), code=-signal.SIGKILL, GALLEY_TEST_KILLS='step 3')
    check([x['step'] for x in rows(out) if 'loss' in x] == [1, 2, 3], f'after the kill: {rows(out)}')
    run('resume', out, *plugins())
    check_rows(out)
    check((out / 'told.txt').read_text().count('ended') == 1, 'nobody is told the end by a process that is killed')


@case
def interrupted():
    out, said = trained('interrupted', CSV, use('tells'), code=130, GALLEY_TEST_INTERRUPTS='step 3')
    check('interrupted after step 3' in said.stderr, f'{said}')
    check(len([x for x in rows(out) if 'loss' in x]) == 3, f'after the signal: {rows(out)}')
    with open(out / 'steps.csv', 'a') as file:
        file.write('1')  # as a process leaves that is killed while it writes a row
    run('resume', out, *plugins())
    check_rows(out)


@case
def from_an_earlier_state():
    """The newest states are removed: the rows of their steps go."""
    out, _ = trained('earlier', CSV)
    for gone in ('state/step-00000006', 'state/step-00000004', 'model'):
        shutil.rmtree(out / gone)
    run('resume', out, *plugins())
    check_rows(out)


@case
def nothing_left_to_do():
    """No listener is made for that."""
    out, _ = trained('over', CSV, use('tells'))
    before = (out / 'told.txt').read_text()
    check('nothing left to do' in run('resume', out, *plugins()).stdout, 'there is something left to do')
    check((out / 'told.txt').read_text() == before, f'the listener was told of it: {(out / "told.txt").read_text()}')


@cases({'folder': '../steps.csv', 'hidden': '.steps.csv', 'nothing': ''})
def file_elsewhere(name, file):
    """The template writes into the run's directory alone."""
    said = run('plan', written(f'at-{name}', use('csv', file=file)), *plugins(), code=2).stderr
    check(f"file = '{file}' is not a name without a path" in said and line_of(f'at-{name}', 'csv') in said, said)


# ---- What is told -------------------------------------------------------------------------------------------------------------------------


@case
def told():
    """What a run tells, in its order, and again where it goes on."""
    out, _ = trained('told', use('tells'), code=130, GALLEY_TEST_INTERRUPTS='step 3')
    run('resume', out, *plugins())
    text = (out / 'told.txt').read_text().splitlines()
    made, size = plan('told.lua', *plugins()), text[1]
    parameters, planned = made['parameters'], next(iter(made['classes'].values()))['planned']
    check(size == text[11] == f'{parameters} of {parameters} in {planned}', f'{size}, not {parameters} parameters and {planned} bytes')
    del text[11], text[1]
    check(text == ['started 0 of 6', 'validated 0', 'step 1', 'step 2', 'validated 2 best', 'saving', 'step 3', 'saving', 'ended 2 at 3',
                   'started 3 of 6', 'step 4', 'validated 4 best', 'saving', 'step 5', 'step 6', 'validated 6 best', 'saving', 'saving', 'ended 1 at 6'], f'{text}')


@case
def paused():
    """--until ends the process, and not the run."""
    run('train', written('until', use('tells')), '--out', 'until', '--until', '2', *plugins())
    check(pathlib.Path('until/told.txt').read_text().endswith('saving\nended 2 at 2\n'), pathlib.Path('until/told.txt').read_text())


@case
def failed():
    """A kernel fails in step 3: the listener is told the run's error."""
    fails = ['--plugin-path', binary / 'tests' / 'plugins' / 'fails-in-step']
    said = run('train', written('failed', use('tells'), use('fails-in-step', step=3)), '--out', 'failed', *plugins(), *fails, code=4)
    text = pathlib.Path('failed/told.txt').read_text()
    check(text.splitlines()[-1].startswith('ended 3 at 2: ') and text.splitlines()[-1].split(': ', 1)[1] in said.stderr, f'{text}{said}')


# ---- A listener that fails ----------------------------------------------------------------------------------------------------------------


@cases({'step': 'step 3', 'validation': 'validated 2', 'save': 'saving', 'start': 'started', 'end': 'ended'})
def goes_on(name, at):
    """The run warns by strategy, line and step, goes on, and warns again at its end; other listeners hear of it. Nothing that is computed is another."""
    out, said = trained(f'fails-{name}', use('fails'), use('tells'), CSV, GALLEY_TEST_FAILS=at)
    step = {'step': 'step 3: ', 'validation': 'step 2: ', 'save': 'step 2: ', 'start': '', 'end': 'step 6: '}[name]
    warning = (f"warning: {step}{line_of(out.name, 'fails')}: plugin 'listeners' failed in {at.split()[0]} of fails: no room at {at} (make some); "
               'the run goes on without this listener')
    warnings = [x for x in said.stdout.splitlines() if x.startswith('warning: ')]
    times = 1 if name == 'end' else 2
    check(warnings == [warning] * times, f'{warnings}, not {times} times {warning}: {said}')
    check((out / 'told.txt').read_text().splitlines().count(warning) == (2 if name not in ('start', 'end') else 1), (out / 'told.txt').read_text())
    check((out / 'ended.txt').exists() != (name == 'start') and (name == 'start' or (out / 'ended.txt').read_text() == 'ended\n'), f'{name}: it was told the end once')
    check_rows(out)


@cases({'step': 'step 3', 'end': 'ended'})
def ends_the_run(name, at):
    """A listener that the run must not do without: its error is the run's, and the run can be resumed."""
    out, said = trained(f'ends-{name}', use('fails-and-ends'), use('tells'), CSV, code=4, GALLEY_TEST_FAILS=at)
    step = 3 if name == 'step' else 6
    error = f"step {step}: {line_of(out.name, 'fails-and-ends')}: plugin 'listeners' failed in {at.split()[0]} of fails-and-ends: no room at {at}"
    check(error in said.stderr and 'make some' in said.stderr and 'warning' not in said.stdout, f'{said}')
    check((out / 'told.txt').read_text().endswith(f'ended 3 at {step}: {error}\n'), (out / 'told.txt').read_text())
    check((out / 'ended.txt').read_text() == 'ended\n', f'{name}: it was told the end once')
    if name == 'step':
        check([x['step'] for x in lines_of(out) if 'loss' in x] == [1, 2, 3] and not (out / 'model').exists(), f'{lines_of(out)}')
        run('resume', out, *plugins())
    check_rows(out)


@cases({'flag': ('FLAGS=2', dict(flags='2'), 'flags that this version does not know: 2'), 'revision': ('REVISION=2', dict(revision='2'), 'revision 2')})
def not_understood(name, of):
    """A listener of a later version is refused by name; one whose flag is a hint is not."""
    _, given, text = of
    path = ['--plugin-path', listeners(f'later-{name}', **given)]
    said = run('plan', written(f'later-{name}', use('later')), *path, code=4).stderr
    check("plugin 'listeners': the galley.observer/1 of later has " + text in said, said)
    run('plan', written('not-later', use('tells')), *path)


@case
def a_hint():
    run('plan', written('hint', use('later')), '--plugin-path', listeners('hint', flags='4294967296'))


# ---- TensorBoard's, which listens to every run -------------------------------------------------------------------------------------------


def shown(out):
    """What of steps and of validations is in TensorBoard's files, one for each process that has trained."""
    files = [x.read_bytes() for x in out.glob('events.out.tfevents.*')]
    return len(files), *(sum(x.count(tag) for x in files) for tag in (b'train/lr', b'train/loss_scale', b'validation/loss'))


@cases({'as it is': (None, (1, 6, 6, 4)), 'some': (2, (1, 3, 3, 4)), 'none': (0, (0, 0, 0, 0))})
def tensorboard(name, of):
    every_step, wanted = of
    out = plain().path
    if every_step is not None:
        out = pathlib.Path(f'every-{every_step}')
        run('train', written(out.name), '--out', out, '--use', f'tensorboard {{ every = {every_step} }}')
        check(untimed(lines_of(out)) == untimed(plain().lines) and saved(out) == saved(plain().path), f'{out}: with a listener it is another run')
    check(shown(out) == wanted, f'{out}: {shown(out)}, not {wanted}')


@case
def tensorboard_of_a_run_that_goes_on():
    """Each process has a file of its own."""
    run('train', written('goes-on'), '--out', 'goes-on', '--until', '2')
    run('resume', 'goes-on')
    check(shown(pathlib.Path('goes-on')) == (2, 6, 6, 4), f'{shown(pathlib.Path("goes-on"))}')


@cases(['broken', 'gone'])
def tensorboard_that_is_not_there(name):
    """The run goes on without it: with a warning where its plugin cannot be used, and without a word where there is none."""
    own = pathlib.Path(f'installation-{name}').resolve()
    (own / 'plugins').mkdir(parents=True)
    shutil.copy(program, own / 'galley')
    os.symlink(binary / 'models', own / 'models')
    for folder in (binary / 'plugins').iterdir():
        if folder.name != 'tensorboard':
            os.symlink(folder, own / 'plugins' / folder.name)
    if name == 'broken':
        shutil.copytree(binary / 'plugins' / 'tensorboard', own / 'plugins' / 'tensorboard')
        (own / 'plugins' / 'tensorboard' / 'tensorboard.so').write_text('')
    said = run('train', written(name), '--out', name, executable=own / 'galley')
    check(shown(pathlib.Path(name))[0] == 0 and saved(pathlib.Path(name)) == saved(plain().path), f'{name}: {shown(pathlib.Path(name))}')
    if name == 'broken':
        check('tensorboard/plugin.toml:' in said.stderr and said.stderr.rstrip().endswith('the run goes on without it'), f'{said}')
    else:
        check(said.stderr == '', f'{said}')


# ---- What is planned ----------------------------------------------------------------------------------------------------------------------


@case
def same_plan():
    def made(*uses):
        path = written('planned', *uses)
        return plan(path, *plugins()), *(run('plan', path, '--dump', x, *plugins()).stdout for x in ('rewrite', 'bind', 'plan'))
    heard, unheard = made(CSV, use('tells')), made()
    require(len(heard[0]) > 5 and every(len(x) > 1000 for x in heard[1:]), f'too little to compare: {heard}')
    check(heard == unheard, f'with listeners: {heard}\n\nwithout: {unheard}')


finish(turns=2)
