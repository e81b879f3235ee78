// Sums over rows, column by column: weight and bias gradients. The rows are cut into pieces by shape alone; each piece adds up its rows,
// 32 at a time (short sums round less), and the pieces are added in order. What the pieces found lies in the workspace.
#pragma once

#include "cpu/number.hpp"

namespace galley::cpu {

inline constexpr int64_t column_block = run_length;  // columns of a piece: its running sums stay in the first-level cache
inline constexpr int64_t short_sum = 32;             // rows added up before they join the running sum

struct ColumnPieces {
  int64_t row_blocks, rows_of_one, column_blocks;
};

/// About 64 pieces, so that as many threads have work, but none of fewer than 64 rows.
inline ColumnPieces column_pieces(int64_t rows, int64_t columns) {
  ColumnPieces p;
  p.column_blocks = divide_up(columns, column_block);
  int64_t blocks = divide_up(64, p.column_blocks ? p.column_blocks : 1);
  const int64_t most = divide_up(rows, 64);
  blocks = blocks < most ? blocks : most;
  p.rows_of_one = divide_up(rows, blocks ? blocks : 1);
  p.row_blocks = p.rows_of_one ? divide_up(rows, p.rows_of_one) : 1;
  return p;
}

/// Bytes of workspace for `outputs` vectors of sums.
inline int64_t column_sums_workspace(int64_t rows, int64_t columns, int64_t outputs) {
  const int64_t blocks = column_pieces(rows, columns).row_blocks;
  return blocks > 1 ? blocks * columns * outputs * static_cast<int64_t>(sizeof(float)) : 0;
}

/// out[k][c] = Σ_r of what row(r, c, n, into) adds to into[k][0 … n) for columns c … c + n, at most a run of them, or adds that sum to out.
/// An output may be absent: then row must leave into[k] alone.
template <int outputs, class Row>
inline void column_sums(int64_t rows, int64_t columns, const Output (&out)[outputs], void* workspace, const Row& row) {
  const ColumnPieces pieces = column_pieces(rows, columns);
  float* const partial = static_cast<float*>(workspace);  // (row_blocks, outputs, columns)
  const auto finish = [&](int k, int64_t first, int64_t n, const float* sums) {
    Buffer buffer;
    float* const to = out[k].open(first, n, buffer);
    if (out[k].adds())
      for (int64_t c = 0; c < n; ++c) to[c] += sums[c];
    else
      for (int64_t c = 0; c < n; ++c) to[c] = sums[c];
    out[k].close(first, n, to);
  };
  sdk::parallel(pieces.row_blocks * pieces.column_blocks, [&](int64_t piece) {
    const int64_t block = piece / pieces.column_blocks, first = piece % pieces.column_blocks * column_block;
    const int64_t n = first + column_block < columns ? column_block : columns - first;
    int64_t r = block * pieces.rows_of_one;
    const int64_t end = r + pieces.rows_of_one < rows ? r + pieces.rows_of_one : rows;
    alignas(64) float total[outputs][column_block] = {};
    while (r < end) {
      alignas(64) float few[outputs][column_block] = {};
      float* into[outputs];
      for (int k = 0; k < outputs; ++k) into[k] = few[k];
      for (const int64_t stop = r + short_sum < end ? r + short_sum : end; r < stop; ++r) row(r, first, n, into);
      for (int k = 0; k < outputs; ++k)
        for (int64_t c = 0; c < n; ++c) total[k][c] += few[k][c];
    }
    for (int k = 0; k < outputs; ++k) {
      if (!out[k]) continue;
      if (pieces.row_blocks == 1) {
        finish(k, first, n, total[k]);
      } else {
        float* to = partial + (block * outputs + k) * columns + first;
        for (int64_t c = 0; c < n; ++c) to[c] = total[k][c];
      }
    }
  });
  if (pieces.row_blocks == 1) return;
  sdk::parallel(pieces.column_blocks, [&](int64_t block) {
    const int64_t first = block * column_block, n = first + column_block < columns ? column_block : columns - first;
    for (int k = 0; k < outputs; ++k) {
      if (!out[k]) continue;
      alignas(64) float total[column_block] = {};
      for (int64_t piece = 0; piece < pieces.row_blocks; ++piece) {
        const float* from = partial + (piece * outputs + k) * columns + first;
        for (int64_t c = 0; c < n; ++c) total[c] += from[c];
      }
      finish(k, first, n, total);
    }
  });
}

}  // namespace galley::cpu
