// Draws the host's random numbers, by the SDK's Philox with names for what the host draws. Every draw is a function of its key and counter;
// nothing here has a state. [thread-safe]
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "galley/philox.h"

namespace galley {

/// Returns a number that is uniform in [0, bound), from 64 uniform bits: the high word of their product, whose bias (bound / 2^64) nobody
/// can measure. bound > 0.
inline uint64_t below(uint64_t bits, uint64_t bound) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>(static_cast<Wide>(bits) * bound >> 64);
}

/// Returns the first (half 0) or the second (half 1) pair of words of a block as 64 bits.
inline uint64_t bits64(const galley_philox_block& block, size_t half) {
  return static_cast<uint64_t>(block.word[2 * half]) | static_cast<uint64_t>(block.word[2 * half + 1]) << 32;
}

/// A permutation of [0, size) that is computed, not kept: a Feistel network of Philox rounds over the next even power of two, walked
/// until it lands inside. A draw takes at most four passes on average, however large the set.
class Permutation {
 public:
  Permutation(uint64_t size, uint64_t key) : size_(size), key_(key) {
    const int bits = size > 1 ? static_cast<int>(std::bit_width(size - 1)) : 1;
    half_bits_ = (bits + 1) / 2;
  }

  /// index < size.
  uint64_t operator()(uint64_t index) const {
    do index = pass(index);
    while (index >= size_);
    return index;
  }

 private:
  // Luby and Rackoff prove four rounds for large sets; tiny ones, which text corpora have too, want more.
  static constexpr uint64_t kRounds = 8;

  uint64_t pass(uint64_t index) const {
    const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
    uint64_t left = index >> half_bits_, right = index & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const uint64_t mixed = left ^ (bits64(galley_philox(key_, right, round), 0) & mask);
      left = right;
      right = mixed;
    }
    return left << half_bits_ | right;
  }

  uint64_t size_, key_;
  int half_bits_;
};

}  // namespace galley
