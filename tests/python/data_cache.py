#!/usr/bin/env python3
"""The cache of prepared data, from outside: what is prepared is used again, what is damaged is made again; several preparations at once, one killed, one on a full
disk; folders that are somebody's own, that cannot be written, that cannot be made."""
import ctypes
import os
import pathlib
import random
import resource
import signal

from data_kit import begin, data_of, data_recipe, sentence, show, write_lines
from errors_kit import check_error
from galley_test import case, check, end_of, every, finish, galley, require, start, until

begin()


def texts(name):
    """Lines of a file of their own, as data; the cache is another one with each name."""
    r = random.Random(20)
    write_lines(f'{name}.jsonl', [dict(body=sentence(r, 20)) for _ in range(50)])
    os.environ['GALLEY_CACHE'] = os.path.abspath(f'cache-{name}')
    return data_of('jsonl', f'{name}.jsonl', text='body'), pathlib.Path(f'cache-{name}')


def change(name):
    path = pathlib.Path(f'{name}.jsonl')
    before = path.read_text()
    check('tiva' in before, f'{path} has no word to change')
    path.write_text(before.replace('tiva', 'moru'))


def prepared(cache):
    """What is prepared there, beside the mark of the folder."""
    return sorted(x for x in cache.iterdir() if x.name != 'CACHEDIR.TAG') if cache.is_dir() else []


def unfinished(cache):
    return [x for x in prepared(cache) if '.tmp-' in x.name]


@case
def used_again():
    data, cache = texts('again')
    before, files = show(data), prepared(cache)
    check(len(files) == 2, f'two files are prepared: {files}')
    made = [x.stat().st_ino for x in files]
    check(show(data) == before and [x.stat().st_ino for x in prepared(cache)] == made, 'what is prepared is not used again')
    change('again')
    show(data)
    check(len(prepared(cache)) == 4, f'other content is not prepared anew: {prepared(cache)}')


@case
def damaged():
    data, cache = texts('damaged')
    before, files = show(data), prepared(cache)
    whole = {x: x.read_bytes() for x in files}
    for path in files:
        for damage, content in (('a bit', lambda x: x[:-3] + bytes([x[-3] ^ 1]) + x[-2:]), ('its end', lambda x: x[:100])):
            path.write_bytes(content(whole[path]))
            check(path.read_bytes() != whole[path], f'{path.name} is not damaged')
            check(show(data) == before, f'{path.suffix} without {damage} is not made again')
            check({x: x.read_bytes() for x in prepared(cache)} == whole, f'{path.suffix} without {damage} stays as it is')


@case
def several_at_once():
    data, cache = texts('several')
    path = data_recipe(data)
    ended = [end_of(x) for x in [start('data', path, '--json') for _ in range(4)]]
    check(every(x.returncode == 0 and x.stdout for x in ended) and len({x.stdout for x in ended}) == 1, f'runs that prepare the same at once meet: {ended[0]}')
    check(len(prepared(cache)) == 2, f'and leave something aside: {prepared(cache)}')


@case
def killed():
    """A preparation that is killed leaves nothing for longer than until the next one."""
    _, cache = texts('killed')
    r = random.Random(21)
    write_lines('many.jsonl', [dict(text=sentence(r, 40)) for _ in range(150000)])
    process = start('data', data_recipe(data_of('jsonl', 'many.jsonl')))
    seen = until(lambda: unfinished(cache), process)
    process.kill()
    require(seen and end_of(process).returncode == -signal.SIGKILL, 'the preparation has ended before it could be killed')
    check(len(unfinished(cache)) > 0, 'a killed preparation leaves no file')
    data, _ = texts('killed')
    show(data)
    check(len(prepared(cache)) == 2 and not unfinished(cache), f'which the next one does not remove: {prepared(cache)}')
    os.remove('many.jsonl')


# ---- Folders ------------------------------------------------------------------------------------------------------------------------


@case
def folder_of_somebody():
    """It stays as it is."""
    data, own = texts('own')
    own.mkdir()
    names = ['corpus.tokens', 'draft.tmp-1', 'notes.rows', 'readme.txt']
    for name in names:
        (own / name).write_text('mine')
        os.utime(own / name, (0, 0))
    check(show(data) == show(data), 'a folder within it is taken')
    check(sorted(x.name for x in own.iterdir()) == sorted([*names, 'galley']) and len(prepared(own / 'galley')) == 2, f'what is there now: {sorted(own.iterdir())}')
    check(every((own / x).read_text() == 'mine' and (own / x).stat().st_mtime == 0 for x in names), 'something else in it has been touched')


def starved():
    """A limit on the size of files, which ends a write halfway as a full disk does."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))


@case
def full_disk():
    data, cache = texts('full')
    check_error(galley('data', data_recipe(data), before=starved), 1, f"cannot write '{cache.resolve()}/", hint='GALLEY_CACHE=DIR')
    check(cache.is_dir() and prepared(cache) == [], f'a full disk leaves {prepared(cache)}')


def bound():
    """Root gives up its right to write everywhere."""
    if os.geteuid() == 0:
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            if ctypes.CDLL(None, use_errno=True).prctl(24, capability, 0, 0, 0) != 0:  # PR_CAPBSET_DROP
                raise OSError(ctypes.get_errno(), 'prctl')


@case
def folder_that_cannot_be_written():
    """It serves what is in it; what is not is an error with a next step."""
    data, cache = texts('shut')
    show(data)
    folders = [at for at, _, _ in os.walk(cache)]
    for folder in folders:
        os.chmod(folder, 0o555)
    try:
        path = data_recipe(data)
        said = galley('data', path, before=bound)
        check(said.returncode == 0, f'a cache that cannot be written is not read: {said}')
        change('shut')
        check_error(galley('data', path, before=bound), 1, "cannot create '", hint='GALLEY_CACHE=DIR')
    finally:
        for folder in folders:
            os.chmod(folder, 0o755)


@case
def folder_that_cannot_be_made():
    data, _ = texts('file')
    place = os.path.abspath('file.jsonl') + '/cache'
    check_error(galley('data', data_recipe(data), GALLEY_CACHE=place), 1, place, hint='name another folder for prepared data: GALLEY_CACHE=DIR')


finish()
