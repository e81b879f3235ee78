-- Trains a small GPT from scratch on the bytes of the text files in a folder.
--
--   galley train scripts/quickstart.lua --set text=. --out runs/quickstart
--   galley sample runs/quickstart --prompt "A plan is"
--
-- 2.3 M parameters: 5 blocks of 4 · 192² + 3 · 192 · 512 make 2.2 M; the embedding of 256 · 192 is also the head.
-- Positions are encoded by RoPE, because a byte depends mostly on the bytes just before it; learned positions need
-- several times as many steps to learn that. A step is 4 rows of 256 bytes; 700 steps see .7 M bytes. Memory: at
-- most 4 · 4 bytes · 2.3 M = 36 MB for weights, gradients and two moments; the rest is activations.
local length, lr, accumulate = arg("length", 256), arg("lr", 3e-3), arg("accumulate", 1)

return recipe {
  model = model {
    family = "llama",
    config = { vocab_size = 256, max_position_embeddings = length, hidden_size = 192, intermediate_size = 512, num_hidden_layers = 5,
               num_attention_heads = 6, tie_word_embeddings = true },
  },
  data = data.text { files = { arg("text") }, tokenizer = "bytes", validation = 0.01 },
  batch = arg("batch", 4), length = length, steps = arg("steps", 700), seed = 1,
  validate = { every = 350, start = true }, save = { every = 350, keep = 1 },
  accumulate > 1 and use "accumulate" { steps = accumulate },
  use "clip"  { norm = 1.0 },
  use "adamw" { lr = cosine { peak = lr, warmup = 50, floor = lr / 30 }, betas = { 0.9, 0.95 }, weight_decay = 0.1 },
}
