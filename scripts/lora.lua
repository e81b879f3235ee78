-- Trains a LoRA adapter on prompts and answers: a file of JSON lines of the form {"prompt": "…", "answer": "…"}.
--
--   galley plan   scripts/lora.lua --set model=DIR --set data=FILE --set precision=bf16 --target rtx4090
--   galley data   scripts/lora.lua --set model=DIR --set data=FILE
--   galley train  scripts/lora.lua --set model=DIR --set data=FILE --out runs/lora
--   galley sample runs/lora --prompt "Name three primes."
--
-- DIR holds config.json, model.safetensors and tokenizer.json. Other names of the two fields: --set prompt=instruction --set answer=output.
-- Only the answers count in the loss. The run leaves adapter/ in PEFT's format.
--
-- Tokens: a step is 4 micro-batches of 2 rows of 512 tokens, 4,096 in all; 200 steps see 0.8 M.
-- Bytes: a frozen parameter takes 4 (2 with precision=bf16), a trained one 16 (18). At rank 16 a layer of 2,048 x 2,048 trains
-- 16 * (2,048 + 2,048) = 65,536 of its 4.2 M parameters (1.6 %), so the frozen weights and the activations are what counts. Recomputing
-- every block keeps one tensor of (2 * 512, width) for each block; --set recompute=false keeps all of them and is a third faster. Between
-- the two, --set policy=cheap recomputes what takes no matrix product: two thirds of the activations stay, and a step is as fast.
local bf16 = arg("precision", "fp32") == "bf16"

return recipe {
  model = model { path = arg("model") },
  data  = data.prompts { files = { arg("data") }, prompt = arg("prompt", "prompt"), answer = arg("answer", "answer"),
                         tokenizer = arg("tokenizer", "model"), validation = 0.05 },
  batch = arg("batch", 2), length = arg("length", 512), steps = arg("steps", 200), seed = 1,
  validate = { every = 50, start = true }, save = { every = arg("save", 50), keep = 1 },
  bf16 and use "amp" { compute = "bf16" },
  use "lora" { rank = arg("rank", 16), alpha = arg("alpha", 32), dropout = arg("dropout", 0.05), targets = "all-linear" },
  arg("recompute", true) and use "recompute" { policy = arg("policy", "every") },
  use "accumulate" { steps = arg("accumulate", 4) },
  use "clip"  { norm = 1.0 },
  use "adamw" { lr = linear { peak = arg("lr", 2e-4), warmup = 10 }, betas = { 0.9, 0.999 }, weight_decay = 0.0 },
}
