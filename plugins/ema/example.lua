-- Enough options to be itself: tests put it beside every other strategy.
use "ema" { decay = 0.9 }
