-- As it is: tests put it beside every other strategy.
use "mish" {}
