#!/usr/bin/env python3
"""Strategies on top of each other: weights in 4 and 8 bit below adapters, mixed precision, skipped steps, merging and tied embeddings; what such a recipe refuses; and
what the literature calls preparing a model for training in few bits."""
import functools
import itertools
import json
import pathlib
import re

from galley_test import (binary, case, cases, check, error, every, finish, fresh_folder, from_config, from_folder, gradients, load, norm, recipe, run, together, use)
from steps_kit import planned, recipes, refused, trained

fresh_folder()
overflow = ['--plugin-path', binary / 'tests' / 'plugins' / 'overflow']
dims = dict(vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32)
shapes = [(64, 64), (32, 64), (32, 64), (64, 64), (96, 64), (96, 64), (64, 96)]
entries = dict(batch=2, length=16, steps=4, seed=5)
lora, adamw = use('lora', rank=4, alpha=8), use('adamw', lr=1e-2)
quantizers = ('quantize-nf4', 'quantize-int8', 'quantize-llm-int8')


@functools.cache
def base_of(tied):
    """A folder with random weights, untied or tied."""
    path = recipe(f'base-{tied}.lua', from_config('llama', tie_word_embeddings=tied, **dims), 'data.random {}', use('sgd', lr=1e-3), **{**entries, 'steps': 1})
    return from_folder(trained(path, f'base-{tied}').path.resolve() / 'model')


def made(name, *uses, **more):
    """A recipe on the untied base."""
    return recipes(base_of(False), 'data.random {}', **entries)(name, *uses, **more)


@functools.cache
def numbers_of(quantizer):
    """A folder with the numbers that are kept of the weights: of a model that is evaluated, merged with nothing."""
    name = f'numbers-{quantizer}'
    trained(made(name, use(quantizer), lora, use('sgd', lr=1e-30), steps=1), f'{name}-run')
    run('export', f'{name}-run', '--merge', '--out', name)
    return from_folder(name)


@case
def dora_through_a_skip():
    """NF4, DoRA, FP16, accumulation, a step that overflows: what it is on the numbers of the 4 bits."""
    runs = {}
    for name, model, uses in (('codes', base_of(False), [use('quantize-nf4')]), ('numbers', numbers_of('quantize-nf4'), [])):
        path = recipe(f'dora-{name}.lua', model, 'data.random {}', use('overflow', steps=[2]), *uses, use('lora', rank=4, alpha=8, dora=True),
                      use('amp', compute='fp16', init=1024, growth_interval=3), use('accumulate', steps=2), adamw, **{**entries, 'steps': 6}, save=dict(every=6))
        planned(path, *overflow)
        runs[name] = trained(path, f'dora-{name}', *overflow)
    codes, numbers = runs.values()
    skipped = [[x['step'] for x in m.lines if x.get('skipped')] for m in (codes, numbers)]
    check(skipped == [[2], [2]], f'steps {skipped} are skipped')
    check([x['loss_scale'] for x in codes.lines] == [x['loss_scale'] for x in numbers.lines] and codes.lines[2]['loss_scale'] == 512, f'scales {codes.lines}')
    for step, (a, b) in enumerate(together(codes.steps, numbers.steps), 1):
        check(abs(a[0] - b[0]) < 2e-4 * b[0], f'the loss of step {step} is {a[0]}, {b[0]} on the numbers')
    a, b = (load(m.path / 'adapter/adapter_model.safetensors') for m in (codes, numbers))
    check(any('magnitude' in n for n in a) and a.keys() == b.keys(), f'{sorted(a)[:3]}')
    for n in a:
        e = error(a[n][2], b[n][2])
        check(e < 2e-2, f'{n} is off by {e}')


@cases(quantizers)
def either_order(quantizer):
    """A recipe may name an adapter before what stores the weights, or after it."""
    sides = []
    for name, uses in (('before', [lora, use(quantizer)]), ('behind', [use(quantizer), lora])):
        path = made(f'order-{name}', *uses, adamw)
        document, code = (re.sub(r'order-\w+\.lua:\d+', '', run('plan', path, *flags).stdout) for flags in (['--json'], ['--dump', 'plan']))
        a_run = trained(path, f'order-{quantizer}-{name}')
        sides.append((json.loads(document), sorted(code.splitlines()), a_run.steps, a_run.bytes('adapter/adapter_model.safetensors')))
    for what, a, b in together(('plan', 'offsets', 'steps', 'adapter'), *sides):
        check(a == b, f'the order in the recipe changes the {what}')
    check(('linear_int8' in sides[0][0]['kernels']) == (quantizer == 'quantize-llm-int8'), f'{sorted(sides[0][0]["kernels"])}')


@case
def two_of_eight_bit():
    """Of two that store weights in one way, that holds which also says how they are multiplied."""
    file = 'adapter/adapter_model.safetensors'
    alone = trained(made('alone', lora, use('quantize-llm-int8'), adamw), 'alone').bytes(file)
    for names in itertools.permutations(['quantize-int8', 'quantize-llm-int8']):
        out = f'both-{names[0]}'
        check(trained(made(out, *map(use, names), lora, adamw), out).bytes(file) == alone, f'{names}: not what LLM.int8() alone gives')


@cases(quantizers)
def all_trained(quantizer):
    refused(made('full', use(quantizer), adamw), 'full.lua:8: ', f'{quantizer}: all ', ' trained', 'use "lora"')


nf4 = use('quantize-nf4')
PAIRS = [pair for other in (use('quantize-int8'), use('quantize-llm-int8'), use('quantize-nf4', double=True)) for pair in ((nf4, other), (other, nf4))]


@cases({str(i): pair for i, pair in enumerate(PAIRS)})
def stored_in_two_ways(_, uses):
    refused(made('two', *uses, lora, adamw), "decide 'storage' of 'model.layers.0.self_attn.q_proj.weight'", 'two.lua:8', 'two.lua:9')


@case
def side_by_side():
    """Some layers in 4 bit and others in 8: trained beside, and saved as transformers can read it, with one kind of codes."""
    uses = [use('quantize-nf4', skip=['self_attn.*', 'lm_head']), use('quantize-llm-int8', skip=['mlp.*'])]
    path = made('apart', *uses, lora, adamw)
    code = run('plan', path, '--dump', 'plan').stdout
    for layer, dtype in (('mlp.up_proj', 'u8'), ('self_attn.q_proj', 'i8')):
        check(f' model.layers.0.{layer}.weight {dtype}(' in code, f'{layer} is not in {dtype}')
    trained(path, 'apart')
    run('export', made('apart-saved', *uses), '--out', 'apart-saved')
    saved = {n: x[0] for n, x in load('apart-saved/model.safetensors').items()}
    config = json.loads(pathlib.Path('apart-saved/config.json').read_text())['quantization_config']
    check(config['load_in_8bit'] and 'model.layers.1.mlp.up_proj' in config['llm_int8_skip_modules'], f'{config}')
    check(saved['model.layers.0.self_attn.q_proj.weight'] == 'I8' and saved['model.layers.0.mlp.up_proj.weight'] == 'F32' and not any('quant_state' in n for n in saved),
          f'saved as {saved}')
    read = recipes(from_folder('apart-saved'), 'data.random {}', **entries)('apart-read', use('quantize-llm-int8'), lora, adamw)
    again, first = (gradients(x, f'{x}.safetensors')['loss'][2][0] for x in (read, path))
    check(abs(again - first) < 2e-4, f'{again} of what was saved, {first} before')


@cases(quantizers)
def merged(quantizer):
    """W + scaling · B·A of the numbers that are kept, whether the recipe says so or the command; and no word of quantization."""
    for name, adapter in (('apart', lora), ('merges', use('lora', rank=4, alpha=8, merge=True))):
        trained(made(f'merge-{quantizer}-{name}', use(quantizer), adapter, adamw), f'merge-{quantizer}-{name}')
    run('export', f'merge-{quantizer}-apart', '--merge', '--out', f'merge-{quantizer}')
    by_command, by_recipe = (load(f'merge-{quantizer}{x}/model.safetensors') for x in ('', '-merges/model'))
    check(by_command == by_recipe, 'merged by the recipe and by the command are two')
    check('quantization_config' not in json.loads(pathlib.Path(f'merge-{quantizer}/config.json').read_text()), 'config.json of a merged model')
    numbers_of(quantizer)
    kept, parts = load(f'numbers-{quantizer}/model.safetensors'), load(f'merge-{quantizer}-apart/adapter/adapter_model.safetensors')
    check(kept.keys() == by_command.keys(), f'{kept.keys() ^ by_command.keys()}')
    changed = 0
    for n, (_, shape, w) in kept.items():
        a, b = (parts.get(f'base_model.model.{n.removesuffix(".weight")}.lora_{x}.weight') for x in 'AB')
        if a:
            r, k = a[1]
            w = [w[i * k + j] + 2 * sum(b[2][i * r + q] * a[2][q * k + j] for q in range(r)) for i in range(shape[0]) for j in range(k)]
            changed += 1
        e = error(by_command[n][2], w)
        check(e < 1e-6, f'{n} is merged with an error of {e}')
    check(changed == dims['num_hidden_layers'] * len(shapes), f'{changed} weights have an adapter')


@cases(quantizers)
def tied(quantizer):
    """A table that makes the logits, too, stays as it is; and an adapter on it trains beside what is in few bits."""
    on_all = use('lora', rank=4, alpha=8, targets=['all-linear', 'lm_head'])
    path = recipes(base_of(True), 'data.random {}', **entries)(f'tied-{quantizer}', use(quantizer), on_all, adamw)
    code = run('plan', path, '--dump', 'plan').stdout
    tables = re.findall(r' (\S*embed_tokens\S*|lm_head\S*) (\w+)\(\S* weights run', code)
    check([x for x in tables if 'lora' not in x[0]] == [('model.embed_tokens.weight', 'f32')], f'{tables}')
    check(re.search(r' model\.layers\.0\.mlp\.up_proj\.weight [ui]8\(', code), 'no codes')
    a_run = trained(path, f'tied-{quantizer}')
    check(a_run.steps[-1][0] < a_run.steps[0][0], f'the loss does not fall: {a_run.steps}')
    check(any('lm_head.lora_B' in n and norm(x[2]) > 0 for n, x in load(a_run.path / 'adapter/adapter_model.safetensors').items()), 'nothing of the head is learnt')
    # Merged, the head is no longer the embedding.
    folder = pathlib.Path(f'tied-{quantizer}-merged')
    said = run('export', a_run.path, '--merge', '--out', folder).stdout
    weights = load(folder / 'model.safetensors')
    check('no longer the embedding' in said and json.loads((folder / 'config.json').read_text())['tie_word_embeddings'] is False, f'merged: {said}')
    check(weights['lm_head.weight'][2] != weights['model.embed_tokens.weight'][2], 'merged: the head is the embedding')


# ---- What peft.prepare_model_for_kbit_training does ------------------------------------------------------------------------------------------------
@cases(quantizers)
def prepared(quantizer):
    """The base is frozen, norms and the head are F32."""
    path = made('prepared', use('amp', compute='bf16', **{'except': ['lm_head*']}), use(quantizer), lora, adamw)
    document = planned(path)
    beside, = document['beside_the_model']
    check(document['trainable'] == beside['numbers'] == 2 * 4 * sum(map(sum, shapes)), f'{document["trainable"]} numbers are trained')
    updates = [x for x in document['updates'] if x['by']]
    check([x['by'].split()[0] for x in updates] == ['adamw'] and every('lora_' in n for x in updates for n in x['names']), f'{updates}')
    code = run('plan', path, '--dump', 'plan').stdout
    for name in ('model.layers.0.input_layernorm.weight', 'model.layers.1.post_attention_layernorm.weight', 'model.norm.weight', 'lm_head.weight'):
        found = re.findall(rf' {re.escape(name)} (\w+)\(\S* weights run', code)
        check(found == ['f32'], f'{name} lies as {found}')


@cases({f'{quantizer} {below}': (quantizer, layers, below) for quantizer in quantizers for layers, below in (([0, 1], 0), ([1], 1))})
def as_far_down_as_something_trains(_, what):
    """An adapter on all: the gradient of what layer 0 reads is nobody's, that of what its attention makes is needed. On layer 1 only: nothing of layer 0 is."""
    quantizer, layers, below = what
    path = made('depth', use(quantizer), use('lora', rank=4, layers_to_transform=layers), adamw)
    nodes = [x for x in run('plan', path, '--dump', 'differentiate').stdout.splitlines() if re.search(r'_(grad|dx|dw)\b', x)]
    through = {int(n) for x in nodes for n in re.findall(r'layers\.(\d+)\.', x)}
    check(min(through) == below and max(through) == 1, f'backward goes through layers {sorted(through)}')
    base = [x for x in nodes if re.search(rf'layers\.{below}\.self_attn\.(q|k|v)_proj\.weight', x)]
    check(not base, f'gradients of what nobody trains: {base[:2]}')
    check(any(re.search(rf'layers\.{below}\.self_attn\.o_proj\.weight', x) for x in nodes), f'no gradient comes to layer {below}')


ADAPTERS = {'lora': lora, 'dora': use('lora', rank=4, dora=True), 'vera': use('vera', rank=64),
            'ia3': use('ia3', targets=['k_proj', 'v_proj', 'down_proj'], feedforward='down_proj')}


@cases({f'{quantizer} {name}': (quantizer, adapter) for quantizer in (None, *quantizers) for name, adapter in ADAPTERS.items()})
def gradient_bytes(_, what):
    """Gradients are the adapter's and no more, in bytes."""
    quantizer, adapter = what
    document = planned(made('bytes', *([use(quantizer)] if quantizer else []), adapter, use('accumulate', steps=2), adamw))
    memory = document['classes']['host']
    grads = memory['owners']['gradients']
    check(grads == 4 * document['trainable'], f'{grads} bytes of gradients of {document["trainable"]} numbers, at {memory["peak_at"]}')


finish(turns=2)
