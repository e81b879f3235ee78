#include "host/base/schedule.hpp"

#include <cmath>
#include <numbers>

#include "host/base/json.hpp"

namespace galley {

Schedule tabulate(const Decay& decay, int64_t steps) {
  Schedule schedule;
  schedule.text = std::string(decay.shape == Decay::Shape::Cosine ? "cosine" : "linear") + "{peak=" + to_json(Value(decay.peak));
  if (decay.warmup > 0) schedule.text += ", warmup=" + std::to_string(decay.warmup);
  if (decay.floor != 0) schedule.text += ", floor=" + to_json(Value(decay.floor));
  schedule.text += "}";

  const int64_t warmup = decay.warmup;
  schedule.table.reserve(static_cast<size_t>(steps));
  for (int64_t i = 0; i < steps; ++i) {
    if (i < warmup) {
      schedule.table.push_back(decay.peak * (static_cast<double>(i + 1) / (static_cast<double>(warmup) + 1)));
      continue;
    }
    const double t = static_cast<double>(i - warmup) / static_cast<double>(steps - warmup);
    const double share = decay.shape == Decay::Shape::Cosine ? 0.5 * (1 + std::cos(std::numbers::pi * t)) : 1 - t;
    schedule.table.push_back(decay.floor + (decay.peak - decay.floor) * share);
  }
  return schedule;
}

Schedule constant(double value) { return {"constant(" + to_json(Value(value)) + ")", {value}}; }

}  // namespace galley
