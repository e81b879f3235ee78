-- Enough options to be itself: tests put it beside every other strategy.
use "accumulate" { steps = 2 }
