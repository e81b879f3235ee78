// What a pass has made, as text. Nothing in it depends on addresses or on the order of a hash.
#pragma once

#include <string>

#include "host/passes/compilation.hpp"

namespace galley {

/// Tensors that last and nodes by section: `name: op(inputs) {attributes} -> outputs`, +k where output k is added to.
std::string dump_graph(const Compilation& c);
std::string dump_orders(const Compilation& c);
std::string dump_choices(const Compilation& c);
/// One line an instruction, by segment.
std::string dump_program(const Compilation& c);

}  // namespace galley
