"""What scripts about several processes with an emulated GPU each share: a launcher that sets the variables of PyTorch's torchrun, and the NCCL and the driver of the tests,
which stand in for NVIDIA's (tests/gpu/nccl)."""
import os
import subprocess
import time

from galley_test import binary, check, end_of, program, Run, sets_of

LIBRARIES = binary / 'tests' / 'nccl'
GPU = ['--device', 'cuda-emulated', '--plugin-path', binary / 'emulated']
_starts = iter(range(1_000_000))


def variables(rank, n, job):
    return dict(RANK=str(rank), WORLD_SIZE=str(n), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(n), TORCHELASTIC_RUN_ID=job, OMP_NUM_THREADS='1', LD_LIBRARY_PATH=str(LIBRARIES))


def begin(n, *words, executable=None, job=None, ranks=None, **environment):
    """Starts the processes, or those of these ranks, which know of each other what torchrun says: their number, and that of each."""
    job = job or f'{os.getpid()}-{next(_starts)}'
    return [subprocess.Popen([str(x) for x in (executable or program, *words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             env={**os.environ, **variables(rank, n, job), **environment}) for rank in ranks or range(n)]


def end(processes, timeout=300):
    """What came of each: as torchrun does, the others are ended once one has failed, after a while in which they may say why."""
    deadline, failed = time.monotonic() + timeout, None
    while any(p.poll() is None for p in processes) and time.monotonic() < deadline:
        if failed is None and any(p.poll() not in (None, 0) for p in processes):
            failed = time.monotonic()
        if failed is not None and time.monotonic() > failed + 30:
            break
        time.sleep(0.02)
    for p in processes:
        if p.poll() is None:
            p.kill()
    return [end_of(p) for p in processes]


def processes(n, *words, timeout=300, **more):
    return end(begin(n, *words, **more), timeout)


def train_with_gpus(n, path, out, *flags, command='train', code=0):
    ended = processes(n, command, path, '--out', out, *flags, *GPU, *sets_of(path))
    for one in ended:
        check(one.returncode == code, one)
    return Run(out)
