-- Llama and its kin: Touvron et al.: "LLaMA", arXiv:2302.13971, and "Llama 2", arXiv:2307.09288; grouped queries (Ainslie et al.,
-- arXiv:2305.13245); Mistral's sliding window (Jiang et al., arXiv:2310.06825); Qwen2's biases (arXiv:2407.10671); Qwen3's q/k norms
-- (arXiv:2505.09388). Parameters as transformers names them.
local lib, layers, ropes = require "config", require "layers", require "rope"

-- What transformers takes where a configuration says nothing; which layers have a sliding window, and which biases it reads, if any.
local defaults = {
  llama = { vocab_size = 32000, intermediate_size = 11008, max_position_embeddings = 2048, attention_bias = false, mlp_bias = false },
  mistral = { vocab_size = 32000, intermediate_size = 14336, max_position_embeddings = 131072, num_key_value_heads = 8, windows = "all" },
  qwen2 = { vocab_size = 151936, intermediate_size = 22016, max_position_embeddings = 32768, num_key_value_heads = 32, windows = "some" },
  qwen3 = { vocab_size = 151936, intermediate_size = 22016, max_position_embeddings = 32768, num_key_value_heads = 32, windows = "some",
    head_dim = 128, attention_bias = false },
}

-- Per layer, how many positions back a query may look; nil: all.
local function windows(config, which, layers)
  if which == "all" then
    local size, out = lib.optional_integer(config, "sliding_window", 4096), {}
    lib.same_layers(config, layers, size)
    for i = 1, layers do out[i] = size end
    return out
  elseif which == "some" then
    local use, size = lib.boolean(config, "use_sliding_window", false), config.sliding_window
    size = use and lib.optional_integer(config, "sliding_window", 4096) or nil
    local first, types = lib.count(config, "max_window_layers", 28), {}
    for i = 1, layers do types[i] = size and i > first and "sliding_attention" or "full_attention" end
    return lib.windows(config, layers, size, types)
  end
  lib.same_layers(config, layers)
  return {}
end

local function build(config, g)
  local kind = config.model_type
  local d = defaults[kind]
  local C, F = lib.integer(config, "hidden_size", 4096), lib.integer(config, "intermediate_size", d.intermediate_size)
  local n_layers, heads = lib.integer(config, "num_hidden_layers", 32), lib.integer(config, "num_attention_heads", 32)
  local kv_heads = lib.optional_integer(config, "num_key_value_heads", d.num_key_value_heads) or heads
  local D = lib.optional_integer(config, "head_dim", d.head_dim)
  local vocabulary = lib.integer(config, "vocab_size", d.vocab_size)
  local positions = lib.integer(config, "max_position_embeddings", d.max_position_embeddings)
  local eps, std = lib.number(config, "rms_norm_eps", 1e-6), lib.number(config, "initializer_range", 0.02)
  local tied = lib.boolean(config, "tie_word_embeddings", false)
  local attn_p = lib.share(config, "attention_dropout", 0.0)
  local qwen = kind == "qwen2"
  local attention_bias = d.attention_bias ~= nil and lib.boolean(config, "attention_bias", d.attention_bias)
  local mlp_bias = d.mlp_bias ~= nil and lib.boolean(config, "mlp_bias", d.mlp_bias)
  local act = lib.gate(config, "hidden_act", "silu")
  if heads % kv_heads ~= 0 then
    error(("config: num_attention_heads = %d does not divide by num_key_value_heads = %d%s"):format(heads, kv_heads,
      not config:has("num_key_value_heads") and ", which is what " .. kind .. " has where the configuration says nothing" or ""), 0)
  end
  -- transformers loads no llama whose width its heads do not divide, whatever their size.
  if C % heads ~= 0 and (kind == "llama" or not D) then
    error(("config: hidden_size = %d does not divide by num_attention_heads = %d"):format(C, heads), 0)
  end
  D = D or C // heads
  if D % 2 ~= 0 then error(("config: head_dim = %d is odd, RoPE turns pairs"):format(D), 0) end
  config.num_key_value_heads, config.head_dim = kv_heads, D
  lib.check_length(g, positions, "max_position_embeddings")
  local window = windows(config, d.windows, n_layers)

  g:ignore("*.rotary_emb.inv_freq")
  -- Files made from LlamaModel and so on lack the prefix.
  local function bare(name) return { name:match("^model%.(.+)$") } end
  local L = layers.new(g, { std = std, aliases = bare })
  local function norm(x, name, n, group) return L.rms_norm(x, name, n, eps, { group = group }) end
  local function linear(x, name, n_in, n_out, bias) return L.linear(x, name, n_in, n_out, { bias = bias }) end

  local embed = L.parameter("model.embed_tokens.weight", { vocabulary, C }, { "random_normal", std = std },
    { embedding = true, aliases = { tied and "lm_head.weight" or nil }, hint = tied and lib.tied_hint or nil })
  -- Positions restart with each document: none is beyond the length of a row.
  local turn = ropes.turner(g, ropes.read(config), D, positions)

  local x = g:node("embedding", "model.embed_tokens", { g:input { name = "input_ids", below = vocabulary }, embed },
    { padding = lib.padding(config, vocabulary) })
  for i = 0, n_layers - 1 do
    local size = window[i + 1]
    local p = ("model.layers.%d."):format(i)
    local attn = p .. "self_attn."
    g:block(i)
    g:mark_block_input(x)
    local h = norm(x, p .. "input_layernorm", C)
    local q = linear(h, attn .. "q_proj", C, heads * D, qwen or attention_bias)
    local k = linear(h, attn .. "k_proj", C, kv_heads * D, qwen or attention_bias)
    local v = linear(h, attn .. "v_proj", C, kv_heads * D, qwen or attention_bias)
    if kind == "qwen3" then
      q = norm(q, attn .. "q_norm", D, D)
      k = norm(k, attn .. "k_norm", D, D)
    end
    q, k = turn(q, attn .. "q_rope", heads), turn(k, attn .. "k_rope", kv_heads)
    local a = L.attention(p .. "self_attn", { q = q, k = k, v = v, first = g:input("first_key") },
      { heads = heads, kv_heads = kv_heads, head_dim = D, dropout = attn_p, window = size and size < g.length and size or 0 })
    x = g:node("add", p .. "residual_attention", { x, linear(a, attn .. "o_proj", heads * D, C, attention_bias) })
    h = norm(x, p .. "post_attention_layernorm", C)
    local gate, up = linear(h, p .. "mlp.gate_proj", C, F, mlp_bias), linear(h, p .. "mlp.up_proj", C, F, mlp_bias)
    up = g:node("swiglu", p .. "mlp.act_fn", { gate, up }, act ~= "silu" and { activation = act } or nil)
    x = g:node("add", p .. "residual_mlp", { x, linear(up, p .. "mlp.down_proj", F, C, mlp_bias) })
  end
  g:block(-1)
  g:mark_block_input(x)
  x = norm(x, "model.norm", C)
  lib.causal_head(g, L, x, embed, C, vocabulary, tied)
end

return {
  model_types = { "llama", "mistral", "qwen2", "qwen3" },
  tasks = lib.decoder_tasks { llama = "Llama", mistral = "Mistral", qwen2 = "Qwen2", qwen3 = "Qwen3" },
  harmless = {},
  gguf = require "gguf.llama" { "llama", "qwen2", "qwen3" },
  build = build,
}
