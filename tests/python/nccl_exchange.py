#!/usr/bin/env python3
"""Exchanges between processes with an emulated GPU each: build/…/tests/bin/nccl-exchange computes the ops of exchanges by the kernels of plugins/nccl, and compares on each
rank with what it computes itself from the numbers of all ranks, to the bit. NCCL and the driver are those of the tests, which forbid what NVIDIA's guides do."""
import pathlib
import re
import time

from galley_test import binary, case, cases, check, finish, fresh_folder, galley, run, take_turns
from gpus_kit import LIBRARIES, begin, end, processes

fresh_folder()
PROGRAM = binary / 'tests' / 'bin' / 'nccl-exchange'
MEETING = pathlib.Path('meeting').absolute()
MEETING.mkdir()


def ranks(n, *words, **more):
    ended = processes(n, *words, executable=PROGRAM, **{'MEETING': str(MEETING), **more})
    check(not list(MEETING.iterdir()), f'files are left: {list(MEETING.iterdir())}')
    return ended


def alone(*words, **environment):
    """One process, of so many."""
    return galley(*words, executable=PROGRAM, **{'LD_LIBRARY_PATH': LIBRARIES, 'MEETING': MEETING, 'TORCHELASTIC_RUN_ID': 'alone', **environment})


def held(ended):
    for rank, one in enumerate(ended):
        check(one.returncode == 0 and not one.stderr and re.search(rf'^rank {rank} of {len(ended)}: \d\d\d+ checks hold\nrank {rank} ends\n$', one.stdout, re.M), one)


@cases([2, 3, 4], turns=3)
def sums_and_parts(n):
    """Sums in the order of ranks, parts of any size, captured and replayed, and exchange(); also what kernels refuse."""
    held(ranks(n, 'ops', n))


@cases([4, 6])
def groups(n):
    """Both halves of the ranks at once, neighbours and every other one, and all ranks in between, without a barrier."""
    held(ranks(n, 'groups', n))


@case
def one_rank():
    """It opens neither NCCL nor the driver."""
    said = alone('alone', LD_LIBRARY_PATH='')
    check(said.returncode == 0 and said.stdout.startswith('alone: 1 checks hold\n'), said)


@case
def without_a_folder():
    """NCCL's own variable joins them; without it a folder is needed."""
    held(ranks(2, 'few', MEETING='', NCCL_COMM_ID='127.0.0.1:45678'))
    said = alone('open', MEETING='', WORLD_SIZE='2')
    check("open: status 1, 'no folder is given in which ranks could find each other'" in said.stdout, said)


@cases({'first': [0, 1, 2], 'last': [2, 1, 0]}, turns=2)
def files_of_another_start(_, order):
    """A start of the same name that was killed has left them: nobody takes an id that is not for him, and rank 0 answers each who asks anew."""
    left = [MEETING / '.galley-torchrun.old.nccl', *(MEETING / f'.galley-torchrun.old.nccl.{r}' for r in (1, 2))]
    left[0].write_bytes(b'galley-nccl-of-an-earlier-start'.ljust(128, b'\0') + b'12345678' * 3)
    for one in left[1:]:
        one.write_bytes(b'12345678')
    started = []
    for rank in order:
        started += begin(3, 'open', job='old', ranks=[rank], executable=PROGRAM, MEETING=str(MEETING))
        time.sleep(0.5)
    for one in end(started):
        check(one.returncode == 0 and not one.stderr, one)
    check(not list(MEETING.iterdir()), 'files are left')


@case
def nobody_comes():
    """A rank says for what it waits, and for how long it did."""
    said = alone('open', WORLD_SIZE='2', RANK='1', GALLEY_NCCL_WAIT='1')
    check(f"open: status 3, 'rank 0 has not written '{MEETING}/.galley-torchrun.alone.nccl' for this process within 1 s'" in said.stdout, said)
    said = alone('open', WORLD_SIZE='2', RANK='0', GALLEY_NCCL_WAIT='1')
    check("open: status 3, 'not all of 2 ranks have joined NCCL's communicator within 1 s'" in said.stdout, said)
    check(not list(MEETING.iterdir()), 'files are left')
    said = alone('open', WORLD_SIZE='2', GALLEY_NCCL_WAIT='soon')
    check("open: status 1, 'GALLEY_NCCL_WAIT = soon are no seconds'" in said.stdout, said)
    file = pathlib.Path('no-folder').absolute()
    file.write_text('')
    said = alone('open', WORLD_SIZE='2', MEETING=file, GALLEY_NCCL_WAIT='1')
    check(f"open: status 3, 'cannot write '{file}/.galley-torchrun.alone.nccl': Not a directory'" in said.stdout and 'NCCL_COMM_ID' in said.stdout, said)


@case
def gpus():
    """Each process needs a GPU of its own."""
    for one in ranks(2, 'open', GALLEY_MOCK_GPUS='2', GALLEY_EMULATED_DEVICES='2'):
        check(one.returncode == 0, one)
    said = alone('open', WORLD_SIZE='3', RANK='2', LOCAL_RANK='2', GALLEY_MOCK_GPUS='2')
    check("open: status 1, 'this is process 3 on this machine, where 2 GPUs are seen: each process needs one'" in said.stdout, said)
    said = alone('open', WORLD_SIZE='2', GALLEY_MOCK_GPUS='none')
    check("open: status 3, 'cuInit: CUDA_ERROR_NO_DEVICE'" in said.stdout, said)


@case
def libraries():
    """What is no NCCL, one that is too old, and no driver."""
    nothing = pathlib.Path('libnothing.so').absolute()
    nothing.write_text('nothing')
    said = alone('open', WORLD_SIZE='2', GALLEY_NCCL=nothing)
    check("open: status 3, 'NCCL cannot be opened: " in said.stdout and 'install NCCL 2.19 or later' in said.stdout, said)
    other = binary / 'plugins' / 'nccl' / 'nccl.so'
    said = alone('open', WORLD_SIZE='2', GALLEY_NCCL=other)
    check(f"open: status 3, '{other} has no ncclGetVersion'" in said.stdout, said)
    said = alone('open', WORLD_SIZE='2', GALLEY_MOCK_NCCL_VERSION='21805')
    check("open: status 3, 'libnccl.so.2 is NCCL 2.18; 2.19 or later is needed'" in said.stdout, said)
    said = alone('open', WORLD_SIZE='2', GALLEY_NCCL=LIBRARIES / 'libnccl.so.2', LD_LIBRARY_PATH='')
    check("open: status 3, 'the driver of NVIDIA's GPUs cannot be opened: libcuda.so.1" in said.stdout, said)


@case
def no_agreement():
    """Ranks that mean to have other parts than the others say: NCCL would hang, and that of the tests says so."""
    ended = ranks(2, 'apart')
    check(any(f'NCCL of the tests, rank {r}: it receives ' in one.stderr for r, one in enumerate(ended)), ended)


@case
def no_agreement_about_groups():
    """Rank 0 waits for rank 2, which exchanges with rank 3, and rank 1 waits for rank 0."""
    ended = ranks(4, 'halves', GALLEY_MOCK_NCCL_SECONDS='2')
    for rank, other in ((0, 2), (1, 0)):
        waits = f'rank {rank}: it receives 4004 of type 1 by send and receive from rank {other}, and nothing has moved for 2 s'
        check(waits in ended[rank].stderr, ended)


@case
def nobody_receives():
    """What is sent has to be received: NCCL would not end."""
    ended = ranks(2, 'unread')
    check(any(f'NCCL of the tests, rank {r}: it ends without what rank {1 - r} has sent' in one.stderr for r, one in enumerate(ended)), ended)


@case
def aborted():
    """A thread ends the waiting on the GPU; after it nothing goes on, and NCCL is not called any more."""
    last = "NCCL's communicator has been aborted"
    for rank, one in enumerate(ranks(3, 'abort')):
        check(one.returncode == 0 and not one.stderr, one)
        if rank < 2:
            check(f"rank {rank}: status 4, 'kernel 'all_reduce.nccl': h.0.exchange: all_reduce: {last}', check 4 '{last}'\nrank {rank}: exchange 4 '{last}'\n" in one.stdout, one)


@case
def gone():
    """A rank whose process has ended is found by check()."""
    for rank, one in enumerate(ranks(3, 'gone')[:2]):
        # The thread that waits may learn of it before the one that asks.
        found = rf"rank {rank} finds '(NCCL: remote process exited or there was a network error|NCCL has failed before)', then 'NCCL has failed before'"
        check(one.returncode == 0 and re.search(found, one.stdout), one)


@case
def checked():
    """`galley check` opens ranks of one process, and says of which kernels no case is: their nodes are of several."""
    said = run('check', binary / 'plugins' / 'nccl').stdout
    check('ranks nccl (' in said and 'nothing found' in said, said)
    for op in ('all_reduce', 'all_reduce_here', 'reduce_scatter', 'all_gather', 'all_gather_here'):
        check(f"not checked: kernels of {op}: kernel '{op}.nccl' on cuda (emulated): it takes no case of '{op}'" in said, said)


# What a start finds and what it lacks; how it ends when a rank is not as the others are.
take_turns(['gpus', 'libraries', 'nobody_comes'], 3)
take_turns(['no_agreement', 'aborted', 'gone'], 3)
finish()
