#!/usr/bin/env python3
"""Which machine's kernels were last run as which sources: tests/results/kernels.txt has a hash of each source file of kernels for each level of the processor ("x86-64-v3",
"x86-64-v4") and for GPUs ("cuda"), as they were when a machine ran them and its tests passed. What has changed since is named at the end of `make test` on a machine that
does not run that level.

Usage: tests/kernels_seen.py                     what has changed since a machine ran it, by level
       tests/kernels_seen.py LEVEL [COMMIT]      this level's tests have passed: as the sources are, or were in COMMIT. `make test-all` does so for the levels that it ran."""
import hashlib
import pathlib
import re
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parent.parent
record = root / 'tests/results/kernels.txt'
LEVELS = ('x86-64-v3', 'x86-64-v4', 'cuda')
FOLDERS = {'cpu': ('models/cpu', 'sdk/include/galley/cpp'), 'cuda': ('models/cuda', 'models/devices/cuda', 'sdk/include/galley/cuda', 'sdk/include/galley/cpp')}


def kind_of(level):
    return 'cuda' if level == 'cuda' else 'cpu'


def is_of(path, kind):
    """Whether a file may be compiled into kernels of a kind: by its name, its folder, or as a header beside ops and strategies."""
    name = path.rsplit('/', 1)[-1]
    if path.startswith(FOLDERS[kind]):
        return '/emulated/' not in path and name.endswith(('.hpp', '.cpp', '.cu', '.cuh', '.h'))
    if not path.startswith(('models/ops/', 'plugins/')):
        return False
    other = 'cpu' if kind == 'cuda' else 'cuda'
    return name.startswith(kind) and name.endswith(('.cpp', '.cu', '.hpp')) or name.endswith('.hpp') and not name.startswith(other)


# Texts stay, comments and white space go.
COMMENT = re.compile(rb'("(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)+\')|//[^\n]*|/\*.*?\*/', re.S)


# Conditions of the preprocessor, and those that are false and true where nvcc compiles.
CONDITION = re.compile(rb'\s*#\s*(?:(if|ifdef|ifndef)|(elif|else)|(endif))\b\s*(.*)')
FALSE, TRUE = re.compile(rb'GALLEY_CUDA_EMULATED(\s*&&.*)?$'), re.compile(rb'!GALLEY_CUDA_EMULATED$|defined\(__CUDACC__\)$')


def for_a_gpu(data):
    """The lines that nvcc sees, as far as conditions about it say."""
    out, parts = [], []  # of each condition that is open: whether this part of it is seen ('yes', 'no'; 'over': an earlier one was), '' where that is not known
    for line in data.split(b'\n'):
        m = CONDITION.match(line)
        if m and m[1]:
            condition = m[4].strip()
            parts.append('no' if FALSE.match(condition) else 'yes' if TRUE.match(condition) else '')
        about_nvcc = m and parts[-1]
        if m and m[2] and parts[-1]:
            parts[-1] = 'yes' if parts[-1] == 'no' and m[2] == b'else' else 'no' if parts[-1] == 'no' else 'over'
        if m and m[3]:
            parts.pop()
        if not about_nvcc and not {'no', 'over'} & set(parts):
            out.append(line)
    return b'\n'.join(out)


def hash_of(data, kind):
    """Of what is compiled: another comment or layout makes no other kernel, nor for a GPU does what only the emulated one has."""
    data = for_a_gpu(data) if kind == 'cuda' else data
    return hashlib.sha256(b' '.join(COMMENT.sub(lambda m: m[1] or b' ', data).split())).hexdigest()[:12]


def sources(kind, commit=None):
    """{path: hash}."""
    if commit:
        git = lambda *words: subprocess.run(['git', '-C', root, *words], capture_output=True, check=True).stdout
        return {x: hash_of(git('show', f'{commit}:{x}'), kind) for x in git('ls-tree', '-r', '--name-only', commit).decode().splitlines() if is_of(x, kind)}
    files = (str(x.relative_to(root)) for top in ('models', 'plugins', 'sdk/include') for x in (root / top).rglob('*') if x.is_file())
    return {x: hash_of((root / x).read_bytes(), kind) for x in files if is_of(x, kind)}


def recorded():
    """{level: {path: hash}}."""
    out = {level: {} for level in LEVELS}
    for line in record.read_text().splitlines() if record.exists() else ():
        if line and not line.startswith('#'):
            path, *hashes = line.split()
            for level, seen in zip(LEVELS, hashes, strict=True):
                if seen != '-':
                    out[level][path] = seen
    return out


def changed(level):
    """The files that no machine has run at this level as they are now."""
    seen = recorded()[level]
    return sorted(path for path, now in sources(kind_of(level)).items() if seen.get(path) != now)


def note(level, commit=None):
    seen = recorded()
    seen[level] = sources(kind_of(level), commit)
    lines = ['# Written by tests/kernels_seen.py: the hash of each source of kernels as a machine last ran it. PATH ' + ' '.join(LEVELS)]
    for path in sorted(set().union(*seen.values())):
        lines.append(' '.join([path, *(seen[x].get(path, '-') for x in LEVELS)]))
    record.write_text('\n'.join(lines) + '\n')


def told(ran):
    """Lines about the levels that are not among those that ran."""
    for level in LEVELS:
        files = changed(level) if level not in ran else []
        if files:
            yield f'{level}: changed since a machine ran it (tests/kernels_seen.py): {", ".join(files[:8])}' + (f' and {len(files) - 8} more' if len(files) > 8 else '')


if __name__ == '__main__':
    if len(sys.argv) > 1:
        if sys.argv[1] not in LEVELS:
            sys.exit(f'{sys.argv[1]} is no level; there are: {", ".join(LEVELS)}')
        note(*sys.argv[1:])
    else:
        print('\n'.join(told(())) or 'a machine has run all kernels as they are')
