// What must hold of the operands that the nodes of a program will really have.
#pragma once

#include <string_view>

#include "host/passes/passes.hpp"

namespace galley {

/// Looks at every node of every segment with the operands that it has there, after all passes that rewire or cast: in evaluation and
/// sampling, where nodes that only training has are taken out, in chunks of rows, in parts of an update, unpacked and packed, cast where it
/// is read, initialized and exported.
///   - What a shape rule says is what is there. It checks inputs that are neither COMPUTE nor ANY_DTYPE.
///   - Inputs that are read in the node's compute dtype are all in one.
///   - Nothing is updated that the rule does not update.
/// An error names the segment, the node, the op, the operand, the dtypes, and who made it. [plan-time]
Status verify_operands(const Compilation& c, std::string_view pass);

}  // namespace galley
