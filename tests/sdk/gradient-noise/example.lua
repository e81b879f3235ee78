-- Enough options to be itself: galley check trains with it.
use "gradient-noise" { eta = 0.01 }
