// The dynamic loss scale, as torch.amp.GradScaler has it.
#pragma once

#include "galley/cpp/plugin.hpp"

namespace galley::amp {

/// The op of the update.
sdk::Op& update_scale();

/// What the attributes of update_scale say. T is float in kernels, double in the reference.
template <class T>
struct ScaleRule {
  T growth, backoff;
  int64_t growth_interval, max_skips;

  explicit ScaleRule(const sdk::Node& node)
      : growth(static_cast<T>(node.f("growth", 2))),
        backoff(static_cast<T>(node.f("backoff", 0.5))),
        growth_interval(node.i("growth_interval", 2000)),
        max_skips(node.i("max_skips", 20)) {}
};

/// Its operands.
template <class T>
struct ScaleValues {
  const int32_t* found_inf;
  T* scale;
  int32_t *good, *skipped, *apply, *gave_up;

  explicit ScaleValues(const sdk::Node& node)
      : found_inf(node.read<int32_t>(0)),
        scale(node.update<T>(1)),
        good(node.update<int32_t>(2)),
        skipped(node.update<int32_t>(3)),
        apply(node.write<int32_t>(0)),
        gave_up(node.write<int32_t>(1)) {}
};

/// What one step does to the scale.
template <class T>
GALLEY_HOST_DEVICE void update(const ScaleRule<T>& rule, const ScaleValues<T>& at) {
  const bool overflow = *at.found_inf != 0;
  T scale = *at.scale;
  int32_t good = *at.good, skipped = *at.skipped;
  if (overflow) {
    scale *= rule.backoff;
    good = 0;
    ++skipped;
  } else {
    skipped = 0;
    if (++good == rule.growth_interval) {
      // A scale that is no number any more would skip every step from here on.
      if (scale * rule.growth <= static_cast<T>(3.4028234663852886e38)) scale *= rule.growth;
      good = 0;
    }
  }
  *at.scale = scale;
  *at.good = good;
  *at.skipped = skipped;
  *at.apply = !overflow;
  *at.gave_up = skipped >= rule.max_skips;
}

/// The same for a node whose operands the processor can read.
template <class T>
void update(const sdk::Node& node) {
  update(ScaleRule<T>(node), ScaleValues<T>(node));
}

}  // namespace galley::amp
