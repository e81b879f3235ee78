-- Enough options to be itself: tests put it beside every other strategy.
use "ia3" { targets = "all-linear", feedforward = "re:.*mlp\\.(c_proj|down_proj)" }
