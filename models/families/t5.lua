-- T5, and its version 1.1 with gated units: Raffel et al.: "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
-- Transformer", arXiv:1910.10683. An encoder, and a decoder that sees all of it; distances have learned biases, which the layers of each
-- share. Parameters as transformers' T5ForConditionalGeneration names them.
local lib, layers = require "config", require "layers"

-- What transformers takes where a configuration says nothing.
local defaults = {
  t5 = { F = 2048, layers = 6, heads = 8, vocabulary = 32128, units = "relu" },
  mt5 = { F = 1024, layers = 8, heads = 6, vocabulary = 250112, units = "gated-gelu" },
}

-- "relu", "gated-gelu", …: the activation, and whether there are gates.
local function units_of(config, kind)
  if config.feed_forward_proj ~= nil then kind = config.feed_forward_proj end
  config.feed_forward_proj = kind
  local gated = type(kind) == "string" and kind:match("^gated%-(.+)$")
  local act = gated or kind
  -- The first files mean the approximation.
  if kind == "gated-gelu" then act = "gelu_new" end
  config.dense_act_fn, config.is_gated_act = act, gated and true or false
  if gated then return lib.gate(config, "dense_act_fn"), nil, true end
  local op, attrs = lib.activation(config, "dense_act_fn")
  return op, attrs, false
end

-- Whether the file has a head of its own: one with other numbers than the embedding. Where they are the same transformers ties them,
-- whatever config.json says.
local function own_head(g)
  if g:has("output.weight") then return true end   -- of a GGUF file
  if not g:has("lm_head.weight") then return false end
  for _, name in ipairs { "shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight" } do
    if g:has(name) then return not g:same("lm_head.weight", name) end
  end
  return false
end

local function build(config, g)
  local t5, d = config.model_type == "t5", defaults[config.model_type]
  lib.renamed(config, { { "hidden_size", "d_model" }, { "head_dim", "d_kv" }, { "num_hidden_layers", "num_layers" },
    { "num_attention_heads", "num_heads" } })
  local C, D, F = lib.integer(config, "d_model", 512), lib.integer(config, "d_kv", 64), lib.integer(config, "d_ff", d.F)
  local n_layers = lib.integer(config, "num_layers", d.layers)
  local n_decoder, heads = lib.optional_integer(config, "num_decoder_layers") or n_layers, lib.integer(config, "num_heads", d.heads)
  local vocabulary, eps = lib.integer(config, "vocab_size", d.vocabulary), lib.number(config, "layer_norm_epsilon", 1e-6)
  local buckets = lib.integer(config, "relative_attention_num_buckets", 32)
  local distance, p = lib.integer(config, "relative_attention_max_distance", 128), lib.share(config, "dropout_rate", 0.1)
  local factor, inner = lib.number(config, "initializer_factor", 1.0), heads * D
  local act, act_attrs, gated = units_of(config, d.units)
  -- transformers scales the decoder's output of a T5 where the first file said that head and embedding are tied, and never that of an mT5.
  local said = lib.boolean(config, "tie_word_embeddings", true)
  local scaled, tied = t5 and lib.boolean(config, "scale_decoder_outputs", said), not own_head(g)
  -- transformers 5 says so of every model; programs that go by it would drop the head.
  if not tied then config.tie_word_embeddings = false end
  config.num_decoder_layers = n_decoder

  local L = layers.new(g, { std = factor })
  local shared = L.parameter("shared.weight", { vocabulary, C }, { "random_normal", std = factor }, { embedding = true, aliases = { "encoder.embed_tokens.weight", "decoder.embed_tokens.weight", tied and "lm_head.weight" or nil } })
  -- Old files carry a bias of the first layer's cross attention, which no model reads.
  g:ignore("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight")

  -- (heads, buckets), as attention reads it: files have it the other way round.
  local function distances(name)
    local table_ = L.parameter(name .. ".block.0.layer.0.SelfAttention.relative_attention_bias.weight", { buckets, heads },
      { "random_normal", std = factor * C ^ -0.5 }, { decay = true })
    return g:node("transpose", name .. ".relative_attention_bias", { table_ })
  end
  local function attention(x, from, at, length, bounds, attrs)
    local function project(y, name, std) return L.linear(y, at .. name, C, inner, { std = factor * std }) end
    local q, k, v = project(x, "q", (C * D) ^ -0.5), project(from, "k", C ^ -0.5), project(from, "v", C ^ -0.5)
    attrs.heads, attrs.kv_heads, attrs.head_dim, attrs.scale, attrs.dropout = heads, heads, D, 1.0, p
    local a = L.attention(at .. "attention", { q = q, k = k, v = v, first = bounds.first, last = bounds.last, bias = bounds.bias }, attrs)
    return L.dropout(L.linear(a, at .. "o", inner, C, { std = factor * inner ^ -0.5 }), p, at .. "dropout", length)
  end
  local function units(x, at, length)
    local function up(name) return L.linear(x, at .. name, C, F, { std = factor * C ^ -0.5 }) end
    local h
    if gated then h = g:node("swiglu", at .. "act", { up "wi_0", up "wi_1" }, { activation = act })
    else h = g:node(act, at .. "act", { up "wi" }, act_attrs) end
    h = L.dropout(h, p, at .. "dropout_in", length)
    return L.dropout(L.linear(h, at .. "wo", F, C, { std = factor * F ^ -0.5 }), p, at .. "dropout", length)
  end

  -- The encoder, and then the decoder: one part of a block after the other.
  local function stack(name, ids, length, n, first_block, cross, bounds)
    local x = L.dropout(g:node("embedding", name .. ".embed_tokens", { ids, shared }), p, name .. ".dropout_in", length)
    local bias = distances(name)
    for i = 0, n - 1 do
      local at = ("%s.block.%d."):format(name, i)
      g:block(first_block + i)
      g:mark_block_input(x)
      local function norm(k) return L.rms_norm(x, at .. ("layer.%d.layer_norm"):format(k), C, eps) end
      local h = norm(0)
      local a = attention(h, h, at .. "layer.0.SelfAttention.", length, { first = bounds.first, last = bounds.last, bias = bias },
        { causal = cross and 1 or 0, bidirectional = cross and 0 or 1, max_distance = distance })
      x = L.add(x, a, at .. "residual_attention")
      if cross then
        a = attention(norm(1), cross.states, at .. "layer.1.EncDecAttention.", length, cross, { causal = 0 })
        x = L.add(x, a, at .. "residual_cross_attention")
      end
      local k = cross and 2 or 1
      x = L.add(x, units(norm(k), at .. ("layer.%d.DenseReluDense."):format(k), length), at .. "residual_mlp")
    end
    g:block(-1)
    g:mark_block_input(x)
    return L.dropout(L.rms_norm(x, name .. ".final_layer_norm", C, eps), p, name .. ".dropout_out", length)
  end

  local ids = g:input { name = "input_ids", below = vocabulary }
  local states = stack("encoder", ids, g.length, n_layers, 0, nil, { first = g:input("first_key"), last = g:input("last_key") })
  g:mark_output(states)
  if g.task == "feature-extraction" then
    g:ignore("decoder.*"); g:ignore("lm_head.*")
    g:mark_hidden(states)
    return
  end
  -- Every block of the decoder reads it.
  g:mark_block_input(states)
  local x = stack("decoder", g:input("decoder_input_ids"), g.target_length, n_decoder, n_layers,
    { states = states, first = g:input("source_first"), last = g:input("source_last") }, {})
  lib.causal_head(g, L, x, shared, C, vocabulary, tied, { scale = scaled and C ^ -0.5 or nil })
end

return {
  model_types = { "t5", "mt5" },
  tasks = {
    { name = "seq2seq-lm", labels = "target_labels",
      architecture = { t5 = "T5ForConditionalGeneration", mt5 = "MT5ForConditionalGeneration" } },
    { name = "feature-extraction", architecture = { t5 = "T5EncoderModel", mt5 = "MT5EncoderModel" } },
  },
  harmless = { "n_positions", "classifier_dropout", "is_gated_act", "dense_act_fn", "scale_decoder_outputs" },
  gguf = require "gguf.t5",
  build = build,
}
