// The random numbers of initializers: element i of a tensor comes from word i mod 4 of Philox block i / 4 (philox.h), keyed by the
// attributes "seed" and "stream" (by default the node's name).
#pragma once

#include <cmath>

#include "galley/cpp/plugin.hpp"

namespace galley::models {

class Draws {
 public:
  explicit Draws(const sdk::Node& node) {
    const int64_t random[4] = {node.i("seed", 0), 0, 0, 0};  // windows count from 1: no draw of training is keyed alike
    key_ = galley_random_key(random, node.stream());
  }
  uint64_t key() const { return key_; }

  /// In [0, 1), 24 bits.
  double uniform(int64_t i) const {
    return static_cast<double>(galley_uniform(galley_philox(key_, static_cast<uint64_t>(i / 4), 0).word[i % 4]));
  }

  /// Mean 0, deviation 1: words 0 and 1 of a block make the cosine and the sine of one point, 2 and 3 those of another.
  double normal(int64_t i) const {
    const galley_philox_block b = galley_philox(key_, static_cast<uint64_t>(i / 4), 0);
    const int pair = static_cast<int>(i % 4) / 2 * 2;
    const double radius = std::sqrt(-2 * std::log((b.word[pair] + 1.0) / 4294967296.0));
    const double angle = 6.283185307179586477 * b.word[pair + 1] / 4294967296.0;
    return radius * (i % 2 ? std::sin(angle) : std::cos(angle));
  }

 private:
  uint64_t key_;
};

}  // namespace galley::models
