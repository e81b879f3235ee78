-- Enough options to be itself: galley check trains with it.
use "apollo" { lr = 3e-3, rank = 4, every = 5 }
