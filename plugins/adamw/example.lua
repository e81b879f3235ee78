-- Enough options to be itself: tests put it beside every other strategy.
use "adamw" { lr = 1e-3 }
