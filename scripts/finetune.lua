-- Fine-tunes all parameters of a Hugging Face model on text: a file, or a folder of files.
--
--   galley plan   scripts/finetune.lua --set model=DIR --set text=PATH --memory 16GiB
--   galley train  scripts/finetune.lua --set model=DIR --set text=PATH --out runs/finetune
--   galley sample runs/finetune --prompt "It was"
--
-- DIR holds config.json, model.safetensors and tokenizer.json (gpt2, llama, mistral, qwen2, qwen3).
--
-- Tokens: a step is 4 micro-batches of 2 rows of 512 tokens, 4,096 in all; 200 steps see 0.8 M.
-- Bytes: a parameter takes 16: its weight, its gradient and two moments of 4 bytes each. A model of 135 M parameters takes 2.2 GB, one of
-- 0.5 B 8 GB. Activations come on top. Recomputing every block keeps only one tensor of (2 * 512, width) for each block; with
-- --set recompute=false all of them stay, and a step takes three quarters of the time.
-- With --set precision=bf16, products and attention compute in BF16 and activations take about half. The weights then take, by
-- --set weights=…: 18 bytes a parameter with a BF16 copy (master), 16 without the copy (cast-on-use, a little slower), 14 where the weight
-- is in BF16 alone and rounded stochastically (bf16).
local bf16 = arg("precision", "fp32") == "bf16"

return recipe {
  model = model { path = arg("model") },
  data  = data.text { files = { arg("text") }, tokenizer = arg("tokenizer", "model"), validation = 0.05 },
  batch = arg("batch", 2), length = arg("length", 512), steps = arg("steps", 200), seed = 1,
  validate = { every = 50, start = true }, save = { every = arg("save", 50), keep = 1 },
  bf16 and use "amp" { compute = "bf16", weights = arg("weights", "master") },
  arg("recompute", true) and use "recompute" { every = 1 },
  use "accumulate" { steps = arg("accumulate", 4) },
  use "clip"  { norm = 1.0 },
  use "adamw" { lr = cosine { peak = arg("lr", 2e-5), warmup = 10 }, betas = { 0.9, 0.95 }, weight_decay = 0.1 },
}
