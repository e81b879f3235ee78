-- GGUF files of the architecture "bert": encoders for embeddings. They are read, and not written: they have no head. Files of RoBERTa have
-- the same architecture, and their positions without those before the first.
local gguf = require "gguf"
local fail = gguf.fail

local names = {
  ["embeddings.word_embeddings"] = "token_embd", ["embeddings.position_embeddings"] = "position_embd",
  ["embeddings.token_type_embeddings"] = "token_types", ["embeddings.LayerNorm"] = "token_embd_norm",
}
local in_block = {
  ["attention.self.query"] = "attn_q", ["attention.self.key"] = "attn_k", ["attention.self.value"] = "attn_v",
  ["attention.output.dense"] = "attn_output", ["attention.output.LayerNorm"] = "attn_output_norm", ["intermediate.dense"] = "ffn_up",
  ["output.dense"] = "ffn_down", ["output.LayerNorm"] = "layer_output_norm",
}

return gguf.family {
  architectures = { "bert" }, parts = { gamma = "weight", beta = "bias" },
  keys = {
    { "vocab_size", name = "vocab_size" }, { "context_length", name = "max_position_embeddings", needed = true },
    { "embedding_length", name = "hidden_size", needed = true }, { "block_count", name = "num_hidden_layers", needed = true },
    { "feed_forward_length", name = "intermediate_size", needed = true },
    { "attention.head_count", name = "num_attention_heads", needed = true },
    { "attention.layer_norm_epsilon", name = "layer_norm_eps", needed = true, number = true },
  },
  -- How states become one is for whoever embeds to say.
  others = { ["attention.causal"] = true, ["attention.head_count_kv"] = true, pooling_type = true },
  read = function(out, file)
    out.model_type, out.architectures, out.hidden_act = "bert", { "BertModel" }, "gelu"
    if file.get "attention.causal" ~= false then fail("key '%sattention.causal' has to be false", file.prefix) end
    local kv, types = file.get "attention.head_count_kv", file.shapes["token_types.weight"]
    if kv and kv ~= out.num_attention_heads then
      fail("key '%sattention.head_count_kv' = %s is not supported (%s)", file.prefix, kv, out.num_attention_heads)
    end
    if not types then fail("there is no tensor 'token_types.weight'") end
    out.type_vocab_size, out.pad_token_id = types[1], file.about["tokenizer.ggml.padding_token_id"]
    out.tie_word_embeddings = true
  end,
  -- Heads are no part of such files; new ones begin as they do of any model without them.
  called = function(module)
    local inside = module:gsub("^bert%.", "")
    local block, inner = inside:match("^encoder%.layer%.(%d+)%.(.*)$")
    if block then return in_block[inner] and ("blk.%s.%s"):format(block, in_block[inner]) end
    return names[inside] or module
  end,
}
