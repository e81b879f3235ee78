#!/usr/bin/env python3
"""Adapters of every kind from outside: what is merged computes what the adapter does, an adapter that was saved goes on, DoRA beside what reads or skips or averages
its parameters, what a plan says of adapters and what they take, and words of recipes that mean nothing. What PEFT computes is in parity.py."""
import json
import pathlib
import shutil

from galley_test import batch_of, check, error, every, finish, fixtures, fresh_folder, from_config, from_folder, gradients, load, norm, plan, recipe, run, train, use

fresh_folder()
cases = fixtures / 'lora'
sgd = use('sgd', lr=0.2)
bases = {'llama': (cases / 'qv', 'down_proj', 'model.norm'), 'gpt2': (cases / 'gpt2-conv1d', 'mlp.c_proj', 'ln_f')}


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


def numbers_of(tensors, prefix='grad.'):
    return {k: v[2] for k, v in tensors.items() if k.startswith(prefix)}


def merged_and_continued():
    for family, (case, feedforward, last) in bases.items():
        base, data = from_folder(case / 'base'), batch_of(case / 'batch.safetensors')
        for kind, (strategy, options) in kinds_of(feedforward, last).items():
            name = f'{family}-{kind}'

            def trained(label, steps, **more):
                given = more if 'path' in more else {**options, **more}
                return train(recipe(f'{name}-{label}.lua', base, data, use(strategy, **given), sgd, steps=steps), f'{name}-{label}')

            whole = trained('whole', 4)
            whole.check_memory(name)
            trained('merged', 4, merge=True).check_memory(f'{name}, merged')
            first = trained('first', 2)
            on = recipe(f'{name}-on.lua', base, data, use(strategy, path=pathlib.Path(f'{name}-whole/adapter')), sgd, steps=1)
            of_model = recipe(f'{name}-model.lua', from_folder(f'{name}-merged/model'), data, sgd, steps=1)
            apart, merged = (gradients(x, f'{name}.safetensors', '--logits') for x in (on, of_model))
            e = error(merged['logits'][2], apart['logits'][2])
            check(e < 2e-5, f'{name}: merged, the logits are off by {e:.1e}')
            run('export', f'{name}-whole', '--merge', '--out', f'{name}-exported')
            exported = gradients(recipe(f'{name}-exported.lua', from_folder(f'{name}-exported'), data, sgd, steps=1), f'{name}.safetensors', '--logits')
            e = error(exported['logits'][2], apart['logits'][2])
            check(e < 2e-5, f'{name}: exported, the logits are off by {e:.1e}')
            # Of an adapter of twice the rank, the gradients are others.
            continued = trained('continued', 2, path=pathlib.Path(f'{name}-first/adapter'))
            check(abs(continued.steps[0][0] - whole.steps[2][0]) < 1e-5, f'{name}: it goes on at {continued.steps[0]}, not {whole.steps[2]}')
            if 'init' not in options:
                check(continued.steps == whole.steps[2:], f'{name}: {continued.steps} after going on, {whole.steps[2:]} at once')
                file = 'adapter/adapter_model.safetensors'
                check(continued.bytes(file) == whole.bytes(file), f'{name}: two steps and two more save another adapter than four')
            check(first.steps == whole.steps[:2], f'{name}: {first.steps} in two steps, {whole.steps} in four')
            check(whole.steps[-1][0] < whole.steps[0][0], f'{name}: the loss does not fall: {whole.steps}')
            config = json.loads(pathlib.Path(f'{name}-whole/adapter/adapter_config.json').read_text())
            check(config['base_model_name_or_path'] == str((case / 'base').resolve()), f'{name}: the base is {config["base_model_name_or_path"]}')


def dora_beside():
    """The norm of a window is that of the weights that are read: of averages, behind a skipped step, in 16 bit, in a resumed run."""
    base = from_config('llama', vocab_size=256, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                       max_position_embeddings=16)
    text = 'data.text { files = { arg("text") }, tokenizer = "bytes", validation = 0.2 }'
    pathlib.Path('text.txt').write_text('the norm of each row is made once a window, and takes no gradient. ' * 30)
    dora, adamw = use('lora', rank=4, alpha=8, dora=True), use('adamw', lr=2e-2)

    def made(name, *uses, steps=4, **entries):
        entries = {**dict(batch=2, length=16, seed=4, validate=dict(every=2), save=dict(every=2)), **entries}
        return train(recipe(f'{name}.lua', base, text, *uses, steps=steps, **entries), name, '--set', 'text=text.txt')

    def validations(a_run):
        return [x['validation_loss'] for x in a_run.lines if 'validation_loss' in x]

    def of_adapter(name, strategy=None):
        on = recipe(f'{name}-on.lua', base, text, use('lora', path=pathlib.Path(f'{name}/adapter')), adamw, batch=2, length=16, seed=4, steps=1)
        return json.loads(run('eval', on, '--set', 'text=text.txt', '--json').stdout)['validation_loss']

    plain = made('plain', dora, adamw)
    for name, more in (('ema', [use('ema', decay=0.5, warmup=False)]), ('dropout', []), ('frozen-16', [use('amp', compute='bf16')])):
        uses = [use('lora', rank=4, alpha=8, dora=True, dropout=0.3)] if name == 'dropout' else [dora]
        one = made(name, *uses, *more, adamw)
        one.check_memory(f'dora, {name}')
        says, saved = validations(one)[-1], of_adapter(name)
        bound = 2e-2 if name == 'frozen-16' else 1e-6
        check(abs(says - saved) < bound * saved, f'dora, {name}: validated at {says}, what it saved at {saved}')
        check(says != validations(plain)[-1], f'dora, {name}: as without it')
    again = made('recomputed', dora, use('recompute', every=1), adamw)
    check(again.steps == plain.steps and validations(again) == validations(plain), 'dora, recomputed: other bits')
    halves = made('halves', dora, use('accumulate', steps=2), adamw, batch=1)
    check(max(abs(a[0] - b[0]) for a, b in zip(halves.steps, plain.steps)) < 1e-5, f'dora, accumulated: {halves.steps}, not {plain.steps}')
    # A loss scale that is too large at first: the norm is that of the parameters that the skipped step has left as they were.
    skipped = made('skipped', dora, use('amp', compute='fp16', init=2.0**24), adamw, steps=24, validate=dict(every=24))
    applied = [x for x in skipped.lines if 'loss' in x]
    count = sum(1 for x in applied if x.get('skipped'))
    check(2 < count < 20, f'dora, fp16: {count} of {len(applied)} steps were skipped')
    saved = of_adapter('skipped')
    check(abs(validations(skipped)[-1] - saved) < 5e-3 * saved, f'dora, fp16: validated at {validations(skipped)[-1]}, what it saved at {saved}')
    check(saved < validations(plain)[0], f'dora, fp16: it has learnt nothing: {saved}')
    # A resumed run has the bits of one that was not interrupted.
    made('halfway', dora, adamw)
    for name in ('model', 'adapter', 'state/step-00000004'):
        shutil.rmtree(f'halfway/{name}', ignore_errors=True)
    run('resume', 'halfway')
    file = 'adapter/adapter_model.safetensors'
    check(pathlib.Path('halfway', file).read_bytes() == plain.bytes(file), 'dora, resumed: another adapter')


def what_it_takes():
    case = cases / 'gpt2-conv1d'
    base, adamw = from_folder(case / 'base'), use('adamw', lr=1e-3)

    def planned(*uses):
        return plan(recipe('plan.lua', base, 'data.random {}', *uses, adamw, batch=2, length=16, steps=2))

    lora = planned(use('lora', rank=4, targets='attention'))
    beside, = lora['beside_the_model']
    layers = 2
    hidden = 64
    expected = layers * 4 * ((hidden + 3 * hidden) + (hidden + hidden))
    check(beside['by'].startswith('lora (') and beside['numbers'] == expected == lora['trainable'] and beside['bytes'] == 4 * expected, f'{beside}, not {expected}')
    check({x.split('.lora_')[0] for x in beside['names']} == {f'base_model.model.transformer.h.*.attn.{x}' for x in ('c_attn', 'c_proj')}, f'{beside["names"]}')
    check(beside['parameters'] == 4 * layers and beside['file'] == 'adapter/adapter_model.safetensors', f'{beside}')
    text = run('plan', 'plan.lua').stdout
    check('  beside the model\n    lora (plan.lua:' in text, text[:2000])
    # B adds into what the layer makes, and no gradient is there but the adapter's.
    check('linear>add' in lora['kernels'], f'kernels: {sorted(lora["kernels"])}')
    dump = run('plan', 'plan.lua', '--dump', 'place').stdout
    grads = [x for x in dump.splitlines() if ' grad.' in x and 'transformer.' in x and 'base_model.' not in x]
    check(not grads, f'gradients of frozen parameters: {grads[:3]}')
    # What PiSSA and OLoRA begin with is made while loading: no weight is there twice.
    total = {init: sum(x['planned'] for x in planned(use('lora', rank=4, init=init))['classes'].values()) for init in ('default', 'pissa', 'olora')}
    whole = planned(use('lora', rank=4))
    more = sum(x['bytes'] for x in whole['beside_the_model'])
    for init in ('pissa', 'olora'):
        check(total[init] - total['default'] < 1.5 * more, f'{init}: {total[init] - total["default"]} bytes more; A and B are {more}')


def rates():
    """LoRA+: B moves by the factor, A does not."""
    case = cases / 'qv'
    made = {}
    for factor in (1, 16):
        options = dict(rank=2, targets='q_proj', **({'b_lr_factor': factor} if factor != 1 else {}))
        train(recipe(f'rate-{factor}.lua', from_folder(case / 'base'), batch_of(case / 'batch.safetensors'), use('lora', **options), sgd, steps=1), f'rate-{factor}')
        made[factor] = load(f'rate-{factor}/adapter/adapter_model.safetensors')
    for name, (_, _, x) in made[1].items():
        e = error(made[16][name][2], [(16 if 'lora_B' in name else 1) * v for v in x])
        check(norm(x) > 0 and e < 1e-6, f'rates: {name} is off by {e:.1e}')


def some_layers():
    """Adapters on layers by their numbers: those have parameters, and the folder that is saved is read as it was."""
    for family, (case, _, _) in bases.items():
        base, data = from_folder(case / 'base'), batch_of(case / 'batch.safetensors')
        for kind, options in (('lora', dict(rank=2, targets='attention')), ('vera', dict(rank=4))):
            name = f'layer-{family}-{kind}'
            before = 'layers' if family == 'llama' else 'h'
            made = train(recipe(f'{name}.lua', base, data, use(kind, layers_to_transform=[1], layers_pattern=before, **options), sgd, steps=2), name)
            file = load(made.path / 'adapter/adapter_model.safetensors')
            numbers = {x.split('.')[4] for x in file if f'.{before}.' in x}
            check(numbers == {'1'}, f'{name}: adapters on layers {numbers}')
            again = train(recipe(f'{name}-on.lua', base, data, use(kind, path=made.path.resolve() / 'adapter'), sgd, steps=1), f'{name}-on')
            longer = train(recipe(f'{name}-3.lua', base, data, use(kind, layers_to_transform=[1], **options), sgd, steps=3), f'{name}-3')
            check(again.steps == longer.steps[2:], f'{name}: it goes on at {again.steps}, not {longer.steps[2:]}')
    config = json.loads((cases / 'layers/adapter/adapter_config.json').read_text())
    for change, text in ((dict(layers_to_transform=[-1]), "'layers_to_transform' has to hold whole numbers"), (dict(layers_to_transform='1'), 'whole numbers'),
                         (dict(target_modules='.*q_proj'), 'which PEFT refuses'), (dict(layers_pattern=['(']), 'the regular expression')):
        shutil.copytree(cases / 'layers/adapter', 'wrong-layers', dirs_exist_ok=True)
        pathlib.Path('wrong-layers/adapter_config.json').write_text(json.dumps({**config, **change}))
        said = run('plan', recipe('wrong-layers.lua', from_folder(cases / 'qv/base'), 'data.random {}', use('lora', path=pathlib.Path('wrong-layers')), sgd, batch=1, length=8,
                                  steps=1), code=2).stderr
        check('adapter_config.json' in said and text in said, f'{change}: {said}')


def wrong_words():
    """Refused with the place and what would do."""
    base = from_folder(cases / 'qv' / 'base')

    def said(strategy, **options):
        r = run('plan', recipe('wrong.lua', base, 'data.random {}', use(strategy, **options), sgd, batch=1, length=8, steps=1), code=2)
        check(f'wrong.lua:7: {strategy}: ' in r.stderr, r.stderr)
        return r.stderr

    for strategy, options, texts in (
            ('lora', dict(rank=2, targets='k_projs'), ["no linear layer is called 'k_projs'", "'model.layers.0.self_attn.k_proj'"]),
            ('lora', dict(rank=2, targets='re:(k_proj'), ["'targets': the regular expression '(k_proj' cannot be used"]),
            ('lora', dict(rank=2, exclude='all-linear'), ["'exclude' leaves no linear layer of 'targets' to adapt"]),
            ('lora', dict(rank=2, modules_to_save='model.norms'), ["no module is called 'model.norms'", "'model.norm'"]),
            ('lora', dict(rank=2, alpha_pattern=[dict(match='lm_head', alpha=3)]), ["'alpha_pattern': no adapted layer is called 'lm_head'"]),
            ('lora', dict(rank=2, layers_to_transform=[0, 2]), ["no linear layer of 'targets' is in layer 2", 'the last one is 1']),
            ('lora', dict(rank=2, layers_to_transform=[0.5]), ["'layers_to_transform' has to hold whole numbers from 0 on"]),
            ('lora', dict(rank=2, layers_pattern='layers'), ["'layers_pattern' says what stands before the numbers"]),
            ('vera', dict(rank=2, layers_to_transform=[1], layers_pattern='h'), ["is in layer 1", "no name of them has a number behind 'layers_pattern'"]),
            ('lora', dict(rank=2, init='pisa'), ['init = "pisa"', '"pissa_niter_16"']),
            ('lora', dict(rank=60, init='pissa'), ["'init': rank 60 is more than 32, the rank of the weight of model.layers.0.self_attn.k_proj"]),
            ('lora', dict(rank=2, init='olora', targets='lm_head'), ["'init' would change the embedding too: lm_head"]),
            ('vera', dict(targets='q_proj'), ["give a 'rank' for a new adapter"]),
            ('vera', dict(rank=2, targets='attentions'), ["no linear layer is called 'attentions'"]),
            ('ia3', dict(), ["give the 'targets' of a new adapter", '"k_proj", "v_proj"']),
            ('ia3', dict(targets='k_proj', feedforward='down_proj'), ["'feedforward': no adapted layer is called 'down_proj'"])):
        text = said(strategy, **options)
        check(every(x in text for x in texts), f'{strategy} {options}: {text}')


for test in (merged_and_continued, some_layers, wrong_words, dora_beside, what_it_takes, rates):
    test()
    print(test.__name__, flush=True)
finish()
