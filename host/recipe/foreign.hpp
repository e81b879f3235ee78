// What other trainers call what a recipe says: for hints.
#pragma once

#include <string>

namespace galley {

/// How Galley writes what other trainers call so, where that is no option of the same table: "write use \"accumulate\" { steps = 4 }" of
/// gradient_accumulation_steps; "": nobody does.
std::string written_here(const std::string& foreign);
/// What the recipes in scripts/ call an argument that other trainers call so: "lr" of learning_rate; "": nothing.
std::string argument_here(const std::string& foreign);

}  // namespace galley
