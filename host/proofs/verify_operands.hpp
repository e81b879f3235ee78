// Verifies the operands that the nodes of a program really have, after passes that rewire or cast.
#pragma once

#include <string_view>

#include "host/passes/compilation.hpp"

namespace galley {

/// Checks every node of every segment with the operands that it has there: in evaluation and sampling, which leave out nodes that only
/// training has; in chunks of rows; in pieces of an update; unpacked and packed; cast where it is read; initialized and exported.
///   - Outputs are as the shape rule says. The rule itself checks inputs that are neither COMPUTE nor ANY_DTYPE.
///   - Inputs that are read in the node's compute dtype all have one dtype.
///   - A node updates nothing that its rule does not update.
/// An error names the segment, the node, the op, the operand, the dtypes, and who made it. [plan-time]
Status verify_operands(const Compilation& c, std::string_view pass);

}  // namespace galley
