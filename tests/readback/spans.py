#!/usr/bin/env python3
"""Which tokens of conversations count, beside transformers: makes tiny models of four families, each with its tokenizer and its chat template, trains them by a recipe,
and compares what `galley data` shows of every row with what transformers makes of the conversation, token by token.

Usage: spans.py GALLEY TEMPLATES      in an environment with torch and transformers; exit code 1 if something differs

TEMPLATES is a folder with files of Jinja that are called as FAMILIES says: `phi3.jinja` as it is published, `phi3_training.jinja` with marks around what the
model says, both as TRL has them. Where a template has marks ({% generation %}), what counts has to be `assistant_masks` of `apply_chat_template`. For any other it is
worked out by tests/fixtures/chat/compare.py from texts that jinja2 renders with a turn and without it. The recipe's first step is one over all rows: its loss has to
be that of transformers over the tokens that count, and so many of them have to be said."""
import collections
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile

os.environ['TRANSFORMERS_VERBOSITY'] = 'error'
import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'fixtures/chat'))
from compare import IGNORED, TODAY, TOOLS, Template, call, joined, said

LENGTH, STEPS = 1024, 3
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


# ---- Conversations --------------------------------------------------------------------------------------------------------------------


def conversations(count=6):
    """{kind: lines}: texts that begin and end with white space are among them, and such as meet the template's own in one token."""
    r = random.Random(43)
    words = ['the', 'ladder', 'boils', 'water.', 'ünï', '漢字', '🎈', '1.5', '{', '}', '[x]', '\n', '\n\n', '  ', "it's", '\t', '<b>', '"so"', '|']

    def text(most=14):
        said_words = ''.join(r.choice(words) + r.choice(['', ' ']) for _ in range(r.randint(0, most)))
        return r.choice(['', '', '', ' ', '\n']) + r.choice(['Yes', 'no', '7', 'é']) + said_words + r.choice(['', '', '\n'])

    def turns(number, **more):
        return [x for _ in range(number) for x in (said('user', text()), said('assistant', text(), **{k: text(6) for k in more}))]

    def with_tools():
        identity = ''.join(r.choices('abcdefghijk12345', k=9))
        asked = said('assistant', '', tool_calls=[call('weather', identity, city=text(3), days=r.choice([1, 2, None]))])
        answer = said('tool', json.dumps(dict(sun=text(3))), name='weather', tool_call_id=identity)
        return [said('user', text()), asked, answer, said('assistant', text()), *turns(r.randint(0, 1))]

    make = {'plain': lambda: dict(messages=turns(1)), 'system': lambda: dict(messages=[said('system', text()), *turns(r.randint(1, 2))]),
            'turns': lambda: dict(messages=turns(r.randint(2, 4))), 'tools': lambda: dict(messages=with_tools(), tools=TOOLS),
            'reasoning': lambda: dict(messages=turns(r.randint(1, 3), reasoning_content=True))}
    return {kind: [one() for _ in range(count)] for kind, one in make.items()}


# ---- Models ---------------------------------------------------------------------------------------------------------------------------


def byte_level(specials, normalizer=None):
    out = Tokenizer(models.BPE())
    if normalizer:
        out.normalizer = normalizer
    out.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(WORDS), 'isolated'), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    out.decoder = decoders.ByteLevel()
    return out, trainers.BpeTrainer(vocab_size=600, special_tokens=specials, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)


def sentence_piece(specials, *normal):
    """As transformers converts SentencePiece's BPE: spaces are a character of their own, what is not in the vocabulary is bytes."""
    out = Tokenizer(models.BPE(unk_token='<unk>', fuse_unk=True, byte_fallback=True))
    out.normalizer = normalizers.Sequence([*normal, normalizers.Replace(' ', '▁')])
    out.decoder = decoders.Sequence([decoders.Replace('▁', ' '), decoders.ByteFallback(), decoders.Fuse()])
    return out, trainers.BpeTrainer(vocab_size=900, special_tokens=[*specials, *(f'<0x{i:02X}>' for i in range(256))], show_progress=False, limit_alphabet=80)


SMALL = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=LENGTH)
# The names of its templates begin so; its configuration; its tokenizer; the tokens that begin and end a text, and that pads one; its other special tokens; whether those
# take the white space that follows them.
FAMILIES = {
    'Llama 3.2': (('llama3_2', 'llama3_training'), lambda **x: transformers.LlamaConfig(**SMALL, **x, tie_word_embeddings=True), byte_level,
                  ('<|begin_of_text|>', '<|eot_id|>', '<|finetune_right_pad_id|>'),
                  ['<|end_of_text|>', '<|start_header_id|>', '<|end_header_id|>', '<|eom_id|>', '<|python_tag|>'], False),
    'Gemma 3': (('gemma3', 'gemma3_training'),
                lambda **x: transformers.Gemma3TextConfig(**SMALL, **x, head_dim=8, query_pre_attn_scalar=8, sliding_window=64,
                                                          layer_types=['sliding_attention', 'full_attention']),
                sentence_piece, ('<bos>', '<end_of_turn>', '<pad>'), ['<unk>', '<eos>', '<start_of_turn>', '<start_of_image>'], False),
    'Phi-3': (('phi3', 'phi3_training'), lambda **x: transformers.Phi3Config(**SMALL, **x), lambda specials: sentence_piece(specials, normalizers.Prepend('▁')),
              ('<s>', '<|endoftext|>', '<|pad|>'), ['<unk>', '</s>', '<|system|>', '<|user|>', '<|assistant|>', '<|end|>'], True),
    'Qwen3': (('qwen3', 'qwen3_training'), lambda **x: transformers.Qwen3Config(**SMALL, **x, head_dim=8, tie_word_embeddings=True),
              lambda specials: byte_level(specials, normalizers.NFC()), ('<|endoftext|>', '<|im_end|>', '<|endoftext|>'),
              ['<|im_start|>', '<think>', '</think>', '<tool_call>', '</tool_call>', '<tool_response>', '</tool_response>'], False),
}


def make_model(folder, family, template, texts):
    """A model of random numbers with its tokenizer; returns the latter."""
    _, config_of, kind, (bos, eos, pad), others, strips = FAMILIES[family]
    specials = list(dict.fromkeys([pad, bos, eos, *others]))
    tokenizer, trainer = kind(specials)
    tokenizer.train_from_iterator(texts, trainer)
    content = json.loads(tokenizer.to_str())
    # Bytes of SentencePiece are in the vocabulary only, and no special tokens.
    content['added_tokens'] = [dict(x, rstrip=strips and x['content'].startswith('<|')) for x in content['added_tokens'] if x['content'] in specials]
    folder.mkdir()
    (folder / 'tokenizer.json').write_text(json.dumps(content))
    (folder / 'chat_template.jinja').write_text(template.read_text())
    (folder / 'tokenizer_config.json').write_text(json.dumps(dict(tokenizer_class='PreTrainedTokenizerFast', bos_token=bos, eos_token=eos, pad_token=pad)))
    ids = {x['content']: x['id'] for x in content['added_tokens']}
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(
        config_of(vocab_size=tokenizer.get_vocab_size(), bos_token_id=ids[bos], eos_token_id=ids[eos], pad_token_id=ids[pad]), attn_implementation='eager')
    model.save_pretrained(folder)
    return transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / 'tokenizer.json'), bos_token=bos, eos_token=eos, pad_token=pad,
                                                chat_template=template.read_text())


# ---- What transformers makes of conversations -------------------------------------------------------------------------------------------


def rows_of_transformers(tokenizer, template, line):
    """[(ids, whether each counts)], or None where the template refuses the conversation or leaves out what is said."""
    rows = template.rows(line)
    if rows is None:
        return None
    if template.marks:
        made = tokenizer.apply_chat_template(line['messages'], tools=line.get('tools'), tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
        return [(made['input_ids'], [bool(x) for x in made['assistant_masks']])]
    out = []
    for text, spans in rows:
        made = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        out.append((made['input_ids'], [any(begin < to and at < end for begin, end in joined(spans)) for at, to in made['offset_mapping']]))
    return out


def as_shown(ids, counts):
    """Tokens, and as the label of each the one after it if that counts."""
    return tuple(ids[:-1]), tuple(x if counted else IGNORED for x, counted in zip(ids[1:], counts[1:]))


def loss_of(folder, rows):
    """The mean over the tokens that count, and their number."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation='eager').eval()
    total, number = 0.0, 0
    with torch.no_grad():
        for ids, counts in rows:
            logits = model(torch.tensor([ids])).logits[0, :-1].double()
            at = [i for i, x in enumerate(counts[1:]) if x]
            total -= sum(torch.log_softmax(logits, -1)[i, ids[i + 1]].item() for i in at)
            number += len(at)
    return total / number, number


# ---- What Galley makes of them ---------------------------------------------------------------------------------------------------------


def galley(folder, *words):
    done = subprocess.run([arguments[0], *map(str, words)], cwd=folder, capture_output=True, text=True, env=os.environ | dict(GALLEY_CACHE=str(folder / 'cache')))
    if done.returncode:
        sys.exit(f'galley {" ".join(map(str, words))}: exit code {done.returncode}\n{done.stderr}')
    return done.stdout


def train(folder, rows):
    """Trains by a recipe whose batch is all rows. Returns what `galley data` shows of them, and what the run says of its steps."""
    (folder / 'recipe.lua').write_text(f'''return recipe {{ steps = {STEPS}, batch = {rows}, length = {LENGTH}, seed = 5,
  model = model {{ path = "model" }},
  data = data.chat {{ files = "chat.jsonl", packing = "none", overlong = "drop", date = "{TODAY}" }},
  use "adamw" {{ lr = 1e-3 }} }}''')
    facts, *shown = map(json.loads, galley(folder, 'data', 'recipe.lua', '--json', '--rows', rows).splitlines())
    galley(folder, 'train', 'recipe.lua', '--out', 'run')
    steps = [json.loads(x) for x in (folder / 'run/metrics.jsonl').read_text().splitlines()]
    out = []
    for row in shown:
        size = next((s for s in range(1, LENGTH) if row['first_key'][s] == s), LENGTH)
        out.append((tuple(row['input_ids'][:size]), tuple(row['labels'][:size])))
    return facts, out, steps


# ---- Both beside each other -------------------------------------------------------------------------------------------------------------


def name_of(tokenizer, token):
    return '-' if token == IGNORED else repr(tokenizer.convert_ids_to_tokens(token))


def show_difference(tokenizer, wanted, made):
    near = next((x for x in made if x[0] == wanted[0]), None)
    if near is None:
        print('   no row of Galley has these tokens:', repr(tokenizer.decode(wanted[0]))[-400:])
        return
    for i, (a, b) in enumerate(zip(wanted[1], near[1])):
        if a != b:
            before = [tokenizer.convert_ids_to_tokens(x) for x in wanted[0][max(0, i - 4):i + 1]]
            print(f'   token {i + 1}, after {before}: transformers {name_of(tokenizer, a)}, Galley {name_of(tokenizer, b)}')


def compare(family, path, folder):
    kinds = conversations()
    texts = [x['content'] for lines in kinds.values() for line in lines for x in line['messages']]
    tokenizer = make_model(folder / 'model', family, path, texts + [json.dumps(TOOLS)] * 3)
    tokens = {k: getattr(tokenizer, k) for k in ('bos_token', 'eos_token', 'pad_token')}
    template = Template(path, tokens)
    rows, lines, taken = [], [], []
    for kind, of in kinds.items():
        # What a template has no name for it leaves out.
        if kind == 'tools' and 'tools' not in template.text or kind == 'reasoning' and 'reasoning' not in template.text:
            continue
        good = [(line, made) for line in of if (made := rows_of_transformers(tokenizer, template, line)) is not None]
        lines += [line for line, _ in good]
        rows += [row for _, made in good for row in made if any(row[1][1:])]
        taken += [f'{len(good)} {kind}'] if good else []
    (folder / 'chat.jsonl').write_text(''.join(json.dumps(x) + '\n' for x in lines))
    wanted = collections.Counter(as_shown(*row) for row in rows)
    facts, shown, steps = train(folder, len(rows))
    made = collections.Counter(shown)
    loss, number = loss_of(folder / 'model', rows)
    equal = sum((wanted & made).values())
    good = wanted == made and facts['data'][0]['rows'] == len(rows) and steps[0]['tokens'] == number and abs(steps[0]['loss'] - loss) < 2e-5 * loss
    good = good and len(steps) == STEPS and all(math.isfinite(x['loss']) for x in steps) and steps[-1]['loss'] < steps[0]['loss']
    print(f'| {family} | {path.stem}{", marks" if template.marks else ""} | {", ".join(taken)} | {len(rows)} | {sum(len(ids) for ids, _ in rows)} | {number} | '
          f'{equal} of {len(rows)} | {loss:.6f} | {steps[0]["loss"]:.6f} | {steps[-1]["loss"]:.4f} |', flush=True)
    for row in list((wanted - made).keys())[:2]:
        show_difference(tokenizer, row, made)
    if not good and wanted == made:
        print(f'   transformers counts {number} tokens, Galley {steps[0]["tokens"]} in {facts["data"][0]["rows"]} rows')
    return good


def main():
    templates = pathlib.Path(arguments[1])
    good = []
    transformers.utils.logging.disable_progress_bar()
    print(f'transformers {transformers.__version__}, {STEPS} steps of AdamW over all rows')
    print('| family | template | conversations | rows | tokens | that count | rows with equal ids and spans | loss by transformers | of the first step | of the last |')
    print('|---|---|---|---|---|---|---|---|---|---|')
    for family, (names, *_) in FAMILIES.items():
        for name in names:
            with tempfile.TemporaryDirectory() as folder:
                good.append(compare(family, templates / f'{name}.jinja', pathlib.Path(folder)))
    sys.exit(not all(good))


if __name__ == '__main__':
    arguments = sys.argv[1:]
    if len(arguments) != 2:
        sys.exit(__doc__)
    arguments[0] = os.path.realpath(arguments[0])
    main()
