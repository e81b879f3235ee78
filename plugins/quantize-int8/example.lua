-- Enough options to be itself: tests put it beside every other strategy, and with it what it needs.
-- beside "lora", "vera", "ia3"
use "quantize-int8" {}
use "quantize-llm-int8" { threshold = 2 }
