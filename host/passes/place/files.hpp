// The segments that begin and end a run.
#pragma once

#include <set>

#include "host/passes/place/homes.hpp"
#include "host/passes/place/segment_code.hpp"

namespace galley {

/// Segment Load: every parameter, state and constant from its file or initializer.
Status place_load(Compilation& c, const Homes& homes);
/// Makes again the constants that are made from what training changes, but for those that have been `made`.
Status place_refresh(Compilation& c, const Homes& homes, SegmentCode& code, const std::set<galley_tensor>& made = {});
/// Segment Export: a Write of everything that is saved, after the nodes that make its value.
Status place_export(Compilation& c, const Homes& homes);

}  // namespace galley
