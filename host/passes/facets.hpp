// What is asked about whom, in which order, and what the host makes of the answers.
#pragma once

#include <vector>

#include "galley/claim.h"
#include "host/passes/compilation.hpp"

namespace galley {

/// Who is asked about: a tensor, a node, or the run.
struct Who {
  uint32_t kind = GALLEY_SUBJECT_RUN;
  galley_tensor tensor = 0;
  galley_node node = 0;
};

/// Which parameters are to be trained.
Status ask_trainable(Compilation& c, const std::vector<Who>& subjects);
/// Every other facet that the subjects have. Each sees only what earlier ones have decided.
Status ask_facets(Compilation& c, const std::vector<Who>& subjects);

}  // namespace galley
