-- GPT-Neo: Black et al., 2021, doi:10.5281/zenodo.5297715. Every other layer sees a window only, and scores are not scaled. Parameters as
-- transformers' GPTNeoForCausalLM names them.
local lib, layers = require "config", require "layers"

-- "global" or "local" for each layer, from [[["global", "local"], 12]].
local function kinds_of(config, n_layers)
  local given, out = config.attention_types, {}
  local function fail() error("config: 'attention_types' has to be a list such as [[[\"global\", \"local\"], 12]]", 0) end
  if given == nil then given = { { { "global", "local" }, 12 } } end
  if type(given) ~= "table" then fail() end
  for _, run in ipairs(given) do
    if type(run) ~= "table" or type(run[1]) ~= "table" or math.type(run[2]) ~= "integer" then
      fail()
    end
    for _ = 1, run[2] do
      for _, kind in ipairs(run[1]) do
        if kind ~= "global" and kind ~= "local" then error(("config: attention of type '%s' is not known"):format(tostring(kind)), 0) end
        out[#out + 1] = kind
      end
    end
  end
  if #out ~= n_layers then error(("config: 'attention_types' is for %d layers, num_layers = %d"):format(#out, n_layers), 0) end
  config.attention_types, config.attention_layers = given, out
  return out
end

local function build(config, g)
  lib.renamed(config, { { "num_attention_heads", "num_heads" }, { "num_hidden_layers", "num_layers" } })
  local C, n_layers = lib.integer(config, "hidden_size", 2048), lib.integer(config, "num_layers", 24)
  local heads, F = lib.integer(config, "num_heads", 16), lib.optional_integer(config, "intermediate_size") or 4 * C
  local vocabulary, positions = lib.integer(config, "vocab_size", 50257), lib.integer(config, "max_position_embeddings", 2048)
  local window, eps = lib.integer(config, "window_size", 256), lib.number(config, "layer_norm_epsilon", 1e-5)
  local act, act_attrs = lib.activation(config, "activation_function", "gelu_new")
  local resid_p, embed_p = lib.share(config, "resid_dropout", 0.0), lib.share(config, "embed_dropout", 0.0)
  local attn_p, std = lib.share(config, "attention_dropout", 0.0), lib.number(config, "initializer_range", 0.02)
  local tied, kinds = lib.boolean(config, "tie_word_embeddings", true), kinds_of(config, n_layers)
  if C % heads ~= 0 then error(("config: hidden_size = %d does not divide by num_heads = %d"):format(C, heads), 0) end
  lib.check_length(g, positions, "max_position_embeddings")

  -- Files made from GPTNeoModel lack the prefix, and old ones carry the masks as buffers.
  local L = layers.new(g, { prefix = "transformer.", std = std, bare = true })
  g:ignore("*.attn.attention.bias"); g:ignore("*.attn.attention.masked_bias")
  local x, embedding = L.embedding(g:input { name = "input_ids", below = vocabulary }, "wte", vocabulary, C,
    lib.tied_to("lm_head.weight", tied))
  x = L.add(x, L.embedding(g:input("position_ids"), "wpe", positions, C), "embeddings")
  x = L.dropout(x, embed_p, "drop")
  for i = 0, n_layers - 1 do
    local at = ("h.%d."):format(i)
    g:block(i)
    g:mark_block_input(x)
    local h = L.layer_norm(x, at .. "ln_1", C, eps)
    local function project(name) return L.linear(h, at .. "attn.attention." .. name, C, C) end
    local size = kinds[i + 1] == "local" and window < g.length and window or 0
    local a = L.attention(at .. "attn", { q = project "q_proj", k = project "k_proj", v = project "v_proj", first = g:input("first_key") },
      { heads = heads, kv_heads = heads, head_dim = C // heads, scale = 1.0, window = size, dropout = attn_p })
    a = L.dropout(L.linear(a, at .. "attn.attention.out_proj", C, C, { bias = true }), resid_p, at .. "attn.dropout")
    x = L.add(x, a, at .. "residual_attention")
    h = L.linear(L.layer_norm(x, at .. "ln_2", C, eps), at .. "mlp.c_fc", C, F, { bias = true })
    h = L.linear(g:node(act, "transformer." .. at .. "mlp.act", { h }, act_attrs), at .. "mlp.c_proj", F, C, { bias = true })
    x = L.add(x, L.dropout(h, resid_p, at .. "mlp.dropout"), at .. "residual_mlp")
  end
  g:block(-1)
  g:mark_block_input(x)
  x = L.layer_norm(x, "ln_f", C, eps)
  lib.causal_head(g, L, x, embedding, C, vocabulary, tied)
end

return { model_types = { "gpt_neo" }, tasks = lib.decoder_tasks "GPTNeo", harmless = { "summary_activation", "summary_first_dropout",
  "summary_proj_to_labels", "summary_type", "summary_use_proj", "attention_layers" }, build = build }
