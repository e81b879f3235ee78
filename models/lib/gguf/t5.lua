-- GGUF files of the architectures "t5", T5 and mT5, and "t5encoder", which is read: their encoders alone. llama.cpp does not scale what
-- the decoder makes, as the first T5 does before its head: the weights of the last norm are scaled instead, which is the same.
local gguf = require "gguf"
local fail = gguf.fail

local function read(out, file)
  local shapes, get = file.shapes, file.get
  out.model_type, out.scale_decoder_outputs = "t5", false
  if file.architecture == "t5encoder" then out.architectures = { "T5EncoderModel" } end
  out.feed_forward_proj = shapes["enc.blk.0.ffn_gate.weight"] and "gated-gelu" or "relu"
  out.relative_attention_max_distance = 128
  out.pad_token_id = file.about["tokenizer.ggml.padding_token_id"] or 0
  out.decoder_start_token_id = out.decoder_start_token_id or out.pad_token_id
  local whole = math.type(out.d_model) == "integer" and math.type(out.num_heads) == "integer" and out.num_heads > 0
  out.d_kv = out.d_kv or whole and out.d_model // out.num_heads or nil
  for key, wanted in pairs { ["attention.value_length"] = out.d_kv, ["attention.head_count_kv"] = out.num_heads } do
    local said = get(key)
    if said and said ~= wanted then fail("key '%s%s' = %s is not supported (%s)", file.prefix, key, said, wanted) end
  end
end

local function write(config, file)
  gguf.only(config, "dense_act_fn", config.is_gated_act and "gelu_new" or "relu")
  gguf.only(config, "relative_attention_max_distance", 128)
  if config.num_decoder_layers > config.num_layers then
    fail("llama.cpp reads no model with more layers of the decoder than of the encoder: 'num_decoder_layers' = %d, 'num_layers' = %d",
      config.num_decoder_layers, config.num_layers)
  end
  file.put("attention.value_length", config.d_kv)
  file.put("attention.layer_norm_epsilon", config.layer_norm_epsilon + 0.0)   -- which some programs want to be there
  return { n_positions = config.n_positions or 512, decoder_start_token_id = config.decoder_start_token_id or config.pad_token_id or 0 }
end

local of_attention = { q = "q", k = "k", v = "v", o = "o" }
local of_units = { wi = "ffn_up", wi_0 = "ffn_gate", wi_1 = "ffn_up", wo = "ffn_down" }
local whole = { shared = "token_embd", ["encoder.embed_tokens"] = "token_embd", ["decoder.embed_tokens"] = "token_embd", lm_head = "output",
  ["encoder.final_layer_norm"] = "enc.output_norm", ["decoder.final_layer_norm"] = "dec.output_norm" }

-- Layers of a block are its attention, in the decoder that to the source, and the units.
local function called(module)
  local stack, block, layer, inner = module:match("^(%a+)coder%.block%.(%d+)%.layer%.(%d)%.(.*)$")
  if not stack then return whole[module] end
  local norms = stack == "en" and { ["0"] = "attn_norm", ["1"] = "ffn_norm" }
    or { ["0"] = "attn_norm", ["1"] = "cross_attn_norm", ["2"] = "ffn_norm" }
  local part
  local own, cross = inner:match("^SelfAttention%.(.*)$"), inner:match("^EncDecAttention%.(.*)$")
  local units = inner:match("^DenseReluDense%.(.*)$")
  if inner == "layer_norm" then part = norms[layer]
  elseif own == "relative_attention_bias" then part = "attn_rel_b"
  elseif own then part = of_attention[own] and "attn_" .. own
  elseif cross then part = of_attention[cross] and "cross_attn_" .. cross
  elseif units then part = of_units[units] end
  return part and ("%sc.blk.%s.%s"):format(stack == "en" and "en" or "de", block, part)
end

return gguf.family {
  architectures = { "t5", "t5encoder" }, of_type = { t5 = "t5", mt5 = "t5" }, read = read, write = write, called = called,
  keys = {
    { "vocab_size", name = "vocab_size" }, { "context_length", name = "n_positions", needed = true },
    { "embedding_length", name = "d_model", needed = true }, { "feed_forward_length", name = "d_ff", needed = true },
    { "block_count", name = "num_layers", needed = true }, { "decoder_block_count", name = "num_decoder_layers" },
    { "attention.head_count", name = "num_heads", needed = true }, { "attention.key_length", name = "d_kv" },
    { "attention.layer_norm_rms_epsilon", name = "layer_norm_epsilon", needed = true, number = true },
    { "attention.relative_buckets_count", name = "relative_attention_num_buckets", needed = true },
    { "decoder_start_token_id", name = "decoder_start_token_id" },
  },
  others = { ["attention.value_length"] = true, ["attention.head_count_kv"] = true, ["attention.layer_norm_epsilon"] = true },
  form = function(module, _, config)
    if module == "decoder.final_layer_norm" and config.model_type == "t5" and config.scale_decoder_outputs then
      return { scale = config.d_model ^ -0.5 }
    end
  end,
}
