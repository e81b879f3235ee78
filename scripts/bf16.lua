-- Fine-tunes all parameters of a Hugging Face model in mixed precision.
--
--   galley train scripts/bf16.lua --set model=DIR --set batch=FILE --out runs/bf16
--
-- DIR and FILE as in finetune.lua. Products and attention compute in BF16, sums in F32. Each parameter takes 18 bytes: its weight, its
-- gradient and two moments in F32, and a copy of the weight in BF16. With `--set weights=cast-on-use` there is no copy (16 bytes, a little
-- slower); with `--set weights=bf16` the weight is in BF16 alone (14 bytes), rounded stochastically. What forward leaves for backward takes
-- little more than half of what it takes in F32.
return recipe {
  model = model { path = arg("model") },
  data  = data.batch { path = arg("batch") },
  steps = arg("steps", 20), seed = 1,
  use "amp"   { compute = "bf16", weights = arg("weights", "master") },
  use "clip"  { norm = 1.0 },
  use "adamw" { lr = cosine { peak = 1e-4, warmup = 5 }, betas = { 0.9, 0.95 }, weight_decay = 0.1 },
}
