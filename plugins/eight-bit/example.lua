-- Enough options to be itself: tests put it beside every other strategy; small tensors, which tests have, too.
use "adamw8bit" { lr = 1e-3, min_size = 1 }
use "lion8bit" { lr = 1e-4, min_size = 1 }
