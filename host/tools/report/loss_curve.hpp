// Draws the loss of a run as a small picture of characters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace galley {

/// The fewest points that make a curve.
inline constexpr size_t kLeastCurve = 10;

enum class Characters : uint8_t { Braille, Ascii };

/// Returns a curve of `losses`, counted in `unit`, over `steps`, both in the run's order, in lines of at most `columns`: with its scale,
/// its first and its last step, and its last value. Several steps in a place are their mean; what is not finite is left out. "" if fewer
/// than kLeastCurve points are left, or there is no room.
std::string loss_curve(const std::vector<double>& steps, const std::vector<double>& losses, const char* unit, int columns,
                       Characters characters);

}  // namespace galley
