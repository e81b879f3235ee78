-- Enough options to be itself: galley check trains with it.
use "signsgd-c" { lr = 1e-3 }
