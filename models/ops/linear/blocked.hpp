// A general product of matrices after Goto and van de Geijn ("Anatomy of high-performance matrix multiplication", ACM TOMS 34(3), 2008),
// for any strides: C (m × n, dense) = or += A · B (+ bias). Blocks of B and, where its columns are contiguous, of A are copied into cache,
// in the order in which tile.hpp reads them: strips of as many columns of B, or rows of A, as a tile has. They are asked for ahead of that
// while the block before is multiplied. It multiplies and adds in F32: operands in BF16 and F16 are converted as they are copied, and a C
// in 16 bit is held in F32 until it is done. A B in a format becomes numbers where it is copied. Of at most 8 rows, as when texts are
// written, nothing is copied: B goes from memory into registers.
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

/// Columns of the widest tile.
inline constexpr int64_t across = tile::most_groups * tile::width;

inline int64_t round_up(int64_t n, int64_t to) { return divide_up(n, to) * to; }

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
  int64_t packed_a() const { return copies_a ? round_up(rows, tile::most_rows) * depth : 0; }
  int64_t packed_b() const { return columns * depth; }
  int64_t edge() const { return rows * tile::width; }
  int64_t held_c() const { return holds_c ? std::min(row_blocks, divide_up(blocks(), tasks)) * rows * columns : 0; }
  int64_t lane_bytes() const { return (packed_a() + packed_b() + edge() + held_c()) * static_cast<int64_t>(sizeof(float)); }
};

/// The first float at or after `p` that begins a cache line.
inline float* on_a_line(void* p) {
  return reinterpret_cast<float*>(static_cast<char*>(p) + (64 - reinterpret_cast<uintptr_t>(p) % 64) % 64);
}

inline constexpr int64_t most_rows = 96, most_columns = 576, most_depth = 512;

/// How many tasks a column is cut into: several a thread, so that none waits long for another's last one, and as many for each.
inline int64_t parts_of_column(int64_t row_blocks, int64_t column_blocks, int64_t threads) {
  int64_t parts = 1;
  while (parts < row_blocks && (parts * column_blocks < 4 * threads || parts * column_blocks % threads != 0)) ++parts;
  return parts;
}

/// Columns of a block where A is not copied: as many as keep the threads busy for the same time, the widest of those that do.
inline int64_t even_columns(int64_t n, int64_t threads) {
  constexpr int64_t least = std::max<int64_t>(across, 48);
  int64_t best = least, load = n + 1;
  for (int64_t columns = 128; columns >= least; columns -= across) {
    const int64_t blocks = divide_up(n, columns), longest = std::min(n, divide_up(blocks, threads) * columns);
    if (blocks < 4 * threads || longest >= load) continue;
    best = columns;
    load = longest;
  }
  return best;
}

/// Columns of a block where A is copied. Wide blocks copy A seldom, and B often, as they are cut into several tasks: the least of both that
/// is enough tasks.
inline int64_t copying_columns(const Multiply& p, int64_t row_blocks, int64_t threads) {
  int64_t best = 64, copies = INT64_MAX;
  for (int64_t blocks = divide_up(p.n, most_columns); divide_up(p.n, blocks) >= 64; ++blocks) {
    const int64_t all = parts_of_column(row_blocks, blocks, threads) * p.n + blocks * p.m;
    if (blocks * row_blocks < 4 * threads || all >= copies) continue;
    best = round_up(divide_up(p.n, blocks), across);
    copies = all;
  }
  return best;
}

inline Blocking block(const Multiply& p, int64_t threads, bool holds_c) {
  Blocking out = {};
  threads = std::max<int64_t>(threads, 1);
  out.depth = divide_up(p.k, std::max<int64_t>(1, divide_up(p.k, most_depth)));
  out.rows = std::min<int64_t>(p.m, p.copies_a() ? 48 : most_rows);
  out.row_blocks = divide_up(p.m, out.rows);
  out.columns = p.copies_a() ? copying_columns(p, out.row_blocks, threads) : even_columns(p.n, threads);
  out.columns = std::min(out.columns, round_up(p.n, tile::width));
  out.column_blocks = divide_up(p.n, out.columns);
  out.tasks = parts_of_column(out.row_blocks, out.column_blocks, threads) * out.column_blocks;
  out.copies_a = p.copies_a();
  out.holds_c = holds_c;
  return out;
}

/// to[j][i] = from[i][j] for i < rows, j < columns; rows' distances are given. Rows of `to` beyond are untouched.
void transpose(const float* from, int64_t from_row, int64_t rows, int64_t columns, float* to, int64_t to_row);

/// Task `task` of the product, in a lane's memory (Blocking::lane_bytes), with the activation that follows, if one does.
void multiply(const Multiply& p, const Blocking& cut, int64_t task, void* memory, const Activation* activation);

}  // namespace galley::cpu
