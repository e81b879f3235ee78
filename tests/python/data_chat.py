#!/usr/bin/env python3
"""Conversations, from outside: what rows hold of them, which tokens count, special tokens that people write; gradients are those of the same tokens given as a batch;
documents do not see each other; scripts/chat.lua as its first lines say; templates of one's own."""
import json
import math
import pathlib
import random
import shutil

from data_kit import (IGNORED, LENGTH, VOCABULARY, begin, conversation, data_of, data_recipe, documents, documents_of, epoch, sentence, show, token_id, tokenize,
                      without_special_tokens, write_conversations, write_lines)
from galley_test import case, cases, check, every, finish, lines_of, load, require, run, save, source, together, use

begin()
r = random.Random(20)
chats = [conversation(r) for _ in range(60)]
plain = [without_special_tokens(x) for x in chats]
write_conversations('chats.jsonl', chats)
write_conversations('plain.jsonl', plain)


def rows_of_chat(file, **options):
    return epoch(data_of('chat', file, template='chatml', packing='none', overlong='split', **options))[1]


def as_chatml(messages):
    return ''.join(f'<|im_start|>{x["role"]}\n{x["content"]}<|im_end|>\n' for x in messages)


# ---- What rows hold -----------------------------------------------------------------------------------------------------------------


@case
def tokens_are_those_of_the_text():
    """Where nobody wrote a special token, the whole text tokenized at once gives the same ids."""
    expected = sorted(ids[:-1] for ids in tokenize([as_chatml(x) for x in plain], '--special') if len(ids) <= LENGTH + 1)
    got = [tokens for tokens, _ in documents_of(rows_of_chat('plain.jsonl'))]
    check(every(x in got for x in expected) and len(expected) > 20, 'the tokens of conversations are not those of their text')


@case
def what_counts():
    start, end = token_id('<|im_start|>'), token_id('<|im_end|>')
    labels = [x for _, x in documents_of(rows_of_chat('plain.jsonl'))]
    replies = sum(x['role'] == 'assistant' for messages in plain for x in messages)
    check(sum(x.count(end) for x in labels) == replies, 'the end of each reply counts, and no other')
    check(every(start not in x for x in labels), "the template's own tokens do not count")
    everything = documents_of(rows_of_chat('plain.jsonl', train_on='all'))
    check(every(IGNORED not in x for _, x in everything), 'train_on = "all" lets everything count')


@case
def special_tokens_of_people_are_text():
    """The special tokens in a conversation are those of the template, unless the recipe says otherwise; how many people wrote is said."""
    start, written = token_id('<|im_start|>'), sum(x['content'].count('<|im_start|>') for messages in chats for x in messages)
    ends = sum(x['content'].count('<|im_end|>') for messages in chats for x in messages)
    check(written > 20, f'{written} special tokens in messages')
    for special, more in (False, 0), (True, written):
        facts, rows = epoch(data_of('chat', 'chats.jsonl', template='chatml', packing='none', overlong='split', train_on='all', special=special))
        found = sum(tokens.count(start) for tokens, _ in documents_of(rows))
        check(found == sum(map(len, chats)) + more, f'special = {special}: {found} starts of {sum(map(len, chats))} messages, in whose text there are {written}')
        check(facts['special_tokens'] == (0 if special else written + ends), f'special = {special}: {facts["special_tokens"]} are said, of {written} + {ends}')


@case
def model_may_have_several_templates():
    """One for lines with tools among them, as transformers keeps them."""
    shutil.copytree('model', 'several')
    pathlib.Path('several/chat_template.jinja').write_text("{% for m in messages %}{{ m.role + ':' + m.content + '<|im_end|>' }}{% endfor %}")
    pathlib.Path('several/additional_chat_templates').mkdir()
    pathlib.Path('several/additional_chat_templates/tool_use.jinja').write_text("{{ tools[0] }}{% for m in messages %}{{ m.content + '<|im_end|>' }}{% endfor %}")
    write_lines('tools.jsonl', [dict(tools=['moru'], messages=turns('tiva', 'be')), dict(messages=turns('tiva', 'be'))])
    rows = show(data_of('chat', 'tools.jsonl', packing='none'), batch=2, model='several')[1]
    got = sorted(tokens for tokens, _ in documents_of(rows))
    check(got == sorted(x[:-1] for x in tokenize(['morutiva<|im_end|>be<|im_end|>', 'user:tiva<|im_end|>assistant:be<|im_end|>'])), f'other texts: {got}')


def turns(*contents):
    return [dict(role='assistant' if i % 2 else 'user', content=x) for i, x in enumerate(contents)]


@case
def turn_that_is_written_otherwise_later_is_a_row_of_its_own():
    """A template that drops what was thought in earlier turns, as Qwen3's does: each answer is learned once, with what was thought before it."""
    pathlib.Path('thinking.jinja').write_text(
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + (m.content if loop.last or m.role == 'user' else m.content.split('|')[-1]) + '<|im_end|>\\n' }}"
        "{% endfor %}{{ '<|im_start|>assistant\\n' if add_generation_prompt }}")
    write_conversations('thought.jsonl', [turns('moru', 'tiva|be', 'saat', 'fifty|17')])
    thinking = dict(template='thinking.jinja', packing='none')
    facts, rows = epoch(data_of('chat', 'thought.jsonl', **thinking))
    learned = [[x for x in labels if x != IGNORED] for _, labels in documents_of(rows)]
    wanted = tokenize(['tiva|be<|im_end|>', 'fifty|17<|im_end|>'], '--special')
    check(facts['documents'] == 2 and sorted(learned) == sorted(wanted), f'two rows with an answer each, {wanted}: {learned}')
    said = run('data', data_recipe(data_of('chat', 'thought.jsonl', past='refuse', **thinking)), code=2).stderr
    check("message 2, the assistant's: the chat template writes it otherwise" in said, f'past = "refuse": {said}')


@case
def what_a_template_marks_counts():
    """Of a reply the part within {% generation %} alone, with the token that begins before it and ends within; other turns do not count, nor what follows."""
    pathlib.Path('marks.jinja').write_text(
        "{% for m in messages %}{% if m.role == 'assistant' %}{{ 'noted: ' }}{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}"
        "{% else %}{{ '<|im_start|>' + m.content + '\\n' }}{% endif %}{% endfor %}")
    write_conversations('marked.jsonl', [turns('moru', 'x tiva', 'saat', 'we 17')])
    facts, rows = epoch(data_of('chat', 'marked.jsonl', template='marks.jinja', packing='none'))
    learned = [[x for x in labels if x != IGNORED] for _, labels in documents_of(rows)]
    wanted = tokenize([' x tiva<|im_end|>', ' we 17<|im_end|>'], '--special')
    check([len(x) for x in tokenize([' x', ' we'])] == [1, 1], 'the space before a reply is a token of its own')
    check(facts['documents'] == 1 and learned == [wanted[0] + wanted[1]], f'{wanted}: {learned}')


# ---- Gradients, and documents that do not see each other ------------------------------------------------------------------------------


def batch_file(path, rows):
    """The rows as data.batch takes them: labels where their tokens stand, and the number of the document."""
    tensors = {name: [] for name in ('input_ids', 'labels', 'position_ids', 'document_ids')}
    for row in rows:
        starts = [s == first for s, first in enumerate(row['first_key'])]
        tensors['input_ids'] += row['input_ids']
        tensors['labels'] += [IGNORED, *row['labels'][:-1]]
        tensors['position_ids'] += row['position_ids']
        tensors['document_ids'] += [sum(starts[:s + 1]) - 1 for s in range(LENGTH)]
    save(path, {name: ('I32', [len(rows), LENGTH], numbers) for name, numbers in tensors.items()})


SHORT = data_of('chat', 'short.jsonl', template='chatml')


def short_conversations():
    """As many as fill just four rows in which no label lies after the last position, since it has no place in a batch; and the rows. A digit ends each message."""
    for count in range(12, 6, -1):
        r = random.Random(21)
        short = [[dict(role='user', content=f'{sentence(r, 2)} {i % 10}'), dict(role='assistant', content=f'{sentence(r, 2)} {i % 7}')] for i in range(count)]
        write_conversations('short.jsonl', short)
        facts, rows = show(SHORT, batch=4)
        if facts[0]['rows'] == 4 and every(row['labels'][-1] == IGNORED for row in rows):
            check(any(len(documents(row)) > 1 for row in rows), 'rows hold several documents')
            return short, rows
    return require(False, 'no number of conversations fills four rows')


def gradients(data, out, *flags):
    run('gradients', data_recipe(data, batch=4), '--out', out, *flags)
    return load(out)


@case
def gradients_are_those_of_a_batch():
    _, rows = short_conversations()
    batch_file('batch.safetensors', rows)
    batch, chat = gradients('data.batch { path = "batch.safetensors" }', 'batch.out', '--logits'), gradients(SHORT, 'chat.out', '--logits')
    check(set(batch) == set(chat) and len(batch) > 10, f'other gradients are there: {sorted(set(batch) ^ set(chat))}')
    for name in batch:
        check(batch[name] == chat[name], f'{name} of conversations is not that of the same tokens as a batch, to the byte')


@case
def window_by_tokens_takes_a_whole_batch():
    _, rows = short_conversations()
    batch_file('split.safetensors', rows)
    whole = gradients('data.batch { path = "split.safetensors" }', 'whole.out')['loss'][2][0]
    run('gradients', data_recipe('data.batch { path = "split.safetensors" }', use('accumulate', tokens=200), batch=1), '--out', 'split.out')
    split = load('split.out')['loss'][2][0]
    check(abs(split - whole) < 1e-6, f'a window by tokens has the loss {split}, the batch {whole}')


def positions_that_differ(a, b):
    """{(row, position)} of logits."""
    of = lambda x, at: x[at * VOCABULARY:(at + 1) * VOCABULARY]
    return {divmod(at, LENGTH) for at in range(4 * LENGTH) if of(a, at) != of(b, at)}


@case
def documents_do_not_see_each_other():
    short, rows = short_conversations()
    before = gradients(SHORT, 'before.out', '--logits')['logits'][2]
    question, answer = short[5]
    short[5] = [dict(question, content=question['content'][:-1] + '9'), answer]
    write_conversations('short.jsonl', short)
    _, others = show(SHORT, batch=4)
    after = gradients(SHORT, 'after.out', '--logits')['logits'][2]
    where = [(i, s) for i, (a, b) in enumerate(together(rows, others)) for s in range(LENGTH) if a['input_ids'][s] != b['input_ids'][s]]
    require(len(where) == 1, f'one token was changed, not {len(where)}')
    row, at = where[0]
    end = next((s for s in range(at, LENGTH) if rows[row]['first_key'][s] > at), LENGTH)
    differ = positions_that_differ(before, after)
    check(differ == {(row, s) for s in range(at, end)}, f'a document changes the logits of its own tokens from {(row, at)} to {end}, and of no other: {sorted(differ)}')


# ---- scripts/chat.lua -----------------------------------------------------------------------------------------------------------------

CHATML = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
shutil.copytree('model', 'chatty')
pathlib.Path('chatty/tokenizer_config.json').write_text(json.dumps(dict(eos_token='<|im_end|>', chat_template=CHATML)))
script = source / 'scripts/chat.lua'
SETS = ('--set', 'model=chatty', '--set', 'chat=plain.jsonl', '--set', f'length={LENGTH}')


@case
def script_shows_what_counts():
    said = run('data', script, *SETS).stdout
    check('count in the loss' in said, f'galley data does not show what counts: {said}')
    check('── ' in said, f'nor the borders of documents: {said}')
    check('‹' in run('data', script, *SETS, '--rows', 3).stdout, 'nor rows')


@cases({'full': 'model', 'adapter': 'adapter'})
def script_trains(name, left):
    path = pathlib.Path(f'random-{name}.lua')
    path.write_text(script.read_text().replace('arg("model") }', 'arg("model"), init = "random" }'))
    out = pathlib.Path(f'chat-{name}')
    run('train', path, *SETS, '--set', f'adapter={str(name == "adapter").lower()}', '--set', 'steps=2', '--out', out)
    check(sorted(x for x in ('model', 'adapter') if (out / x).is_dir()) == [left], f'{name}: the run leaves {sorted(x.name for x in out.iterdir())}')
    losses = [x['validation_loss'] for x in lines_of(out) if 'validation_loss' in x]
    check(len(losses) == 1 and math.isfinite(losses[0]), f'{name}: a tenth is held out: {losses}')
    said = {seed: [run('sample', out, '--chat', '--tokens', 4, '--seed', seed, '--top-p', 0.9, input='tiva\n').stdout for _ in range(2)] for seed in (3, 4)}
    check(every(a == b for a, b in said.values()), f'{name}: the same seed says the same: {said}')
    check(said[3] != said[4], f'{name}: another seed says the same: {said}')


@cases({'full': ('model', None), 'adapter': ('adapter', use('lora', rank=2))})
def template_that_was_trained_with_is_saved(name, of):
    """Of a folder whose own template is another one; what is exported answers as the run does."""
    left, lora = of
    out, exported = f'trained-{name}', f'exported-{name}'
    run('train', data_recipe(data_of('chat', 'plain.jsonl', template='zephyr'), *filter(None, [lora]), use('adamw', lr=1e-2), steps=3, model='chatty'), '--out', out)
    own = (source / 'models/lib/chat/zephyr.jinja').read_text()
    check((pathlib.Path(out) / left / 'chat_template.jinja').read_text() == own, f'{name}: the template beside the {left} is another one')
    run('export', out, *(['--merge'] if lora else []), '--out', exported)
    check(pathlib.Path(exported, 'chat_template.jinja').read_text() == own, f'{name}: the template of what is exported is another one')
    says = [run('sample', x, '--chat', '--tokens', 12, '--temperature', 0, input='tiva\n').stdout for x in (out, exported)]
    check(says[0] == says[1], f'{name}: the run says {says[0]!r}, what is exported {says[1]!r}')


# ---- Templates of one's own -----------------------------------------------------------------------------------------------------------


@cases({'nothing': '{}', 'empty': '{ "" }'})
def template_that_makes_no_answer(_, returned):
    """It writes nothing when it is called to answer."""
    template = f"""function(messages, generate)
    if generate then return {returned} end
    local out = {{}}
    for _, m in ipairs(messages) do out[#out + 1] = {{ text = m.content, reply = m.role == "assistant" }} end
    return out
  end"""
    shutil.rmtree('own-template', ignore_errors=True)
    run('train', data_recipe(f'data.chat {{ files = "plain.jsonl", template = {template} }}', use('sgd', lr=1e-3), batch=1, steps=1), '--out', 'own-template')
    said = run('sample', 'own-template', '--chat', '--tokens', 2, input='tiva\n', code=2).stderr
    check('the chat template makes no tokens of the conversation' in said, f'a template that returns {returned}: {said}')


finish()
