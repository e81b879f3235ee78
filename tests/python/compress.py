#!/usr/bin/env python3
"""Saved tensors that a strategy compresses into a format: by `squeezes` of tests/plugins/peaks, into formats of other plugins."""
import os
import re

from galley_test import binary, case, cases, check, finish, fresh_folder, from_config, Run, run, together, use
from steps_kit import planned, recipes, refused, trained

fresh_folder()
flags = [x for name in ('tests/plugins/peaks', 'tests/plugins/six-bit', 'tests/plugins/discrete', 'emulated') for x in ('--plugin-path', binary / name)]
os.environ['GALLEY_EMULATED_FREE'] = str(1 << 30)
config = dict(vocab_size=61, hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
written = recipes(from_config('llama', **config), 'data.random {}', use('clip', norm=1.0), use('adamw', lr=1e-3), batch=4, length=32, steps=4, seed=1)
ALL = ['linear', 'swiglu', 'rms_norm', 'add', 'attention']


def squeezed(format, ops=ALL, **more):
    return use('squeezes', format=format, ops=ops, **more)


def said(made):
    """What the strategy was told: items, bytes before and after, and peaks and seconds of a micro-batch before and after."""
    found = re.search(r'squeezes: (\d+) items of (\d+) bytes into (\d+) in (\S+) s; peak (\d+), then (\d+); seconds (\S+), then (\S+)', made.stderr)
    return [float(x) if '.' in x or 'e' in x else int(x) for x in found.groups()]


@cases(['dynamic8', 'four-bit', 'int8-rows', 'six-bit'], turns=4)
def formats(format):
    """The peak is as the strategy was told, and lower; references hold for what packs and unpacks; losses stay near."""
    for precision in ('fp32', 'bf16'):
        amp = [use('amp', compute='bf16')] if precision == 'bf16' else []
        plain = trained(written(f'plain-{precision}', *amp), f'plain-{format}-{precision}', *flags)
        path = written(f'{format}-{precision}', *amp, squeezed(format))
        items, bytes_, packed, seconds, peak, then, before, after = said(run('plan', path, *flags))
        check(items >= 18 and packed < (0.6 if precision == 'bf16' else 0.3) * bytes_ and seconds > 0, f'{items} items of {bytes_} into {packed} in {seconds} s')
        check(then < peak and before < after <= before + 1.001 * seconds, f'peaks {peak}, {then}; seconds {before}, {after}')
        check(planned(path, *flags)['classes']['host']['planned'] == then, f'{format}: the plan is not {then}')
        made = trained(path, f'{format}-{precision}', *flags, '--reference')
        check(made.bytes() == trained(path, f'poison-{format}-{precision}', *flags, '--poison').bytes(), f'{format} in {precision}: poison changes it')
        check(made.steps[0][0] == plain.steps[0][0], 'the first loss is of the same numbers')
        far = max(abs(a[0] - b[0]) for a, b in together(made.steps, plain.steps))
        check(0 < far < 0.05, f'{format} in {precision}: losses are {far} apart')
        lines = run('plan', path, *flags, '--dump', 'decide').stdout.count(f'compress into {format} ')
        check(lines == items, f'{lines} of {items} items in the dump')


@case
def numbers_that_the_format_holds():
    """Of numbers in BF16, BF16 is the same bits, so that nothing changes but the launches."""
    amp = use('amp', compute='bf16')
    plain = trained(written('held', amp), 'held', *flags)
    made = trained(written('holds', amp, squeezed('bf16', ['swiglu'])), 'holds', *flags)
    check(made.bytes() == plain.bytes() and made.steps == plain.steps, 'the numbers have changed')


@case
def goes_on_to_the_byte():
    path = written('whole', use('accumulate', steps=2), squeezed('dynamic8'), save={'every': 2})
    whole = trained(path, 'whole', *flags)
    trained(path, 'half', *flags, '--until', '2')
    run('resume', 'half', *flags)
    check(Run('half').bytes() == whole.bytes(), 'resumed, the model is another one')


@cases(['discrete', 'cuda-emulated'])
def devices(device):
    path = written(f'on-{device}', squeezed('dynamic8'))
    here = trained(path, f'here-{device}', *flags)
    there = trained(path, f'there-{device}', *flags, '--device', device, '--reference')
    far = max(abs(a[0] - b[0]) for a, b in together(here.steps, there.steps))
    check(far < 1e-3, f'losses are {far} apart')


@case
def beside_other_decisions():
    """A strategy with a budget takes what another one compresses where that frees memory for less time; else each decides on what others keep."""
    both = written('both', use('recompute', every=1), squeezed('dynamic8'))
    dump = run('plan', both, *flags, '--dump', 'decide').stdout
    check('recompute once' in dump and 'compress into dynamic8' in dump, dump)
    trained(both, 'both', *flags, '--reference')
    least = said(run('plan', written('alone', squeezed('dynamic8')), *flags))[5]
    path = written('budget', squeezed('dynamic8'), use('recompute', budget=f'{least + 60_000}B'))
    dump = run('plan', path, *flags, '--dump', 'decide').stdout
    check('recompute once' in dump and 'compress into dynamic8' in dump, dump)
    check(planned(path, *flags)['classes']['host']['planned'] <= least + 60_000, 'the budget does not hold')
    trained(path, 'budget', *flags, '--reference')


@case
def refusals():
    refused(written('none', squeezed('seven-bit')), 'squeezes (none.lua:', "no plugin provides the format 'seven-bit' into which it compresses", flags=flags)
    refused(written('packs', squeezed('gguf-blocks')), "format 'gguf-blocks', which packs nothing", flags=flags)
    odd = recipes(from_config('llama', **{**config, 'hidden_size': 24, 'intermediate_size': 40}), 'data.random {}', use('sgd', lr=0.1), batch=1, length=8, steps=1)
    for path, text in ((written('third', squeezed('dynamic8', choice=4 | 2 << 8)), "there is no format 2 to compress 'model.embed_tokens' into"),
                       (odd('odd', squeezed('six-bit', choice=4)), "'model.embed_tokens' cannot be compressed into format 'six-bit', which does not take its shape or dtype")):
        said = run('plan', path, *flags, code=2).stderr
        check(f'galley: squeezes ({path}:' in said and text in said, said)


finish()
