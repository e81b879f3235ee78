// Lets strategies change the model, what it begins with, and what is saved of it.
#pragma once

#include <string>

#include "host/passes/compilation.hpp"

namespace galley {

/// The parts of a run that strategies may change: the functions of galley_rewrite.
enum class RewriteOf : uint8_t { Model, Window, Load, Save, Merge };

/// Asks all strategies to rewrite a part, in the order of their phases. Their nodes go into `section`; names that the graph makes itself
/// begin with `prefix`.
Status rewrite_part(Compilation& c, RewriteOf of, Section section, const std::string& prefix = {});

}  // namespace galley
