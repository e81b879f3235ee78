// Makes the text of what a pass has left, for `galley plan --dump`. The text depends on no address and on no order of a hash.
#pragma once

#include <string>

#include "host/passes/compilation.hpp"
#include "host/plan/plan.hpp"

namespace galley {

/// Returns what a pass has left. Of a graph: the tensors that last, and the nodes by section, `name: op(inputs) {attributes} -> outputs`,
/// +k where output k is added to. Of a program: one line for each instruction, by segment.
std::string dump_pass(const Compilation& c, const PassInfo& pass);
/// Returns the tensors with their places, and the program's instructions.
std::string dump_plan(const Program& program, const Plan& plan);

}  // namespace galley
