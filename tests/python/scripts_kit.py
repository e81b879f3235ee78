"""What the recipes in scripts/ are run with, in the current folder: books/*.txt, prompts.jsonl, chat.jsonl, a tokenizer in bpe/, and base/model, a folder from Hugging
Face with a tokenizer and a chat template; and the commands in their headers, with these in the places of DIR, FILE, PATH and books."""
import json
import pathlib
import re

from galley_test import recipe, run, source, use

small = dict(steps=2, epochs=1, target=16, length=64, layers=1, width=32, heads=2, vocab=400, accumulate=2, least=1)


def make():
    text = ''.join(f'It was day {i}, and the galley sailed on. The cook counted {i * 7 % 40} loaves.\n' for i in range(300))
    pathlib.Path('books').mkdir()
    for i in range(6):
        (pathlib.Path('books') / f'{i}.txt').write_text(text[i * 3000:i * 3000 + 3000])
    pairs = [(f'How many loaves on day {i}?', f'The cook counted {i * 7 % 40} loaves.') for i in range(60)]
    pathlib.Path('prompts.jsonl').write_text(''.join(json.dumps(dict(prompt=p, answer=a)) + '\n' for p, a in pairs))
    pathlib.Path('chat.jsonl').write_text(''.join(
        json.dumps(dict(messages=[dict(role='user', content=p), dict(role='assistant', content=a)])) + '\n' for p, a in pairs))
    run('tokenize', '--train', 'books/*.txt', '--vocab', 320, '--out', 'bpe')
    base = recipe('base.lua', 'model { family = "llama", config = { vocab_size = 400, hidden_size = 32, intermediate_size = 48, num_hidden_layers = 2, '
                  'num_attention_heads = 2, max_position_embeddings = 512, tie_word_embeddings = true } }',
                  'data.text { files = "books", tokenizer = "bpe" }', use('sgd', lr=0.0), batch=1, length=16, steps=1)
    run('train', base, '--out', 'base')
    settings = pathlib.Path('base/model/tokenizer_config.json')
    settings.write_text(json.dumps(dict(json.loads(settings.read_text()), chat_template=(
        "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"))))


    # An encoder, and one with a decoder.
    pathlib.Path('labelled.jsonl').write_text(''.join(json.dumps(dict(text=p, text2=a, label=i % 2)) + '\n' for i, (p, a) in enumerate(pairs)))
    sizes = dict(batch=1, length=16, steps=1)
    for name, model, data in (('encoder', 'bert", task = "masked-lm", config = { hidden_size = 32, intermediate_size = 48, num_hidden_layers = 2, num_attention_heads = 2, ',
                               'data.random {}'),
                              ('decoder', 't5", config = { d_model = 32, d_kv = 16, d_ff = 48, num_layers = 2, num_heads = 2, eos_token_id = 0, ', 'data.random {}')):
        run('train', recipe(f'{name}.lua', f'model {{ family = "{model}vocab_size = 400 }} }}', data, use('sgd', lr=0.0), **sizes), '--out', name)
        for file in pathlib.Path('bpe').iterdir():
            (pathlib.Path(name) / 'model' / file.name).write_bytes(file.read_bytes())


def scripts():
    """Each script and its header."""
    for script in sorted((source / 'scripts').glob('*.lua')):
        yield script, re.match(r'(?:--.*\n)+', script.read_text()).group(0)


def commands(header):
    """The commands of a header, as they stand there."""
    return re.findall(r'^--   (galley .*?)(?: {6,}.*)?$', header, re.M)


def filled(script, line, **places):
    """A command with what make() has made; `places`: more of what stands in it, and what replaces that."""
    data = {'chat.lua': 'chat.jsonl', 'qlora.lua': 'chat.jsonl', 'classify.lua': 'labelled.jsonl'}.get(script.name, 'prompts.jsonl')
    base = {'classify.lua': 'encoder/model', 'seq2seq.lua': 'decoder/model'}.get(script.name, 'base/model')
    line = re.sub(r'  +', ' ', line).replace('FILE', data).replace('DIR', base)
    for place, stands in {'PATH': 'books', 'text=.': 'text=books', '50304': '320', **places}.items():
        line = line.replace(place, stands)
    return line


def sizes(script):
    """Words that make a script's model and data small."""
    # Where one micro-batch a step is the usual, it stays: some strategies take no other.
    return [x for name, value in small.items() if re.search(rf'arg\("{name}"(?!, 1\))', script.read_text()) for x in ('--set', f'{name}={value}')]
