-- Enough options to be itself: tests put it beside every other strategy.
use "sgd" { lr = 1e-2, momentum = 0.9 }
