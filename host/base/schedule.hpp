// Schedules: quantities that depend on the step. A run of N steps with a warm-up of W steps has at step s = 1 … N, with i = s − 1:
//
//   i <  W:  peak · (i + 1) / (W + 1)
//   i >= W:  after the warm-up, with t = (i − W) / (N − W), which is 0 at its first step and below 1 at the last step of the run,
//
//     cosine                floor + (peak − floor) · (1 + cos(π t)) / 2
//     linear                floor + (peak − floor) · (1 − t)
//     constant_with_warmup  peak
//     wsd                   warm-up, stable, decay: the last D steps decay. With u = (i − (N − D)) / D,
//                           i < N − D:  peak
//                           i >= N − D: floor + (peak − floor) · f(u), where f by decay_type is
//                                       "cosine" (1 + cos(π u)) / 2,  "linear" 1 − u,  "1-sqrt" 1 − √u
//     inverse_sqrt          peak / √((i − W + T) / T), with a timescale T of W steps, or of 10,000 without a warm-up
//
// After the warm-up these are what transformers gives (optimization.py: get_cosine_schedule_with_warmup, get_linear_schedule_with_warmup,
// get_constant_schedule_with_warmup, get_wsd_schedule with num_stable_steps = N − W − D, get_inverse_sqrt_schedule; peak is the optimizer's
// rate, floor is 0 there, and min_lr_ratio · peak in wsd), and PyTorch's CosineAnnealingLR and LinearLR with one scheduler step a training
// step: the rate comes to `floor` at the step that follows the run, so that the last step trains too. The warm-up differs from
// transformers', which has peak · i / W and spends the first step at 0; it is nanoGPT's. constant(x) is x at every step.
//
// W and D are numbers of steps (100), or shares of the run below 1 (0.03), rounded up to whole steps as transformers' warmup_ratio is.
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

/// A number of steps, or a share of the run if it is below 1.
struct Span {
  double value = 0;
  int64_t of(int64_t steps) const;
};

struct Curve {
  enum class Shape : uint8_t { Cosine, Linear, ConstantWithWarmup, Wsd, InverseSqrt } shape = Shape::Cosine;
  enum class Decay : uint8_t { Cosine, Linear, OneMinusSqrt } decay_type = Decay::Cosine;  ///< Wsd
  double peak = 0;
  Span warmup = {};
  double floor = 0;       ///< Cosine, Linear, Wsd
  Span decay = {};        ///< Wsd
  int64_t timescale = 0;  ///< InverseSqrt; 0: by the warm-up
};

/// Return how recipes write a shape ("cosine") and a decay ("1-sqrt").
const char* name_of(Curve::Shape shape);
const char* name_of(Curve::Decay decay);

/// Tabulates a curve for steps 1 … steps, with the text "cosine{peak=0.001, warmup=5}". [thread-safe]
Schedule tabulate(const Curve& curve, int64_t steps);

/// Returns a schedule with one entry, which holds for ever: "constant(0.001)". [thread-safe]
Schedule constant(double value);

}  // namespace galley
