-- Enough options to be itself: tests put it beside every other strategy.
use "vera" { rank = 4, targets = { "*.c_attn", "*.c_proj" }, dropout = 0.1 }
