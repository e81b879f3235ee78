-- GGUF files of the architectures "gemma", "gemma2" and "gemma3": Gemma's language models. The weights of norms have one added there.
local gguf, ropes = require "gguf", require "gguf.rope"
local fail = gguf.fail

local of_type = { gemma = "gemma", gemma2 = "gemma2", gemma3_text = "gemma3" }
local type_of = { gemma = "gemma", gemma2 = "gemma2", gemma3 = "gemma3_text" }
-- How often a layer sees the whole text, if the file does not say; and what the largest model is known by, whose attention is scaled
-- otherwise.
local pattern_of, largest = { gemma2 = 2, gemma3 = 6 }, { gemma2 = 46, gemma3 = 62 }

-- What llama.cpp takes for the configuration's query_pre_attn_scalar.
local function scalar_of(architecture, layers, C, heads, head_dim)
  return layers == largest[architecture] and C // heads or head_dim
end

local function layer_types(layers, pattern)
  local out = {}
  for i = 1, layers do
    local slides
    if type(pattern) == "table" then slides = pattern[i] == true or pattern[i] == 1
    else slides = pattern == 0 or i % pattern ~= 0 end
    out[i] = slides and "sliding_attention" or "full_attention"
  end
  return out
end

local function read(out, file)
  local architecture, get = file.architecture, file.get
  out.model_type = type_of[architecture]
  out.pad_token_id = file.about["tokenizer.ggml.padding_token_id"]
  local head_dim = ropes.head_dim(out, file)
  out.head_dim = head_dim
  ropes.turning(head_dim, file, true)
  local theta = out.rope_theta or 10000.0
  local scaling = ropes.read(file, theta, head_dim)
  local near = get "rope.freq_base_swa"
  if architecture == "gemma" then
    out.hidden_act, out.rope_scaling = "gelu_pytorch_tanh", scaling
    return
  end
  out.hidden_activation = "gelu_pytorch_tanh"
  local layers = out.num_hidden_layers
  if math.type(layers) ~= "integer" or layers > 4096 then fail("key '%sblock_count' = %s is no number of layers", file.prefix, layers) end
  local window, pattern = get "attention.sliding_window", get "attention.sliding_window_pattern"
  if architecture == "gemma2" then window = window or 4096 end
  if not window or window == 0 then window, pattern = nil, 1 end
  if pattern and type(pattern) ~= "table" and math.type(pattern) ~= "integer" then
    fail("key '%sattention.sliding_window_pattern' is no number and no list", file.prefix)
  end
  out.sliding_window, out.layer_types = window, layer_types(layers, pattern or pattern_of[architecture])
  local sizes = math.type(out.hidden_size) == "integer" and math.type(out.num_attention_heads) == "integer" and out.num_attention_heads > 0
  out.query_pre_attn_scalar = sizes and scalar_of(architecture, layers, out.hidden_size, out.num_attention_heads, head_dim) or head_dim
  if architecture == "gemma2" then
    if near and near ~= theta then fail("key '%srope.freq_base_swa' = %s is not '%srope.freq_base'", file.prefix, near, file.prefix) end
    out.rope_scaling = scaling
    out.attn_logit_softcapping = get "attn_logit_softcapping" or 50.0
    out.final_logit_softcapping = get "final_logit_softcapping" or 30.0
  else
    local cap = get "final_logit_softcapping"
    if cap and cap > 0 then out.final_logit_softcapping = cap end
    out.rope_theta = nil
    local whole = scaling or { rope_type = "default" }
    whole.rope_theta = theta
    out.rope_parameters = { full_attention = whole, sliding_attention = { rope_type = "default", rope_theta = near or 10000.0 } }
  end
end

-- Puts the window, and which layers have one.
local function put_windows(config, file)
  local types, usual = config.layer_types, layer_types(config.num_hidden_layers, pattern_of[file.architecture])
  local same, any, list = true, false, {}
  for i, kind in ipairs(types) do
    list[i] = kind == "sliding_attention"
    same, any = same and kind == usual[i], any or list[i]
  end
  -- A file of "gemma3" without a window has none; one of "gemma2" has the usual one, which is as long as the text here.
  if any then file.put("attention.sliding_window", config.sliding_window)
  elseif file.architecture == "gemma2" then file.put("attention.sliding_window", config.max_position_embeddings) end
  if any and not same then file.put("attention.sliding_window_pattern", list) end
end

local function write(config, file)
  local architecture = file.architecture
  gguf.only(config, architecture == "gemma" and "hidden_act" or "hidden_activation", "gelu_pytorch_tanh", "gelu_new", "gelu_fast",
    "gelu_python_tanh", "gelu_accurate")
  gguf.only(config, "attention_bias", false)
  if architecture ~= "gemma3" then gguf.only(config, "tie_word_embeddings", true) end
  local head_dim, rope = config.head_dim, config.rope_parameters or config.rope_scaling or { rope_type = "default" }
  local out = { head_dim = head_dim }
  file.put("attention.value_length", head_dim)
  if architecture == "gemma3" then
    local near = rope.sliding_attention
    rope = rope.full_attention
    if near.rope_type ~= "default" then
      fail("RoPE of type '%s' of layers with a window is not written (default)", tostring(near.rope_type))
    end
    file.put("rope.freq_base_swa", near.rope_theta + 0.0)
  end
  out.rope_theta = rope.rope_theta or config.rope_theta or 10000.0
  if rope.rope_type ~= "default" and rope.rope_type ~= "linear" then
    fail("RoPE of type '%s' is not written of such models (default, linear)", tostring(rope.rope_type))
  end
  ropes.write(rope, out.rope_theta, file, head_dim)
  if architecture == "gemma" then return out end
  local scalar = scalar_of(architecture, config.num_hidden_layers, config.hidden_size, config.num_attention_heads, head_dim)
  gguf.only(config, "query_pre_attn_scalar", scalar)
  put_windows(config, file)
  if architecture == "gemma2" then
    for _, key in ipairs { "attn_logit_softcapping", "final_logit_softcapping" } do
      if not config[key] then fail("llama.cpp always has '%s' in models of type 'gemma2', and here it is null", key) end
      file.put(key, config[key] + 0.0)
    end
  elseif config.final_logit_softcapping then file.put("final_logit_softcapping", config.final_logit_softcapping + 0.0) end
  return out
end

local function form(module, _, _)
  if module:find("norm$") then return { added = 1 } end
end

local others = { ["attention.sliding_window"] = true, ["attention.sliding_window_pattern"] = "list", ["rope.freq_base_swa"] = true,
  ["attn_logit_softcapping"] = true, ["final_logit_softcapping"] = true }
for key in pairs(ropes.keys) do others[key] = true end

return gguf.family {
  architectures = { "gemma", "gemma2", "gemma3" }, of_type = of_type, read = read, write = write, form = form, others = others,
  keys = gguf.decoder_keys, prefix = "model.", blocks = "^model%.layers%.(%d+)%.(.*)$",
  whole = { ["model.embed_tokens"] = "token_embd", ["model.norm"] = "output_norm", lm_head = "output" },
  block = {
    input_layernorm = "attn_norm", pre_feedforward_layernorm = "ffn_norm", post_feedforward_layernorm = "post_ffw_norm",
    post_attention_layernorm = { gemma = "ffn_norm", gemma2 = "post_attention_norm", gemma3_text = "post_attention_norm" },
    ["self_attn.q_proj"] = "attn_q", ["self_attn.k_proj"] = "attn_k", ["self_attn.v_proj"] = "attn_v", ["self_attn.o_proj"] = "attn_output",
    ["self_attn.q_norm"] = "attn_q_norm", ["self_attn.k_norm"] = "attn_k_norm",
    ["mlp.gate_proj"] = "ffn_gate", ["mlp.up_proj"] = "ffn_up", ["mlp.down_proj"] = "ffn_down",
  },
}
