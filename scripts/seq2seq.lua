-- Trains an encoder with a decoder (T5, Flan-T5, mT5) to answer prompts: all parameters, or 4 bits and an adapter.
--
--   galley data   scripts/seq2seq.lua --set model=DIR --set data=FILE
--   galley train  scripts/seq2seq.lua --set model=DIR --set data=FILE --out runs/seq2seq
--   galley train  scripts/seq2seq.lua --set model=DIR --set data=FILE --set qlora=true --out runs/seq2seq-qlora
--   galley sample runs/seq2seq --prompt "How many?"
--
-- DIR holds config.json, model.safetensors and tokenizer.json. FILE has a line { "prompt": …, "answer": … } for each pair: the encoder reads
-- prompts of at most `length` tokens, the decoder learns answers of at most `target` tokens.
--
-- Tokens: a step is 2 micro-batches of 8 pairs; answers count in the loss.
-- Bytes: a parameter takes 16: its weight, its gradient and two moments of 4 bytes each. T5-small, of 61 M parameters, takes 1 GB. With
-- --set qlora=true, weights of linear layers take about half a byte each and are frozen; 16 bytes are for the adapter's parameters alone.
local qlora = arg("qlora", false)

return recipe {
  model = model { path = arg("model") },
  data  = data.prompts { files = { arg("data") }, validation = 0.1 },
  batch = arg("batch", 8), length = arg("length", 256), target_length = arg("target", 64), steps = arg("steps", 300), seed = 1,
  validate = { every = 50 },
  qlora and use "quantize-nf4" { double = true },
  qlora and use "lora" { rank = arg("rank", 16), alpha = arg("alpha", 32), targets = "all-linear" },
  use "recompute" {},
  use "accumulate" { steps = arg("accumulate", 2) },
  use "clip"  { norm = 1.0 },
  use "adamw" { lr = cosine { peak = arg("lr", qlora and 5e-4 or 1e-4), warmup = 10 }, weight_decay = 0.01 },
}
