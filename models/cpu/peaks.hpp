// What a target's peaks say about a processor's instructions, so that a plan does not depend on the machine that makes it.
#pragma once

#include <string>

#include "galley/cpp/plugin.hpp"

namespace galley::cpu {

/// Operations a second; 0: the target does not say.
inline double peak(const galley_target& target, const char* name) {
  for (uint32_t i = 0; i < target.n_peaks; ++i)
    if (galley_same_text(target.peaks[i]->name, name)) return target.peaks[i]->flops;
  return 0;
}

/// Operations in BF16 for each of F32; 0: not said.
inline double bf16_per_f32(const galley_target& target) {
  const double f32 = peak(target, "f32");
  return f32 > 0 ? peak(target, "bf16") / f32 : 0;
}

/// From so many on there are instructions that multiply pairs of BF16 numbers, and tiles.
inline constexpr double least_of_pairs = 1.5, least_of_tiles = 8;

/// Where a kernel is made that a target's peaks have asked for: whether this processor has its instructions is `here`.
inline void check_processor(const sdk::Node& node, bool here) {
  if (!here)
    throw sdk::Failure(GALLEY_FAILED,
                       std::string(node.name()) + ": the plan is for a processor with instructions for BF16; this one has none");
}

}  // namespace galley::cpu
