-- Enough options to be itself: tests put it beside every other strategy, and with it what it needs.
-- beside "lora", "vera", "ia3"
use "quantize-nf4" { double = true }
