-- Enough options to be itself: tests put it beside every other strategy.
use "layer-decay" { decay = 0.8 }
