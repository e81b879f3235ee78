-- Llama and its kin: Touvron et al.: "LLaMA", arXiv:2302.13971, and "Llama 2", arXiv:2307.09288; grouped queries (Ainslie et al., arXiv:2305.13245); Mistral's sliding
-- window (Jiang et al., arXiv:2310.06825); Qwen2's biases (arXiv:2407.10671); Qwen3's q/k norms (arXiv:2505.09388). Parameters as transformers names them.
local lib = require "config"

-- RoPE as old ("rope_theta", "rope_scaling") and new ("rope_parameters") configurations say it; Su et al., arXiv:2104.09864.
local function rope_attributes(config, head_dim, positions)
  local new, old, theta = config.rope_parameters, config.rope_scaling, config.rope_theta
  local scaling = new or old or {}
  if new and new.rope_theta then theta = new.rope_theta end
  if theta == nil then theta = 10000.0 end
  local kind = scaling.rope_type or scaling.type or "default"
  local attrs = { positions = positions, head_dim = head_dim, theta = theta + 0.0, type = kind }
  local known = { rope_type = true, type = true, rope_theta = true }
  local function take(key)
    known[key] = true
    if type(scaling[key]) ~= "number" then error(("config: RoPE of type '%s' needs '%s', a number"):format(kind, key), 0) end
    attrs[key == "original_max_position_embeddings" and "original_max_position" or key] = scaling[key] + 0.0
  end
  if kind == "linear" then take("factor")
  elseif kind == "llama3" then take("factor"); take("low_freq_factor"); take("high_freq_factor"); take("original_max_position_embeddings")
  elseif kind ~= "default" then error(("config: RoPE of type '%s' is not supported (default, linear, llama3)"):format(tostring(kind)), 0) end
  for key, value in pairs(scaling) do
    if not known[key] and not (kind == "default" and key == "factor" and value == 1.0) then
      error(("config: RoPE of type '%s' does not read '%s'"):format(kind, key), 0)
    end
  end
  return attrs
end

-- Per layer, how many positions back a query may look; 0: all.
local function windows(config, kind, layers)
  local out, size = {}, config.sliding_window
  local types, use, first = config.layer_types, config.use_sliding_window, config.max_window_layers
  if kind ~= "mistral" and not use then size = nil end
  for i = 1, layers do
    local slides = size ~= nil
    if types then slides = types[i] == "sliding_attention"
      if types[i] ~= "sliding_attention" and types[i] ~= "full_attention" then error(("config: layer_types[%d] = '%s' is not supported"):format(i, tostring(types[i])), 0) end
      if slides and not size then error("config: layer_types asks for sliding windows, but there is no size in use ('sliding_window', 'use_sliding_window')", 0) end
    elseif slides and kind ~= "mistral" then slides = i > (first or 0) end
    out[i] = slides and size or 0
  end
  return out
end

local function build(config, g)
  local kind = config.model_type
  local C, F = lib.integer(config, "hidden_size", 4096), lib.integer(config, "intermediate_size", 11008)
  local layers, heads = lib.integer(config, "num_hidden_layers", 32), lib.integer(config, "num_attention_heads", 32)
  local kv_heads = config.num_key_value_heads and lib.integer(config, "num_key_value_heads") or heads
  local D = config.head_dim and lib.integer(config, "head_dim") or C // heads
  local vocabulary, positions = lib.integer(config, "vocab_size", 32000), lib.integer(config, "max_position_embeddings", 2048)
  local eps, std = lib.number(config, "rms_norm_eps", 1e-6), lib.number(config, "initializer_range", 0.02)
  local tied = lib.boolean(config, "tie_word_embeddings", false)
  local attn_p = lib.number(config, "attention_dropout", 0.0)
  local qwen = kind == "qwen2"
  local attention_bias = lib.boolean(config, "attention_bias", false)
  local mlp_bias = lib.boolean(config, "mlp_bias", false)
  if config.hidden_act ~= nil and config.hidden_act ~= "silu" then error(("config: 'hidden_act' = '%s' is not supported (silu)"):format(tostring(config.hidden_act)), 0) end
  if heads % kv_heads ~= 0 then error(("config: num_attention_heads = %d does not divide by num_key_value_heads = %d"):format(heads, kv_heads), 0) end
  if D % 2 ~= 0 then error(("config: head_dim = %d is odd, RoPE turns pairs"):format(D), 0) end
  lib.check_length(g, positions, "max_position_embeddings")
  local window = windows(config, kind, layers)

  g:ignore("*.rotary_emb.inv_freq")
  if tied then g:ignore("lm_head.weight") end
  local function parameter(name, shape, init, no_decay, embedding)
    return g:parameter { name = name, shape = shape, init = init, decay = not no_decay, embedding = embedding }
  end
  local function norm(x, name, n, group)
    return g:node("rms_norm", name, { x, parameter(name .. ".weight", { n }, { "fill", value = 1.0 }, true) }, { eps = eps, group = group })
  end
  local function linear(x, name, n_in, n_out, bias)
    local w = parameter(name .. ".weight", { n_out, n_in }, { "random_normal", std = std })
    local b = bias and parameter(name .. ".bias", { n_out }, { "fill", value = 0.0 }, true)
    return g:node("linear", name, { x, w, b or nil }, { transposed = 0 })
  end

  local embed = parameter("model.embed_tokens.weight", { vocabulary, C }, { "random_normal", std = std }, false, true)
  local ids = g:input("position_ids")
  local rope = rope_attributes(config, D, positions)
  rope.positions = g.length   -- positions restart with each document: none is beyond the length of a row
  local table_ = g:constant { name = "rope table", shape = { g.length, D }, init = rope, op = "rope_table" }
  local function turn(x, name, n) return g:node("rope", name, { x, ids, table_ }, { heads = n, head_dim = D }) end

  local x = g:node("embedding", "model.embed_tokens", { g:input("input_ids"), embed })
  local random = attn_p > 0 and g:scalar("random") or nil
  for i = 0, layers - 1 do
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
    local a = g:node("attention", p .. "self_attn", { turn(q, attn .. "q_rope", heads), turn(k, attn .. "k_rope", kv_heads), v, g:input("first_key"), random or false },
      { heads = heads, kv_heads = kv_heads, head_dim = D, dropout = attn_p, window = window[i + 1] })
    x = g:node("add", p .. "residual_attention", { x, linear(a, attn .. "o_proj", heads * D, C, attention_bias and not qwen) })
    h = norm(x, p .. "post_attention_layernorm", C)
    local up = g:node("swiglu", p .. "mlp.act_fn", { linear(h, p .. "mlp.gate_proj", C, F, mlp_bias), linear(h, p .. "mlp.up_proj", C, F, mlp_bias) })
    x = g:node("add", p .. "residual_mlp", { x, linear(up, p .. "mlp.down_proj", F, C, mlp_bias) })
  end
  g:block(-1)
  g:mark_block_input(x)
  x = norm(x, "model.norm", C)
  g:mark_hidden(x)
  local head = tied and embed or parameter("lm_head.weight", { vocabulary, C }, { "random_normal", std = std })
  local logits = g:node("linear", "lm_head", { x, head }, { transposed = 0 })
  g:mark_logits(logits)
  g:loss("cross_entropy", "loss", { logits, g:input("labels") })
end

return {
  model_types = { "llama", "mistral", "qwen2", "qwen3" },
  architecture = { llama = "LlamaForCausalLM", mistral = "MistralForCausalLM", qwen2 = "Qwen2ForCausalLM", qwen3 = "Qwen3ForCausalLM" },
  harmless = {},
  build = build,
}
