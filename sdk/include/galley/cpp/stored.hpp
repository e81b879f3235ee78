// Operands as kernels of steps (steps.hpp, galley/cuda/steps.hpp) take them: numbers in F32, BF16 or F16, and in formats that these kernels
// read and write themselves, while a piece of them is in the cache or in registers.
#pragma once

#include "galley/cpp/companded8.hpp"
#include "galley/cpp/dynamic8.hpp"
#include "galley/cpp/half.hpp"
#include "galley/cpp/node.hpp"
#include "galley/cpp/split.hpp"

namespace galley::sdk {

/// How an operand lies in memory.
enum StoredAs : uint32_t {
  kStoredF32,
  kStoredBf16,
  kStoredF16,
  kStoredDynamic8,
  kStoredDynamic8Unsigned,
  kStoredCompanded8,
  kStoredCompanded8Unsigned,
  kStoredSplit,
  kStoredOtherwise,
};

/// An operand's memory. Copied to the device as it is.
struct Stored {
  void* data = nullptr;  ///< numbers, codes, or of "split" those in BF16
  void* side = nullptr;  ///< the second component of a format: magnitudes, scales or corrections
  uint32_t as = kStoredF32;

  Stored() = default;
  Stored(void* first, void* second, StoredAs how) : data(first), side(second), as(how) {}
  explicit Stored(const galley_operand& operand) : as(kStoredOtherwise) {
    if (!operand.format) {
      data = operand.data;
      as = operand.dtype == GALLEY_F32    ? kStoredF32
           : operand.dtype == GALLEY_BF16 ? kStoredBf16
           : operand.dtype == GALLEY_F16  ? kStoredF16
                                          : kStoredOtherwise;
      return;
    }
    if (operand.n_components != 2) return;
    const auto are = [&](uint32_t first, uint32_t second) {
      return operand.components[0]->dtype == first && operand.components[1]->dtype == second;
    };
    const bool with_signs = is_signed(operand);
    if (galley_same_text(operand.format, dynamic8::kName) && are(GALLEY_U8, GALLEY_F32))
      as = with_signs ? kStoredDynamic8 : kStoredDynamic8Unsigned;
    else if (galley_same_text(operand.format, companded8::kName) && are(with_signs ? GALLEY_I8 : GALLEY_U8, GALLEY_BF16))
      as = with_signs ? kStoredCompanded8 : kStoredCompanded8Unsigned;
    else if (galley_same_text(operand.format, split::kName) && are(GALLEY_BF16, GALLEY_I8)) as = kStoredSplit;
    else return;
    data = operand.components[0]->data;
    side = operand.components[1]->data;
  }

 private:
  static bool is_signed(const galley_operand& operand) {
    for (uint32_t i = 0; i < operand.n_attrs; ++i)
      if (galley_same_text(operand.attrs[i]->name, "signed")) return *static_cast<const int64_t*>(operand.attrs[i]->data) != 0;
    return true;
  }
};

/// Numbers [begin, begin + n) of an operand in F32, on the CPU: where they lie, or in `room`. `begin`: of a block of its format.
inline float* load_stored(const Stored& from, int64_t begin, int64_t n, float* room) {
  const auto* const codes = static_cast<const uint8_t*>(from.data) + begin;
  switch (from.as) {
    case kStoredBf16:
      for (int64_t i = 0; i < n; ++i) room[i] = to_float(static_cast<const Bf16*>(from.data)[begin + i]);
      return room;
    case kStoredF16:
      for (int64_t i = 0; i < n; ++i) room[i] = to_float(static_cast<const F16*>(from.data)[begin + i]);
      return room;
    case kStoredDynamic8:
    case kStoredDynamic8Unsigned:
      dynamic8::decode(codes, static_cast<const float*>(from.side) + begin / dynamic8::kBlock, n, from.as == kStoredDynamic8, room);
      return room;
    case kStoredCompanded8:
    case kStoredCompanded8Unsigned:
      companded8::decode(codes, static_cast<const uint16_t*>(from.side) + begin / companded8::kGroup, n, from.as == kStoredCompanded8,
                         room);
      return room;
    case kStoredSplit:
      split::decode(static_cast<const uint16_t*>(from.data) + begin, static_cast<const int8_t*>(from.side) + begin, n, room);
      return room;
    default: return static_cast<float*>(from.data) + begin;
  }
}
/// The way back. Nothing, where `numbers` are where they lie.
inline void store_stored(const float* __restrict numbers, int64_t n, const Stored& to, int64_t begin) {
  auto* const codes = static_cast<uint8_t*>(to.data) + begin;
  switch (to.as) {
    case kStoredBf16:
      for (int64_t i = 0; i < n; ++i) from_float(numbers[i], static_cast<Bf16*>(to.data)[begin + i]);
      return;
    case kStoredF16:
      for (int64_t i = 0; i < n; ++i) from_float(numbers[i], static_cast<F16*>(to.data)[begin + i]);
      return;
    case kStoredDynamic8:
    case kStoredDynamic8Unsigned:
      dynamic8::encode(numbers, n, to.as == kStoredDynamic8, codes, static_cast<float*>(to.side) + begin / dynamic8::kBlock);
      return;
    case kStoredCompanded8:
    case kStoredCompanded8Unsigned:
      companded8::encode(numbers, n, to.as == kStoredCompanded8, codes, static_cast<uint16_t*>(to.side) + begin / companded8::kGroup);
      return;
    case kStoredSplit: split::encode(numbers, n, static_cast<uint16_t*>(to.data) + begin, static_cast<int8_t*>(to.side) + begin); return;
    default: return;
  }
}

}  // namespace galley::sdk
