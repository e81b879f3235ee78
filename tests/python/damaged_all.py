#!/usr/bin/env python3
# label: all
"""Each file of a run cut to half, emptied, made something else, and lost: what each command says of it then. Either it says which file is wrong, with the exit code below,
or what it gives is what the whole run gives. So of a run that is done, one that was stopped, one with an adapter, and a comparison. With each commit, slices.py runs
another part."""
import fnmatch
import json
import pathlib
import shutil

from galley_test import cases, check, finish, fresh_folder, from_config, galley, in_slice, lines_of, recipe, run, timeless, untimed, use

fresh_folder()
pathlib.Path('text.txt').write_text(''.join(f'{i} the cat sat on the mat\n\n' for i in range(30)))
text = 'data.text { files = { "text.txt" }, tokenizer = "bytes", validation = 0.2 }'
gpt2 = from_config('gpt2', vocab_size=256, n_positions=32, n_embd=16, n_layer=1, n_head=2)
# The second validation of four is the best one: the best state and the newest are others.
adamw = 'use "adamw" { lr = function(step) return step < 5 and 1e-2 or 3 end }'
entries = dict(batch=2, length=32, steps=8, seed=5, save=dict(every=2, keep=2, best=True), validate=dict(every=2))
base = 'model { path = "base/model" }'
run('train', recipe('base.lua', gpt2, text, use('adamw', lr=1e-2), batch=2, length=32, steps=2, seed=5), '--out', 'base')
RUNS = {'done': ('done.lua', gpt2, ()), 'stopped': ('done.lua', gpt2, ('--until', 6)), 'adapter': ('adapter.lua', base, ())}
for name, (path, model, words) in RUNS.items():
    uses = [use('lora', rank=2, targets=['c_attn'])] if name == 'adapter' else []
    run('train', recipe(path, model, text, *uses, adamw, **entries), '--out', name, *words)
pathlib.Path('compare.lua').write_text(f'return compare {{ model = {gpt2}, data = {text}, batch = 2, length = 32, steps = 6, '
                                       'validate = { every = 3 }, seeds = { 1, 2 }, variants = { plain = { use "adamw" { lr = 1e-3 } }, faster = { use "adamw" { lr = 2e-3 } } } }')
run('compare', 'compare.lua', '--out', 'comparison')

DAMAGES = {
    'half': lambda path: path.write_bytes(path.read_bytes()[:path.stat().st_size // 2]), 'empty': lambda path: path.write_bytes(b''),
    'foreign': lambda path: path.write_bytes(b'\x00\xffnothing of this kind\n' * 20), 'lost': lambda path: path.unlink(),
}
COMMANDS = {'eval': ('--json',), 'sample': ('--prompt', 'the', '--tokens', 6, '--temperature', 0), 'embed': (), 'export': ('--out', 'x/exported'), 'report': (),
            'resume': ()}
weights, no_weights = (dict.fromkeys(('eval', 'sample', 'embed', 'export'), code) for code in (1, 2))
no_run = dict.fromkeys(COMMANDS, 2)

# Run, file, damage: {command: its exit code, where that is not 0}. The first that matches counts; a command without one gives what the whole run gives.
TABLE = [
    ('*', 'run.toml', 'lost', no_run), ('*', 'run.toml', '*', dict.fromkeys(COMMANDS, 1)),
    ('*', 'recipe.lua', 'lost', {}), ('*', 'recipe.lua', '*', dict(resume=2)),
    ('stopped', 'best/*', 'lost', dict(no_weights, resume=2)), ('*', 'best/*', 'lost', no_weights),
    ('stopped', 'best/*', '*', dict(weights, resume=1)), ('*', 'best/*', '*', weights),
    # A state without its state.toml is one that was not saved whole: an older one counts.
    ('stopped', 'state/step-00000006/*', 'lost', {}), ('stopped', 'state/step-00000006/*', '*', dict(resume=1)),
    ('*', 'state/step-00000008/state.toml', 'lost', {}), ('*', 'state/step-00000008/state.toml', '*', dict(resume=1)),
    ('*', 'metrics.jsonl', 'foreign', dict(report=1)), ('*', 'metrics.jsonl', 'half', {}), ('*', 'metrics.jsonl', '*', dict(report=2)),
    # Nobody reads them; what is lost of model/ or adapter/ is made again by resume.
    ('*', 'state/step-0000000[46]/*', '*', {}), ('*', 'state/step-00000008/state.safetensors', '*', {}), ('*', 'model/*', '*', {}), ('*', 'adapter/*', '*', {}),
    ('*', 'memory.json', '*', {}), ('*', 'usage.json', '*', {}), ('*', 'result.toml', '*', {}), ('*', 'events.*', '*', {}),
]


def files_of(folder):
    return sorted(str(x.relative_to(folder)) for x in pathlib.Path(folder).rglob('*') if x.is_file())


def expected(name, file, damage):
    for one, pattern, how, codes in TABLE:
        if fnmatch.fnmatchcase(name, one) and fnmatch.fnmatchcase(file, pattern) and fnmatch.fnmatchcase(damage, how):
            return codes
    check(False, f'{name}/{file}: the table does not have it')


def given(command, ended, folder, metrics):
    """What a command gives, as it can be compared."""
    if command == 'export':
        return {x: pathlib.Path(folder, 'exported', x).read_bytes() for x in files_of(f'{folder}/exported') if not x.endswith('.md')}
    if command == 'resume':
        return [pathlib.Path(folder, x).read_bytes() for x in files_of(folder) if x.startswith('state/step-00000008/')], metrics and untimed(lines_of(folder))
    return None if command == 'report' else ended.stdout


def done(name, command, damage=lambda folder: None, metrics=True):
    shutil.rmtree('x', ignore_errors=True)
    shutil.copytree(name, 'x')
    damage(pathlib.Path('x'))
    ended = galley(command, 'x', *COMMANDS[command], input='"the cat"\n' if command == 'embed' else None, OMP_NUM_THREADS='1')
    return ended, given(command, ended, 'x', metrics) if ended.returncode == 0 else None


damages = {f'{name}, {file}, {how}': (name, file, how) for name in RUNS for file in files_of(name) for how in DAMAGES}
check(150 < len(damages) < 250, f'{len(damages)} damages')
damages = {k: v for k, v in damages.items() if in_slice()}
whole = {}
for name, metrics in {(x, y != 'metrics.jsonl') for x, y, _ in damages.values()}:
    for command in COMMANDS:
        ended, whole[name, command, metrics] = done(name, command, metrics=metrics)
        check(ended.returncode == 0, f'{name}, {command}: {ended}')


@cases(damages)
def damaged(_, what):
    name, file, how = what
    codes = expected(name, file, how)
    for command in COMMANDS:
        ended, gives = done(name, command, lambda folder: DAMAGES[how](folder / file), file != 'metrics.jsonl')
        code, label = codes.get(command, 0), f'{name}/{file} {how}, {command}'
        check(ended.returncode == code, f'{label}: not exit code {code}: {ended}')
        says = [x for x in ended.stderr.splitlines() if x.startswith('galley: ') and not x.startswith('galley: warning: ')]
        if ended.returncode:
            named = 'x' if how == 'lost' or file == 'metrics.jsonl' else 'recipe.lua' if file == 'recipe.lua' else f'x/{file}'
            check(len(says) == 1 and named in says[0], f'{label}: {named} is not named: {ended.stderr}')
            check(command != 'export' or not pathlib.Path('x/exported').exists(), f'{label}: an export that has failed leaves a folder')
        elif compares(name, file, how, command):
            check(gives == whole[name, command, file != 'metrics.jsonl'], f'{label}: another result than of the whole run; it says {ended}')


def compares(name, file, how, command):
    """Whether the result is that of the whole run. Where nothing is left to do, a file stays as it is."""
    return command != 'resume' or name == 'stopped' or how == 'lost' or not file.startswith('state/step-00000008/')


# ---- A comparison: what is lost or damaged of its runs is trained again, or the file is named ----------------------------------------------------------

def compared(folder):
    return timeless(json.loads(pathlib.Path(folder, 'compare.json').read_text()))


arm = 'arms/faster/seed-1/'
of_one_arm = [x for x in files_of('comparison') if x.startswith(arm) or x in ('compare.json', 'report.html')]
check(len(of_one_arm) > 8, f'{of_one_arm}')
parts = {f'{file}, {how}': (file, how) for file in of_one_arm for how in DAMAGES if in_slice()}


@cases(parts)
def damaged_comparison(_, what):
    file, how = what
    shutil.rmtree('y', ignore_errors=True)
    shutil.copytree('comparison', 'y')
    DAMAGES[how](pathlib.Path('y', file))
    ended = galley('compare', 'compare.lua', '--out', 'y', timeout=200, OMP_NUM_THREADS='1')
    if ended.returncode == 0:
        check(compared('y') == compared('comparison'), f'{file} {how}: another comparison: {ended}')
    else:
        says = [x for x in ended.stderr.splitlines() if x.startswith('galley: ')]
        check(ended.returncode in (1, 2) and len(says) == 1 and f'y/{arm[:-1]}' in says[0], f'{file} {how}: {ended.stderr}')


finish()
