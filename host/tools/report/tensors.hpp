// The tensors of a plan, each where and when it lies: for programs, and as columns for the memory map of a page.
#pragma once

#include "host/base/value.hpp"
#include "host/plan/plan.hpp"

namespace galley {

/// Whether the tensor takes bytes at any time.
bool has_place(const Program& program, const Plan& plan, size_t tensor);
/// The segment of a moment, counted from the begin of the timeline.
size_t segment_at(const Program& program, const Plan& plan, int32_t moment);

/// What `plan --json --tensors` adds to the plan's document: "timeline", the segments in order with their instructions, and "tensors", each
/// that has bytes and a life. Bytes and offsets count from the begin of the memory class's arena; moments are instructions of a segment,
/// both included.
Table tensors_json(const Program& program, const Plan& plan, const Target& target);

/// The same as columns, which take a tenth of the memory: "segments", "end", "instructions" (a name a moment), "strategies", "shapes" and
/// "tensors", of which each column has an entry a tensor. Moments count from the begin of the timeline, memory classes and owners are
/// indexes, a strategy is one or -1.
Table tensor_columns(const Program& program, const Plan& plan);

}  // namespace galley
