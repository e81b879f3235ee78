-- T5, and its version 1.1 with gated units: Raffel et al.: "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
-- Transformer", arXiv:1910.10683. An encoder, and a decoder that sees all of it; distances have learned biases, which the layers of each
-- share. Parameters as transformers' T5ForConditionalGeneration names them.
local lib, layers = require "config", require "layers"

-- "relu", "gated-gelu", …: the activation, and whether there are gates.
local function units_of(config)
  local kind = config.feed_forward_proj
  if kind == nil then kind = "relu" end
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

local function build(config, g)
  local C, D, F = lib.integer(config, "d_model", 512), lib.integer(config, "d_kv", 64), lib.integer(config, "d_ff", 2048)
  local n_layers = lib.integer(config, "num_layers", 6)
  local n_decoder, heads = lib.optional_integer(config, "num_decoder_layers") or n_layers, lib.integer(config, "num_heads", 8)
  local vocabulary, eps = lib.integer(config, "vocab_size", 32128), lib.number(config, "layer_norm_epsilon", 1e-6)
  local buckets = lib.integer(config, "relative_attention_num_buckets", 32)
  local distance, p = lib.integer(config, "relative_attention_max_distance", 128), lib.share(config, "dropout_rate", 0.1)
  local factor, inner = lib.number(config, "initializer_factor", 1.0), heads * D
  local act, act_attrs, gated = units_of(config)
  -- transformers ties the head to the embedding unless the file has a head of its own, and scales the decoder's output where the first
  -- file said that they are tied.
  local said = lib.boolean(config, "tie_word_embeddings", true)
  local scaled = lib.boolean(config, "scale_decoder_outputs", said)
  local tied = said or not g:has("lm_head.weight")
  config.num_decoder_layers = n_decoder

  local L = layers.new(g, { std = factor })
  local shared = L.parameter("shared.weight", { vocabulary, C }, { "random_normal", std = factor }, { embedding = true, hint = tied and
    lib.tied_hint or nil, aliases = { "encoder.embed_tokens.weight", "decoder.embed_tokens.weight", tied and "lm_head.weight" or nil } })
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
  harmless = { "n_positions", "classifier_dropout", "is_gated_act", "dense_act_fn", "output_past" },
  build = build,
}
