// Estimates how long instructions take on a target, and how long a segment takes when its queues run beside each other.
//
// An exchange between n processes takes its bytes by the bandwidth of the nearest link that joins all of them, and the link's latency
// ⌈log₂ n⌉ times: in so many rounds each can hear from each other one, and in no fewer, where a process sends one message at a time (Chan
// et al., Collective communication: theory, practice, and experience, 2007). Kernels that send n − 1 messages at once take more than one
// latency, and less than n − 1. Between GPUs in one machine, 2 H100 exchange nothing in 6 µs (NVIDIA/nccl#1259) and 8 H20 in 12.5
// (deepseek-ai/DeepEP#303). That is a launch at its best, as all estimates here are. What goes to a process of the same machine counts like
// what goes to another one: of 64 processes on machines of 8 it is 1/9 of the bytes.
#pragma once

#include <optional>
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

/// Returns the share of the micro-batches that an instruction of micro runs in.
double share_of(const Program& program, const Instruction& code);

/// Returns the seconds in which each process along an axis sends so many bytes to the others of it, on the nearest link that joins all from
/// the first to the last; 0: there is one process, or no link is known.
double link_seconds(const AlongAxis& axis, double bytes, const Target& target);

/// Returns the seconds of an instruction. For a kernel: the larger of its FLOPs by the peak of its arithmetic and its operands' bytes by
/// the bandwidth of class 0. Operands that it reads in their formats are unpacked before that; if its workspace has room for their numbers,
/// these are also written and read once. For an exchange between several processes: that, or what the link between them takes, if it is
/// known and more. For a copy: its bytes by the bandwidth of its memory class. For others 0, because the device does not read files.
/// [plan-time] Pure.
double instruction_seconds(const Program& program, const Instruction& code, const Target& target);

/// Returns the seconds from a segment's begin to the end of its last instruction. Each queue runs its instructions in order, one at a time;
/// a Wait lets its queue go on when the work before the event is over. [plan-time] Pure.
double segment_seconds(const Program& program, SegmentKind kind, const Target& target);

/// Returns the seconds of a step: its window, micro-batches and update; 0 for a program without an update. [plan-time] Pure.
double step_seconds(const Program& program, const Target& target);

/// What the exchanges of a step take.
struct ExchangeTimes {
  const Link* link = nullptr;  ///< the target's, which joins all processes; null: there is none, and nothing else is known
  double seconds = 0;          ///< of a step
  double alone = 0;            ///< by how many seconds they make the step longer: nothing runs beside them
  /// With so many positions in a micro-batch, its FLOPs at their peaks take as long as all of its exchanges, with those at a lane's end.
  /// Not given if it has no exchanges, or no FLOPs.
  std::optional<int64_t> positions;
};
ExchangeTimes exchange_times(const Program& program, const Target& target);

/// Returns the seconds of a segment's FLOPs at the peaks of their arithmetics. [plan-time] Pure.
double arithmetic_seconds(const Program& program, SegmentKind kind, const Target& target);

}  // namespace galley
