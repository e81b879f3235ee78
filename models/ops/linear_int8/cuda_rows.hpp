// x as linear_int8 multiplies it, on CUDA: three launches find the columns of outliers, list them in order, and make codes and scales of
// rows, or x̂ in F32.
#pragma once

#include <algorithm>

#include "cuda/workspace.hpp"
#include "galley/cuda/kernel.hpp"
#include "galley/cuda/reduce.hpp"
#include "ops/linear_int8/outlier.hpp"

namespace galley::cuda::linear_int8_op {

namespace int8_rows = sdk::int8_rows;

struct Shape {
  explicit Shape(const Node& n) : R(rows(n.in(0))), K(columns(n.in(0))), N(columns(n.out(0))) {}
  int64_t R, K, N;
};

/// Parts of a workspace, each at a multiple of kWorkspaceAlignment.
class Room {
 public:
  explicit Room(void* workspace) : begin_(reinterpret_cast<uintptr_t>(aligned_workspace(workspace))) {}
  template <class T>
  T* take(int64_t count) {
    T* const out = reinterpret_cast<T*>(begin_ + static_cast<uintptr_t>(used_));
    used_ += blocks_of(count * static_cast<int64_t>(sizeof(T)), kWorkspaceAlignment) * kWorkspaceAlignment;
    return out;
  }
  /// What has been taken, wherever the workspace will lie.
  int64_t bytes() const { return used_ + kWorkspaceAlignment; }

 private:
  uintptr_t begin_;
  int64_t used_ = 0;
};

/// The columns of outliers, as kernels see them: passed by value.
struct Outliers {
  int32_t* count = nullptr;
  int32_t* columns = nullptr;  ///< in order
  uint8_t* mask = nullptr;     ///< of each column, 1 for an outlier, then those of pieces of rows; null where none can be one
};

inline constexpr int kRowThreads = 256, kListThreads = 1024, kStrip = kWarpSize * kPack;
/// Rows are looked through in pieces, so that there are blocks for a whole GPU.
inline constexpr int64_t kMostPieces = 16, kLeastOfPiece = 64;

__device__ inline float in_f16(float x) { return rounded(x, GALLEY_F16); }

/// A block takes 256 columns of some rows, a warp each of them in its turn, a lane eight numbers. A row of `masks` for each such rows.
template <int threads>
__global__ void __launch_bounds__(threads)
    find_outliers(Reader x, int64_t rows, int64_t columns, int64_t rows_of_piece, int64_t strips, float threshold, uint8_t* masks) {
  constexpr int warps = threads / kWarpSize;
  GALLEY_SHARED(uint32_t, largest, warps * kStrip);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int64_t piece = blockIdx.x / strips, begin = blockIdx.x % strips * kStrip, k = begin + lane * kPack;
  const int64_t end = (piece + 1) * rows_of_piece < rows ? (piece + 1) * rows_of_piece : rows;
  const int n = pack_at(k, columns);
  uint32_t most[kPack] = {};
#pragma unroll 4
  for (int64_t r = piece * rows_of_piece + warp; r < end; r += warps) {
    float numbers[kPack];
    x.load(r * columns + k, n, numbers);
#pragma unroll
    for (int i = 0; i < kPack; ++i) most[i] = Max()(most[i], int8_rows::magnitude_bits(in_f16(numbers[i])));
  }
#pragma unroll
  for (int i = 0; i < kPack; ++i) largest[warp * kStrip + lane * kPack + i] = most[i];
  __syncthreads();
  const int mine = static_cast<int>(threadIdx.x);
  if (begin + mine >= columns) return;
  uint32_t of_all = largest[mine];
#pragma unroll
  for (int i = 1; i < warps; ++i) of_all = Max()(of_all, largest[i * kStrip + mine]);
  masks[piece * columns + begin + mine] = linear_int8::is_outlier(of_all, threshold);
}

/// One block, a thread for each column at a time. The first of the masks becomes that of all rows. A warp's outliers before a lane's are
/// counted by a vote.
template <int threads>
__global__ void __launch_bounds__(threads) list_outliers(Outliers outliers, int64_t columns, int64_t pieces) {
  GALLEY_SHARED(int, of_warp, threads / kWarpSize);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  int before = 0;
  if (outliers.mask)
    for (int64_t begin = 0; begin < columns; begin += threads) {
      const int64_t k = begin + threadIdx.x;
      unsigned any = 0;
      if (k < columns) {
        for (int64_t piece = 0; piece < pieces; ++piece) any |= outliers.mask[piece * columns + k];
        outliers.mask[k] = static_cast<uint8_t>(any);
      }
      const bool mine = any != 0;
      const unsigned votes = __ballot_sync(kAllLanes, mine);
      if (lane == 0) of_warp[warp] = __popc(votes);
      __syncthreads();
      int at = before + __popc(votes & ((1u << lane) - 1u));
      for (int w = 0; w < threads / kWarpSize; ++w) {
        if (w < warp) at += of_warp[w];
        before += of_warp[w];
      }
      if (mine) outliers.columns[at] = static_cast<int32_t>(k);
      __syncthreads();
    }
  if (threadIdx.x == 0) *outliers.count = before;
}

/// A block takes a row: codes and a scale, or x̂ where `numbers` is not null.
template <int threads>
__global__ void __launch_bounds__(threads)
    code_rows(Reader x, Outliers outliers, int64_t columns, float threshold, int8_t* codes, float* scales, float* numbers) {
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * columns;
  const int thread = static_cast<int>(threadIdx.x);
  uint32_t most = 0;
  for (int64_t k = thread * kPack; k < columns; k += threads * kPack) {
    float row[kPack];
    x.load(begin + k, pack_at(k, columns), row);
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      const uint32_t bits = int8_rows::magnitude_bits(in_f16(row[i]));
      if (!linear_int8::is_outlier(bits, threshold)) most = Max()(most, bits);
    }
  }
  const float scale = int8_rows::magnitude(block_reduce<threads>(most, 0u, Max())), by = int8_rows::inverse(scale);
  for (int64_t k = thread * kPack; k < columns; k += threads * kPack) {
    const int n = pack_at(k, columns);
    float row[kPack];
    Vector<int8_t, kPack> made;
    x.load(begin + k, n, row);
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      const bool outlier = i < n && outliers.mask && outliers.mask[k + i];
      made.at[i] = outlier ? int8_t{0} : int8_rows::code(in_f16(row[i]), by);
      if (!outlier) row[i] = int8_rows::value(made.at[i], int8_rows::unit(scale));
    }
    if (numbers) {
      store_numbers(numbers + begin + k, n, row);
    } else if (int8_t* const to = codes + begin + k; n == kPack && reinterpret_cast<uintptr_t>(to) % kPack == 0) {
      store_vector(to, made);
    } else {
#pragma unroll
      for (int i = 0; i < kPack; ++i)
        if (i < n) to[i] = made.at[i];
    }
  }
  if (thread == 0 && scales) scales[blockIdx.x] = int8_rows::unit(scale);
}

/// The launches, and where they write.
class Rows {
 public:
  enum class Makes { Codes, Numbers };
  Rows(const Node& node, Makes makes, Room& room) : x_(node, 0), shape_(node), threshold_(static_cast<float>(node.f("threshold", 6))) {
    outliers_.count = room.take<int32_t>(1);
    outliers_.columns = room.take<int32_t>(shape_.K);
    if (threshold_ > 0) outliers_.mask = room.take<uint8_t>(pieces() * shape_.K);
    if (makes == Makes::Numbers) {
      numbers_ = room.take<float>(shape_.R * shape_.K);
    } else {
      codes_ = room.take<int8_t>(shape_.R * shape_.K);
      scales_ = room.take<float>(shape_.R);
    }
  }
  void run(galley_queue* queue) const {
    const int64_t strips = blocks_of(shape_.K, kStrip);
    if (threshold_ > 0)
      launch(find_outliers<kRowThreads>, {pieces() * strips, kRowThreads}, queue, x_, shape_.R, shape_.K, blocks_of(shape_.R, pieces()),
             strips, threshold_, outliers_.mask);
    launch(list_outliers<kListThreads>, {1, kListThreads}, queue, outliers_, shape_.K, pieces());
    launch(code_rows<kRowThreads>, {shape_.R, kRowThreads}, queue, x_, outliers_, shape_.K, threshold_, codes_, scales_, numbers_);
  }
  const Reader& x() const { return x_; }
  const Outliers& outliers() const { return outliers_; }
  const int8_t* codes() const { return codes_; }
  const float* scales() const { return scales_; }  ///< what a code of 1 of each row stands for
  const float* numbers() const { return numbers_; }

 private:
  int64_t pieces() const { return std::min(kMostPieces, blocks_of(shape_.R, kLeastOfPiece)); }

  Reader x_;
  Shape shape_;
  float threshold_;
  Outliers outliers_;
  int8_t* codes_ = nullptr;
  float *scales_ = nullptr, *numbers_ = nullptr;
};

}  // namespace galley::cuda::linear_int8_op
