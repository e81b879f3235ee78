-- Enough options to be itself: tests put it beside every other strategy.
use "adam" { lr = 1e-3, weight_decay = 0.01 }
