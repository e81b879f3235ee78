#!/usr/bin/env python3
"""`galley plan --dump`: what every pass makes of tests/golden/lora.lua, compared with tests/golden/passes. `tests/python/dumps.py --update`, with the variables of
galley_test.py, records it anew."""
import json
import pathlib
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


finish()
