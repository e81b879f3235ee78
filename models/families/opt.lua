-- OPT: Zhang et al.: "OPT: Open Pre-trained Transformer Language Models", arXiv:2205.01068. Parameters as transformers' OPTForCausalLM
-- names them. The 350m normalizes after each part and has an embedding that is narrower than the model.
local lib, layers = require "config", require "layers"

local function build(config, g)
  local C, F = lib.integer(config, "hidden_size", 768), lib.integer(config, "ffn_dim", 3072)
  local n_layers, heads = lib.integer(config, "num_hidden_layers", 12), lib.integer(config, "num_attention_heads", 12)
  local vocabulary, positions = lib.integer(config, "vocab_size", 50272), lib.integer(config, "max_position_embeddings", 2048)
  local narrow = lib.optional_integer(config, "word_embed_proj_dim") or C
  local before, bias = lib.boolean(config, "do_layer_norm_before", true), lib.boolean(config, "enable_bias", true)
  local no_last_norm, tied = lib.boolean(config, "_remove_final_layer_norm", false), lib.boolean(config, "tie_word_embeddings", true)
  local act, act_attrs = lib.activation(config, "activation_function", "relu")
  local p, attn_p = lib.share(config, "dropout", 0.1), lib.share(config, "attention_dropout", 0.0)
  local std = lib.number(config, "init_std", 0.02)
  if C % heads ~= 0 then error(("config: hidden_size = %d does not divide by num_attention_heads = %d"):format(C, heads), 0) end
  lib.must_be(config, "layer_norm_elementwise_affine", true, "norms without weights are not supported")
  lib.must_be(config, "learned_embeddings", true, "only positions that are learned are supported")
  if lib.share(config, "layerdrop", 0.0) > 0 then
    error("config: 'layerdrop' leaves out whole layers, which is not supported; set it to 0", 0)
  end
  lib.check_length(g, positions, "max_position_embeddings")
  config.word_embed_proj_dim = narrow

  -- Files made from OPTModel lack the prefix.
  local L = layers.new(g, { prefix = "model.decoder.", std = std, aliases = function(name) return { "decoder." .. name } end })
  local x, embedding = L.embedding(g:input { name = "input_ids", below = vocabulary }, "embed_tokens", vocabulary, narrow,
    lib.tied_to("lm_head.weight", tied, lib.padding(config, vocabulary, 1)))
  if narrow ~= C then x = L.linear(x, "project_in", narrow, C) end
  -- The first two rows belong to no position.
  local ids = g:node("shift", "model.decoder.positions", { g:input("position_ids") }, { by = 2 })
  x = L.add(x, L.embedding(ids, "embed_positions", positions + 2, C), "embeddings")

  for i = 0, n_layers - 1 do
    local at = ("layers.%d."):format(i)
    local function norm(y, name) return L.layer_norm(y, at .. name, C, 1e-5) end
    local function linear(y, name, n_in, n_out) return L.linear(y, at .. name, n_in, n_out, { bias = bias }) end
    g:block(i)
    g:mark_block_input(x)
    local h = before and norm(x, "self_attn_layer_norm") or x
    local q, k, v = linear(h, "self_attn.q_proj", C, C), linear(h, "self_attn.k_proj", C, C), linear(h, "self_attn.v_proj", C, C)
    local a = L.attention(at .. "self_attn", { q = q, k = k, v = v, first = g:input("first_key") },
      { heads = heads, kv_heads = heads, head_dim = C // heads, dropout = attn_p })
    a = L.dropout(linear(a, "self_attn.out_proj", C, C), p, at .. "self_attn.dropout")
    x = L.add(x, a, at .. "residual_attention")
    if not before then x = norm(x, "self_attn_layer_norm") end
    h = before and norm(x, "final_layer_norm") or x
    h = g:node(act, "model.decoder." .. at .. "act", { linear(h, "fc1", C, F) }, act_attrs)
    h = L.dropout(linear(h, "fc2", F, C), p, at .. "dropout")
    x = L.add(x, h, at .. "residual_mlp")
    if not before then x = norm(x, "final_layer_norm") end
  end
  g:block(-1)
  g:mark_block_input(x)
  if before and not no_last_norm then x = L.layer_norm(x, "final_layer_norm", C, 1e-5) end
  if narrow ~= C then x = L.linear(x, "project_out", C, narrow) end
  lib.causal_head(g, L, x, embedding, narrow, vocabulary, tied)
end

return { model_types = { "opt" }, tasks = lib.decoder_tasks "OPT", harmless = { "activation_dropout" }, counts_tokens = { "opt" },
  build = build }
