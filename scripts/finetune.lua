-- Fine-tunes all parameters of a small Hugging Face model on one fixed batch of tokens.
--
--   galley train scripts/finetune.lua --set model=DIR --set batch=FILE --out runs/finetune
--
-- DIR holds config.json and model.safetensors (gpt2, llama, mistral, qwen2, qwen3). FILE is a safetensors file with I32 input_ids and
-- labels of shape (B, S). Each parameter takes 16 bytes: weight, gradient and two moments, 4 bytes each. Recomputing every block saves most
-- of the memory for activations.
return recipe {
  model = model { path = arg("model") },
  data  = data.batch { path = arg("batch") },
  steps = arg("steps", 20), seed = 1,
  use "recompute" { every = 1 },
  use "clip"      { norm = 1.0 },
  use "adamw"     { lr = cosine { peak = 1e-4, warmup = 5 }, betas = { 0.9, 0.95 }, weight_decay = 0.1 },
}
