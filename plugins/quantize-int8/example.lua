-- Enough options to be itself: tests put it beside every other strategy. Frozen weights need something that is trained.
use "quantize-int8" {}
use "quantize-llm-int8" { threshold = 2 }
-- "quantize-int8" needs "lora"
-- "quantize-llm-int8" needs "lora"
