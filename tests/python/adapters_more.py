#!/usr/bin/env python3
"""Folders of adapters that PEFT writes and reads, and what their words mean; what a run with an adapter saves, and refuses since it could not save it."""
import json
import pathlib
import shutil

from galley_test import batch_of, case, cases, check, error, finish, fixtures, fresh_folder, from_folder, load, run, save, use
from steps_kit import planned, recipes, refused, trained

fresh_folder()
sgd = use('sgd', lr=0.2)
llama, gpt2, head = (fixtures / 'lora' / name for name in ('qv', 'gpt2-conv1d', 'lm-head'))
file = 'adapter/adapter_model.safetensors'


def of(folder):
    """Recipes on the base of a recorded adapter, with its batch."""
    return recipes(from_folder(folder / 'base'), batch_of(folder / 'batch.safetensors'), sgd, steps=2)


def run_of(name, folder, *uses, **more):
    return trained(of(folder)(name, *uses, **more), name)


def folder_of(name, of, change=None, **keys):
    """A copy of an adapter's folder with other keys in its configuration, and with tensors that `change` has changed."""
    shutil.rmtree(name, ignore_errors=True)
    shutil.copytree(of, name)
    config = pathlib.Path(name, 'adapter_config.json')
    config.write_text(json.dumps({**json.loads(config.read_text()), **keys}, indent=2))
    if change:
        file = pathlib.Path(name, 'adapter_model.safetensors')
        tensors = load(file)
        change(tensors)
        save(file, tensors)
    return pathlib.Path(name)


def of_path(folder, strategy='lora', **more):
    return use(strategy, path=pathlib.Path(folder), **more)


@case
def stacked():
    """DoRA's norm and the update read the same weight in 16 bit."""
    made = run_of('split', llama, use('amp', compute='bf16'), use('split-states', min_size=1), use('lora', rank=4, dora=True, targets='q_proj'))
    check(made.steps[1][0] < made.steps[0][0], f'amp, split-states, DoRA: {made.steps}')


@cases({f'{init} {stores}': (init, stores) for init in ('pissa', 'olora') for stores in ('quantize-nf4', 'quantize-int8')})
def stored(_, what):
    """An adapter of twice the rank belongs to the weight as it was, and not to what is stored of it."""
    init, stores = what
    lora = dict(rank=2, targets='q_proj', init=init)
    says = f'init = "{init}": the weight of model.layers.0.self_attn.q_proj is stored as', 'init = "loftq"', 'merge = true'
    refused(of(llama)('stored', use(stores), use('lora', **lora)), *says)
    planned(of(llama)('merges', use(stores), use('lora', merge=True, **lora)))


@case
def changed():
    """Commands that use a run without continuing it see that a configuration has changed, as resume does."""
    adapter = folder_of('first', llama / 'adapter')
    run_of('on', llama, of_path(adapter), save=dict(every=1))
    run('export', 'on', '--merge', '--out', 'as-it-was')
    config = adapter / 'adapter_config.json'
    was = config.read_text()
    config.write_text(json.dumps({**json.loads(was), 'lora_alpha': 800}))
    for doing, command, flags in (('export', 'export', ['--merge', '--out', 'other']), ('export', 'export', ['--out', 'other']), ('evaluate', 'eval', []),
                                  ('sample', 'sample', ['--prompt', 'a']), ('resume', 'resume', [])):
        says = f'on: cannot {doing}: the file ', "adapter_config.json' has changed since the run began", 'put the file back as it was'
        refused('on', *says, command=command, flags=flags)
    config.write_text(was)
    run('export', 'on', '--merge', '--out', 'again')
    check(pathlib.Path('again/model.safetensors').read_bytes() == pathlib.Path('as-it-was/model.safetensors').read_bytes(), 'exported again: other bytes')


@cases({'lora': dict(rank=2), 'vera': dict(rank=4), 'ia3': dict(targets='k_proj')})
def beside_the_model(strategy, options):
    """An adapter beside a model that is trained, too, belongs to that one."""
    name = f'both-{strategy}'
    run_of(name, llama, use('freeze', **{'except': ['model.norm.weight']}), use(strategy, **options))
    config = json.loads(pathlib.Path(name, 'adapter/adapter_config.json').read_text())
    check(config['base_model_name_or_path'] is None, f'the base is {config["base_model_name_or_path"]}')
    run('export', name, '--merge', '--out', f'{name}-of-run')
    run('export', f'{name}/adapter', '--merge', '--out', f'{name}-of-folder')
    there = load(f'{name}-of-run/model.safetensors')
    for tensor, (_, _, x) in load(f'{name}-of-folder/model.safetensors').items():
        check(error(x, there[tensor][2]) < 1e-6, f'{tensor} of its folder is another')
    shutil.copytree(f'{name}/adapter', f'{name}-alone')
    refused(f'{name}-alone', '--base DIR', command='export', flags=['--merge', '--out', 'nowhere'])


@case
def order():
    """Of several patterns that match, the first in the file holds."""
    run_of('ranks', llama, use('lora', rank=2, targets='q_proj'))
    patterns = {'self_attn.q_proj': 2, 'q_proj': 9}
    folder = folder_of('ordered', 'ranks/adapter', r=9, lora_alpha=9, rank_pattern=patterns)
    again = run_of('ordered-on', llama, of_path(folder))
    says = json.loads((again.path / 'adapter/adapter_config.json').read_text())['rank_pattern']
    check(list(says.items()) == list(patterns.items()), f'the patterns are saved as {says}')
    folder_of('ordered', 'ranks/adapter', r=9, lora_alpha=9, rank_pattern=dict(reversed(patterns.items())))
    refused(of(llama)('reversed', of_path('ordered')), "lora_A.weight' is (2, ", 'this model takes (9, ')


# ---- PEFT puts heads and embeddings beside adapters; they have to be the model's ---------------------------------------------------------------
@case
def head_in_the_file():
    key = 'base_model.model.lm_head.base_layer.weight'
    planned(of(head)('same', of_path(head / 'adapter')))

    def other(tensors):
        tensors[key][2][3] += 1e-3

    refused(of(head)('other', of_path(folder_of('head', head / 'adapter', other))), key, 'its numbers are not those of', 'save_embedding_layers=False')


@case
def table_in_the_file():
    base = load(llama / 'base/model.safetensors')
    name = next(x for x in base if 'embed_tokens' in x)

    def with_table(factor):
        def add(tensors):
            dtype, shape, x = base[name]
            tensors['base_model.model.' + name] = ('F32', shape, [factor * v for v in x])
        return add

    planned(of(llama)('table', of_path(folder_of('with-table', llama / 'adapter', with_table(1)))))
    refused(of(llama)('table', of_path(folder_of('with-table', llama / 'adapter', with_table(1.5)))), 'embed_tokens.weight', 'save_embedding_layers=False')


@case
def tensor_of_nobody():
    def foreign(tensors):
        tensors['base_model.model.other.weight'] = ('F32', [1], [1.0])

    refused(of(llama)('foreign', of_path(folder_of('foreign', llama / 'adapter', foreign))), "'base_model.model.other.weight', which lora does not use")


@cases({'default': 'BF16', 'pissa': 'F32', 'olora': 'F32'})
def saved_in(init, dtype):
    """What is a difference of two large products is not rounded."""
    name = f'saved-{init}'
    run_of(name, llama, use('lora', rank=2, init=init), save=dict(dtype='bf16'))
    run('export', name, '--dtype', 'bf16', '--out', f'{name}-export')
    for folder in (f'{name}/adapter', f'{name}-export'):
        found = {x[0] for x in load(f'{folder}/adapter_model.safetensors').values()}
        check(found == {dtype}, f'{folder}: {found}')
    run('export', name, '--merge', '--dtype', 'bf16', '--out', f'{name}-merged')
    found = {x[0] for x in load(f'{name}-merged/model.safetensors').values()}
    check(found == {'BF16'}, f'merged: {found}')


@cases({'lora': (dict(rank=2, targets='q_proj'), dict(rank=4, targets='v_proj'), 'rank_pattern and alpha_pattern'),
        'ia3': (dict(targets='k_proj'), dict(targets='v_proj'), 'name all layers in one'),
        'vera': (dict(rank=2, targets='q_proj'), dict(rank=2, targets='v_proj'), 'name all layers in one')})
def twice(strategy, what):
    first, second, text = what
    refused(of(llama)('twice', use(strategy, **first), use(strategy, **second)), f'the recipe uses "{strategy}" twice', text)


# ---- Configurations that PEFT reads, and what it would do ----------------------------------------------------------------------------------------
eva = dict(rho=2.0, tau=0.99)


@cases({'eva': dict(init_lora_weights='eva', eva_config=eva), 'Gaussian': dict(init_lora_weights='Gaussian'),
        'configurations': dict(eva_config=eva, corda_config=dict(corda_method='ipm')), 'false': dict(init_lora_weights=False)})
def words_of_the_beginning(name, keys):
    """How an adapter began changes nothing of what it is."""
    plain = run_of(f'plain-{name}', llama, of_path(folder_of(f'plain-{name}-folder', llama / 'adapter')))
    again = run_of(f'word-{name}', llama, of_path(folder_of(f'word-{name}-folder', llama / 'adapter', **keys)))
    check(again.steps == plain.steps, f'{again.steps}, not {plain.steps}')


@cases({'mica': (dict(init_lora_weights='mica'), ['"mica"', 'trains A alone']),
        'pissa': (dict(init_lora_weights='pissa_niter_4'), ['path_initial_model_for_weight_conversion']),
        'corda': (dict(init_lora_weights='corda'), ["'init_lora_weights' changes the base weights"]),
        'tying': (dict(ensure_weight_tying=True), ["'ensure_weight_tying' changes what the adapter computes"])})
def words_that_change_the_base(name, what):
    keys, texts = what
    refused(of(llama)('wrong-word', of_path(folder_of(f'wrong-word-{name}', llama / 'adapter', **keys))), 'adapter_config.json', *texts)


LOFTQ = dict(init_lora_weights='loftq')
WRONG_KEYS = [
    ('lora', dict(r=0), "'r' has to be a whole number from 1 on, not 0"),
    ('lora', dict(r='8'), "'r' has to be a number"),
    ('lora', dict(lora_alpha=0), "'lora_alpha' has to be a positive number, not 0"),
    ('lora', dict(lora_dropout=1), "'lora_dropout' has to lie in [0, 1), not 1"),
    ('lora', dict(use_rslora=1), "'use_rslora' has to be true or false, not 1"),
    ('lora', dict(use_dora='yes'), "'use_dora' has to be true or false"),
    ('lora', dict(rank_pattern=dict(q_proj=0)), "'rank_pattern' has to hold whole numbers from 1 on"),
    ('lora', dict(rank_pattern=[2]), "'rank_pattern' has to be an object, not [2]"),
    ('lora', dict(alpha_pattern=dict(q_proj=-1)), "'alpha_pattern' has to hold positive numbers"),
    ('lora', dict(alpha_pattern=dict(q_proj='1')), "'alpha_pattern' has to hold numbers"),
    ('lora', dict(bias='some'), '\'bias\' has to be "none", "lora_only" or "all"'),
    ('lora', dict(target_modules=[]), "'target_modules' names no modules"),
    ('lora', dict(target_modules=3), "'target_modules' has to be a string or a list of strings, not 3"),
    ('lora', dict(modules_to_save='lm_head'), "'modules_to_save' has to be a list of strings"),
    ('lora', dict(init_lora_weights=3), "'init_lora_weights' has to be a string"),
    ('lora', dict(LOFTQ, loftq_config=None), "'loftq_config' has to be an object, since init_lora_weights is \"loftq\""),
    ('lora', dict(LOFTQ, loftq_config=dict(loftq_bits=8)), "'loftq_config' has to have \"loftq_bits\": 4"),
    ('lora', dict(LOFTQ, loftq_config=dict(loftq_iter=0)), "'loftq_config' has to have a whole number from 1 to 100 as \"loftq_iter\""),
    ('ia3', dict(target_modules=[], feedforward_modules=[]), "'target_modules' names no modules"),
]


@cases({f'{i}.{strategy}.{list(keys)[-1]}': (strategy, keys, text) for i, (strategy, keys, text) in enumerate(WRONG_KEYS)})
def wrong_keys(name, what):
    strategy, keys, text = what
    folder = folder_of('wrong-keys', (llama if strategy == 'lora' else fixtures / 'lora/ia3') / 'adapter', **keys)
    refused(of(llama)('wrong-keys', of_path(folder, strategy)), f'{strategy}: ', f'adapter_config.json: {text}')


@case
def no_tensors():
    refused(of(llama)('no-tensors', of_path(folder_of('no-tensors', llama / 'adapter', dict.clear))), "adapter_model.safetensors' holds no tensors")


@case
def nothing_is_left():
    refused(of(llama)('nothing-left', use('lora', rank=2, targets='lm_head', modules_to_save='lm_head')), "'modules_to_save' leaves no linear layer of 'targets' to adapt")


@case
def all_linear_of_peft():
    first = run_of('every', llama, use('lora', rank=2))
    on = run_of('every-on', llama, of_path(folder_of('every-folder', 'every/adapter', target_modules='All-Linear')))
    whole = run_of('every-4', llama, use('lora', rank=2), steps=4)
    check(on.steps == whole.steps[2:], f'All-Linear: it goes on at {on.steps}, from {first.steps}')


@case
def key_of_vera():
    """PyTorch's generator takes the low 32 bits of its seed."""
    run_of('drawn', llama, use('vera', seed=5, rank=4, targets='q_proj', save_projection=False))

    def on(key):
        return run_of(f'drawn-{key}', llama, of_path(folder_of(f'drawn-{key}-folder', 'drawn/adapter', projection_prng_key=key), 'vera')).steps

    steps = {key: on(key) for key in (5, 2**40 + 5, 6)}
    check(steps[5] == steps[2**40 + 5] != steps[6], f'VeRA by key: {steps}')
    config = json.loads(pathlib.Path(f'drawn-{2**40 + 5}', 'adapter/adapter_config.json').read_text())
    check(config['projection_prng_key'] == 2**40 + 5, f'the key is saved as {config["projection_prng_key"]}')
    negative = folder_of('drawn-folder', 'drawn/adapter', projection_prng_key=-1)
    refused(of(llama)('negative', of_path(negative, 'vera')), "'projection_prng_key' has to be a whole number from 0 on")


@case
def biases_that_the_file_lacks():
    """They are the model's."""
    def without_biases(tensors):
        for name in [x for x in tensors if x.endswith('.bias')]:
            del tensors[name]

    whole = run_of('biases', gpt2, use('lora', rank=2, targets='attention', bias='lora_only'))
    check(any(x.endswith('.bias') for x in load(whole.path / file)), 'no biases are saved')
    begun = run_of('biases-on', gpt2, of_path(folder_of('no-biases', 'biases/adapter', without_biases)))
    check(begun.steps != whole.steps and begun.steps[0][0] < whole.steps[0][0], f'without biases: {begun.steps}, from {whole.steps}')
    check(any(x.endswith('.bias') for x in load(begun.path / file)), 'no biases are saved again')


# ---- Folders that are none of an adapter -----------------------------------------------------------------------------------------------------------
@case
def folder_of_a_run():
    run_of('a-run', llama, use('lora', rank=2))
    refused(of(llama)('of-a-run', of_path('a-run')), "is a run's folder, and no adapter's", "a-run/adapter'")


@case
def pickled():
    folder = folder_of('pickled', llama / 'adapter')
    (folder / 'adapter_model.safetensors').rename(folder / 'adapter_model.bin')
    refused(of(llama)('of-pickled', of_path(folder)), 'adapter_model.bin', 'safe_serialization=True')


finish()
