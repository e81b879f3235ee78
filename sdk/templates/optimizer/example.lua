-- Enough options to be itself: galley check trains with it.
use "signsgd" { lr = 1e-3, momentum = 0.9 }
