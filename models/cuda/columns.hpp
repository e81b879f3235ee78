// Sums over rows, column by column: gradients of weights and biases, from matrices of R rows and C columns. The rows are cut into pieces by
// shape alone. A block of 256 threads sums a piece of up to 256 columns: eight columns a lane, as many lanes as the columns need, and the
// rows of the piece in turn by the teams of so many lanes; then the teams are added in order. A second launch adds the pieces the same way;
// it reads less than a tenth of what the first one reads. Bound by memory.
//
// What a row adds is a struct:
//
//   struct Terms {
//     struct Raw { Packed dy, x; float rstd; };                                  what is fetched
//     __device__ void fetch(int64_t r, int64_t c, int n, Raw&) const;            for n columns from c on
//     __device__ void add(const Raw&, float (&sums)[outputs][kPack]) const;      zeros, or anything, after the n
//   };
//   column_sums<outputs>(R, C, {Writer(node, 0), …}, workspace, queue, terms);   all outputs are there
#pragma once

#include <algorithm>

#include "cuda/packed.hpp"

namespace galley::cuda {

inline constexpr int kColumnThreads = 256;

/// Who sums what.
struct ColumnSplit {
  int lanes;
  int64_t tiles, pieces, rows;  // of columns; of rows; rows of a piece
};

/// About 2048 blocks, but at most 512 pieces, and at least four rows a team.
inline ColumnSplit split_columns(int64_t R, int64_t C) {
  ColumnSplit s;
  s.lanes = lanes_of(C);
  s.tiles = blocks_of(C, s.lanes * kPack);
  const int64_t most = std::min<int64_t>({512, blocks_of(2048, s.tiles), blocks_of(R, 4 * kColumnThreads / s.lanes)});
  s.rows = blocks_of(R, std::max<int64_t>(most, 1));
  s.pieces = blocks_of(R, std::max<int64_t>(s.rows, 1));
  return s;
}

/// Where the sums go: element (output, piece, column) lies at piece · stride + column.
template <int outputs>
struct ColumnResults {
  Writer to[outputs];
  int64_t stride;
};

namespace detail {

template <int outputs, class Terms>
__global__ void __launch_bounds__(kColumnThreads)
    sum_columns(Terms terms, ColumnResults<outputs> results, ColumnSplit split, int64_t R, int64_t C) {
  constexpr int ahead = 2;  // rows fetched at a time
  GALLEY_SHARED(float, of_thread, outputs* kColumnThreads* kPack);
  const int thread = static_cast<int>(threadIdx.x), teams = kColumnThreads / split.lanes, width = split.lanes * kPack;
  const int64_t piece = blockIdx.x / split.tiles, first_column = blockIdx.x % split.tiles * width;
  const int64_t c = first_column + thread % split.lanes * kPack, first = piece * split.rows;
  const int64_t end = first + split.rows < R ? first + split.rows : R;
  const int n = pack_at(c, C);
  float sums[outputs][kPack] = {};
  if (n > 0) {
    for (int64_t r = first + thread / split.lanes; r < end; r += ahead * teams) {
      typename Terms::Raw raw[ahead];
#pragma unroll
      for (int k = 0; k < ahead; ++k)
        if (r + k * teams < end) terms.fetch(r + k * teams, c, n, raw[k]);
#pragma unroll
      for (int k = 0; k < ahead; ++k)
        if (r + k * teams < end) terms.add(raw[k], sums);
    }
  }
#pragma unroll
  for (int k = 0; k < outputs; ++k)
#pragma unroll
    for (int i = 0; i < kPack; i += 4) {
      const Vector<float, 4> four = {{sums[k][i], sums[k][i + 1], sums[k][i + 2], sums[k][i + 3]}};
      store_vector<float, 4>(of_thread + (k * kColumnThreads + thread) * kPack + i, four);
    }
  __syncthreads();
  if (thread >= width || first_column + thread >= C) return;
#pragma unroll
  for (int k = 0; k < outputs; ++k) {
    float total = 0;
    for (int team = 0; team < teams; ++team) total += of_thread[k * kColumnThreads * kPack + team * width + thread];
    results.to[k].put(piece * results.stride + first_column + thread, total);
  }
}

/// The sums of pieces, as terms: element (piece, output, column) of F32.
template <int outputs>
struct PieceSums {
  struct Raw {
    Packed of[outputs];
  };
  Reader sums;
  int64_t C;

  __device__ void fetch(int64_t piece, int64_t c, int n, Raw& raw) const {
#pragma unroll
    for (int k = 0; k < outputs; ++k) raw.of[k] = cuda::fetch(sums, (piece * outputs + k) * C + c, n);
  }
  __device__ void add(const Raw& raw, float (&to)[outputs][kPack]) const {
#pragma unroll
    for (int k = 0; k < outputs; ++k) {
      float numbers[kPack];
      unpack(raw.of[k], GALLEY_F32, numbers);
#pragma unroll
      for (int i = 0; i < kPack; ++i) to[k][i] += numbers[i];
    }
  }
};

}  // namespace detail

/// Bytes of workspace.
template <int outputs>
int64_t column_sums_workspace(int64_t R, int64_t C) {
  const int64_t pieces = split_columns(R, C).pieces;
  return pieces > 1 ? pieces * outputs * C * static_cast<int64_t>(sizeof(float)) : 0;
}

template <int outputs, class Terms>
void column_sums(int64_t R, int64_t C, const Writer (&to)[outputs], void* workspace, galley_queue* queue, const Terms& terms) {
  const ColumnSplit split = split_columns(R, C);
  ColumnResults<outputs> results = {}, pieces = {};
  for (int k = 0; k < outputs; ++k) {
    results.to[k] = to[k];
    pieces.to[k].data = static_cast<float*>(workspace) + k * C;
  }
  pieces.stride = outputs * C;
  launch(detail::sum_columns<outputs, Terms>, {split.tiles * split.pieces, kColumnThreads}, queue, terms,
         split.pieces > 1 ? pieces : results, split, R, C);
  if (split.pieces == 1) return;
  // Few columns a block, so that there are more blocks.
  ColumnSplit last = {std::min(split.lanes, 8), 0, 1, split.pieces};
  last.tiles = blocks_of(C, last.lanes * kPack);
  detail::PieceSums<outputs> sums = {};
  sums.sums.data = workspace;
  sums.C = C;
  launch(detail::sum_columns<outputs, detail::PieceSums<outputs>>, {last.tiles, kColumnThreads}, queue, sums, results, last, split.pieces,
         C);
}

}  // namespace galley::cuda
