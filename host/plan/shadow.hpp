// The shadow device: runs every segment of a program without data on two memories at once, one where every tensor has a place of its own and one where
// tensors lie where the plan says. Every write stamps its bytes; every read must find the same stamps in both.
#pragma once

#include "host/plan/plan.hpp"

namespace galley {

/// Runs load, three steps (with eval between them, as many micro-batches as the program says, at most three), sample and export. The expected content comes from the
/// program's order alone; the plan gives offsets and lifetimes, and both are checked: a read or write outside the lifetime, beyond the arena, off alignment; an
/// operand whose bytes are not those its producer wrote; operands of one instruction that overlap; a copy whose source or destination is
/// touched before it is waited for; something read that was never written. The error names segment, instruction and both tensors. [plan-time]
Status check_plan(const Program& program, const Plan& plan, const Target& target);

}  // namespace galley
