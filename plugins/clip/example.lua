-- Enough options to be itself: tests put it beside every other strategy.
use "clip" { norm = 0.3, value = 0.05 }
