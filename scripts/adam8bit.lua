-- Fine-tunes all parameters of a Hugging Face model on text, with AdamW's states in 8 bit.
--
--   galley plan   scripts/adam8bit.lua --set model=DIR --set text=PATH --memory 12GiB
--   galley train  scripts/adam8bit.lua --set model=DIR --set text=PATH --out runs/adam8bit
--   galley sample runs/adam8bit --prompt "It was"
--
-- DIR holds config.json, model.safetensors and tokenizer.json (gpt2, llama, mistral, qwen2, qwen3).
--
-- Tokens: a step is 4 micro-batches of 2 rows of 512 tokens, 4,096 in all; 200 steps see 0.8 M.
-- Bytes: a parameter of a linear layer takes 10: its weight and its gradient of 4 bytes each, and two states of a byte each, with 4 more
-- bytes for 256 of them. AdamW in F32 takes 16. Embeddings, norms and biases keep states of 4 bytes, so a small model with a large
-- vocabulary saves less: of 135 M parameters, 107 M are in linear layers, and 8-bit states save 0.64 of 2.2 GB; of 8 B, 45 of 128 GB.
-- With --set precision=bf16, products and attention compute in BF16; a BF16 copy of the weights takes 2 bytes more, activations take half.
return recipe {
  model = model { path = arg("model") },
  data  = data.text { files = { arg("text") }, tokenizer = arg("tokenizer", "model"), validation = 0.05 },
  batch = arg("batch", 2), length = arg("length", 512), steps = arg("steps", 200), seed = 1,
  validate = { every = 50, start = true }, save = { every = arg("save", 50), keep = 1 },
  arg("precision", "fp32") == "bf16" and use "amp" { compute = "bf16" },
  arg("recompute", true) and use "recompute" { every = 1 },
  use "accumulate" { steps = arg("accumulate", 4) },
  use "clip" { norm = 1.0 },
  use "adamw8bit" { lr = cosine { peak = arg("lr", 2e-5), warmup = 10 }, betas = { 0.9, 0.95 }, weight_decay = 0.1 },
}
