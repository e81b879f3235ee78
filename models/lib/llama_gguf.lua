-- GGUF files of the architectures "llama" (Llama and Mistral), "qwen2", "qwen3" and "phi3", as llama.cpp reads and its
-- convert_hf_to_gguf.py writes them: what their keys say in transformers' words, and what tensors are called there. The tables serve both
-- directions. Source: gguf-py/gguf/{constants,tensor_mapping}.py of https://github.com/ggml-org/llama.cpp.

-- `paired`: rows of queries and keys are in the order of the architecture's own RoPE. `biases`: keys of config.json, and a tensor that a
-- file has where they are true. `fixed_heads`: the size of a head is no key of config.json.
local architectures = {
  llama = { paired = true, biases = { attention_bias = "attn_q.bias", mlp_bias = "ffn_gate.bias" } },
  qwen2 = {}, qwen3 = { biases = { attention_bias = "attn_q.bias" } }, phi3 = { fixed_heads = true },
}
local of_type = { llama = "llama", mistral = "llama", qwen2 = "qwen2", qwen3 = "qwen3", phi3 = "phi3" }

-- Keys in the order in which they are written, and their names in config.json.
local keys = {
  { "vocab_size", "vocab_size" }, { "context_length", "max_position_embeddings" }, { "embedding_length", "hidden_size" },
  { "block_count", "num_hidden_layers" }, { "feed_forward_length", "intermediate_size" },
  { "attention.head_count", "num_attention_heads" }, { "attention.head_count_kv", "num_key_value_heads" },
  { "attention.key_length", "head_dim" }, { "attention.layer_norm_rms_epsilon", "rms_norm_eps" }, { "rope.freq_base", "rope_theta" },
}
-- Those that are read below, or say nothing of the model's mathematics.
local others = {}
for _, key in ipairs { "attention.value_length", "rope.dimension_count", "rope.scaling.type", "rope.scaling.factor",
  "rope.scaling.finetuned", "rope.scaling.original_context_length", "expert_count", "expert_used_count" } do others[key] = true end
local windows = "attention.sliding_window"   -- where it is read: of "phi3"
local name_of = {}
for _, key in ipairs(keys) do name_of[key[1]] = key[2] end

local function fail(text, ...) error(text:format(...), 0) end

-- Llama 3's RoPE: what the file divides the frequencies by, as numbers of a tensor. Its parameters are those of all models of the kind,
-- but for the factor, which is that of the lowest frequency.
local freqs = "rope_freqs.weight"
local function divisors_of(rope, theta, head_dim)
  local low, high, out = rope.low_freq_factor, rope.high_freq_factor, {}
  for i = 1, head_dim // 2 do
    local turns = rope.original_max_position_embeddings * theta ^ (-2 * (i - 1) / head_dim) / (2 * math.pi)
    local share = math.min(math.max((turns - low) / (high - low), 0), 1)
    out[i] = 1 / ((1 - share) / rope.factor + share)
  end
  return out
end
local function llama3(divisors, theta, head_dim, original)
  local out = { rope_type = "llama3", factor = 1.0, low_freq_factor = 1.0, high_freq_factor = 4.0,
    original_max_position_embeddings = original or 8192 }
  for _, x in ipairs(divisors) do out.factor = math.max(out.factor, x) end
  if out.factor == 1 then return nil end
  for i, expected in ipairs(divisors_of(out, theta, head_dim)) do
    if not divisors[i] or math.abs(divisors[i] - expected) > 1e-4 * expected then
      fail("tensor '%s' is not of Llama 3's RoPE: number %d is %s, not %s", freqs, i, divisors[i], expected)
    end
  end
  return out
end

-- `about`: the file's keys. `shapes`: those of its tensors by name, as {rows, columns}. `short`: the numbers of short vectors, by name.
local function config(about, shapes, short)
  local architecture = about["general.architecture"]
  local prefix = architecture .. "."
  local function get(key) return about[prefix .. key] end
  local out, fixed = { model_type = architecture }, architectures[architecture].fixed_heads
  for key, value in pairs(about) do
    if key:sub(1, #prefix) == prefix then
      local rest = key:sub(#prefix + 1)
      local name = name_of[rest]
      if not name and not others[rest] and not (fixed and rest == windows) then
        fail("key '%s' is not supported, and may change what the model computes", key)
      end
      -- A list has a number for each layer.
      if type(value) == "table" then
        for _, of_layer in ipairs(value) do
          if of_layer ~= value[1] then fail("key '%s' is not the same in all layers, which is not supported", key) end
        end
        value = value[1]
      end
      if name then out[name] = value end
    end
  end
  for _, key in ipairs { "embedding_length", "block_count", "feed_forward_length", "context_length", "attention.head_count",
    "attention.layer_norm_rms_epsilon" } do
    if get(key) == nil then fail("there is no key '%s'", prefix .. key) end
  end
  if (get("expert_count") or 0) ~= 0 then fail("the model has experts ('%sexpert_count'), which is not supported", prefix) end
  local whole = math.type(out.hidden_size) == "integer" and math.type(out.num_attention_heads) == "integer" and out.num_attention_heads > 0
  local head_dim = not fixed and out.head_dim or whole and out.hidden_size // out.num_attention_heads
  for _, key in ipairs { "rope.dimension_count", "attention.value_length", "attention.key_length" } do
    local size = get(key)
    if head_dim and size and size ~= head_dim then fail("key '%s' = %s is not the size of a head, %s", prefix .. key, size, head_dim) end
  end
  local scaling, factor = get("rope.scaling.type") or "none", get("rope.scaling.factor")
  if scaling == "linear" then out.rope_scaling = { rope_type = "linear", factor = factor }
  elseif scaling ~= "none" then fail("RoPE of type '%s' ('%srope.scaling.type') is not supported (none, linear)", scaling, prefix) end
  if shapes[freqs] then
    if not short[freqs] or not head_dim then fail("tensor '%s' is not a short vector in F32", freqs) end
    if out.rope_scaling then fail("both '%srope.scaling.type' and tensor '%s' change RoPE", prefix, freqs) end
    out.rope_scaling = llama3(short[freqs], out.rope_theta or 10000.0, head_dim, get("rope.scaling.original_context_length"))
  end
  local table_ = shapes["token_embd.weight"]
  if not table_ or #table_ ~= 2 then fail("there is no tensor 'token_embd.weight' with rows and columns") end
  out.vocab_size = out.vocab_size or table_[1]
  out.tie_word_embeddings = shapes["output.weight"] == nil
  for key, bias in pairs(architectures[architecture].biases or {}) do out[key] = shapes["blk.0." .. bias] ~= nil end
  if fixed then
    out.head_dim, out.pad_token_id = nil, about["tokenizer.ggml.padding_token_id"]
    local window = get(windows)
    if window and window > 0 then out.sliding_window = window end
  end
  out.bos_token_id, out.eos_token_id = about["tokenizer.ggml.bos_token_id"], about["tokenizer.ggml.eos_token_id"]
  return out
end

-- Whatever layer has the shortest window, as far back as it every model sees the same.
local function shortest_window(config)
  local size = config.sliding_window
  if not math.type(size) or config.model_type == "llama" then return nil end
  if config.model_type == "mistral" or config.model_type == "phi3" then return size end
  local slides = config.use_sliding_window and config.num_hidden_layers > (config.max_window_layers or 0)
  for _, kind in ipairs(config.layer_types or {}) do slides = slides or kind == "sliding_attention" end
  return slides and size or nil
end

-- The other way: the keys of the file of a configuration in which the family has filled in every default; vectors that the file has beside
-- the parameters; and what is to be said of it. What llama.cpp would compute otherwise is refused.
local function write(config)
  local architecture = of_type[config.model_type]
  local out = { architecture = architecture, keys = {}, tensors = {}, notes = {} }
  local function put(key, value) out.keys[#out.keys + 1] = { architecture .. "." .. key, value } end
  local act = config.hidden_act
  if act and act ~= "silu" and act ~= "swish" then fail("llama.cpp computes 'silu' in such models, and 'hidden_act' is '%s'", act) end
  if architecture == "qwen3" and config.attention_bias then fail("llama.cpp knows no 'attention_bias' of 'qwen3'") end
  local rope = config.rope_parameters or config.rope_scaling or { rope_type = "default" }
  local theta = (rope.rope_theta or config.rope_theta or 10000.0) + 0.0
  local turning = rope.partial_rotary_factor or config.partial_rotary_factor or 1
  if turning ~= 1 then fail("'partial_rotary_factor' = %s is not written (1)", turning) end
  local head_dim = config.head_dim or config.hidden_size // config.num_attention_heads
  local window, positions = shortest_window(config), config.max_position_embeddings
  if window and window < positions then
    positions = window
    out.notes[1] = ("llama.cpp knows no sliding window of '%s': the file has a context of %d tokens, up to which both compute the same")
      :format(config.model_type, window)
  end
  for _, key in ipairs(keys) do
    local value = config[key[2]]
    if key[1] == "context_length" then value = positions
    elseif key[1] == "attention.key_length" then value = head_dim
    elseif key[1] == "rope.freq_base" then value = theta
    elseif key[1] == "attention.layer_norm_rms_epsilon" then value = value + 0.0 end
    put(key[1], value)
  end
  put("attention.value_length", head_dim)
  put("rope.dimension_count", head_dim)
  local kind = rope.rope_type or rope.type or "default"
  if kind == "linear" then
    put("rope.scaling.type", "linear")
    put("rope.scaling.factor", rope.factor + 0.0)
  elseif kind == "llama3" then
    if rope.low_freq_factor ~= 1 or rope.high_freq_factor ~= 4 then
      fail("RoPE of type 'llama3' with 'low_freq_factor' = %s and 'high_freq_factor' = %s is not written (1, 4)", rope.low_freq_factor,
        rope.high_freq_factor)
    end
    put("rope.scaling.original_context_length", rope.original_max_position_embeddings)
    out.tensors[freqs] = divisors_of(rope, theta, head_dim)
  elseif kind ~= "default" then fail("RoPE of type '%s' is not written (default, linear, llama3)", kind) end
  return out
end

local whole_model = { ["model.embed_tokens"] = "token_embd", ["model.norm"] = "output_norm", lm_head = "output" }
local of_block = {
  input_layernorm = "attn_norm", post_attention_layernorm = "ffn_norm",
  ["self_attn.q_proj"] = "attn_q", ["self_attn.k_proj"] = "attn_k", ["self_attn.v_proj"] = "attn_v", ["self_attn.o_proj"] = "attn_output",
  ["self_attn.q_norm"] = "attn_q_norm", ["self_attn.k_norm"] = "attn_k_norm",
  ["self_attn.qkv_proj"] = "attn_qkv", ["mlp.gate_up_proj"] = "ffn_up",
  ["mlp.gate_proj"] = "ffn_gate", ["mlp.up_proj"] = "ffn_up", ["mlp.down_proj"] = "ffn_down",
}

-- What the file calls a parameter; and of queries and keys, which it holds in the order of its own RoPE, how many heads they have.
local function tensor(name, config)
  local module, part = name:match("^(.*)%.(%w+)$")
  if module ~= "lm_head" and not module:find("^model%.") then module = "model." .. module end   -- one of LlamaModel's
  local block, inner = module:match("^model%.layers%.(%d+)%.(.*)$")
  local heads
  if not architectures[of_type[config.model_type]].paired then heads = 0
  elseif inner == "self_attn.q_proj" then heads = config.num_attention_heads
  elseif inner == "self_attn.k_proj" then heads = config.num_key_value_heads end
  local called = block and of_block[inner] and ("blk.%s.%s"):format(block, of_block[inner]) or whole_model[module]
  if not called then fail("no tensor of a GGUF file is '%s'", name) end
  return ("%s.%s"):format(called, part), heads or 0
end

local adapters = require "adapter_gguf"
local function adapter(about, shapes, config) return adapters(about, shapes, tensor, config) end

-- The field `gguf` of a family of these architectures.
return function(names)
  return { architectures = names, config = config, write = write, adapter = adapter, tensor = tensor, ignored = { freqs } }
end
