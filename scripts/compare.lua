-- Which adapter for a model, on prompts and answers: plain LoRA beside recomputation, 4-bit weights and a higher rate, with five seeds.
--
--   galley plan    scripts/compare.lua --set model=DIR --set data=FILE --set variant=nf4
--   galley compare scripts/compare.lua --set model=DIR --set data=FILE --out runs/compared
--   galley train   scripts/compare.lua --set model=DIR --set data=FILE --set variant=nf4 --set seed=6 --out runs/nf4
--   galley sample  runs/nf4 --prompt "Name three primes."
--
-- DIR holds config.json, model.safetensors and tokenizer.json; FILE has lines of the form {"prompt": "…", "answer": "…"}.
-- `galley compare` trains each variant with each seed, in turns, prints a table and a verdict on each variant beside `plain`, and writes
-- runs/compared/compare.json. Interrupted, it goes on where it was.
--
-- Tokens: a step is 2 rows of 256 tokens; 4 variants and the control with 5 seeds take 25 runs of 60 steps, 0.8 M tokens in all.
-- Bytes: `galley plan` says them of one variant; of all, `galley compare` does before the first step. One arm is in memory at a time.
local lora = { rank = arg("rank", 16), alpha = arg("alpha", 32), targets = "all-linear" }
local lr, accumulate = arg("lr", 2e-4), arg("accumulate", 1)
local adamw = { lr = lr, weight_decay = 0.0 }
local sums = accumulate > 1 and use "accumulate" { steps = accumulate }

return compare {
  model = model { path = arg("model") },
  data  = data.prompts { files = { arg("data") }, tokenizer = arg("tokenizer", "model"), validation = 0.2 },
  batch = arg("batch", 2), length = arg("length", 256), steps = arg("steps", 60), validate = { every = arg("steps", 60), start = true },
  seeds = { 1, 2, 3, 4, 5 },
  variants = {
    plain      = { use "lora" (lora), sums, use "clip" { norm = 1.0 }, use "adamw" (adamw) },
    recomputed = { use "lora" (lora), sums, use "recompute" {}, use "clip" { norm = 1.0 }, use "adamw" (adamw) },
    nf4        = { use "quantize-nf4" { double = true }, use "lora" (lora), sums, use "clip" { norm = 1.0 }, use "adamw" (adamw) },
    fast       = { use "lora" (lora), sums, use "clip" { norm = 1.0 }, use "adamw" { lr = 5 * lr, weight_decay = 0.0 } },
  },
}
