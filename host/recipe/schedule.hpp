// Quantities that follow the step. With N steps and a warm-up of w steps (W = max(w, 1)), for step s = 1 … N:
//
//   s <= W:  peak · s / W                                          rises to `peak`, which it has at step W; without warm-up, at step 1
//   s >  W:  t = (s − W) / (N − W), from just above 0 to 1 at the last step
//            cosine: floor + (peak − floor) · (1 + cos(π t)) / 2
//            linear: floor + (peak − floor) · (1 − t)
//
// So the last step has `floor` (default 0), unless the warm-up is not over by then. constant(x) is x at every step. In recipes: cosine {
// peak = …, warmup = 0, floor = 0 } (`min` is another name of `floor`), linear { … } with the same names, constant(x), or a function of the
// step and the number of steps that returns a number.
#pragma once

#include <cstdint>

#include "host/base/value.hpp"

namespace galley {

struct Decay {
  enum class Shape { Cosine, Linear } shape = Shape::Cosine;
  double peak = 0;
  int64_t warmup = 0;
  double floor = 0;
};

/// The table for steps 1 … steps, with the text "cosine{peak=0.001, warmup=5}". [thread-safe]
Schedule tabulate(const Decay& decay, int64_t steps);

/// One entry, which holds for ever: "constant(0.001)". [thread-safe]
Schedule constant(double value);

}  // namespace galley
