"""What the tests in Python share: the program and what it leaves, safetensors, checks. The standard library only."""
import array
import fnmatch
import json
import math
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import time
import traceback

program = os.environ['GALLEY']
source = pathlib.Path(os.environ['GALLEY_SOURCE'])
binary = pathlib.Path(os.environ['GALLEY_BINARY'])
fixtures = source / 'tests' / 'fixtures'

# ---- Checks ------------------------------------------------------------------------------------------------------------------------

_checks = 0
_failures = []
_case = ''  # that runs
_made = {}  # {name: what it runs}
_turned = set()  # names of cases that take turns
_later = set()  # names of those that have their turn with another commit


def check(holds, text):
    """Counts a check; what does not hold is printed, and the test goes on."""
    global _checks
    _checks += 1
    if not holds:
        _failures.append(text)
        print(f'FAILED: {_case and _case + ": "}{text}', flush=True)
    return holds


class _Enough(SystemExit):
    """Ends a case, or a script without cases, after a failure that has been printed."""


def require(holds, text):
    """A check without which the rest of the case makes no sense: what does not hold ends it."""
    if not check(holds, text):
        raise _Enough(1)


def case(function):
    """A part of a test that needs no other part. `SCRIPT NAME …` runs those that are named; finish() runs them all, and one that ends by an error ends only itself."""
    assert function.__name__ not in _made, function.__name__
    _made[function.__name__] = function
    return function


def take_turns(names, turns):
    """Of these cases every `turns`-th one runs with this commit, and others with others. `make test-all` runs them all (turns_all.py), and so does who names them."""
    assert set(names) <= set(_made), f'no cases: {set(names) - set(_made)}'
    this = turn(turns)
    _turned.update(names)
    _later.update(x for k, x in enumerate(names) if this is not None and k % turns != this)


def cases(items, turns=1):
    """A case for each item, called `function(item)`, or `function(key, value)` of a dict. `turns`: as for take_turns()."""
    def make(function):
        for item in items:
            arguments = (item, items[item]) if isinstance(items, dict) else (item,)
            name = f'{function.__name__}:{item}'
            assert name not in _made, name
            _made[name] = lambda arguments=arguments: function(*arguments)
        if turns > 1:
            take_turns([f'{function.__name__}:{item}' for item in items], turns)
        return function
    return make


def every(items):
    """all() that does not hold of nothing."""
    items = list(items)
    return bool(items) and all(items)


def together(*lists):
    """zip() of lists that are equally long, and not empty."""
    lists = [list(x) for x in lists]
    check(len({len(x) for x in lists}) == 1 and len(lists[0]) > 0, f'side by side: {[len(x) for x in lists]} items')
    return list(zip(*lists))


def turn(parts):
    """Which of `parts` the tests run with this commit: another one with each, so that all have their turn. None: all of them, as `make test-all` asks by GALLEY_TEST_ALL."""
    if 'GALLEY_TEST_ALL' in os.environ:
        return None
    if not shutil.which('git'):
        return 0
    r = subprocess.run(['git', '-C', source, 'rev-parse', 'HEAD'], capture_output=True, text=True)
    return int(r.stdout.strip() if r.returncode == 0 else '0', 16) % parts  # an archive has no commit


# "k/n": of what takes long, every n-th case from the k-th on (tests/python/slices.py).
sliced = [int(x) for x in os.environ.get('GALLEY_SLICE', '').split('/') if x]
_cases = 0


def in_slice():
    """Whether the next case is to be run."""
    global _cases
    _cases += 1
    return not sliced or (_cases - 1) % sliced[1] == sliced[0]


_skips = 0


def skip(what, why):
    """What this machine cannot do. tests/may_skip.txt has to have it. A case that skips need not check anything."""
    global _skips
    _skips += 1
    print(f'skipped: {what}: {why}', flush=True)


def _run_cases():
    global _case
    wanted = [x for x in sys.argv[1:] if _made and not x.startswith('-')]
    for name in wanted:
        if not any(fnmatch.fnmatchcase(x, name) for x in _made):
            sys.exit(f'there is no case {name}; there are: {", ".join(_made)}')
    home = os.getcwd()
    for name, run_it in _made.items():
        if not any(fnmatch.fnmatchcase(name, x) for x in wanted) if wanted else name in _later:
            continue
        _case, before = name, _checks + _skips
        try:
            run_it()
        except _Enough:
            pass
        except SystemExit as ended:
            check(False, str(ended))
        except Exception:
            check(False, traceback.format_exc())
        check(_checks + _skips > before, 'it checked nothing')
        _case = ''
        os.chdir(home)


def finish(turns=1):
    """Runs the cases, where there are some, and ends the test. One without any check has failed. `turns`: as for take_turns(), of all cases that take none yet."""
    if turns > 1:
        take_turns([x for x in _made if x not in _turned], turns)
    _run_cases()
    if _later:
        print(f'{len(_later)} of {len(_made)} cases have their turn with other commits')
    print(f'{_checks} checks, {len(_failures)} failed')
    if _failures and _made:
        print(f'one case alone: {sys.argv[0]} CASE')
    sys.exit(1 if _failures or not _checks else 0)


# ---- The program -------------------------------------------------------------------------------------------------------------------


def fresh_folder():
    """Leaves the working directory empty of what an earlier run of this test wrote."""
    shutil.rmtree('files', ignore_errors=True)
    os.mkdir('files')
    os.chdir('files')


class Ended(subprocess.CompletedProcess):
    """What a command has said, and how long it took. Bytes that are no UTF-8 stand as \\xNN."""

    def __init__(self, args, returncode, stdout, stderr, seconds=0.0):
        super().__init__(args, returncode, *((x or b'').decode(errors='backslashreplace') for x in (stdout, stderr)))
        self.seconds = seconds
        # What answers a signal at once comes before all else.
        self.answers = [x for x in self.stderr.splitlines() if x.startswith('stopping ')]
        self.lines = [x for x in self.stderr.splitlines() if x not in self.answers]

    def __str__(self):
        return f'exit code {self.returncode} after {self.seconds:.2f} s: {" ".join(map(str, self.args[1:]))}\n--- stdout (end)\n{self.stdout[-1000:]}--- stderr (end)\n{self.stderr[-3000:]}'


def _words(args):
    return [x if isinstance(x, bytes) else str(x) for x in args]


def galley(*args, input=None, stdout=subprocess.PIPE, timeout=60, cwd=None, before=None, executable=None, **environment):
    """Runs the program, whatever comes of it; one that takes too long is killed, and has no exit code. `before` is called in the process first;
    `executable` is another program."""
    words, begin = _words([executable or program, *args]), time.monotonic()
    more = dict(stdin=subprocess.DEVNULL) if input is None else dict(input=input.encode() if isinstance(input, str) else input)
    try:
        r = subprocess.run(words, stdout=stdout, stderr=subprocess.PIPE, timeout=timeout, cwd=cwd, preexec_fn=before, env={**os.environ, **environment}, **more)
    except subprocess.TimeoutExpired as late:
        r = subprocess.CompletedProcess(words, None, late.stdout, late.stderr)
    return Ended(words, r.returncode, r.stdout, r.stderr, time.monotonic() - begin)


def sets_of(*recipes):
    """The flags that give recipes their paths."""
    texts = [pathlib.Path(x).read_text() for x in recipes if str(x).endswith('.lua') and pathlib.Path(x).exists()]
    return [x for name, path in _arguments.items() if any(f'arg("{name}")' in text for text in texts) for x in ('--set', f'{name}={path}')]


def run(*args, threads=1, code=0, **more):
    """Runs the program; another exit code than expected ends the case, or the test, with what it said."""
    words = _words(args)
    words += sets_of(*words[1:2])
    ended = galley(*words, **{'timeout': 300, 'OMP_NUM_THREADS': str(threads), **more})
    if ended.returncode != code:
        sys.exit(f'FAILED: not exit code {code}, but {ended}')
    return ended


def start(*args, **more):
    """The program as a process that runs beside the test."""
    return subprocess.Popen(_words([program, *args]), **{'stdin': subprocess.DEVNULL, 'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE, **more})


def end_of(process, timeout=60):
    """What a process of start() has said since, when it has ended."""
    begin = time.monotonic()
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        return Ended(process.args, None, out, err, time.monotonic() - begin)
    return Ended(process.args, process.returncode, out, err, time.monotonic() - begin)


def until(holds, process, seconds=60):
    """Waits for what `process` is to do, and says whether that was seen before its end."""
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.001)
    return False


def processor_time(process):
    """How long a process has computed, in seconds."""
    stat = pathlib.Path(f'/proc/{process.pid}/stat').read_text()
    return sum(map(int, stat.rsplit(')', 1)[1].split()[11:13])) / os.sysconf('SC_CLK_TCK')


_arguments = {}


def lua(value):
    """A Python value as it stands in a recipe. A path becomes an argument, which run() sets."""
    if isinstance(value, pathlib.Path):
        path = value.resolve()
        name = next((k for k, v in _arguments.items() if v == path), f'path{len(_arguments) + 1}')
        _arguments[name] = path
        return f'arg("{name}")'
    if isinstance(value, bool):
        return 'true' if value else 'false'
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return '{ ' + ', '.join(map(lua, value)) + ' }'
    if isinstance(value, dict):
        return '{ ' + ', '.join(f'["{k}"] = {lua(v)}' for k, v in value.items()) + ' }'
    return json.dumps(str(value))


def use(name, **options):
    return f'use "{name}" {lua(options)}'


def recipe(path, model, data, *uses, **entries):
    """Writes a recipe; `model` and `data` are Lua."""
    lines = [f'model = {model}', f'data = {data}', *(f'{k} = {lua(v)}' for k, v in entries.items()), *uses]
    pathlib.Path(path).write_text('return recipe {\n' + ''.join(f'  {x},\n' for x in lines) + '}\n')
    return path


def from_folder(path, **more):
    return f'model {lua(dict(path=pathlib.Path(path), **more))}'


def from_config(family, **config):
    return f'model {{ family = "{family}", config = {lua(config)} }}'


def batch_of(path):
    return f'data.batch {{ path = {lua(pathlib.Path(path))} }}'


def strategies():
    """{name: how a recipe uses it}, by plugins/*/example.lua; and {name: those of which it needs one beside it, the first of them as a rule}, which a line
    `-- beside "NAME", "NAME"` names there."""
    listed = [line.split()[0] for line in run('plugins').stdout.split('\n\n')[0].splitlines()[1:]]
    uses, beside = {name: f'use "{name}" {{}}' for name in listed}, {}
    for file in source.glob('plugins/*/example.lua'):
        needs = [x for line in file.read_text().splitlines() if line.startswith('-- beside "') for x in line.split('"')[1::2]]
        for line in file.read_text().splitlines():
            if line.startswith('use "'):
                name = line.split('"')[1]
                check(name in uses, f'{file}: an example of {name}, which `galley plugins` does not list')
                uses[name] = line
                beside[name] = needs
    return uses, beside


def lines_of(folder):
    """The lines of a run's metrics.jsonl."""
    return [json.loads(x) for x in pathlib.Path(folder, 'metrics.jsonl').read_text().splitlines()]


def untimed(lines):
    """Lines of metrics but for their times."""
    return [{k: v for k, v in x.items() if k != 'seconds'} for x in lines]


def timeless(document):
    """All of compare.json but times and what the system says of memory."""
    return json.loads(json.dumps(document), object_hook=lambda x: {k: v for k, v in x.items() if k not in ('seconds', 'ratio', 'resident')})


class Run:
    """What a run left."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.lines = lines_of(path)
        self.steps = [(x['loss'], x['grad_norm']) for x in self.lines if 'loss' in x]
        self.memory = json.loads((self.path / 'memory.json').read_text())

    def bytes(self, name='model/model.safetensors'):
        return (self.path / name).read_bytes()

    def check_memory(self, who):
        for name, x in self.memory['classes'].items():
            check(x['planned'] == x['allocated'], f'{who}: memory {name}: {x["planned"]} bytes planned, {x["allocated"]} allocated')


def train(path, out, *flags, threads=1):
    run('train', path, '--out', out, *flags, threads=threads)
    return Run(out)


def gradients(path, out, *flags, threads=1):
    run('gradients', path, '--out', out, *flags, threads=threads)
    return load(out)


def plan(path, *flags):
    return json.loads(run('plan', path, '--json', *flags).stdout)


# ---- Numbers -----------------------------------------------------------------------------------------------------------------------


def norm(x):
    return math.sqrt(math.fsum(v * v for v in x)) if all(map(math.isfinite, x)) else math.inf


def error(x, expected, floor=0.0):
    """The L2 norm of the difference over the larger of the expected norm and `floor`; infinite for anything that is not finite."""
    if len(x) != len(expected):
        return math.inf
    e = norm([a - b for a, b in zip(x, expected)]) / max(norm(expected), floor, 1e-300)
    return e if math.isfinite(e) else math.inf


_codes = {'F32': 'f', 'F64': 'd', 'I32': 'i', 'I64': 'q', 'U8': 'B', 'I8': 'b'}


def _numbers(dtype, data):
    if dtype == 'BF16':
        return array.array('f', b''.join(b'\0\0' + data[i:i + 2] for i in range(0, len(data), 2)))
    if dtype == 'F16':
        return array.array('f', struct.unpack(f'<{len(data) // 2}e', data))
    return array.array(_codes[dtype], data)


def load(path):
    """{name: (dtype, shape, numbers)} of a safetensors file."""
    raw = pathlib.Path(path).read_bytes()
    size, = struct.unpack('<Q', raw[:8])
    tensors = {}
    for name, x in json.loads(raw[8:8 + size]).items():
        if name != '__metadata__':
            begin, end = x['data_offsets']
            tensors[name] = (x['dtype'], x['shape'], _numbers(x['dtype'], raw[8 + size + begin:8 + size + end]))
    return tensors


def safetensors(tensors, edit=None):
    """The bytes of a file with {name: (dtype, shape, numbers or their bytes)}; `edit` may change the header before it is written. Numbers are not for F16 and BF16."""
    header, data = {}, b''
    for name, (dtype, shape, numbers) in tensors.items():
        part = numbers if isinstance(numbers, bytes) else array.array(_codes[dtype], numbers).tobytes()
        header[name] = {'dtype': dtype, 'shape': list(shape), 'data_offsets': [len(data), len(data) + len(part)]}
        data += part
    if edit:
        edit(header)
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    return struct.pack('<Q', len(text)) + text + data


def save(path, tensors, edit=None):
    pathlib.Path(path).write_bytes(safetensors(tensors, edit))
