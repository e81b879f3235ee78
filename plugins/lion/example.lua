-- Enough options to be itself: tests put it beside every other strategy.
use "lion" { lr = 1e-4, weight_decay = 0.1 }
