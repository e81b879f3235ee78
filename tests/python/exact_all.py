#!/usr/bin/env python3
# label: all
"""What changes no number changes none on models of every family and task, with each optimizer: ways of recomputing, also by a budget of memory, updates in backward, other
numbers of threads. The model and the state are the same to the byte, and no byte more or less is allocated than was planned. With each commit, slices.py runs another
part."""
import re

from galley_test import check, finish, fresh_folder, in_slice, recipe, sliced, source, train, use

fresh_folder()
import families_kit  # noqa: E402
from families_kit import llama, of, t5  # noqa: E402

targets = families_kit.cases['t5'][1]
stretched = dict(rope_type='llama3', factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
models = {
    **families_kit.cases,
    'llama': (of('llama', dict(llama, rope_scaling=stretched)), families_kit.next_data),
    'gpt2': (of('gpt2', dict(vocab_size=256, n_positions=32, n_embd=16, n_layer=2, n_head=2)), families_kit.next_data),
    'mistral': (of('mistral', dict(llama, sliding_window=5)), families_kit.next_data),
    'qwen2': (of('qwen2', dict(llama, use_sliding_window=True, sliding_window=5, max_window_layers=1)), families_kit.next_data),
    'qwen3': (of('qwen3', dict(llama, head_dim=8, tie_word_embeddings=True)), families_kit.next_data),
    'mt5': (of('mt5', dict(t5, feed_forward_proj='gated-gelu')), targets),
}
# A type of model that a family reads and nobody trains here would be left out without a word.
lists = [x for file in (source / 'models/families').glob('*.lua') for x in re.findall(r'model_types = \{([^}]+)\}', file.read_text())]
types = {x for found in lists for x in re.findall(r'"(\w+)"', found)}
trained_types = {re.search(r'family = "(\w+)"', model)[1] for model, _ in models.values()}
check(len(types) >= 18 and trained_types == types, f'of the types of models these are not trained, or not read: {sorted(types ^ trained_types)}')

optimizers = {
    'adamw': use('adamw', lr=1e-2), 'sgd': use('sgd', lr=1e-2, momentum=0.9), 'lion': use('lion', lr=1e-3), 'adamw8bit': use('adamw8bit', lr=1e-2),
    'adafactor': use('adafactor', lr=1e-2), 'muon': use('muon', lr=1e-2, rest_lr=1e-3),
}
ways = {
    'each block': [use('recompute', every=1)], 'every second block': [use('recompute', every=2)], 'sqrt': [use('recompute', policy='sqrt')],
    'from the first block': [use('recompute', policy='input')], 'cheap': [use('recompute', policy='cheap')], 'in backward': [use('update-in-backward')],
    'both': [use('recompute', every=1), use('update-in-backward')],
}


def made(name, case, uses, threads=1, **more):
    model, data = models[case]
    name = name.replace(' ', '-')
    entries = families_kit.entries('t5' if case == 'mt5' else case, save=dict(every=2), **more)
    r = train(recipe(f'{name}.lua', model, data, *uses, **entries), name, threads=threads)
    r.check_memory(name)
    planned[name] = sum(x['planned'] for x in r.memory['classes'].values())
    tensors = {str(x.relative_to(r.path)): x.read_bytes() for x in r.path.rglob('*.safetensors')}
    check(len(tensors) == 2, f'{name}: {sorted(tensors)}')
    return tensors, r.steps


planned, trained, less = {}, 0, 0
for case in models:
    for optimizer, uses in optimizers.items():
        if not in_slice():
            continue
        label = f'{case}-{optimizer}'
        plain = made(label, case, [uses])
        check(len(plain[1]) == 2, f'{label}: {plain[1]}')
        if optimizer == 'adamw':
            check(made(f'{label}-seed', case, [uses], seed=10)[0] != plain[0], f'{label}: another seed gives the same bytes')
        for way, more in ways.items():
            check(made(f'{label}-{way}', case, [uses, *more]) == plain, f'{label}: {way}: other bytes')
            trained += 1
        # A budget between what it takes with all and with nothing recomputed.
        most, least = planned[label], planned[f'{label}-each-block']
        budget = (most + min(most, least)) // 2
        check(made(f'{label}-budget', case, [uses, use('recompute', budget=f'{budget}B')]) == plain, f'{label}: recomputed by a budget: other bytes')
        check(planned[f'{label}-budget'] <= budget, f'{label}: {planned[f"{label}-budget"]} bytes are planned, of {budget}')
        trained, less = trained + 1, less + (budget < most)
        for threads in (2, 3, 7):
            check(made(f'{label}-{threads}', case, [uses], threads) == plain, f'{label}: {threads} threads: other bytes')
            trained += 1
check(trained == 24 * 6 * 11 if not sliced else trained > 0, f'{trained} trainings')
check(sliced or less > 100, f'a budget is below what is planned without one {less} times')
finish()
