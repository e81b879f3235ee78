#!/usr/bin/env python3
"""Rows of the embedding and of the head that are trained beside LoRA, from outside: what is merged computes what the adapter does and keeps all other rows, a plan
counts those rows alone, other strategies leave the bits or the meaning, and lists that mean nothing are refused. What PEFT computes is in parity.py."""
import functools
import json
import pathlib
import shutil

from galley_test import (batch_of, binary, case, cases, check, error, finish, fixtures, fresh_folder, from_config, from_folder, gradients, load, norm, recipe, run,
                         save, together, use)
from steps_kit import planned, recipes, refused, trained

fresh_folder()
recorded = fixtures / 'lora'
sgd, adamw = use('sgd', lr=0.2), use('adamw', lr=1e-2)
gpu = ['--device', 'cuda-emulated', '--plugin-path', binary / 'emulated']
file = 'adapter/adapter_model.safetensors'
delta = '.token_adapter.trainable_tokens_delta'
TIED, UNTIED = recorded / 'qv', recorded / 'lm-head'
IDS = [159, 34, 210]
of_both = [dict(module='embed_tokens', indices=[94, 45]), dict(module='lm_head', indices=[12, 187, 94])]
# The base, its recorded batch, the options, and the tables that change with the rows in them.
KINDS = {
    'tied': (TIED, dict(trainable_token_indices=IDS), {'model.embed_tokens.weight': IDS}),
    'untied': (UNTIED, dict(trainable_token_modules=of_both), {'model.embed_tokens.weight': [94, 45], 'lm_head.weight': [12, 187, 94]}),
    'embedding': (UNTIED, dict(trainable_token_indices=[94, 45], modules_to_save='lm_head'), {'model.embed_tokens.weight': [94, 45], 'lm_head.weight': None}),
    'head': (TIED, dict(trainable_token_modules=[dict(module='lm_head', indices=[159])]), {'lm_head.weight': [159]}),
    'same': (TIED, dict(trainable_token_modules=[dict(module='lm_head', indices=IDS), dict(module='model.embed_tokens', indices=IDS)]),
             {'model.embed_tokens.weight': IDS}),
    'gpt2': (recorded / 'gpt2-conv1d', dict(trainable_token_indices=[175, 76, 164], dora=True), {'transformer.wte.weight': [175, 76, 164]}),
}


def of(folder, *last):
    """Recipes on the base of a recorded adapter, with its batch."""
    return recipes(from_folder(folder / 'base'), batch_of(folder / 'batch.safetensors'), *(last or [sgd]))


def tokens(**options):
    return use('lora', rank=2, alpha=4, **options)


@cases({name: (name, *what) for name, what in KINDS.items()})
def merged_and_continued(_, what):
    name, folder, options, tables = what

    def run_of(label, steps, **more):
        lora = use('lora', **more) if 'path' in more else tokens(**options, **more)
        return trained(of(folder)(f'{name}-{label}', lora, steps=steps), f'{name}-{label}')

    def logits(label, model, *uses):
        path = recipe(f'{name}-{label}.lua', model, batch_of(folder / 'batch.safetensors'), *uses, sgd, steps=1)
        return gradients(path, f'{name}-{label}.safetensors', '--logits')['logits'][2]

    whole, first = run_of('whole', 4), run_of('first', 2)
    run_of('merged', 4, merge=True)
    apart = logits('on', from_folder(folder / 'base'), use('lora', path=whole.path.resolve() / 'adapter'))
    e = error(logits('model', from_folder(f'{name}-merged/model')), apart)
    check(e < 2e-5, f'merged, the logits are off by {e:.1e}')
    run('export', whole.path, '--merge', '--out', f'{name}-exported')
    merged = pathlib.Path(f'{name}-merged/model/model.safetensors')
    check(pathlib.Path(f'{name}-exported/model.safetensors').read_bytes() == merged.read_bytes(), 'merged later: other bytes')
    continued = run_of('continued', 2, path=first.path.resolve() / 'adapter')
    check(continued.steps == whole.steps[2:], f'{continued.steps} after going on, {whole.steps[2:]} at once')
    check(continued.bytes(file) == whole.bytes(file), 'two steps and two more save another adapter than four')
    check(whole.steps[-1][0] < whole.steps[0][0], f'the loss does not fall: {whole.steps}')
    # Rows that are trained lie in the merged tables as they do in the adapter; all others are as they were. No table is there but those that were.
    base, merged, adapter = load(folder / 'base/model.safetensors'), load(merged), load(whole.path / file)
    for table, ids in tables.items():
        rows, columns = merged[table][1]
        was = base[table if table in base else 'model.embed_tokens.weight'][2]
        changed = {r for r in range(rows) if merged[table][2][r * columns:(r + 1) * columns] != was[r * columns:(r + 1) * columns]}
        if ids is None:
            check(len(changed) == rows, f'{table}, which is trained whole, has changed in {len(changed)} rows')
            continue
        check(changed == set(ids), f'{table} has changed in the rows {sorted(changed)}')
        own = 'base_model.model.' + table.removesuffix('.weight') + delta
        check(adapter[own][:2] == ('F32', [len(ids), columns]), f'{own} is {adapter[own][:2]}')
        for i, token in enumerate(ids):
            there = merged[table][2][token * columns:(token + 1) * columns]
            check(there == adapter[own][2][i * columns:(i + 1) * columns], f'{table}: row {token} is another than in the adapter')
    check(set(merged) == set(base) | set(tables), f'merged, there are {sorted(set(merged) ^ set(base))} beside what was there')
    says = json.loads((whole.path / 'adapter/adapter_config.json').read_text())['trainable_token_indices']
    # As PEFT has it: a list of the embedding's, else lists by module.
    by_module = {k.removesuffix('.weight'): v for k, v in tables.items()}
    check(says == options.get('trainable_token_indices', by_module), f'it says {says}')


@cases(['tokens', 'tokens-apart', 'tokens-other', 'tokens-scaled', 'tokens-shared', 'tokens-padding'])
def of_peft(name):
    """Folders that PEFT wrote, merged: the logits are those that it computed."""
    folder = recorded / name
    on = recorded / json.loads((folder / 'expect.json').read_text())['on']
    base = on / 'base' if (on / 'base').exists() else on
    run('export', folder / 'adapter', '--base', base, '--merge', '--out', f'{name}-merged')
    path = recipe(f'{name}-merged.lua', from_folder(f'{name}-merged'), batch_of(on / 'batch.safetensors'), sgd, steps=1)
    made = gradients(path, f'{name}-merged.safetensors', '--logits')
    mask = load(on / 'batch.safetensors').get('attention_mask')
    shown, (_, shape, wanted) = made['logits'][2], load(folder / 'expect.safetensors')['logits']
    seen = [not mask or mask[1] != shape[:-1] or mask[2][i // shape[-1]] for i in range(len(wanted))]
    e = error([x for x, there in zip(shown, seen) if there], [x for x, there in zip(wanted, seen) if there])
    check(e < 1e-5, f'the logits are off by {e:.1e}')


# ---- What a plan says of it ------------------------------------------------------------------------------------------------------------------
@cases({'tied': (TIED, dict(trainable_token_indices=IDS), 3), 'untied': (UNTIED, dict(trainable_token_modules=of_both), 5)})
def what_it_takes(name, what):
    """Gradients and states of n rows, and nothing of the size of the table."""
    folder, options, n = what
    # With several micro-batches gradients are there at the peak, wherever that is.
    made, C = recipes(from_folder(folder / 'base'), 'data.random {}', adamw, use('accumulate', steps=2), batch=2, length=16, steps=2), 64
    without, with_rows = planned(made(f'{name}-without', tokens())), planned(made(f'{name}-rows', tokens(**options)))
    check(with_rows['trainable'] - without['trainable'] == n * C, f'{with_rows["trainable"] - without["trainable"]} numbers more are trained, not {n * C}')
    beside, = with_rows['beside_the_model']
    check(beside['numbers'] == with_rows['trainable'], f'{beside}')

    def owned(plan, owner):
        return sum(c['owners'].get(owner, 0) for c in plan['classes'].values())

    for owner, times in (('gradients', 1), ('states', 2)):
        more = owned(with_rows, owner) - owned(without, owner)
        check(0 < more <= times * 4 * n * C + 1024, f'{more} bytes more of {owner}, and {times} of each of {n * C} numbers are {times * 4 * n * C}')
    dump = run('plan', f'{name}-rows.lua', '--dump', 'place').stdout
    check('token_adapter' in dump and not [x for x in dump.splitlines() if 'grad.' in x and ('grad.model.embed' in x or 'grad.lm_head' in x)], 'a table has a gradient')


# ---- Beside other strategies -----------------------------------------------------------------------------------------------------------------
entries = dict(steps=4, save=dict(every=2))
of_tied = of(TIED, adamw)
plain = functools.cache(lambda: trained(of_tied('plain', tokens(trainable_token_indices=IDS), **entries), 'plain'))
token_file = 'base_model.model.model.embed_tokens' + delta


def rows_of(table):
    return [x for token in IDS for x in table[token * 64:(token + 1) * 64]]


@case
def resumed():
    """A resumed run has the bits of one that was not interrupted."""
    trained(of_tied('halfway', tokens(trainable_token_indices=IDS), **entries), 'halfway')
    for name in ('state/step-00000004', 'adapter'):
        shutil.rmtree(f'halfway/{name}')
    run('resume', 'halfway')
    check(pathlib.Path('halfway', file).read_bytes() == plain().bytes(file), 'another adapter')


@case
def recomputed():
    made = trained(of_tied('recomputed', tokens(trainable_token_indices=IDS), use('recompute', every=1), **entries), 'recomputed')
    check(made.steps == plain().steps and made.bytes(file) == plain().bytes(file), 'other bits')


@case
def on_a_gpu():
    """The same rows move there, and have the same bits where saved tensors and the optimizer's states lie elsewhere."""
    made = {name: trained(of_tied(f'gpu-{name}', tokens(trainable_token_indices=IDS), *uses, **entries), f'gpu-{name}', *gpu)
            for name, uses in {'plain': [], 'offloaded': [use('offload-activations', min_size=1024), use('offload-optimizer', min_size=16)]}.items()}
    check(made['plain'].bytes(file) == made['offloaded'].bytes(file), 'offloaded, they have other bits')
    e = error(load(made['plain'].path / file)[token_file][2], load(plain().path / file)[token_file][2])
    check(e < 1e-5, f'rows are off by {e:.1e}')


@cases({'accumulate': ([use('accumulate', steps=3)], 1e-5), 'bf16': ([use('amp', compute='bf16')], 2e-2), 'fp16': ([use('amp', compute='fp16')], 2e-2),
        'stored': ([use('amp', compute='bf16'), use('quantize-nf4')], 0.3), 'int8': ([use('quantize-int8')], 0.1), 'chunks': ([], 1e-5)})
def near(name, what):
    """The same rows move, in sums of other parts and in 16 bit; beside a base that is stored in few bits, too."""
    uses, bound = what
    more = dict(head_rows=7) if name == 'chunks' else dict(batch=1) if name == 'accumulate' else {}
    made = trained(of_tied(name, tokens(trainable_token_indices=IDS), *uses, **entries, **more), name)
    for (loss, _), (other, _) in together(made.steps, plain().steps):
        check(abs(loss - other) < bound * other, f'{made.steps}, not {plain().steps}')
    first = rows_of(load(TIED / 'base/model.safetensors')['model.embed_tokens.weight'][2])
    moved = [[a - b for a, b in zip(load(x.path / file)[token_file][2], first)] for x in (made, plain())]
    check(norm(moved[1]) > 0 and error(*moved) < 30 * bound, f'{name}: rows have moved by other numbers: {error(*moved):.1e}')


@cases({'cpu': [], 'cuda-emulated': gpu})
def referenced(name, flags):
    """Each instruction beside its op's reference, with several tokens, a head in chunks, two tables, and rows that are rounded; and what is merged."""
    for label, folder, options in (('tied', TIED, dict(trainable_token_indices=IDS)), ('untied', UNTIED, dict(trainable_token_modules=of_both))):
        path = of(folder, adamw)(f'{label}-{name}', tokens(**options, merge=True), use('amp', compute='bf16'), steps=2, head_rows=40)
        run('train', path, '--out', f'{label}-{name}', '--reference', '--reference-out', f'{label}-{name}.json', *flags)
        seen = json.loads(pathlib.Path(f'{label}-{name}.json').read_text())
        for op in ('put_token_rows', 'put_token_columns', 'take_token_columns', 'token_slots', 'set_token_rows'):
            check(op in json.dumps(seen), f'{label}: no {op} in {seen}')


@case
def rates():
    """The rows are an embedding's: they learn the slowest, and muon leaves them to another optimizer."""
    made = {x: trained(of(TIED)(f'rate-{x}', tokens(trainable_token_indices=IDS), use('layer-decay', decay=x), steps=1), f'rate-{x}') for x in (1.0, 0.5)}
    first = rows_of(load(TIED / 'base/model.safetensors')['model.embed_tokens.weight'][2])
    moved = {factor: [a - b for a, b in zip(load(x.path / file)[token_file][2], first)] for factor, x in made.items()}
    share = norm(moved[0.5]) / norm(moved[1.0])
    check(abs(share - 0.25) < 1e-4, f'before two blocks, with a decay of 0.5, they move by {share} of it')
    muon, rest = use('muon', lr=1e-3, rest='none'), use('adamw', lr=1e-3, parameters=[token_file])
    made = planned(recipes(from_folder(TIED / 'base'), batch_of(TIED / 'batch.safetensors'), muon, rest)('muon', tokens(trainable_token_indices=IDS), steps=1))
    check(made['trainable'], 'nothing is trained')


@case
def generated():
    """Keys and values are kept while it writes, as without the rows."""
    pathlib.Path('text.txt').write_text('rows of some letters are trained alone. ' * 30)
    model = from_config('llama', vocab_size=256, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                        max_position_embeddings=32, tie_word_embeddings=True)
    path = recipe('text.lua', model, 'data.text { files = { arg("text") }, tokenizer = "bytes" }', tokens(trainable_token_indices=[101, 32, 115]), use('adamw', lr=5e-2),
                  batch=2, length=16, steps=8, seed=1)
    run('train', path, '--out', 'text', '--set', 'text=text.txt')
    words = ['text', '--prompt', 'rows of', '--tokens', 20, '--temperature', 1, '--seed', 3]
    kept, whole = run('sample', *words), run('sample', *words, '--no-cache')
    check(kept.stdout == whole.stdout and len(kept.stdout) > 20 and 'cannot be kept' not in kept.stderr, f'{kept}, and without caches {whole}')


@case
def beside_the_table():
    """Where the rest of the table is trained, too, its own rows of these tokens are read by nobody."""
    table = 'model.embed_tokens.weight'
    path = of_tied('table', tokens(trainable_token_indices=IDS), use('freeze', **{'except': [table]}), steps=1)
    made = gradients(path, 'table.safetensors')[f'grad.{table}'][2]
    without = {r for r in range(len(made) // 64) if not any(made[r * 64:(r + 1) * 64])}
    check(without == set(IDS), f'the rows {sorted(without)} have no gradient')


# ---- What is refused -------------------------------------------------------------------------------------------------------------------------
@cases({name: (folder, options, says) for name, (folder, options, says) in {
    'outside': (TIED, dict(trainable_token_indices=[3, 211]), ["'trainable_token_indices' has the id 211, but model.embed_tokens has 211 rows", 'ids go from 0 to 210']),
    'twice': (TIED, dict(trainable_token_indices=[3, 5, 3]), ["'trainable_token_indices' has the id 3 twice"]),
    'negative': (TIED, dict(trainable_token_indices=[-1]), ["'trainable_token_indices' has to hold ids of tokens, whole numbers from 0 on"]),
    'half': (TIED, dict(trainable_token_indices=[0.5]), ['whole numbers from 0 on']),
    'none': (TIED, dict(trainable_token_indices=[]), ["'trainable_token_indices' is an empty list"]),
    'both': (TIED, dict(trainable_token_indices=[1], trainable_token_modules=of_both), ["give 'trainable_token_indices', the rows of the embedding, or"]),
    'unknown': (TIED, dict(trainable_token_modules=[dict(module='q_proj', indices=[1])]), ["no embedding and no head is called 'q_proj'", "'lm_head'"]),
    'named twice': (TIED, dict(trainable_token_modules=[dict(module=x, indices=[1]) for x in ('embed_tokens', 'model.embed_tokens')]),
                    ['names model.embed_tokens twice']),
    'whole': (TIED, dict(trainable_token_indices=[1], modules_to_save='embed_tokens'),
              ["rows of model.embed_tokens are to be trained, and 'modules_to_save' trains 'model.embed_tokens' whole"]),
    'whole head': (TIED, dict(trainable_token_indices=[1], modules_to_save='lm_head'), ["'modules_to_save' trains 'lm_head' whole"]),
    'adapted': (TIED, dict(trainable_token_indices=[1], targets='lm_head'), ['rows of lm_head are to be trained, which has matrices of the adapter, too']),
    'path': (TIED, dict(trainable_token_indices=[1], path=recorded / 'tokens/adapter'), ["cannot stand beside 'path'"])}.items()})
def refused_words(name, what):
    folder, options, says = what
    refused(of(folder)('refused', use('lora', **({} if 'path' in options else dict(rank=2)), **options), steps=1), 'lora: ', *says)


@case
def refused_models():
    """A head with a bias, and a table that PEFT finds in one module where several read it."""
    for model, says in (('bert-mlm', ['the head cls.predictions.decoder has a bias, which PEFT leaves out']),
                        ('t5-own-head', ['the table of shared is read by encoder.embed_tokens'])):
        folder = fixtures / 'models' / model
        made = recipes(from_folder(folder), batch_of(folder / 'batch.safetensors'), sgd)
        refused(made(f'refused-{model}', tokens(trainable_token_indices=[5]), steps=1), *says)


@cases({'outside': ([3, 211], ['has the id 211']), 'negative': ([-1], ['has to hold ids of tokens']), 'text': ('159', ['has to be a list of ids']),
        'twice': ([5, 5], ['has the id 5 twice']), 'module': (dict(embed=[5]), ["no embedding and no head is called 'embed'"]),
        'number': (dict(embed_tokens=5), ['has to be a list of ids'])})
def refused_folders(name, what):
    """The key of a configuration, by the file's name."""
    value, says = what
    folder = pathlib.Path(f'folder-{name.replace(" ", "-")}')
    shutil.copytree(recorded / 'tokens/adapter', folder)
    config = folder / 'adapter_config.json'
    config.write_text(json.dumps({**json.loads(config.read_text()), 'trainable_token_indices': value}))
    refused(of(TIED)('wrong', use('lora', path=folder), steps=1), "adapter_config.json: 'trainable_token_indices'", *says)


@case
def left_tables():
    """PEFT puts the tables beside the rows where the vocabulary has grown; they have to be the model's."""
    table = load(TIED / 'base/model.safetensors')['model.embed_tokens.weight']
    for name, factor in (('same', 1), ('other', 1.5)):
        folder = pathlib.Path(f'left-{name}')
        shutil.copytree(recorded / 'tokens/adapter', folder)
        tensors = load(folder / 'adapter_model.safetensors')
        for module in ('model.embed_tokens', 'lm_head'):
            tensors[f'base_model.model.{module}.token_adapter.base_layer.weight'] = ('F32', table[1], [factor * x for x in table[2]])
        save(folder / 'adapter_model.safetensors', tensors)
    planned(of(TIED)('left-same', use('lora', path=pathlib.Path('left-same')), steps=1))
    refused(of(TIED)('left-other', use('lora', path=pathlib.Path('left-other')), steps=1), 'base_layer.weight', 'its numbers are not those of')


finish(turns=2)
