-- The stacks that people use to fine-tune a model on prompts and answers: which of them fits a card, and which of those is the fastest.
--
--   galley fit    scripts/fit.lua --set model=DIR --set data=FILE --memory 6GiB --write mine.lua
--   galley train  mine.lua --set model=DIR --set data=FILE --out runs/mine
--   galley sample runs/mine --prompt "Name three primes."
--
-- DIR holds config.json, model.safetensors and tokenizer.json; FILE has lines of the form {"prompt": "…", "answer": "…"}. For another
-- machine than this one: --target rtx4060 --device cuda. `galley fit` opens no device and reads no weights.
--
-- Tokens: a step is 16 rows of 512 tokens, 8,192 in all, in micro-batches of 1 to 4 rows; 200 steps see 1.6 M.
-- Bytes: a frozen weight takes 4, in bf16 2, in NF4 .52; a trained one 16 with AdamW and 10 with its states in 8 bits. What `galley fit`
-- writes says how many of each its choice takes.
local batch =
  one_of { 1, 2, 4 }

return recipe {
  model = model { path = arg("model") },
  data  = data.prompts { files = { arg("data") }, tokenizer = arg("tokenizer", "model"), validation = 0.05 },
  batch = batch, length = arg("length", 512), steps = arg("steps", 200), seed = 1,
  validate = { every = 50, start = true }, save = { every = 100, keep = 1 },
  one_of { use "amp" { compute = "bf16" }, false },
  one_of { false, use "quantize-nf4" { double = true } },
  one_of { use "lora" { rank = 16, alpha = 32, targets = "all-linear" }, false },
  one_of { false, use "recompute" {} },
  use "accumulate" { steps = 16 // batch },
  use "clip" { norm = 1.0 },
  one_of { use "adamw" { lr = 2e-4 }, use "adamw8bit" { lr = 2e-4 } },
}
