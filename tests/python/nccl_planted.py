#!/usr/bin/env python3
# label: all
"""Mistakes planted in plugins/nccl, each in one place: the NCCL and the driver of the tests have to find them, by what NVIDIA's guides forbid; of work that never comes to a stream, the bytes tell."""
import pathlib
import shutil
import subprocess

from galley_test import binary, case, cases, check, finish, fresh_folder, source
from gpus_kit import processes

fresh_folder()
PROGRAM = binary / 'tests' / 'bin' / 'nccl-exchange'
FLAGS = ['-std=c++20', '-O0', '-fPIC', '-shared', '-fvisibility=hidden', '-fvisibility-inlines-hidden', '-w', f'-I{source}/sdk/include', f'-I{source}/sdk/emulated/include',
         f'-Wl,--version-script={source}/sdk/cmake/galley-plugin.map']
# What is planted: the file, what stands there, what is put there; what is said then; the words of the program, and how many processes there are.
MISTAKES = {
    'a peer that does not exist': ('cuda.cu', 'group_.member(after)', 'group_.member(place + k)', 'ncclSend with rank 2 of 2', 'few', 2),
    'messages of another size': ('cuda.cu', 'piece(part(to), done, slot)', 'piece(own(), done, slot)', 'it receives ', 'few', 3),
    'all received in one place': ('cuda.cu', 'slots + from * slot', 'slots', 'receives something else', 'few', 3),
    'in place, at another place': ('cuda.cu', 'here ? whole + own().first * element_ :', 'here ? whole :', 'ncclAllGather in place, and not at', 'few', 2),
    'ranks in another order': ('cuda.cu', 'group_.places() * bytes <= kSmall', 'group_.places() * bytes <= kSmall * (1 + group_.place())', 'it receives ', 'few', 2),
    'places for numbers in the run': ('cuda.cu', 'group_.member(before)', 'before', 'nothing has moved for 5 s', 'groups 1', 4),
    'numbers in the run for places': ('cuda.cu', 'static_cast<int>(group_.place()),', 'ranks_.rank(),', 'has other bytes', 'groups 1', 4),
    'a group for the run': ('cuda.cu', 'largest_ > 0 && group_.is_whole_run()', 'largest_ > 0', 'all_gather wrote after its output', 'groups 1', 4),
    'nobody sends': ('cuda.cu', 'if (sent) result = nccl.send(source, bytes, kUint8, to, comm, queue);', '', 'nothing has moved for 5 s', 'few', 2),
    'memory that a GPU cannot reach': ('cuda.cu', 'nccl.all_gather(mine, whole,', 'nccl.all_gather(static_cast<const void*>(&node_), whole,', "an address of the host's memory", 'few', 2),
    'no wait for NCCL': ('ranks.hpp', 'if (result == kInProgress) settle(what, [] {});', '', 'has other bytes', 'few', 2),
    'no begin of a group': ('ranks.hpp', 'result = library_->group_start();', 'result = kSuccess;', 'ncclGroupEnd without ncclGroupStart', 'few', 2),
    'no end of a group': ('ranks.hpp', 'const int ended = library_->group_end();', 'const int ended = kSuccess;', 'has other bytes', 'few', 2),
    'a call after abort': ('ranks.hpp', 'return std::exchange(comm_, nullptr);', 'return comm_;', 'on a communicator that is not there (any more)', 'abort', 2),
    'destroyed and not finalized': ('ranks.hpp', 'library_->comm_finalize(comm);', 'kSuccess;', 'ncclCommDestroy of a communicator that is not finalized', 'open', 2),
    'a setting that is not initialized': ('library.hpp', 'size_t size = sizeof(Config);', 'size_t size = 0;', 'a configuration that is not initialized', 'open', 2),
    'bytes are read too early': ('bytes.hpp', 'wait(ranks);\n      auto', 'auto', 'a copy of what a stream has yet to write', 'few', 2),
    'bytes of another rank': ('bytes.hpp', 'memory_ + static_cast<DeviceAddress>(ranks.rank() * size);', 'memory_;', 'ncclAllGather in place, and not at', 'few', 2),
}


def built(name, file, before, after):
    """A build folder with the plugin that has the mistake."""
    home = pathlib.Path(name.replace(' ', '-').replace(',', '')).absolute()
    shutil.copytree(source / 'plugins' / 'nccl', home / 'source')
    text = (home / 'source' / file).read_text()
    check(text.count(before) == 1, f'{name}: {file} has {text.count(before)} times: {before}')
    (home / 'source' / file).write_text(text.replace(before, after))
    plugins = home / 'plugins'
    plugins.mkdir()
    (home / 'emulated').symlink_to(binary / 'emulated')
    for plugin in (binary / 'plugins').iterdir():
        if plugin.name != 'nccl':
            (plugins / plugin.name).symlink_to(plugin)
    shutil.copytree(binary / 'plugins' / 'nccl', plugins / 'nccl')
    for made, of in (('nccl.so', 'plugin.cpp'), ('nccl-cuda-emulated.so', 'cuda.cu')):
        if file in (of, 'ranks.hpp', 'library.hpp') or (file == 'bytes.hpp' and of == 'plugin.cpp'):
            done = subprocess.run(['g++', *FLAGS, '-x', 'c++', str(home / 'source' / of), '-o', str(plugins / 'nccl' / made)], capture_output=True, text=True)
            check(done.returncode == 0, f'{name}: {done.stderr[-2000:]}')
    return home


def run_with(home, words, n):
    meeting = home / 'meeting'
    meeting.mkdir(exist_ok=True)
    return processes(n, *words.split(), executable=PROGRAM, GALLEY_BINARY=str(home), MEETING=str(meeting), GALLEY_MOCK_NCCL_SECONDS='5')


@cases(MISTAKES)
def found(name, mistake):
    file, before, after, text, words, n = mistake
    ended = run_with(built(name, file, before, after), words, n)
    said = [one.stdout if 'bytes' in text or 'wrote' in text else one.stderr.partition('NCCL of the tests, rank ')[2] for one in ended]
    check(any(text in one for one in said), f'{name}: nobody says {text!r}: ' + '\n'.join(map(str, ended)))


@case
def without_a_mistake():
    """Built in the same way, it holds."""
    for one in run_with(built('none', 'ranks.hpp', 'class Ranks {', 'class Ranks {'), 'few', 2):
        check(one.returncode == 0 and not one.stderr, one)


finish()
