-- What families share in reading a Hugging Face config.json.
local M = {}

-- Keys that do not change what a model computes in training: provenance, generation, tokens, storage. Everything else must be read by the
-- family, or the host refuses the model by the key's name.
M.harmless = {
  "_name_or_path", "architectures", "model_type", "transformers_version", "torch_dtype", "dtype", "use_cache", "auto_map",
  "_attn_implementation", "_attn_implementation_autoset", "custom_pipelines", "unsloth_fixed", "unsloth_version", "output_past",
  "max_sequence_length", "_num_labels",
  "bos_token_id", "eos_token_id", "pad_token_id", "add_bos_token", "add_eos_token", "sep_token_id", "decoder_start_token_id",
  "tokenizer_class", "prefix", "unk_token_id",
  "task_specific_params", "problem_type", "finetuning_task", "id2label", "label2id", "num_labels", "classifier_dropout",
  "initializer_range", "pretraining_tp", "is_decoder", "is_encoder_decoder", "output_attentions", "output_hidden_states", "return_dict",
  "gradient_checkpointing", "keys_to_ignore_at_inference", "max_length", "min_length", "do_sample", "early_stopping", "num_beams",
  "num_beam_groups", "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty",
  "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "chunk_size_feed_forward",
  "output_scores", "return_dict_in_generate", "forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values",
  "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens", "torchscript", "use_bfloat16", "tf_legacy_loss",
  "pruned_heads", "cross_attention_hidden_size", "is_llama_config", "rope_interleaved", "transformers.js_config", "license",
}

-- What the readers below return they write back, so that saving writes it too: a default is then the same number for every program. As in
-- transformers, null is no value where a number, a boolean or a name belongs; only optional_integer() takes it.
local function take(config, key, default, right, what)
  local v = config[key]
  if v == nil and not config:has(key) then v = default end
  if not right(v) then
    local got = tostring(v)
    if v == nil then got = config:has(key) and "null" or "nothing"
    elseif type(v) == "table" then got = "a table"
    elseif type(v) == "string" then got = "'" .. v .. "'" end
    error(("config: '%s' must be %s, got %s"):format(key, what, got), 0)
  end
  config[key] = v
  return v
end

local function whole(v, least) return math.type(v) == "integer" and v >= least end
local function finite(v) return type(v) == "number" and v == v and v ~= math.huge end

function M.integer(config, key, default)
  return take(config, key, default, function(v) return whole(v, 1) end, "a positive integer")
end

function M.count(config, key, default)
  return take(config, key, default, function(v) return whole(v, 0) end, "an integer from 0 on")
end

-- An integer, or null, which is returned as nil.
function M.optional_integer(config, key, default)
  if config[key] == nil and (config:has(key) or default == nil) then return nil end
  return M.integer(config, key, default)
end

-- A number that transformers wants to be no integer (a norm's eps, the spread of new weights): saved with a fraction even where it is whole.
function M.number(config, key, default)
  local function right(v) return finite(v) and v >= 0 end
  local v = take(config, key, default, right, "a number from 0 on") + 0.0
  config[key] = v
  return v
end

-- Numbers that may be integers there, too: saved as they were written.
function M.positive(config, key, default)
  local function right(v) return finite(v) and v > 0 end
  return take(config, key, default, right, "a positive number") + 0.0
end

-- A share of what dropout leaves out.
function M.share(config, key, default)
  local function right(v) return finite(v) and v >= 0 and v < 1 end
  return take(config, key, default, right, "a number from 0 on and below 1") + 0.0
end

function M.boolean(config, key, default)
  return take(config, key, default, function(v) return type(v) == "boolean" end, "true or false")
end

-- The names of transformers' activations, as op and attributes; and as that of a gate, where there are gates of it.
local activations = {
  gelu = { "gelu", { approximate = "none" }, "gelu" }, gelu_python = { "gelu", { approximate = "none" }, "gelu" },
  gelu_new = { "gelu", { approximate = "tanh" }, "gelu_tanh" }, gelu_fast = { "gelu", { approximate = "tanh" }, "gelu_tanh" },
  gelu_pytorch_tanh = { "gelu", { approximate = "tanh" }, "gelu_tanh" }, gelu_python_tanh = { "gelu", { approximate = "tanh" }, "gelu_tanh" },
  gelu_accurate = { "gelu", { approximate = "tanh" }, "gelu_tanh" }, quick_gelu = { "quick_gelu", {} },
  relu = { "relu", {}, "relu" }, relu2 = { "relu2", {} }, silu = { "silu", {}, "silu" }, swish = { "silu", {}, "silu" },
  sigmoid = { "sigmoid", {}, "sigmoid" }, tanh = { "tanh", {} },
}
local function names_of(right)
  local out = {}
  for name, a in pairs(activations) do if right(a) then out[#out + 1] = name end end
  table.sort(out)
  return table.concat(out, ", ")
end

function M.activation(config, key, default)
  local name = take(config, key, default, function(v) return activations[v] ~= nil end, "one of " .. names_of(function() return true end))
  return activations[name][1], activations[name][2]
end

-- The attribute `activation` of gated units.
function M.gate(config, key, default)
  local function gates(a) return a[3] ~= nil end
  local function right(v) return activations[v] ~= nil and gates(activations[v]) end
  local name = take(config, key, default, right, "one of " .. names_of(gates))
  return activations[name][3]
end

-- One of some words.
function M.choice(config, key, default, words)
  local function right(v)
    for _, word in ipairs(words) do if v == word then return true end end
    return false
  end
  return take(config, key, default, right, "one of " .. table.concat(words, ", "))
end

-- A number, or null, which is returned as nil; 0 is none, too.
function M.optional_positive(config, key, default)
  if config[key] == nil and (config:has(key) or default == nil) then return nil end
  local v = M.number(config, key, default)
  return v > 0 and v or nil
end

-- Per layer, how many positions back a query may look, from `layer_types`; nil: all. `default`: the list where there is none.
function M.windows(config, layers, size, default)
  local types, out = config.layer_types, {}
  if types == nil then types = default end
  local entries = type(types) == "table" and #types or -1
  if entries ~= layers then
    error(("config: 'layer_types' has to be a list of num_hidden_layers = %d entries, and has %s"):format(layers,
      entries < 0 and tostring(types) or entries), 0)
  end
  for i = 1, layers do
    if types[i] == "sliding_attention" then
      if not size then
        error("config: 'layer_types' asks for sliding windows, but there is no size in use ('sliding_window', 'use_sliding_window')", 0)
      end
      out[i] = size
    elseif types[i] ~= "full_attention" then
      error(("config: layer_types[%d] = '%s' is not supported (full_attention, sliding_attention)"):format(i, tostring(types[i])), 0)
    end
  end
  config.layer_types = types
  return out, types
end

-- A key that a model of this kind does not go by: it may say of each layer what the layer is anyway. `size`: of a window, nil for none.
function M.same_layers(config, layers, size)
  local types, kind = config.layer_types, size and "sliding_attention" or "full_attention"
  if types == nil then return end
  local same = type(types) == "table" and #types == layers
  for i = 1, same and layers or 0 do same = same and types[i] == kind end
  if not same then
    error(("config: 'layer_types' is not '%s' for each of %d layers, which is all that models of type '%s' have"):format(kind, layers,
      config.model_type), 0)
  end
end

-- Other names that transformers takes for keys, as { other, name } each: where both are there, the other one counts.
function M.renamed(config, names)
  for _, pair in ipairs(names) do
    local v = config[pair[1]]
    if v ~= nil then config[pair[2]] = v end
  end
end

-- The token whose row of the embedding learns nothing from where it is looked up, as in transformers' tables with a padding_idx; nil: none.
-- `default`: the token where the configuration does not say.
function M.padding(config, vocabulary, default)
  local id = config.pad_token_id
  if id == nil and not config:has("pad_token_id") then id = default end
  if math.type(id) ~= "integer" then return nil end
  if id < 0 then id = id + vocabulary end
  return id >= 0 and id < vocabulary and id or nil
end

-- What a key must be for the model to be one that is computed here.
function M.must_be(config, key, value, why)
  local v = config[key]
  if v ~= nil and v ~= value then error(("config: '%s' = %s: %s"):format(key, tostring(v), why), 0) end
end

-- The losses of tasks that are not of tokens: one label of several, each of several or not, numbers.
local losses = { ["multi-label-classification"] = "binary_cross_entropy", regression = "squared_error" }

-- A classifier of what x has a row of, and its loss. `more`: { bias = false }
function M.classify(g, L, x, C, name, more)
  local logits = L.linear(x, name, C, g.labels, { bias = not more or more.bias, fresh = true, whole = true })
  g:mark_logits(logits)
  g:loss(losses[g.task] or "cross_entropy", "loss", { logits, g:input("labels") })
end

-- What reads a whole row: entries of a family's `tasks`. `architecture`: as theirs.
function M.row_tasks(architecture)
  return { name = "sequence-classification", labels = "row_labels", architecture = architecture },
    { name = "multi-label-classification", labels = "row_labels", several = true, architecture = architecture },
    { name = "regression", labels = "row_values", architecture = architecture }
end

-- What decoders do: continue a text, or classify it by what its last token sees. `stems`: of transformers' classes, a name or a table from
-- model type to name; `causal`: the ending of those that continue texts.
function M.decoder_tasks(stems, causal)
  local function class(ending)
    if type(stems) == "string" then return stems .. ending end
    local out = {}
    for kind, stem in pairs(stems) do out[kind] = stem .. ending end
    return out
  end
  return { { name = "causal-lm", labels = "next_tokens", architecture = class(causal or "ForCausalLM") },
    M.row_tasks(class "ForSequenceClassification") }
end

-- The head of a decoder. Of tokens: logits of x by the embedding where it is tied, and the loss. Of a row: transformers' "score".
-- `more`: { name of the weight in files, bias, cap, scale, module: its name in transformers' classes, if that is another }
function M.causal_head(g, L, x, embedding, C, vocabulary, tied, more)
  more = more or {}
  local name = more.name or "lm_head"
  if g.task ~= "causal-lm" and g.task ~= "seq2seq-lm" then
    g:ignore(name .. ".*")
    g:mark_output(x)
    x = g:node("take_rows", "last", { x, g:input("last_token") })
    g:mark_hidden(x)
    return M.classify(g, L, x, C, "score", { bias = false })
  end
  g:ignore("score.*")
  g:mark_hidden(x)
  if more.scale then x = g:node("scale", name .. ".scale", { x }, { alpha = more.scale }) end
  local head = tied and embedding or L.weight(name, vocabulary, C, { whole = true, hint = M.untied_hint, fresh = more.fresh,
    aliases = more.module and { more.module .. ".weight" } })
  local logits = g:node("linear", more.module or name, { x, head, more.bias or nil }, { transposed = 0 })
  if more.cap then logits = g:node("softcap", name .. ".softcap", { logits }, { cap = more.cap }) end
  g:mark_logits(logits)
  g:loss("cross_entropy", "loss", { logits, g:input("labels") })
end

-- What to do when a model's file has another head than the configuration says.
M.tied_hint = "set tie_word_embeddings = false in config.json for a model whose head is not its embedding"
M.untied_hint = "set tie_word_embeddings = true in config.json for a model whose head is its embedding"

-- Of an embedding, for its maker in layers.lua: where it is the head, too, files may have it under the head's name. `padding`: as there.
function M.tied_to(head, tied, padding)
  return { aliases = tied and { head } or nil, hint = tied and M.tied_hint or nil, padding = padding }
end

-- The length of the recipe against the positions that the model knows.
function M.check_length(g, positions, key)
  if g.length > positions then
    error(("length = %d is longer than the model's %d positions (%s)"):format(g.length, positions, key), 0)
  end
end

return M
