// Checks a program and a plan without running anything: the first half of check_plan (shadow.hpp), and the verifier of passes over
// programs. Nothing here uses the planner's own lifetimes.
#pragma once

#include <string>

#include "host/plan/plan.hpp"

namespace galley {

/// Checks that the program keeps the rules of program.hpp: operands lie within their tensors; operands of one instruction do not overlap,
/// unless nothing writes them or the op says that an output may take over an input; kernels compute in memory that computes; copies have
/// one source, one destination and, off queue 0, an event; a tensor of Life::Segment is used in one segment, and one of Life::Window in
/// micro and update only; what the host writes is of Life::Run. [plan-time]
Status check_program(const Program& program, const Target& target);

/// Checks that the plan fits the program: each tensor has a placement, aligned and within its arena; Life::Run covers everything and
/// Life::Window all that it must; no two tensors share a byte while both live. Needs a program that has passed check_program. [plan-time]
Status check_layout(const Program& program, const Plan& plan, const Target& target);

/// Returns "micro[12] 'layers.0.q'", which is how messages name an instruction.
std::string place_text(const Program& program, SegmentKind kind, size_t index);
/// Returns "'x' bytes [0, 4096)", with offsets in the tensor.
std::string range_text(const Program& program, TensorId tensor, int64_t begin, int64_t end);
/// Makes an error that says that Galley itself is at fault.
Error plan_error(std::string cause);

}  // namespace galley
