-- Enough options to be itself: tests put it beside every other strategy.
use "adafactor" { beta1 = 0.9 }
