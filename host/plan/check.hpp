// What can be said of a program and of a plan without running anything: the first half of check_plan (shadow.hpp). Nothing here uses the
// planner's own lifetimes.
#pragma once

#include <string>

#include "host/plan/plan.hpp"

namespace galley {

/// The program keeps the rules of program.hpp: operands lie within their tensors; operands of one instruction do not overlap, except where
/// nothing writes or where the op says that an output may take over an input; kernels compute in memory that computes; copies have one
/// source, one destination and, off queue 0, an event; a tensor of Life::Segment is used in one segment and one of Life::Window in micro
/// and update only; what the host writes is of Life::Run. [plan-time]
Status check_program(const Program& program, const Target& target);

/// The plan fits the program: one placement a tensor, aligned and within its arena; Life::Run covers everything and Life::Window all that
/// it must; no two tensors share a byte at a moment when both live. Needs a program that check_program has passed. [plan-time]
Status check_layout(const Program& program, const Plan& plan, const Target& target);

/// "micro[12] 'layers.0.q'": how messages name an instruction.
std::string place_text(const Program& program, SegmentKind kind, size_t index);
/// "'x' bytes [0, 4096)", of the tensor.
std::string range_text(const Program& program, TensorId tensor, int64_t begin, int64_t end);
/// Such a failure is Galley's own mistake.
Error plan_error(std::string cause);

}  // namespace galley
