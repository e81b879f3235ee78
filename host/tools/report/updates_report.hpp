// Which strategy updates which parameters, and which are frozen.
#pragma once

#include <string>

#include "host/base/value.hpp"
#include "host/plan/program.hpp"

namespace galley {

/// A kind of names: "h.*.ln_1.weight" of "h.11.ln_1.weight".
std::string without_numbers(const std::string& name);

/// Lines of the plan's table; "" where nothing is trained. `columns`: width of the terminal.
std::string updates_text(const Program& program, int columns);

/// `updates` of `plan --json`: a list of {by, parameters, numbers, names}; names that differ in the block's number only are one, with '*'.
/// `by` of frozen ones is nil.
Value updates_json(const Program& program);

/// Frozen parameters in formats: lines of the plan's table.
std::string formats_text(const Program& program, int columns);

/// What strategies save in files of their own, such as an adapter: lines of the plan's table, and `beside_the_model` of `plan --json`, a
/// list of {by, file, parameters, numbers, bytes, names}.
std::string apart_text(const Program& program, int columns);
Value apart_json(const Program& program);

}  // namespace galley
