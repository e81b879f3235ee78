-- GPT-2: Radford, Wu, Child, Luan, Amodei, Sutskever: "Language models are unsupervised multitask learners", 2019. Parameters as
-- transformers' GPT2LMHeadModel names them; linear weights are stored (in, out) ("Conv1D").
local lib, layers = require "config", require "layers"

local function build(config, g)
  lib.renamed(config, { { "hidden_size", "n_embd" }, { "max_position_embeddings", "n_positions" }, { "num_attention_heads", "n_head" },
    { "num_hidden_layers", "n_layer" } })
  local C = lib.integer(config, "n_embd", 768)
  local n_layers, heads = lib.integer(config, "n_layer", 12), lib.integer(config, "n_head", 12)
  local vocabulary, positions = lib.integer(config, "vocab_size", 50257), lib.integer(config, "n_positions", 1024)
  local inner = lib.optional_integer(config, "n_inner") or 4 * C
  local eps = lib.number(config, "layer_norm_epsilon", 1e-5)
  local act, act_attrs = lib.activation(config, "activation_function", "gelu_new")
  local embd_p, resid_p = lib.share(config, "embd_pdrop", 0.1), lib.share(config, "resid_pdrop", 0.1)
  local attn_p = lib.share(config, "attn_pdrop", 0.1)
  local std = lib.number(config, "initializer_range", 0.02)
  local tied = lib.boolean(config, "tie_word_embeddings", true)
  if lib.boolean(config, "add_cross_attention", false) then
    error("config: 'add_cross_attention' = true: there is no encoder to attend to", 0)
  end
  if C % heads ~= 0 then error(("config: n_embd = %d does not divide by n_head = %d"):format(C, heads), 0) end
  lib.check_length(g, positions, "n_positions")

  local L = layers.new(g, { prefix = "transformer.", std = std })
  -- Files made from GPT2Model lack the prefix, and old ones carry the causal mask as a buffer.
  local function parameter(name, shape, init, options)
    options = options or {}
    return g:parameter { name = "transformer." .. name, aliases = { name, options.alias }, hint = options.hint, shape = shape, init = init,
      decay = not options.no_decay, embedding = options.embedding }
  end
  g:ignore("*.attn.bias"); g:ignore("*.attn.masked_bias")

  local function norm(x, name)
    local w = parameter(name .. ".weight", { C }, { "fill", value = 1.0 }, { no_decay = true })
    local b = parameter(name .. ".bias", { C }, { "fill", value = 0.0 }, { no_decay = true })
    return g:node("layer_norm", "transformer." .. name, { x, w, b }, { eps = eps })
  end
  local function conv1d(x, name, n_in, n_out, s)
    local w = parameter(name .. ".weight", { n_in, n_out }, { "random_normal", std = s })
    local b = parameter(name .. ".bias", { n_out }, { "fill", value = 0.0 }, { no_decay = true })
    return g:node("linear", "transformer." .. name, { x, w, b }, { transposed = 1 })
  end

  local wte = parameter("wte.weight", { vocabulary, C }, { "random_normal", std = std },
    { embedding = true, alias = tied and "lm_head.weight" or nil, hint = tied and lib.tied_hint or nil })
  local wpe = parameter("wpe.weight", { positions, C }, { "random_normal", std = std }, { embedding = true })
  local x = g:node("add", "transformer.embeddings",
    { g:node("embedding", "transformer.wte", { g:input { name = "input_ids", below = vocabulary }, wte }),
      g:node("embedding", "transformer.wpe", { g:input("position_ids"), wpe }) })
  x = L.dropout(x, embd_p, "drop")

  local by_layer = lib.boolean(config, "scale_attn_by_inverse_layer_idx", false)
  local scaled = lib.boolean(config, "scale_attn_weights", true)
  for i = 0, n_layers - 1 do
    local p = ("h.%d."):format(i)
    g:block(i)
    g:mark_block_input(x)
    local scale = (scaled and 1 / math.sqrt(C // heads) or 1.0) / (by_layer and i + 1 or 1)
    local qkv = conv1d(norm(x, p .. "ln_1"), p .. "attn.c_attn", C, 3 * C, std)
    local a = L.attention(p .. "attn", { q = qkv, first = g:input("first_key") },
      { heads = heads, kv_heads = heads, head_dim = C // heads, scale = scale, dropout = attn_p })
    a = conv1d(a, p .. "attn.c_proj", C, C, std / math.sqrt(2 * n_layers))
    a = L.dropout(a, resid_p, p .. "attn.resid_dropout")
    x = g:node("add", "transformer." .. p .. "residual_attention", { x, a })
    local m = conv1d(norm(x, p .. "ln_2"), p .. "mlp.c_fc", C, inner, std)
    m = conv1d(g:node(act, "transformer." .. p .. "mlp.act", { m }, act_attrs), p .. "mlp.c_proj", inner, C, std / math.sqrt(2 * n_layers))
    m = L.dropout(m, resid_p, p .. "mlp.dropout")
    x = g:node("add", "transformer." .. p .. "residual_mlp", { x, m })
  end
  g:block(-1)
  g:mark_block_input(x)
  lib.causal_head(g, L, norm(x, "ln_f"), wte, C, vocabulary, tied)
end

return {
  model_types = { "gpt2" },
  tasks = lib.decoder_tasks("GPT2", "LMHeadModel"),
  -- The heads of other models, and what only rounds differently.
  harmless = { "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj", "n_ctx",
    "reorder_and_upcast_attn", "n_special", "predict_special_tokens" },
  gguf = require("gguf.gpt").gpt2,
  build = build,
}
