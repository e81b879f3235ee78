// BF16 and F16 (galley/cpp/half.hpp) for many numbers at once, with the same bits. Compilers make vectors of the conversions there, with
// two exceptions: rounding to BF16 takes a third less in 512 bits when it is written out, and for F16 there are instructions.
#pragma once

#include "galley/cpp/half.hpp"

#if defined(__AVX512BW__) || defined(__F16C__)
#include <immintrin.h>
#endif

namespace galley::cpu {

using sdk::Bf16;
using sdk::F16;
using sdk::from_float;
using sdk::to_float;

inline void widen(const Bf16* from, int64_t n, float* __restrict to) {
  for (int64_t i = 0; i < n; ++i) to[i] = to_float(from[i]);
}

inline void widen(const F16* from, int64_t n, float* __restrict to) {
  int64_t i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= n; i += 16) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
    _mm512_storeu_ps(to + i, _mm512_cvtph_ps(bits));
  }
#elif defined(__F16C__)
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
#endif
  for (; i < n; ++i) to[i] = to_float(from[i]);
}

inline void narrow(const float* from, int64_t n, Bf16* __restrict to) {
  int64_t i = 0;
#if defined(__AVX512BW__)
  const __m512i half = _mm512_set1_epi32(0x7FFF), one = _mm512_set1_epi32(1), quiet = _mm512_set1_epi32(0x400000);
  for (; i + 16 <= n; i += 16) {
    const __m512 x = _mm512_loadu_ps(from + i);
    const auto bits = (__m512i)x;
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), one);
    // A NaN is not rounded: it would become a number.
    const __mmask16 number = _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q);
    const __m512i rounded = _mm512_mask_add_epi32(_mm512_or_si512(bits, quiet), number, _mm512_add_epi32(bits, half), odd);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
  }
#endif
  for (; i < n; ++i) from_float(from[i], to[i]);
}

inline void narrow(const float* from, int64_t n, F16* __restrict to) {
  int64_t i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= n; i += 16) {
    const __m256i bits = _mm512_cvtps_ph(_mm512_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), bits);
  }
#elif defined(__F16C__)
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#endif
  for (; i < n; ++i) from_float(from[i], to[i]);
}

}  // namespace galley::cpu
