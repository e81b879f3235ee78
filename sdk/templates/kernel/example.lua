-- Enough options to be itself: galley check trains with it.
use "fromage" { lr = 1e-2 }
