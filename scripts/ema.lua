-- Fine-tunes all parameters of a Hugging Face model on text and saves the average of its weights.
--
--   galley plan   scripts/ema.lua --set model=DIR --set text=PATH --memory 12GiB
--   galley train  scripts/ema.lua --set model=DIR --set text=PATH --out runs/ema
--   galley eval   runs/ema
--   galley sample runs/ema --prompt "It was"
--
-- DIR holds config.json, model.safetensors and tokenizer.json (gpt2, llama, mistral, qwen2, qwen3).
--
-- Tokens: a step is 4 micro-batches of 2 rows of 512 tokens, 4,096 in all; 200 steps see 0.8 M.
-- Bytes: the average takes 4 a parameter, or 2 with --set dtype=bf16, on top of 16: weight, gradient and AdamW's two states. A model of
-- 135 M parameters takes 2.7 GB, and 2.4 with bf16. With --set rank=16, which trains a LoRA adapter, it is the adapter's average: some MB.
-- Validation reads the average; the loss of steps is that of the weights themselves.
local rank = arg("rank", 0)

return recipe {
  model = model { path = arg("model") },
  data  = data.text { files = { arg("text") }, tokenizer = arg("tokenizer", "model"), validation = 0.05 },
  batch = arg("batch", 2), length = arg("length", 512), steps = arg("steps", 200), seed = 1,
  validate = { every = 50, start = true }, save = { every = arg("save", 50), keep = 1 },
  arg("precision", "fp32") == "bf16" and use "amp" { compute = "bf16" },
  arg("recompute", true) and use "recompute" { every = 1 },
  rank > 0 and use "lora" { rank = rank, alpha = 2 * rank },
  use "accumulate" { steps = arg("accumulate", 4) },
  use "clip" { norm = 1.0 },
  use "adamw" { lr = cosine { peak = arg("lr", rank > 0 and 2e-4 or 2e-5), warmup = 10 }, betas = { 0.9, 0.95 }, weight_decay = 0.1 },
  use "ema" { decay = arg("decay", 0.99), dtype = arg("dtype", "f32") },
}
