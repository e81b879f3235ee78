// What an export has rounded, and how much that has taken.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "host/base/value.hpp"
#include "host/exec/export.hpp"

namespace galley {

/// A line for tensors whose names differ in the block's number only, with the least and the most of their relative errors; "" where
/// rounding has changed nothing. Names are cut where a line would have more than `columns`. What it takes of what was trained comes last,
/// as a warning where it is much.
std::string rounding_text(std::span<const Rounded> rounded, size_t columns);

/// The norm of what rounding has taken over the norm of what training had changed, over all tensors of which that is known; nothing where
/// it is known of none.
std::optional<double> taken_of_trained(std::span<const Rounded> rounded);
/// More than this is worth a warning.
inline constexpr double kMuchOfTrained = 0.05;

/// `rounded` of `galley export --json`: a list of {file, tensor, dtype, numbers, error, of_trained}.
Value rounding_json(std::span<const Rounded> rounded);

}  // namespace galley
