-- Enough options to be itself: tests put it beside every other strategy.
use "vera" { rank = 4, targets = "all-linear", dropout = 0.1 }
