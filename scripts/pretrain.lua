-- Trains a new GPT-2 of 124 M parameters on your own text, with a tokenizer made from it.
--
--   galley tokenize --train "books/*.txt" --vocab 50304 --out tokenizer
--   galley data   scripts/pretrain.lua --set text=books --set tokenizer=tokenizer
--   galley train  scripts/pretrain.lua --set text=books --set tokenizer=tokenizer --out runs/gpt2
--   galley sample runs/gpt2 --prompt "In the beginning"
--
-- `text` is a file or a folder. For a trial, make everything small: --set layers=4 --set width=128 --set heads=4 --set vocab=2000.
--
-- Tokens: a step is 16 micro-batches of 4 rows of 1,024 tokens, 65,536 in all; 10,000 steps see 655 M. (GPT-2's size needs some 2.5 B to be
-- trained out, at 20 tokens a parameter.)
-- Bytes: 12 blocks of 12 * 768^2 make 85 M parameters, the embeddings of (50,304 + 1,024) * 768 make 39 M. At 16 bytes each that is 2.0 GB,
-- with precision=bf16 2.2 GB. Accumulation takes no memory; activations are those of one micro-batch.
local bf16 = arg("precision", "fp32") == "bf16"
local length, lr = arg("length", 1024), arg("lr", 6e-4)

return recipe {
  model = model {
    family = "gpt2",
    config = { vocab_size = arg("vocab", 50304), n_positions = length, n_embd = arg("width", 768), n_layer = arg("layers", 12),
               n_head = arg("heads", 12), embd_pdrop = 0.0, resid_pdrop = 0.0, attn_pdrop = 0.0 },
  },
  data = data.text { files = { arg("text") }, tokenizer = arg("tokenizer"), validation = 0.02 },
  batch = arg("batch", 4), length = length, steps = arg("steps", 10000), seed = 1,
  validate = { every = 250, start = true }, save = { every = 500, keep = 2 },
  bf16 and use "amp" { compute = "bf16" },
  use "accumulate" { steps = arg("accumulate", 16) },
  use "clip"  { norm = 1.0 },
  use "adamw" { lr = cosine { peak = lr, warmup = 200, floor = lr / 6e-4 * 6e-5 }, betas = { 0.9, 0.95 }, weight_decay = 0.1 },
}
