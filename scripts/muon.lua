-- Trains all parameters of a Hugging Face model on text: its hidden matrices with Muon, embeddings, head, norms and biases with AdamW.
--
--   galley plan   scripts/muon.lua --set model=DIR --set text=PATH --memory 12GiB
--   galley train  scripts/muon.lua --set model=DIR --set text=PATH --out runs/muon
--   galley sample runs/muon --prompt "It was"
--
-- DIR holds config.json, model.safetensors and tokenizer.json (gpt2, llama, mistral, qwen2, qwen3).
--
-- Tokens: a step is 4 micro-batches of 2 rows of 512 tokens, 4,096 in all; 200 steps see 0.8 M.
-- Bytes: a parameter of a hidden matrix takes 12: weight, gradient and momentum of 4 bytes each; any other takes 16, as with AdamW. A model
-- of 135 M parameters, 107 M of them in hidden matrices, takes 1.7 GB, where AdamW takes 2.2. The iteration needs room for one matrix at a
-- time, in BF16.
-- Time: the iteration costs the same for a step of any number of tokens. For 135 M parameters it took two of three seconds of a step of 512
-- tokens, on two cores with products in BF16 (tests/results/optimizers.md), and of shorter steps nearly all. Larger ones make it a smaller
-- part: --set accumulate=16.
-- The rate is one for both: adjust = "match_rms_adamw" makes a step of Muon as large as one of AdamW.
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
  use "muon" { lr = cosine { peak = arg("lr", 2e-5), warmup = 10 }, adjust = "match_rms_adamw", weight_decay = 0.1 },
}
