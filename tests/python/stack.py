#!/usr/bin/env python3
"""Strategies on top of each other: weights in 4 and 8 bit below adapters, mixed precision, skipped steps, merging and tied embeddings; what such a recipe refuses; and
what the literature calls preparing a model for training in few bits."""
import itertools
import json
import pathlib
import re

from galley_test import binary, check, error, every, finish, fresh_folder, from_config, from_folder, gradients, load, norm, plan, recipe, run, together, train, use

fresh_folder()
overflow = ['--plugin-path', binary / 'tests' / 'plugins' / 'overflow']
dims = dict(vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32)
shapes = [(64, 64), (32, 64), (32, 64), (64, 64), (96, 64), (96, 64), (64, 96)]
entries = dict(batch=2, length=16, steps=4, seed=5)
lora, adamw = use('lora', rank=4, alpha=8), use('adamw', lr=1e-2)
quantizers = ('quantize-nf4', 'quantize-int8', 'quantize-llm-int8')
bases = {}


def base_of(tied):
    """A folder with random weights, untied or tied."""
    if tied not in bases:
        path = recipe(f'base-{tied}.lua', from_config('llama', tie_word_embeddings=tied, **dims), 'data.random {}', use('sgd', lr=1e-3), **{**entries, 'steps': 1})
        run('train', path, '--out', f'base-{tied}')
        bases[tied] = pathlib.Path(f'base-{tied}/model').resolve()
    return from_folder(bases[tied])


def numbers_of(quantizer):
    """A folder with the numbers that are kept of the weights: of a model that is evaluated, merged with nothing."""
    name = f'numbers-{quantizer}'
    if not pathlib.Path(name).exists():
        run('train', recipe(f'{name}.lua', base_of(False), 'data.random {}', use(quantizer), lora, use('sgd', lr=1e-30), **{**entries, 'steps': 1}), '--out', f'{name}-run')
        run('export', f'{name}-run', '--merge', '--out', name)
    return from_folder(name)


def dora_through_a_skip():
    """NF4, DoRA, FP16, accumulation, a step that overflows: what it is on the numbers of the 4 bits."""
    made = {}
    for name, model, uses in (('codes', base_of(False), [use('quantize-nf4')]), ('numbers', numbers_of('quantize-nf4'), [])):
        path = recipe(f'dora-{name}.lua', model, 'data.random {}', use('overflow', steps=[2]), *uses, use('lora', rank=4, alpha=8, dora=True),
                      use('amp', compute='fp16', init=1024, growth_interval=3), use('accumulate', steps=2), adamw, **{**entries, 'steps': 6}, save=dict(every=6))
        run('plan', path, '--check', *overflow)
        made[name] = train(path, f'dora-{name}', *overflow)
        made[name].check_memory(f'dora, {name}')
    codes, numbers = made.values()
    skipped = [[x['step'] for x in m.lines if x.get('skipped')] for m in made.values()]
    check(skipped == [[2], [2]], f'dora: steps {skipped} are skipped')
    check([x['loss_scale'] for x in codes.lines] == [x['loss_scale'] for x in numbers.lines] and codes.lines[2]['loss_scale'] == 512, f'dora: scales {codes.lines}')
    for step, (a, b) in enumerate(together(codes.steps, numbers.steps)):
        check(abs(a[0] - b[0]) < 2e-4 * b[0], f'dora: the loss of step {step + 1} is {a[0]}, {b[0]} on the numbers')
    a, b = (load(m.path / 'adapter/adapter_model.safetensors') for m in made.values())
    check(any('magnitude' in n for n in a) and a.keys() == b.keys(), f'dora: {sorted(a)[:3]}')
    for n in a:
        e = error(a[n][2], b[n][2])
        check(e < 2e-2, f'dora: {n} is off by {e}')


def either_order():
    """A recipe may name an adapter before what stores the weights, or behind it."""
    for quantizer in quantizers:
        made = []
        for name, uses in (('before', [lora, use(quantizer)]), ('behind', [use(quantizer), lora])):
            path = recipe(f'order-{name}.lua', base_of(False), 'data.random {}', *uses, adamw, **entries)
            planned, code = (re.sub(r'order-\w+\.lua:\d+', '', run('plan', path, *flags).stdout) for flags in (['--json'], ['--dump', 'plan']))
            ran = train(path, f'order-{quantizer}-{name}')
            made.append((json.loads(planned), sorted(code.splitlines()), ran.steps, ran.bytes('adapter/adapter_model.safetensors')))
        for what, a, b in together(('plan', 'offsets', 'steps', 'adapter'), *made):
            check(a == b, f'{quantizer}: the order in the recipe changes the {what}')
        check(('linear_int8' in made[0][0]['kernels']) == (quantizer == 'quantize-llm-int8'), f'{quantizer}: {sorted(made[0][0]["kernels"])}')
    # Of two that store weights in one way, that holds which also says how they are multiplied.
    alone = pathlib.Path('order-quantize-llm-int8-before/adapter/adapter_model.safetensors').read_bytes()
    for uses in itertools.permutations([use('quantize-int8'), use('quantize-llm-int8')]):
        path = recipe('both.lua', base_of(False), 'data.random {}', *uses, lora, adamw, **entries)
        check(train(path, f'both-{uses[0][15:19]}').bytes('adapter/adapter_model.safetensors') == alone, f'{uses}: not what LLM.int8() alone gives')


def refused():
    for quantizer in quantizers:
        said = run('plan', recipe('full.lua', base_of(False), 'data.random {}', use(quantizer), adamw, **entries), code=2).stderr
        check(every(x in said for x in ('full.lua:8: ', f'{quantizer}: all ', ' trained', 'use "lora"')), f'{quantizer}, all trained: {said}')
    # Two that store a weight in two ways.
    nf4, others = quantizers[0], [use(x) for x in quantizers[1:]] + [use(quantizers[0], double=True)]
    for other in others:
        for uses in ([use(nf4), other], [other, use(nf4)]):
            said = run('plan', recipe('two.lua', base_of(False), 'data.random {}', *uses, lora, adamw, **entries), code=2).stderr
            check("decide 'storage' of 'model.layers.0.self_attn.q_proj.weight'" in said and 'two.lua:8' in said and 'two.lua:9' in said, f'{uses}: {said}')


def side_by_side():
    """Some layers in 4 bit and others in 8: trained beside, and saved as transformers can read it, with one kind of codes."""
    uses = [use('quantize-nf4', skip=['self_attn.*', 'lm_head']), use('quantize-llm-int8', skip=['mlp.*'])]
    code = run('plan', recipe('apart.lua', base_of(False), 'data.random {}', *uses, lora, adamw, **entries), '--dump', 'plan').stdout
    for layer, dtype in (('mlp.up_proj', 'u8'), ('self_attn.q_proj', 'i8')):
        check(f' model.layers.0.{layer}.weight {dtype}(' in code, f'{layer} is not in {dtype}')
    made = train('apart.lua', 'apart')
    made.check_memory('apart')
    run('export', recipe('apart-saved.lua', base_of(False), 'data.random {}', *uses, **entries), '--out', 'apart-saved')
    saved = {n: x[0] for n, x in load('apart-saved/model.safetensors').items()}
    config = json.loads(pathlib.Path('apart-saved/config.json').read_text())['quantization_config']
    check(config['load_in_8bit'] and 'model.layers.1.mlp.up_proj' in config['llm_int8_skip_modules'], f'apart: {config}')
    check(saved['model.layers.0.self_attn.q_proj.weight'] == 'I8' and saved['model.layers.0.mlp.up_proj.weight'] == 'F32' and not any('quant_state' in n for n in saved),
          f'apart: saved as {saved}')
    again = gradients(recipe('apart-read.lua', from_folder('apart-saved'), 'data.random {}', use('quantize-llm-int8'), lora, adamw, **entries), 'read.safetensors')
    first = gradients('apart.lua', 'first.safetensors')
    check(abs(again['loss'][2][0] - first['loss'][2][0]) < 2e-4, f'apart: {again["loss"][2][0]} of what was saved, {first["loss"][2][0]} before')


def merged():
    """W + scaling · B·A of the numbers that are kept, whether the recipe says so or the command; and no word of quantization."""
    for quantizer in quantizers:
        made = []
        for name, adapter in (('apart', lora), ('merges', use('lora', rank=4, alpha=8, merge=True))):
            path = recipe(f'merge-{name}.lua', base_of(False), 'data.random {}', use(quantizer), adapter, adamw, **entries)
            train(path, f'merge-{quantizer}-{name}')
        run('export', f'merge-{quantizer}-apart', '--merge', '--out', f'merge-{quantizer}')
        made = [load(f'merge-{quantizer}{x}/model.safetensors') for x in ('', '-merges/model')]
        check(made[0] == made[1], f'{quantizer}: merged by the recipe and by the command are two')
        check('quantization_config' not in json.loads(pathlib.Path(f'merge-{quantizer}/config.json').read_text()), f'{quantizer}: config.json of a merged model')
        numbers_of(quantizer)
        kept, parts = load(f'numbers-{quantizer}/model.safetensors'), load(f'merge-{quantizer}-apart/adapter/adapter_model.safetensors')
        check(kept.keys() == made[0].keys(), f'{quantizer}: {kept.keys() ^ made[0].keys()}')
        for n, (_, shape, w) in kept.items():
            a, b = (parts.get(f'base_model.model.{n.removesuffix(".weight")}.lora_{x}.weight') for x in 'AB')
            if a:
                r, k = a[1]
                w = [w[i * k + j] + 2 * sum(b[2][i * r + q] * a[2][q * k + j] for q in range(r)) for i in range(shape[0]) for j in range(k)]
            e = error(made[0][n][2], w)
            check(e < 1e-6, f'{quantizer}: {n} is merged with an error of {e}')


def tied():
    """A table that makes the logits, too, stays as it is; and an adapter on it trains beside what is in few bits."""
    for quantizer in quantizers:
        path = recipe('tied.lua', base_of(True), 'data.random {}', use(quantizer), use('lora', rank=4, alpha=8, targets=['all-linear', 'lm_head']), adamw, **entries)
        code = run('plan', path, '--dump', 'plan').stdout
        tables = re.findall(r' (\S*embed_tokens\S*|lm_head\S*) (\w+)\(\S* weights run', code)
        check([x for x in tables if 'lora' not in x[0]] == [('model.embed_tokens.weight', 'f32')], f'{quantizer}, tied: {tables}')
        check(re.search(r' model\.layers\.0\.mlp\.up_proj\.weight [ui]8\(', code), f'{quantizer}, tied: no codes')
        made = train(path, f'tied-{quantizer}')
        made.check_memory(f'{quantizer}, tied')
        check(made.steps[-1][0] < made.steps[0][0], f'{quantizer}, tied: the loss does not fall: {made.steps}')
        check(any('lm_head.lora_B' in n and norm(x[2]) > 0 for n, x in load(made.path / 'adapter/adapter_model.safetensors').items()), f'{quantizer}: nothing of the head is learnt')
        # Merged, the head is no longer the embedding.
        merged = pathlib.Path(f'tied-{quantizer}-merged')
        said = run('export', made.path, '--merge', '--out', merged).stdout
        weights = load(merged / 'model.safetensors')
        check('no longer the embedding' in said and json.loads((merged / 'config.json').read_text())['tie_word_embeddings'] is False, f'{quantizer}, tied, merged: {said}')
        check(weights['lm_head.weight'][2] != weights['model.embed_tokens.weight'][2], f'{quantizer}, tied, merged: the head is the embedding')


def prepared():
    """What peft.prepare_model_for_kbit_training does: the base is frozen, norms and the head are F32, and gradients go as far down as something trains."""
    for quantizer in quantizers:
        uses = [use('amp', compute='bf16', **{'except': ['lm_head*']}), use(quantizer), lora, adamw]
        path = recipe('prepared.lua', base_of(False), 'data.random {}', *uses, **entries)
        planned = plan(path)
        beside, = planned['beside_the_model']
        check(planned['trainable'] == beside['numbers'] == 2 * 4 * sum(map(sum, shapes)), f'{quantizer}: {planned["trainable"]} numbers are trained')
        check([x['by'].split()[0] for x in planned['updates'] if x['by']] == ['adamw'] and every('lora_' in n for x in planned['updates'] if x['by'] for n in x['names']),
              f'{quantizer}: {planned["updates"]}')
        code = run('plan', path, '--dump', 'plan').stdout
        for name in ('model.layers.0.input_layernorm.weight', 'model.layers.1.post_attention_layernorm.weight', 'model.norm.weight', 'lm_head.weight'):
            found = re.findall(rf' {re.escape(name)} (\w+)\(\S* weights run', code)
            check(found == ['f32'], f'{quantizer}: {name} lies as {found}')
        # An adapter on all: the gradient of what layer 0 reads is nobody's, that of what its attention makes is needed. On layer 1 only: nothing of layer 0 is.
        for layers, below in (([0, 1], 0), ([1], 1)):
            path = recipe('depth.lua', base_of(False), 'data.random {}', use(quantizer), use('lora', rank=4, layers_to_transform=layers), adamw, **entries)
            nodes = [x for x in run('plan', path, '--dump', 'differentiate').stdout.splitlines() if re.search(r'_(grad|dx|dw)\b', x)]
            made = {int(n) for x in nodes for n in re.findall(r'layers\.(\d+)\.', x)}
            check(min(made) == below and max(made) == 1, f'{quantizer}: adapters on layers {layers}: backward through layers {sorted(made)}')
            base = [x for x in nodes if re.search(rf'layers\.{below}\.self_attn\.(q|k|v)_proj\.weight', x)]
            check(not base, f'{quantizer}: gradients of what nobody trains: {base[:2]}')
            check(any(re.search(rf'layers\.{below}\.self_attn\.o_proj\.weight', x) for x in nodes), f'{quantizer}: no gradient comes to layer {below}')


def gradient_bytes():
    """Gradients are the adapter's and no more, in bytes."""
    for quantizer in (None, *quantizers):
        for adapter in (lora, use('lora', rank=4, dora=True), use('vera', rank=64), use('ia3', targets=['k_proj', 'v_proj', 'down_proj'], feedforward='down_proj')):
            uses = [use(quantizer)] if quantizer else []
            planned = plan(recipe('bytes.lua', base_of(False), 'data.random {}', *uses, adapter, use('accumulate', steps=2), adamw, **entries))
            memory = planned['classes']['host']
            grads = memory['owners']['gradients']
            check(grads == 4 * planned['trainable'], f'{quantizer}, {adapter}: {grads} bytes of gradients of {planned["trainable"]} numbers, at {memory["peak_at"]}')


for test in (dora_through_a_skip, either_order, refused, side_by_side, merged, tied, prepared, gradient_bytes):
    test()
    print(test.__name__, flush=True)
finish()
