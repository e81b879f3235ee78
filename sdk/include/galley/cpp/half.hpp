// BF16 and F16 as bits. Conversions round to the nearest value, ties to even, keep NaN a NaN, and are written so that loops over them
// vectorise.
#pragma once

#include <cstdint>
#include <cstring>

#include "galley/tensor.h"

namespace galley::sdk {

struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

namespace detail {

inline uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline float float_of(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

}  // namespace detail

inline float to_float(float x) { return x; }
inline float to_float(Bf16 x) { return detail::float_of(static_cast<uint32_t>(x.bits) << 16); }
inline float to_float(F16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16, magnitude = static_cast<uint32_t>(x.bits & 0x7FFFu) << 13;
  // The exponent moves by 127 − 15; the product also makes numbers of the subnormals. Infinity and NaN keep an exponent of ones; as in
  // the processor's own conversion, a NaN becomes a quiet one.
  const float value = detail::float_of(magnitude) * 0x1p112f;
  const uint32_t quiet = magnitude > 0x0F800000u ? 0x7FC00000u : 0x7F800000u;
  const uint32_t bits = magnitude >= 0x0F800000u ? magnitude | quiet : detail::bits_of(value);
  return detail::float_of(bits | sign);
}

inline void from_float(float x, float& y) { y = x; }
inline void from_float(float x, Bf16& y) {
  const uint32_t bits = detail::bits_of(x);
  const uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40u;
  y.bits = static_cast<uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? nan : rounded);
}
inline void from_float(float x, F16& y) {
  const uint32_t bits = detail::bits_of(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
  // Normal: the exponent moves by 127 − 15, then round as integers; what rounds past the largest becomes infinity by itself.
  const uint32_t normal = (magnitude - 0x38000000u + 0x0FFFu + (magnitude >> 13 & 1u)) >> 13;
  // Subnormal: adding 0.5 (a unit in its last place is 2⁻²⁴) lets the machine round.
  const uint32_t small = detail::bits_of(detail::float_of(magnitude) + 0.5f) - 0x3F000000u;
  uint32_t half = magnitude < 0x38800000u ? small : normal;
  half = magnitude >= 0x47800000u ? 0x7C00u : half;
  half = magnitude > 0x7F800000u ? 0x7E00u | (magnitude >> 13 & 0x3FFu) : half;
  y.bits = static_cast<uint16_t>(half | sign);
}

/// body(const T*) with the numbers of an operand in F32, BF16 or F16.
template <class Body>
void by_dtype(const galley_operand& operand, const Body& body) {
  switch (operand.dtype) {
    case GALLEY_BF16: return body(static_cast<const Bf16*>(operand.data));
    case GALLEY_F16: return body(static_cast<const F16*>(operand.data));
    default: return body(static_cast<const float*>(operand.data));
  }
}

}  // namespace galley::sdk
