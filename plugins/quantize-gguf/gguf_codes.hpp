// Numbers of the format "gguf-blocks" (gguf_blocks.hpp) made on the CPU, 32 at a time: loops of a fixed length, which compilers make
// vectors of.
#pragma once

#include "galley/cpp/half.hpp"
#include "gguf_blocks.hpp"

namespace galley::gguf_blocks {

namespace detail {

/// The 32 codes of 4 bits from two halves of 16 bytes.
inline void nibbles(const uint8_t* q, int32_t* codes) {
  for (int i = 0; i < 16; ++i) codes[i] = q[i] & 15;
  for (int i = 0; i < 16; ++i) codes[i + 16] = q[i] >> 4;
}
inline void fifths(const uint8_t* bits, int32_t* codes) {
  uint32_t all;
  std::memcpy(&all, bits, sizeof all);
  for (int i = 0; i < 32; ++i) codes[i] |= static_cast<int32_t>((all >> i & 1u) << 4);
}
inline void numbers(const int32_t* codes, int n, int less, Scale of, float* out) {
  for (int i = 0; i < n; ++i) out[i] = of.scale * static_cast<float>(codes[i] - less) - of.less;
}

/// Numbers 32 k … 32 k + 31 of a block.
template <Type type>
inline void group(const uint8_t* block, int k, float* out) {
  int32_t codes[kGroup];
  if constexpr (type == kQ8_0) {
    for (int i = 0; i < kGroup; ++i) codes[i] = static_cast<int8_t>(block[2 + i]);
    numbers(codes, kGroup, 0, {half_at(block), 0}, out);
  } else if constexpr (type == kQ4_0 || type == kQ4_1 || type == kQ5_0 || type == kQ5_1) {
    constexpr bool shifted = type == kQ4_1 || type == kQ5_1, five = type == kQ5_0 || type == kQ5_1;
    constexpr int head = shifted ? 4 : 2;
    nibbles(block + head + (five ? 4 : 0), codes);
    if (five) fifths(block + head, codes);
    numbers(codes, kGroup, shifted ? 0 : five ? 16 : 8, scale_of(type, block, 0), out);
  } else if constexpr (type == kQ4_K || type == kQ5_K) {
    const uint8_t* const q = block + (type == kQ5_K ? 48 : 16) + k / 2 * 32;
    const int shift = 4 * (k % 2);
    for (int i = 0; i < kGroup; ++i) codes[i] = q[i] >> shift & 15;
    if (type == kQ5_K)
      for (int i = 0; i < kGroup; ++i) codes[i] |= (block[16 + i] >> k & 1) << 4;
    numbers(codes, kGroup, 0, scale_of_32(block, k), out);
  } else {
    const uint8_t *const low = block + k / 4 * 64 + k % 2 * 32, *const high = block + 128 + k / 4 * 32;
    const int low_shift = k % 4 / 2 * 4, high_shift = k % 4 * 2;
    for (int i = 0; i < kGroup; ++i) codes[i] = (low[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4;
    for (int i = 0; i < 2; ++i) numbers(codes + 16 * i, 16, 32, scale_of(type, block, kGroup * k + 16 * i), out + 16 * i);
  }
}

template <Type type, class To>
inline void decode_as(const uint8_t* blocks, int64_t at, int64_t n, To* to) {
  constexpr int64_t groups = (type < kQ4_K ? 32 : 256) / kGroup;
  alignas(64) float room[kGroup];
  for (const int64_t end = at + n; at < end;) {
    const int64_t which = at / kGroup, first = at % kGroup, size = kGroup - first < end - at ? kGroup - first : end - at;
    group<type>(blocks + which / groups * bytes_of(type), static_cast<int>(which % groups), room);
    if (size == kGroup)
      for (int i = 0; i < kGroup; ++i) sdk::from_float(room[i], to[i]);
    else
      for (int64_t i = 0; i < size; ++i) sdk::from_float(room[first + i], to[i]);
    at += size;
    to += size;
  }
}

}  // namespace detail

/// Numbers at … at + n − 1 of the tensor, each rounded to `To`: float, Bf16 or F16.
template <class To>
inline void decode(const Coded& from, int64_t at, int64_t n, To* to) {
  switch (from.type) {
    case kQ4_0: return detail::decode_as<kQ4_0>(from.blocks, at, n, to);
    case kQ4_1: return detail::decode_as<kQ4_1>(from.blocks, at, n, to);
    case kQ5_0: return detail::decode_as<kQ5_0>(from.blocks, at, n, to);
    case kQ5_1: return detail::decode_as<kQ5_1>(from.blocks, at, n, to);
    case kQ8_0: return detail::decode_as<kQ8_0>(from.blocks, at, n, to);
    case kQ4_K: return detail::decode_as<kQ4_K>(from.blocks, at, n, to);
    case kQ5_K: return detail::decode_as<kQ5_K>(from.blocks, at, n, to);
    default: return detail::decode_as<kQ6_K>(from.blocks, at, n, to);
  }
}

}  // namespace galley::gguf_blocks
