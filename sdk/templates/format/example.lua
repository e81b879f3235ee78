-- Enough options to be itself: galley check trains with it.
use "q8" { block = 64 }
