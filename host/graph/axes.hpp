// Names the axes of a run's processes, for plugins. A run has one process, which is alone on the axis "data".
#pragma once

#include <span>
#include <string_view>

#include "galley/graph.h"

namespace galley {

/// Returns the axes as galley_run_info shows them. They live as long as the process.
std::span<const galley_axis* const> run_axes();
bool has_axis(std::string_view name);

}  // namespace galley
