#!/usr/bin/env python3
"""Files of documents as people have them: a JSON array and CSV give the rows that the same documents give as JSON lines; other forms are said by name with what to do,
also with skip_bad and in a plan; a turn that only calls tools."""
import csv
import gzip
import json
import pathlib

from galley_test import case, cases, check, finish, fresh_folder, from_config, lua, recipe, run, use
from steps_kit import refused

fresh_folder()
model = from_config('gpt2', n_layer=1, n_embd=16, n_head=2, n_positions=64, vocab_size=256, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
pairs = [dict(prompt=f'How many, {i}?', answer=f'A "quoted", \\{i}\\ line,\nand [another] {{one}} é', n=i) for i in range(12)]


def made(name, file, kind='prompts', **options):
    more = ''.join(f', {k} = {lua(v)}' for k, v in options.items())
    return recipe(f'{name}.lua', model, f'data.{kind} {{ files = "{file}", tokenizer = "bytes", validation = 0.2, packing = "none"{more} }}', use('sgd', lr=0.1),
                  batch=2, length=64, steps=2)


def rows(name, file, **options):
    facts, *lines = run('data', made(name, file, **options), '--json', '--rows', 4).stdout.splitlines()
    return json.loads(facts)['data'][0], [json.loads(x) for x in lines]


pathlib.Path('lines.jsonl').write_text(''.join(json.dumps(x) + '\n' for x in pairs))
pathlib.Path('dense.json').write_text(json.dumps(pairs, separators=(',', ':')))
pathlib.Path('pretty.json').write_bytes(b'\xef\xbb\xbf  ' + json.dumps(pairs, indent=4, ensure_ascii=False).replace('\n', '\r\n').encode())
for file, comma in (('table.csv', ','), ('semicolons.csv', ';'), ('tabs.tsv', '\t')):
    with open(file, 'w', newline='') as out:
        writer = csv.DictWriter(out, ['n', 'prompt', 'answer'], delimiter=comma)
        writer.writeheader()
        writer.writerows(pairs)
FORMS = ('dense.json', 'pretty.json', 'table.csv', 'semicolons.csv', 'tabs.tsv')


@case
def json_lines():
    facts, shown = rows('lines', 'lines.jsonl')
    check(facts['documents'] + facts['validation_documents'] == 12 and len(shown) == 2, f'{facts}, {shown}')


@cases(FORMS)
def documents(file):
    facts = rows(file.replace('.', '-'), file)[0]
    check(facts['documents'] + facts['validation_documents'] == 12 and facts['skipped_lines'] == 0, f'{facts}')


@cases(['dense.json', 'pretty.json', 'table.csv'])
def same_rows(file):
    """The order of documents is that of their files' names: beside the same name, rows are the same."""
    name = f'data{pathlib.Path(file).suffix}'
    folder = pathlib.Path(f'as-{file}')
    (folder / 'lines').mkdir(parents=True)
    (folder / name).write_bytes(pathlib.Path(file).read_bytes())
    # A file of JSON lines may be called as it likes, but for tables.
    (folder / 'lines' / name).write_text(pathlib.Path('lines.jsonl').read_text())
    shown = rows('same', folder / name)
    check(shown == rows('same', folder / 'lines' / name) and len(shown[1]) == 2, 'other rows than as JSON lines')


# ---- Entries that are none -----------------------------------------------------------------------------------------------------------------


@case
def entry_without_a_field():
    """A list of Alpaca's, with an empty last line, and entries that are none."""
    pathlib.Path('broken.json').write_text('[{"prompt": "a", "answer": "b"},\n {"prompt": "a"},\n 3, {"prompt": "c", "answer": "d"}]\n')
    refused(made('broken', 'broken.json'), "broken.json, entry 2: there is no field 'answer'", command='data')
    skipped = rows('skips', 'broken.json', skip_bad=True)[0]
    check(skipped['documents'] + skipped['validation_documents'] == 2 and skipped['skipped_lines'] == 2, f'skip_bad leaves out entries: {skipped}')


@cases({'no end': ('[{"prompt": "a", "answer": "b"}', 'the JSON array has no end'), 'more': ('[{"prompt": "a", "answer": "b"}] []', 'something follows the end')})
def cut(_, of):
    text, words = of
    pathlib.Path('cut.json').write_text(text)
    for bad in (False, True):
        refused(made('cut', 'cut.json', skip_bad=bad), words, 'cut.json', command='data')


@case
def row_of_three_fields():
    pathlib.Path('wide.csv').write_text('prompt,answer\na,b,c\n')
    refused(made('wide', 'wide.csv'), 'wide.csv, row 1: it has 3 fields, and the first line names 2', command='data')


OTHERS = {
    'data.parquet': (b'PAR1\x15\x04', 'is a Parquet file', 'read_parquet'),
    'data.zip': (b'PK\x03\x04\x14\0', 'is a zip archive', 'unpack'),
    'data.jsonl.gz': (gzip.compress(b'{}'), 'is compressed by gzip', 'gunzip'),
    'data.arrow': (b'ARROW1\0\0', 'is an Arrow file', 'to_json'),
    'data.txt': ('{"prompt": "a"}'.encode('utf-16'), 'is a text in UTF-16', 'iconv'),
    'data.bin': (b'ab\0cd', 'it has a NUL in its first bytes', 'JSON lines'),
    'whole.json': (b'{\n  "data": []\n}\n', 'has one JSON object over several lines', 'jq -c'),
}


@cases(OTHERS)
def other_forms(file, of):
    content, words, hint = of
    pathlib.Path(file).write_bytes(content)
    for bad in (False, True):
        for command in ('data', 'plan'):
            said = refused(made('other', file, skip_bad=bad), words, hint, file, command=command)
            check('skip_bad' not in said, f'{command}: {said}')


@case
def plan_looks_at_the_first_document():
    refused(made('form', 'lines.jsonl', kind='chat', template='chatml'), "lines.jsonl:1: there is no field 'messages' or 'conversations'")
    run('plan', made('form-fits', 'lines.jsonl'))


@case
def turn_that_only_calls_tools():
    turns = [dict(role='user', content='Time?'), dict(role='assistant', content=None, tool_calls=[dict(id='1')]), dict(role='assistant', content='Noon.')]
    pathlib.Path('tools.jsonl').write_text(json.dumps(dict(messages=turns)) + '\n')
    pathlib.Path('empty.jsonl').write_text(json.dumps(dict(messages=[{k: v or '' for k, v in x.items() if k != 'tool_calls'} for x in turns])) + '\n')
    wide = model.replace('["n_positions"] = 64', '["n_positions"] = 256')

    def chat(name, file, more=''):
        data = f'data.chat {{ files = "{file}", tokenizer = "bytes", template = "chatml"{more} }}'
        return recipe(f'{name}.lua', wide, data, use('sgd', lr=0.1), batch=1, length=256, steps=1)

    with_null, without = chat('tools', 'tools.jsonl', ', ignore = { "tool_calls" }'), chat('empty', 'empty.jsonl')
    a, b = (json.loads(run('data', x, '--json').stdout.splitlines()[1]) for x in (with_null, without))
    check(a == b, 'a turn of null is not written as an empty one')
    refused(chat('unsaid', 'tools.jsonl'), "message 2 has 'tool_calls', which the chat template 'chatml' does not write", command='data')


finish()
