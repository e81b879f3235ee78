-- Fine-tunes all parameters of a Hugging Face model on text; each parameter is updated as soon as its gradient is there.
--
--   galley plan   scripts/lomo.lua --set model=DIR --set text=PATH --memory 8GiB
--   galley train  scripts/lomo.lua --set model=DIR --set text=PATH --out runs/lomo
--   galley sample runs/lomo --prompt "It was"
--
-- DIR holds config.json, model.safetensors and tokenizer.json (gpt2, llama, mistral, qwen2, qwen3).
--
-- Tokens: a step is one micro-batch of 8 rows of 512 tokens, 4,096 in all: gradients that are used at once cannot add up over several.
-- 200 steps see 0.8 M.
-- Bytes: a parameter takes 4, its weight, and what the optimizer keeps: nothing for sgd, 2 for adamw8bit, 8 for adamw. Of the gradients
-- there are never more than twice the largest tensor's bytes. A model of 135 M parameters takes 0.54 GB with --set optimizer=sgd,
-- 1.0 with adamw8bit and 1.6 with adamw, where adamw and all gradients take 2.2.
-- Clipping by the global norm and loss scaling read all gradients, so they do not go with this; clipping by value and
-- --set precision=bf16 do.
local optimizer, accumulate = arg("optimizer", "adamw8bit"), arg("accumulate", 1)

return recipe {
  model = model { path = arg("model") },
  data  = data.text { files = { arg("text") }, tokenizer = arg("tokenizer", "model"), validation = 0.05 },
  batch = arg("batch", 8), length = arg("length", 512), steps = arg("steps", 200), seed = 1,
  validate = { every = 50, start = true }, save = { every = arg("save", 50), keep = 1 },
  arg("precision", "fp32") == "bf16" and use "amp" { compute = "bf16" },
  arg("recompute", true) and use "recompute" { every = 1 },
  accumulate > 1 and use "accumulate" { steps = accumulate },  -- refused: see Tokens above
  use "update-in-backward" {},
  use(optimizer) { lr = cosine { peak = arg("lr", optimizer == "sgd" and 1e-2 or 1e-5), warmup = 10 } },
}
