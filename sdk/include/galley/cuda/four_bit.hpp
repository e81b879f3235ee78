// The format "four-bit" (galley/cpp/four_bit.hpp) on CUDA: numbers of codes in one pass, at the bandwidth of what is written.
#pragma once

#include "galley/cpp/four_bit.hpp"
#include "galley/cuda/kernel.hpp"

namespace galley::cuda {

namespace detail {

inline constexpr int kCodedThreads = 256, kCodedPacks = 4;

/// Makes n numbers of `dtype`, a thread `packs` times eight of them. The code book of four bits lies in shared memory, where lanes that
/// look up other entries meet in no bank.
template <int packs>
__global__ void __launch_bounds__(kCodedThreads)
    unpack_four_bit(sdk::four_bit::Coded from, int block_bits, void* to, uint32_t dtype, int64_t n) {
  using namespace sdk::four_bit;
  GALLEY_SHARED(float, entries, 16);
  GALLEY_SHARED(float, book, 256);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < 16) entries[thread] = value(thread, from.type);
  if (from.doubled) book[thread] = sdk::dynamic8::value(thread, true);
  __syncthreads();
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kCodedThreads * packs) + thread;
#pragma unroll
  for (int k = 0; k < packs; ++k) {
    const int64_t at = (first + k * kCodedThreads) * kPack;
    if (at >= n) return;
    const int count = pack_at(at, n);
    const float absmax = from.absmax_of(at >> block_bits, book);
    const uint8_t* const codes = from.codes + at / 2;
    Vector<uint8_t, 4> bytes = {};
    if (count == kPack && reinterpret_cast<uintptr_t>(codes) % 4 == 0) {
      bytes = load_vector<uint8_t, 4>(codes);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) bytes.at[i] = 2 * i < count ? codes[i] : uint8_t{0};
    }
    float x[kPack];
#pragma unroll
    for (int i = 0; i < kPack; ++i) x[i] = entries[i % 2 ? bytes.at[i / 2] & 15 : bytes.at[i / 2] >> 4] * absmax;
    store_numbers(to, dtype, at, count, x);
  }
}

}  // namespace detail

/// The n numbers of a tensor, each rounded once to `dtype`: F32, BF16 or F16.
inline void unpack(const sdk::four_bit::Coded& from, void* to, uint32_t dtype, int64_t n, galley_queue* queue) {
  int bits = 0;
  while ((int64_t{1} << bits) < from.block) ++bits;
  const Grid grid = {blocks_of(n, detail::kCodedThreads * detail::kCodedPacks * kPack), detail::kCodedThreads};
  launch(detail::unpack_four_bit<detail::kCodedPacks>, grid, queue, from, bits, to, dtype, n);
}

}  // namespace galley::cuda
