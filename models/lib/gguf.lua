-- GGUF files, as llama.cpp reads and its convert_hf_to_gguf.py writes them: what their keys say in transformers' words, and what tensors
-- are called there. The tables of an architecture serve both directions. Sources: gguf-py/gguf/{constants,tensor_mapping}.py, conversion
-- and src/models of https://github.com/ggml-org/llama.cpp.
local adapters = require "gguf.adapter"
local M = {}

function M.fail(text, ...) error(text:format(...), 0) end
local fail = M.fail

-- Refuses what llama.cpp computes otherwise in a model of the kind: `config[key]` has to be one of some values.
function M.only(config, key, ...)
  for _, value in ipairs { ... } do if config[key] == value then return end end
  local is, first = config[key], ...
  fail("llama.cpp computes '%s' = %s in models of type '%s', and here it is %s", key, tostring(first), config.model_type, tostring(is))
end

-- The keys of decoders with RMSNorm and RoPE.
M.decoder_keys = {
  { "vocab_size", name = "vocab_size" }, { "context_length", name = "max_position_embeddings", needed = true },
  { "embedding_length", name = "hidden_size", needed = true }, { "block_count", name = "num_hidden_layers", needed = true },
  { "feed_forward_length", name = "intermediate_size", needed = true },
  { "attention.head_count", name = "num_attention_heads", needed = true }, { "attention.head_count_kv", name = "num_key_value_heads" },
  { "attention.key_length", name = "head_dim" },
  { "attention.layer_norm_rms_epsilon", name = "rms_norm_eps", needed = true, number = true },
  { "rope.freq_base", name = "rope_theta", number = true },
}

-- What all models without experts may say.
local always = { ["expert_count"] = true, ["expert_used_count"] = true }

-- The field `gguf` of a family. `d`:
--   architectures  what files call them
--   of_type        by model type: the architecture
--   keys           those that are the same as in config.json, { key, name = in config.json, needed = true, number = true } in the order in
--                  which they are written; `number`: with a fraction
--   others         keys that read() reads: true, or "list" where it may differ between layers
--   read           function(config, file): puts the rest into a configuration made of `keys`. file: architecture, prefix of its keys,
--                  get(key), `about`: all keys, `shapes` of tensors by name, `short`: numbers of short vectors by name
--   write          function(config, file): returns what is otherwise than in config.json, by name there; raises where llama.cpp would
--                  compute something else. None where such files are not written. file: put(key, value), note(text, …), tensors by
--                  name: vectors that are no parameters
--   prefix, blocks  of parameters' modules: what all but the head begin with, and what those of a block match: its number, the rest
--   whole, block   by module, and by the rest: what the file calls it; a table: by model type
--   called         function(module), instead of these four, where a model has more than one stack of blocks
--   form           function(module, part, config): what the file has otherwise (docs/families.md)
--   parts          what "weight" and "bias" are called otherwise
--   ignored        patterns of tensors that are no parameters
function M.family(d)
  local name_of = {}
  for _, key in ipairs(d.keys) do name_of[key[1]] = key.name end

  local function config(about, shapes, short)
    local architecture = about["general.architecture"]
    local prefix, out = architecture .. ".", {}
    local function get(key) return about[prefix .. key] end
    local file = { architecture = architecture, prefix = prefix, get = get, about = about, shapes = shapes, short = short }
    for key, value in pairs(about) do
      if key:sub(1, #prefix) == prefix then
        local rest = key:sub(#prefix + 1)
        local name = name_of[rest]
        if not name and not d.others[rest] and not always[rest] then
          fail("key '%s' is not supported, and may change what the model computes", key)
        end
        -- A list has a number for each layer.
        if type(value) == "table" and d.others[rest] ~= "list" then
          for _, of_layer in ipairs(value) do
            if of_layer ~= value[1] then fail("key '%s' is not the same in all layers, which is not supported", key) end
          end
          value = value[1]
        end
        if name then out[name] = value end
      end
    end
    for _, key in ipairs(d.keys) do
      if key.needed and get(key[1]) == nil then fail("there is no key '%s'", prefix .. key[1]) end
    end
    if (get("expert_count") or 0) ~= 0 then fail("the model has experts ('%sexpert_count'), which is not supported", prefix) end
    local table_ = shapes["token_embd.weight"]
    if not table_ or #table_ ~= 2 then fail("there is no tensor 'token_embd.weight' with rows and columns") end
    out.vocab_size = out.vocab_size or table_[1]
    out.tie_word_embeddings = shapes["output.weight"] == nil
    out.bos_token_id, out.eos_token_id = about["tokenizer.ggml.bos_token_id"], about["tokenizer.ggml.eos_token_id"]
    d.read(out, file)
    return out
  end

  local function write(config)
    local architecture = d.of_type[config.model_type]
    local out = { architecture = architecture, keys = {}, tensors = {}, notes = {} }
    local file = { architecture = architecture, tensors = out.tensors }
    local function put(key, value) out.keys[#out.keys + 1] = { architecture .. "." .. key, value } end
    local later = {}
    function file.put(key, value) later[#later + 1] = { key, value } end
    function file.note(text, ...) out.notes[#out.notes + 1] = text:format(...) end
    local otherwise = d.write(config, file)
    for _, key in ipairs(d.keys) do
      local value = otherwise[key.name]
      if value == nil then value = config[key.name] end
      if value ~= nil then put(key[1], key.number and value + 0.0 or value) end
    end
    for _, pair in ipairs(later) do put(pair[1], pair[2]) end
    return out
  end

  local function called_in_blocks(module, config)
    -- Of LlamaModel, GPT2Model and so on.
    if not d.whole[module] and module:find(d.prefix, 1, true) ~= 1 then module = d.prefix .. module end
    local block, inner = module:match(d.blocks)
    local called = block and d.block[inner]
    if type(called) == "table" then called = called[config.model_type] end
    return called and ("blk.%s.%s"):format(block, called) or d.whole[module], inner
  end

  local function tensor(name, config)
    local module, part = name:match("^(.*)%.(%w+)$")
    part = d.parts and d.parts[part] or part
    local called, inner
    if d.called then called = d.called(module)
    else called, inner = called_in_blocks(module, config) end
    if not called then fail("no tensor of a GGUF file is '%s'", name) end
    return ("%s.%s"):format(called, part), d.form and d.form(inner or module, part, config) or nil
  end

  local function adapter(about, shapes, config) return adapters(about, shapes, tensor, config) end
  return { architectures = d.architectures, config = config, write = d.write and write, adapter = adapter, tensor = tensor,
    ignored = d.ignored or {} }
end

return M
