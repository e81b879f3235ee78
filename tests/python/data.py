#!/usr/bin/env python3
"""Data from files, from outside: what rows hold, that gradients are those of the same tokens given as a batch, that documents do not see each other,
packing, mixes, windows by tokens, the cache, and what is said of bad input. The standard library only."""
import ctypes
import gzip
import json
import math
import os
import pathlib
import random
import resource
import shutil
import signal
import struct
import subprocess
import time

from galley_test import check, every, finish, fixtures, fresh_folder, load, program, save

fresh_folder()
r = random.Random(20)
os.environ['GALLEY_CACHE'] = os.path.abspath('cache')
S = 96

# ---- A small model with a real tokenizer ---------------------------------------------------------------------------------------------

model = pathlib.Path('model')
model.mkdir()
(model / 'tokenizer.json').write_bytes(gzip.decompress((fixtures / 'tokenizers/smollm/tokenizer.json.gz').read_bytes()))
vocabulary = 1 + max(json.loads((model / 'tokenizer.json').read_text())['model']['vocab'].values())
(model / 'config.json').write_text(json.dumps(dict(
    model_type='llama', hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    vocab_size=vocabulary, max_position_embeddings=256, rms_norm_eps=1e-5, tie_word_embeddings=True, hidden_act='silu')))
(model / 'tokenizer_config.json').write_text(json.dumps(dict(eos_token='<|im_end|>')))


def galley(*words, code=0, text=None):
    p = subprocess.run([program, *map(str, words)], input=text, capture_output=True, text=True, errors='replace',
                       env=dict(os.environ, OMP_NUM_THREADS='1'))
    check(p.returncode == code, f'{" ".join(map(str, words))}: exit code {p.returncode}, not {code}: {p.stdout[-300:]}{p.stderr[-600:]}')
    return p.stderr if code else p.stdout


def recipe(data, name='recipe.lua', batch=2, steps=2, more='use "adamw" { lr = 1e-3 },'):
    pathlib.Path(name).write_text(f'''return recipe {{ model = model {{ path = "model", init = "random" }}, batch = {batch}, length = {S}, steps = {steps},
  data = {data}, {more} }}\n''')
    return name


def show(data, rows=1000, **more):
    """What `galley data` says: the facts of each data, and the rows."""
    lines = [json.loads(line) for line in galley('data', recipe(data, **more), '--json', '--rows', rows).splitlines()]
    return lines[0]['data'], lines[1:]


def epoch(data):
    """All rows of the data, once."""
    facts, _ = show(data, rows=0)
    return show(data, batch=facts[0]['rows'])


def tokenize(texts, *flags):
    out = galley('tokenize', model / 'tokenizer.json', *flags, text=''.join(json.dumps(dict(text=t)) + '\n' for t in texts))
    return [json.loads(line)['ids'] for line in out.splitlines()]


def documents(row):
    """The documents of a row: (tokens, labels), a label being the token to predict or −100."""
    out = []
    for s, first in enumerate(row['first_key']):
        if row['labels'][s] == -100 and row['input_ids'][s] == 0 and first == s and row['position_ids'][s] == 0 and (
                s + 1 == len(row['first_key']) or row['first_key'][s + 1] == s + 1):
            continue  # padding
        if first == s:
            out.append(([], []))
        out[-1][0].append(row['input_ids'][s])
        out[-1][1].append(row['labels'][s])
        restarted = row['position_ids'][s] == s - first
        if not restarted:
            check(False, 'positions restart with each document')
    return out


# ---- Conversations -----------------------------------------------------------------------------------------------------------------

words = ['tiva', 'moru', 'saat', 'be', 'fifty', 'ünï', '<|im_end|>', '<|im_start|>user', '17', '🚀', 'lo  and', '\n']


def sentence(most=8):
    return ' '.join(r.choices(words, k=r.randint(1, most)))


def conversation():
    turns = [dict(role='system', content=sentence(3))] if r.random() < .3 else []
    for _ in range(r.randint(1, 2)):
        turns += [dict(role='user', content=sentence(5)), dict(role='assistant', content=sentence(5))]
    return turns


def write_lines(path, objects):
    pathlib.Path(path).write_text(''.join(json.dumps(o) + '\n' for o in objects))


chats = [conversation() for _ in range(60)]
plain = [[dict(t, content=t['content'].replace('<|im_end|>', 'over').replace('<|im_start|>', 'begin')) for t in c] for c in chats]
write_lines('plain.jsonl', [dict(messages=c) for c in plain])
write_lines('chats.jsonl', [dict(messages=c) for c in chats])

# Where nobody wrote a special token, the whole text tokenized at once gives the same ids; the replies' tokens are found by their text.
facts, rows = epoch('data.chat { files = "plain.jsonl", template = "chatml", packing = "none", overlong = "split" }')
texts = [''.join(f'<|im_start|>{t["role"]}\n{t["content"]}<|im_end|>\n' for t in c) for c in plain]
expected = sorted(ids[:-1] for ids in tokenize(texts, '--special') if len(ids) <= S + 1)
got = sorted(tokens for row in rows for tokens, _ in documents(row) if len(tokens) < S)
check(every(e in got for e in expected) and len(expected) > 20, 'the tokens of conversations are those of their text')
eos = tokenize(['<|im_end|>'], '--special')[0][0]
start = tokenize(['<|im_start|>'], '--special')[0][0]
replies = sum(t['role'] == 'assistant' for c in plain for t in c)
check(sum(labels.count(eos) for row in rows for _, labels in documents(row)) == replies, 'the end of each reply counts, and no other')
check(every(start not in labels for row in rows for _, labels in documents(row)), 'the template\'s own tokens do not count')
_, everything = epoch('data.chat { files = "plain.jsonl", template = "chatml", packing = "none", overlong = "split", train_on = "all" }')
check(every(-100 not in labels for row in everything for _, labels in documents(row)), 'train_on = "all" lets everything count')

# What people write is text: the special tokens in a conversation are those of the template.
_, rows = epoch('data.chat { files = "chats.jsonl", template = "chatml", packing = "none", overlong = "split", train_on = "all" }')
turns = sum(len(c) for c in chats)
check(sum(t.count(start) for row in rows for t, _ in documents(row)) == turns, 'special tokens in people\'s text are text')

# ---- Gradients, and documents that do not see each other ------------------------------------------------------------------------------


def batch_file(path, rows):
    """The rows as data.batch takes them: labels where their tokens stand, and the number of the document."""
    tensors = {name: [] for name in ('input_ids', 'labels', 'position_ids', 'document_ids')}
    for row in rows:
        labels, number = [-100] * S, -1
        owner = []
        for s in range(S):
            if row['first_key'][s] == s:
                number += 1
            owner.append(number)
            if row['labels'][s] != -100 and s + 1 < S:
                labels[s + 1] = row['labels'][s]
        tensors['input_ids'] += row['input_ids']
        tensors['labels'] += labels
        tensors['position_ids'] += row['position_ids']
        tensors['document_ids'] += owner
    save(path, {k: ('I32', [len(rows), S], v) for k, v in tensors.items()})


def numbered(i):
    """A conversation with a digit that can be changed without changing the number of tokens."""
    return [dict(role='user', content=f'{sentence(2)} {i % 10}'), dict(role='assistant', content=f'{sentence(2)} {i % 7}')]


chat_data = 'data.chat { files = "short.jsonl", template = "chatml" }'
for count in range(24, 12, -1):
    short = [numbered(i) for i in range(count)]
    write_lines('short.jsonl', [dict(messages=c) for c in short])
    _, rows = show(chat_data, batch=4)
    # A label behind the last position has no place in a batch of S tokens.
    if every(row['labels'][S - 1] == -100 for row in rows):
        break
check(len(rows) == 4 and any(len(documents(row)) > 1 for row in rows), 'rows hold several documents')
batch_file('batch.safetensors', rows)
galley('gradients', recipe('data.batch { path = "batch.safetensors" }', batch=4), '--out', 'batch.out', '--logits')
galley('gradients', recipe(chat_data, batch=4), '--out', 'chat.out', '--logits')
batch, chat = load('batch.out'), load('chat.out')
check(set(batch) == set(chat) and len(batch) > 10, 'the same gradients are there')
for name in batch:
    check(batch[name] == chat[name], f'{name} of conversations is that of the same tokens as a batch, to the byte')

changed = [list(c) for c in short]
changed[5] = [dict(changed[5][0], content=changed[5][0]['content'][:-1] + '9'), changed[5][1]]
write_lines('short.jsonl', [dict(messages=c) for c in changed])
_, others = show(chat_data, batch=4)
galley('gradients', recipe(chat_data, batch=4), '--out', 'changed.out', '--logits')
logits, after = chat['logits'][2], load('changed.out')['logits'][2]
differ = {(i, s) for i, row in enumerate(rows) for s in range(S) if logits[(i * S + s) * vocabulary:(i * S + s + 1) * vocabulary]
          != after[(i * S + s) * vocabulary:(i * S + s + 1) * vocabulary]}
where = [(i, s) for i, row in enumerate(rows) for s in range(S) if row['input_ids'][s] != others[i]['input_ids'][s]]
check(len(where) == 1, f'one token was changed, not {len(where)}')
row, at = where[0]
end = next((s for s in range(at, S) if rows[row]['first_key'][s] > at), S)
check(differ and every(i == row and at <= s < end for i, s in differ), 'a document changes the logits of its own tokens behind it, and of no other')

# ---- Prompts, lines of text, tokens ---------------------------------------------------------------------------------------------------

pairs = [(sentence(), sentence()) for _ in range(20)]
write_lines('pairs.jsonl', [dict(prompt=p, answer=a) for p, a in pairs])
facts, rows = epoch('data.prompts { files = "pairs.jsonl", packing = "none", overlong = "split" }')
check(facts[0]['documents'] == 20 and sum(l.count(eos) for row in rows for _, l in documents(row)) == 20, 'each answer ends')
counted = sum(sum(x != -100 for x in l) for row in rows for _, l in documents(row))
whole = [ids for ids in tokenize([p + a for p, a in pairs])]
check(counted < sum(map(len, whole)) and counted == facts[0]['counted'], 'answers count, prompts do not')

write_lines('texts.jsonl', [dict(body=sentence(20)) for _ in range(50)])
facts, rows = show('data.jsonl { files = "texts.jsonl", text = "body", eos = false, packing = "none" }', batch=50)
check(facts[0]['tokens'] == facts[0]['counted'] + 50 and facts[0]['documents'] == 50, 'every token of a line but the first counts')

for code, width, dtype in (('H', 2, 'uint16'), ('I', 4, 'uint32')):
    ids = [r.randrange(1, vocabulary) for _ in range(500)]
    for k in range(60, 500, 83):
        ids[k] = 0
    pathlib.Path('tokens.bin').write_bytes(struct.pack(f'<{len(ids)}{code}', *ids))
    facts, rows = show(f'data.tokens {{ files = "tokens.bin", dtype = "{dtype}", separator = 0, packing = "sequential" }}', batch=40)
    check(facts[0]['tokens'] == 500 and facts[0]['documents'] == 7, f'{dtype}: documents end behind the separator')
    pieces = sorted((t, l) for row in rows for t, l in documents(row))
    check(sum(len(l) for _, l in pieces) >= 493, f'{dtype}: every position is there')

# ---- Packing, validation, mixes, windows ---------------------------------------------------------------------------------------------

padding = {}
for packing in ('best-fit', 'sequential', 'none'):
    facts, _ = show(f'data.jsonl {{ files = "texts.jsonl", text = "body", packing = "{packing}", overlong = "truncate" }}')
    padding[packing] = 1 - facts[0]['positions'] / facts[0]['rows'] / S
check(padding['best-fit'] <= padding['sequential'] < padding['none'], f'padding {padding}')
grouped = 'data.jsonl { files = "texts.jsonl", text = "body", packing = "none", group_by_length = true }'
sizes = lambda rows: [sum(len(t) for t, _ in documents(row)) for row in rows]
lengths, everything = sorted(sizes(show(grouped, batch=5)[1])), sorted(sizes(epoch(grouped)[1]))
check(len(lengths) == 5 and len(set(everything)) > 10 and lengths in [everything[i:i + 5] for i in range(len(everything))], f'rows of like length come together: {lengths} of {everything}')

facts, _ = show('data.jsonl { files = "texts.jsonl", text = "body", validation = 0.2 }')
check((facts[0]['documents'], facts[0]['validation_documents']) == (40, 10), 'a fifth of the documents is held out')
facts, _ = show('data.jsonl { files = "texts.jsonl", text = "body", validation = "tail.jsonl" }') if write_lines('tail.jsonl', [dict(body='tiva moru be')]) is None else None
check((facts[0]['documents'], facts[0]['validation_documents']) == (50, 1), 'validation has files of its own')

pathlib.Path('split.txt').write_text('one tiva\n---\ntwo moru\n---\nthree be')
facts, _ = show('data.text { files = "split.txt", separator = "\\n---\\n" }')
check(facts[0]['documents'] == 3, 'a separator cuts a file into documents')

mix = 'data.mix { data.jsonl { files = "texts.jsonl", text = "body" }, data.chat { files = "short.jsonl", template = "chatml" }, weights = { 3, 1 } }'
facts, rows = show(mix, batch=400)
chat_rows = sum(start in row['input_ids'] for row in rows)
check(len(facts) == 2 and 70 <= chat_rows <= 130, f'a quarter of 400 rows is of the second data: {chat_rows}')

galley('train', recipe('data.jsonl { files = "texts.jsonl", text = "body", packing = "none" }', batch=1, steps=12,
                       more='use "accumulate" { tokens = 300 }, use "adamw" { lr = 1e-3 },'), '--out', 'windows')
tokens = [json.loads(line)['tokens'] for line in open('windows/metrics.jsonl')]
check(len(tokens) == 12 and every(abs(t - 300) <= S / 2 for t in tokens) and len(set(tokens)) > 1, f'windows come closest to 300 tokens: {tokens}')
run = pathlib.Path('windows/run.toml').read_text()
check('kind = "jsonl"' in run and 'documents = 50' in run, 'run.toml says what the data was')
check((pathlib.Path('windows/model/tokenizer.json')).read_bytes() == (model / 'tokenizer.json').read_bytes(), 'the tokenizer goes with the model')
said = galley('sample', 'windows/model', '--chat', '--template', 'chatml', '--temperature', 0, '--tokens', 5, '--length', 64, text='tiva\nmoru\n')
check(said == galley('sample', 'windows', '--chat', '--template', 'chatml', '--temperature', 0, '--tokens', 5, text='tiva\nmoru\n'),
      'a run and its model folder say the same')

shutil.move('texts.jsonl', 'away.jsonl')
galley('sample', 'windows', '--prompt', 'tiva', '--tokens', 1)  # needs no data
shutil.move('away.jsonl', 'texts.jsonl')
text = galley('sample', 'windows', '--prompt', 'tiva', '--tokens', 30, '--seed', 5).rstrip('\n')
middle = text[len(text) // 2:len(text) // 2 + 3]
stopped = galley('sample', 'windows', '--prompt', 'tiva', '--tokens', 30, '--seed', 5, '--stop', middle).rstrip('\n')
check(stopped == text[:text.index(middle, 4)], f'sampling ends before {middle!r}: {stopped!r} of {text!r}')
galley('gradients', recipe('data.batch { path = "batch.safetensors" }', batch=1, more='use "accumulate" { tokens = 200 },'), '--out', 'split.out')
split = load('split.out')
check(abs(split['loss'][2][0] - batch['loss'][2][0]) < 1e-6, 'a window by tokens takes the whole of a batch')

# ---- The recipe for conversations, as its first lines say -----------------------------------------------------------------------------

shutil.copytree('model', 'chatty')
jinja = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
         "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
(pathlib.Path('chatty') / 'tokenizer_config.json').write_text(json.dumps(dict(eos_token='<|im_end|>', chat_template=jinja)))
script = str(pathlib.Path(os.environ['GALLEY_SOURCE'], 'scripts/chat.lua'))
sets = ['--set', 'model=chatty', '--set', 'chat=plain.jsonl', '--set', f'length={S}']
check('count in the loss' in galley('data', script, *sets), 'galley data shows what counts')
write_lines('steering.jsonl', [dict(text='tiva \x1b[2J moru')])
said = galley('data', recipe('data.jsonl { files = "steering.jsonl" }'))
check('\\x1b[2J' in said and '\x1b' not in said, 'what would steer a terminal is shown, not obeyed')
check('‹' in galley('data', script, *sets, '--rows', 3) and '── ' in galley('data', script, *sets), 'and rows, with the borders of documents')
for name, more in (('full', []), ('adapter', ['--set', 'adapter=true'])):
    (source := pathlib.Path(f'random-{name}.lua')).write_text(pathlib.Path(script).read_text().replace('arg("model") }', 'arg("model"), init = "random" }'))
    galley('train', source, *sets, *more, '--set', 'steps=2', '--out', f'chat-{name}')
    check(pathlib.Path(f'chat-{name}', 'model' if name == 'full' else 'adapter').is_dir(), f'{name}: the run leaves its model')
    losses = [json.loads(line)['validation_loss'] for line in open(f'chat-{name}/metrics.jsonl') if 'validation_loss' in line]
    check(len(losses) == 1 and math.isfinite(losses[0]), f'{name}: a tenth is held out')
    said = [galley('sample', f'chat-{name}', '--chat', '--tokens', 4, '--seed', 3, '--top-p', 0.9, text='tiva\n') for _ in range(2)]
    check(said[0] == said[1], f'{name}: the same seed says the same')

# A template of one's own that writes nothing when it is called to answer.
for returned in ('{}', '{ "" }'):
    own = pathlib.Path('own-template.lua')
    own.write_text(f"""return recipe {{ model = model {{ path = "chatty", init = "random" }}, length = {S}, steps = 1, batch = 1,
  data = data.chat {{ files = "plain.jsonl", template = function(messages, generate)
    if generate then return {returned} end
    local out = {{}}
    for _, m in ipairs(messages) do out[#out + 1] = {{ text = m.content, reply = m.role == "assistant" }} end
    return out
  end }}, use "sgd" {{ lr = 1e-3 }} }}""")
    shutil.rmtree('own-template', ignore_errors=True)
    galley('train', own, '--out', 'own-template')
    said = galley('sample', 'own-template', '--chat', '--tokens', 2, text='tiva\n', code=2)
    check('the chat template makes no tokens of the conversation' in said, f'a template that returns {returned}: {said}')

# ---- Long documents -----------------------------------------------------------------------------------------------------------------------

# More than is tokenized at once: the ids are those of the whole.
paragraphs = [' '.join(r.choices(['tiva', 'moru,', 'saat', '«ünï»', '17', '世界', '(be)'], k=12)) + r.choice(['\n', '\n\n', '\n  ', '。\n']) for _ in range(40000)]
long_text = ''.join(paragraphs)
pathlib.Path('long.txt').write_bytes(long_text.encode())
check(len(long_text.encode()) > 2.2 * 2**20, 'the text is long enough to be cut')
for kind in ('smollm', 'qwen2', 'llama2'):
    pathlib.Path(f'{kind}.json').write_bytes(gzip.decompress((fixtures / f'tokenizers/{kind}/tokenizer.json.gz').read_bytes()))
    out = galley('tokenize', f'{kind}.json', '--special', text=json.dumps(dict(text=long_text)) + '\n')
    ids = json.loads(out)['ids']
    data = f'data.text {{ files = "long.txt", tokenizer = "{kind}.json", packing = "sequential", eos = false }}'
    facts, _ = show(data, rows=0)
    check(facts[0]['tokens'] == len(ids), f'{kind}: {facts[0]["tokens"]} tokens, not {len(ids)}')
    store = [p for p in pathlib.Path('cache').iterdir() if p.suffix == '.tokens' and struct.pack('<I', ids[0]) == p.read_bytes()[256:260]
             and struct.pack(f'<{len(ids)}I', *ids) == p.read_bytes()[256:256 + 4 * len(ids)]]
    check(len(store) == 1, f'{kind}: a document that is tokenized in parts has the tokens of the whole')

# ---- The cache ---------------------------------------------------------------------------------------------------------------------------

data = 'data.jsonl { files = "texts.jsonl", text = "body" }'
shutil.rmtree('cache')
before = show(data)
def in_cache(folder='cache'):
    """What is prepared there, beside the mark of the folder."""
    return sorted(p for p in pathlib.Path(folder).iterdir() if p.name != 'CACHEDIR.TAG')


prepared = in_cache()
check(len(prepared) == 2, f'two files are prepared: {prepared}')
stamps = [p.stat().st_ino for p in prepared]
check(show(data) == before and [p.stat().st_ino for p in prepared] == stamps, 'what is prepared is used again')
for p in prepared:
    content = bytearray(p.read_bytes())
    content[-3] ^= 1
    p.write_bytes(content)
check(show(data) == before, 'what is damaged is made again')
prepared[0].write_bytes(prepared[0].read_bytes()[:100])
check(show(data) == before, 'what is cut off is made again')
shutil.rmtree('cache')
recipe(data)
both = [subprocess.Popen([program, 'data', 'recipe.lua', '--json'], stdout=subprocess.PIPE) for _ in range(4)]
check(len({p.communicate()[0] for p in both}) == 1 and every(p.returncode == 0 for p in both), 'runs that prepare the same at once do not meet')
check(len(in_cache()) == 2, 'and leave nothing aside')
pathlib.Path('texts.jsonl').write_text(pathlib.Path('texts.jsonl').read_text().replace('tiva', 'moru'))
show(data)
check(len(in_cache()) == 4, 'other content is prepared anew')

# A folder of somebody's own stays as it is.
own = pathlib.Path('own')
own.mkdir()
for name in ('corpus.tokens', 'notes.rows', 'draft.tmp-1', 'readme.txt'):
    (own / name).write_text('mine')
    os.utime(own / name, (0, 0))
os.environ['GALLEY_CACHE'] = str(own)
check(show(data) == show(data), 'a folder within it is taken')
check(sorted(p.name for p in own.iterdir()) == ['corpus.tokens', 'draft.tmp-1', 'galley', 'notes.rows', 'readme.txt'] and len(in_cache(own / 'galley')) == 2,
      'and nothing else in it is touched')

# A preparation that is killed leaves nothing for longer than until the next one.
killed = os.environ['GALLEY_CACHE'] = os.path.abspath('killed')
write_lines('many.jsonl', [dict(text=sentence(40)) for _ in range(150000)])
recipe('data.jsonl { files = "many.jsonl" }')
p = subprocess.Popen([program, 'data', 'recipe.lua'], stdout=subprocess.DEVNULL)
for _ in range(2000):
    if os.path.isdir(killed) and any('.tmp-' in q.name for q in in_cache(killed)):
        break
    time.sleep(0.01)
p.kill()
p.wait()
check(any('.tmp-' in q.name for q in in_cache(killed)), 'a killed preparation leaves a file')
show(data)
check(len(in_cache(killed)) == 2 and not any('.tmp-' in q.name for q in in_cache(killed)), 'which the next one removes')
os.remove('many.jsonl')


# A full disk: an error with a next step, and nothing is left. A limit on the size of files stands for it, which ends a write halfway as well.
def starved():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))


full = os.environ['GALLEY_CACHE'] = os.path.abspath('full')
p = subprocess.run([program, 'data', recipe(data)], capture_output=True, text=True, preexec_fn=starved, restore_signals=False)
check(p.returncode == 1 and p.stderr.startswith(f"galley: cannot write '{full}/") and 'GALLEY_CACHE=DIR' in p.stderr, f'a full disk is said: {p.stderr}')
check(in_cache(full) == [], 'and leaves nothing')


# A folder that cannot be written serves what is in it; what is not is an error with a next step. Root gives up its right to write everywhere.
def bound():
    if os.geteuid() == 0:
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            if ctypes.CDLL(None, use_errno=True).prctl(24, capability, 0, 0, 0) != 0:  # PR_CAPBSET_DROP
                raise OSError(ctypes.get_errno(), 'prctl')


shut = os.environ['GALLEY_CACHE'] = os.path.abspath('shut')
shutil.copy('texts.jsonl', 'shut.jsonl')
show('data.jsonl { files = "shut.jsonl", text = "body" }')
folders = [root for root, _, _ in os.walk(shut)]
for folder in folders:
    os.chmod(folder, 0o555)
words = dict(args=[program, 'data', 'recipe.lua'], capture_output=True, text=True, preexec_fn=bound)
said = subprocess.run(**words)
check(said.returncode == 0, f'a cache that cannot be written is read: {said.stderr}')
pathlib.Path('shut.jsonl').write_text(pathlib.Path('shut.jsonl').read_text().replace('moru', 'tiva'))
said = subprocess.run(**words)
check(said.returncode == 1 and "cannot create '" in said.stderr and 'GALLEY_CACHE=DIR' in said.stderr, f'what is not in it is said: {said.stderr}')
for folder in folders:
    os.chmod(folder, 0o755)
os.environ['GALLEY_CACHE'] = os.path.abspath('cache')

# ---- Bad input ------------------------------------------------------------------------------------------------------------------------


def refused(data, text, hint='', **more):
    """`galley data` answers 2, one line of cause that has `text` in it, and a hint."""
    said = galley('data', recipe(data, **more), code=2).split('\n')
    check(text in said[0], f'{data}: says {said[0]!r}, not {text!r}')
    check(hint in (said[1] if len(said) > 1 else ''), f'{data}: hints {said[1:]!r}, not {hint!r}')


pathlib.Path('broken.jsonl').write_bytes(b'{"text": "tiva moru"}\n\n{"text": 3}\n{"txt": "be"}\n{"text": "x\n[]\n{"text": "b\xff\xfee moru"}\n')
refused('data.jsonl { files = "broken.jsonl" }', "broken.jsonl:3: field 'text' is integer where a string belongs", 'skip_bad = true')
facts, _ = show('data.jsonl { files = "broken.jsonl", skip_bad = true }')
check((facts[0]['documents'], facts[0]['skipped_lines'], facts[0]['repaired_utf8']) == (2, 4, 2), f'bad lines are counted: {facts[0]}')
log = galley('train', recipe('data.jsonl { files = "broken.jsonl", skip_bad = true }', steps=1), '--out', 'skipped')
check('4 bad lines left out' in log and '2 places were no UTF-8' in log and 'skipped_lines = 4' in pathlib.Path('skipped/run.toml').read_text(),
      'the log and run.toml say how many')
pathlib.Path('none.jsonl').write_text('{"a": 1}\n')
refused('data.jsonl { files = "none.jsonl", skip_bad = true }', 'there is no document of two tokens or more to train on; bad lines left out: 1')
pathlib.Path('empty.jsonl').write_text('')
refused('data.jsonl { files = "empty.jsonl" }', "there is nothing in '")
refused('data.jsonl { files = "." }', "' is a directory", '/*.jsonl')
refused('data.jsonl { files = "missing.jsonl" }', 'No such file')
refused('data.jsonl { files = "miss*.jsonl" }', 'no file matches')
with open('long.jsonl', 'wb') as f:
    f.write(b'{"text": "' + b'x' * (200 << 20) + b'"}\n{"text": "tiva moru"}\n')
refused('data.jsonl { files = "long.jsonl" }', 'long.jsonl:1: a line of more than 16 MiB', 'skip_bad')
facts, _ = show('data.jsonl { files = "long.jsonl", skip_bad = true }')
check((facts[0]['documents'], facts[0]['skipped_lines']) == (1, 1), 'what comes behind a long line is read')
os.remove('long.jsonl')

write_lines('asked.jsonl', [dict(messages=[dict(role='user', content='tiva')])])
refused('data.chat { files = "asked.jsonl", template = "chatml" }', "asked.jsonl:1: the conversation has no assistant's turn", 'skip_bad')
write_lines('answered.jsonl', [dict(prompt='tiva moru ' * 60, answer='be')])
refused('data.prompts { files = "answered.jsonl" }', 'nothing would train: no token that counts in the loss lies in the first 96 positions', 'overlong = "split"')
tools = [dict(role='user', content='tiva'), dict(role='assistant', content='', tool_calls=[dict(name='f')]), dict(role='tool', content='moru')]
write_lines('tools.jsonl', [dict(messages=plain[0]), dict(messages=tools)])
refused('data.chat { files = "tools.jsonl", template = "chatml" }', "tools.jsonl:2: message 2 has 'tool_calls', which the chat template 'chatml' does not write",
        'ignore = { "tool_calls" }')
facts, _ = show('data.chat { files = "tools.jsonl", template = "chatml", skip_bad = true }')
check((facts[0]['documents'], facts[0]['skipped_lines']) == (1, 1), 'such lines can be left out')
facts, _ = show('data.chat { files = "tools.jsonl", template = "chatml", ignore = { "tool_calls" } }')
check(facts[0]['documents'] == 2, 'such keys can be ignored')
write_lines('offered.jsonl', [dict(messages=plain[0], tools=[dict(name='f')])])
refused('data.chat { files = "offered.jsonl", template = "chatml" }', "offered.jsonl:1: the line has 'tools'", 'ignore = { "tools" }')
numbers = pathlib.Path('numbers.jsonl')
numbers.write_text('{"text": "tiva moru", "numbers": [' + '0,' * (2 << 20) + '0]}\n')
refused('data.jsonl { files = "numbers.jsonl" }', 'more than 1048576 values', 'skip_bad')
refused('data.chat { files = "plain.jsonl" }', "the model's folder has no chat template", 'name one')
refused('data.chat { files = "plain.jsonl", template = "chatlm" }', "there is no chat template 'chatlm'", "did you mean 'chatml'?")
refused('data.chat { files = "plain.jsonl", template = "chatml", train_on = "user" }', "'train_on' of data.chat must be 'assistant' or 'all', not 'user'")
refused('data.mix { data.jsonl { files = "texts.jsonl", text = "body" }, weights = { 1, 2 } }', "'weights' of data.mix must be a list of 1 numbers in [0, 1000000000], not { 1, 2 }")
refused('data.mix { data.random {} }', 'data.random: it cannot be mixed')
refused('data.mix { data.jsonl { files = "texts.jsonl", text = "body", packing = "none", group_by_length = true } }',
        'data.jsonl: group_by_length: a mix puts rows of several data into a micro-batch')
refused('data.mix { data.jsonl { files = "texts.jsonl", text = "body" }, weights = { 0 } }', 'data.mix: all weights are 0')
refused('data.tokens { files = "texts.jsonl", dtype = "uint8" }', "'dtype' of data.tokens must be 'uint16' or 'uint32', not 'uint8'")
refused('data.jsonl { files = "texts.jsonl", text = "body", group_by_length = true }', 'group_by_length groups rows of one document', 'packing = "none"')
refused('data.jsonl { files = "texts.jsonl", text = "body", pakcing = "none" }', "unknown option 'pakcing' of data.jsonl; did you mean 'packing'?")
refused('data.jsonl { files = "texts.jsonl", text = "body" }', "'steps' and 'tokens' are two ways", more='use "accumulate" { steps = 2, tokens = 300 }, use "adamw" { lr = 1e-3 },')
pathlib.Path('odd.bin').write_bytes(b'abc')
refused('data.tokens { files = "odd.bin" }', 'no whole number of tokens')
pathlib.Path('tokens.bin').write_bytes(struct.pack('<4H', 1, vocabulary, 2, 3))
refused('data.tokens { files = "tokens.bin" }', f'its tokens have ids up to {vocabulary}, but the model\'s embedding has {vocabulary} rows')

tokenizer = json.loads((model / 'tokenizer.json').read_text())
added = dict(tokenizer, added_tokens=tokenizer['added_tokens'] + [dict(tokenizer['added_tokens'][0], id=vocabulary, content='<|new|>', special=False)])
pathlib.Path('added.json').write_text(json.dumps(added))
write_lines('new.jsonl', [dict(text='tiva <|new|> moru')])
refused('data.jsonl { files = "new.jsonl", tokenizer = "added.json" }', f"ids up to {vocabulary} ('<|new|>')", 'tokens were added to it')
pathlib.Path('nomodel.json').write_text(json.dumps({k: v for k, v in tokenizer.items() if k != 'model'}))
refused('data.jsonl { files = "new.jsonl", tokenizer = "nomodel.json" }', "there is no 'model'")
refused('data.jsonl { files = "new.jsonl", tokenizer = "nothing.json" }', 'there is no ')
split = dict(type='Split', pattern=dict(Regex='(?:a|aa)+$'), behavior='Isolated', invert=False)
pathlib.Path('wild.json').write_text(json.dumps(dict(tokenizer, pre_tokenizer=split)))
pathlib.Path('wild.txt').write_text('a' * 60 + '!')
refused('data.text { files = "wild.txt", tokenizer = "wild.json" }',
        f"wild.txt: {os.path.abspath('wild.json')}: pre_tokenizer: the regular expression '(?:a|aa)+$' gives up")

# Tokenizers of SentencePiece and of BERT: text stands in rows as in the document, and ends with eos or what the tokenizer puts behind a text.
write_lines('answers.jsonl', [dict(prompt='what is bgxb', answer=' an answer')])
for kind, row in (('t5', 'what is bgxb‹ an answer</s>›'), ('bert', '[CLS] what is bgxb‹ an answer [SEP]›')):
    folder = pathlib.Path(kind)
    folder.mkdir()
    (folder / 'tokenizer.json').write_bytes(gzip.decompress((fixtures / f'tokenizers/{kind}/tokenizer.json.gz').read_bytes()))
    said = galley('data', recipe(f'data.prompts {{ files = "answers.jsonl", tokenizer = "{kind}" }}'), '--rows', 1)
    check(row in said, f"'{row}' is not in: {said[-200:]}")
os.environ['GALLEY_CACHE'] = os.path.abspath('added.json') + '/cache'
check('name another folder for prepared data: GALLEY_CACHE=DIR' in galley('data', recipe(data), code=1), 'a cache that cannot be made is said')
finish()
