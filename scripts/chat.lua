-- Fine-tunes a Hugging Face model on conversations: a file of JSON lines of the form {"messages": [{"role": …, "content": …}, …]}.
--
--   galley data   scripts/chat.lua --set model=DIR --set chat=FILE              shows what the model will see
--   galley train  scripts/chat.lua --set model=DIR --set chat=FILE --out runs/chat
--   galley sample runs/chat --chat
--
-- DIR holds config.json, model.safetensors, tokenizer.json, and tokenizer_config.json with the model's chat template. Only the assistant's
-- messages count in the loss. One tenth of the conversations is held out. --set adapter=true trains a LoRA adapter and freezes the model;
-- to get one model of both afterwards: galley export runs/chat --merge --out NEW
-- --set prompts=FILE lets it answer the first 8 conversations of FILE every 50 steps, and says how near it comes to their last messages.
--
-- Tokens: a step is 4 micro-batches of 2 rows of 512 tokens, 4,096 in all; conversations are packed into rows. 200 steps see 0.8 M.
-- Bytes: 16 a parameter where all are trained (18 with --set precision=bf16); with an adapter 4 (2), since a frozen weight has neither a
-- gradient nor moments.
local adapter, precision, prompts = arg("adapter", false), arg("precision", "fp32"), arg("prompts", "")

return recipe {
  model = model { path = arg("model") },
  data  = data.chat { files = { arg("chat") }, validation = 0.1 },
  batch = arg("batch", 2), length = arg("length", 512), steps = arg("steps", 200), seed = 1,
  validate = { every = arg("validate", 50), start = true }, save = { every = arg("save", 50), keep = 1 },
  evaluate = prompts ~= "" and { prompts = prompts, match = "rouge-l", every = arg("validate", 50) } or nil,
  precision ~= "fp32" and use "amp" { compute = precision },
  adapter and use "lora" { rank = arg("rank", 16), alpha = arg("alpha", 32), dropout = arg("dropout", 0.05), targets = "all-linear" },
  arg("recompute", true) and use "recompute" { every = 1 },
  use "accumulate" { steps = arg("accumulate", 4) },
  use "clip"       { norm = 1.0 },
  use "adamw"      { lr = cosine { peak = arg("lr", adapter and 2e-4 or 2e-5), warmup = 10 }, betas = { 0.9, 0.95 }, weight_decay = 0.0 },
}
