-- The stacks that people use to fine-tune a model on prompts and answers: which of them fits a card.
--
--   galley fit    scripts/fit.lua --set model=DIR --set data=FILE --memory 6GiB --write mine.lua
--   galley train  mine.lua --set model=DIR --set data=FILE --out runs/mine
--   galley sample runs/mine --prompt "Name three primes."
--
-- DIR holds config.json, model.safetensors and tokenizer.json; FILE has lines of the form {"prompt": "…", "answer": "…"}. For another
-- machine than this one: --target rtx4060 --device cuda; for several processes: --ranks N, with the memory of each. `galley fit` opens no
-- device and reads no weights.
--
-- Each one_of begins with what is wanted most, and the first one_of weighs most: an adapter before all parameters, whatever the memory;
-- BF16; 4 bits only where 16 do not fit, and states in 8 bits only where 32 do not. Turn around what you want otherwise. Rows of a micro-batch
-- and recomputation change no result, only memory and speed: the fastest is taken.
--
-- Tokens: a step is 16 rows of 512 tokens, 8,192 in all, in micro-batches of 1 to 4 rows; 200 steps see 1.6 M.
-- Bytes: a frozen weight takes 4, in bf16 2, in NF4 .52; a trained one 16 with AdamW and 10 with its states in 8 bits. What `galley fit`
-- writes says how many of each its choice takes.
local trains =
  one_of { "adapter", "full" }
local batch =
  one_of { 4, 2, 1 }
local lr = trains == "adapter" and 2e-4 or 2e-5  -- all parameters take a tenth of an adapter's rate

return recipe {
  model = model { path = arg("model") },
  data  = data.prompts { files = { arg("data") }, tokenizer = arg("tokenizer", "model"), validation = 0.05 },
  batch = batch, length = arg("length", 512), steps = arg("steps", 200), seed = 1,
  validate = { every = 50, start = true }, save = { every = arg("save", 50), keep = 1 },
  one_of { use "amp" { compute = "bf16" }, false },
  one_of { false, use "quantize-nf4" { double = true } },
  trains == "adapter" and use "lora" { rank = 16, alpha = 32, targets = "all-linear" },
  one_of { false, use "recompute" {} },
  use "accumulate" { steps = 16 // batch },
  use "clip" { norm = 1.0 },
  one_of { use "adamw" { lr = lr }, use "adamw8bit" { lr = lr } },
}
