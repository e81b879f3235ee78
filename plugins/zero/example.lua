-- Enough options to be itself: tests put it beside every other strategy; small tensors, which tests have, too.
use "zero" { stage = 3, min_size = 1 }
