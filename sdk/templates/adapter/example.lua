-- Enough options to be itself: tests put it beside every other strategy.
use "low-rank" { rank = 4, alpha = 8, targets = { "*.c_attn.weight", "*.c_proj.weight" } }
