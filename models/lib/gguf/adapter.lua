-- Adapters as GGUF files, as llama.cpp reads them beside a model: of LoRA (Hu et al., arXiv:2106.09685), from PEFT's format. Each weight
-- has two matrices, NAME.lora_a and NAME.lora_b, and their product counts alpha over the rank, with one alpha for all. Source:
-- src/llama-adapter.cpp of https://github.com/ggml-org/llama.cpp.
local function refuse(text, ...)
  error(("an adapter with %s is not written as a GGUF file: llama.cpp reads LoRA's matrices, and one scale for all; --merge writes the " ..
    "model with the adapter merged into its weights"):format(text:format(...)), 0)
end

local function says_nothing(value)
  return value == nil or value == false or value == "none" or type(value) == "table" and next(value) == nil
end

-- `about`: adapter_config.json. `shapes`: those of the adapter's tensors by name. `tensor`, `config`: as a family has them. Returns the
-- keys of the file, and by tensor { its name there, what the file has otherwise }.
return function(about, shapes, tensor, config)
  if about.peft_type ~= "LORA" then refuse("'peft_type': \"%s\"", about.peft_type) end
  for _, key in ipairs { "use_dora", "alpha_pattern", "bias", "lora_bias", "modules_to_save", "trainable_token_indices" } do
    if not says_nothing(about[key]) then refuse("'%s': %s", key, type(about[key]) == "table" and "{…}" or about[key]) end
  end
  local out, least, most = { keys = {}, tensors = {} }, math.huge, 0
  for name, shape in pairs(shapes) do
    local module, kind = name:match("^base_model%.model%.(.*)%.lora_([AB])%.weight$")
    if not module or #shape ~= 2 then refuse("a tensor '%s'", name) end
    local called, form = tensor(module .. ".weight", config)
    -- Of a weight that the file has the other way round, PEFT's matrices are those of the file's.
    local turned = form and form.turned == 1
    if about.fan_in_fan_out and not turned then refuse("'fan_in_fan_out': true") end
    -- A head that is the embedding is no tensor of its own in the model's file.
    if called == "output.weight" and config.tie_word_embeddings then refuse("matrices of a head that is the embedding") end
    local rank = kind == "A" and shape[1] or shape[2]
    least, most = math.min(least, rank), math.max(most, rank)
    out.tensors[name] = { called .. ".lora_" .. kind:lower(), kind == "B" and not turned and form or nil }
  end
  local alpha = about.lora_alpha + 0.0
  if about.use_rslora and most > 0 then
    if least ~= most then refuse("'use_rslora' and ranks from %d to %d", least, most) end
    alpha = alpha * math.sqrt(most)
  end
  out.keys = { { "adapter.type", "lora" }, { "adapter.lora.alpha", alpha } }
  return out
end
