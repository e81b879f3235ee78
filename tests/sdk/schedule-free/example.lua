-- Enough options to be itself: galley check trains with it.
use "schedule-free" { lr = 1e-2 }
