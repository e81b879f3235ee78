// Makes the text of a pass's result, for `galley plan --dump`. The text depends on no address and on no order of a hash.
#pragma once

#include <string>

#include "host/passes/compilation.hpp"

namespace galley {

/// Returns the tensors that last, and the nodes by section: `name: op(inputs) {attributes} -> outputs`, +k where output k is added to.
std::string dump_graph(const Compilation& c);
std::string dump_orders(const Compilation& c);
std::string dump_choices(const Compilation& c);
/// Returns one line for each instruction, by segment.
std::string dump_program(const Compilation& c);

}  // namespace galley
