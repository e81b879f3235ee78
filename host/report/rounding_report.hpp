// What an export has rounded, and how much that has taken.
#pragma once

#include <span>
#include <string>

#include "host/base/value.hpp"
#include "host/exec/export.hpp"

namespace galley {

/// A line for tensors whose names differ in the block's number only, with the least and the most of their relative errors; "" where
/// rounding has changed nothing. Names are cut where a line would have more than `columns`.
std::string rounding_text(std::span<const Rounded> rounded, size_t columns);

/// `rounded` of `galley export --json`: a list of {file, tensor, dtype, numbers, error}.
Value rounding_json(std::span<const Rounded> rounded);

}  // namespace galley
