-- GGUF files of the architecture "llama" (Llama and Mistral, as llama.cpp's convert_hf_to_gguf.py writes them): the configuration that
-- their keys say, in transformers' words, and what tensors are called there. Source: gguf-py/gguf/{constants,tensor_mapping}.py of
-- https://github.com/ggml-org/llama.cpp.
local prefix = "llama."

-- By key: the name in config.json. What has none is read below, or says nothing of the model's mathematics.
local keys = {
  vocab_size = "vocab_size", context_length = "max_position_embeddings", embedding_length = "hidden_size",
  block_count = "num_hidden_layers",
  feed_forward_length = "intermediate_size", ["attention.head_count"] = "num_attention_heads",
  ["attention.head_count_kv"] = "num_key_value_heads", ["attention.layer_norm_rms_epsilon"] = "rms_norm_eps",
  ["rope.freq_base"] = "rope_theta", ["attention.key_length"] = "head_dim", ["attention.value_length"] = false,
  ["rope.dimension_count"] = false, ["rope.scaling.type"] = false, ["rope.scaling.factor"] = false, ["rope.scaling.finetuned"] = false,
  ["rope.scaling.original_context_length"] = false, expert_count = false, expert_used_count = false,
}

local function fail(text, ...) error(text:format(...), 0) end

-- Llama 3's RoPE: what the file divides the frequencies by, as numbers of a tensor. Its parameters are those of all models of the kind,
-- but for the factor, which is that of the lowest frequency.
local freqs = "rope_freqs.weight"
local function llama3(divisors, theta, head_dim)
  local out = { rope_type = "llama3", factor = 1.0, low_freq_factor = 1.0, high_freq_factor = 4.0, original_max_position_embeddings = 8192 }
  for _, x in ipairs(divisors) do out.factor = math.max(out.factor, x) end
  if out.factor == 1 then return nil end
  local low, high = out.low_freq_factor, out.high_freq_factor
  for i = 1, head_dim // 2 do
    local turns = out.original_max_position_embeddings * theta ^ (-2 * (i - 1) / head_dim) / (2 * math.pi)
    local share = math.min(math.max((turns - low) / (high - low), 0), 1)
    local expected = 1 / ((1 - share) / out.factor + share)
    if not divisors[i] or math.abs(divisors[i] - expected) > 1e-4 * expected then
      fail("tensor '%s' is not of Llama 3's RoPE: number %d is %s, not %s", freqs, i, divisors[i], expected)
    end
  end
  return out
end

-- `about`: the file's keys. `shapes`: those of its tensors by name, as {rows, columns}. `short`: the numbers of short vectors, by name.
local function config(about, shapes, short)
  local function get(key) return about[prefix .. key] end
  local out = { model_type = "llama" }
  for key, value in pairs(about) do
    if key:sub(1, #prefix) == prefix then
      local name = keys[key:sub(#prefix + 1)]
      if name == nil then fail("key '%s' is not supported, and may change what the model computes", key) end
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
  local head_dim = out.head_dim or whole and out.hidden_size // out.num_attention_heads
  for _, key in ipairs { "rope.dimension_count", "attention.value_length" } do
    local size = get(key)
    if head_dim and size and size ~= head_dim then fail("key '%s' = %s is not the size of a head, %s", prefix .. key, size, head_dim) end
  end
  local scaling, factor = get("rope.scaling.type") or "none", get("rope.scaling.factor")
  if scaling == "linear" then out.rope_scaling = { rope_type = "linear", factor = factor }
  elseif scaling ~= "none" then fail("RoPE of type '%s' ('%srope.scaling.type') is not supported (none, linear)", scaling, prefix) end
  if shapes[freqs] then
    if not short[freqs] or not head_dim then fail("tensor '%s' is not a short vector in F32", freqs) end
    if out.rope_scaling then fail("both '%srope.scaling.type' and tensor '%s' change RoPE", prefix, freqs) end
    out.rope_scaling = llama3(short[freqs], out.rope_theta or 10000.0, head_dim)
  end
  local table_ = shapes["token_embd.weight"]
  if not table_ or #table_ ~= 2 then fail("there is no tensor 'token_embd.weight' with rows and columns") end
  out.vocab_size = out.vocab_size or table_[1]
  out.tie_word_embeddings = shapes["output.weight"] == nil
  out.attention_bias = shapes["blk.0.attn_q.bias"] ~= nil
  out.mlp_bias = shapes["blk.0.ffn_gate.bias"] ~= nil
  out.bos_token_id, out.eos_token_id = about["tokenizer.ggml.bos_token_id"], about["tokenizer.ggml.eos_token_id"]
  return out
end

local whole_model = { ["model.embed_tokens"] = "token_embd", ["model.norm"] = "output_norm", lm_head = "output" }
local of_block = {
  input_layernorm = "attn_norm", post_attention_layernorm = "ffn_norm",
  ["self_attn.q_proj"] = "attn_q", ["self_attn.k_proj"] = "attn_k", ["self_attn.v_proj"] = "attn_v", ["self_attn.o_proj"] = "attn_output",
  ["mlp.gate_proj"] = "ffn_gate", ["mlp.up_proj"] = "ffn_up", ["mlp.down_proj"] = "ffn_down",
}

-- What the file calls a parameter; and of queries and keys, which it holds in the order of its own RoPE, how many heads they have.
local function tensor(name, config)
  local module, part = name:match("^(.*)%.(%w+)$")
  if module ~= "lm_head" and not module:find("^model%.") then module = "model." .. module end   -- one of LlamaModel's
  local block, inner = module:match("^model%.layers%.(%d+)%.(.*)$")
  local heads
  if inner == "self_attn.q_proj" then heads = config.num_attention_heads
  elseif inner == "self_attn.k_proj" then heads = config.num_key_value_heads end
  local called = block and of_block[inner] and ("blk.%s.%s"):format(block, of_block[inner]) or whole_model[module]
  if not called then fail("no tensor of a GGUF file is '%s'", name) end
  return ("%s.%s"):format(called, part), heads or 0
end

return { architectures = { "llama" }, config = config, tensor = tensor, ignored = { freqs } }
