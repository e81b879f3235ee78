#!/usr/bin/env python3
"""Exchanges between processes that mpirun starts: build/…/tests/bin/mpi-exchange computes the ops of exchanges by the kernels of plugins/mpi, and compares on each
rank with what it computes itself from the numbers of all ranks, to the bit. Ranks that are not as many as the launcher says, or do not agree about their parts, are errors."""
import pathlib
import re
import sys
import time

from galley_test import binary, case, cases, check, finish, fresh_folder, galley, run, source
from ranks_kit import OPTIONS

sys.path.insert(0, str(source / 'tests'))
import summary

fresh_folder()
PROGRAM = binary / 'tests' / 'bin' / 'mpi-exchange'


def mpirun(ranks, *words, timeout=300):
    """With as many processes as that, more than there are processors too."""
    return galley('-n', ranks, *OPTIONS, PROGRAM, *words, executable='mpirun', timeout=timeout)


def alone(*words, **environment):
    """Without a launcher."""
    return galley(*words, executable=PROGRAM, **environment)


@cases([2, 3, 4], turns=3)
def sums_and_parts(ranks):
    """Sums in the order of ranks, parts of any size, and exchange(); also what kernels refuse. For each level of the processor that is here (tests/may_skip.txt says so)."""
    said = mpirun(ranks, 'ops', ranks)
    check(said.returncode == 0 and not said.stderr, said)
    for rank in range(ranks):
        held = re.findall(rf'^rank {rank} of {ranks}: \d+ checks hold at (.*)$', said.stdout, re.M)
        check(held == [level for level, needs in summary.LEVELS.items() if needs <= summary.flags()], said)


@cases([4, 6])
def groups(ranks):
    """Both halves of the ranks at once, neighbours and every other one, and all ranks in between, without a barrier."""
    said = mpirun(ranks, 'groups', ranks)
    check(said.returncode == 0 and not said.stderr, said)
    check(sorted(re.findall(r'^rank (\d) of .*: \d\d\d+ and \d\d\d+ checks hold of groups$', said.stdout, re.M)) == [str(r) for r in range(ranks)], said)


@case
def one_rank():
    """It opens no MPI."""
    said = alone('alone')
    check(said.returncode == 0 and said.stdout == 'alone: 1 checks hold\n', said)


@case
def another_count():
    """Both numbers are said, on each rank, and nobody waits."""
    said = mpirun(2, 'ranks')
    for rank in range(2):
        check(f"open: status 1, 'the launcher says rank {rank} of 3, and MPI has rank {rank} of 2', 'start all processes by one mpirun" in said.stdout, said)
    said = alone('ranks')
    check(said.returncode == 1 and "another launcher than Open MPI's has started this process, rank 0 of 2" in said.stdout, said)


@case
def no_agreement():
    """A rank that expects fewer bytes than another sends says so with the node's name; its run is lost."""
    said = mpirun(2, 'apart')
    for rank in range(2):
        text = f'h.0.exchange: reduce_scatter: MPI_Test of a message with rank {1 - rank}: MPI_ERR_TRUNCATE: message truncated'
        check(f"rank {rank}: status 4, '{text}', check 4 'an exchange by MPI has failed', culprit {1 - rank}\n" in said.stdout, said)


@case
def aborted():
    """A thread that aborts ends all ranks, those that wait too."""
    began = time.monotonic()
    said = mpirun(2, 'abort')
    check(said.returncode != 0 and 'waits no more' not in said.stdout and time.monotonic() - began < 40, said)


@case
def no_library():
    """What is no library of Open MPI."""
    folder = pathlib.Path('broken')
    folder.mkdir()
    (folder / 'libmpi.so.40').write_text('nothing')
    said = alone('ranks', LD_LIBRARY_PATH=folder)
    check(said.returncode == 1 and "open: status 3, 'Open MPI cannot be opened: " in said.stdout and 'install Open MPI 4 or 5' in said.stdout, said)
    (folder / 'libmpi.so.40').unlink()
    (folder / 'libmpi.so.40').symlink_to(binary / 'plugins' / 'mpi' / 'mpi.so')
    said = alone('ranks', LD_LIBRARY_PATH=folder)
    check("open: status 3, 'libmpi.so.40 has no MPI_Init_thread'" in said.stdout, said)


@case
def checked():
    """`galley check` opens ranks of one process, and says of which kernels no case is: their nodes are of several."""
    said = run('check', binary / 'plugins' / 'mpi').stdout
    check('ranks mpi (' in said and 'nothing found' in said, said)
    for op in ('all_reduce', 'all_reduce_here', 'reduce_scatter', 'all_gather', 'all_gather_here'):
        check(f"not checked: kernels of {op}: kernel '{op}.mpi' for " in said and f"it takes no case of '{op}'" in said, said)


finish()
