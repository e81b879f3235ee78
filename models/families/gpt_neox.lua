-- GPT-NeoX, and Pythia: Black et al.: "GPT-NeoX-20B", arXiv:2204.06745; Biderman et al.: "Pythia", arXiv:2304.01373. A part of each head
-- turns, queries, keys and values of a head lie side by side, and attention and MLP read the same input. Parameters as transformers'
-- GPTNeoXForCausalLM names them in files.
local lib, layers, ropes = require "config", require "layers", require "rope"

local function build(config, g)
  local C, F = lib.integer(config, "hidden_size", 6144), lib.integer(config, "intermediate_size", 24576)
  local n_layers, heads = lib.integer(config, "num_hidden_layers", 44), lib.integer(config, "num_attention_heads", 64)
  local vocabulary, positions = lib.integer(config, "vocab_size", 50432), lib.integer(config, "max_position_embeddings", 2048)
  local eps, std = lib.number(config, "layer_norm_eps", 1e-5), lib.number(config, "initializer_range", 0.02)
  local p, attn_p = lib.share(config, "hidden_dropout", 0.0), lib.share(config, "attention_dropout", 0.0)
  local act, act_attrs = lib.activation(config, "hidden_act", "gelu")
  local parallel, tied = lib.boolean(config, "use_parallel_residual", true), lib.boolean(config, "tie_word_embeddings", false)
  local bias = lib.boolean(config, "attention_bias", true)
  if C % heads ~= 0 then error(("config: hidden_size = %d does not divide by num_attention_heads = %d"):format(C, heads), 0) end
  lib.check_length(g, positions, "max_position_embeddings")
  local D = C // heads
  local theta, part = lib.positive(config, "rotary_emb_base", 10000.0), lib.positive(config, "rotary_pct", 0.25)
  local turn = ropes.turner(g, ropes.read(config, { theta = theta, partial = part, own_theta = true }), D, positions)

  local L = layers.new(g, { prefix = "gpt_neox.", std = std, bare = true })
  g:ignore("*.attention.bias"); g:ignore("*.attention.masked_bias"); g:ignore("*.rotary_emb.inv_freq")
  local x, embedding = L.embedding(g:input { name = "input_ids", below = vocabulary }, "embed_in", vocabulary, C,
    lib.tied_to("embed_out.weight", tied))
  x = L.dropout(x, p, "emb_dropout")
  for i = 0, n_layers - 1 do
    local at = ("layers.%d."):format(i)
    g:block(i)
    g:mark_block_input(x)
    local qkv = L.linear(L.layer_norm(x, at .. "input_layernorm", C, eps), at .. "attention.query_key_value", C, 3 * C, { bias = bias })
    qkv = turn(qkv, "gpt_neox." .. at .. "attention.rope", 3 * heads, { cycle = 3, turning = 2 })
    local a = L.attention(at .. "attention", { q = qkv, first = g:input("first_key") },
      { heads = heads, kv_heads = heads, head_dim = D, by_head = 1, dropout = attn_p })
    a = L.dropout(L.linear(a, at .. "attention.dense", C, C, { bias = bias }), p, at .. "post_attention_dropout")
    local sum = L.add(x, a, at .. "residual_attention")
    local m = L.layer_norm(parallel and x or sum, at .. "post_attention_layernorm", C, eps)
    m = L.linear(m, at .. "mlp.dense_h_to_4h", C, F, { bias = true })
    m = L.linear(g:node(act, "gpt_neox." .. at .. "mlp.act", { m }, act_attrs), at .. "mlp.dense_4h_to_h", F, C, { bias = true })
    x = L.add(sum, L.dropout(m, p, at .. "post_mlp_dropout"), at .. "residual_mlp")
  end
  g:block(-1)
  g:mark_block_input(x)
  x = L.layer_norm(x, "final_layer_norm", C, eps)
  lib.causal_head(g, L, x, embedding, C, vocabulary, tied, { name = "embed_out", module = "lm_head" })
end

return { model_types = { "gpt_neox" }, tasks = lib.decoder_tasks "GPTNeoX",
  -- The two dropouts are of GPT-NeoX-20B's config.json; transformers does not read them.
  harmless = { "rope_theta", "partial_rotary_factor", "attention_probs_dropout_prob", "hidden_dropout_prob" },
  gguf = require("gguf.gpt").gpt_neox, build = build }
