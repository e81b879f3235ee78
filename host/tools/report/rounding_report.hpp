// Reports which tensors an export has rounded, and how much rounding has changed them.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "host/base/value.hpp"
#include "host/exec/export.hpp"

namespace galley {

/// Returns one line for tensors whose names differ in the block's number only, with the least and the most of their relative errors; "" if
/// rounding has changed nothing. Names are cut to keep lines within `columns`. The share of training that rounding has taken comes last, as
/// a warning if it is much.
std::string rounding_text(std::span<const Rounded> rounded, size_t columns);

/// Returns the norm of rounding errors over the norm of what training has changed, over all tensors for which that is known; nothing if it
/// is known for none.
std::optional<double> taken_of_trained(std::span<const Rounded> rounded);
/// A larger share is worth a warning.
inline constexpr double kMuchOfTrained = 0.05;

/// Returns `rounded` of `galley export --json`: a list of {file, tensor, dtype, numbers, error, of_trained}.
Value rounding_json(std::span<const Rounded> rounded);

}  // namespace galley
