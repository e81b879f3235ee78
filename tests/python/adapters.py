#!/usr/bin/env python3
"""Adapters of every kind from outside: what is merged computes what the adapter does, an adapter that was saved goes on, DoRA beside what reads or skips or averages
its parameters, what a plan says of adapters and what they take, and words of recipes that mean nothing. What PEFT computes is in parity.py."""
import functools
import json
import pathlib
import shutil

from galley_test import (batch_of, case, cases, check, error, finish, fixtures, fresh_folder, from_config, from_folder, gradients, load, norm, plan, recipe, run,
                         together, use)
from steps_kit import planned, recipes, refused, trained

fresh_folder()
recorded = fixtures / 'lora'
sgd = use('sgd', lr=0.2)
file = 'adapter/adapter_model.safetensors'
bases = {'llama': (recorded / 'qv', 'down_proj', 'model.norm'), 'gpt2': (recorded / 'gpt2-conv1d', 'mlp.c_proj', 'ln_f')}


def kinds_of(feedforward, last):
    return {
        'lora': ('lora', dict(rank=4, alpha=8, targets='attention', bias='all', modules_to_save=last)),
        'dora': ('lora', dict(rank=3, alpha=2, dora=True)),
        'pissa': ('lora', dict(rank=4, alpha=8, init='pissa', rslora=True)),
        'pissa-fast': ('lora', dict(rank=4, init='pissa_niter_4', dora=True)),
        'olora': ('lora', dict(rank=4, alpha=2, init='olora')),
        'vera': ('vera', dict(rank=8, d_initial=0.5, bias='vera_only')),
        'vera-drawn': ('vera', dict(rank=8, d_initial=0.5, save_projection=False)),
        'ia3': ('ia3', dict(targets=['attention', feedforward], feedforward=feedforward, modules_to_save=last)),
    }


def of(folder):
    """Recipes on the base of a recorded adapter, with its batch."""
    return recipes(from_folder(folder / 'base'), batch_of(folder / 'batch.safetensors'), sgd)


@cases({f'{family}-{kind}': (folder, *what) for family, (folder, *names) in bases.items() for kind, what in kinds_of(*names).items()})
def merged_and_continued(name, what):
    folder, strategy, options = what
    base, data = from_folder(folder / 'base'), batch_of(folder / 'batch.safetensors')

    def run_of(label, steps, **more):
        given = more if 'path' in more else {**options, **more}
        return trained(of(folder)(f'{name}-{label}', use(strategy, **given), steps=steps), f'{name}-{label}')

    def logits(label, model, *uses):
        return gradients(recipe(f'{name}-{label}.lua', model, data, *uses, sgd, steps=1), f'{name}-{label}.safetensors', '--logits')['logits'][2]

    whole, first = run_of('whole', 4), run_of('first', 2)
    run_of('merged', 4, merge=True)
    apart = logits('on', base, use(strategy, path=whole.path.resolve() / 'adapter'))
    e = error(logits('model', from_folder(f'{name}-merged/model')), apart)
    check(e < 2e-5, f'merged, the logits are off by {e:.1e}')
    run('export', whole.path, '--merge', '--out', f'{name}-exported')
    e = error(logits('of-export', from_folder(f'{name}-exported')), apart)
    check(e < 2e-5, f'exported, the logits are off by {e:.1e}')
    # Of an adapter of twice the rank, the gradients are others.
    continued = run_of('continued', 2, path=first.path.resolve() / 'adapter')
    check(abs(continued.steps[0][0] - whole.steps[2][0]) < 1e-5, f'it goes on at {continued.steps[0]}, not {whole.steps[2]}')
    if 'init' not in options:
        check(continued.steps == whole.steps[2:], f'{continued.steps} after going on, {whole.steps[2:]} at once')
        check(continued.bytes(file) == whole.bytes(file), 'two steps and two more save another adapter than four')
    check(first.steps == whole.steps[:2], f'{first.steps} in two steps, {whole.steps} in four')
    check(whole.steps[-1][0] < whole.steps[0][0], f'the loss does not fall: {whole.steps}')
    config = json.loads((whole.path / 'adapter/adapter_config.json').read_text())
    check(config['base_model_name_or_path'] == str((folder / 'base').resolve()), f'the base is {config["base_model_name_or_path"]}')


# ---- DoRA: the norm of a window is that of the weights that are read ---------------------------------------------------------------------------
pathlib.Path('text.txt').write_text('the norm of each row is made once a window, and takes no gradient. ' * 30)
text = ['--set', 'text=text.txt']
dora, adamw = use('lora', rank=4, alpha=8, dora=True), use('adamw', lr=2e-2)
of_text = recipes(from_config('llama', vocab_size=256, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                              max_position_embeddings=16), 'data.text { files = { arg("text") }, tokenizer = "bytes", validation = 0.2 }', adamw,
                  batch=2, length=16, steps=4, seed=4)


def dora_run(name, *uses, **more):
    return trained(of_text(name, *uses, **{**dict(validate=dict(every=2), save=dict(every=2)), **more}), name, *text)


plain = functools.cache(lambda: dora_run('plain', dora))


def validations(made):
    return [x['validation_loss'] for x in made.lines if 'validation_loss' in x]


def saved_loss(made):
    """Of the adapter that a run has saved, on the base."""
    on = of_text(f'{made.path.name}-on', use('lora', path=made.path.resolve() / 'adapter'), steps=1)
    return json.loads(run('eval', on, *text, '--json').stdout)['validation_loss']


@cases({'ema': ([dora, use('ema', decay=0.5, warmup=False)], 1e-6), 'dropout': ([use('lora', rank=4, alpha=8, dora=True, dropout=0.3)], 1e-6),
        'frozen-16': ([dora, use('amp', compute='bf16')], 2e-2)})
def dora_is_saved(name, what):
    """Of averages, beside dropout, in 16 bit."""
    uses, bound = what
    made = dora_run(name, *uses)
    says, saved = validations(made)[-1], saved_loss(made)
    check(abs(says - saved) < bound * saved, f'validated at {says}, what it saved at {saved}')
    check(says != validations(plain())[-1], 'as without it')


@case
def dora_recomputed():
    again = dora_run('recomputed', dora, use('recompute', every=1))
    check(again.steps == plain().steps and validations(again) == validations(plain()), 'other bits')


@case
def dora_accumulated():
    halves = dora_run('halves', dora, use('accumulate', steps=2), batch=1)
    for (loss, _), (other, _) in together(halves.steps, plain().steps):
        check(abs(loss - other) < 1e-5, f'{halves.steps}, not {plain().steps}')


@case
def dora_behind_skipped_steps():
    """A loss scale that is too large at first: the norm is that of the parameters that the skipped step has left as they were."""
    made = dora_run('skipped', dora, use('amp', compute='fp16', init=2.0**24), steps=24, validate=dict(every=24))
    count = sum(1 for x in made.lines if 'loss' in x and x.get('skipped'))
    check(2 < count < 20, f'{count} of {len(made.steps)} steps were skipped')
    saved = saved_loss(made)
    check(abs(validations(made)[-1] - saved) < 5e-3 * saved, f'validated at {validations(made)[-1]}, what it saved at {saved}')
    check(saved < validations(plain())[0], f'it has learnt nothing: {saved}')


@case
def dora_resumed():
    """A resumed run has the bits of one that was not interrupted."""
    dora_run('halfway', dora)
    for name in ('state/step-00000004', 'adapter'):
        shutil.rmtree(f'halfway/{name}')
    run('resume', 'halfway')
    check(pathlib.Path('halfway', file).read_bytes() == plain().bytes(file), 'another adapter')


# ---- What a plan says of adapters, and what they take -------------------------------------------------------------------------------------------
of_gpt2 = recipes(from_folder(recorded / 'gpt2-conv1d' / 'base'), 'data.random {}', use('adamw', lr=1e-3), batch=2, length=16, steps=2)


@case
def what_it_takes():
    path = of_gpt2('plan', use('lora', rank=4, targets='attention'))
    lora = planned(path)
    beside, = lora['beside_the_model']
    layers = 2
    hidden = 64
    expected = layers * 4 * ((hidden + 3 * hidden) + (hidden + hidden))
    check(beside['by'].startswith('lora (') and beside['numbers'] == expected == lora['trainable'] and beside['bytes'] == 4 * expected, f'{beside}, not {expected}')
    check({x.split('.lora_')[0] for x in beside['names']} == {f'base_model.model.transformer.h.*.attn.{x}' for x in ('c_attn', 'c_proj')}, f'{beside["names"]}')
    check(beside['parameters'] == 4 * layers and beside['file'] == file, f'{beside}')
    said = run('plan', path).stdout
    check('  beside the model\n    lora (plan.lua:' in said, said[:2000])
    # B adds into what the layer makes, and no gradient is there but the adapter's.
    check('linear>add' in lora['kernels'], f'kernels: {sorted(lora["kernels"])}')
    dump = run('plan', path, '--dump', 'place').stdout
    grads = [x for x in dump.splitlines() if ' grad.' in x]
    check(grads and not [x for x in grads if 'transformer.' in x and 'base_model.' not in x], f'gradients of frozen parameters, or none: {grads[:3]}')


@cases(['pissa', 'olora'])
def no_weight_twice(init):
    """What PiSSA and OLoRA begin with is made while loading."""
    total = {x: sum(c['planned'] for c in planned(of_gpt2(f'init-{x}', use('lora', rank=4, init=x)))['classes'].values()) for x in ('default', init)}
    whole = plan(of_gpt2('whole', use('lora', rank=4)))
    more = sum(x['bytes'] for x in whole['beside_the_model'])
    check(total[init] - total['default'] < 1.5 * more, f'{total[init] - total["default"]} bytes more; A and B are {more}')


@case
def rates():
    """LoRA+: B moves by the factor, A does not."""
    made = {}
    for factor in (1, 16):
        options = dict(rank=2, targets='q_proj', **({'b_lr_factor': factor} if factor != 1 else {}))
        made[factor] = load(trained(of(recorded / 'qv')(f'rate-{factor}', use('lora', **options), steps=1), f'rate-{factor}').path / file)
    for name, (_, _, x) in made[1].items():
        e = error(made[16][name][2], [(16 if 'lora_B' in name else 1) * v for v in x])
        check(norm(x) > 0 and e < 1e-6, f'{name} is off by {e:.1e}')


# ---- Adapters on layers by their numbers ----------------------------------------------------------------------------------------------------------
@cases({f'{family}-{kind}': (family, kind, options) for family in bases for kind, options in (('lora', dict(rank=2, targets='attention')), ('vera', dict(rank=4)))})
def some_layers(name, what):
    """Those have parameters, and the folder that is saved is read as it was."""
    family, kind, options = what
    made, before = of(bases[family][0]), {'llama': 'layers', 'gpt2': 'h'}[family]
    two = trained(made(f'layer-{name}', use(kind, layers_to_transform=[1], layers_pattern=before, **options), steps=2), f'layer-{name}')
    numbers = {x.split('.')[4] for x in load(two.path / file) if f'.{before}.' in x}
    check(numbers == {'1'}, f'adapters on layers {numbers}')
    again = trained(made(f'layer-{name}-on', use(kind, path=two.path.resolve() / 'adapter'), steps=1), f'layer-{name}-on')
    longer = trained(made(f'layer-{name}-3', use(kind, layers_to_transform=[1], **options), steps=3), f'layer-{name}-3')
    check(again.steps == longer.steps[2:], f'it goes on at {again.steps}, not {longer.steps[2:]}')


of_llama = recipes(from_folder(recorded / 'qv' / 'base'), 'data.random {}', sgd, batch=1, length=8, steps=1)


@cases({'negative': (dict(layers_to_transform=[-1]), "'layers_to_transform' has to hold whole numbers"), 'text': (dict(layers_to_transform='1'), 'whole numbers'),
        'pattern': (dict(target_modules='.*q_proj'), 'which PEFT refuses'), 'expression': (dict(layers_pattern=['(']), 'the regular expression')})
def wrong_layers(name, what):
    change, says = what
    folder = pathlib.Path(f'wrong-{name}')
    shutil.copytree(recorded / 'layers/adapter', folder)
    config = folder / 'adapter_config.json'
    config.write_text(json.dumps({**json.loads(config.read_text()), **change}))
    refused(of_llama(f'wrong-{name}', use('lora', path=folder)), 'adapter_config.json', says)


@cases({f'{strategy} {i}': (strategy, options, says) for i, (strategy, options, says) in enumerate([
    ('lora', dict(rank=2, targets='k_projs'), ["no linear layer is called 'k_projs'", "'model.layers.0.self_attn.k_proj'"]),
    ('lora', dict(rank=2, targets='re:(k_proj'), ["'targets': the regular expression '(k_proj' cannot be used"]),
    ('lora', dict(rank=2, exclude='all-linear'), ["'exclude' leaves no linear layer of 'targets' to adapt"]),
    ('lora', dict(rank=2, modules_to_save='model.norms'), ["no module is called 'model.norms'", "'model.norm'"]),
    ('lora', dict(rank=2, alpha_pattern=[dict(match='lm_head', alpha=3)]), ["'alpha_pattern': no adapted layer is called 'lm_head'"]),
    ('lora', dict(rank=2, layers_to_transform=[0, 2]), ["no linear layer of 'targets' is in layer 2", 'the last one is 1']),
    ('lora', dict(rank=2, layers_to_transform=[0.5]), ["'layers_to_transform' has to hold whole numbers from 0 on"]),
    ('lora', dict(rank=2, layers_pattern='layers'), ["'layers_pattern' says what stands before the numbers"]),
    ('vera', dict(rank=2, layers_to_transform=[1], layers_pattern='h'), ["is in layer 1", "no name of them has a number after 'layers_pattern'"]),
    ('lora', dict(rank=2, init='pisa'), ['init = "pisa"', '"pissa_niter_16"']),
    ('lora', dict(rank=60, init='pissa'), ["'init': rank 60 is more than 32, the rank of the weight of model.layers.0.self_attn.k_proj"]),
    ('lora', dict(rank=2, init='olora', targets='lm_head'), ["'init' would change the embedding too: lm_head"]),
    ('vera', dict(targets='q_proj'), ["give a 'rank' for a new adapter"]),
    ('vera', dict(rank=2, targets='attentions'), ["no linear layer is called 'attentions'"]),
    ('ia3', dict(), ["give the 'targets' of a new adapter", '"k_proj", "v_proj"']),
    ('ia3', dict(targets='k_proj', feedforward='down_proj'), ["'feedforward': no adapted layer is called 'down_proj'"])])})
def wrong_words(_, what):
    """Refused with the place and what would do."""
    strategy, options, says = what
    refused(of_llama('wrong', use(strategy, **options)), f'wrong.lua:7: {strategy}: ', *says)


finish(turns=2)
