// Estimates how long instructions take on a target, and how long a segment takes when its queues run beside each other.
#pragma once

#include <string_view>

#include "host/plan/program.hpp"
#include "host/plan/target.hpp"

namespace galley {

/// Returns the arithmetic of a node with an operand of this dtype, as targets name peaks: "bf16", "f16", "f32" or, if an attribute says so,
/// "tf32"; empty for operands of other dtypes.
std::string_view arithmetic_of(uint32_t dtype, const AttrList& attrs);
/// Returns the seconds of an instruction's FLOPs at the peak of its arithmetic: that of its first operand of floating-point numbers, as its
/// first node says. 0 if it is no launch.
double arithmetic_seconds(const Instruction& code, const Target& target);

/// Returns the seconds of an instruction. For a kernel: the larger of its FLOPs by the peak of its arithmetic and its operands' bytes by
/// the bandwidth of class 0. Operands that it reads in their formats are unpacked before that; if its workspace has room for their numbers,
/// these are also written and read once. For a copy: its bytes by the bandwidth of the link. For others 0, because the device does not read
/// files. [plan-time] Pure.
double instruction_seconds(const Program& program, const Instruction& code, const Target& target);

/// Returns the seconds from a segment's begin to the end of its last instruction. Each queue runs its instructions in order, one at a time;
/// a Wait lets its queue go on when the work before the event is over. [plan-time] Pure.
double segment_seconds(const Program& program, SegmentKind kind, const Target& target);

/// Returns the seconds of a step: its window, micro-batches and update; 0 for a program without an update. [plan-time] Pure.
double step_seconds(const Program& program, const Target& target);

/// Returns the seconds of a segment's FLOPs at the peaks of their arithmetics. [plan-time] Pure.
double arithmetic_seconds(const Program& program, SegmentKind kind, const Target& target);

}  // namespace galley
