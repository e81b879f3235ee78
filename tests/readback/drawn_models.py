"""Models and batches drawn at random, and what transformers computes of them in float64 and in float32: for drawn.py."""
import contextlib
import copy
import json

import torch
import transformers
from safetensors.torch import save_file
from torch.overrides import TorchFunctionMode

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
NO_LABEL = -100


class InDouble(TorchFunctionMode):
    """What asks for float32 gets float64: transformers' own casts, in norms, softmax and RoPE, are lifted."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        def lifted(x):
            return torch.float64 if x is torch.float32 else x
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        return func(*map(lifted, args), **{k: lifted(v) for k, v in (kwargs or {}).items()})


@contextlib.contextmanager
def in_dtype(dtype):
    was = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with InDouble() if dtype == torch.float64 else contextlib.nullcontext():
            yield
    finally:
        torch.set_default_dtype(was)


def twin(model, dtype=torch.float64):
    """The same model with the same numbers, all of it made in `dtype`."""
    with in_dtype(dtype):
        config = copy.deepcopy(model.config)
        config.dtype = dtype  # which a model in a model is made in
        out = type(model)(config).to(dtype)
        # A head that a file has beside a tied configuration is one of its own.
        if model.get_output_embeddings() is not None and out.get_output_embeddings() is not None:
            if model.get_output_embeddings().weight is not model.get_input_embeddings().weight:
                out.get_output_embeddings().weight = torch.nn.Parameter(out.get_output_embeddings().weight.detach().clone())
        out.load_state_dict(model.state_dict())
    return out.eval()


# ---- Configurations ------------------------------------------------------------------------------------------------------------------

gates = 'silu', 'gelu', 'gelu_pytorch_tanh', 'relu'
activations = (*gates, 'gelu_new', 'quick_gelu', 'tanh')


def ropes(r):
    theta = r.choice((100.0, 1e4, 5e5))
    kind = r.choice(('default', 'default', 'linear', 'llama3', 'yarn'))
    out = dict(rope_type=kind, rope_theta=theta)
    if kind != 'default':
        out['factor'] = r.choice((2.0, 4.0))
    if kind == 'llama3':
        out.update(low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
    if kind == 'yarn':
        out.update(original_max_position_embeddings=16)
    return out


def rope_family(r, d, groups=True):
    kv = r.choice((1, 2)) if groups else 1
    heads = kv * r.choice((1, 2, 3))
    return dict(hidden_size=heads * 2 * r.randint(2, 6), intermediate_size=r.randint(9, 60), num_hidden_layers=r.randint(1, 3), num_attention_heads=heads, num_key_value_heads=kv,
                head_dim=d, hidden_act=r.choice(gates), rms_norm_eps=r.choice((1e-6, 1e-5)), max_position_embeddings=64, rope_parameters=ropes(r),
                tie_word_embeddings=r.random() < .5)


def config_of(r, kind, vocabulary):
    d, heads, layers = 2 * r.randint(2, 8), r.randint(1, 4), r.randint(1, 3)
    base = dict(vocab_size=vocabulary, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    act, eps, tied, inner = r.choice(activations), r.choice((1e-12, 1e-6, 1e-5)), r.random() < .5, r.randint(9, 60)
    t = transformers
    if kind == 'gpt2':
        return t.GPT2Config(**base, n_positions=64, n_embd=heads * d, n_layer=layers, n_head=heads, n_inner=r.choice((None, inner)), activation_function=act, layer_norm_epsilon=eps,
                            resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, tie_word_embeddings=tied, scale_attn_by_inverse_layer_idx=r.random() < .2)
    if kind == 'gpt_neo':
        return t.GPTNeoConfig(**base, max_position_embeddings=64, hidden_size=heads * d, num_layers=layers, num_heads=heads, intermediate_size=inner, activation_function=act,
                              layer_norm_epsilon=eps, window_size=r.choice((3, 8, 64)), attention_types=[[[r.choice(('global', 'local'))], layers]],
                              resid_dropout=0, embed_dropout=0, attention_dropout=0, tie_word_embeddings=tied)
    if kind == 'gpt_neox':
        return t.GPTNeoXConfig(**base, max_position_embeddings=64, hidden_size=heads * 8, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=inner, hidden_act=act,
                               layer_norm_eps=eps, use_parallel_residual=r.random() < .7, attention_bias=r.random() < .7, tie_word_embeddings=tied,
                               rope_parameters=dict(rope_type='default', rope_theta=1e4, partial_rotary_factor=r.choice((.25, .5, 1.0))))
    if kind == 'llama':
        return t.LlamaConfig(**base, **rope_family(r, d), attention_bias=r.random() < .3, mlp_bias=r.random() < .3)
    if kind == 'mistral':
        return t.MistralConfig(**base, **rope_family(r, d), sliding_window=r.choice((None, 3, 7)))
    if kind == 'qwen2':
        return t.Qwen2Config(**base, **{k: v for k, v in rope_family(r, d).items() if k != 'head_dim'} | dict(hidden_size=heads * 8, num_attention_heads=heads,
                             num_key_value_heads=r.choice([n for n in range(1, heads + 1) if heads % n == 0])))
    if kind == 'qwen3':
        return t.Qwen3Config(**base, **rope_family(r, d), attention_bias=r.random() < .3)
    if kind == 'gemma':
        return t.GemmaConfig(**base, **rope_family(r, d) | dict(rope_parameters=dict(rope_type='default', rope_theta=1e4)))
    if kind in ('gemma2', 'gemma3_text'):
        more = dict(sliding_window=r.choice((3, 8)), query_pre_attn_scalar=r.choice((4, 16, 256)), hidden_activation=r.choice(gates), final_logit_softcapping=r.choice((None, 10.0)),
                    layer_types=None)
        shared = {k: v for k, v in rope_family(r, d).items() if k not in ('hidden_act', 'rope_parameters')}
        more['layer_types'] = [r.choice(('sliding_attention', 'full_attention')) for _ in range(shared['num_hidden_layers'])]
        if kind == 'gemma2':
            return t.Gemma2Config(**base, **shared, **more, attn_logit_softcapping=r.choice((None, 5.0)), rope_parameters=dict(rope_type='default', rope_theta=1e4))
        return t.Gemma3TextConfig(**base, **shared, **more)
    if kind == 'phi3':
        size = heads * d
        return t.Phi3Config(**base, hidden_size=size, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=heads, hidden_act=r.choice(gates),
                            rms_norm_eps=eps, max_position_embeddings=64, original_max_position_embeddings=64, tie_word_embeddings=tied, sliding_window=r.choice((None, 4)),
                            rope_parameters=dict(rope_type='default', rope_theta=1e4, partial_rotary_factor=1.0))
    if kind == 'opt':
        size = heads * d
        return t.OPTConfig(**base, max_position_embeddings=64, hidden_size=size, ffn_dim=inner, num_hidden_layers=layers, num_attention_heads=heads, activation_function=act,
                           word_embed_proj_dim=r.choice((size, size, 12)), do_layer_norm_before=r.random() < .7, enable_bias=r.random() < .8, dropout=0, attention_dropout=0,
                           tie_word_embeddings=tied)
    if kind == 'bloom':
        return t.BloomConfig(**base, hidden_size=heads * d, n_layer=layers, n_head=heads, layer_norm_epsilon=eps, hidden_dropout=0, attention_dropout=0,
                             apply_residual_connection_post_layernorm=r.random() < .3, tie_word_embeddings=tied)
    if kind in ('t5', 'mt5'):
        return (t.T5Config if kind == 't5' else t.MT5Config)(
            **base, d_model=8 * r.randint(2, 5), d_kv=d, d_ff=inner, num_layers=layers, num_decoder_layers=r.randint(1, 2), num_heads=heads, relative_attention_num_buckets=r.choice((8, 32)),
            relative_attention_max_distance=r.choice((20, 128)), dropout_rate=0, layer_norm_epsilon=1e-6, feed_forward_proj=r.choice(('relu', 'gated-gelu', 'gated-silu')),
            decoder_start_token_id=0, **(dict(tie_word_embeddings=tied) if kind == 't5' else {}))
    encoder = dict(**base, max_position_embeddings=66, hidden_size=heads * d, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=inner, hidden_act=act, layer_norm_eps=eps,
                   hidden_dropout_prob=0, attention_probs_dropout_prob=0, type_vocab_size=2)
    if kind == 'bert':
        return t.BertConfig(**encoder)
    if kind == 'roberta':
        return t.RobertaConfig(**encoder | dict(pad_token_id=1, bos_token_id=0))
    assert kind == 'distilbert', kind
    return t.DistilBertConfig(**base, max_position_embeddings=64, dim=heads * d, n_layers=layers, n_heads=heads, hidden_dim=inner, activation=r.choice(('gelu', 'relu')), dropout=0,
                              attention_dropout=0, seq_classif_dropout=0)


encoders, decoders = ('bert', 'roberta', 'distilbert'), ('gpt2', 'gpt_neo', 'gpt_neox', 'llama', 'mistral', 'qwen2', 'qwen3', 'gemma', 'gemma2', 'gemma3_text', 'phi3', 'opt', 'bloom')
families = (*decoders, 't5', 'mt5', *encoders)


def task_of(r, kind):
    if kind in ('t5', 'mt5'):
        return 'seq2seq-lm'
    rows = 'sequence-classification', 'multi-label-classification', 'regression'
    if kind in encoders:
        return r.choice(('masked-lm', 'masked-lm', 'token-classification', *rows))
    return r.choice(rows) if r.random() < .25 else 'causal-lm'


def task_of_model(model):
    name, problem = type(model).__name__, model.config.problem_type
    if 'ForSequenceClassification' in name:
        return {'multi_label_classification': 'multi-label-classification', 'regression': 'regression'}.get(problem, 'sequence-classification')
    for ending, task in (('ForMaskedLM', 'masked-lm'), ('ForTokenClassification', 'token-classification'), ('ForConditionalGeneration', 'seq2seq-lm')):
        if name.endswith(ending):
            return task
    return 'causal-lm'


def randomize(model):
    """Numbers large enough that nothing is nearly linear; those of norms near 1. Gemma's norms add the 1 themselves."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            spread = .6 / max(p.shape[-1], 1)**.5 if p.dim() > 1 else .1
            p.copy_(torch.randn(p.shape) * spread + (1 if p.dim() == 1 and name.endswith('weight') and not model.config.model_type.startswith('gemma') else 0))


def model_of(r, kind, task, vocabulary):
    """In float32."""
    config = config_of(r, kind, vocabulary)
    config._attn_implementation = 'eager'
    if task in ('token-classification', 'sequence-classification', 'multi-label-classification', 'regression'):
        config.num_labels = 1 if task == 'regression' and r.random() < .5 else r.randint(2, 4)
        kinds = {'sequence-classification': 'single_label_classification', 'multi-label-classification': 'multi_label_classification', 'regression': 'regression'}
        config.problem_type = kinds.get(task)
        if hasattr(config, 'classifier_dropout'):
            config.classifier_dropout = 0.0
    auto = {'causal-lm': transformers.AutoModelForCausalLM, 'masked-lm': transformers.AutoModelForMaskedLM, 'seq2seq-lm': transformers.AutoModelForSeq2SeqLM,
            'token-classification': transformers.AutoModelForTokenClassification}.get(task, transformers.AutoModelForSequenceClassification)
    torch.manual_seed(r.randrange(2**31))
    model = auto.from_config(config, attn_implementation='eager')
    randomize(model)
    return model.eval()


def encoder_of(r, kind, vocabulary):
    """An encoder without a head."""
    config = config_of(r, kind, vocabulary)
    torch.manual_seed(r.randrange(2**31))
    if kind in ('t5', 'mt5'):
        return (transformers.T5EncoderModel if kind == 't5' else transformers.MT5EncoderModel)(config).eval()
    return transformers.AutoModel.from_config(config).eval()


def batch_of(r, model, task):
    """Token ids, labels, and masks where rows are padded on the right."""
    rows, length, vocabulary = r.randint(1, 4), r.randint(2, 24), model.config.vocab_size
    pad = model.config.pad_token_id or 0
    ids = torch.randint(3, vocabulary, (rows, length))
    batch = {}
    padded = task != 'causal-lm' and r.random() < .7
    lengths = [r.randint(1 + (task == 'causal-lm'), length) if padded and i else length for i in range(rows)]
    mask = torch.tensor([[int(s < n) for s in range(length)] for n in lengths])
    ids[mask == 0] = pad
    batch['input_ids'] = ids
    if padded or task == 'seq2seq-lm':
        batch['attention_mask'] = mask
    if model.config.model_type == 'bert' and r.random() < .7:
        batch['token_type_ids'] = torch.randint(0, 2, ids.shape)
    labels = model.config.num_labels
    if task == 'sequence-classification':
        batch['labels'] = torch.randint(0, labels, (rows,))
    elif task == 'multi-label-classification':
        batch['labels'] = torch.randint(0, 2, (rows, labels))
    elif task == 'regression':
        batch['labels'] = torch.randn((rows, labels) if labels > 1 else (rows,))
    else:
        shape = (rows, r.randint(2, 17)) if task == 'seq2seq-lm' else ids.shape
        out = torch.randint(3 if task != 'token-classification' else 0, labels if task == 'token-classification' else vocabulary, shape)
        if task == 'causal-lm':
            out = ids.clone()
        out[torch.rand(shape) < (.8 if task == 'masked-lm' else .15)] = NO_LABEL
        if task != 'seq2seq-lm':
            out[mask == 0] = NO_LABEL
        out[0, -1] = out[0, -1] if out[0, -1] != NO_LABEL else (0 if task == 'token-classification' else 3)
        batch['labels'] = out
    return batch


# ---- The reference -------------------------------------------------------------------------------------------------------------------


def logits_of(model, batch, task):
    """Of a packed batch, each document by itself: no document knows of another one, whatever a model makes of positions."""
    dtype = next(p.dtype for p in model.parameters() if p.is_floating_point())
    inputs = {k: v for k, v in batch.items() if k not in ('labels', 'position_ids', 'document_ids')}
    if task == 'seq2seq-lm':
        inputs['labels'] = batch['labels']
    more = dict(use_cache=False) if task in ('causal-lm', 'seq2seq-lm') else {}
    with in_dtype(torch.float64) if dtype == torch.float64 else contextlib.nullcontext():
        if 'document_ids' not in batch:
            return model(**inputs, **more).logits
        rows = []
        for ids, documents in zip(batch['input_ids'], batch['document_ids'].tolist()):
            begins = [i for i in range(len(documents)) if i == 0 or documents[i] != documents[i - 1]]
            parts = [ids[None, a:b] for a, b in zip(begins, [*begins[1:], len(documents)])]
            rows.append(torch.cat([model(input_ids=part, **more).logits for part in parts], 1))
        return torch.cat(rows)


def loss_of_logits(logits, labels, task):
    functional = torch.nn.functional
    if task == 'multi-label-classification':
        return functional.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
    if task == 'regression':
        return functional.mse_loss(logits.reshape(labels.shape), labels.to(logits.dtype))
    if task == 'causal-lm':
        logits, labels = logits[:, :-1], labels[:, 1:]
    return functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1), ignore_index=NO_LABEL)


def loss_of(model, batch, task):
    return loss_of_logits(logits_of(model, batch, task), batch['labels'], task)


def gradients_of(model, batch, task):
    model.zero_grad()
    loss = loss_of(model, batch, task)
    loss.backward()
    out = {n: p.grad.detach().clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return loss.item(), out


def adamw(model, batch, task, steps, lr, decay):
    """The losses of so many steps with clipping to norm 1; the model is changed."""
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer, losses = torch.optim.AdamW(trained, lr=lr, weight_decay=decay), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, batch, task)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def save(model, batch, folder):
    """As a folder of transformers with batch.safetensors beside it."""
    model.save_pretrained(folder)
    save_file({k: v.float() if v.is_floating_point() else v.int() for k, v in batch.items()}, folder / 'batch.safetensors')


def open_folder(folder, like):
    """A folder as transformers opens it, of a class or of that of a model: the model, and what the folder lacks or has too much of."""
    kind = like if isinstance(like, type) else type(like)
    model, report = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation='eager', output_loading_info=True)
    # Where the head is not tied, its decoder's bias counts, and nobody reads this one.
    unread = {'cls.predictions.bias', 'lm_head.bias'} if not model.config.tie_word_embeddings else set()
    left = {kind: sorted(map(str, set(names) - unread)) for kind, names in report.items()}
    return model.eval(), [f'{kind}: {names[:3]}' for kind, names in left.items() if names]


def architecture(folder):
    return getattr(transformers, json.loads((folder / 'config.json').read_text())['architectures'][0])
