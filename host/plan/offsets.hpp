// Offsets for blocks of known size and lifetime (dynamic storage allocation): a fixed number of greedy packings, the best kept.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace galley {

/// `bytes` that nobody else may have from moment `first` to moment `last`, both included.
struct Block {
  int64_t bytes = 0;
  int32_t first = 0;
  int32_t last = 0;
};

struct BlockOffsets {
  std::vector<int64_t> offsets;  ///< one a block; sums of blocks' sizes, so aligned when all sizes are
  int64_t peak = 0;              ///< bytes
  int64_t lower_bound = 0;       ///< largest sum of live bytes over all moments
  int trials = 0;                ///< packings tried before one reached the lower bound or the trials were used up
};

/// Ties go to the block that comes first; the same blocks give the same offsets on any machine. Blocks of no bytes lie at 0. [plan-time]
/// Pure.
BlockOffsets pack(std::span<const Block> blocks);

}  // namespace galley
