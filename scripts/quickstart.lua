-- A first model: a GPT on bytes, trained from scratch on the text of a folder.
--
--   galley train scripts/quickstart.lua --set text=. --out runs/quickstart
--   galley sample runs/quickstart --prompt "A plan is"
--
-- 2.3 M parameters: 5 blocks of 12 · 192² = 2.2 M, embeddings (256 + 256) · 192 = 0.1 M. A step is 8 rows of 256 bytes = 2,048 tokens;
-- 600 steps see 1.2 M of them. Memory: weights, gradients and two moments are 4 · 4 bytes · 2.3 M = 37 MB, activations the rest.
return recipe {
  model = model {
    family = "gpt2",
    config = { vocab_size = 256, n_positions = 256, n_embd = 192, n_layer = 5, n_head = 6, resid_pdrop = 0.0, embd_pdrop = 0.0, attn_pdrop = 0.0 },
  },
  data = data.text { files = { arg("text") }, tokenizer = "bytes", validation = 0.05 },
  batch = 8, length = 256, steps = arg("steps", 600), seed = 1,
  validate = { every = 200 }, save = { every = 200, keep = 1 },
  use "clip"  { norm = 1.0 },
  use "adamw" { lr = cosine { peak = 2e-3, warmup = 40, floor = 2e-4 }, betas = { 0.9, 0.95 }, weight_decay = 0.1 },
}
