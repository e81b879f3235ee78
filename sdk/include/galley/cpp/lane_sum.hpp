// Sums of F32 numbers in a fixed order on the CPU, which the compiler makes vectors of: neither their width nor threads change a bit.
#pragma once

#include <cstdint>

namespace galley::sdk {

/// Σ term(i) for i in [0, n), in 16 lanes of F32. Add up at most some thousand numbers so, and such sums in double.
template <class Term>
inline double lane_sum(int64_t n, const Term& term) {
  constexpr int kLanes = 16;
  alignas(64) float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int k = 0; k < kLanes; ++k) lanes[k] += term(i + k);
  for (int k = 0; i < n; ++i, ++k) lanes[k] += term(i);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int k = 0; k < width; ++k) lanes[k] += lanes[k + width];
  return static_cast<double>(lanes[0]);
}

}  // namespace galley::sdk
