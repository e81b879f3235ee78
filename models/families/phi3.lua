-- Phi-3: Abdin et al.: "Phi-3 Technical Report", arXiv:2404.14219. Queries, keys and values are one product, and so are gate and up.
-- Parameters as transformers' Phi3ForCausalLM names them.
local lib, layers, ropes = require "config", require "layers", require "rope"

local function build(config, g)
  local C, F = lib.integer(config, "hidden_size", 3072), lib.integer(config, "intermediate_size", 8192)
  local n_layers, heads = lib.integer(config, "num_hidden_layers", 32), lib.integer(config, "num_attention_heads", 32)
  local kv_heads = lib.optional_integer(config, "num_key_value_heads") or heads
  local vocabulary, positions = lib.integer(config, "vocab_size", 32064), lib.integer(config, "max_position_embeddings", 4096)
  local original = lib.integer(config, "original_max_position_embeddings", 4096)
  local eps, std = lib.number(config, "rms_norm_eps", 1e-5), lib.number(config, "initializer_range", 0.02)
  local resid_p, attn_p = lib.share(config, "resid_pdrop", 0.0), lib.share(config, "attention_dropout", 0.0)
  local tied, act = lib.boolean(config, "tie_word_embeddings", false), lib.gate(config, "hidden_act", "silu")
  local window = lib.optional_integer(config, "sliding_window")
  if heads % kv_heads ~= 0 or C % heads ~= 0 then
    error(("config: hidden_size = %d, num_attention_heads = %d and num_key_value_heads = %d do not divide"):format(C, heads, kv_heads), 0)
  end
  config.num_key_value_heads = kv_heads
  lib.same_layers(config, n_layers, window)
  lib.check_length(g, positions, "max_position_embeddings")
  local D, all = C // heads, heads + 2 * kv_heads
  local part = lib.positive(config, "partial_rotary_factor", 1.0)
  -- The first files call longrope "su"; those of "yarn" mean the same.
  local rope = ropes.read(config, { partial = part, original = original, rename = { su = "longrope", yarn = "longrope" } })
  local turn = ropes.turner(g, rope, D, positions)

  local L = layers.new(g, { prefix = "model.", std = std, bare = true })
  g:ignore("*.rotary_emb.inv_freq")
  local x, embedding = L.embedding(g:input { name = "input_ids", below = vocabulary }, "embed_tokens", vocabulary, C,
    lib.tied_to("lm_head.weight", tied, lib.padding(config, vocabulary, 32000)))
  for i = 0, n_layers - 1 do
    local at = ("layers.%d."):format(i)
    g:block(i)
    g:mark_block_input(x)
    local qkv = L.linear(L.rms_norm(x, at .. "input_layernorm", C, eps), at .. "self_attn.qkv_proj", C, all * D)
    qkv = turn(qkv, "model." .. at .. "self_attn.rope", all, { cycle = all, turning = heads + kv_heads })
    local a = L.attention(at .. "self_attn", { q = qkv, first = g:input("first_key") }, { heads = heads, kv_heads = kv_heads, head_dim = D,
      window = window and window < g.length and window or 0, dropout = attn_p })
    a = L.dropout(L.linear(a, at .. "self_attn.o_proj", C, C), resid_p, at .. "resid_attn_dropout")
    x = L.add(x, a, at .. "residual_attention")
    local m = L.linear(L.rms_norm(x, at .. "post_attention_layernorm", C, eps), at .. "mlp.gate_up_proj", C, 2 * F)
    m = g:node("swiglu", "model." .. at .. "mlp.activation_fn", { m }, { activation = act })
    x = L.add(x, L.dropout(L.linear(m, at .. "mlp.down_proj", F, C), resid_p, at .. "resid_mlp_dropout"), at .. "residual_mlp")
  end
  g:block(-1)
  g:mark_block_input(x)
  lib.causal_head(g, L, L.rms_norm(x, "norm", C, eps), embedding, C, vocabulary, tied)
end

-- transformers reads embd_pdrop and drops nothing by it. The others are of the code that some files come with.
return { model_types = { "phi3" }, tasks = lib.decoder_tasks "Phi3", harmless = { "embd_pdrop", "full_attn_mod", "interpolate_factor" },
  gguf = require "gguf.llama" { "phi3" }, build = build }
