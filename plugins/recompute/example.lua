-- Enough options to be itself: tests put it beside every other strategy.
use "recompute" { every = 1 }
