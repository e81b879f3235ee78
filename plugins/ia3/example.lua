-- Enough options to be itself: tests put it beside every other strategy.
use "ia3" { targets = { "*.c_attn", "mlp.c_proj" }, feedforward = "mlp.c_proj" }
