// Quantities that follow the step. A run of N steps with a warm-up of W steps has at step s = 1 … N, with i = s − 1:
//
//   i <  W:  peak · (i + 1) / (W + 1)
//   i >= W:  t = (i − W) / (N − W), which is 0 at the first step behind the warm-up and below 1 at the last step
//            cosine: floor + (peak − floor) · (1 + cos(π t)) / 2
//            linear: floor + (peak − floor) · (1 − t)
//
// Behind the warm-up this is what transformers' get_cosine_schedule_with_warmup and get_linear_schedule_with_warmup give (with the default
// floor of 0), and PyTorch's CosineAnnealingLR and LinearLR with one scheduler step a training step: the rate comes to `floor` at the step
// that follows the run, so that the last step trains too. The warm-up differs from transformers', which has peak · i / W and spends the
// first step at 0; it is nanoGPT's. constant(x) is x at every step.
//
// In recipes: cosine { peak = …, warmup = 0, floor = 0 } (`min` is another name of `floor`), linear { … } with the same names, constant(x),
// or a function of the step (from 1) and the number of steps that returns a number.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "host/base/value.hpp"

namespace galley {

/// A quantity that depends on the step, tabulated: table[i] is its value at step i + 1; the last entry holds from there on.
class Schedule final : public Foreign {
 public:
  Schedule() = default;
  Schedule(std::string text_, std::vector<double> table_) : text(std::move(text_)), table(std::move(table_)) {}
  const char* type_name() const override { return "schedule"; }
  std::string written() const override { return text; }
  double at(int64_t step) const {
    const auto last = static_cast<int64_t>(table.size()) - 1;
    return table[static_cast<size_t>(step < 1 ? 0 : step - 1 > last ? last : step - 1)];
  }

  std::string text;           ///< how the recipe wrote it, e.g. "cosine{peak=0.001, warmup=5}", for reports
  std::vector<double> table;  ///< never empty
};

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
