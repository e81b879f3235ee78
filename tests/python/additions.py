#!/usr/bin/env python3
"""An op, a family, a strategy, a listener, a format, a kind of data and a device are each one new folder or file, and no edit: they are put into a copy of this
repository, where git has to see nothing else; then they are built, tested and trained together."""
import functools
import os
import pathlib
import shutil
import subprocess
import sys

from galley_test import Run, binary, case, cases, check, every, finish, fresh_folder, from_config, program, recipe, run, save, source, together, use
from sdk_kit import configure_and_build, outside

fresh_folder()
tree = pathlib.Path('tree').resolve()
build = tree / 'build' / 'release'  # as deep as the build that is tested: ccache knows its files by relative paths

softsign_op = r'''// y = x / (1 + |x|): Turian, Bergstra, Bengio 2009.
#include <cmath>

#include "ops/check.hpp"

namespace {

using namespace galley::sdk;
using namespace galley::models;

void like_x(const Node& n, Shapes& out) {
  numbers(n, 0, "x");
  like_in_dtype(out, 0, n, n.in(0));
}
void like_dy(const Node& n, Shapes& out) {
  same_shape(n, 0, "dy", 1, "x");
  one_dtype(n, 0, "dy", 1, "x");
  like_in_dtype(out, 0, n, n.in(0));
}
void reference(const Node& n) {
  for (int64_t i = 0; i < count(n.in(0)); ++i) n.write<double>(0)[i] = n.read<double>(0)[i] / (1 + std::fabs(n.read<double>(0)[i]));
}
void reference_grad(const Node& n) {
  for (int64_t i = 0; i < count(n.in(0)); ++i) n.write<double>(0)[i] = n.read<double>(0)[i] / std::pow(1 + std::fabs(n.read<double>(1)[i]), 2);
}
void gradient(Backward& b) {
  if (b.needs(0)) b.d_inputs[0] = b.graph.node("softsign_grad", nullptr, {b.d_outputs[0], b.node.inputs[0]}, {}, {b.d_inputs[0]}, {b.adds(0)})[0];
}

Op softsign("softsign", "y = x / (1 + |x|)");
Op softsign_grad("softsign_grad", "dx = dy / (1 + |x|)²");
constexpr uint32_t compute = GALLEY_OPERAND_COMPUTE, any = GALLEY_OPERAND_ANY_DTYPE;
const bool added = add(softsign.input("x", GALLEY_ROLE_ROWS, compute)
                           .output("y", GALLEY_ROLE_ROWS, any, 0)
                           .infer<like_x>()
                           .gradient<gradient>()
                           .reference<reference>()
                           .test("right", {{GALLEY_F32, {37, 67}, 0.01, 9}})
                           .test("bf16", {{GALLEY_BF16, {37, 67}, 0.01, 9}})) &&
                   add(softsign_grad.input("dy", GALLEY_ROLE_ROWS, compute)
                           .input("x", GALLEY_ROLE_ROWS, compute)
                           .output("dx", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ACCUMULATES | any, 0)
                           .infer<like_dy>()
                           .reference<reference_grad>()
                           .test("left", {{GALLEY_F32, {37, 67}}, {GALLEY_F32, {37, 67}, -9, -0.01}})
                           .test("bf16", {{GALLEY_BF16, {37, 67}}, {GALLEY_BF16, {37, 67}, -9, -0.01}}));

}  // namespace
'''

softsign_cpu = r'''// softsign on the processor: one pass.
#include <cmath>

#include "cpu/number.hpp"

namespace {

using namespace galley::sdk;
namespace cpu = galley::cpu;

void forward(const Node& n, void*) {
  cpu::map(n, [](float x) { return x / (1.0f + std::fabs(x)); });
}
void backward(const Node& n, void*) {
  cpu::map(n, [](float dy, float x) {
    const float r = 1.0f / (1.0f + std::fabs(x));
    return dy * r * r;
  });
}

const bool added = add(kernel<forward, cpu::all_numbers>("softsign.cpu", "softsign")) &&
                   add(kernel<backward, cpu::all_numbers>("softsign_grad.cpu", "softsign_grad"));

}  // namespace
'''

bigram = '''-- The next token from this one alone, through one hidden layer: Bengio, Ducharme, Vincent, Jauvin 2003, with a context of one.
local lib = require "config"

local function build(config, g)
  local C, vocabulary = lib.integer(config, "hidden_size"), lib.integer(config, "vocab_size")
  local function matrix(name, n, m) return g:parameter { name = name, shape = { n, m }, init = { "random_normal", std = 0.3 } } end
  local x = g:node("embedding", "embed", { g:input("input_ids"), matrix("embed.weight", vocabulary, C) })
  g:block(0)
  g:mark_block_input(x)
  x = g:node("softsign", "act", { g:node("linear", "hidden", { x, matrix("hidden.weight", C, C) }, { transposed = 0 }) })
  g:block(-1)
  g:mark_block_input(x)
  g:mark_hidden(x)
  local logits = g:node("linear", "head", { x, matrix("head.weight", vocabulary, C) }, { transposed = 0 })
  g:mark_logits(logits)
  g:loss("cross_entropy", "loss", { logits, g:input("labels") })
end

return { model_types = { "bigram" }, architecture = "BigramForCausalLM", harmless = {}, build = build }
'''


def command(*words, **environment):
    r = subprocess.run(list(map(str, words)), capture_output=True, text=True, errors='replace', env=dict(os.environ, **environment))
    if r.returncode:
        sys.exit(f'FAILED: {" ".join(map(str, words))}: exit code {r.returncode}\n{r.stdout[-3000:]}{r.stderr[-3000:]}')
    return r.stdout


def git(*words):
    return command('git', '-C', tree, '-c', 'user.name=test', '-c', 'user.email=test@localhost', '-c', 'core.excludesFile=', *words)


def folder(place, files):
    (tree / place).mkdir()
    for name, text in files.items():
        (tree / place / name).write_text(text)


def abacus(text):
    """The device `lazy` as one of a kind of its own, which runs no kernel of the processor."""
    for before, after in (('lazy-device', 'abacus'), ('"lazy"', '"abacus"'),
                          ('cpu::describe(out);', 'cpu::describe(out), out->device = "abacus", out->isa = "abacus-1";')):
        text = text.replace(before, after)
    return text


def add_abacus():
    """A device of another kind, and kernels for it beside those of the processor: what a file is called says whose it is."""
    folder('models/devices/abacus', {x.name: abacus(x.read_text()) for x in (source / 'tests/plugins/lazy-device').iterdir()})
    ops = ('checksum/cpu', 'copy/cpu', 'cross_entropy/cpu', 'embedding/cpu', 'initializers/cpu', 'linear/cpu_blocked', 'linear/cpu_multiply', 'linear/cpu_several',
           'softsign/cpu', 'step/cpu', 'sums/cpu')
    for file in [tree / 'models/cpu_entry.cpp'] + [tree / f'models/ops/{x}.cpp' for x in ops]:
        # Compiled anew, so quickly: what is asked is whether they are built and run.
        (file.parent / file.name.replace('cpu', 'abacus', 1)).write_text(f'#pragma GCC optimize 0\n#define GALLEY_CPU_LEVEL 0\n#include "{file.name}"\n')


ADDED = {
    'models/ops/softsign/': lambda: folder('models/ops/softsign', {'op.cpp': softsign_op, 'cpu.cpp': softsign_cpu}),
    'models/families/bigram.lua': lambda: (tree / 'models/families/bigram.lua').write_text(bigram),
    'plugins/signsgd/': lambda: shutil.copytree(source / 'sdk/templates/optimizer', tree / 'plugins/signsgd'),
    'plugins/csv/': lambda: shutil.copytree(source / 'sdk/templates/listener', tree / 'plugins/csv'),
    'plugins/six-bit/': lambda: shutil.copytree(source / 'tests/plugins/six-bit', tree / 'plugins/six-bit'),
    'plugins/pairs/': lambda: shutil.copytree(source / 'tests/plugins/pairs', tree / 'plugins/pairs'),
    'models/devices/lazy/': lambda: shutil.copytree(source / 'tests/plugins/lazy-device', tree / 'models/devices/lazy'),
    'abacus': add_abacus,
}


@functools.cache
def seen_by_git():
    """What `git status` has shown of each addition to a copy of this repository."""
    shutil.copytree(source, tree, ignore=lambda at, names: {'.git', 'build', 'runs', '__pycache__'} & set(names) if pathlib.Path(at) == source else [])
    git('init', '-q')
    git('add', '-A')
    git('commit', '-q', '-m', 'as it is')
    seen = {}
    for what, add in ADDED.items():
        add()
        seen[what] = git('status', '--porcelain').splitlines()
        git('add', '-A')
        git('commit', '-q', '-m', what)
    return seen


@functools.cache
def built():
    """The program with all of them. It is the one that is there: it finds plugins and families beside itself. One level of the processor will do."""
    seen_by_git()
    command('cmake', '--preset', 'release', '-S', tree, '-B', build, '-DGALLEY_TESTS=OFF', '-DGALLEY_CUDA=OFF')
    command('cmake', '--build', build, '--parallel', os.cpu_count(), '--target', 'families', 'plugin-models-main', 'plugin-models-cpu-v3', 'plugin-cpu', 'plugin-signsgd',
            'plugin-csv', 'plugin-six-bit-main', 'plugin-six-bit-cpu-v3', 'plugin-pairs', 'plugin-lazy-device', 'plugin-abacus', 'plugin-models-abacus',
            CCACHE_BASEDIR=str(tree))
    shutil.copy2(program, build / 'galley')
    return build / 'galley'


def cycle(name, *uses, **entries):
    """A recipe with the family and the strategy that were added, and others."""
    ids = [(7 * i + row) % 31 for row in range(4) for i in range(16)]
    save('cycle.safetensors', {'input_ids': ('I32', (4, 16), ids), 'labels': ('I32', (4, 16), ids)})
    return recipe(f'{name}.lua', 'model { family = "bigram", config = { vocab_size = 31, hidden_size = 16 } }', 'data.batch { path = "cycle.safetensors" }',
                  use('signsgd', lr=1e-2, momentum=0.9), *uses, batch=4, length=16, steps=60, **entries)


def on(device, path, *flags):
    run('train', path, '--out', device, '--device', device, *flags, executable=built())
    return Run(device)


@functools.cache
def on_cpu():
    return on('cpu', cycle('bigram'))


# ---- Cases ---------------------------------------------------------------------------------------------------------------------------------


@cases([x for x in ADDED if x != 'abacus'])
def no_edit(place):
    """git sees one new folder or file."""
    check(seen_by_git()[place] == [f'?? {place}'], f'git status shows {seen_by_git()[place]}')


@case
def no_edit_for_a_device_of_another_kind():
    status = seen_by_git()['abacus']
    check(every(x.startswith('?? ') for x in status), f'git status shows {status}')


@case
def op_is_tested():
    said = run('plugins', 'models', executable=built()).stdout
    check('softsign.cpu' in said, f'galley plugins models does not name the kernel of the new op: {said[-2000:]}')
    tests = binary / 'tests' / 'bin' / 'models'
    if tests.exists():
        said = command(tests, '--gtest_filter=*softsign*', GALLEY_BINARY=str(build), GALLEY_TEST_LEVEL='x86-64-v3')
        check('[  PASSED  ]' in said and '[  PASSED  ] 0 ' not in said, f'no test found the new op:\n{said}')


@case
def trains():
    steps = on_cpu().steps
    check(len(steps) == 60 and steps[0][0] > 3 and steps[-1][0] < 1, f'the loss went from {steps[0][0]} to {steps[-1][0]}')


@case
def listens():
    run('train', cycle('heard', use('csv')), '--out', 'heard', executable=built())
    losses = [float(x.split(',')[2]) for x in pathlib.Path('heard/steps.csv').read_text().splitlines() if ',loss,' in x]
    check(losses == [loss for loss, _ in on_cpu().steps] and Run('heard').bytes() == on_cpu().bytes(), f'the listener was told the losses {losses}')


@case
def stores_and_reads():
    """The format and the kind of data, with an objective of its own."""
    pathlib.Path('pairs.csv').write_text('prompt,chosen,rejected\n' + ''.join(f'{a} plus 2 is ,{a + 2},{a}\n' for a in range(8)))
    llama = from_config('llama', vocab_size=256, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2)
    uses = use('pair-loss'), use('lora', rank=4), use('six-bit'), use('signsgd', lr=1e-2)
    path = recipe('pairs.lua', llama, 'data.pairs { path = "pairs.csv" }', *uses, batch=16, length=16, steps=12, seed=1)
    run('train', path, '--out', 'pairs', '--plugin-path', binary / 'plugins' / 'lora', '--reference', executable=built())
    steps = Run('pairs').steps
    check(len(steps) == 12 and steps[-1][0] < steps[0][0], f'the loss of pairs went from {steps[0][0]} to {steps[-1][0]}')


@case
def on_the_new_device():
    lazy = on('lazy', cycle('bigram'))
    check(lazy.steps == on_cpu().steps and lazy.bytes() == on_cpu().bytes(), 'the two devices give different bytes')


@case
def no_kernel_of_another_plugin():
    """For a device of another kind the strategy has none."""
    said = run('plan', cycle('bigram'), '--device', 'abacus', code=2, executable=built()).stderr
    check("no kernel of device 'abacus'" in said and 'signsgd_step' in said, f'without kernels for abacus: {said}')
    manifest = (build / 'plugins' / 'models' / 'plugin.toml').read_text()
    check('device = "abacus"\nlibrary = "models-abacus.so"' in manifest, 'models: the manifest names no kernels for abacus')


@case
def on_a_device_of_another_kind():
    """With kernels for that device and another plugin's op, from a library that is built with the installed SDK alone."""
    kernels = outside / 'abacus-kernels'
    kernels.mkdir()
    for name, text in {'plugin.toml': 'id = "abacus-kernels"\nversion = "1.0.0"\nabi = "0.4"\nrequires = ["signsgd >= 1"]\n[provides]\nkernels = ["signsgd_step"]\n',
                       'plugin.cpp': '#include <galley/cpp/plugin.hpp>\nGALLEY_PLUGIN("abacus-kernels", "1.0.0");\n',
                       'abacus.cpp': (source / 'sdk/templates/optimizer/cpu.cpp').read_text().replace('"signsgd", "1.0.0"', '"abacus-kernels", "1.0.0"')
                                     .replace('("signsgd_step")', '("signsgd_step", {{"signsgd_step", 7, 0, {"momentum"}}})'),
                       'rule.hpp': (source / 'sdk/templates/optimizer/rule.hpp').read_text(),
                       'CMakeLists.txt': 'cmake_minimum_required(VERSION 3.25)\nproject(kernels LANGUAGES CXX)\nfind_package(galley-sdk REQUIRED)\n'
                                         'galley_add_plugin(MANIFEST plugin.toml SOURCES plugin.cpp KERNELS abacus abacus.cpp)\n'}.items():
        (kernels / name).write_text(text)
    made = on('abacus', cycle('asks', kernels=['abacus-kernels']), '--plugin-path', configure_and_build(kernels, 'abacus-kernels'), '--reference')
    for (loss, norm), (other, norm_other) in together(on_cpu().steps, made.steps):  # compiled for another processor: sums are split otherwise
        check(abs(loss - other) < 1e-4 and abs(norm - norm_other) < 1e-3, f'loss {other} and norm {norm_other}; {loss} and {norm} on the processor')
    check('(abacus-kernels)' in (made.path / 'run.toml').read_text(), 'run.toml does not say whose kernels ran')


finish()
