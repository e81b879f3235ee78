// Operands as kernels of steps on CUDA (steps.hpp) take them: numbers in F32, BF16 or F16, and in the formats that these kernels read and
// write while a piece of them is in registers. The list is closed: a step in one pass needs the format's code in the same kernel. An
// operand in any other format is unpacked before the step, and packed after it.
#pragma once

#include "galley/cpp/companded8.hpp"
#include "galley/cpp/dynamic8.hpp"
#include "galley/cpp/node.hpp"
#include "galley/cpp/split.hpp"

namespace galley::cuda {

/// How an operand is stored.
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
    const bool with_signs = sdk::option(operand, "signed", 1) != 0;
    if (galley_same_text(operand.format, sdk::dynamic8::kName) && are(GALLEY_U8, GALLEY_F32))
      as = with_signs ? kStoredDynamic8 : kStoredDynamic8Unsigned;
    else if (galley_same_text(operand.format, sdk::companded8::kName) && are(with_signs ? GALLEY_I8 : GALLEY_U8, GALLEY_BF16))
      as = with_signs ? kStoredCompanded8 : kStoredCompanded8Unsigned;
    else if (galley_same_text(operand.format, sdk::split::kName) && are(GALLEY_BF16, GALLEY_I8)) as = kStoredSplit;
    else return;
    data = operand.components[0]->data;
    side = operand.components[1]->data;
  }
  static bool takes(const galley_operand& operand) { return Stored(operand).as != kStoredOtherwise; }
};

}  // namespace galley::cuda
