-- The recipe whose passes are recorded in tests/golden/passes: LoRA on one fixed batch, so that nothing depends on a tokenizer.
--
--   galley plan tests/golden/lora.lua --set model=DIR --set batch=FILE --dump all
--
-- DIR holds config.json; FILE is a safetensors file with I32 input_ids and labels (B, S). The test `dumps` makes both. The recorded passes
-- name lines of this file: a change of them changes all that is recorded.
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
