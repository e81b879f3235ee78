-- Fine-tunes all parameters of a Hugging Face model on text with Adafactor, which keeps a number for each row and column of a matrix.
--
--   galley plan   scripts/adafactor.lua --set model=DIR --set text=PATH --memory 10GiB
--   galley train  scripts/adafactor.lua --set model=DIR --set text=PATH --out runs/adafactor
--   galley sample runs/adafactor --prompt "It was"
--
-- DIR holds config.json, model.safetensors and tokenizer.json (gpt2, llama, mistral, qwen2, qwen3).
--
-- Tokens: a step is 4 micro-batches of 2 rows of 512 tokens, 4,096 in all; 200 steps see 0.8 M.
-- Bytes: a parameter takes 8, its weight and its gradient of 4 bytes each; what Adafactor keeps is less than 0.1 % of that. AdamW takes 16.
-- A model of 135 M parameters takes 1.1 GB, where AdamW takes 2.2. A mean of the updates, --set beta1=0.9, takes 4 bytes a parameter more.
-- The rate is fixed here: fine-tuning needs no relative step. With --set relative=true it is min(1e-2, 1 / sqrt(step)) times the size
-- of the parameter, as the paper has it for training from nothing.
-- With --set precision=bf16, products and attention compute in BF16; a BF16 copy of the weights takes 2 bytes more, activations take half.
local relative = arg("relative", false)
return recipe {
  model = model { path = arg("model") },
  data  = data.text { files = { arg("text") }, tokenizer = arg("tokenizer", "model"), validation = 0.05 },
  batch = arg("batch", 2), length = arg("length", 512), steps = arg("steps", 200), seed = 1,
  validate = { every = 50, start = true }, save = { every = arg("save", 50), keep = 1 },
  arg("precision", "fp32") == "bf16" and use "amp" { compute = "bf16" },
  arg("recompute", true) and use "recompute" { every = 1 },
  use "accumulate" { steps = arg("accumulate", 4) },
  use "adafactor" {
    lr = relative and 1e-2 or cosine { peak = arg("lr", 2e-5), warmup = 10 }, relative_step = relative, scale_parameter = relative,
    beta1 = arg("beta1", 0) > 0 and arg("beta1", 0) or nil,
  },
}
