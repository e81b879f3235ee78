#!/usr/bin/env python3
"""What surrounds the program changes no byte of what it computes: locales, umask, HOME and the places that follow from it, few file descriptors, links as
the hub's cache has them, model folders that nobody may write. Where something cannot be, it is refused by name, and nothing is left."""
import functools
import os
import pathlib
import resource
import shutil
import stat

from errors_kit import check_error
from galley_test import case, cases, check, every, finish, fresh_folder, from_config, galley, lines_of, program, recipe, require, run, skip, untimed, use

fresh_folder()
here = pathlib.Path.cwd()
GPT2 = from_config('gpt2', vocab_size=256, n_positions=16, n_embd=16, n_layer=2, n_head=2)
TEXTS = f'data.text {{ files = {{ "{here}/text.txt" }}, tokenizer = "bytes", validation = 0.2 }}'
ENTRIES = dict(batch=2, length=8, steps=4, seed=3, save=dict(every=2), validate=dict(every=2))
pathlib.Path('text.txt').write_text('The cafe at the corner opens at seven, and the baker is there from four.\n' * 20)
PLAIN = here / recipe('plain.lua', GPT2, TEXTS, use('adamw', lr=1e-2), **ENTRIES)
os.environ.update(GALLEY_CACHE=str(here / 'cache'))


def left(out):
    """What a run leaves but for times: losses and bytes. A page and a record have places in them."""
    return untimed(lines_of(out)), {str(x.relative_to(out)): x.read_bytes() for x in sorted(out.rglob('*')) if x.is_file() and x.suffix == '.safetensors'}


def trained(out, path=PLAIN, *flags, **more):
    """What a run leaves in these surroundings."""
    ended = galley('train', path, '--out', here / out, *flags, **{'OMP_NUM_THREADS': '1', **more})
    require(ended.returncode == 0, f'{out}: not exit code 0, but {ended}')
    return left(here / out)


@functools.cache
def plain():
    made = trained('as-usual')
    check(len(made[0]) >= 6 and len(made[1]) >= 3, f'{made[0]}, {sorted(made[1])}')
    return made


def same(out, *args, **more):
    check(trained(out, *args, **more) == plain(), f'{out}: another run than in the usual surroundings')


def bare(words, environment, **more):
    """The program with these variables alone."""
    return galley('-i', *(f'{k}={v}' for k, v in environment.items()), program, *words, executable=shutil.which('env'), **more)


# ---- Locales ---------------------------------------------------------------------------------------------------------------------------
LOCALES = {
    'C': dict(LC_ALL='C'), 'POSIX': dict(LC_ALL='POSIX'), 'UTF-8': dict(LC_ALL='C.UTF-8'), 'none': dict(LC_ALL='', LANG=''),
    'comma': dict(LC_ALL='de_DE.UTF-8'), 'Turkish': dict(LC_ALL='tr_TR.UTF-8'), 'numbers': dict(LC_ALL='', LC_NUMERIC='fr_FR.UTF-8'),
    'not there': dict(LC_ALL='xx_XX.KOI8'), 'nonsense': dict(LC_ALL='../../x'),
}


@cases(LOCALES)
def locale(name, environment):
    same(f'locale-{name}', **environment)
    said = [galley('plan', PLAIN, '--json', **x).stdout for x in (environment, dict(LC_ALL='C'))]
    check(said[0] == said[1] and said[0].startswith('{'), f'{name}: another plan: {said[0][:200]}')


# ---- Rights ----------------------------------------------------------------------------------------------------------------------------


@cases([0o000, 0o002, 0o022, 0o027, 0o077])
def umask(mask):
    """Files are as the umask lets them be, and no others."""
    out = f'umask-{mask:03o}'
    same(out, before=lambda: os.umask(mask))
    modes = {x: stat.S_IMODE(x.stat().st_mode) for x in (here / out).rglob('*')}
    check(every(mode == (0o777 if x.is_dir() else 0o666) & ~mask for x, mode in modes.items()), f'umask {mask:03o}: { {str(k): oct(v) for k, v in modes.items()} }')


def nobody():
    """Root may write everywhere."""
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)


def read_only(folder):
    for at, _, names in os.walk(folder):
        for name in names:
            os.chmod(os.path.join(at, name), 0o444)
        os.chmod(at, 0o555)


def can_run(before):
    """Whether the program runs as somebody else: it may lie in a folder of root's."""
    try:
        return galley('--version', before=before).returncode == 0
    except OSError:
        return False


@case
def folder_that_nobody_may_write():
    plain()
    base = pathlib.Path(shutil.copytree('as-usual/model', 'read-only'))
    shutil.copytree('as-usual/model', 'writable')
    read_only(base)
    pathlib.Path('of-nobody').mkdir()
    os.chmod('of-nobody', 0o777)
    # What nobody may not run, in a folder of root's, is run by root.
    before = nobody if can_run(nobody) else None
    runs = {}
    for name in ('read-only', 'writable'):
        path = here / recipe(f'{name}.lua', f'model {{ path = "{here}/{name}" }}', TEXTS, use('lora', rank=2, targets='c_attn'), use('adamw', lr=1e-2), **ENTRIES)
        own = {x: str(here / 'of-nobody' / x) for x in ('GALLEY_CACHE', 'XDG_STATE_HOME')}
        runs[name] = trained(f'of-nobody/{name}', path, before=before, **own)
        check(len(runs[name][1]) >= 3, f'{sorted(runs[name][1])}')
        ended = galley('resume', here / f'of-nobody/{name}', before=before, **own)
        check(ended.returncode == 0, f'{name}: {ended}')
    check(runs['read-only'] == runs['writable'], 'another run from a folder that is read-only')
    check([x.name for x in sorted(base.iterdir())] == [x.name for x in sorted(pathlib.Path('writable').iterdir())], 'something was written into it')


# ---- HOME, and what follows from it --------------------------------------------------------------------------------------------------------
pathlib.Path('a-file').write_text('')
HOMES = {
    'a home': dict(HOME=f'{here}/home'), 'a new one': dict(HOME=f'{here}/no/such/home'), 'XDG': dict(XDG_CACHE_HOME=f'{here}/xdg', XDG_STATE_HOME=f'{here}/xdg'),
    'XDG, empty': dict(HOME=f'{here}/home', XDG_CACHE_HOME='', XDG_STATE_HOME=''), 'a cache': dict(GALLEY_CACHE=f'{here}/cache-of-its-own', XDG_STATE_HOME=f'{here}/xdg'),
}
# A place for prepared data is needed; one for the key by which runs are known as one's own is not.
NO_HOMES = {
    'a file': (dict(HOME=f'{here}/a-file'), f"cannot keep prepared data in '{here}/a-file/.cache/galley'"),
    'a cache that is a file': (dict(HOME=f'{here}/home', GALLEY_CACHE=f'{here}/a-file'), f"cannot keep prepared data in '{here}/a-file'"),
}


@cases(HOMES)
def home(name, environment):
    out = f'home-{name}'
    ended = bare(('train', PLAIN, '--out', here / out), dict(environment, OMP_NUM_THREADS='1'))
    require(ended.returncode == 0 and not ended.stderr.startswith('galley: '), f'{name}: {ended}')
    check(left(here / out) == plain(), f'{name}: another run')
    cache = environment.get('GALLEY_CACHE') or (environment.get('XDG_CACHE_HOME') or environment['HOME'] + '/.cache') + '/galley'
    key = (environment.get('XDG_STATE_HOME') or environment.get('HOME', '') + '/.local/state') + '/galley'
    for place in (cache, key):
        check(os.path.isdir(place) and os.listdir(place), f'{name}: nothing lies in {place}')


@cases(NO_HOMES)
def no_home(name, what):
    environment, says = what
    check_error(bare(('train', PLAIN, '--out', here / f'no-home-{name}'), environment), 1, says, hint='GALLEY_CACHE=DIR')
    check(not (here / f'no-home-{name}').exists(), f'{name}: something is left')


@case
def user_of_no_home():
    """One whom the list of users does not have: without HOME, that list says where a home is."""
    def become():
        os.setgid(54321)
        os.setuid(54321)

    if os.getuid() != 0:
        return skip('user_of_no_home', 'only root can be somebody else')
    pathlib.Path('anyone').mkdir()
    os.chmod('anyone', 0o777)
    if not can_run(become):
        return skip('user_of_no_home', 'nobody but root can run the program')
    for environment in ({}, dict(HOME=''), dict(HOME='', XDG_CACHE_HOME='')):
        ended = bare(('train', PLAIN, '--out', here / 'anyone/no-home'), environment, before=become)
        check_error(ended, 1, 'there is no place for prepared data: HOME is not set', hint='GALLEY_CACHE=DIR')
    ended = bare(('train', PLAIN, '--out', here / 'anyone/no-home'), dict(GALLEY_CACHE=f'{here}/anyone/cache', OMP_NUM_THREADS='1'), before=become)
    require(ended.returncode == 0, f'{ended}')
    check('this run cannot be marked as yours' in ended.stderr and 'there is no place for a key: HOME is not set' in ended.stderr, f'{ended}')
    check(left(here / 'anyone/no-home') == plain(), 'another run')


@case
def no_place_for_the_key():
    """A run without it trains; that it is not known as one's own is said."""
    ended = bare(('train', PLAIN, '--out', here / 'no-key'), dict(GALLEY_CACHE=f'{here}/cache', XDG_STATE_HOME=f'{here}/a-file', OMP_NUM_THREADS='1'))
    require(ended.returncode == 0, f'{ended}')
    says = ('this run cannot be marked as yours', f"cannot make the folder '{here}/a-file/galley'", 'XDG_STATE_HOME=DIR')
    check(every(x in ended.stderr for x in says), f'{ended}')
    check(left(here / 'no-key') == plain(), 'another run')


# ---- The process -------------------------------------------------------------------------------------------------------------------------


@case
def few_descriptors():
    same('few', before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (14, 14)))


# ---- Links, as the hub's cache has them ----------------------------------------------------------------------------------------------------


def in_the_cache(folder, of):
    """models--ORG--NAME: files are called by their hash, and a snapshot has links to them by their names."""
    root = pathlib.Path(folder)
    (root / 'blobs').mkdir(parents=True)
    (root / 'refs').mkdir()
    snapshot = root / 'snapshots' / ('0123456789' * 4)
    snapshot.mkdir(parents=True)
    (root / 'refs/main').write_text(snapshot.name)
    for i, file in enumerate(sorted(x for x in pathlib.Path(of).iterdir() if x.is_file())):
        blob = root / 'blobs' / f'{i:040x}'
        shutil.copy(file, blob)
        (snapshot / file.name).symlink_to(f'../../blobs/{blob.name}')
    return snapshot


LORA = use('lora', rank=2, targets='c_attn')


def of_model(name, folder, *uses):
    return here / recipe(f'{name}.lua', f'model {{ path = "{here / folder}" }}', TEXTS, *uses, use('adamw', lr=1e-2), **ENTRIES)


@cases({'full': (), 'adapter': (LORA,), 'confined': ()})
def hub(name, uses):
    plain()
    snapshot = in_the_cache(f'hub-{name}/models--org--name', 'as-usual/model')
    runs = {}
    for kind, folder in (('links', snapshot), ('files', 'as-usual/model')):
        runs[kind] = trained(f'hub-{name}-{kind}', of_model(f'hub-{name}-{kind}', folder, *uses), *(['--confine'] if name == 'confined' else []))
        check(galley('resume', here / f'hub-{name}-{kind}').returncode == 0, f'{kind}: it is not resumed')
        check(galley('eval', here / f'hub-{name}-{kind}').returncode == 0, f'{kind}: it is not evaluated')
    check(runs['links'] == runs['files'], f'{name}: another run')
    check(every(x.is_symlink() for x in snapshot.iterdir()), 'a link has become a file')


@case
def link_that_leads_nowhere():
    plain()
    snapshot = in_the_cache('hub-broken/models--org--name', 'as-usual/model')
    os.unlink((snapshot / 'model.safetensors').resolve())
    ended = galley('train', of_model('broken', snapshot), '--out', 'broken')
    check_error(ended, 2, 'model.safetensors')
    check(not (here / 'broken').exists(), 'something is left')


@case
def merged_from_links():
    plain()
    snapshot = in_the_cache('hub-merged/models--org--name', 'as-usual/model')
    trained('hub-merged-run', of_model('merged', snapshot, LORA))
    run('export', 'hub-merged-run/adapter', '--base', snapshot, '--merge', '--out', 'from-links')
    run('export', 'hub-merged-run', '--merge', '--out', 'from-run')
    made = [pathlib.Path(x, 'model.safetensors').read_bytes() for x in ('from-links', 'from-run')]
    check(made[0] == made[1], 'another model')




finish()
