-- Trains a LoRA adapter for every linear layer of a model's blocks; the model is frozen. Leaves adapter/ in PEFT's format.
--
--   galley train scripts/lora.lua --set model=DIR --set batch=FILE --out runs/lora
--
-- DIR holds config.json and model.safetensors; FILE holds I32 input_ids and labels (B, S). A frozen parameter takes 4 bytes, a trained one
-- 16. At rank 8, a layer of 4,096 × 4,096 trains 65,536 of 16.8 M parameters (0.4 %). A window of 4 micro-batches takes no more memory.
return recipe {
  model = model { path = arg("model") },
  data  = data.batch { path = arg("batch") },
  steps = arg("steps", 20), seed = 1,
  use "lora"       { rank = 8, alpha = 16, dropout = 0.05, targets = "all-linear" },
  use "recompute"  { every = 1 },
  use "accumulate" { steps = arg("accumulate", 1) },
  use "clip"       { norm = 1.0 },
  use "adamw"      { lr = linear { peak = 2e-4, warmup = 5 }, betas = { 0.9, 0.999 }, weight_decay = 0.0 },
}
