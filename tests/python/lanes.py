#!/usr/bin/env python3
"""Lanes: shares of a window's micro-batches that are added up by themselves. Their number decides about a run's last bits, as nothing else of them does."""
import json

from discrete_kit import discrete, same
from galley_test import binary, case, cases, check, finish, fresh_folder, from_config, Run, run, together, use
from steps_kit import planned, recipes, refused, trained

fresh_folder()
config = dict(vocab_size=61, max_position_embeddings=32, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
adamw = use('adamw', lr=1e-2)
written = recipes(from_config('llama', **config), 'data.random {}', adamw, batch=2, length=8, seed=3, steps=4)
CASES = {
    'plain': (),
    'dropout': (use('lora', rank=4, dropout=0.3),),
    'bf16': (use('amp', compute='bf16'),),
    'fp16': (use('amp', compute='fp16'),),
    'clip': (use('clip', norm=0.1),),
    'recompute': (use('recompute', policy='every'),),
    'nf4': (use('quantize-nf4'), use('lora', rank=4)),
}


def leaves(made):
    return [(made.path / 'model/model.safetensors').read_bytes() if (made.path / 'model').exists() else (made.path / 'adapter/adapter_model.safetensors').read_bytes(),
            *[p.read_bytes() for p in sorted(made.path.glob('state/*/state.safetensors'))]]


def tokens(made):
    return [x['tokens'] for x in made.lines if 'tokens' in x]


def near(made, other, who, bound=1e-5):
    far = max(abs(a - b) / b for (a, _), (b, _) in together(made.steps, other.steps))
    check(far < bound, f'{who}: losses are {far} apart')


@cases(CASES, turns=2)
def any_number_of_lanes(name, strategies):
    """With each number of them the losses are the same up to rounding; what a kernel draws belongs to a row of the window and not to an order. Four micro-batches in
    one, two, three and four lanes: with three, two micro-batches are padding."""
    uses = use("accumulate", steps=4), *strategies
    one = trained(written(name, *uses), name)
    check(leaves(trained(written(f'{name}-1', *uses, lanes=1), f'{name}-1')) == leaves(one), 'one lane is none')
    bound = 2e-2 if name in ('bf16', 'fp16') else 1e-5
    for lanes in (2, 3, 4):
        made = trained(written(f'{name}-{lanes}', *uses, lanes=lanes), f'{name}-{lanes}', '--reference')
        near(made, one, f'{lanes} lanes', bound)
        check(tokens(made) == tokens(one), 'padding counts')
    if name == 'plain':
        check(leaves(made) != leaves(one), 'nothing is added in another order')
    flag = trained(written(f'{name}-4', *uses), f'{name}-flag', '--lanes', 4)
    check(leaves(flag) == leaves(Run(f'{name}-4')), '--lanes is something else than lanes in the recipe')


@case
def where_gradients_lie_is_no_matter():
    """Gradients that lie where nothing computes are added up in the same order."""
    for lanes in (1, 2, 4):
        made = [trained(written(f'{name}-{lanes}', use('accumulate', steps=4), *placed, lanes=lanes), f'{name}-{lanes}', *discrete, *more)
                for name, placed, more in (('here', (), ()), ('away', (use('second-memory', memory='file', gradients=['*']),), ('--poison',)))]
        same(f'{lanes} lanes', *made, 'model')
        planned(written(f'away-{lanes}', use('accumulate', steps=4), use('second-memory', memory='file', gradients=['*']), lanes=lanes), *discrete)


@case
def windows_of_any_length():
    """Windows by tokens, and the short last window of an epoch, whose lanes end with padding."""
    text = 'data.text { files = { "text.txt" }, tokenizer = "bytes", validation = 0.2 }'
    with open('text.txt', 'w') as file:
        file.write('\n'.join(f'{i * 7919 % 1009} is the number of line {i}.' for i in range(60)))
    of_text = recipes(from_config('llama', **{**config, 'vocab_size': 256}), text, adamw, batch=2, length=16, seed=3)
    for name, uses, entries in (('tokens', use('accumulate', tokens=90), {'steps': 5}), ('epochs', use('accumulate', steps=3), {'epochs': 1.5})):
        one = trained(of_text(f'{name}-1', uses, **entries), f'{name}-1')
        check(len(set(tokens(one))) > 1, f'{name}: all windows are as long')
        for lanes in (2, 3):
            made = trained(of_text(f'{name}-{lanes}', uses, lanes=lanes, **entries), f'{name}-{lanes}', '--poison')
            near(made, one, f'{name}, {lanes} lanes')
            check(tokens(made) == tokens(one), f'{name}: padding counts')


@case
def goes_on_with_its_lanes():
    """A run records them: it goes on to the bit, whoever says what."""
    path = written('whole', use('accumulate', steps=4), lanes=2)
    whole = trained(path, 'whole')
    trained(path, 'half', '--until', 2)
    run('resume', 'half', '--reference')
    check(leaves(Run('half'))[0] == leaves(whole)[0], 'resumed, it is another run')
    check('\nlanes = 2\n' in (whole.path / 'run.toml').read_text(), 'run.toml does not say lanes')
    trained(written('said', use('accumulate', steps=4)), 'said', '--lanes', 2, '--until', 2)
    run('resume', 'said')
    check(leaves(Run('said'))[0] == leaves(whole)[0], '--lanes is forgotten')
    record = trained(path, 'edited', '--until', 2).path / 'run.toml'
    record.write_text(record.read_text().replace('\nlanes = 2\n', '\nlanes = 4\n'))
    refused('edited', 'the number of lanes', '2', '4', command='resume', flags=('--unconfined',))


@case
def the_plan_has_them():
    """A lane's sum takes memory as long as there are several; one micro-batch a lane takes less, since each gradient waits for its own end only."""
    def gradients(name, **more):
        made = json.loads(run('plan', written(name, use('accumulate', steps=4), **more), '--check', '--json').stdout)
        return made['classes']['host']['owners']['gradients'] if 'host' in made['classes'] else next(iter(made['classes'].values()))['owners']['gradients'], made
    one, plain = gradients('one')
    two, of_two = gradients('two', lanes=2)
    check(two == 2 * one, f'gradients take {one}, with two lanes {two}')
    four, _ = gradients('four', lanes=4)
    check(one <= four < two, f'four lanes: {four}')
    check('lanes' not in plain['step'] and of_two['step']['lanes'] == 2 and of_two['step']['own_micro_batches'] == 4, f'{of_two["step"]}')
    text = run('plan', written('three', use('accumulate', steps=4), lanes=3)).stdout
    check('3 of 2 micro-batches each, 2 of all are padding' in text, text)


@case
def of_one_of_several_processes():
    """A plan for one of four, on a machine with one: it has its lanes, and exchanges what it has added up."""
    path = written('ranks', use('accumulate', steps=4))
    for rank in range(4):
        plan = json.loads(run('plan', path, '--check', '--json', '--ranks', 4, '--rank', rank).stdout)
        check(plan['step']['lanes'] == 4 and plan['step']['own_micro_batches'] == 1, f'{plan["step"]}')
    dump = run('plan', path, '--ranks', 4, '--dump', 'place').stdout
    check(dump.count('all_reduce_here') == 2 * 9 + 3 and dump.count('all_reduce ') == 1, f'{dump}')
    refused(path, '--rank 4', 'numbered from 0 to 3', flags=('--ranks', 4, '--rank', 4))


@case
def refusals():
    two = use('accumulate', steps=2)
    refused(written('many', two, lanes=3), 'a window has 2 micro-batches, which cannot be shared out over 3 lanes', 'let it have 3 or more, or take fewer lanes')
    refused(written('alone', lanes=2), 'a window has 1 micro-batch, which')
    refused(written('few', two), 'which cannot be shared out over 4 processes', flags=('--ranks', 4))
    refused(written('odd', use('accumulate', steps=6), lanes=6), 'the run has 6 lanes, which cannot be shared out over 4 processes', 'start 1, 2, 3 or 6 of them', flags=('--ranks', 4))
    refused(written('forward', two, use('running-mean', after='mlp.down_proj'), lanes=2), 'is written in each micro-batch, one after the other, which lanes do not do',
            flags=('--plugin-path', binary / 'tests/plugins/running-mean'))
    refused(written('none', two, lanes=-1), 'lanes')
    refused(written('flag', two), '--lanes', flags=('--lanes', 0))


finish()
