"""Models that are not decoders of next tokens alone, small, each with data of its task: what families.py and certify_all.py train. Written into the working directory."""
import gzip
import json
import pathlib

from galley_test import fixtures, from_config, lua

pathlib.Path('bert').mkdir()
tokenizer = json.loads(gzip.decompress((fixtures / 'tokenizers' / 'bert' / 'tokenizer.json.gz').read_bytes()))
pathlib.Path('bert', 'tokenizer.json').write_text(json.dumps(tokenizer))
words = 1 + max(tokenizer['model']['vocab'].values())

# Texts of two kinds, with labels; sources and targets.
lines = [dict(text=f'{"the cat sat on mat" if i % 2 else "one two three four"} {i}', label=i % 2, labels=[i % 2, 2][: i % 3], prompt=f'say {i % 7} again',
              answer=f'{i % 7} {i % 7}', words=['a', str(i), 'bc'], tags=[i % 2, -100, 1], score=i % 7 / 2 - 1, scores=[i / 8, -i]) for i in range(40)]
pathlib.Path('lines.jsonl').write_text(''.join(json.dumps(x) + '\n' for x in lines))
bytes_of = 'tokenizer = "bytes", validation = 0.2'
of_lines = 'files = { "lines.jsonl" }'
next_data = f'data.jsonl {{ {of_lines}, {bytes_of} }}'
small = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2)
llama = dict(small, vocab_size=256, intermediate_size=24, num_key_value_heads=1, max_position_embeddings=32)
bert = dict(small, vocab_size=256, intermediate_size=24, max_position_embeddings=32)
roberta = dict(bert, max_position_embeddings=34, type_vocab_size=1, pad_token_id=1)
distil = dict(vocab_size=256, dim=16, hidden_dim=24, n_layers=2, n_heads=2, max_position_embeddings=32)
t5 = dict(vocab_size=256, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2, decoder_start_token_id=0)


def of(family, config, task=None, **more):
    text = from_config(family, **config)
    for key, value in dict(more, task=task).items():
        if value is not None:
            text = text[:-2] + f', {key} = {lua(value)} }}'
    return text


labels = f'data.jsonl {{ {of_lines}, {bytes_of}'
cases = {
    'opt': (of('opt', dict(small, vocab_size=256, ffn_dim=24, max_position_embeddings=32, word_embed_proj_dim=8, do_layer_norm_before=False)), next_data),
    'gpt-neo': (of('gpt_neo', dict(vocab_size=256, hidden_size=16, num_layers=2, num_heads=2, attention_types=[[['global', 'local'], 1]], window_size=5,
                                   max_position_embeddings=32)), next_data),
    'bloom': (of('bloom', dict(vocab_size=256, hidden_size=18, n_layer=2, n_head=3)), next_data),
    'gpt-neox': (of('gpt_neox', dict(small, vocab_size=256, intermediate_size=24, max_position_embeddings=32)), next_data),
    'gemma': (of('gemma', dict(llama, head_dim=8)), next_data),
    'gemma2': (of('gemma2', dict(llama, head_dim=8, sliding_window=5)), next_data),
    'gemma3': (of('gemma3_text', dict(llama, head_dim=8, sliding_window=5, layer_types=['sliding_attention', 'full_attention'])), next_data),
    # Some texts are longer than 20 bytes: rows have documents with short factors and with long ones.
    'phi3': (of('phi3', dict(llama, original_max_position_embeddings=20, rope_scaling=dict(
        type='longrope', short_factor=[1.0, 1.1, 1.2, 1.3], long_factor=[1.5, 2.5, 4.0, 5.0]))), next_data),
    'masked': (of('bert', dict(bert, vocab_size=words), 'masked-lm'),
               f'data.jsonl {{ {of_lines}, tokenizer = {lua(pathlib.Path("bert", "tokenizer.json"))}, validation = 0.2 }}'),
    'rows': (of('bert', bert, 'sequence-classification', labels=2), labels + ' }'),
    'several': (of('distilbert', distil, 'multi-label-classification', labels=3), labels + ', label = "labels" }'),
    'tokens': (of('roberta', roberta, 'token-classification', labels=2), labels + ', text = "words", label = "tags" }'),
    'pairs': (of('bert', dict(bert, vocab_size=words), 'sequence-classification', labels=2),
              f'data.jsonl {{ {of_lines}, tokenizer = {lua(pathlib.Path("bert", "tokenizer.json"))}, validation = 0.2, pair = "answer" }}'),
    'values': (of('bert', bert, 'regression'), labels + ', label = "score" }'),
    'decoder-rows': (of('llama', llama, 'sequence-classification', labels=2), labels + ' }'),
    'decoder-values': (of('gpt2', dict(vocab_size=256, n_positions=32, n_embd=16, n_layer=2, n_head=2), 'regression', labels=2), labels + ', label = "scores" }'),
    't5': (of('t5', t5), f'data.prompts {{ {of_lines}, {bytes_of} }}'),
    't5-gated': (of('t5', dict(t5, feed_forward_proj='gated-gelu', num_decoder_layers=1)), f'data.prompts {{ {of_lines}, {bytes_of} }}'),
}
units = {'pairs': 'nats a label', 'tokens': 'nats a label', 'decoder-rows': 'nats a label', 'values': 'the mean squared error'}
generates = {'opt', 'gpt-neo', 'bloom', 'gpt-neox', 'gemma', 'gemma2', 'gemma3', 'phi3', 't5', 't5-gated'}


def entries(case, **more):
    out = dict(batch=2, length=24, steps=2, seed=9, validate=dict(every=1))
    if case.startswith('t5'):
        out['target_length'] = 10
    return {**out, **more}
