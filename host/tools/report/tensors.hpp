// Lists the tensors of a plan with their offsets and lifetimes: for programs, and as columns for the memory map of a page.
#pragma once

#include "host/base/value.hpp"
#include "host/plan/plan.hpp"

namespace galley {

/// Returns whether the tensor takes bytes at any time.
bool has_place(const Program& program, const Plan& plan, size_t tensor);
/// Returns how documents call a life: "run", "window", "segment", "texts".
const char* life_name(Life life);
/// Returns the segment of a moment, which counts from the begin of the timeline.
size_t segment_at(const Program& program, const Plan& plan, int32_t moment);

/// Returns what `plan --json --tensors` adds to the plan's document: "timeline", the segments in order with their instructions, and
/// "tensors", each that has bytes and a life. Offsets count from the begin of the memory class's arena; moments are instructions of a
/// segment, both included.
Table tensors_json(const Program& program, const Plan& plan, const Target& target);

/// Returns the same as columns, which take a tenth of the memory: "segments", "end", "instructions" (a name for each moment), "strategies",
/// "shapes" and "tensors", whose columns have an entry for each tensor. Moments count from the begin of the timeline; memory classes and
/// owners are indexes, a strategy is an index or -1.
Table tensor_columns(const Program& program, const Plan& plan);

}  // namespace galley
