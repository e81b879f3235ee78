-- BLOOM: BigScience Workshop: "BLOOM: A 176B-Parameter Open-Access Multilingual Language Model", arXiv:2211.05100; ALiBi: Press, Smith,
-- Lewis, arXiv:2108.12409. Queries, keys and values of a head lie side by side. Parameters as transformers' BloomForCausalLM names them.
local lib, layers = require "config", require "layers"

-- A slope for each head: powers of 2^(-8 / n) for a power of two n, and between them those of twice as many heads.
local function slopes_of(heads)
  local n = 1
  while 2 * n <= heads do n = 2 * n end
  local out = {}
  for i = 1, n do out[i] = 2.0 ^ (-8.0 * i / n) end
  for i = 1, heads - n do out[n + i] = 2.0 ^ (-4.0 * (2 * i - 1) / n) end
  return out
end

local function build(config, g)
  lib.renamed(config, { { "n_embed", "hidden_size" }, { "num_hidden_layers", "n_layer" }, { "num_attention_heads", "n_head" } })
  local C, n_layers = lib.integer(config, "hidden_size", 64), lib.integer(config, "n_layer", 2)
  local heads = lib.integer(config, "n_head", 8)
  local vocabulary, eps = lib.integer(config, "vocab_size", 250880), lib.number(config, "layer_norm_epsilon", 1e-5)
  local p, attn_p = lib.share(config, "hidden_dropout", 0.0), lib.share(config, "attention_dropout", 0.0)
  local std, tied = lib.number(config, "initializer_range", 0.02), lib.boolean(config, "tie_word_embeddings", true)
  local post = lib.boolean(config, "apply_residual_connection_post_layernorm", false)
  if C % heads ~= 0 then error(("config: hidden_size = %d does not divide by n_head = %d"):format(C, heads), 0) end

  -- Files made from BloomModel lack the prefix.
  local L = layers.new(g, { prefix = "transformer.", std = std, bare = true })
  local slopes = g:constant { name = "alibi slopes", shape = { heads }, init = { "values", values = slopes_of(heads) } }
  local x, embedding = L.embedding(g:input { name = "input_ids", below = vocabulary }, "word_embeddings", vocabulary, C,
    lib.tied_to("lm_head.weight", tied))
  x = L.layer_norm(x, "word_embeddings_layernorm", C, eps)
  for i = 0, n_layers - 1 do
    local at = ("h.%d."):format(i)
    g:block(i)
    g:mark_block_input(x)
    local h = L.layer_norm(x, at .. "input_layernorm", C, eps)
    local qkv = L.linear(h, at .. "self_attention.query_key_value", C, 3 * C, { bias = true })
    local a = L.attention(at .. "self_attention", { q = qkv, first = g:input("first_key"), slopes = slopes },
      { heads = heads, kv_heads = heads, head_dim = C // heads, by_head = 1, dropout = attn_p })
    a = L.dropout(L.linear(a, at .. "self_attention.dense", C, C, { bias = true }), p, at .. "self_attention.dropout")
    x = L.add(post and h or x, a, at .. "residual_attention")
    h = L.layer_norm(x, at .. "post_attention_layernorm", C, eps)
    local m = L.linear(h, at .. "mlp.dense_h_to_4h", C, 4 * C, { bias = true })
    m = g:node("gelu", "transformer." .. at .. "mlp.act", { m }, { approximate = "tanh" })
    m = L.dropout(L.linear(m, at .. "mlp.dense_4h_to_h", 4 * C, C, { bias = true }), p, at .. "mlp.dropout")
    x = L.add(post and h or x, m, at .. "residual_mlp")
  end
  g:block(-1)
  g:mark_block_input(x)
  x = L.layer_norm(x, "ln_f", C, eps)
  lib.causal_head(g, L, x, embedding, C, vocabulary, tied)
end

-- What only says how others compute the same.
return { model_types = { "bloom" }, tasks = lib.decoder_tasks "Bloom", harmless = { "slow_but_exact", "masked_softmax_fusion",
  "bias_dropout_fusion", "attention_softmax_in_fp32", "unk_token_id", "offset_alibi", "skip_bias_add", "skip_bias_add_qkv", "seq_length",
  "n_inner" }, gguf = require("gguf.gpt").bloom, build = build }
