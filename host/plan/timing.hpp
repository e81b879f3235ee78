// How long instructions take by what the target says, and how long a segment takes when its queues run beside each other.
#pragma once

#include <string_view>

#include "host/plan/program.hpp"
#include "host/plan/target.hpp"

namespace galley {

/// The arithmetic of a node with an operand of this dtype, as targets name peaks: "bf16", "f16", "f32" or, where its attribute says so,
/// "tf32"; empty for operands of other dtypes.
std::string_view arithmetic_of(uint32_t dtype, const AttrList& attrs);
/// By the first operand of floating-point numbers; of several nodes, by the first one.
std::string_view arithmetic_of(const Instruction& code);

/// A kernel: the larger of its FLOPs by the peak of its arithmetic and of its operands' bytes by the bandwidth of class 0; and before that
/// the numbers of operands that it reads in their formats, which it has to unpack; where its workspace has room for them, they are also
/// written and read once. A copy: its
/// bytes by the bandwidth of the link. 0 for others: files are not the device's affair. [plan-time] Pure.
double instruction_seconds(const Program& program, const Instruction& code, const Target& target);

/// From the segment's begin to the end of its last instruction. Each queue runs its instructions in order, one at a time; a Wait lets its
/// queue go on when the work before the event is over. [plan-time] Pure.
double segment_seconds(const Program& program, SegmentKind kind, const Target& target);

/// A step: its window, micro-batches and update; 0 of a program without an update. [plan-time] Pure.
double step_seconds(const Program& program, const Target& target);

/// All FLOPs of a segment by the peaks of their arithmetics. [plan-time] Pure.
double arithmetic_seconds(const Program& program, SegmentKind kind, const Target& target);

}  // namespace galley
