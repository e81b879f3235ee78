"""What data.py, data_chat.py, data_cache.py and data_refused.py share: a small model with a real tokenizer, drawn texts, and what `galley data` says of rows."""
import gzip
import json
import os
import pathlib

from galley_test import check, every, fixtures, fresh_folder, lua, recipe, run, together, use

LENGTH = 96
MODEL = 'model { path = "model", init = "random" }'
WORDS = ['tiva', 'moru', 'saat', 'be', 'fifty', 'ünï', '<|im_end|>', '<|im_start|>user', '17', '🚀', 'lo  and', '\n']
IGNORED = -100  # the label of a token that does not count


def tokenizer_of(kind):
    return gzip.decompress((fixtures / f'tokenizers/{kind}/tokenizer.json.gz').read_bytes())


TOKENIZER = json.loads(tokenizer_of('smollm'))
VOCABULARY = 1 + max(TOKENIZER['model']['vocab'].values())


def begin():
    """An empty folder with the model in it, and a cache of its own."""
    fresh_folder()
    os.environ['GALLEY_CACHE'] = os.path.abspath('cache')
    model = pathlib.Path('model')
    model.mkdir()
    (model / 'tokenizer.json').write_bytes(tokenizer_of('smollm'))
    (model / 'config.json').write_text(json.dumps(dict(
        model_type='llama', hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=VOCABULARY, max_position_embeddings=256, rms_norm_eps=1e-5, tie_word_embeddings=True, hidden_act='silu')))
    (model / 'tokenizer_config.json').write_text(json.dumps(dict(eos_token='<|im_end|>')))


# ---- Files --------------------------------------------------------------------------------------------------------------------------


def write_lines(path, objects):
    pathlib.Path(path).write_text(''.join(json.dumps(x) + '\n' for x in objects))


def sentence(r, most=8):
    """One to `most` words, drawn by `r`."""
    return ' '.join(r.choices(WORDS, k=r.randint(1, most)))


def conversation(r):
    messages = [dict(role='system', content=sentence(r, 3))] if r.random() < .3 else []
    for _ in range(r.randint(1, 2)):
        messages += [dict(role='user', content=sentence(r, 5)), dict(role='assistant', content=sentence(r, 5))]
    return messages


def without_special_tokens(messages):
    return [dict(x, content=x['content'].replace('<|im_end|>', 'over').replace('<|im_start|>', 'begin')) for x in messages]


def write_conversations(path, conversations):
    write_lines(path, [dict(messages=x) for x in conversations])


# ---- Recipes, and what is said of them -----------------------------------------------------------------------------------------------


def data_of(kind, files, **options):
    """A data source as a recipe has it."""
    return f'data.{kind} {lua(dict(files=files, **options))}'


def data_recipe(data, *uses, batch=2, steps=2, model='model', **entries):
    """A recipe, with AdamW unless it names its strategies."""
    return recipe('recipe.lua', MODEL.replace('"model"', f'"{model}"'), data, *(uses or (use('adamw', lr=1e-3),)), batch=batch, length=LENGTH, steps=steps, **entries)


def show(data, *uses, rows=1000, **entries):
    """What `galley data` says: the facts of each source, and rows of the first window."""
    lines = [json.loads(x) for x in run('data', data_recipe(data, *uses, **entries), '--json', '--rows', rows).stdout.splitlines()]
    if rows:
        places = [list(zip(row['position_ids'], row['first_key'], strict=True)) for row in lines[1:]]
        check(every(position == s - first for row in places for s, (position, first) in enumerate(row)), f'{data}: positions do not restart with each document')
    return lines[0]['data'], lines[1:]


def facts_of(data, **entries):
    """The facts of data that is one source."""
    facts, _ = show(data, rows=0, **entries)
    check(len(facts) == 1, f'{data}: one source, not {len(facts)}')
    return facts[0]


def epoch(data):
    """The facts of one source, and all its rows, once."""
    facts = facts_of(data)
    return facts, show(data, batch=facts['rows'])[1]


def is_padding(row, s):
    """Whether a position holds nothing: a document of one token, which counts nowhere."""
    keys = row['first_key']
    alone = keys[s] == s and (s + 1 == len(keys) or keys[s + 1] == s + 1)
    return alone and row['labels'][s] == IGNORED and row['input_ids'][s] == 0


def documents(row):
    """The documents of a row: (tokens, labels), a label being the token to predict, or IGNORED."""
    out = []
    for s, first in enumerate(row['first_key']):
        if is_padding(row, s):
            continue
        if first == s:
            out.append(([], []))
        out[-1][0].append(row['input_ids'][s])
        out[-1][1].append(row['labels'][s])
    return out


def documents_of(rows):
    return [x for row in rows for x in documents(row)]


def tokenize(texts, *flags):
    """[ids] of texts, by the model's tokenizer."""
    said = run('tokenize', 'model/tokenizer.json', *flags, input=''.join(json.dumps(dict(text=x)) + '\n' for x in texts)).stdout
    return [ids for _, ids in together(texts, [json.loads(x)['ids'] for x in said.splitlines()])]


def token_id(text):
    """The id of a special token."""
    (identity,), = tokenize([text], '--special')
    return identity
