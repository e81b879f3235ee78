#include "host/exec/convert.hpp"

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace galley {
namespace {

float from_bf16(uint16_t h) { return std::bit_cast<float>(static_cast<uint32_t>(h) << 16); }

uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);  // a NaN stays one
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

float from_f16(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16, magnitude = h & 0x7fffu;
  // Exponents are rebased by a multiplication, which also normalises subnormal numbers.
  if (magnitude < 0x7c00u) return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112f));
  return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
}

uint16_t to_f16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and above round to infinity
  if (magnitude < 0x38800000u) {
    // Subnormal: adding 0.5 leaves 2^-24 as the last place, and the addition rounds.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(aligned) - std::bit_cast<uint32_t>(0.5f)));
  }
  const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
  return static_cast<uint16_t>(sign | (rounded - (112u << 23)) >> 13);
}

// F64 to F32 "to odd": what is lost sets the last bit, so that rounding again to fewer bits comes out as if it had been done once.
float to_f32_odd(double value) {
  const auto rounded = static_cast<float>(value);
  const auto back = static_cast<double>(rounded);
  if (back == value || std::isnan(value) || std::isinf(rounded)) return rounded;
  auto bits = std::bit_cast<uint32_t>(rounded);
  if (std::fabs(back) > std::fabs(value)) --bits;
  return std::bit_cast<float>(bits | 1u);
}

template <class T>
T load(const void* from, int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(from) + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <class From, class To, class Change>
void each(void* to, const void* from, int64_t count, Change&& change) {
  for (int64_t i = 0; i < count; ++i) {
    const To value = change(load<From>(from, i));
    std::memcpy(static_cast<std::byte*>(to) + i * static_cast<int64_t>(sizeof(To)), &value, sizeof(To));
  }
}

// To every floating dtype, from one whose numbers `wide` makes F32 exactly.
template <class From, class Wide>
void from_narrow(void* to, uint32_t to_dtype, const void* from, int64_t count, Wide&& wide) {
  switch (to_dtype) {
    case GALLEY_F64: return each<From, double>(to, from, count, [&](From v) { return static_cast<double>(wide(v)); });
    case GALLEY_F32: return each<From, float>(to, from, count, wide);
    case GALLEY_F16: return each<From, uint16_t>(to, from, count, [&](From v) { return to_f16(wide(v)); });
    default: return each<From, uint16_t>(to, from, count, [&](From v) { return to_bf16(wide(v)); });
  }
}

template <class Word>
int64_t first_with_exponent(const void* data, int64_t count, Word exponent) {
  // Whole blocks are tested without a branch in them; only the guilty one is searched.
  constexpr int64_t block = 1024;
  for (int64_t begin = 0; begin < count; begin += block) {
    const int64_t end = begin + block < count ? begin + block : count;
    bool bad = false;
    for (int64_t i = begin; i < end; ++i) bad |= (load<Word>(data, i) & exponent) == exponent;
    if (!bad) continue;
    for (int64_t i = begin; i < end; ++i)
      if ((load<Word>(data, i) & exponent) == exponent) return i;
  }
  return -1;
}

}  // namespace

void convert(void* to, uint32_t to_dtype, const void* from, uint32_t from_dtype, int64_t count) {
  if (from_dtype == to_dtype) {
    if (count > 0) std::memcpy(to, from, static_cast<size_t>(count * galley_dtype_bytes(to_dtype)));
    return;
  }
  switch (from_dtype) {
    case GALLEY_F32: return from_narrow<float>(to, to_dtype, from, count, [](float v) { return v; });
    case GALLEY_F16: return from_narrow<uint16_t>(to, to_dtype, from, count, from_f16);
    case GALLEY_BF16: return from_narrow<uint16_t>(to, to_dtype, from, count, from_bf16);
    default: break;
  }
  if (to_dtype == GALLEY_F32) return each<double, float>(to, from, count, [](double v) { return static_cast<float>(v); });
  from_narrow<double>(to, to_dtype, from, count, to_f32_odd);
}

int64_t first_not_finite(const void* data, uint32_t dtype, int64_t count) {
  switch (dtype) {
    case GALLEY_F64: return first_with_exponent<uint64_t>(data, count, 0x7ff0000000000000u);
    case GALLEY_F32: return first_with_exponent<uint32_t>(data, count, 0x7f800000u);
    case GALLEY_F16: return first_with_exponent<uint16_t>(data, count, 0x7c00u);
    case GALLEY_BF16: return first_with_exponent<uint16_t>(data, count, 0x7f80u);
    default: return -1;
  }
}

std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

}  // namespace galley
