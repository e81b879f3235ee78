-- Gemma: Gemma Team: "Gemma", arXiv:2403.08295, "Gemma 2", arXiv:2408.00118, "Gemma 3", arXiv:2503.19786. Norms are stored as what they
-- differ from 1 by, embeddings are scaled, gates are GELU. Gemma 2 caps scores and logits and normalizes after each part, too; Gemma 3
-- normalizes queries and keys, and local layers have a RoPE of their own. Parameters as transformers names them.
local lib, layers, ropes = require "config", require "layers", require "rope"

local defaults = {
  gemma = { C = 3072, F = 24576, layers = 28, heads = 16, kv_heads = 16, positions = 8192, vocabulary = 256000, act = "hidden_act" },
  gemma2 = { C = 2304, F = 9216, layers = 26, heads = 8, kv_heads = 4, positions = 8192, vocabulary = 256000, act = "hidden_activation",
    pattern = 2, cap = 30.0, attn_cap = 50.0 },
  gemma3_text = { C = 2304, F = 9216, layers = 26, heads = 8, kv_heads = 4, positions = 131072, vocabulary = 262208,
    act = "hidden_activation", pattern = 6 },
}

-- Gemma 3's RoPE of whole and of local layers, from new configurations (a table for each) and old ones.
local function two_ropes(config, D, positions, g)
  local new, out = config.rope_parameters, {}
  local function each(kind, theta_key, theta, scaling)
    local given, called = {}, "rope_parameters." .. kind
    if type(new) == "table" and new[kind] ~= nil then given = new[kind] end
    if scaling ~= nil then given, called = scaling, "rope_scaling" end
    if config[theta_key] ~= nil then theta = lib.positive(config, theta_key) end
    out[kind] = ropes.parameters(config, given, called, { theta = theta })
    return ropes.turner(g, out[kind], D, positions, "rope table of " .. kind)
  end
  local whole = each("full_attention", "rope_theta", 1000000.0, config.rope_scaling)
  local near = each("sliding_attention", "rope_local_base_freq", 10000.0)
  config.rope_parameters = out
  return whole, near
end

local function build(config, g)
  local kind = config.model_type
  local d = defaults[kind]
  local third = kind == "gemma3_text"
  local C, F = lib.integer(config, "hidden_size", d.C), lib.integer(config, "intermediate_size", d.F)
  local n_layers, heads = lib.integer(config, "num_hidden_layers", d.layers), lib.integer(config, "num_attention_heads", d.heads)
  local kv_heads, D = lib.integer(config, "num_key_value_heads", d.kv_heads), lib.integer(config, "head_dim", 256)
  local vocabulary, positions = lib.integer(config, "vocab_size", d.vocabulary), lib.integer(config, "max_position_embeddings", d.positions)
  local eps, std = lib.number(config, "rms_norm_eps", 1e-6), lib.number(config, "initializer_range", 0.02)
  local tied, bias = lib.boolean(config, "tie_word_embeddings", true), lib.boolean(config, "attention_bias", false)
  local attn_p = lib.share(config, "attention_dropout", 0.0)
  local act
  if kind == "gemma" then
    -- The first files say "gelu" and mean its approximation. transformers does not read "hidden_activation" beside it.
    if config.hidden_act == "gelu" then config.hidden_act = "gelu_pytorch_tanh" end
    act = lib.gate(config, "hidden_act", "gelu_pytorch_tanh")
  else
    act = lib.gate(config, d.act, "gelu_pytorch_tanh")
  end
  if heads % kv_heads ~= 0 then
    error(("config: num_attention_heads = %d does not divide by num_key_value_heads = %d"):format(heads, kv_heads), 0)
  end
  if config.use_bidirectional_attention then error("config: 'use_bidirectional_attention' is not supported", 0) end
  lib.check_length(g, positions, "max_position_embeddings")
  local scale, window, types = 1 / math.sqrt(D), {}, {}
  if kind ~= "gemma" then
    local scalar = lib.positive(config, "query_pre_attn_scalar", 256)
    -- transformers reads an integer only; some programs write it as 256.0.
    config.query_pre_attn_scalar = math.tointeger(scalar) or scalar
    scale = 1 / math.sqrt(scalar)
    local pattern = third and lib.optional_integer(config, "sliding_window_pattern") or d.pattern
    for i = 1, n_layers do types[i] = i % pattern ~= 0 and "sliding_attention" or "full_attention" end
    window, types = lib.windows(config, n_layers, lib.optional_integer(config, "sliding_window", 4096), types)
  else
    lib.same_layers(config, n_layers)
  end
  local cap = d.pattern and lib.optional_positive(config, "final_logit_softcapping", d.cap)
  -- Configurations of Gemma 3 have the key, and its model does not go by it.
  local attn_cap = kind == "gemma2" and lib.optional_positive(config, "attn_logit_softcapping", d.attn_cap)

  local L = layers.new(g, { prefix = "model.", std = std, bare = true })
  local whole, near
  if third then whole, near = two_ropes(config, D, positions, g) else whole = ropes.turner(g, ropes.read(config), D, positions) end
  local function norm(x, name, n, group) return L.rms_norm(x, name, n, eps, { offset = 1, group = group }) end
  local x, embedding = L.embedding(g:input { name = "input_ids", below = vocabulary }, "embed_tokens", vocabulary, C,
    lib.tied_to("lm_head.weight", tied, lib.padding(config, vocabulary, 0)))
  x = g:node("scale", "model.embed_scale", { x }, { alpha = math.sqrt(C) })
  for i = 0, n_layers - 1 do
    local at, size = ("layers.%d."):format(i), window[i + 1]
    local turn = size and near or whole
    g:block(i)
    g:mark_block_input(x)
    local h = norm(x, at .. "input_layernorm", C)
    local q = L.linear(h, at .. "self_attn.q_proj", C, heads * D, { bias = bias })
    local k = L.linear(h, at .. "self_attn.k_proj", C, kv_heads * D, { bias = bias })
    local v = L.linear(h, at .. "self_attn.v_proj", C, kv_heads * D, { bias = bias })
    if third then q, k = norm(q, at .. "self_attn.q_norm", D, D), norm(k, at .. "self_attn.k_norm", D, D) end
    q = turn(q, "model." .. at .. "self_attn.q_rope", heads)
    k = turn(k, "model." .. at .. "self_attn.k_rope", kv_heads)
    local a = L.attention(at .. "self_attn", { q = q, k = k, v = v, first = g:input("first_key") }, { heads = heads, kv_heads = kv_heads,
      head_dim = D, scale = scale, softcap = attn_cap, window = size and size < g.length and size or 0, dropout = attn_p })
    a = L.linear(a, at .. "self_attn.o_proj", heads * D, C, { bias = bias })
    if d.pattern then a = norm(a, at .. "post_attention_layernorm", C) end
    x = L.add(x, a, at .. "residual_attention")
    h = norm(x, at .. (d.pattern and "pre_feedforward_layernorm" or "post_attention_layernorm"), C)
    local gate, up = L.linear(h, at .. "mlp.gate_proj", C, F), L.linear(h, at .. "mlp.up_proj", C, F)
    h = L.linear(g:node("swiglu", "model." .. at .. "mlp.act_fn", { gate, up }, { activation = act }), at .. "mlp.down_proj", F, C)
    if d.pattern then h = norm(h, at .. "post_feedforward_layernorm", C) end
    x = L.add(x, h, at .. "residual_mlp")
  end
  g:block(-1)
  g:mark_block_input(x)
  lib.causal_head(g, L, norm(x, "norm", C), embedding, C, vocabulary, tied, { cap = cap })
end

local tasks = lib.decoder_tasks { gemma = "Gemma", gemma2 = "Gemma2", gemma3_text = "Gemma3Text" }
tasks[1].architecture.gemma3_text = "Gemma3ForCausalLM"

return {
  model_types = { "gemma", "gemma2", "gemma3_text" },
  tasks = tasks,
  harmless = { "hidden_act", "hidden_activation", "cache_implementation", "sliding_window_size", "_sliding_window_pattern",
    "attn_logit_softcapping" },
  gguf = require "gguf.gemma",
  build = build,
}
