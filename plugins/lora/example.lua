-- Enough options to be itself: tests put it beside every other strategy.
use "lora" { rank = 4, alpha = 8, targets = { "*.c_attn", "*.c_proj" }, dropout = 0.1, trainable_token_indices = { 2, 5 } }
