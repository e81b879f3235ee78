#!/usr/bin/env python3
"""T5's GGUF files that GALLEY writes, beside llama.cpp: five sources it has to continue by the 64 greedy tokens of `galley sample` of the folder, from the file in F32,
but where two logits are within 1e-3; its logits have to be transformers' own, of a head that is the embedding, too; and of texts it has to make the same ids. Exit code 1 if
one differs. With gates of GELU logits differ by up to a hundredth of their spread: llama.cpp looks its GELU up in a table of F16 numbers.

Usage: gguf_t5.py GALLEY     by hand, in an environment with torch, transformers and tokenizers; LLAMA_CPP is the folder of llama-cpp-python's sources (its binding is
                             used), LLAMA_CPP_LIB_PATH that of libllama.so. The server that gguf_written.py asks makes nothing with an encoder."""
import ctypes
import gzip
import importlib
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import types

sys.path = [x for x in sys.path if pathlib.Path(x or '.').resolve() != pathlib.Path(__file__).resolve().parent]
import tokenizers as library
import torch
import transformers
from transformers import MT5Config, MT5ForConditionalGeneration, T5Config, T5ForConditionalGeneration

galley = pathlib.Path(sys.argv[1]).resolve()
fixtures = pathlib.Path(__file__).resolve().parents[1] / 'fixtures' / 'tokenizers'
package = types.ModuleType('llama_cpp')
package.__path__ = [str(pathlib.Path(os.environ['LLAMA_CPP']) / 'llama_cpp')]
sys.modules['llama_cpp'] = package   # without the rest of it, which wants other packages
api = importlib.import_module('llama_cpp.llama_cpp')
silence = api.llama_log_callback(lambda level, text, data: None)   # which has to live as long as the library calls it
api.llama_log_set(silence, None)
api.llama_backend_init()
transformers.logging.set_verbosity_error()
base = dict(d_model=256, d_kv=32, d_ff=512, num_layers=2, num_heads=4, dropout_rate=0, decoder_start_token_id=0, n_positions=128)
MODELS = {'t5-tied': (T5ForConditionalGeneration, T5Config(**base, num_decoder_layers=2, tie_word_embeddings=True)),
          't5-gated-untied': (T5ForConditionalGeneration, T5Config(**base, feed_forward_proj='gated-gelu', tie_word_embeddings=False)),
          'mt5': (MT5ForConditionalGeneration, MT5Config(**base, num_decoder_layers=1, feed_forward_proj='gated-gelu', tie_word_embeddings=False))}


class Llama:
    """A file in llama.cpp, with one thread and without flash attention."""

    def __init__(self, path):
        self.model = api.llama_model_load_from_file(str(path).encode(), api.llama_model_default_params())
        assert self.model, f'llama.cpp does not read {path}'
        params = api.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_threads, params.n_threads_batch = 256, 256, 256, 1, 1
        params.type_k = params.type_v = 0
        params.flash_attn_type = 0
        self.context = api.llama_init_from_model(self.model, params)
        self.vocabulary = api.llama_model_get_vocab(self.model)
        self.size = api.llama_vocab_n_tokens(self.vocabulary)

    def batch(self, ids):
        self.kept = (ctypes.c_int32 * len(ids))(*ids)
        return api.llama_batch_get_one(self.kept, len(ids))

    def read(self, source):
        api.llama_memory_clear(api.llama_get_memory(self.context), True)
        assert api.llama_encode(self.context, self.batch(source)) == 0

    def logits(self, ids):
        """After these tokens, which follow those of the last call."""
        assert api.llama_decode(self.context, self.batch(ids)) == 0
        return torch.tensor(api.llama_get_logits_ith(self.context, -1)[:self.size])

    def tokenize(self, text):
        data, room = text.encode(), (ctypes.c_int32 * 4096)()
        count = api.llama_tokenize(self.vocabulary, data, len(data), room, 4096, True, True)
        return list(room[:count])


def make(folder, kind, config):
    torch.manual_seed(7)
    tokenizer = json.loads(gzip.open(fixtures / 't5' / 'tokenizer.json.gz').read())
    tokenizer['added_tokens'] = [x for x in tokenizer['added_tokens'] if not (x['lstrip'] or x['rstrip'] or x['single_word'])]
    tokenizer['model']['vocab'] = [[piece.replace('\0', '\ue000'), score] for piece, score in tokenizer['model']['vocab']]   # llama.cpp ends a token at a byte 0
    config.vocab_size, config.pad_token_id, config.eos_token_id = 928, 0, 1
    model = kind(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randn_like(p) * (.1 if p.ndim == 1 else .05 if 'shared' in name or 'lm_head' in name else .8 if 'bias' in name else .02 if name.endswith('.q.weight') else .12) + (1 if p.ndim == 1 else 0))
    model.save_pretrained(folder)
    (folder / 'tokenizer.json').write_text(json.dumps(tokenizer))
    (folder / 'tokenizer_config.json').write_text(json.dumps(dict(tokenizer_class='PreTrainedTokenizerFast', eos_token='</s>', pad_token='<pad>', unk_token='<unk>')))
    # The same model with a word for each token, so that texts are ids; no word ends a text.
    words = folder.with_name(folder.name + '-words')
    words.mkdir()
    (words / 'model.safetensors').symlink_to(folder / 'model.safetensors')
    (words / 'config.json').write_text(json.dumps(dict(json.loads((folder / 'config.json').read_text()), eos_token_id=None)))
    (words / 'tokenizer.json').write_text(json.dumps({
        'version': '1.0', 'truncation': None, 'padding': None, 'added_tokens': [], 'normalizer': None, 'pre_tokenizer': {'type': 'WhitespaceSplit'},
        'post_processor': None, 'decoder': None, 'model': {'type': 'WordLevel', 'vocab': {f'w{i}': i for i in range(config.vocab_size)}, 'unk_token': 'w0'}}))
    return model, words


failed = False
with tempfile.TemporaryDirectory() as scratch:
    for name, (kind, config) in MODELS.items():
        folder = pathlib.Path(scratch) / name
        model, words = make(folder, kind, config)
        for dtype in ('f32', 'f16', 'q8_0'):
            path = folder.with_name(f'{name}-{dtype}.gguf')
            done = subprocess.run([galley, 'export', folder, '--format', 'gguf', '--dtype', dtype, '--out', path], capture_output=True, text=True)
            if done.returncode:
                sys.exit(f'{name} {dtype}: {done.stderr}')
        of, generator = Llama(folder.with_name(f'{name}-f32.gguf')), random.Random(11)
        sources = [[generator.randrange(3, config.vocab_size) for _ in range(4 + 9 * i)] for i in range(5)]
        done = subprocess.run([galley, 'sample', words, '--lines', '--temperature', '0', '--tokens', '64', '--length', '120'], capture_output=True, text=True,
                              input=''.join(json.dumps(' '.join(f'w{i}' for i in ids)) + '\n' for ids in sources))
        if done.returncode:
            sys.exit(done.stderr)
        same, least, apart, off = 0, 64, [], 0.
        for source, line in zip(sources, done.stdout.splitlines(), strict=True):
            made = [int(x[1:]) for x in json.loads(line)['text'].split()]
            assert len(made) == 64, line
            least = min(least, len(set(made)))
            with torch.no_grad():
                ours = model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([[0, *made[:-1]]])).logits[0]
            of.read(source)
            for i, token in enumerate(made):
                theirs = of.logits([made[i - 1] if i else 0])
                off = max(off, float((theirs - ours[i]).abs().max() / ours[i].std()))
                best = int(theirs.argmax())
                same += best == token
                if best != token:
                    apart.append(abs(float(ours[i][token] - ours[i][best])))
        reader, equal, texts = library.Tokenizer.from_file(str(folder / 'tokenizer.json')), 0, 0
        for line in gzip.open(fixtures / 'texts.jsonl.gz', 'rt').read().splitlines()[::8]:
            text = json.loads(line)
            text = text if isinstance(text, str) else text['text']
            if text and '\0' not in text:
                texts += 1
                equal += of.tokenize(text) == reader.encode(text).ids
        failed |= any(x > 1e-3 for x in apart) or least < 8 or off > 1e-2
        print(f'{name:16} f32 {same} of 320 greedy tokens of `galley sample`, at least {least} different ones in a text' +
              (f', two logits at most {max(apart):.2g} apart at the others' if apart else '') +
              f'; logits are at most {off:.2g} of their spread from transformers\'; {equal} of {texts} texts have the same ids', flush=True)
sys.exit(failed)
