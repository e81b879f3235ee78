"""What scripts about several processes share: how these are started, and what has to be the same for any number of them."""
import hashlib
import pathlib
import re

from galley_test import lines_of, program, run, Run, sets_of, untimed

OPTIONS = '--oversubscribe', '--bind-to', 'none', '--allow-run-as-root'


def mpirun(n, *args, code=0, options=(), **more):
    """Runs the program in n processes, which mpirun starts."""
    return run('-n', n, *OPTIONS, *options, program, *args, *sets_of(*args[1:2]), code=code, executable='mpirun', **more)


def train_with(n, path, out, *flags, command='train'):
    """A run of n processes."""
    mpirun(n, command, path, '--out', out, *flags)
    return Run(out)


def left(run_of):
    """Everything that a run leaves but times: {file: SHA-256}, and the lines of its metrics."""
    folder = run_of.path
    kept = [p for part in ('model', 'adapter', 'state') for p in sorted((folder / part).rglob('*')) if p.is_file()]
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in kept}, untimed(lines_of(folder))


def children(pid):
    found = [int(x) for x in pathlib.Path(f'/proc/{pid}/task/{pid}/children').read_text().split()]
    return found + [y for x in found for y in children(x)]


def rank_of(pid):
    try:
        found = re.search(rb'OMPI_COMM_WORLD_RANK=(\d+)', pathlib.Path(f'/proc/{pid}/environ').read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(found.group(1)) if found else None
