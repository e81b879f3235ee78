#!/usr/bin/env python3
"""What an optimizer's options say reaches its ops: each option of each optimizer, with another value than the default, on a matrix, a norm and the embedding. And what is
chosen by names: modules that adapters exclude, parameters of other strategies."""
import re
import tomllib

from galley_test import case, cases, check, every, finish, fresh_folder, from_config, load, recipe, run, source, train, use

fresh_folder()
model = from_config('llama', vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                    max_position_embeddings=32)
MATRIX, OTHER, NORM, EMBEDDING = 'model.layers.1.self_attn.q_proj.weight', 'model.layers.0.mlp.up_proj.weight', 'model.norm.weight', 'model.embed_tokens.weight'
COMMON = {'lr', 'parameters', 'groups', 'decay_on'}  # tried for all of them, below
betas = 'beta1=0.8 beta2=0.9 '
moments = 'decay_rate=-0.7 eps_square=1e-20 eps_scale=0.01 clip_threshold=0.5 weight_decay=0.2 relative_step=0 scale_parameter=0 warmup_init=0'

# Optimizer, options beside lr and weight_decay = 0.2: {op: its attributes} of the matrix.
TABLE = [
    ('adam', dict(betas=[0.8, 0.9], eps=1e-6), {'adamw_step': betas + 'eps=1e-06 weight_decay=0.2 coupled=1'}),
    ('adamw', dict(betas=[0.8, 0.9], eps=1e-6), {'adamw_step': betas + 'eps=1e-06 weight_decay=0.2'}),
    ('adamw8bit', dict(betas=[0.8, 0.9], eps=1e-6), {'adamw_step': betas + 'eps=1e-06 weight_decay=0.2'}),
    ('lion', dict(betas=[0.8, 0.9]), {'lion_step': betas + 'weight_decay=0.2'}),
    ('lion8bit', dict(betas=[0.8, 0.9]), {'lion_step': betas + 'weight_decay=0.2'}),
    ('sgd', dict(momentum=0.8, dampening=0.3), {'sgd_step': 'momentum=0.8 dampening=0.3 weight_decay=0.2 nesterov=0'}),
    ('sgd', dict(momentum=0.8, nesterov=True), {'sgd_step': 'momentum=0.8 dampening=0 weight_decay=0.2 nesterov=1'}),
    ('adafactor', dict(eps=[1e-20, 1e-2], clip_threshold=0.5, decay_rate=-0.7, relative_step=False, scale_parameter=False, beta1=0.7),
     {'adafactor_moments': moments, 'adafactor_step': 'beta1=0.7'}),
    ('adafactor', dict(warmup_init=True),
     {'adafactor_moments': 'decay_rate=-0.8 eps_square=1e-30 eps_scale=0.001 clip_threshold=1 weight_decay=0.2 relative_step=1 scale_parameter=1 warmup_init=1'}),
    ('muon', dict(rest_lr=1e-3, momentum=0.9, nesterov=False, eps=1e-5), {'muon_momentum': 'dtype=bf16 momentum=0.9 eps=1e-05 nesterov=0'}),
    ('muon', dict(rest_lr=1e-3, ns_coefficients=[3, -4, 2], compute='f32'), {'muon_polynomial': 'dtype=f32 a=3 b=-4 c=2', 'muon_step': 'weight_decay=0.2 scale=1'}),
    # The larger side of a matrix of 32 by 32, by Moonlight's factor: .2 √32.
    ('muon', dict(adjust='match_rms_adamw'), {'muon_step': 'weight_decay=0.2 scale=1.13137085'}),
]


def ops_of(dump, name):
    """[(op, attributes)] of what updates a parameter."""
    return re.findall(rf'^  update\.{re.escape(name)}\.\S+: (\w+)\(.*?\) \{{(.*?)\}}', dump, re.M)


def dump(*uses):
    return run('plan', recipe('options.lua', model, 'data.random {}', *uses, batch=2, length=16, steps=3), '--dump', 'update').stdout


def rate_of(name):
    return dict(lr=1e-2, **(dict(rest_lr=1e-3) if name == 'muon' else {}))


@cases({f'{i}.{row[0]}': row for i, row in enumerate(TABLE)})
def attributes(_, row):
    name, options, expected = row
    found = dict(ops_of(dump(use(name, lr=1e-2, weight_decay=0.2, **options)), MATRIX))
    for op, text in expected.items():
        check(found.get(op) == text, f'{name} {options}: {op} has {found.get(op)!r}, not {text!r}')


@case
def each_option_is_here():
    """What the manifests have is in the table, or tried for all optimizers, or below."""
    below = {'weight_decay', 'amsgrad', 'min_size', 'ns_steps', 'rest', 'rest_betas', 'rest_eps'}
    strategies = {}
    for file in (source / 'plugins').glob('*/plugin.toml'):
        for strategy in tomllib.loads(file.read_text()).get('strategy', []):
            strategies[strategy['name']] = {x['name'] for x in strategy['option']} if 'option' in strategy else set()
    optimizers = sorted({name for name, _, _ in TABLE})
    check(len(optimizers) == 8, f'{optimizers}')
    for name in optimizers:
        tried = COMMON | below | {x for row, options, _ in TABLE if row == name for x in options}
        check(strategies[name] <= tried and len(strategies[name]) >= 6, f'{name}: not tried: {sorted(strategies[name] - tried)}')


@cases(sorted({name for name, _, _ in TABLE}))
def common(name):
    rate = rate_of(name)
    decays = lambda text, parameter: {x for _, a in ops_of(text, parameter) for x in re.findall(r'weight_decay=(\S+)', a)}
    for on, norm in (('weights', '0'), ('all', '0.2')):
        text = dump(use(name, weight_decay=0.2, decay_on=on, **rate))
        check((decays(text, MATRIX), decays(text, EMBEDDING), decays(text, NORM)) == ({'0.2'}, {'0.2'}, {norm}),
              f'{name}, decay_on = {on}: {decays(text, MATRIX)}, {decays(text, EMBEDDING)}, {decays(text, NORM)}')
    text = dump(use(name, weight_decay=0.2, groups=[dict(match=['*.0.*'], weight_decay=0.3), dict(match=['*'], weight_decay=0.4)], **rate))
    check((decays(text, OTHER), decays(text, MATRIX)) == ({'0.3'}, {'0.4'}), f'{name}, groups: {decays(text, OTHER)}, {decays(text, MATRIX)}: the first match holds')
    # What it does not name is another optimizer's.
    another = 'sgd' if name != 'sgd' else 'lion'
    more = dict(rest='none') if name == 'muon' else {}
    text = dump(use(name, parameters=['*.layers.1.*_proj.weight'], **{**rate, **more}), use(another, lr=1e-2))
    by = lambda parameter: {op for op, _ in ops_of(text, parameter)}
    check(f'{another}_step' in by(OTHER) and f'{another}_step' not in by(MATRIX) and len(by(MATRIX)) > 0, f'{name}, parameters: {by(OTHER)}, {by(MATRIX)}')
    # A group's factor of the rate: what has 0 stays, the rest moves.
    path = recipe(f'{name}.lua', model, 'data.random {}', use(name, weight_decay=0, groups=[dict(match=['*.0.*'], lr_factor=0)], **rate), batch=2, length=16, steps=2, seed=3)
    r = train(path, name)
    still = train(recipe(f'{name}-still.lua', model, 'data.random {}', use('sgd', lr=0, momentum=0), batch=2, length=16, steps=2, seed=3), f'{name}-still')
    a, b = (load(x.path / 'model/model.safetensors') for x in (r, still))
    same = {x for x in a if a[x] == b[x]}
    check(every(x in same for x in a if '.0.' in x) and len(same) == sum('.0.' in x for x in a), f'{name}, lr_factor = 0 of *.0.*: these did not move: {sorted(same)}')


@cases(['adam', 'adamw'])
def amsgrad(name):
    for asked in (False, True):
        text = dump(use(name, lr=1e-2, amsgrad=asked))
        check((f'{MATRIX}.max_exp_avg_sq)' in text) == asked, f'{name}, amsgrad = {asked}: {ops_of(text, MATRIX)}')


@cases({'adamw8bit': 2, 'lion8bit': 1})
def min_size(name, states):
    """In 8 bit a number takes a byte, and a block of 256 four more."""
    bytes_of = {}
    for least in (1024, 1025):
        path = recipe('options.lua', model, 'data.random {}', use(name, lr=1e-2, min_size=least), batch=2, length=16, steps=3)
        lines = re.findall(rf'^0 \[(\d+), (\d+)\) .* {re.escape(MATRIX)}\.\S+ .* states ', run('plan', path, '--dump', 'plan').stdout, re.M)
        bytes_of[least] = sum(int(end) - int(begin) for begin, end in lines)
    expected = {1024: states * (1024 + 4 * 4), 1025: states * 4 * 1024}
    check(bytes_of == expected, f'{name}: the states of a matrix of 1,024 numbers take {bytes_of} bytes by min_size, not {expected}')


@case
def steps_and_rest_of_muon():
    for steps in (1, 4):
        found = ops_of(dump(use('muon', ns_steps=steps, **rate_of('muon'))), MATRIX)
        check([op for op, _ in found].count('muon_polynomial') == steps, f'ns_steps = {steps}: {found}')
    found = dict(ops_of(dump(use('muon', weight_decay=0.2, rest_betas=[0.8, 0.9], rest_eps=1e-6, **rate_of('muon'))), EMBEDDING))
    check(found == {'adamw_step': betas + 'eps=1e-06 weight_decay=0.2'}, f'rest of muon: {found}')


def planned(*uses):
    """[(tensor, its dtype, the rest of its line)] of a plan."""
    path = recipe('options.lua', model, 'data.random {}', *uses, batch=2, length=16, steps=2)
    return re.findall(r'^0 \[\d+, \d+\) moments \d+ to \d+ (\S+) (\w+)\([\d,]*\) (.*)$', run('plan', path, '--dump', 'plan').stdout, re.M)


@cases({'ia3': dict(targets=['k_proj', 'q_proj']), 'vera': dict(targets=['k_proj', 'q_proj'], rank=4), 'lora': dict(targets=['k_proj', 'q_proj'], rank=4)})
def exclude(name, options):
    adapted = {}
    for excluded in ([], ['q_proj'], ['*.0.*']):
        lines = planned(use(name, **options, **({'exclude': excluded} if excluded else {})), use('adamw', lr=1e-3))
        trained = [x for x, _, _ in lines if x.endswith('.exp_avg')]
        adapted[tuple(excluded)] = {m for x in trained for m in re.findall(r'layers\.(\d)\.self_attn\.(\w)_proj', x)}
    expected = {(): {('0', 'k'), ('0', 'q'), ('1', 'k'), ('1', 'q')}, ('q_proj',): {('0', 'k'), ('1', 'k')}, ('*.0.*',): {('1', 'k'), ('1', 'q')}}
    check(adapted == expected, f'{name}: {adapted}, not {expected}')


@case
def parameters_of_update_in_backward():
    """A gradient that is used at once lives within a segment, another one for the window."""
    lines = planned(use('adamw', lr=1e-3), use('update-in-backward', parameters=['*.1.*']))
    life = {x: rest.split()[1] for x, _, rest in lines if x.startswith('grad.') and ' ' in rest and rest.startswith('gradients')}
    check(len(life) > 15 and every((life[x] == 'segment') == ('.1.' in x) for x in life), f'{life}')


@case
def parameters_of_split_states():
    lines = planned(use('adamw', lr=1e-3), use('amp', compute='bf16'), use('split-states', parameters=['*.1.*_proj.weight'], min_size=1))
    dtypes = {}
    for x, dtype, rest in lines:
        if rest.startswith(('states', 'weights')) and re.search(r'\.(correction|exp_avg|exp_avg_sq)$', x):
            dtypes.setdefault(x.rsplit('.', 1)[1], {}).setdefault('.1.' in x and '_proj' in x, set()).add(dtype)
    expected = {'correction': {True: {'i8'}}, 'exp_avg': {True: {'i8'}, False: {'f32'}}, 'exp_avg_sq': {True: {'u8'}, False: {'f32'}}}
    check(dtypes == expected, f'{dtypes}, not {expected}')


finish()
