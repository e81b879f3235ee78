// Weights that are stored in a format, as kernels read them: a run at a time, in the dtype in which they are multiplied.
#pragma once

#include <algorithm>

#include "cpu/number.hpp"
#include "galley/cpp/coded.hpp"

namespace galley::cpu {

using sdk::Coded;

namespace detail {

template <class Rounded>
void load_through(const Coded& from, int64_t at, int64_t n, float* to) {
  alignas(64) Rounded rounded[run_length];
  in_runs(0, n, run_length, [&](int64_t first, int64_t size) {
    from.decode(at + first, size, rounded);
    widen(rounded, size, to + first);
  });
}

}  // namespace detail

/// n numbers from the one with index `at` on, rounded to `dtype`, as floats.
inline void load(const Coded& from, uint32_t dtype, int64_t at, int64_t n, float* to) {
  switch (dtype) {
    case GALLEY_BF16: return detail::load_through<Bf16>(from, at, n, to);
    case GALLEY_F16: return detail::load_through<F16>(from, at, n, to);
    default: return from.decode(at, n, to);
  }
}

/// Whether a kernel can read the node's weight or table, input 1, in whatever format; nothing else may be in one.
inline bool reads_weight(const sdk::Node& node) { return sdk::reads_coded(node, 1); }

}  // namespace galley::cpu
