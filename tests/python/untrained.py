#!/usr/bin/env python3
"""Runs that reach their last step and have trained nothing, or the wrong way: every step skipped, a loss that has diverged; and what is said of numbers that are not
finite. And gradients, which are for comparing: no dropout in them."""
import pathlib

from galley_test import batch_of, case, cases, check, error, every, finish, fixtures, fresh_folder, from_config, from_folder, gradients, recipe, run, train, use

fresh_folder()
tiny = dict(n_layer=1, n_embd=16, n_head=2, n_positions=16, vocab_size=32, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
model = from_config('gpt2', **tiny)


def told(name, *uses, code=0, steps=6, **entries):
    path = recipe(f'{name}.lua', model, 'data.random { }', *uses, batch=2, length=8, steps=steps, seed=3, **entries)
    r = run('train', path, '--out', name, code=code)
    return r.stdout + r.stderr


sgd = use('sgd', lr=0.1)


# ---- Every step skipped, since the loss scale is too large ---------------------------------------------------------------------------------


@case
def scale_without_an_inverse():
    """It would make gradients of 0 into NaN."""
    said = told('tiny', use('amp', compute='fp16', loss_scale=1e-44), sgd, code=1, save=dict(every=4))
    check('step 1: the loss scale of 9.80909e-45 is too small' in said and 'dynamic' in said, said[-500:])
    check(not (pathlib.Path('tiny') / 'model').exists(), 'a model that was never trained is saved')


@cases({'infinite': (dict(init=1e300), 'inf'), 'fixed': (dict(loss_scale=1e30), '1e+30')})
def scale(name, of):
    options, scale = of
    said = told(name, use('amp', compute='fp16', **options), sgd, code=1, save=dict(every=4))
    check('none of the 6 steps was applied' in said and 'loss scale of ' in said and scale in said and 'dynamic' in said, said[-500:])
    check(not (pathlib.Path(name) / 'model').exists(), 'a model that was never trained is saved')
    check((pathlib.Path(name) / 'state' / 'step-00000004').exists(), 'the state of step 4 has gone')


@case
def scale_that_works():
    said = told('works', use('amp', compute='fp16', init=1024), sgd)
    check('warning' not in said and 'applied' not in said, said[-500:])


# ---- Diverged ------------------------------------------------------------------------------------------------------------------------------


@case
def collapsed():
    """No gradient, and a loss that says nothing."""
    said = told('collapsed', use('sgd', lr=1e-6, weight_decay=1e6, decay_on='all'), steps=12)
    check('steps had a gradient of zero, at a loss of 3.46574: the model has diverged' in said and 'smaller learning rate' in said, said[-500:])


@cases({'long': ([use('clip', norm=1), use('sgd', lr=10)], 24), 'short': ([use('sgd', lr=1e4)], 6)})
def rising(name, of):
    uses, steps = of
    said = told(f'rising-{name}', *uses, steps=steps)
    check('warning: the loss has risen from ' in said and 'diverged' in said and 'clipping' in said, said[-500:])


@case
def steady():
    said = told('steady', use('sgd', lr=0.1), steps=24)
    check('warning' not in said, said[-500:])


@case
def not_finite():
    said = told('nan', use('sgd', lr=1e38), code=1)
    check('-nan' not in said and 'the states saved before' not in said, said[-500:])
    said = told('nan-saved', use('sgd', lr=1e38), code=1, save=dict(every=1))
    check('-nan' not in said and ('the states saved before are good' in said) == (pathlib.Path('nan-saved') / 'state').exists(), said[-500:])


# ---- Gradients without dropout, whatever the recipe or the adapter says --------------------------------------------------------------------


@case
def dropout_of_an_adapter():
    packed = fixtures / 'models' / 'gpt2-packed'
    data = batch_of(packed / 'batch.safetensors')
    train(recipe('made.lua', from_folder(packed), data, use('lora', rank=4, dropout=0.5), sgd, steps=2), 'made')
    plain, dropped, given = (
        gradients(recipe(f'{name}.lua', from_folder(packed), data, use('lora', path='made/adapter', **options), sgd, steps=1), f'{name}.safetensors', '--logits')
        for name, options in (('plain', dict(dropout=0)), ('dropped', {}), ('given', dict(dropout=0.9))))
    check(plain == dropped == given and len(plain) > 2, 'dropout is in the gradients')


@case
def dropout_of_a_model():
    def of(name, p):
        model = from_config('gpt2', **dict(tiny, resid_pdrop=p, embd_pdrop=p, attn_pdrop=p))
        return gradients(recipe(f'{name}.lua', model, 'data.random { }', sgd, batch=2, length=8, steps=1), f'{name}.safetensors')

    wet, dry = of('wet', 0.5), of('dry', 0.0)
    check(every(error(wet[k][2], dry[k][2]) < 1e-6 for k in dry), 'dropout of the model is in the gradients')


finish()
