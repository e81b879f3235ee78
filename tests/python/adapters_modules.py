#!/usr/bin/env python3
"""What adapters call modules, where transformers' classes and files differ: heads, biases with two names, tables that several read, heads that are the embedding. What
PEFT computes of such adapters is in parity.py; that it reads them is tried by tests/readback."""
import json
import pathlib
import shutil

from galley_test import batch_of, check, error, every, finish, fixtures, fresh_folder, from_folder, gradients, load, recipe, run, save, train, use

fresh_folder()
sgd = use('sgd', lr=0.2)


def made(name, base, *uses, steps=2, **entries):
    return recipe(f'{name}.lua', from_folder(base), batch_of((base if (base / 'batch.safetensors').exists() else base.parent) / 'batch.safetensors'), *uses, sgd, steps=steps, **entries)


def trained(name, base, *uses, **more):
    return train(made(name, base, *uses, **more), name)


def loss_of(name, base, *uses, data=None):
    path = recipe(f'{name}.lua', from_folder(base), batch_of((data or base) / 'batch.safetensors'), *uses, sgd, steps=1)
    return gradients(path, f'{name}.safetensors')['loss'][2][0]


def refused(base, *uses, texts):
    said = run('plan', made('refused', base, *uses), code=2).stderr
    for text in texts:
        check(text in said, f'{text!r} is not in: {said}')


def tensors(name):
    return load(pathlib.Path(name, 'adapter/adapter_model.safetensors'))


def config_of(name):
    return json.loads(pathlib.Path(name, 'adapter/adapter_config.json').read_text())


def merged(name, base, what):
    """The run's model with the adapter in it: it computes what the adapter does beside the base. Returns its configuration and its tensors."""
    kind = config_of(name)['peft_type'].lower()
    right = loss_of(f'{name}-on', base, use(kind, path=pathlib.Path(name, 'adapter')))
    run('export', name, '--merge', '--out', f'{name}-merged')
    check(json.loads(pathlib.Path(f'{name}-merged/config.json').read_text()).get('tie_word_embeddings') is not None, f'{what}: config.json does not say whether the head is tied')
    there = loss_of(f'{name}-of', pathlib.Path(f'{name}-merged'), data=base)
    check(abs(there - right) < 1e-5 * right, f'{what}: merged {there}, beside the base {right}')
    return json.loads(pathlib.Path(f'{name}-merged/config.json').read_text()), load(f'{name}-merged/model.safetensors')


def heads_of_neox():
    """transformers 5 calls GPT-NeoX's head lm_head, and its weight in files embed_out.weight; version 4 had one name for both."""
    base = fixtures / 'models/gpt-neox-partial'
    run_ = trained('neox', base, use('lora', rank=2, targets='query_key_value', modules_to_save='lm_head'))
    check('base_model.model.lm_head.weight' in tensors('neox'), f'the head is saved as {sorted(tensors("neox"))[:1]}')
    check(config_of('neox')['modules_to_save'] == ['lm_head'], f'{config_of("neox")}')
    on = trained('neox-on', base, use('lora', path=pathlib.Path('neox/adapter')))
    check(on.steps[0][0] < run_.steps[0][0], f'it goes on at {on.steps}')
    merged('neox', base, 'GPT-NeoX with a trained head')
    check('embed_out.weight' in load('neox-merged/model.safetensors'), 'merged, the head has another name in the file')
    # As version 4 of transformers and PEFT on it have saved it.
    shutil.copytree('neox/adapter', 'neox-old')
    save('neox-old/adapter_model.safetensors', {k.replace('lm_head', 'embed_out'): v for k, v in tensors('neox').items()})
    config = config_of('neox')
    pathlib.Path('neox-old/adapter_config.json').write_text(json.dumps({**config, 'modules_to_save': ['embed_out']}))
    old = trained('neox-old-on', base, use('lora', path=pathlib.Path('neox-old')))
    check(old.steps == on.steps, f'an adapter with the head\'s old name goes on at {old.steps}, not {on.steps}')
    check('base_model.model.embed_out.weight' in tensors('neox-old-on'), 'it is saved under another name than it was read')
    refused(base, use('lora', rank=2, targets='embed_out'), texts=["no linear layer is called 'embed_out'", 'lm_head'])


def two_names():
    """The bias of BERT's head is cls.predictions.bias and cls.predictions.decoder.bias, and PEFT wants both."""
    for name, module, own, decoder in (('bert', 'cls', 'cls.predictions.bias', 'cls.predictions.decoder'), ('roberta', 'lm_head', 'lm_head.bias', 'lm_head.decoder')):
        base = fixtures / f'models/{name}-mlm'
        for label, options in (('whole', dict(modules_to_save=module)), ('biases', dict(bias='all'))):
            run_ = f'{name}-{label}'
            trained(run_, base, use('lora', rank=2, targets='query', **options))
            both = [tensors(run_).get(f'base_model.model.{x}') for x in (own, f'{decoder}.bias')]
            check(both[0] is not None and both[0] == both[1], f'{run_}: the bias is saved as {[x is not None for x in both]}')
            on = trained(f'{run_}-on', base, use('lora', path=pathlib.Path(run_, 'adapter')))
            check(tensors(f'{run_}-on').keys() == tensors(run_).keys(), f'{run_}: goes on with other tensors')
            check(on.steps[0][0] < json.loads(pathlib.Path(run_, 'metrics.jsonl').read_text().splitlines()[0])['loss'], f'{run_}: goes on at {on.steps}')


    # Of a classifier of several layers, PEFT saves the biases once more, under the names of its own wrapper.
    base = fixtures / 'models/roberta-rows'
    trained('rows', base, use('lora', rank=2, targets='query', bias='all'))
    shutil.copytree('rows/adapter', 'rows-of-peft')
    own = tensors('rows')
    prefix, wrapped = 'base_model.model.classifier.', 'base_model.model.classifier.modules_to_save.default.'
    save('rows-of-peft/adapter_model.safetensors', {**own, **{k.replace(prefix, wrapped): v for k, v in own.items() if k.startswith(prefix) and k.endswith('.bias')}})
    steps = [trained(folder.replace('/', '-') + '-on', base, use('lora', path=pathlib.Path(folder))).steps for folder in ('rows/adapter', 'rows-of-peft')]
    check(steps[0] == steps[1], f'biases that are there twice: it goes on at {steps}')


def tables_of_t5():
    base = fixtures / 'models/t5-relu-tied'
    for module in ('shared', 'encoder', 'decoder'):
        refused(base, use('lora', rank=2, targets='q', modules_to_save=module), texts=["'modules_to_save'", "'shared.weight'", "'encoder.embed_tokens' and 'decoder.embed_tokens'", 'except'])
    shutil.copytree(fixtures / 'lora/qv/adapter', 'of-t5', dirs_exist_ok=True)
    trained('t5', base, use('lora', rank=2, targets='q'))
    shutil.rmtree('of-t5')
    shutil.copytree('t5/adapter', 'of-t5')
    pathlib.Path('of-t5/adapter_config.json').write_text(json.dumps({**config_of('t5'), 'modules_to_save': ['shared']}))
    refused(base, use('lora', path=pathlib.Path('of-t5')), texts=["'shared.weight'", 'no copy of a module'])
    # "o" ends "wo" as well, and for PEFT that is enough.
    ia3 = trained('t5-ia3', base, use('ia3', targets=['o', 'wo'], feedforward='o'))
    config = config_of('t5-ia3')
    others = [x.split('.ia3_l')[0].removeprefix('base_model.model.') for x, (_, shape, _) in tensors('t5-ia3').items() if shape[1] == 1]
    check(others and every(x.endswith('.wo') for x in others), f'scaled outputs: {others}')
    check(not any(x.endswith(word) for x in others for word in config['feedforward_modules']), f'feedforward_modules mean the others, too: {config["feedforward_modules"]}')
    check(set(config['feedforward_modules']) <= set(config['target_modules']), f'{config}')
    on = trained('t5-ia3-on', base, use('ia3', path=pathlib.Path('t5-ia3/adapter')))
    check(on.steps[0][0] < ia3.steps[0][0], f'it goes on at {on.steps}, from {ia3.steps}')


def tied_heads():
    """What is merged into a head that is the embedding gives the model a head of its own."""
    cases = (('llama-gqa-tied', 'lm_head', 'model.embed_tokens'), ('gpt2-packed', 'lm_head', 'transformer.wte'), ('bert-mlm', 'cls.predictions.decoder', 'bert.embeddings.word_embeddings'),
             ('t5-relu-tied', 'lm_head', 'shared'))
    for case, head, table in cases:
        base = fixtures / 'models' / case
        before = load(base / 'model.safetensors')[f'{table}.weight']
        adapters = {'lora': ('lora', dict(rank=2, targets=head)), 'dora': ('lora', dict(rank=2, targets=head, dora=True)), 'whole': ('lora', dict(rank=2, targets='all-linear', modules_to_save=head))}
        if case == 'llama-gqa-tied':
            adapters.update(table=('lora', dict(rank=2, targets='all-linear', modules_to_save=table)), ia3=('ia3', dict(targets=head)), vera=('vera', dict(rank=2, targets=head)))
        if case in ('gpt2-packed', 't5-relu-tied'):
            adapters = {'lora': adapters['lora']}
        for label, (strategy, options) in adapters.items():
            name = f'{case}-{label}'
            trained(name, base, use(strategy, **options))
            config, there = merged(name, base, name)
            check(case.startswith('t5') or config['tie_word_embeddings'] is False, f'{name}: config.json says that the head is tied')
            check(f'{head}.weight' in there and there[f'{head}.weight'] != there[f'{table}.weight'], f'{name}: merged: {sorted(there)}')
            check((there[f'{table}.weight'][2] == before[2]) == (label != 'table'), f'{name}: the embedding')
    said = run('export', 'llama-gqa-tied-lora', '--merge', '--dtype', 'bf16', '--out', 'narrow').stdout
    check('saved apart' in said and load('narrow/model.safetensors')['lm_head.weight'][0] == 'BF16', f'said: {said}')
    # A recipe that merges says the same.
    one = trained('merges', fixtures / 'models/llama-gqa-tied', use('lora', rank=2, targets='lm_head', merge=True))
    check(load(one.path / 'model/model.safetensors')['lm_head.weight'][2] == load('llama-gqa-tied-lora-merged/model.safetensors')['lm_head.weight'][2], 'merged by the recipe, another head')


def scaled_in_f16():
    """A·x reaches 7,000; what B makes of it is small. Scaled by 8 before B, it would leave what F16 holds."""
    base = fixtures / 'lora/qv/base'
    trained('plain', base, use('lora', rank=2, alpha=16, targets='q_proj'))
    shutil.copytree('plain/adapter', 'large')
    inputs = gradients(made('inputs', base, use('lora', path=pathlib.Path('large')), steps=1), 'inputs.safetensors')
    check(bool(inputs), 'no gradients')

    def scaled(factor):
        return {k: (d, s, [x * (factor if 'lora_A' in k else 1 / factor) for x in n]) for k, (d, s, n) in tensors('plain').items()}

    save('large/adapter_model.safetensors', scaled(8192))
    right = loss_of('large-f32', base, use('lora', path=pathlib.Path('large')), data=base.parent)
    a_run = trained('large-f16', base, use('amp', compute='fp16', init=1.0), use('lora', path=pathlib.Path('large')), steps=1)
    check(abs(a_run.steps[0][0] - right) < 5e-3 * right and not a_run.lines[0].get('skipped'), f'in F16 {a_run.steps}, right {right}')


for test in (heads_of_neox, two_names, tables_of_t5, tied_heads, scaled_in_f16):
    test()
    print(test.__name__, flush=True)
finish()
