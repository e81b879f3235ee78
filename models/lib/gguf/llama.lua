-- GGUF files of the architectures "llama" (Llama and Mistral), "qwen2", "qwen3" and "phi3".
local gguf, ropes = require "gguf", require "gguf.rope"
local fail = gguf.fail

-- `paired`: rows of queries and keys are in the order of the architecture's own RoPE. `biases`: keys of config.json, and a tensor that a
-- file has where they are true. `fixed_heads`: the size of a head is no key of config.json.
local architectures = {
  llama = { paired = true, biases = { attention_bias = "attn_q.bias", mlp_bias = "ffn_gate.bias" } },
  qwen2 = {}, qwen3 = { biases = { attention_bias = "attn_q.bias" } }, phi3 = { fixed_heads = true },
}
local of_type = { llama = "llama", mistral = "llama", qwen2 = "qwen2", qwen3 = "qwen3", phi3 = "phi3" }
local windows = "attention.sliding_window"   -- where it is read: of "phi3"

local function read(out, file)
  local architecture = architectures[file.architecture]
  local fixed = architecture.fixed_heads
  out.model_type = file.architecture
  local window = file.get(windows)
  if window and not fixed then fail("key '%s%s' is not supported, and may change what the model computes", file.prefix, windows) end
  local head_dim = ropes.head_dim(out, file)
  local turning = ropes.turning(head_dim, file, not fixed)
  out.rope_scaling = ropes.read(file, out.rope_theta, turning)
  for key, bias in pairs(architecture.biases or {}) do out[key] = file.shapes["blk.0." .. bias] ~= nil end
  if not fixed then return end
  out.partial_rotary_factor = ropes.part(turning, head_dim)
  if out.rope_scaling then out.original_max_position_embeddings = out.rope_scaling.original_max_position_embeddings end
  out.head_dim, out.pad_token_id = nil, file.about["tokenizer.ggml.padding_token_id"]
  if window and window > 0 then out.sliding_window = window end
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

local function write(config, file)
  gguf.only(config, "hidden_act", "silu", "swish")
  if file.architecture == "qwen3" and config.attention_bias then fail("llama.cpp knows no 'attention_bias' of 'qwen3'") end
  local rope = config.rope_parameters or config.rope_scaling or { rope_type = "default" }
  local out = { head_dim = config.head_dim or config.hidden_size // config.num_attention_heads }
  local turning = math.floor(out.head_dim * (rope.partial_rotary_factor or config.partial_rotary_factor or 1))
  if turning % 2 ~= 0 then fail("%d elements of a head turn, and llama.cpp turns pairs ('partial_rotary_factor')", turning) end
  file.positions = config.max_position_embeddings
  out.rope_theta = rope.rope_theta or config.rope_theta or 10000.0
  local window = shortest_window(config)
  if window and window < config.max_position_embeddings then
    out.max_position_embeddings = window
    file.note("llama.cpp knows no sliding window of '%s': the file has a context of %d tokens, up to which both compute the same",
      config.model_type, window)
  end
  file.put("attention.value_length", out.head_dim)
  ropes.write(rope, out.rope_theta, file, turning)
  return out
end

-- RoPE turns neighbours in files of "llama": row s · half + i of a head (s = 0, 1) is row 2 · i + s of the head there.
local function form(module, _, config)
  if not architectures[of_type[config.model_type]].paired then return nil end
  local head_dim = config.head_dim or config.hidden_size // config.num_attention_heads
  if module == "self_attn.q_proj" then return { outer = config.num_attention_heads, a = 2, b = head_dim // 2 } end
  if module == "self_attn.k_proj" then return { outer = config.num_key_value_heads, a = 2, b = head_dim // 2 } end
end

local others = { [windows] = true }
for key in pairs(ropes.keys) do others[key] = true end

-- The field `gguf` of a family of these architectures.
return function(names)
  return gguf.family {
    architectures = names, of_type = of_type, read = read, write = write, form = form, others = others,
    ignored = { ropes.divisors, ropes.short, ropes.long },
    keys = gguf.decoder_keys, prefix = "model.", blocks = "^model%.layers%.(%d+)%.(.*)$",
    whole = { ["model.embed_tokens"] = "token_embd", ["model.norm"] = "output_norm", lm_head = "output" },
    block = {
      input_layernorm = "attn_norm", post_attention_layernorm = "ffn_norm",
      ["self_attn.q_proj"] = "attn_q", ["self_attn.k_proj"] = "attn_k", ["self_attn.v_proj"] = "attn_v",
      ["self_attn.o_proj"] = "attn_output", ["self_attn.q_norm"] = "attn_q_norm", ["self_attn.k_norm"] = "attn_k_norm",
      ["self_attn.qkv_proj"] = "attn_qkv", ["mlp.gate_up_proj"] = "ffn_up",
      ["mlp.gate_proj"] = "ffn_gate", ["mlp.up_proj"] = "ffn_up", ["mlp.down_proj"] = "ffn_down",
    },
  }
end
