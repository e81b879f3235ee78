#!/usr/bin/env python3
"""Bad data, from outside: each kind is an error of one line, with a next step; what `skip_bad` leaves out is counted, by `galley data` and in a run."""
import json
import os
import pathlib
import random
import struct

from data_kit import TOKENIZER, VOCABULARY, begin, conversation, data_of, data_recipe, facts_of, without_special_tokens, write_conversations, write_lines
from errors_kit import check_error
from galley_test import case, cases, check, finish, galley, run, use

begin()
r = random.Random(20)


def write_tokenizer(path, **changes):
    pathlib.Path(path).write_text(json.dumps({k: v for k, v in {**TOKENIZER, **changes}.items() if v is not None}))


# ---- Files --------------------------------------------------------------------------------------------------------------------------

talk = without_special_tokens(conversation(r))
called = [dict(role='user', content='tiva'), dict(role='assistant', content='', tool_calls=[dict(name='f')]), dict(role='tool', content='moru')]
pathlib.Path('broken.jsonl').write_bytes(b'{"text": "tiva moru"}\n\n{"text": 3}\n{"txt": "be"}\n{"text": "x\n[]\n{"text": "b\xff\xfee moru"}\n')
pathlib.Path('none.jsonl').write_text('{"a": 1}\n')
pathlib.Path('empty.jsonl').write_text('')
pathlib.Path('numbers.jsonl').write_text('{"text": "tiva moru", "numbers": [' + '0,' * (2 << 20) + '0]}\n')
pathlib.Path('odd.bin').write_bytes(b'abc')
pathlib.Path('tokens.bin').write_bytes(struct.pack('<4H', 1, VOCABULARY, 2, 3))
pathlib.Path('wild.txt').write_text('a' * 60 + '!')
write_lines('texts.jsonl', [dict(body='tiva moru saat')] * 20)
write_lines('answered.jsonl', [dict(prompt='tiva moru ' * 60, answer='be')])
write_lines('new.jsonl', [dict(text='tiva <|new|> moru')])
write_conversations('plain.jsonl', [talk])
write_conversations('asked.jsonl', [[dict(role='user', content='tiva')]])
write_conversations('tools.jsonl', [talk, called])
write_lines('offered.jsonl', [dict(messages=talk, tools=[dict(name='f')])])
new_token = dict(TOKENIZER['added_tokens'][0], id=VOCABULARY, content='<|new|>', special=False)
write_tokenizer('added.json', added_tokens=[*TOKENIZER['added_tokens'], new_token])
write_tokenizer('nomodel.json', model=None)
write_tokenizer('wild.json', pre_tokenizer=dict(type='Split', pattern=dict(Regex='(?:a|aa)+$'), behavior='Isolated', invert=False))


def texts(**options):
    return data_of('jsonl', 'texts.jsonl', text='body', **options)


def chat(file, template='chatml', **options):
    return data_of('chat', file, **(dict(template=template) if template else {}), **options)


# ---- What is refused: {case: (data, what the cause names, what the hint says, where there is one)} ------------------------------------

REFUSED = {
    'wrong_type': (data_of('jsonl', 'broken.jsonl'), "broken.jsonl:3: field 'text' is integer where a string belongs", 'skip_bad = true'),
    'nothing_is_left': (data_of('jsonl', 'none.jsonl', skip_bad=True), 'there is no document of two tokens or more to train on; bad lines left out: 1', None),
    'empty_file': (data_of('jsonl', 'empty.jsonl'), "there is nothing in '", None),
    'directory': (data_of('jsonl', '.'), "' is a directory", '/*.jsonl'),
    'missing_file': (data_of('jsonl', 'missing.jsonl'), f"cannot open '{os.path.abspath('missing.jsonl')}': No such file", None),
    'pattern_of_nothing': (data_of('jsonl', 'miss*.jsonl'), f"no file matches '{os.path.abspath('miss*.jsonl')}'", None),
    'many_values': (data_of('jsonl', 'numbers.jsonl'), 'more than 1048576 values', 'skip_bad'),
    'unknown_option': (texts(pakcing='none'), "unknown option 'pakcing' of data.jsonl; did you mean 'packing'?", None),
    'grouped_but_packed': (texts(group_by_length=True), 'group_by_length groups rows of one document', 'packing = "none"'),
    'no_reply': (chat('asked.jsonl'), "asked.jsonl:1: the conversation has no assistant's turn", 'skip_bad'),
    'nothing_would_train': (data_of('prompts', 'answered.jsonl'), 'nothing would train: no token that counts in the loss lies in the first 96 positions',
                            'overlong = "split"'),
    'tool_calls': (chat('tools.jsonl'), "tools.jsonl:2: message 2 has 'tool_calls', which the chat template 'chatml' does not write", 'ignore = { "tool_calls" }'),
    'tools': (chat('offered.jsonl'), "offered.jsonl:1: the line has 'tools'", 'ignore = { "tools" }'),
    'no_template': (chat('plain.jsonl', template=None), "the model's folder has no chat template", 'name one'),
    'unknown_template': (chat('plain.jsonl', template='chatlm'), "there is no chat template 'chatlm'", "did you mean 'chatml'?"),
    'unknown_part': (chat('plain.jsonl', train_on='user'), "'train_on' of data.chat must be 'assistant' or 'all', not 'user'", None),
    'weights_too_many': (f'data.mix {{ {texts()}, weights = {{ 1, 2 }} }}', "'weights' of data.mix must be a list of 1 numbers in [0, 1000000000], not { 1, 2 }", None),
    'weights_of_nothing': (f'data.mix {{ {texts()}, weights = {{ 0 }} }}', 'data.mix: all weights are 0', None),
    'mix_of_random': ('data.mix { data.random {} }', 'data.random: it cannot be mixed', None),
    'mix_of_groups': (f'data.mix {{ {texts(packing="none", group_by_length=True)} }}',
                      'data.jsonl: group_by_length: a mix puts rows of several data into a micro-batch', None),
    'dtype': (data_of('tokens', 'texts.jsonl', dtype='uint8'), "'dtype' of data.tokens must be 'uint16' or 'uint32', not 'uint8'", None),
    'half_a_token': (data_of('tokens', 'odd.bin'), 'no whole number of tokens', None),
    'id_too_large': (data_of('tokens', 'tokens.bin'), f"its tokens have ids up to {VOCABULARY}, but the model's embedding has {VOCABULARY} rows", None),
    'added_token': (data_of('jsonl', 'new.jsonl', tokenizer='added.json'), f"ids up to {VOCABULARY} ('<|new|>')", 'tokens were added to it'),
    'tokenizer_without_model': (data_of('jsonl', 'new.jsonl', tokenizer='nomodel.json'), "there is no 'model'", None),
    'missing_tokenizer': (data_of('jsonl', 'new.jsonl', tokenizer='nothing.json'), f'there is no {os.path.abspath("nothing.json")}', 'tokenizer is "model"'),
    'wild_expression': (data_of('text', 'wild.txt', tokenizer='wild.json'),
                        f"wild.txt: {os.path.abspath('wild.json')}: pre_tokenizer: the regular expression '(?:a|aa)+$' gives up", None),
}


@cases(REFUSED)
def refused(_, expected):
    data, cause, hint = expected
    check_error(galley('data', data_recipe(data)), 2, cause, hint=hint)


@case
def two_ways_of_accumulating():
    path = data_recipe(texts(), use('accumulate', steps=2, tokens=300), use('adamw', lr=1e-3))
    check_error(galley('data', path), 2, "'steps' and 'tokens' are two ways")


# ---- What is left out -----------------------------------------------------------------------------------------------------------------


@case
def bad_lines_are_counted():
    data = data_of('jsonl', 'broken.jsonl', skip_bad=True)
    facts = facts_of(data)
    check((facts['documents'], facts['skipped_lines'], facts['repaired_utf8']) == (2, 4, 2), f'bad lines are not counted: {facts}')
    said = run('train', data_recipe(data, steps=1), '--out', 'skipped').stdout
    recorded = pathlib.Path('skipped/run.toml').read_text()
    check('4 bad lines left out' in said and '2 places were no UTF-8' in said, f'the log does not say how many: {said}')
    check('skipped_lines = 4' in recorded, f'run.toml does not say how many: {recorded}')


@case
def line_of_200_mib():
    path = pathlib.Path('long.jsonl')
    with path.open('wb') as file:
        file.write(b'{"text": "')
        for _ in range(200):
            file.write(b'x' * (1 << 20))
        file.write(b'"}\n{"text": "tiva moru"}\n')
    check_error(galley('data', data_recipe(data_of('jsonl', 'long.jsonl'))), 2, 'long.jsonl:1: a line of more than 16 MiB', hint='skip_bad')
    facts = facts_of(data_of('jsonl', 'long.jsonl', skip_bad=True))
    check((facts['documents'], facts['skipped_lines']) == (1, 1), f'what comes after a long line is not read: {facts}')
    path.unlink()


@case
def conversations_with_tools():
    facts = facts_of(chat('tools.jsonl', skip_bad=True))
    check((facts['documents'], facts['skipped_lines']) == (1, 1), f'such lines can be left out: {facts}')
    facts = facts_of(chat('tools.jsonl', ignore=['tool_calls']))
    check((facts['documents'], facts['skipped_lines']) == (2, 0), f'such keys can be ignored: {facts}')


finish()
