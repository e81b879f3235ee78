// The shadow device: runs every segment of a program without data on two memories at once, one where every tensor has a place of its own
// and one where tensors lie where the plan says. Every write stamps its bytes; every read must find the same stamps in both.
#pragma once

#include "host/plan/plan.hpp"

namespace galley {

/// Proves a plan: runs check_program and check_layout (check.hpp), then run_shadow: load, three steps (with eval between them, and the
/// program's micro-batches, at most three), sample and export. The expected content comes from the program's order alone. Refused are: a
/// read or write outside the lifetime, beyond the arena or off alignment; an operand whose bytes are not those that its producer wrote;
/// operands of one instruction that overlap; a copy whose source or destination is touched before it is waited for; a read of something
/// that was never written. The error names segment, instruction and both tensors. [plan-time]
Status check_plan(const Program& program, const Plan& plan, const Target& target);

/// Does the run alone, for programs and plans that have passed check_program and have a placement for every tensor. It assumes of a device:
///   - Work on a queue runs in order. Between queues only Record and Wait order anything: other work may run early or late. A Copy with an
///     event is such work even on queue 0, so that a device may put it off until it is waited for.
///   - A queue waits for queue 0 before its first work in a segment, and queue 0 waits for all others' before the segment ends: segments do
///     not run into each other.
///   - Before load, micro, eval, sample and export the host writes the step scalars; before micro, eval and sample the inputs; before load
///     and export the staging buffer; before a step the window. After micro it reads the logits, after sample the sample's, after a step
///     the sums of squares.
///   - What a segment's tensors held when it ended is lost; likewise a window's tensors, and for kernels the step scalars of another step.
/// [plan-time]
Status run_shadow(const Program& program, const Plan& plan, const Target& target);

}  // namespace galley
