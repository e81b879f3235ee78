// Products of BF16 matrices by instructions that multiply pairs of BF16 numbers and add in F32: what processors have in place of a
// multiply-add of BF16. Both operands are read 32 numbers of k at a time:
//   A   16 rows of 64 bytes, a row's 32 numbers after each other. Where they lie so in memory, they are read there.
//   B   16 rows of 64 bytes for 16 columns: row i has the numbers 2i and 2i + 1 of each column. It is always copied; of one in a format, a
//       few rows at a time are made numbers, which are copied from the first-level cache.
// Two such tiles make a strip of 32 rows of A or 32 columns of B.
#pragma once

#include "ops/linear/blocked.hpp"

namespace galley::cpu::pairs {

inline constexpr int64_t strip = 32;         // rows or columns of C at a time
inline constexpr int64_t step = 32;          // numbers of k in a tile
inline constexpr int64_t tile_bytes = 1024;  // 16 rows of 64

/// What decides how a product is cut, of one kind of instructions: seconds of one core, roughly, as measured (cpu_bf16.cpp).
struct Costs {
  double of_operation;  ///< all operands near
  double of_copied_number, of_far_number, of_near_number, of_decoded_number;
  double of_few_tasks;             ///< a factor, where tasks are so few that a thread may wait for another one
  int64_t good_depth, most_depth;  ///< numbers of k at a time, whose strips stay in near caches; up to the most are not worth two pieces
  int64_t shared_row;  ///< rows of A that are multiples of so many numbers apart share a few sets of the cache: they are copied; 0: none
};

/// How a product is cut: blocks of C, each made in pieces of k. For each piece a panel of B is copied, which stays in the second-level
/// cache, and A is taken strip by strip. Sums that have more than one piece are held in F32. A task is a run of blocks, down a column
/// first; what the next block needs is asked for ahead.
struct Cut {
  int64_t rows, columns, depth, row_blocks, column_blocks, pieces, tasks;
  bool copies_a, decodes_b;
  int64_t blocks() const { return row_blocks * column_blocks; }
  int64_t panel_bytes() const { return columns * depth * 2; }
  int64_t strip_bytes() const { return strip * depth * 2; }
  int64_t sums_bytes() const { return (pieces > 1 ? rows * columns : strip * strip) * static_cast<int64_t>(sizeof(float)); }
  /// Room for numbers of a B in a format, in rows: of the strip's columns, or of a step's numbers of k.
  int64_t decoded_row() const { return std::max(depth, columns) + 32; }  // not a power of two apart
  int64_t decoded_bytes() const { return decodes_b ? strip * decoded_row() * 2 : 0; }
  int64_t lane_bytes() const { return panel_bytes() + strip_bytes() + sums_bytes() + decoded_bytes(); }
};

Cut cut(const Multiply& p, int64_t threads, const Costs& costs);

/// A strip of A: two tiles, the second `below` bytes after the first, rows `row` bytes apart; the next numbers of k `next` bytes after.
struct Strip {
  const char* data;
  int64_t row, below, next;
};

/// sums (32 × 32) = or += a strip of A times a strip of B, `steps` tiles deep. A function of another file: compilers do not see that tiles
/// are read from memory, and would otherwise write what is copied too late.
using Block = void (*)(int64_t steps, Strip a, const char* b, float* sums, bool adds);

/// Task `task` in a lane's memory (Cut::lane_bytes).
void multiply(const Multiply& p, const Cut& cut, Block block, int64_t task, void* memory);

}  // namespace galley::cpu::pairs
