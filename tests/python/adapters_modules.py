#!/usr/bin/env python3
"""What adapters call modules, where transformers' classes and files differ: heads, biases with two names, tables that several read, heads that are the embedding. What
PEFT computes of such adapters is in parity.py; that it reads them is tried by tests/readback."""
import json
import pathlib
import shutil

from galley_test import batch_of, case, cases, check, every, finish, fixtures, fresh_folder, from_folder, gradients, load, run, save, use
from steps_kit import recipes, refused, trained

fresh_folder()
sgd = use('sgd', lr=0.2)


def of(base, data=None):
    """Recipes on a model, with its batch or that of another folder."""
    data = data or (base if (base / 'batch.safetensors').exists() else base.parent)
    return recipes(from_folder(base), batch_of(data / 'batch.safetensors'), sgd, steps=2)


def run_of(name, base, *uses, **more):
    return trained(of(base)(name, *uses, **more), name)


def loss_of(name, base, *uses, data=None):
    return gradients(of(base, data)(name, *uses, steps=1), f'{name}.safetensors')['loss'][2][0]


def of_path(folder, strategy='lora'):
    return use(strategy, path=pathlib.Path(folder))


def tensors(name):
    return load(pathlib.Path(name, 'adapter/adapter_model.safetensors'))


def config_of(name):
    return json.loads(pathlib.Path(name, 'adapter/adapter_config.json').read_text())


def merged(name, base, what):
    """The run's model with the adapter in it: it computes what the adapter does beside the base. Returns its configuration and its tensors."""
    kind = config_of(name)['peft_type'].lower()
    right = loss_of(f'{name}-on', base, of_path(f'{name}/adapter', kind))
    run('export', name, '--merge', '--out', f'{name}-merged')
    config = json.loads(pathlib.Path(f'{name}-merged/config.json').read_text())
    check(config.get('tie_word_embeddings') is not None, f'{what}: config.json does not say whether the head is tied')
    there = loss_of(f'{name}-of', pathlib.Path(f'{name}-merged'), data=base)
    check(abs(there - right) < 1e-5 * right, f'{what}: merged {there}, beside the base {right}')
    return config, load(f'{name}-merged/model.safetensors')


@case
def heads_of_neox():
    """transformers 5 calls GPT-NeoX's head lm_head, and its weight in files embed_out.weight; version 4 had one name for both."""
    base = fixtures / 'models/gpt-neox-partial'
    first = run_of('neox', base, use('lora', rank=2, targets='query_key_value', modules_to_save='lm_head'))
    check('base_model.model.lm_head.weight' in tensors('neox'), f'the head is saved as {sorted(tensors("neox"))[:1]}')
    check(config_of('neox')['modules_to_save'] == ['lm_head'], f'{config_of("neox")}')
    on = run_of('neox-on', base, of_path('neox/adapter'))
    check(on.steps[0][0] < first.steps[0][0], f'it goes on at {on.steps}')
    merged('neox', base, 'GPT-NeoX with a trained head')
    check('embed_out.weight' in load('neox-merged/model.safetensors'), 'merged, the head has another name in the file')
    # As version 4 of transformers and PEFT on it have saved it.
    shutil.copytree('neox/adapter', 'neox-old')
    save('neox-old/adapter_model.safetensors', {k.replace('lm_head', 'embed_out'): v for k, v in tensors('neox').items()})
    pathlib.Path('neox-old/adapter_config.json').write_text(json.dumps({**config_of('neox'), 'modules_to_save': ['embed_out']}))
    old = run_of('neox-old-on', base, of_path('neox-old'))
    check(old.steps == on.steps, f'an adapter with the head\'s old name goes on at {old.steps}, not {on.steps}')
    check('base_model.model.embed_out.weight' in tensors('neox-old-on'), 'it is saved under another name than it was read')
    refused(of(base)('old-name', use('lora', rank=2, targets='embed_out')), "no linear layer is called 'embed_out'", 'lm_head')


BIASES = {'bert': ('cls', 'cls.predictions.bias', 'cls.predictions.decoder'), 'roberta': ('lm_head', 'lm_head.bias', 'lm_head.decoder')}


@cases({f'{name}-{label}': (name, label) for name in BIASES for label in ('whole', 'biases')})
def two_names(name, what):
    """The bias of BERT's head is cls.predictions.bias and cls.predictions.decoder.bias, and PEFT wants both."""
    of_model, label = what
    module, own, decoder = BIASES[of_model]
    base = fixtures / f'models/{of_model}-mlm'
    first = run_of(name, base, use('lora', rank=2, targets='query', **dict(modules_to_save=module) if label == 'whole' else dict(bias='all')))
    both = [tensors(name).get(f'base_model.model.{x}') for x in (own, f'{decoder}.bias')]
    check(both[0] is not None and both[0] == both[1], f'the bias is saved as {[x is not None for x in both]}')
    on = run_of(f'{name}-on', base, of_path(f'{name}/adapter'))
    check(tensors(f'{name}-on').keys() == tensors(name).keys(), 'it goes on with other tensors')
    check(on.steps[0][0] < first.steps[0][0], f'it goes on at {on.steps}')


@case
def biases_of_peft():
    """Of a classifier of several layers, PEFT saves the biases once more, under the names of its own wrapper."""
    base = fixtures / 'models/roberta-rows'
    run_of('rows', base, use('lora', rank=2, targets='query', bias='all'))
    shutil.copytree('rows/adapter', 'rows-of-peft')
    own = tensors('rows')
    prefix, wrapped = 'base_model.model.classifier.', 'base_model.model.classifier.modules_to_save.default.'
    more = {k.replace(prefix, wrapped): v for k, v in own.items() if k.startswith(prefix) and k.endswith('.bias')}
    check(more, f'no bias of the classifier: {sorted(own)}')
    save('rows-of-peft/adapter_model.safetensors', {**own, **more})
    steps = [run_of(f'{label}-on', base, of_path(folder)).steps for label, folder in (('rows', 'rows/adapter'), ('of-peft', 'rows-of-peft'))]
    check(steps[0] == steps[1], f'biases that are there twice: it goes on at {steps}')


# ---- Tables that several read ------------------------------------------------------------------------------------------------------------------
t5 = fixtures / 'models/t5-relu-tied'


@cases(['shared', 'encoder', 'decoder'])
def tables_of_t5(module):
    refused(of(t5)('table', use('lora', rank=2, targets='q', modules_to_save=module)),
            "'modules_to_save'", "'shared.weight'", "'encoder.embed_tokens' and 'decoder.embed_tokens'", 'except')


@case
def copy_of_a_table():
    run_of('t5', t5, use('lora', rank=2, targets='q'))
    shutil.copytree('t5/adapter', 'of-t5')
    pathlib.Path('of-t5/adapter_config.json').write_text(json.dumps({**config_of('t5'), 'modules_to_save': ['shared']}))
    refused(of(t5)('copy', of_path('of-t5')), "'shared.weight'", 'no copy of a module')


@case
def short_names_of_ia3():
    """ "o" ends "wo" as well, and for PEFT that is enough."""
    first = run_of('t5-ia3', t5, use('ia3', targets=['o', 'wo'], feedforward='o'))
    config = config_of('t5-ia3')
    others = [x.split('.ia3_l')[0].removeprefix('base_model.model.') for x, (_, shape, _) in tensors('t5-ia3').items() if shape[1] == 1]
    check(every(x.endswith('.wo') for x in others), f'scaled outputs: {others}')
    feedforward = config['feedforward_modules']
    check(not any(x.endswith(word) for x in others for word in feedforward), f'feedforward_modules mean the others, too: {feedforward}')
    check(set(feedforward) <= set(config['target_modules']), f'{config}')
    on = run_of('t5-ia3-on', t5, of_path('t5-ia3/adapter', 'ia3'))
    check(on.steps[0][0] < first.steps[0][0], f'it goes on at {on.steps}, from {first.steps}')


# ---- What is merged into a head that is the embedding gives the model a head of its own --------------------------------------------------------------
HEADS = {'llama-gqa-tied': ('lm_head', 'model.embed_tokens', ['lora', 'dora', 'whole', 'table', 'ia3', 'vera']), 'gpt2-packed': ('lm_head', 'transformer.wte', ['lora']),
         'bert-mlm': ('cls.predictions.decoder', 'bert.embeddings.word_embeddings', ['lora', 'dora', 'whole']), 't5-relu-tied': ('lm_head', 'shared', ['lora'])}


def on_a_head(label, head, table):
    return {'lora': use('lora', rank=2, targets=head), 'dora': use('lora', rank=2, targets=head, dora=True),
            'whole': use('lora', rank=2, targets='all-linear', modules_to_save=head), 'table': use('lora', rank=2, targets='all-linear', modules_to_save=table),
            'ia3': use('ia3', targets=head), 'vera': use('vera', rank=2, targets=head)}[label]


@cases({f'{model}-{label}': (model, label) for model, (_, _, labels) in HEADS.items() for label in labels})
def tied_heads(name, what):
    model, label = what
    head, table, _ = HEADS[model]
    base = fixtures / 'models' / model
    before = load(base / 'model.safetensors')[f'{table}.weight']
    run_of(name, base, on_a_head(label, head, table))
    config, there = merged(name, base, name)
    check(model.startswith('t5') or config['tie_word_embeddings'] is False, 'config.json says that the head is tied')
    check(f'{head}.weight' in there and there[f'{head}.weight'] != there[f'{table}.weight'], f'merged: {sorted(there)}')
    check((there[f'{table}.weight'][2] == before[2]) == (label != 'table'), 'the embedding')


@case
def merged_by_recipe_and_command():
    base, head = fixtures / 'models/llama-gqa-tied', dict(rank=2, targets='lm_head')
    run_of('apart', base, use('lora', **head))
    _, by_command = merged('apart', base, 'a tied head')
    said = run('export', 'apart', '--merge', '--dtype', 'bf16', '--out', 'narrow').stdout
    check('saved apart' in said and load('narrow/model.safetensors')['lm_head.weight'][0] == 'BF16', f'said: {said}')
    # A recipe that merges says the same.
    one = run_of('merges', base, use('lora', merge=True, **head))
    check(load(one.path / 'model/model.safetensors')['lm_head.weight'][2] == by_command['lm_head.weight'][2], 'merged by the recipe, another head')


@case
def scaled_in_f16():
    """A·x reaches 7,000; what B makes of it is small. Scaled by 8 before B, it would leave what F16 holds."""
    base = fixtures / 'lora/qv/base'
    run_of('plain', base, use('lora', rank=2, alpha=16, targets='q_proj'))
    shutil.copytree('plain/adapter', 'large')
    check(gradients(of(base)('inputs', of_path('large'), steps=1), 'inputs.safetensors'), 'no gradients')

    def scaled(factor):
        return {k: (d, s, [x * (factor if 'lora_A' in k else 1 / factor) for x in n]) for k, (d, s, n) in tensors('plain').items()}

    save('large/adapter_model.safetensors', scaled(8192))
    right = loss_of('large-f32', base, of_path('large'), data=base.parent)
    made = run_of('large-f16', base, use('amp', compute='fp16', init=1.0), of_path('large'), steps=1)
    check(abs(made.steps[0][0] - right) < 5e-3 * right and not made.lines[0].get('skipped'), f'in F16 {made.steps}, right {right}')


finish()
