// Kernels that read the numbers of each row several times, such as norms: sums over the row first, results from them. A team of threads
// computes a row; how large it is follows from the length C of a row alone, so that a row has the same bytes among few rows and among many.
//
//   C ≤ 256     1 to 32 lanes of a warp, a pack of eight numbers each
//   C ≤ 1024    a warp, up to 4 packs a lane
//   C ≤ 8192    a block of 96 to 512 threads, 2 packs a thread
//   beyond      a block of 512 threads that reads the row again in each pass over it
//
// But for the last, numbers stay in registers between the passes, and memory is read once. Bound by memory.
//
// What a row consists of is a struct, here of one array of numbers (Given), or of several that belong together:
//
//   struct Terms {
//     static constexpr int kWidth = 2;                             arrays
//     struct Raw { Packed a, b; };                                 what is fetched
//     template <bool again> __device__ void fetch(int64_t at, int n, Raw&) const;        `at`: index in the whole tensor
//     template <bool again> __device__ void value(const Raw&, int64_t at, int column, int n, float (&to)[kWidth][kPack]) const;
//   };                                                             `again`: not the first time
#pragma once

#include <type_traits>

#include "cuda/packed.hpp"
#include "galley/cuda/reduce.hpp"

namespace galley::cuda {

/// Packs that a thread holds; 0: it holds none, and reads them again.
template <int packs>
inline constexpr int kRowThreads = packs == 1 || packs == 4 ? 256 : 512;

/// The threads of one row.
template <int packs>
struct Team {
  static constexpr bool kBlock = packs == 2 || packs == 0;
  static constexpr int kMostWarps = kRowThreads<packs> / kWarpSize;
  int lanes, lane;
  int64_t row;

  __device__ explicit Team(int lanes_) : lanes(lanes_) {
    const int thread = static_cast<int>(threadIdx.x);
    lane = kBlock ? thread : thread % lanes;
    row = kBlock ? blockIdx.x : static_cast<int64_t>(blockIdx.x) * (kRowThreads<packs> / lanes) + thread / lanes;
  }
  /// Sums over the threads of the team, in a fixed tree; each gets them. All threads of the block call it. `call`: 0 for the first call in
  /// a kernel, 1 for the second; there is no third.
  template <int n>
  __device__ void sum(float (&x)[n], int call) const {
    constexpr int warp = kWarpSize;
#pragma unroll
    for (int k = 0; k < n; ++k)
      for (int other = (kBlock ? warp : lanes) / 2; other > 0; other /= 2) x[k] += __shfl_xor_sync(kAllLanes, x[k], other);
    if constexpr (kBlock) {
      GALLEY_SHARED(float, of_warp, 2 * n * kMostWarps);
      float* const mine = of_warp + call * n * kMostWarps;
      const int of = lane % warp, warps = lanes / warp;
#pragma unroll
      for (int k = 0; k < n; ++k)
        if (of == 0) mine[k * kMostWarps + lane / warp] = x[k];
      __syncthreads();
#pragma unroll
      for (int k = 0; k < n; ++k) x[k] = warp_sum(of < warps ? mine[k * kMostWarps + of] : 0.0f);
    }
  }
};

/// The numbers of a row that belong to this thread.
template <int packs, class Terms>
class Row {
 public:
  static constexpr int kWidth = Terms::kWidth;

  /// A row after the last one is empty.
  __device__ Row(const Terms& terms, const Team<packs>& team, int64_t rows, int length)
      : terms_(terms), team_(team), begin_(team.row * length), length_(team.row < rows ? length : 0) {}

  /// body(column, n, numbers) for each pack of n numbers from a column on, the first time; numbers[array][i] are 0 after the n.
  template <class Body>
  __device__ void first(const Body& body) {
    if constexpr (packs == 0) {
      read<false>(body);
    } else {
      constexpr int ahead = packs < 2 ? 1 : 2;  // fetched at a time
#pragma unroll
      for (int k = 0; k < packs; k += ahead) {
        typename Terms::Raw raw[ahead];
#pragma unroll
        for (int j = 0; j < ahead; ++j)
          if (column(k + j) < length_) terms_.template fetch<false>(begin_ + column(k + j), pack_at(column(k + j), length_), raw[j]);
#pragma unroll
        for (int j = 0; j < ahead; ++j)
          if (column(k + j) < length_)
            terms_.template value<false>(raw[j], begin_ + column(k + j), column(k + j), pack_at(column(k + j), length_), held_[k + j]);
      }
      each(body);
    }
  }
  /// The same after the first time.
  template <class Body>
  __device__ void each(const Body& body) {
    if constexpr (packs == 0) {
      read<true>(body);
    } else {
#pragma unroll
      for (int k = 0; k < packs; ++k)
        if (column(k) < length_) body(column(k), pack_at(column(k), length_), held_[k]);
    }
  }
  __device__ int64_t begin() const { return begin_; }
  /// Whether this thread is the one that writes what a row has once.
  __device__ bool leads() const { return team_.lane == 0 && length_ > 0; }

 private:
  __device__ int column(int k) const { return (k * team_.lanes + team_.lane) * kPack; }

  template <bool again, class Body>
  __device__ void read(const Body& body) const {
    for (int c = team_.lane * kPack; c < length_; c += team_.lanes * kPack) {
      typename Terms::Raw raw;
      float numbers[kWidth][kPack];
      const int n = pack_at(c, length_);
      terms_.template fetch<again>(begin_ + c, n, raw);
      terms_.template value<again>(raw, begin_ + c, c, n, numbers);
      body(c, n, numbers);
    }
  }

  const Terms& terms_;
  const Team<packs>& team_;
  int64_t begin_;
  int length_;
  float held_[packs > 0 ? packs : 1][kWidth][kPack];
};

/// The numbers of an operand that is there.
struct Given {
  static constexpr int kWidth = 1;
  using Raw = Packed;
  Reader x;

  template <bool again>
  __device__ void fetch(int64_t at, int n, Raw& raw) const {
    raw = cuda::fetch(x, at, n);
  }
  template <bool again>
  __device__ void value(const Raw& raw, int64_t, int, int, float (&to)[1][kPack]) const {
    unpack(raw, x.dtype, to[0]);
  }
};

/// Whether rows of C numbers are not too long for what is here.
inline bool row_fits(int64_t C) { return C <= int64_t{1} << 30; }

/// body(std::integral_constant<int, packs>, grid, lanes): how to launch a kernel for R rows of C numbers.
template <class Body>
void by_length(int64_t R, int64_t C, const Body& body) {
  if (C <= kWarpSize * kPack) {
    const int lanes = lanes_of(C);
    body(std::integral_constant<int, 1>(), Grid{blocks_of(R, kRowThreads<1> / lanes), kRowThreads<1>}, lanes);
  } else if (C <= 4 * kWarpSize * kPack) {
    body(std::integral_constant<int, 4>(), Grid{blocks_of(R, kRowThreads<4> / kWarpSize), kRowThreads<4>}, kWarpSize);
  } else if (C <= 2 * kRowThreads<2> * kPack) {
    const auto lanes = static_cast<int>(blocks_of(C, 2 * kWarpSize * kPack)) * kWarpSize;
    body(std::integral_constant<int, 2>(), Grid{R, lanes}, lanes);
  } else {
    body(std::integral_constant<int, 0>(), Grid{R, kRowThreads<0>}, kRowThreads<0>);
  }
}

}  // namespace galley::cuda
