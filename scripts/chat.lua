-- Fine-tunes a Hugging Face model on conversations: a file of JSON lines of the form {"messages": [{"role": …, "content": …}, …]}.
--
--   galley data   scripts/chat.lua --set model=DIR --set chat=FILE              shows what the model will see
--   galley train  scripts/chat.lua --set model=DIR --set chat=FILE --out runs/chat
--   galley sample runs/chat --chat
--
-- DIR holds config.json, model.safetensors, tokenizer.json, and tokenizer_config.json with the model's chat template. Only the assistant's
-- messages count in the loss. A step is 4 micro-batches of 2 rows of 512 tokens; conversations are packed into rows. One tenth of them is
-- held out. Trains all parameters, at 16 bytes per parameter. --set adapter=true trains a LoRA adapter instead and freezes the model, at 4
-- bytes per parameter; with --set precision=bf16, products compute in BF16 and the frozen model takes 2. To get one model of it:
--   galley export runs/chat --merge --out DIR
local adapter, precision = arg("adapter", false), arg("precision", "f32")

return recipe {
  model = model { path = arg("model") },
  data  = data.chat { files = { arg("chat") }, validation = 0.1 },
  batch = 2, length = arg("length", 512), steps = arg("steps", 200), seed = 1,
  validate = { every = arg("validate", 50), start = true }, save = { every = 100, keep = 1 },
  adapter and use "lora" { rank = 16, alpha = 32, dropout = arg("dropout", 0.05), targets = "all-linear" },
  precision ~= "f32" and use "amp" { compute = precision },
  use "recompute"  { every = 1 },
  use "accumulate" { steps = 4 },
  use "clip"       { norm = 1.0 },
  use "adamw"      { lr = cosine { peak = adapter and 2e-4 or 2e-5, warmup = 10 }, betas = { 0.9, 0.95 }, weight_decay = 0.0 },
}
