// The attributes that an op declares, and whether those of a node are what it declares.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "galley/op.h"

namespace galley {

/// Returns the rules of an op: those it declares, and those that the host declares for it (op.h).
std::vector<const galley_attr_rule*> attr_rules(const galley_op& op);

/// What is wrong with the attributes of a node, or "".
std::string attrs_problem(const galley_op& op, std::span<const galley_attr* const> attrs);

/// "I64", "F64s" for a list of them, "string".
std::string attr_type_text(const galley_attr_rule& rule);
/// Returns the values of an attribute: "0.5", "1,2", "tanh".
std::string attr_text(const galley_attr& attr);

}  // namespace galley
