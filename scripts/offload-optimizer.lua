-- Fine-tunes all parameters of a Hugging Face model on text, with AdamW's states in the memory of the host.
--
--   galley plan   scripts/offload-optimizer.lua --set model=DIR --set text=PATH --target rtx4090
--   galley train  scripts/offload-optimizer.lua --set model=DIR --set text=PATH --device cuda --out runs/offload
--   galley sample runs/offload --prompt "It was"
--
-- DIR holds config.json, model.safetensors and tokenizer.json (gpt2, llama, mistral, qwen2, qwen3).
--
-- Tokens: a step is 4 micro-batches of 2 rows of 512 tokens, 4,096 in all; 200 steps see 0.8 M.
-- Bytes: of a parameter's 16, 8 stay on the device: its weight and its gradient of 4 bytes each. The two states of 4 bytes each rest in
-- pinned memory, and a few parts of them are on the device while it computes the update. States under 4,096 elements stay on the device.
-- Of a model of 135 M parameters 1.1 of 2.3 GB move, of 0.5 B 4.0 of 8.2. A step copies them in once and out once, both beside each other
-- and beside kernels: 0.16 s for 0.5 B at 25 GB/s. More micro-batches a step make that less of a step, and so does
-- --set optimizer=adamw8bit: 2 bytes a parameter of a linear layer move in the place of 8.
-- With --set precision=bf16 --set masters=true the weights in F32 move too: the BF16 copy and the gradient stay, 6 bytes of 18.
-- --set activations=true also moves what the backward pass reads of the forward pass: after recomputation, the inputs of the blocks.
return recipe {
  model = model { path = arg("model") },
  data  = data.text { files = { arg("text") }, tokenizer = arg("tokenizer", "model"), validation = 0.05 },
  batch = arg("batch", 2), length = arg("length", 512), steps = arg("steps", 200), seed = 1,
  validate = { every = 50, start = true }, save = { every = arg("save", 50), keep = 1 },
  arg("precision", "fp32") == "bf16" and use "amp" { compute = "bf16" },
  arg("recompute", true) and use "recompute" { every = 1 },
  arg("activations", false) and use "offload-activations" {},
  use "accumulate" { steps = arg("accumulate", 4) },
  use "clip" { norm = 1.0 },
  use "offload-optimizer" { min_size = arg("least", 4096), masters = arg("masters", false) },
  use(arg("optimizer", "adamw")) { lr = cosine { peak = arg("lr", 2e-5), warmup = 10 }, betas = { 0.9, 0.95 }, weight_decay = 0.1 },
}
