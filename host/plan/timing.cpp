#include "host/plan/timing.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <unordered_map>

namespace galley {

std::string_view arithmetic_of(uint32_t dtype, const AttrList& attrs) {
  if (dtype == GALLEY_BF16) return "bf16";
  if (dtype == GALLEY_F16) return "f16";
  if (dtype == GALLEY_I8) return "i8";
  if (dtype != GALLEY_F32) return "";
  return attrs.find("tf32") ? "tf32" : "f32";
}

double arithmetic_seconds(const Instruction& code, const Target& target) {
  const Launch* launch = code.launch();
  if (!launch || launch->flops <= 0) return 0;
  for (const Operand& input : code.inputs)
    if (const auto known = arithmetic_of(input.dtype, launch->nodes[0].attrs); !known.empty())
      return launch->flops / target.peak_flops(known);
  return launch->flops / target.peak_flops("f32");
}

double arithmetic_seconds(const Program& program, SegmentKind kind, const Target& target) {
  double sum = 0;
  for (const Instruction& code : program.segment(kind).code) sum += arithmetic_seconds(code, target);
  return sum;
}

double share_of(const Program& program, const Instruction& code) {
  const bool at_ends = code.when == When::LaneEnds || code.when == When::LaterLaneEnds;  // once in the micro-batches of a lane
  return at_ends ? 1 / static_cast<double>(program.in_a_lane(program.micro_batches)) : 1;
}

double link_seconds(const AlongAxis& axis, double bytes, const Target& target) {
  const Link* link = axis.ranks > 1 ? target.link_for(axis.span()) : nullptr;
  if (!link) return 0;
  const auto rounds = static_cast<double>(std::bit_width(static_cast<uint64_t>(axis.ranks - 1)));  // log2, rounded up
  return bytes / link->bandwidth + rounds * link->latency;
}

namespace {

/// Unpacking a number of 4 bits takes .08 to .12 ns on a thread whose peak is about 100 GFLOP/s (tests/bench/fit.py).
constexpr double kUnpackFlops = 10;

/// Whether a process waits for others.
bool between_processes(const Program& program, const Instruction& code) { return program.ranks > 1 && code.exchanges(); }

enum class Exchanges : uint8_t { Take, TakeNothing };

double segment_seconds(const Program& program, SegmentKind kind, const Target& target, Exchanges exchanges) {
  std::vector<double> clocks(std::max<size_t>(target.queues.size(), 1), 0.0);
  std::unordered_map<uint32_t, double> events;
  for (const Instruction& code : program.segment(kind).code) {
    double& clock = clocks[code.queue];
    if (code.action() == Action::Wait) {
      if (const auto event = events.find(code.event); event != events.end()) clock = std::max(clock, event->second);
      continue;
    }
    const bool none = exchanges == Exchanges::TakeNothing && between_processes(program, code);
    if (!none) clock += share_of(program, code) * instruction_seconds(program, code, target);
    if (code.event != 0) events[code.event] = clock;
  }
  return *std::max_element(clocks.begin(), clocks.end());
}

double step_seconds(const Program& program, const Target& target, Exchanges exchanges) {
  if (program.segment(SegmentKind::Update).code.empty()) return 0;
  return static_cast<double>(program.own_micro_batches()) * segment_seconds(program, SegmentKind::Micro, target, exchanges) +
         segment_seconds(program, SegmentKind::Window, target, exchanges) +
         segment_seconds(program, SegmentKind::Update, target, exchanges);
}

}  // namespace

double instruction_seconds(const Program& program, const Instruction& code, const Target& target) {
  const auto class_of = [&](const Operand& o) -> const MemoryClass& {
    return target.memories[program.tensors[static_cast<size_t>(o.tensor)].memory];
  };
  if (code.action() == Action::Copy) {
    const Operand &from = code.inputs[0], &to = code.outputs[0];
    const bool in = program.tensors[static_cast<size_t>(to.tensor)].memory == 0;
    return static_cast<double>(from.bytes()) / (in ? class_of(from).in_bandwidth : class_of(to).out_bandwidth);
  }
  if (code.action() != Action::Launch) return 0;
  double bytes = 0, unpacking = 0;
  const TensorId workspace = code.workspace();
  const int64_t room = workspace == no_tensor ? 0 : program.tensors[static_cast<size_t>(workspace)].bytes;
  for (const Operand& o : code.inputs) {
    if (!o.format) continue;
    unpacking += kUnpackFlops * static_cast<double>(elements(o.shape)) / target.peak_flops("f32");
    if (room >= o.bytes()) unpacking += 2.0 * static_cast<double>(o.bytes()) / target.bandwidth();
  }
  for (const auto* operands : {&code.inputs, &code.outputs})
    for (const Operand& o : *operands)
      if (o.present() && (operands == &code.outputs || !o.inner)) bytes += static_cast<double>(o.bytes());
  const double here = std::max(arithmetic_seconds(code, target), bytes / target.bandwidth()) + unpacking;
  return between_processes(program, code) ? std::max(here, link_seconds(along_axis(code), code.launch()->link_bytes, target)) : here;
}

double segment_seconds(const Program& program, SegmentKind kind, const Target& target) {
  return segment_seconds(program, kind, target, Exchanges::Take);
}

double step_seconds(const Program& program, const Target& target) { return step_seconds(program, target, Exchanges::Take); }

ExchangeTimes exchange_times(const Program& program, const Target& target) {
  ExchangeTimes out;
  if (program.ranks > 1) out.link = target.link_for(program.ranks);
  if (!out.link) return out;
  double a_micro_batch = 0;  // with a lane's end
  for (const SegmentKind kind : {SegmentKind::Window, SegmentKind::Micro, SegmentKind::Update})
    for (const Instruction& code : program.segment(kind).code) {
      if (!between_processes(program, code)) continue;
      const double seconds = instruction_seconds(program, code, target);
      const bool micro = kind == SegmentKind::Micro;
      out.seconds += (micro ? share_of(program, code) * static_cast<double>(program.own_micro_batches()) : 1) * seconds;
      if (micro) a_micro_batch += seconds;
    }
  out.alone = std::max(0.0, step_seconds(program, target) - step_seconds(program, target, Exchanges::TakeNothing));
  const double arithmetic = arithmetic_seconds(program, SegmentKind::Micro, target);
  if (a_micro_batch > 0 && arithmetic > 0)
    out.positions = std::llround(std::ceil(a_micro_batch / arithmetic * static_cast<double>(program.rows * program.length)));
  return out;
}

}  // namespace galley
