-- GGUF files of the architectures "gpt2", "gptneox" and "bloom": decoders with LayerNorm, whose queries, keys and values are one product.
-- llama.cpp has GPT-2's weights the other way round, and the rows of the other two's products by kind and not by head.
local gguf, ropes = require "gguf", require "gguf.rope"
local fail = gguf.fail
local tanh = { "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_python_tanh", "gelu_accurate" }
local M = {}

local function keys(names)
  local out = {}
  for _, key in ipairs { "vocab_size", "context_length", "embedding_length", "block_count", "feed_forward_length",
    "attention.head_count" } do
    out[#out + 1] = { key, name = names[key] or key, needed = key ~= "vocab_size" }
  end
  out[#out + 1] = { "attention.layer_norm_epsilon", name = names.eps, needed = true, number = true }
  return out
end

-- All of them have as many heads of keys as of queries, and of one size.
local function check_heads(out, file, C, heads)
  for _, key in ipairs { "attention.head_count_kv", "attention.key_length", "attention.value_length" } do
    local said = file.get(key)
    local wanted = key == "attention.head_count_kv" and heads
      or math.type(C) == "integer" and math.type(heads) == "integer" and heads > 0 and C // heads
    if said and wanted and said ~= wanted then fail("key '%s%s' = %s is not supported (%s)", file.prefix, key, said, wanted) end
  end
  out.pad_token_id = file.about["tokenizer.ggml.padding_token_id"]
end

local heads_keys = { ["attention.head_count_kv"] = true, ["attention.key_length"] = true, ["attention.value_length"] = true }
local function others(more)
  local out = {}
  for _, set in ipairs { heads_keys, more } do for key in pairs(set) do out[key] = true end end
  return out
end

-- A product's parameter has the rows (heads, 3, rest), and the file (3, heads, rest).
local function by_kind(product, heads)
  return function(module, _, config)
    if module == product then return { a = config[heads], b = 3 } end
  end
end

M.gpt2 = gguf.family {
  architectures = { "gpt2" }, of_type = { gpt2 = "gpt2" }, others = others {},
  keys = keys { vocab_size = "vocab_size", context_length = "n_positions", embedding_length = "n_embd", block_count = "n_layer",
    feed_forward_length = "n_inner", ["attention.head_count"] = "n_head", eps = "layer_norm_epsilon" },
  prefix = "transformer.", blocks = "^transformer%.h%.(%d+)%.(.*)$",
  whole = { ["transformer.wte"] = "token_embd", ["transformer.wpe"] = "position_embd", ["transformer.ln_f"] = "output_norm",
    lm_head = "output" },
  block = { ln_1 = "attn_norm", ["attn.c_attn"] = "attn_qkv", ["attn.c_proj"] = "attn_output", ln_2 = "ffn_norm", ["mlp.c_fc"] = "ffn_up",
    ["mlp.c_proj"] = "ffn_down" },
  read = function(out, file)
    check_heads(out, file, out.n_embd, out.n_head)
    out.model_type, out.activation_function = "gpt2", "gelu_new"
  end,
  write = function(config)
    gguf.only(config, "activation_function", table.unpack(tanh))
    gguf.only(config, "scale_attn_weights", true)
    gguf.only(config, "scale_attn_by_inverse_layer_idx", false)
    return { n_inner = config.n_inner or 4 * config.n_embd }
  end,
  form = function(module, part)
    if part == "weight" and module:find("%.c_") then return { turned = 1 } end
  end,
}

M.gpt_neox = gguf.family {
  architectures = { "gptneox" }, of_type = { gpt_neox = "gptneox" },
  others = (function()
    local out = others(ropes.keys)
    out["rope.freq_base"], out.use_parallel_residual = true, true
    return out
  end)(),
  keys = keys { vocab_size = "vocab_size", context_length = "max_position_embeddings", embedding_length = "hidden_size",
    block_count = "num_hidden_layers", feed_forward_length = "intermediate_size", ["attention.head_count"] = "num_attention_heads",
    eps = "layer_norm_eps" },
  prefix = "gpt_neox.", blocks = "^gpt_neox%.layers%.(%d+)%.(.*)$",
  whole = { ["gpt_neox.embed_in"] = "token_embd", ["gpt_neox.final_layer_norm"] = "output_norm", embed_out = "output",
    lm_head = "output" },
  block = { input_layernorm = "attn_norm", ["attention.query_key_value"] = "attn_qkv", ["attention.dense"] = "attn_output",
    post_attention_layernorm = "ffn_norm", ["mlp.dense_h_to_4h"] = "ffn_up", ["mlp.dense_4h_to_h"] = "ffn_down" },
  read = function(out, file)
    check_heads(out, file, out.hidden_size, out.num_attention_heads)
    out.model_type, out.hidden_act = "gpt_neox", "gelu"
    local parallel, theta = file.get "use_parallel_residual", file.get "rope.freq_base" or 10000.0
    if type(parallel) ~= "boolean" then fail("there is no key '%suse_parallel_residual', true or false", file.prefix) end
    out.use_parallel_residual = parallel
    local head_dim = ropes.head_dim(out, file)
    local turning = ropes.turning(head_dim, file)
    local scaling = ropes.read(file, theta, turning) or { rope_type = "default" }
    scaling.rope_theta = theta
    scaling.partial_rotary_factor = ropes.part(turning, head_dim)
    out.rope_parameters = scaling
  end,
  write = function(config, file)
    gguf.only(config, "hidden_act", "gelu", "gelu_python")
    gguf.only(config, "attention_bias", true)
    if config.tie_word_embeddings then fail("llama.cpp reads no model of type 'gpt_neox' whose head is its embedding") end
    file.note("llama.cpp approximates GELU by tanh, where the model has the exact one: its activations differ by up to 0.0005")
    local head_dim, rope = config.hidden_size // config.num_attention_heads, config.rope_parameters or config.rope_scaling
    rope = rope or { rope_type = "default" }
    local theta = rope.rope_theta or config.rotary_emb_base or 10000.0
    local turning = math.floor(head_dim * (rope.partial_rotary_factor or config.rotary_pct or 1))
    if turning % 2 ~= 0 then fail("%d elements of a head turn, and llama.cpp turns pairs ('rotary_pct')", turning) end
    file.put("use_parallel_residual", config.use_parallel_residual)
    file.put("rope.freq_base", theta + 0.0)
    ropes.write(rope, theta, file, turning)
    return {}
  end,
  form = by_kind("attention.query_key_value", "num_attention_heads"),
}

M.bloom = gguf.family {
  architectures = { "bloom" }, of_type = { bloom = "bloom" }, others = others {},
  keys = keys { vocab_size = "vocab_size", context_length = "seq_length", embedding_length = "hidden_size", block_count = "n_layer",
    feed_forward_length = "n_inner", ["attention.head_count"] = "n_head", eps = "layer_norm_epsilon" },
  prefix = "transformer.", blocks = "^transformer%.h%.(%d+)%.(.*)$",
  whole = { ["transformer.word_embeddings"] = "token_embd", ["transformer.word_embeddings_layernorm"] = "token_embd_norm",
    ["transformer.ln_f"] = "output_norm", lm_head = "output" },
  block = { input_layernorm = "attn_norm", ["self_attention.query_key_value"] = "attn_qkv", ["self_attention.dense"] = "attn_output",
    post_attention_layernorm = "ffn_norm", ["mlp.dense_h_to_4h"] = "ffn_up", ["mlp.dense_4h_to_h"] = "ffn_down" },
  read = function(out, file)
    check_heads(out, file, out.hidden_size, out.n_head)
    out.model_type = "bloom"
    if out.n_inner ~= 4 * out.hidden_size then
      fail("key '%sfeed_forward_length' = %s is not four times '%sembedding_length'", file.prefix, out.n_inner, file.prefix)
    end
  end,
  write = function(config, file)
    gguf.only(config, "apply_residual_connection_post_layernorm", false)
    file.put("attention.head_count_kv", config.n_head)
    -- The model knows no longest text; the first files say what it was trained with.
    return { n_inner = 4 * config.hidden_size, seq_length = config.seq_length or 2048 }
  end,
  form = by_kind("self_attention.query_key_value", "n_head"),
}

return M
