"""What tests/gpu/test and tests/gpu/bench.py share: steps that are processes of their own, whose results are kept in a folder, so that a call does what is
left of the work within its seconds. The standard library only: neither git nor network."""
import hashlib
import json
import os
import pathlib
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import time

import libraries

source = pathlib.Path(__file__).resolve().parents[2]
MORE = 3  # exit code: nothing failed, and there is more to do


class Steps:
    """Steps by name. `out`/steps.jsonl has a line for each that was done with this build, `out`/NAME.log what it printed."""

    def __init__(self, tool, out, build, seconds):
        self.tool, self.out, self.seconds, self.begin = tool, pathlib.Path(out).resolve(), seconds, time.monotonic()
        self.out.mkdir(parents=True, exist_ok=True)
        self.file = self.out / f'{tool}.jsonl'
        self.of_build = identity(build)
        lines = [json.loads(x) for x in self.file.read_text().splitlines() if x.endswith('}')] if self.file.exists() else []
        others = sum(x['build'] != self.of_build for x in lines)
        if others:
            print(f'{others} results in {self.file} are of another build, and do not count')
        self.done = {x['step']: x for x in lines if x['build'] == self.of_build}
        self.ran = 0

    def left(self):
        return self.seconds - (time.monotonic() - self.begin)

    def has_time(self, limit):
        """Whether a step of this limit may begin. The first one always may, or a call with few seconds would never do anything."""
        return self.ran == 0 or self.left() >= limit

    def log(self, name):
        return self.out / f'{name.replace("/", "-")}.log'

    def run(self, name, command, limit, environment=None, folder=None):
        """Runs a step of at most `limit` seconds in a folder of its own. Its line is not kept before keep(). [thread-safe]"""
        scratch = self.out / 'scratch' / name.replace('/', '-')
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        for file in folder or {}:
            (scratch / file).write_text(folder[file])
        begin = time.monotonic()
        with open(self.log(name), 'w') as log:
            process = subprocess.Popen([str(x) for x in command], cwd=scratch, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                                       env={**os.environ, **(environment or {})})
            try:
                code = process.wait(timeout=limit)
            except subprocess.TimeoutExpired:
                code = None
            except BaseException:
                stop(process)
                raise
        if code is None:
            stop(process)
        return {'step': name, 'ok': code == 0, 'seconds': round(time.monotonic() - begin, 1), 'scratch': str(scratch),
                'why': '' if code == 0 else f'over its {limit} s' if code is None else f'exit code {code}', 'command': shlex.join(str(x) for x in command)}

    def keep(self, result):
        shutil.rmtree(result.pop('scratch'), ignore_errors=True)
        result['build'] = self.of_build
        self.done[result['step']] = result
        with open(self.file, 'a') as file:
            file.write(json.dumps(result) + '\n')
            file.flush()
            os.fsync(file.fileno())

    def finish(self, names, again):
        """The last two lines: what is done, and what is next. `again`: the words of this call without steps."""
        done = [self.done[x] for x in names if x in self.done]
        failed = [x['step'] for x in done if not x['ok']]
        print(f'{len(done)} of {len(names)} steps are done, {len(failed)} failed, in {sum(x["seconds"] for x in done):.0f} s' + (f': {" ".join(failed)}' if failed else ''))
        if len(done) < len(names):
            print(f'next: {again}')
        elif failed:
            print(f'next: read {self.log(failed[0])}; `{again} {failed[0]}` runs it again')
        else:
            print('next: nothing, all is done')
        return 1 if failed else MORE if len(done) < len(names) else 0


def stop(process):
    """Ends a step and all that it started."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, how)
            process.wait(timeout=5)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def tests_of(build):
    """The programs of tests that a build has to have here."""
    return [build / 'tests' / 'bin' / x for x in ('models', 'session')]


def identity(build):
    """Of the libraries of a build, wherever it lies."""
    digest = hashlib.sha256()
    for file in [build / 'galley', *sorted((build / 'plugins').glob('*/*.so')), *(x for x in tests_of(build) if x.exists())]:
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def commit_of_source():
    """As git says, where it is here and knows it, or as tests/gpu/pack wrote it down."""
    if (source / 'COMMIT').exists():
        return (source / 'COMMIT').read_text().strip()
    try:
        said = subprocess.run(['git', 'rev-parse', '--short', 'HEAD'], cwd=source, capture_output=True, text=True)
        return said.stdout.strip() or 'commit unknown'
    except OSError:
        return 'commit unknown'


def choose(all_names, words):
    """The steps that words name: whole, or by their beginning up to a slash."""
    out = [x for x in all_names if not words or any(x == w or x.startswith(w.rstrip('/') + '/') for w in words)]
    for w in words:
        if not any(x == w or x.startswith(w.rstrip('/') + '/') for x in all_names):
            sys.exit(f'no step {w!r}; --list shows them')
    return out


# ---- The machine -------------------------------------------------------------------------------------------------------------------


def architectures(library):
    """For which GPUs a library has code: {90}, and for which it has PTX, which the driver compiles at the first use of each kernel: from {80} on. Read from
    NVIDIA's fat binaries: a header (magic, version, size of the header, size of the rest), then entries (kind 1: PTX, 2: code; …; the architecture)."""
    code, ptx = set(), set()
    data = pathlib.Path(library).read_bytes()
    at = data.find(b'\x50\xed\x55\xba')
    while at >= 0:
        version, header, size = struct.unpack_from('<HHQ', data, at + 4)
        entry, end = at + header, min(at + header + size, len(data))
        while version == 1 and header == 16 and entry + 32 <= end:
            kind, _, header_of_entry, size_of_entry, _, _, _, _, architecture = struct.unpack_from('<HHIQIIHHI', data, entry)
            if kind not in (1, 2) or not 32 <= header_of_entry <= 4096:
                break
            (ptx if kind == 1 else code).add(architecture)
            entry += header_of_entry + size_of_entry
        at = data.find(b'\x50\xed\x55\xba', at + 4)
    return code, ptx


def check_machine(build, device):
    """Prints the GPU. Ends where there is none, or where the build has no code for it."""
    if device != 'cuda':
        return 'emulated'
    if not shutil.which('nvidia-smi'):
        sys.exit('there is no nvidia-smi, so no NVIDIA driver')
    said = subprocess.run(['nvidia-smi', '--query-gpu=name,memory.total,driver_version,compute_cap', '--format=csv,noheader'], capture_output=True, text=True)
    if said.returncode != 0 or not said.stdout.strip():
        sys.exit(f'nvidia-smi finds no GPU: {(said.stdout + said.stderr).strip()}')
    line = said.stdout.splitlines()[0]
    print(line)
    here = int(line.split(',')[-1].strip().replace('.', ''))
    library = build / 'plugins' / 'models' / 'models-cuda.so'
    if not library.exists():
        sys.exit(f'{library} is not there: build with nvcc, `cmake --preset cuda -DGALLEY_TESTS=ON -DCMAKE_CUDA_ARCHITECTURES={here} && cmake --build --preset cuda`')
    code, ptx = architectures(library)
    # Code runs on later GPUs of the same generation.
    if not any(x // 10 == here // 10 and x <= here for x in code):
        sys.exit(f'this GPU is sm_{here}, and the build has code for {", ".join(f"sm_{x}" for x in sorted(code)) or "none"}' +
                 (': the driver would compile each kernel at its first use, for minutes' if any(x <= here for x in ptx) else '') +
                 f'\nbuild: cmake --preset cuda -DGALLEY_TESTS=ON -DCMAKE_CUDA_ARCHITECTURES={here} && cmake --build --preset cuda')
    os.environ.update(libraries.missing())
    return line
