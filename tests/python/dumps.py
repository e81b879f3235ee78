#!/usr/bin/env python3
"""`galley plan --dump`: what every pass makes of tests/golden/lora.lua, compared with tests/golden/passes. `tests/python/dumps.py --update`, with the variables of
galley_test.py, records it anew."""
import json
import pathlib
import re
import shutil
import sys

from galley_test import case, cases, check, finish, fresh_folder, run, save, source

fresh_folder()
folder = source / 'tests' / 'golden' / 'passes'
shutil.copy(source / 'tests' / 'golden' / 'lora.lua', 'lora.lua')
pathlib.Path('model').mkdir()
pathlib.Path('model/config.json').write_text(json.dumps(dict(
    model_type='llama', vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
    max_position_embeddings=32, rms_norm_eps=1e-5, hidden_act='silu', tie_word_embeddings=False)))
save('batch.safetensors', {name: ('I32', (2, 8), list(range(16))) for name in ('input_ids', 'labels')})
words = ['plan', 'lora.lua', '--set', 'model=model', '--set', 'batch=batch.safetensors', '--set', 'accumulate=2', '--target', source / 'tests' / 'golden' / 'target.toml']
here = str(pathlib.Path.cwd())


def dump(name):
    return run(*words, '--dump', name).stdout.replace(here, '.')


passes = [line.split()[0] for line in run(*words, '--dump', 'help').stdout.splitlines()]


@cases(passes)
def dumped(name):
    made, golden = dump(name), folder / f'{name}.txt'
    if '--update' in sys.argv:
        folder.mkdir(exist_ok=True)
        golden.write_text(made)
    check(made.startswith(f'# {name}: '), f'--dump {name} begins with {made[:40]!r}')
    recorded = golden.read_text() if golden.exists() else ''
    if not check(made == recorded, f'pass {name} makes something else than {golden.relative_to(source)} records'):
        new, old = made.splitlines(), recorded.splitlines()
        first = next((i for i, (a, b) in enumerate(zip(new, old)) if a != b), min(len(new), len(old)))
        print(f'  line {first + 1}: {old[first:first + 1]}\n  now {new[first:first + 1]}')


@case
def all_of_them():
    check(len(passes) > 15, f'passes: {passes}')
    check(dump('all') == ''.join(map(dump, passes)), '--dump all is not all of them in their order')
    check(sorted(x.stem for x in folder.glob('*.txt')) == sorted(passes), f'{folder} has files of passes that are not there')


@case
def no_such_pass():
    said = run(*words, '--dump', 'differentate', code=2).stderr
    check("did you mean 'differentiate'" in said, said)


tour = source / 'docs' / 'tour.md'
excerpts = [(m[1], m[2].splitlines()) for m in re.finditer(r'^```(\w[\w-]*)\n(.*?)^```$', tour.read_text(), re.M | re.S) if m[1] != 'cpp']


@case
def tour_is_true():
    """The lines of docs/tour.md that are marked with a pass are lines of what the pass makes, but for what an ellipsis stands for; "plan" is the last one."""
    check(len(excerpts) >= 12, f'{len(excerpts)} excerpts')
    made = {}
    for name, lines in excerpts:
        pass_, *more = ('rewrite', '--set', 'vera=true') if name == 'vera' else (passes[-1] if name == 'plan' else name,)
        if name not in made:
            said = run('plan', source / 'docs' / 'tour.lua', '--target', source / 'tests' / 'golden' / 'target.toml', '--dump', pass_, *more).stdout
            made[name] = said.replace(f'{source}/', '')
        for line in lines:
            pattern = '.*'.join(re.escape(x) for x in line.strip().split('…'))
            check(re.search(rf'^\s*{pattern}$', made[name], re.M), f'{name}: not in the dump: {line}')


finish()
