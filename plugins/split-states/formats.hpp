// Operands of the ops that pack and unpack the formats of this plugin, as kernels take them.
#pragma once

#include "galley/cpp/stored.hpp"

namespace galley::split_states {

inline sdk::Stored companded(const galley_operand& codes, const galley_operand& scales, const sdk::Node& node) {
  return {codes.data, scales.data, node.i("signed", 1) ? sdk::kStoredCompanded8 : sdk::kStoredCompanded8Unsigned};
}
inline sdk::Stored in_two(const galley_operand& rounded, const galley_operand& corrections) {
  return {rounded.data, corrections.data, sdk::kStoredSplit};
}

}  // namespace galley::split_states
