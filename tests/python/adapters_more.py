#!/usr/bin/env python3
"""Folders of adapters that PEFT writes and reads, and what their words mean; what a run with an adapter saves, and refuses since it could not save it."""
import json
import pathlib
import shutil

from galley_test import batch_of, check, error, finish, fixtures, fresh_folder, from_folder, load, recipe, run, save, train, use

fresh_folder()
cases = fixtures / 'lora'
sgd = use('sgd', lr=0.2)
llama, gpt2 = cases / 'qv', cases / 'gpt2-conv1d'


def made(name, case, *uses, steps=2, **entries):
    return recipe(f'{name}.lua', from_folder(case / 'base'), batch_of(case / 'batch.safetensors'), *uses, sgd, steps=steps, **entries)


def trained(name, case, *uses, **more):
    return train(made(name, case, *uses, **more), name)


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


def refused(case, *uses, texts):
    said = run('plan', made('refused', case, *uses), code=2).stderr
    for text in texts:
        check(text in said, f'{text!r} is not in: {said}')


def of_path(folder, strategy='lora', **more):
    return use(strategy, path=pathlib.Path(folder), **more)


def stacked():
    """DoRA's norm and the update read the same weight in 16 bit."""
    a_run = trained('split', llama, use('amp', compute='bf16'), use('split-states', min_size=1), use('lora', rank=4, dora=True, targets='q_proj'))
    check(a_run.steps[1][0] < a_run.steps[0][0], f'amp, split-states, DoRA: {a_run.steps}')


def stored():
    """An adapter of twice the rank belongs to the weight as it was, and not to what is stored of it."""
    for init in ('pissa', 'olora'):
        for stores in (use('quantize-nf4'), use('quantize-int8')):
            lora = dict(rank=2, targets='q_proj', init=init)
            refused(llama, stores, use('lora', **lora), texts=[f'init = "{init}": the weight of model.layers.0.self_attn.q_proj is stored as', 'init = "loftq"', 'merge = true'])
            run('plan', made('merges', llama, stores, use('lora', merge=True, **lora)))


def changed():
    """Commands that use a run without continuing it see that a configuration has changed, as resume does."""
    adapter = folder_of('first', llama / 'adapter')
    trained('on', llama, of_path(adapter), save=dict(every=1))
    run('export', 'on', '--merge', '--out', 'as-it-was')
    config = adapter / 'adapter_config.json'
    was = config.read_text()
    config.write_text(json.dumps({**json.loads(was), 'lora_alpha': 800}))
    for doing, args in (('export', ('export', 'on', '--merge', '--out', 'other')), ('export', ('export', 'on', '--out', 'other')), ('evaluate', ('eval', 'on')),
                        ('sample', ('sample', 'on', '--prompt', 'a')), ('resume', ('resume', 'on'))):
        said = run(*args, code=2).stderr
        for text in (f'on: cannot {doing}: the file ', "adapter_config.json' has changed since the run began", 'put the file back as it was'):
            check(text in said, f'{args}: {text!r} is not in: {said}')
    config.write_text(was)
    run('export', 'on', '--merge', '--out', 'again')
    check(pathlib.Path('again/model.safetensors').read_bytes() == pathlib.Path('as-it-was/model.safetensors').read_bytes(), 'exported again: other bytes')


def beside_the_model():
    """An adapter beside a model that is trained, too, belongs to that one."""
    for strategy, options in (('lora', dict(rank=2)), ('vera', dict(rank=4)), ('ia3', dict(targets='k_proj'))):
        name = f'both-{strategy}'
        trained(name, llama, use('freeze', **{'except': ['model.norm.weight']}), use(strategy, **options))
        config = json.loads(pathlib.Path(name, 'adapter/adapter_config.json').read_text())
        check(config['base_model_name_or_path'] is None, f'{name}: the base is {config["base_model_name_or_path"]}')
        run('export', name, '--merge', '--out', f'{name}-of-run')
        run('export', f'{name}/adapter', '--merge', '--out', f'{name}-of-folder')
        there = load(f'{name}-of-run/model.safetensors')
        for tensor, (_, _, x) in load(f'{name}-of-folder/model.safetensors').items():
            check(error(x, there[tensor][2]) < 1e-6, f'{name}: {tensor} of its folder is another')
        shutil.copytree(f'{name}/adapter', f'{name}-alone')
        said = run('export', f'{name}-alone', '--merge', '--out', 'nowhere', code=2).stderr
        check('--base DIR' in said, said)


def order():
    """Of several patterns that match, the first in the file holds."""
    trained('ranks', llama, use('lora', rank=2, targets='q_proj'))
    patterns = {'self_attn.q_proj': 2, 'q_proj': 9}
    folder = folder_of('ordered', 'ranks/adapter', r=9, lora_alpha=9, rank_pattern=patterns)
    again = trained('ordered-on', llama, of_path(folder))
    says = json.loads((again.path / 'adapter/adapter_config.json').read_text())['rank_pattern']
    check(list(says.items()) == list(patterns.items()), f'the patterns are saved as {says}')
    folder_of('ordered', 'ranks/adapter', r=9, lora_alpha=9, rank_pattern=dict(reversed(patterns.items())))
    refused(llama, of_path('ordered'), texts=["lora_A.weight' is (2, ", 'this model takes (9, '])


def left_in_the_file():
    """PEFT puts heads and embeddings beside adapters; they have to be the model's."""
    head, key = cases / 'lm-head', 'base_model.model.lm_head.base_layer.weight'
    run('plan', made('same', head, of_path(head / 'adapter')))

    def other(tensors):
        dtype, shape, x = tensors[key]
        x[3] += 1e-3

    refused(head, of_path(folder_of('head', head / 'adapter', other)), texts=[key, 'its numbers are not those of', 'save_embedding_layers=False'])
    base = load(llama / 'base/model.safetensors')
    name = next(x for x in base if 'embed_tokens' in x)

    def with_table(factor):
        def add(tensors):
            dtype, shape, x = base[name]
            tensors['base_model.model.' + name] = ('F32', shape, [factor * v for v in x])
        return add

    run('plan', made('table', llama, of_path(folder_of('with-table', llama / 'adapter', with_table(1)))))
    refused(llama, of_path(folder_of('with-table', llama / 'adapter', with_table(1.5))), texts=['embed_tokens.weight', 'save_embedding_layers=False'])

    def foreign(tensors):
        tensors['base_model.model.other.weight'] = ('F32', [1], [1.0])

    refused(llama, of_path(folder_of('foreign', llama / 'adapter', foreign)), texts=["'base_model.model.other.weight', which lora does not use"])


def saved_in():
    """What is a difference of two large products is not rounded."""
    for init, dtype in (('default', 'BF16'), ('pissa', 'F32'), ('olora', 'F32')):
        name = f'saved-{init}'
        trained(name, llama, use('lora', rank=2, init=init), save=dict(dtype='bf16'))
        run('export', name, '--dtype', 'bf16', '--out', f'{name}-export')
        for file in (f'{name}/adapter', f'{name}-export'):
            found = {x[0] for x in load(f'{file}/adapter_model.safetensors').values()}
            check(found == {dtype}, f'{file}: {found}')
        run('export', name, '--merge', '--dtype', 'bf16', '--out', f'{name}-merged')
        found = {x[0] for x in load(f'{name}-merged/model.safetensors').values()}
        check(found == {'BF16'}, f'{name}, merged: {found}')


def twice():
    for strategy, first, second, text in (('lora', dict(rank=2, targets='q_proj'), dict(rank=4, targets='v_proj'), 'rank_pattern and alpha_pattern'),
                                          ('ia3', dict(targets='k_proj'), dict(targets='v_proj'), 'name all layers in one'),
                                          ('vera', dict(rank=2, targets='q_proj'), dict(rank=2, targets='v_proj'), 'name all layers in one')):
        refused(llama, use(strategy, **first), use(strategy, **second), texts=[f'the recipe uses "{strategy}" twice', text])


def words():
    """Configurations that PEFT reads, and what it would do."""
    plain = trained('plain', llama, of_path(folder_of('plain-folder', llama / 'adapter')))
    eva = dict(rho=2.0, tau=0.99)
    for keys in (dict(init_lora_weights='eva', eva_config=eva), dict(init_lora_weights='Gaussian'), dict(eva_config=eva, corda_config=dict(corda_method='ipm')),
                 dict(init_lora_weights=False)):
        again = trained('word', llama, of_path(folder_of('word-folder', llama / 'adapter', **keys)))
        check(again.steps == plain.steps, f'{keys}: {again.steps}, not {plain.steps}')
        shutil.rmtree('word')
    for keys, texts in ((dict(init_lora_weights='mica'), ['"mica"', 'trains A alone']),
                        (dict(init_lora_weights='pissa_niter_4'), ['path_initial_model_for_weight_conversion']),
                        (dict(init_lora_weights='corda'), ["'init_lora_weights' changes the base weights"]),
                        (dict(ensure_weight_tying=True), ["'ensure_weight_tying' changes what the adapter computes"])):
        refused(llama, of_path(folder_of('word-folder', llama / 'adapter', **keys)), texts=['adapter_config.json', *texts])
    every = trained('every', llama, use('lora', rank=2))
    of_all = trained('every-on', llama, of_path(folder_of('every-folder', 'every/adapter', target_modules='All-Linear')))
    check(of_all.steps == trained('every-4', llama, use('lora', rank=2), steps=4).steps[2:], f'All-Linear: it goes on at {of_all.steps}, from {every.steps}')
    # PyTorch's generator takes the low 32 bits of its seed.
    drawn = dict(rank=4, targets='q_proj', save_projection=False)
    trained('drawn', llama, use('vera', seed=5, **drawn))
    steps = {key: trained(f'drawn-{key}', llama, of_path(folder_of(f'drawn-{key}-folder', 'drawn/adapter', projection_prng_key=key), 'vera')).steps
             for key in (5, 2**40 + 5, 6)}
    check(steps[5] == steps[2**40 + 5] != steps[6], f'VeRA by key: {steps}')
    config = json.loads(pathlib.Path(f'drawn-{2**40 + 5}', 'adapter/adapter_config.json').read_text())
    check(config['projection_prng_key'] == 2**40 + 5, f'the key is saved as {config["projection_prng_key"]}')
    refused(llama, of_path(folder_of('drawn-folder', 'drawn/adapter', projection_prng_key=-1), 'vera'), texts=["'projection_prng_key' has to be a whole number from 0 on"])

    # Biases that the file lacks are the model's.
    def without_biases(tensors):
        for name in [x for x in tensors if x.endswith('.bias')]:
            del tensors[name]

    still = dict(rank=2, targets='attention', bias='lora_only')
    whole = trained('biases', gpt2, use('lora', **still))
    check(any(x.endswith('.bias') for x in load('biases/adapter/adapter_model.safetensors')), 'no biases are saved')
    begun = trained('biases-on', gpt2, of_path(folder_of('no-biases', 'biases/adapter', without_biases)))
    check(begun.steps != whole.steps and begun.steps[0][0] < whole.steps[0][0], f'without biases: {begun.steps}, from {whole.steps}')
    check(any(x.endswith('.bias') for x in load('biases-on/adapter/adapter_model.safetensors')), 'no biases are saved again')


def places():
    trained('a-run', llama, use('lora', rank=2))
    refused(llama, of_path('a-run'), texts=["is a run's folder, and no adapter's", "a-run/adapter'"])
    folder = folder_of('pickled', llama / 'adapter')
    (folder / 'adapter_model.safetensors').rename(folder / 'adapter_model.bin')
    refused(llama, of_path(folder), texts=['adapter_model.bin', 'safe_serialization=True'])


for test in (stacked, stored, changed, beside_the_model, order, left_in_the_file, saved_in, twice, words, places):
    test()
    print(test.__name__, flush=True)
finish()
