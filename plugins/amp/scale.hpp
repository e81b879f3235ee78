// The dynamic loss scale, as torch.amp.GradScaler has it.
#pragma once

#include "galley/cpp/plugin.hpp"

namespace galley::amp {

/// The op of the update.
sdk::Op& update_scale();

/// What one step does to the scale. T is float in kernels, double in the reference.
template <class T>
void update(const sdk::Node& node) {
  const bool overflow = *node.read<int32_t>(0) != 0;
  T& scale = *node.update<T>(1);
  int32_t &good = *node.update<int32_t>(2), &skipped = *node.update<int32_t>(3);
  const T growth = static_cast<T>(node.f("growth", 2)), backoff = static_cast<T>(node.f("backoff", 0.5));
  if (overflow) {
    scale *= backoff;
    good = 0;
    ++skipped;
  } else {
    skipped = 0;
    if (++good == node.i("growth_interval", 2000)) {
      // A scale that is no number any more would skip every step from here on.
      if (scale * growth <= static_cast<T>(3.4028234663852886e38)) scale *= growth;
      good = 0;
    }
  }
  *node.write<int32_t>(0) = !overflow;
  *node.write<int32_t>(1) = skipped >= node.i("max_skips", 20);
}

}  // namespace galley::amp
