-- Enough options to be itself: tests put it beside every other strategy.
use "freeze" { patterns = "transformer.h.0.*" }
