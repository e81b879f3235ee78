// The random numbers of PEFT's projections: those of PyTorch's generator on the CPU, the Mersenne Twister (Matsumoto, Nishimura 1998), of
// whose 32 bits a number takes 24.
#pragma once

#include <cstdint>

#include "galley/cpp/node.hpp"

namespace galley::vera {

struct Draws {
  explicit Draws(const sdk::Node& node)
      : key(static_cast<uint32_t>(node.i("key", 0))), before(node.i("before", 0)), bound(static_cast<float>(node.f("bound", 1))) {}
  uint32_t key;
  int64_t before;  ///< how many numbers have been drawn
  float bound;
};

/// In [−bound, bound), by one number of the generator.
#ifdef __CUDACC__
__host__ __device__
#endif
    inline double
    uniform(uint32_t bits, float bound) {
  return static_cast<double>(bits & 0xFFFFFFu) * 0x1p-24 * static_cast<double>(bound - -bound) + static_cast<double>(-bound);
}

}  // namespace galley::vera
