// Checks what an op's roles and its grain promise (op.h): its reference computes for parts what it computes for all at once. Chunks of the
// head, pieces of an update and shards rely on it.
#pragma once

#include <string>
#include <vector>

#include "host/proofs/gradients.hpp"

namespace galley {

struct RoleFault {
  std::string operand;   ///< "output 0 ('y')"
  double share = 0;      ///< how far the parts are off, as a share of what all give
  std::string sentence;  ///< what was found
};
struct RoleCheck {
  std::vector<RoleFault> faults;  ///< the first for each operand
  std::vector<std::string> cut;   ///< the operands that were checked, outputs and updated inputs; none where nothing is cut
};

/// Cuts the node's rows into three parts, and compares what the reference makes of them with `all`, what it makes of all. A node whose op
/// writes something that is neither by rows nor summed over them is never cut.
Result<RoleCheck> check_roles(const LoneNode& node, const Made& all, const OpLookup& ops);

/// Does the same with ranges of the numbers of an update whose grain is an element or a block of them.
Result<RoleCheck> check_grain(const LoneNode& node, const Made& all, const OpLookup& ops);

}  // namespace galley
