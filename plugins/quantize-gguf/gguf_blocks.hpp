// The format "gguf-blocks": a matrix as GGUF files hold it, in blocks of ggml's types. A block is 32 or 256 numbers of a row; rows are
// whole blocks. Source: ggml-common.h and dequantize_row_* of https://github.com/ggml-org/ggml.
//
// With d and m in F16, s and t codes of 6 or 8 bits, and q the code of a number:
//
//   type   numbers  bytes  bits   x                   in a block, in this order
//   Q4_0   32       18     4.5    d (q − 8)           d, 16 bytes of q: number i in the low half of byte i, i + 16 in its high half
//   Q4_1   32       20     5      d q + m             d, m, q as in Q4_0
//   Q5_0   32       22     5.5    d (q − 16)          d, 32 fifth bits of q, the rest of q as in Q4_0
//   Q5_1   32       24     6      d q + m             d, m, 32 fifth bits, the rest
//   Q8_0   32       34     8.5    d q                 d, 32 signed bytes
//   Q4_K   256      144    4.5    d s q − m t         d, m, 12 bytes of 8 s and 8 t for 32 numbers each, 128 bytes of q: for 64
//                                                     numbers 32 bytes, the first 32 numbers in the low halves
//   Q5_K   256      176    5.5    d s q − m t         d, m, s and t, 32 bytes with fifth bits: bit k of byte i that of number 32 k + i, the
//                                                     rest as in Q4_K
//   Q6_K   256      210    6.5625 d s (q − 32)        128 bytes of low halves: for 128 numbers 64 bytes, the first 64 in the low halves; 64
//                                                     bytes of upper pairs of bits: for 128 numbers 32 bytes, the first 32 in the lowest
//                                                     bits; 16 signed s for 16 numbers each; d
//
// Products of scales and codes are exact in F32 but for the last of Q6_K, so a number is rounded once, whatever is fused.
//
// Component: bytes, U8, (rows, bytes of a row). Option: "type". The format is read only: it has no pack op.
#pragma once

#include <cstdint>
#include <cstring>

#include "galley/cpp/anywhere.hpp"
#include "galley/cpp/node.hpp"

namespace galley::gguf_blocks {

inline constexpr const char* kName = "gguf-blocks";

enum Type : uint32_t { kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ4_K, kQ5_K, kQ6_K, kTypes };
/// As GGUF calls them, in the order of the enumeration.
inline constexpr const char* kTypeNames[] = {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"};

/// kTypes: no such type.
inline Type type_named(const char* name) {
  uint32_t type = 0;
  while (type < kTypes && !galley_same_text(kTypeNames[type], name)) ++type;
  return static_cast<Type>(type);
}

/// Numbers that are decoded together, in all types.
inline constexpr int kGroup = 32;

GALLEY_ANYWHERE int numbers_of(Type type) { return type < kQ4_K ? 32 : 256; }
GALLEY_ANYWHERE int bytes_of(Type type) {
  switch (type) {
    case kQ4_0: return 18;
    case kQ4_1: return 20;
    case kQ5_0: return 22;
    case kQ5_1: return 24;
    case kQ8_0: return 34;
    case kQ4_K: return 144;
    case kQ5_K: return 176;
    default: return 210;
  }
}

/// A number in F16, wherever it lies.
GALLEY_ANYWHERE float half_at(const uint8_t* at) {
  const uint32_t bits = static_cast<uint32_t>(at[0]) | static_cast<uint32_t>(at[1]) << 8, magnitude = (bits & 0x7FFFu) << 13;
  float value;
  memcpy(&value, &magnitude, sizeof value);
  value *= 0x1p112f;  // the exponent moves by 127 − 15; subnormals become numbers too
  uint32_t out;
  memcpy(&out, &value, sizeof out);
  if (magnitude >= 0x0F800000u) out = magnitude | 0x7F800000u;
  out |= (bits & 0x8000u) << 16;
  memcpy(&value, &out, sizeof value);
  return value;
}

/// What a code is multiplied with, and what is taken away then.
struct Scale {
  float scale, less;
};

/// Of the 32 numbers of group k of a block of Q4_K or Q5_K.
GALLEY_ANYWHERE Scale scale_of_32(const uint8_t* block, int k) {
  const uint8_t* const six = block + 4;
  const int s = k < 4 ? six[k] & 63 : (six[k + 4] & 15) | six[k - 4] >> 6 << 4;
  const int t = k < 4 ? six[k + 4] & 63 : six[k + 4] >> 4 | six[k] >> 6 << 4;
  return {half_at(block) * static_cast<float>(s), half_at(block + 2) * static_cast<float>(t)};
}

/// Of number i of a block.
GALLEY_ANYWHERE Scale scale_of(Type type, const uint8_t* block, int i) {
  switch (type) {
    case kQ4_1:
    case kQ5_1: return {half_at(block), -half_at(block + 2)};
    case kQ4_K:
    case kQ5_K: return scale_of_32(block, i / kGroup);
    case kQ6_K: return {half_at(block + 208) * static_cast<float>(static_cast<int8_t>(block[192 + i / 16])), 0.0f};
    default: return {half_at(block), 0.0f};
  }
}

/// The code of number i of a block, with what its type takes away from it.
GALLEY_ANYWHERE int code_of(Type type, const uint8_t* block, int i) {
  const auto nibble = [&](int at) { return block[at + i % 16] >> 4 * (i / 16) & 15; };
  const auto fifth = [&](int at) { return (block[at + i / 8] >> i % 8 & 1) << 4; };
  switch (type) {
    case kQ4_0: return nibble(2) - 8;
    case kQ4_1: return nibble(4);
    case kQ5_0: return (nibble(6) | fifth(2)) - 16;
    case kQ5_1: return nibble(8) | fifth(4);
    case kQ8_0: return static_cast<int8_t>(block[2 + i]);
    case kQ4_K: return block[16 + i / 64 * 32 + i % 32] >> 4 * (i / 32 % 2) & 15;
    case kQ5_K: return (block[48 + i / 64 * 32 + i % 32] >> 4 * (i / 32 % 2) & 15) | (block[16 + i % 32] >> i / 32 & 1) << 4;
    default: {
      const int part = i / 128, within = i % 128;
      const int low = block[part * 64 + within % 64] >> 4 * (within / 64) & 15;
      return (low | (block[128 + part * 32 + within % 32] >> 2 * (within / 32) & 3) << 4) - 32;
    }
  }
}

GALLEY_ANYWHERE float value(Scale of, int code) { return of.scale * static_cast<float>(code) - of.less; }

// ---- Options and operands -----------------------------------------------------------------------------------------------------------

/// The type that a tensor's options name. Throws for an option that the format does not have. The unpack op has one more, "dtype".
inline Type type_of(const galley_attr* const* attrs, uint32_t n) {
  Type type = kTypes;
  for (uint32_t i = 0; i < n; ++i) {
    const galley_attr& a = *attrs[i];
    if (galley_same_text(a.name, "type") && a.type == GALLEY_ATTR_STRING) {
      type = type_named(static_cast<const char*>(a.data));
      if (type == kTypes) sdk::invalid(std::string(kName) + ": type = '" + static_cast<const char*>(a.data) + "', which it does not have");
    } else if (!galley_same_text(a.name, "dtype")) {
      sdk::invalid(std::string(kName) + " has no option '" + a.name + "'");
    }
  }
  if (type == kTypes) sdk::invalid(std::string(kName) + " has to be given a type");
  return type;
}

/// A tensor in the format, as it lies in memory. Copied to the device as it is.
struct Coded {
  const uint8_t* blocks = nullptr;
  Type type = kQ8_0;

  Coded() = default;
  Coded(const void* data, Type of) : blocks(static_cast<const uint8_t*>(data)), type(of) {}
  explicit Coded(const galley_operand& operand) : Coded(operand.components[0]->data, type_of(operand.attrs, operand.n_attrs)) {}
};

}  // namespace galley::gguf_blocks
