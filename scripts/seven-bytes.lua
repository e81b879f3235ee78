-- Fine-tunes all parameters of a Hugging Face model on text in 7 bytes a parameter, or in 5.
--
--   galley plan   scripts/seven-bytes.lua --set model=DIR --set text=PATH --memory 4GiB
--   galley train  scripts/seven-bytes.lua --set model=DIR --set text=PATH --out runs/seven-bytes
--   galley sample runs/seven-bytes --prompt "It was"
--
-- DIR holds config.json, model.safetensors and tokenizer.json (gpt2, llama, mistral, qwen2, qwen3).
--
-- Tokens: a step is one micro-batch of 8 rows of 512 tokens, 4,096 in all; 200 steps see 0.8 M.
-- Bytes: a parameter takes 7.1: its weight 3 (BF16 and a correction of 8 bits), its gradient 2, AdamW's two states 1 each, with a scale of
-- 2 bytes for 32 of them. AdamW beside a BF16 copy of the weights takes 18. A model of 135 M parameters takes 0.96 GB, one of 3.2 B 22.9.
-- With --set release=true each parameter is updated as soon as its gradient is there: then it takes 5.1 and nothing is clipped, 16.5 GB
-- for 3.2 B. Activations come on top; recomputation keeps the inputs of blocks only.
local release, accumulate = arg("release", false), arg("accumulate", 1)

return recipe {
  model = model { path = arg("model") },
  data  = data.text { files = { arg("text") }, tokenizer = arg("tokenizer", "model"), validation = 0.05 },
  batch = arg("batch", 8), length = arg("length", 512), steps = arg("steps", 200), seed = 1,
  validate = { every = 50, start = true }, save = { every = arg("save", 50), keep = 1 },
  use "amp" { compute = "bf16" },
  arg("recompute", true) and use "recompute" { every = 1 },
  accumulate > 1 and use "accumulate" { steps = accumulate },
  release and use "update-in-backward" {} or use "clip" { norm = 1.0 },
  use "split-states" {},
  use "adamw" { lr = cosine { peak = arg("lr", 2e-5), warmup = 10 }, betas = { 0.9, 0.95 }, weight_decay = 0.1 },
}
