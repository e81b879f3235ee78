// Asks strategies for claims, facet by facet, and puts the answers into the graph and the decisions.
#pragma once

#include <vector>

#include "galley/claim.h"
#include "host/passes/compilation.hpp"

namespace galley {

/// The subject of a claim: a tensor, a node, or the run.
struct Who {
  uint32_t kind = GALLEY_SUBJECT_RUN;
  galley_tensor tensor = 0;
  galley_node node = 0;
};

/// Returns what strategies are told of a subject, by what has been decided so far. Its names live as long as the graph.
galley_subject subject_of(const Compilation& c, const Who& who);
/// Asks which parameters are to be trained.
Status ask_trainable(Compilation& c, const std::vector<Who>& subjects);
/// Asks about every other facet that the subjects have, one after another. A question shows only what earlier ones have decided.
Status ask_facets(Compilation& c, const std::vector<Who>& subjects);

}  // namespace galley
