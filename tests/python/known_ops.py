#!/usr/bin/env python3
"""An op grows by attributes that older kernels do not know. A kernel of another plugin says which it knows (galley_known_op): the C++ wrapper fills in what
its SDK knows of Galley's ops. It is offered no node that has more, and one that says nothing is offered none."""
import functools
import pathlib
import re
import shutil
import subprocess

from galley_test import case, check, every, finish, fresh_folder, from_config, recipe, require, run, source, together, train, use

fresh_folder()

KERNEL = '''
#include <galley/cpp/plugin.hpp>
namespace {
using namespace galley::sdk;
void multiply(const Node& n, void*) {
  const int64_t R = rows(n.in(0)), K = columns(n.in(0)), N = columns(n.out(0));
  const bool transposed = n.i("transposed", 0) != 0;
  for (int64_t r = 0; r < R; ++r)
    for (int64_t j = 0; j < N; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < K; ++k) sum += double(n.read<float>(0)[r * K + k]) * n.read<float>(1)[transposed ? k * N + j : j * K + k];
      n.write<float>(0)[r * N + j] = float(n.f("alpha", 1) * sum + (n.has(2) ? n.read<float>(2)[j] : 0));
    }
}
bool in_f32(const Node& n) {
  return n.in(0).dtype == GALLEY_F32 && n.in(1).dtype == GALLEY_F32 && n.out(0).dtype == GALLEY_F32 && !n.accumulates(0);
}
const bool registered = ADD;
}
GALLEY_PLUGIN("older", "1.0.0");
'''
MINE = 'kernel<multiply, in_f32, nullptr, 1000>("linear.older", "linear")'


@functools.cache
def older_sdk():
    """The headers of an SDK that does not know alpha, which linear gained later."""
    shutil.copytree(source / 'sdk' / 'include', 'sdk')
    known = pathlib.Path('sdk/galley/cpp/known.hpp')
    text, removed = re.subn(r'(\{"linear", 3, 1, "[^"]*) alpha\b', r'\1', known.read_text())
    check(removed == 1, 'linear has no attribute alpha')
    known.write_text(text)
    return pathlib.Path('sdk')


def built(name, sdk, add=f'add({MINE})'):
    """The folder of a plugin that is built with these headers."""
    folder = pathlib.Path(name) / 'older'
    folder.mkdir(parents=True)
    (folder / 'plugin.toml').write_text('id = "older"\nversion = "1.0.0"\nabi = "0.4"\n[provides]\nkernels = ["linear"]\n')
    r = subprocess.run(['c++', '-std=c++20', '-O1', '-fPIC', '-shared', f'-I{sdk}', '-xc++', '-', '-o', folder / 'older.so'],
                       input=KERNEL.replace('ADD', add), capture_output=True, text=True)
    require(r.returncode == 0, f'{name} does not compile: {r.stderr[:2000]}')
    return name


model = from_config('llama', vocab_size=61, max_position_embeddings=16, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4,
                    num_key_value_heads=2)


def lora(name, **more):
    return recipe(name, model, 'data.random {}', use('lora', rank=4, alpha=8, targets=['q_proj']), use('adamw', lr=1e-2), batch=2, length=8, steps=2, seed=1, **more)


path = lora('run.lua', kernels=['older'])


def chosen(plugins):
    """{node: kernel} of the products of the forward part."""
    said = run('plan', path, '--dump', 'bind', '--plugin-path', plugins).stdout
    return {node: kernel for kernel, node in re.findall(r"^micro\[\d+\] (linear\.\w+) '([\w.]+)'", said, re.M)}


@case
def what_it_knows():
    """With the SDK of today the kernel is offered all products, the one that alpha scales too."""
    kernels = chosen(built('today', source / 'sdk' / 'include'))
    check(len(kernels) >= 8 and every(x == 'linear.older' for x in kernels.values()), f'{kernels}')


@case
def what_came_later():
    plugins = built('before', older_sdk())
    kernels = chosen(plugins)
    others = {node for node, kernel in kernels.items() if kernel != 'linear.older'}
    check(len(kernels) >= 8 and len(others) == 1 and 'lora_B' in str(others), f'kernels of others: {others}, of {kernels}')
    plain, mixed = train(lora('plain.lua'), 'plain'), train(path, 'mixed', '--plugin-path', plugins, '--reference')
    check(len(mixed.steps) == 2 and every(abs(a[0] - b[0]) < 1e-5 for a, b in together(plain.steps, mixed.steps)), f'{plain.steps} {mixed.steps}')


@case
def says_nothing():
    """Without the wrapper's table, a kernel is offered nothing."""
    plugins = built('silent', source / 'sdk' / 'include', f'[] {{ static const galley_kernel k = {MINE}; registry().kernels.push_back(&k); return true; }}()')
    kernels = chosen(plugins)
    check(len(kernels) >= 8 and not any(x == 'linear.older' for x in kernels.values()), f'{kernels}')


finish()
