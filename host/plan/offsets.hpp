// Finds offsets for blocks of known size and lifetime (dynamic storage allocation): tries a fixed number of greedy packings, keeps the
// best.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace galley {

/// A block that has its bytes for itself from moment `first` to moment `last`, both included.
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

/// Packs blocks. Ties go to the block that comes first, and the same blocks give the same offsets on any machine. Blocks of no bytes get
/// the offset 0. [plan-time] Pure.
BlockOffsets pack(std::span<const Block> blocks);

}  // namespace galley
