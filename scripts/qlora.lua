-- Fine-tunes a model whose weights stay in 4 bit, by a LoRA adapter (QLoRA): on conversations, a file of JSON lines of the form
-- {"messages": [{"role": …, "content": …}, …]}, or on text files.
--
--   galley plan   scripts/qlora.lua --set model=DIR --set chat=FILE --target rtx4060
--   galley train  scripts/qlora.lua --set model=DIR --set chat=FILE --out runs/qlora
--   galley sample runs/qlora --chat
--   galley train  scripts/qlora.lua --set model=DIR --set text=PATH --out runs/qlora-text
--
-- A GGUF file of Llama, with tokenizer.json beside it, stays in its blocks by --set type=gguf --set model=FILE.gguf.
--
-- DIR holds config.json, model.safetensors, tokenizer.json, and for conversations tokenizer_config.json with the model's chat template. The
-- run leaves adapter/ in PEFT's format. To get one model of both afterwards, in 16 bit:
--   galley export runs/qlora --merge --dtype bf16 --out NEW
-- Merged are the numbers that the adapter has trained beside, those of the 4 bits.
--
-- Tokens: a step is 16 micro-batches of 1 row of 512 tokens, 8,192 in all; 200 steps see 1.6 M.
-- Bytes: a weight of a linear layer takes 4.127 bits, .52 bytes: 4 bits, and for 64 weights a scale of 8 bits, whose own scale 256 of them
-- share. The embedding and the head take 2 bytes a weight. At rank 16 a layer of 4,096 x 4,096 trains 16 * (4,096 + 4,096) = 131,072
-- numbers, each with 4 bytes, 2 of a copy in BF16, 4 of gradient and 2 of states. So a model of 7 B parameters takes 3.1 GiB for its linear
-- layers, .5 for embedding and head and .5 for the adapter; recomputation keeps one tensor of (512, 4,096) for each of 32 blocks, 128 MiB.
-- --set policy=cheap recomputes only what takes no matrix product: four fifths of the time, and half of the activations stay.
-- Weights are packed as they are read, one after the other: loading takes no more than training.
local chat = arg("chat", "") ~= ""

return recipe {
  model = model { path = arg("model") },
  data  = chat and data.chat { files = { arg("chat") }, validation = 0.1 }
          or data.text { files = { arg("text") }, tokenizer = arg("tokenizer", "model"), validation = 0.1 },
  batch = arg("batch", 1), length = arg("length", 512), steps = arg("steps", 200), seed = 1,
  validate = { every = arg("validate", 50), start = true }, save = { every = arg("save", 50), keep = 1 },
  arg("precision", "bf16") ~= "fp32" and use "amp" { compute = arg("precision", "bf16") },
  arg("type", "nf4") == "gguf" and use "quantize-gguf" {} or use "quantize-nf4" { type = arg("type", "nf4"), double = true },
  use "lora"       { rank = arg("rank", 16), alpha = arg("alpha", 32), dropout = arg("dropout", 0.05), targets = "all-linear" },
  arg("recompute", true) and use "recompute" { policy = arg("policy", "every") },
  use "accumulate" { steps = arg("accumulate", 16) },
  use "clip"       { norm = 0.3 },
  use "adamw8bit"  { lr = linear { peak = arg("lr", 2e-4), warmup = 10 }, betas = { 0.9, 0.999 }, weight_decay = 0.0 },
}
