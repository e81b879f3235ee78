-- Enough options to be itself: galley check trains with it.
use "low-rank" { rank = 4, alpha = 8, targets = { "*.c_attn.weight", "*.c_proj.weight" } }
