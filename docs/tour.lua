-- The model of docs/tour.md: two layers, whose text is the license.
--
--   galley plan docs/tour.lua --target tests/golden/target.toml --dump all
--
-- --set vera=true adds the adapters of the page's last part.
return recipe {
  model = model {
    family = "llama",
    config = { vocab_size = 256, max_position_embeddings = 16, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 2,
               num_attention_heads = 2, tie_word_embeddings = false },
  },
  data = data.text { files = { "../LICENSE" }, tokenizer = "bytes" },
  batch = 2, length = 16, steps = 10, seed = 1,
  arg("vera", false) and use "vera" { rank = 4 },
  use "recompute"  { every = 1 },
  use "accumulate" { steps = 2 },
  use "clip"  { norm = 1.0 },
  use "adamw" { lr = 1e-3 },
}
