// Checks what an op's roles promise (op.h): its reference computes for parts of the rows what it computes for all rows at once. Chunks of
// the head, pieces of an update and shards rely on it.
#pragma once

#include <string>
#include <vector>

#include "host/proofs/gradients.hpp"

namespace galley {

struct RoleFault {
  std::string output;    ///< "output 0 ('y')"
  double share = 0;      ///< how far the parts are off, as a share of what all rows give
  std::string sentence;  ///< what was found
};
struct RoleCheck {
  std::vector<RoleFault> faults;  ///< the first for each output
  std::vector<std::string> rows;  ///< the outputs that were checked; none where nothing is cut by rows
};

/// Cuts the node's rows into three parts, and compares what the reference makes of them with `outputs`, what it makes of all. A node whose
/// op has an output that is neither by rows nor summed over them is never cut.
Result<RoleCheck> check_roles(const LoneNode& node, const Values& outputs, const OpLookup& ops);

}  // namespace galley
