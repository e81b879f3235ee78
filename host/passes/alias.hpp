// Which tensors share the bytes of another one.
#pragma once

#include <vector>

#include "host/plan/outline.hpp"

namespace galley {

/// An output that may take over an input's bytes as far as one instruction can tell: positions among the entry's tensors.
struct TakeOver {
  uint32_t output = 0;
  uint32_t input = 0;
};

/// By the op's rule: both are whole tensors of one segment and of one size, the input is there once, and the output does not add.
std::vector<TakeOver> take_overs(const Program& program, const Instruction& instruction);

/// Lets each output whose first use this is take over an input whose last use this is, and renames it from there on. `allowed`: of each
/// entry.
void share(Outline::Code& code, const std::vector<const std::vector<TakeOver>*>& allowed, size_t tensors);

}  // namespace galley
