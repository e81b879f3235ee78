-- Enough options to be itself: galley check trains with it.
use "tensor-pair" {}
