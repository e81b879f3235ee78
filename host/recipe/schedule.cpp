#include "host/recipe/schedule.hpp"

#include <algorithm>
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

  const int64_t rise = std::max<int64_t>(decay.warmup, 1);
  schedule.table.reserve(static_cast<size_t>(steps));
  for (int64_t step = 1; step <= steps; ++step) {
    if (step <= rise) {
      schedule.table.push_back(decay.peak * (static_cast<double>(step) / static_cast<double>(rise)));
      continue;
    }
    const double t = static_cast<double>(step - rise) / static_cast<double>(steps - rise);
    const double share = decay.shape == Decay::Shape::Cosine ? 0.5 * (1 + std::cos(std::numbers::pi * t)) : 1 - t;
    schedule.table.push_back(decay.floor + (decay.peak - decay.floor) * share);
  }
  return schedule;
}

Schedule constant(double value) { return {"constant(" + to_json(Value(value)) + ")", {value}}; }

}  // namespace galley
