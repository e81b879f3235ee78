-- What families share in reading a Hugging Face config.json.
local M = {}

-- Keys that do not change what a model computes in training: provenance, generation, tokens, storage. Everything else must be read by the
-- family, or the host refuses the model by the key's name.
M.harmless = {
  "_name_or_path", "architectures", "model_type", "transformers_version", "torch_dtype", "dtype", "use_cache", "auto_map", "_attn_implementation",
  "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id", "tokenizer_class", "prefix", "unk_token_id",
  "task_specific_params", "problem_type", "finetuning_task", "id2label", "label2id", "num_labels", "classifier_dropout",
  "initializer_range", "pretraining_tp", "is_decoder", "is_encoder_decoder", "output_attentions", "output_hidden_states", "return_dict",
  "gradient_checkpointing", "keys_to_ignore_at_inference", "max_length", "min_length", "do_sample", "early_stopping", "num_beams",
  "num_beam_groups", "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty",
  "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "chunk_size_feed_forward",
  "output_scores", "return_dict_in_generate", "forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values",
  "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens", "torchscript", "use_bfloat16", "tf_legacy_loss",
  "pruned_heads", "cross_attention_hidden_size", "is_llama_config", "rope_interleaved", "transformers.js_config", "license",
}

function M.integer(config, key, default)
  local v = config[key]
  if v == nil then v = default end
  if math.type(v) ~= "integer" or v < 1 then error(("config: '%s' must be a positive integer, got %s"):format(key, tostring(v)), 0) end
  return v
end

function M.number(config, key, default)
  local v = config[key]
  if v == nil then v = default end
  if type(v) ~= "number" then error(("config: '%s' must be a number, got %s"):format(key, tostring(v)), 0) end
  return v
end

function M.boolean(config, key, default)
  local v = config[key]
  if v == nil then v = default end
  if type(v) ~= "boolean" then error(("config: '%s' must be true or false, got %s"):format(key, tostring(v)), 0) end
  return v
end

-- The names of transformers' activations, as op and attributes.
local activations = {
  gelu = { "gelu", { approximate = "none" } }, gelu_new = { "gelu", { approximate = "tanh" } }, gelu_fast = { "gelu", { approximate = "tanh" } },
  gelu_pytorch_tanh = { "gelu", { approximate = "tanh" } },
}

function M.activation(config, key, default)
  local name = config[key]
  if name == nil then name = default end
  local found = activations[name]
  if not found then error(("config: '%s' = '%s' is not supported here (gelu, gelu_new, gelu_fast, gelu_pytorch_tanh)"):format(key, tostring(name)), 0) end
  return found[1], found[2]
end

-- The length of the recipe against the positions that the model knows.
function M.check_length(g, positions, key)
  if g.length > positions then
    error(("length = %d is longer than the model's %d positions (%s)"):format(g.length, positions, key), 0)
  end
end

-- Dropout where it does something.
function M.dropout(g, x, p, name)
  if p < 0 or p >= 1 then error(("config: dropout of %s at '%s' is not in [0, 1)"):format(tostring(p), name), 0) end
  if p == 0 then return x end
  return g:node("dropout", name, { x, g:scalar("random") }, { p = p })
end

return M
