// Finds outputs that can take over the memory of an input (donated buffers), for `alias` and for the peaks that other passes compute.
#pragma once

#include <vector>

#include "host/plan/outline.hpp"

namespace galley {

/// An output that may take over an input's bytes, as far as one instruction can tell. Both are positions among the entry's tensors.
struct TakeOver {
  uint32_t output = 0;
  uint32_t input = 0;
};

/// Returns what an instruction may take over, by its op's rule: whole tensors of one segment and size; an input that it reads once.
std::vector<TakeOver> take_overs(const Program& program, const Instruction& instruction);

/// Lets an output take over an input where an entry is the first use of the one and the last use of the other, and renames the output from
/// there on. `allowed` has the take-overs of each entry.
void share(Outline::Code& code, const std::vector<const std::vector<TakeOver>*>& allowed, size_t tensors);

}  // namespace galley
