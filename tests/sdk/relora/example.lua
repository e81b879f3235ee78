-- Enough options to be itself: galley check trains with it.
use "relora" { rank = 4, every = 2 }
