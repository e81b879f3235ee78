#!/usr/bin/env python3
"""Files of documents as people have them: a JSON array and CSV give the rows that the same documents give as JSON lines; other forms are said by name with what to do, also
with skip_bad and in a plan; a turn that only calls tools."""
import csv
import gzip
import json
import pathlib

from galley_test import check, finish, fresh_folder, from_config, lua, recipe, run, use

fresh_folder()
model = from_config('gpt2', n_layer=1, n_embd=16, n_head=2, n_positions=64, vocab_size=256, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
pairs = [dict(prompt=f'How many, {i}?', answer=f'A "quoted", \\{i}\\ line,\nand [another] {{one}} é', n=i) for i in range(12)]


def made(name, file, kind='prompts', **options):
    more = ''.join(f', {k} = {lua(v)}' for k, v in options.items())
    return recipe(f'{name}.lua', model, f'data.{kind} {{ files = "{file}", tokenizer = "bytes", validation = 0.2, packing = "none"{more} }}', use('sgd', lr=0.1), batch=2, length=64, steps=2)


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
want = rows('lines', 'lines.jsonl')
check(want[0]['documents'] + want[0]['validation_documents'] == 12 and len(want[1]) == 2, f'lines: {want}')
for file in ('dense.json', 'pretty.json', 'table.csv', 'semicolons.csv', 'tabs.tsv'):
    facts = rows(file.replace('.', '-'), file)[0]
    check(facts['documents'] + facts['validation_documents'] == 12 and facts['skipped_lines'] == 0, f'{file}: {facts}')
# The order of documents is that of their files' names: beside the same name, rows are the same.
for file, form in (('dense.json', 'array'), ('pretty.json', 'array'), ('table.csv', 'table')):
    extension = pathlib.Path(file).suffix
    folder = pathlib.Path(f'as-{file}')
    folder.mkdir()
    same = folder / f'data{extension}'
    same.write_bytes(pathlib.Path(file).read_bytes())
    plain = folder / 'lines' / f'data{extension}'
    plain.parent.mkdir()
    # A file of JSON lines may be called as it likes, but for tables.
    plain.write_text(pathlib.Path('lines.jsonl').read_text())
    check(rows(f'{form}-a', same) == rows(f'{form}-b', plain), f'{file}: other rows than as JSON lines')

# A list of Alpaca's, with an empty last line, and entries that are none.
pathlib.Path('broken.json').write_text('[{"prompt": "a", "answer": "b"},\n {"prompt": "a"},\n 3, {"prompt": "c", "answer": "d"}]\n')
said = run('data', made('broken', 'broken.json'), code=2).stderr
check("broken.json, entry 2: there is no field 'answer'" in said, f'an entry without an answer: {said}')
skipped = rows('skips', 'broken.json', skip_bad=True)[0]
check(skipped['documents'] + skipped['validation_documents'] == 2 and skipped['skipped_lines'] == 2, f'skip_bad leaves out entries: {skipped}')
for text, words in (('[{"prompt": "a", "answer": "b"}', 'the JSON array has no end'), ('[{"prompt": "a", "answer": "b"}] []', 'something follows the end')):
    pathlib.Path('cut.json').write_text(text)
    for bad in (False, True):
        said = run('data', made('cut', 'cut.json', skip_bad=bad), code=2).stderr
        check(words in said and 'cut.json' in said, f'{text}: {said}')
pathlib.Path('wide.csv').write_text('prompt,answer\na,b,c\n')
check('wide.csv, row 1: it has 3 fields, and the first line names 2' in run('data', made('wide', 'wide.csv'), code=2).stderr, 'a row of three fields')

# ---- What is none of these ----------------------------------------------------------------------------------------------------------------

others = [('data.parquet', b'PAR1\x15\x04', 'is a Parquet file', 'read_parquet'), ('data.zip', b'PK\x03\x04\x14\0', 'is a zip archive', 'unpack'),
          ('data.jsonl.gz', gzip.compress(b'{}'), 'is compressed by gzip', 'gunzip'), ('data.arrow', b'ARROW1\0\0', 'is an Arrow file', 'to_json'),
          ('data.txt', '{"prompt": "a"}'.encode('utf-16'), 'is a text in UTF-16', 'iconv'), ('data.bin', b'ab\0cd', 'it has a NUL in its first bytes', 'JSON lines'),
          ('whole.json', b'{\n  "data": []\n}\n', 'has one JSON object over several lines', "jq -c")]
for file, content, words, hint in others:
    pathlib.Path(file).write_bytes(content)
    for bad in (False, True):
        for command in ('data', 'plan'):
            said = run(command, made('other', file, skip_bad=bad), code=2).stderr
            check(words in said and hint in said and file in said and 'skip_bad' not in said, f'{command}, {file}: {said}')

# ---- A plan looks at the first document ---------------------------------------------------------------------------------------------------

said = run('plan', made('form', 'lines.jsonl', kind='chat', template='chatml'), code=2).stderr
check("lines.jsonl:1: there is no field 'messages' or 'conversations'" in said, f'pairs for data.chat: {said}')
run('plan', made('form-fits', 'lines.jsonl'))

# ---- A turn that only calls tools ---------------------------------------------------------------------------------------------------------

turns = [dict(role='user', content='Time?'), dict(role='assistant', content=None, tool_calls=[dict(id='1')]), dict(role='assistant', content='Noon.')]
pathlib.Path('tools.jsonl').write_text(json.dumps(dict(messages=turns)) + '\n')
pathlib.Path('empty.jsonl').write_text(json.dumps(dict(messages=[{k: v or '' for k, v in x.items() if k != 'tool_calls'} for x in turns])) + '\n')
chat = dict(kind='chat', template='chatml')
with_null = recipe('tools.lua', model, 'data.chat { files = "tools.jsonl", tokenizer = "bytes", template = "chatml", ignore = { "tool_calls" } }', use('sgd', lr=0.1), batch=1, length=256, steps=1)
without = recipe('empty.lua', model, 'data.chat { files = "empty.jsonl", tokenizer = "bytes", template = "chatml" }', use('sgd', lr=0.1), batch=1, length=256, steps=1)
small = model.replace('["n_positions"] = 64', '["n_positions"] = 256')
for path in (with_null, without):
    pathlib.Path(path).write_text(pathlib.Path(path).read_text().replace(model, small))
a, b = (json.loads(run('data', x, '--json').stdout.splitlines()[1]) for x in (with_null, without))
check(a == b, 'a turn of null is not written as an empty one')
pathlib.Path(with_null).write_text(pathlib.Path(with_null).read_text().replace(', ignore = { "tool_calls" }', ''))
check("message 2 has no 'content' that is a string" in run('data', with_null, code=2).stderr, 'null without a word in the recipe')
finish()
