// A general product of matrices after Goto and van de Geijn ("Anatomy of high-performance matrix multiplication", ACM TOMS 34(3), 2008),
// for any strides: C (m × n, dense) = or += A · B (+ bias). Blocks of B and, where its columns are contiguous, of A are copied into cache,
// in the order in which tile.hpp reads them: strips of as many columns of B, or rows of A, as a tile has. They are asked for ahead of that
// while the block before is multiplied. It multiplies and adds in F32: operands in BF16 and F16 are converted as they are copied, and a C
// in 16 bit is held in F32 until it is done. A B in a format becomes numbers where it is copied.
//
// Bits. Each element of C is a sum of chains of at most 512 fused multiply-adds in the order of k, on top of what C held and the bias.
// Where a chain ends depends on k alone; blocks and tasks cut the work, not the chains: the result is the same for any number of threads,
// and for every CPU with fused multiply-add.
#pragma once

#include <algorithm>
#include <cstring>

#include "cpu/coded.hpp"
#include "ops/linear/activation.hpp"
#include "ops/linear/tile.hpp"

namespace galley::cpu {

/// A(i, k) = a[i·a_row + k·a_step], B(k, j) = b[k·b_row + j·b_step]; one of each pair of strides is 1.
struct Multiply {
  int64_t m, n, k;
  const void* a;
  int64_t a_row, a_step;
  const void* b;
  int64_t b_row, b_step;
  Coded coded;       ///< B, where it is in a format; then `b` is null
  void* c;           ///< (m, n); null where an activation takes it
  const void* bias;  ///< (n), or null
  bool add;
  float alpha;     ///< the product is multiplied by this before the bias and what C holds are added
  uint32_t dtype;  ///< of A and B
  uint32_t c_dtype, bias_dtype;
  const void* addend;  ///< (m, n) in the dtype of C: the product, rounded to it, is added to this; null: it is not
  bool copies_a() const { return a_step != 1 || dtype != GALLEY_F32; }
  /// Whether alpha multiplies what is copied of A; else what is copied of B. It must not depend on how many rows there are: a row has the
  /// same bytes in a chunk.
  bool scales_a() const { return copies_a(); }
};

/// How a product is cut: blocks of C of `rows` × `columns`, all of k in steps of `depth`. A task is a run of blocks, down a column first:
/// what is copied of B serves those below each other. Lanes do tasks, each with buffers of its own.
struct Blocking {
  int64_t rows, columns, depth, row_blocks, column_blocks, tasks;
  bool copies_a, holds_c;  ///< has room for blocks of A, for sums in F32
  int64_t blocks() const { return row_blocks * column_blocks; }
  int64_t packed_a() const { return copies_a ? (rows + tile::most_rows - 1) / tile::most_rows * tile::most_rows * depth : 0; }
  int64_t packed_b() const { return columns * depth; }
  int64_t edge() const { return rows * tile::width; }
  int64_t held_c() const { return holds_c ? std::min(row_blocks, (blocks() + tasks - 1) / tasks) * rows * columns : 0; }
  int64_t lane_bytes() const { return (packed_a() + packed_b() + edge() + held_c()) * static_cast<int64_t>(sizeof(float)); }
};

inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/// The first float at or behind `p` that begins a cache line.
inline float* on_a_line(void* p) {
  return reinterpret_cast<float*>(static_cast<char*>(p) + (64 - reinterpret_cast<uintptr_t>(p) % 64) % 64);
}

inline constexpr int64_t most_rows = 96, most_columns = 256, most_depth = 512;

/// Columns of a block where A is not copied: as many as keep the threads busy for the same time, the widest of those that do.
inline int64_t even_columns(int64_t n, int64_t widest, int64_t threads) {
  constexpr int64_t unit = tile::most_groups * tile::width;
  const int64_t least = std::max<int64_t>(unit, 48);
  int64_t best = least, load = n + 1;
  for (int64_t columns = std::max(widest, least); columns >= least; columns -= unit) {
    const int64_t blocks = (n + columns - 1) / columns, longest = std::min(n, (blocks + threads - 1) / threads * columns);
    if (blocks < 4 * threads || longest >= load) continue;
    best = columns;
    load = longest;
  }
  return best;
}

inline Blocking block(const Multiply& p, int64_t threads, bool holds_c) {
  Blocking out = {};
  threads = std::max<int64_t>(threads, 1);
  const int64_t steps = std::max<int64_t>(1, (p.k + most_depth - 1) / most_depth);
  out.depth = (p.k + steps - 1) / steps;
  out.rows = std::min<int64_t>(p.m, p.copies_a() ? 48 : most_rows);
  out.row_blocks = (p.m + out.rows - 1) / out.rows;
  if (p.copies_a()) {
    // Wide blocks copy A seldom; narrow ones leave enough tasks for all threads.
    for (out.columns = most_columns; out.columns > 64; out.columns /= 2)
      if (out.row_blocks * ((p.n + out.columns - 1) / out.columns) >= 4 * threads) break;
    const int64_t blocks = (p.n + out.columns - 1) / out.columns;
    out.columns = round_up((p.n + blocks - 1) / blocks, tile::most_groups * tile::width);
  } else {
    out.columns = even_columns(p.n, 128, threads);
  }
  out.columns = std::min(out.columns, round_up(p.n, tile::width));
  out.column_blocks = (p.n + out.columns - 1) / out.columns;
  // Several a thread, so that none waits long for another's last one, and as many for each; parts of columns, if those are fewer.
  int64_t parts = 1;
  while (parts < out.row_blocks && (parts * out.column_blocks < 4 * threads || parts * out.column_blocks % threads != 0)) ++parts;
  out.tasks = parts * out.column_blocks;
  out.copies_a = p.copies_a();
  out.holds_c = holds_c;
  return out;
}

/// to[j][i] = from[i][j] for i < rows, j < columns; rows' distances are given. Rows of `to` beyond are untouched.
void transpose(const float* from, int64_t from_row, int64_t rows, int64_t columns, float* to, int64_t to_row);

/// Task `task` of the product, in a lane's memory (Blocking::lane_bytes), with the activation that follows, if one does.
void multiply(const Multiply& p, const Blocking& cut, int64_t task, void* memory, const Activation* activation);

}  // namespace galley::cpu
