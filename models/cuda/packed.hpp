// Eight numbers as they lie in memory: first fetched, later converted. Converting waits for the load, so a thread that needs several packs
// fetches all of them before it converts the first: the loads are then under way at the same time.
//
//   Packed packs[4];
//   for (int k = 0; k < 4; ++k) packs[k] = fetch(x, at + k * stride, n);
//   for (int k = 0; k < 4; ++k) unpack(packs[k], x.dtype, numbers);
#pragma once

#include "galley/cuda/kernel.hpp"

namespace galley::cuda {

/// Numbers in 16 bit are in the low words; those in F32 in all of them.
struct Packed {
  Vector<uint32_t, 4> low, high;
};

/// n ≤ 8 numbers from index `at` on; zeros after them.
__device__ inline Packed fetch(const Reader& from, int64_t at, int n) {
  Packed pack = {};
  if (from.dtype == GALLEY_F32) {
    const float* const numbers = static_cast<const float*>(from.data) + at;
    if (n == kPack && reinterpret_cast<uintptr_t>(numbers) % 16 == 0) {
      pack.low = load_vector<uint32_t, 4>(reinterpret_cast<const uint32_t*>(numbers));
      pack.high = load_vector<uint32_t, 4>(reinterpret_cast<const uint32_t*>(numbers + 4));
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        pack.low.at[i] = i < n ? __float_as_uint(numbers[i]) : 0;
        pack.high.at[i] = i + 4 < n ? __float_as_uint(numbers[i + 4]) : 0;
      }
    }
  } else {
    const Bf16* const numbers = static_cast<const Bf16*>(from.data) + at;
    if (n == kPack && reinterpret_cast<uintptr_t>(numbers) % 16 == 0) {
      pack.low = load_vector<uint32_t, 4>(reinterpret_cast<const uint32_t*>(numbers));
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t first = 2 * i < n ? numbers[2 * i].bits : 0, second = 2 * i + 1 < n ? numbers[2 * i + 1].bits : 0;
        pack.low.at[i] = first | second << 16;
      }
    }
  }
  return pack;
}

__device__ inline void unpack(const Packed& pack, uint32_t dtype, float (&to)[kPack]) {
  if (dtype == GALLEY_F32) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      to[i] = __uint_as_float(pack.low.at[i]);
      to[i + 4] = __uint_as_float(pack.high.at[i]);
    }
  } else if (dtype == GALLEY_BF16) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      to[2 * i] = __uint_as_float(pack.low.at[i] << 16);
      to[2 * i + 1] = __uint_as_float(pack.low.at[i] & 0xFFFF0000u);
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      to[2 * i] = widen(F16{static_cast<uint16_t>(pack.low.at[i] & 0xFFFFu)});
      to[2 * i + 1] = widen(F16{static_cast<uint16_t>(pack.low.at[i] >> 16)});
    }
  }
}

/// How many lanes, a power of two up to a warp, a row of C numbers keeps busy with a pack each.
inline int lanes_of(int64_t C) {
  int lanes = 1;
  while (lanes < 32 && lanes * kPack < C) lanes *= 2;
  return lanes;
}

}  // namespace galley::cuda
