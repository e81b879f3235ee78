// How a cache of keys or values lies in 8 bit: 32 numbers side by side in a row share a scale, their largest magnitude, as BF16.
//
//     code = x · 127 / scale, rounded to the nearest integer, ties to even, from −127 to 127      x = code · (scale / 127)
//
// Codes, I8, have the shape of the cache (B, L, C); scales, BF16, are (B, L, C / 32 rounded up). Blocks are those of a row, not of a head:
// a head whose size is no multiple of 32 shares scales with its neighbours. docs/decisions.md says why 32, and what it costs.
#pragma once

#include "galley/cpp/companded8.hpp"
#include "ops/check.hpp"

namespace galley::models::coded_cache {

inline constexpr int64_t kBlock = sdk::companded8::kGroup;

GALLEY_ANYWHERE int64_t blocks(int64_t columns) { return sdk::companded8::groups(columns); }

/// Input `scales` is there where input `cache` has codes, and has one for each block.
inline void check_scales(const sdk::Node& n, uint32_t cache, const char* name, uint32_t scales, const char* other) {
  const galley_operand& codes = n.in(cache);
  if (n.has(scales) != (codes.dtype == GALLEY_I8)) wrong(n, std::string(other) + " belong to " + name + " in I8, and only to it");
  if (!n.has(scales)) return;
  const galley_operand& t = n.in(scales);
  const int64_t C = blocks(codes.shape[2]);
  if (t.dtype != GALLEY_BF16 || t.rank != 3 || t.shape[0] != codes.shape[0] || t.shape[1] != codes.shape[1] || t.shape[2] != C)
    wrong(n, std::string(other) + " are " + shape_text(t) + "; beside " + name + " " + shape_text(codes) + " they have to be (" +
                 std::to_string(codes.shape[0]) + ", " + std::to_string(codes.shape[1]) + ", " + std::to_string(C) + ") in BF16");
}

/// By which numbers are multiplied before they are rounded; 0 for scales that have no inverse.
GALLEY_ANYWHERE float inverse(uint16_t scale) { return 127.0f * sdk::companded8::inverse(scale); }

/// The code of a number; of NaN 0: the scale tells of it. Adding 1.5·2²³ leaves no places after the point.
GALLEY_ANYWHERE int8_t code(float x, float inverse_scale) {
  const float scaled = x * inverse_scale, most = scaled < 127.0f ? scaled : 127.0f;
  const float rounded = ((most > -127.0f ? most : -127.0f) + 12582912.0f) - 12582912.0f;
  return static_cast<int8_t>(scaled == scaled ? static_cast<int>(rounded) : 0);
}

/// What a code of 1 stands for.
GALLEY_ANYWHERE float unit(uint16_t scale) { return sdk::companded8::value_of(scale) * (1.0f / 127.0f); }

}  // namespace galley::models::coded_cache
