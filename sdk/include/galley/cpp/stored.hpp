// Operands as kernels of steps (steps.hpp, galley/cuda/steps.hpp) take them: numbers in F32, BF16 or F16, and in formats that these kernels
// read and write themselves, while a piece of them is in the cache or in registers.
#pragma once

#include "galley/cpp/dynamic8.hpp"
#include "galley/cpp/half.hpp"
#include "galley/cpp/node.hpp"

namespace galley::sdk {

/// How an operand lies in memory.
enum StoredAs : uint32_t { kStoredF32, kStoredBf16, kStoredF16, kStoredDynamic8, kStoredDynamic8Unsigned, kStoredOtherwise };

/// An operand's memory. Copied to the device as it is.
struct Stored {
  void* data = nullptr;    ///< numbers, or codes
  float* scale = nullptr;  ///< dynamic8: absmax of each block
  uint32_t as = kStoredF32;

  Stored() = default;
  explicit Stored(const galley_operand& operand) : as(kStoredOtherwise) {
    if (!operand.format) {
      data = operand.data;
      as = operand.dtype == GALLEY_F32    ? kStoredF32
           : operand.dtype == GALLEY_BF16 ? kStoredBf16
           : operand.dtype == GALLEY_F16  ? kStoredF16
                                          : kStoredOtherwise;
    } else if (galley_same_text(operand.format, dynamic8::kName) && operand.n_components == 2 &&
               operand.components[0]->dtype == GALLEY_U8 && operand.components[1]->dtype == GALLEY_F32) {
      data = operand.components[0]->data;
      scale = static_cast<float*>(operand.components[1]->data);
      as = is_signed(operand) ? kStoredDynamic8 : kStoredDynamic8Unsigned;
    }
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
  switch (from.as) {
    case kStoredBf16:
      for (int64_t i = 0; i < n; ++i) room[i] = to_float(static_cast<const Bf16*>(from.data)[begin + i]);
      return room;
    case kStoredF16:
      for (int64_t i = 0; i < n; ++i) room[i] = to_float(static_cast<const F16*>(from.data)[begin + i]);
      return room;
    case kStoredDynamic8:
    case kStoredDynamic8Unsigned:
      dynamic8::decode(static_cast<const uint8_t*>(from.data) + begin, from.scale + begin / dynamic8::kBlock, n, from.as == kStoredDynamic8,
                       room);
      return room;
    default: return static_cast<float*>(from.data) + begin;
  }
}
/// The way back. Nothing, where `numbers` are where they lie.
inline void store_stored(const float* __restrict numbers, int64_t n, const Stored& to, int64_t begin) {
  switch (to.as) {
    case kStoredBf16:
      for (int64_t i = 0; i < n; ++i) from_float(numbers[i], static_cast<Bf16*>(to.data)[begin + i]);
      return;
    case kStoredF16:
      for (int64_t i = 0; i < n; ++i) from_float(numbers[i], static_cast<F16*>(to.data)[begin + i]);
      return;
    case kStoredDynamic8:
    case kStoredDynamic8Unsigned:
      dynamic8::encode(numbers, n, to.as == kStoredDynamic8, static_cast<uint8_t*>(to.data) + begin, to.scale + begin / dynamic8::kBlock);
      return;
    default: return;
  }
}

}  // namespace galley::sdk
