// Places the segments that begin and end a run: load, refresh and export.
#pragma once

#include <set>

#include "host/passes/place/homes.hpp"
#include "host/passes/place/segment_code.hpp"

namespace galley {

/// Fills the segment Load: reads or makes every parameter, state and constant, from its file or by its initializer.
Status place_load(Compilation& c, const Homes& homes);
/// Appends nodes that make constants again, if training changes what they are made from and they are not in `made`.
Status place_refresh(Compilation& c, const Homes& homes, SegmentCode& code, const std::set<galley_tensor>& made = {});
/// Fills the segment Export: a Write for everything that is saved, after the nodes that make its value.
Status place_export(Compilation& c, const Homes& homes);

}  // namespace galley
