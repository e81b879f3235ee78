-- Enough options to be itself: tests put it beside every other strategy.
use "amp" { compute = "fp16", loss_scale = 256 }
