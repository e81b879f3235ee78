-- Enough options to be itself: tests put it beside every other strategy.
use "muon" { lr = 2e-2, rest_lr = 1e-3 }
