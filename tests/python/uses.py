#!/usr/bin/env python3
"""Strategies that the command line adds: a run with --use is that of a recipe which says the same, wherever recipes are read, and goes on so. And `perturb`, which
comparisons and certificates add: the same gradients with other rounding errors, whoever scales the loss."""
import json
import pathlib
import re
import tomllib

from galley_test import Run, case, cases, check, every, finish, fresh_folder, from_config, run, together, train, untimed, use
from report_kit import sealed
from steps_kit import recipes, refused

fresh_folder()
pathlib.Path('text.txt').write_text('\n\n'.join(f'document number {i} of many' for i in range(40)))
model = from_config('gpt2', vocab_size=256, n_positions=32, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.1, embd_pdrop=0.0, attn_pdrop=0.0)
data = 'data.text { files = { "text.txt" }, tokenizer = "bytes", validation = 0.2 }'
adamw = use('adamw', lr=1e-3)
written = recipes(model, data, batch=2, length=32, steps=6, seed=5, validate=dict(every=3))
plain = written('plain', adamw)
CLIP = 'clip { norm = 0.05, value = 0.01 }'
added = ('--use', CLIP, '--use', 'recompute')


def same_runs(one, other):
    check(untimed(one.lines) == untimed(other.lines), f'{one.path} and {other.path}: other metrics')
    check(one.bytes() == other.bytes(), f'{one.path} and {other.path}: other weights')


def record_of(name):
    return tomllib.loads(pathlib.Path(name, 'run.toml').read_text())


@case
def as_the_recipe_says_it():
    whole = train(written('written', adamw, use('clip', norm=0.05, value=0.01), use('recompute')), 'written')
    made = train(plain, 'added', *added)
    same_runs(made, whole)
    check(untimed(train(plain, 'none').lines) != untimed(made.lines), 'clipping changes nothing')
    record = record_of('added')
    check(record['recipe']['uses'] == [CLIP, 'recompute'] and [x['name'] for x in record['strategies']] == ['adamw', 'clip', 'recompute'], record['strategies'])
    check('uses' not in record_of('written')['recipe'], 'a run without --use records some')
    losses = [json.loads(run('eval', *words, '--json').stdout)['validation_loss'] for words in (['added'], ['written'])]
    check(losses[0] == losses[1], f'galley eval: {losses}')


@case
def resumed():
    whole = train(plain, 'whole', *added)
    run('train', plain, '--out', 'parts', *added, '--until', '2')
    run('resume', 'parts')
    same_runs(Run('parts'), whole)
    run('report', 'parts')
    check(sealed('parts/report.html')['runs'][0]['record']['uses'] == [CLIP, 'recompute'], 'the page does not have what the command line adds')


@case
def epochs():
    """Schedules of added strategies are made anew once the steps are known."""
    counted = recipes(model, data, adamw, batch=2, length=32, seed=5, epochs=1)
    options = '{ lr = linear { peak = 1e-2 }, parameters = "*.mlp.*" }'
    same_runs(train(counted('epochs'), 'epochs', '--use', f'sgd {options}'), train(counted('epochs-written', f'use "sgd" {options}'), 'epochs-written'))


@cases({'plan': ['--json'], 'data': ['--json'], 'gradients': ['--out', 'gradients.safetensors'], 'eval': ['--json'], 'certify': ['--no-references']})
def wherever_recipes_are_read(command, words):
    refused(plain, "--use clip: 'norm' of clip must be a number in (0, inf), not 0", command=command, flags=[*words, '--use', 'clip { norm = 0 }'])
    said = run(command, plain, *words, '--use', CLIP).stdout
    check(command != 'certify' or re.search(r'^clip +rounding +gradients .*holds$', said, re.M), said)


@case
def in_comparisons():
    """Of all arms; the control has one more."""
    other = written('other', use('adamw', lr=9e-4))
    run('compare', plain, other, '--out', 'compared', '--seeds', '1,2', '--turns', '2', '--use', CLIP)
    records = {arm: record_of(f'compared/arms/{arm}/seed-1')['recipe'] for arm in ('plain', 'other', 'plain.control')}
    check({arm: x['uses'] for arm, x in records.items()} == {'plain': [CLIP], 'other': [CLIP], 'plain.control': [CLIP, 'perturb']}, f'{records}')
    check(every(set(x['sets']) == {'seed', 'split'} for x in records.values()), f'{[x["sets"] for x in records.values()]}')
    refused(plain, 'this is the run of another recipe, or of other arguments', command='compare',
            flags=[other, '--out', 'compared', '--seeds', '1,2', '--turns', '2'])


@case
def in_fits():
    offers = pathlib.Path('offers.lua')
    offers.write_text(pathlib.Path(plain).read_text().replace('batch = 2,', 'batch = one_of { 1, 2 },'))
    planned = [run('fit', offers, '--memory', '1GiB', '--all', *words).stdout for words in ([], ['--use', 'accumulate { steps = 2 }'])]
    check(planned[0] != planned[1] and '2 combinations' in planned[1], planned[1])
    refused(offers, "--use clip:1: galley fit chooses in the recipe's own file", command='fit',
            flags=['--memory', '1GiB', '--use', 'clip { norm = one_of { 1, 2 } }'])


WRONG = {
    'unknown': ('clipp', "--use clipp: ", "did you mean 'clip'?"), 'option': ('clip { nrm = 1 }', "--use clip: unknown option 'nrm' of clip", "did you mean 'norm'?"),
    'form': ('clip norm=1', "--use 'clip norm=1': expected NAME, or NAME { option = value, … }", 'as a recipe writes it'),
    'open': ('clip { norm = 1', '--use clip:1: ', ''), 'nothing': ('', "--use '': expected NAME", ''),
    'two': ('sgd { lr = 1e-2 }', '(--use sgd)', ''),
}


@cases(WRONG)
def errors(_, of):
    given, says, hint = of
    refused(plain, says, hint, flags=['--use', given])


# ---- perturb ---------------------------------------------------------------------------------------------------------------------------


@cases({'alone': [], 'fixed': [use('amp', compute='fp16', loss_scale=512)], 'dynamic': [use('amp', compute='fp16')]})
def after_the_loss_scale(name, amp):
    """Wherever it stands in the recipe."""
    dumped = [run('plan', written(f'{name}-{i}', *uses, adamw), '--dump', 'window', *words).stdout
              for i, (uses, words) in enumerate((([use('perturb'), *amp], []), (amp, ['--use', 'perturb'])))]
    for dump in dumped:
        writers = re.findall(r'^  (window\.\S+|amp\.\S+): (\w+)\(.*scalar\.loss_scale', dump, re.M)
        check([op for _, op in writers] == ['step_begin', *(['copy'] if amp else []), 'scale_loss', 'loss_seed'], f'{writers}')


@cases({'f32': [], 'fp16': [use('amp', compute='fp16', loss_scale=64)]})
def only_rounding(name, amp):
    """Three quarters change the last bits of what is trained, and no reported scale; a half changes nothing in F32."""
    made = {factor: train(written(f'{name}-{factor}', *amp, *([use('perturb', factor=factor)] if factor else []), adamw), f'{name}-{factor}')
            for factor in (None, 0.75, 0.5)}
    losses = {factor: [x['loss'] for x in of.lines if 'loss' in x] for factor, of in made.items()}
    check(losses[None] != losses[0.75] and every(abs(a - b) < 1e-3 for a, b in together(losses[None], losses[0.75])), f'{losses}')
    if not amp:
        same_runs(made[0.5], made[None])
    scales = {factor: [x.get('loss_scale') for x in of.lines if 'loss' in x] for factor, of in made.items()}
    check(scales[None] == scales[0.75], f'{scales}')


finish()
