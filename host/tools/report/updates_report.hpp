// Reports which strategy updates which parameters, and which parameters are frozen.
#pragma once

#include <string>

#include "host/base/value.hpp"
#include "host/plan/program.hpp"

namespace galley {

/// Returns the kind of a name: "h.*.ln_1.weight" for "h.11.ln_1.weight".
std::string without_numbers(const std::string& name);

/// Returns lines of the plan's table; "" if nothing is trained. `columns` is the width of the terminal.
std::string updates_text(const Program& program, int columns);

/// Returns `updates` of `plan --json`: a list of {by, parameters, numbers, names}; names that differ in the block's number only are one,
/// with '*'. `by` of frozen ones is nil.
Value updates_json(const Program& program);

/// Returns lines of the plan's table about frozen parameters in formats.
std::string formats_text(const Program& program, int columns);

/// Tell what strategies save in files of their own, such as an adapter: as lines of the plan's table, and as `beside_the_model` of
/// `plan --json`, a list of {by, file, parameters, numbers, bytes, names}.
std::string apart_text(const Program& program, int columns);
Value apart_json(const Program& program);

}  // namespace galley
