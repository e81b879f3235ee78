#include <algorithm>
#include <map>
#include <tuple>

#include "host/passes/exchange_order.hpp"
#include "host/passes/passes.hpp"
#include "host/passes/transfers.hpp"
#include "host/plan/plan.hpp"
#include "host/plan/timing.hpp"

namespace galley {
namespace {

/// Load and export go by files, which the host reads and writes when nothing is under way.
constexpr SegmentKind kinds[] = {SegmentKind::Micro, SegmentKind::Update, SegmentKind::Eval, SegmentKind::Sample, SegmentKind::Next};

/// Readers whose copies would overlap share one.
void copy_once(const Program& program, std::vector<Instruction>& code, const Target& target) {
  for (;;) {
    const std::vector<std::pair<size_t, size_t>> pairs = Transfers(program, code, target, 0).twice();
    if (pairs.empty()) return;
    std::map<TensorId, TensorId> now;
    std::vector<bool> dropped(code.size(), false);
    for (const auto& [first, second] : pairs) {
      const TensorId there = code[first].outputs[0].tensor;
      const auto moved = now.find(there);
      now[code[second].outputs[0].tensor] = moved == now.end() ? there : moved->second;
      dropped[second] = true;
    }
    std::vector<Instruction> left;
    for (size_t i = 0; i < code.size(); ++i) {
      if (dropped[i]) continue;
      for (auto* operands : {&code[i].inputs, &code[i].outputs})
        for (Operand& o : *operands)
          if (const auto to = now.find(o.tensor); to != now.end()) {
            o.tensor = to->second;
            o.value = no_tensor;
          }
      left.push_back(std::move(code[i]));
    }
    code = std::move(left);
  }
}

/// Within the limits, and class 0 not beyond the budget that a strategy holds. Staging is in class 0, so that one alone can have grown.
bool fits(const Compilation& c, const std::vector<int64_t>& before, const std::vector<int64_t>& after) {
  return (c.budget <= 0 || after[0] <= std::max(before[0], c.budget)) && c.within_limits(before, after);
}

/// An event belongs to one segment: who waits for the last time that it was recorded must not wait for another segment's.
void number_events(Program& program) {
  uint32_t last = 0;
  for (Segment& segment : program.segments) {
    std::map<uint32_t, uint32_t> now;
    for (Instruction& i : segment.code)
      if (i.event) {
        const auto [at, fresh] = now.try_emplace(i.event, last + 1);
        if (fresh) ++last;
        i.event = at->second;
      }
  }
}

void overlap_transfers(Compilation& c) {
  Program& program = c.program;
  const uint32_t exchanges = exchange_queue(program, c.target);
  std::map<SegmentKind, std::vector<Instruction>> placed, once;
  for (const SegmentKind kind : kinds) {
    const std::vector<Instruction>& code = program.segment(kind).code;
    if (std::ranges::none_of(code, [&](const Instruction& i) { return is_transfer(i, exchanges); })) continue;
    placed[kind] = once[kind] = code;
    copy_once(program, once[kind], c.target);
  }
  if (placed.empty()) return;
  const std::vector<int64_t> before = plan_peaks(outline_of(program), c.target);
  const auto as_placed = [&](SegmentKind kind) { program.segment(kind).code = placed.at(kind); };
  for (int64_t most = INT64_MAX;;) {
    int64_t in_flight = 0;
    for (const auto& [kind, code] : once) {
      Transfers transfers(program, code, c.target, exchanges);
      if (transfers.in_flight() > most) transfers.restrain(most);
      in_flight = std::max(in_flight, transfers.in_flight());
      as_placed(kind);
      const double waiting = segment_seconds(program, kind, c.target);
      program.segment(kind).code = transfers.made();
      if (segment_seconds(program, kind, c.target) * kSameSeconds >= waiting) as_placed(kind);
    }
    if (fits(c, before, plan_peaks(outline_of(program), c.target))) break;
    if (in_flight == 0) {  // then it is what readers share that lies there for too long
      for (const auto& [kind, code] : placed) as_placed(kind);
      break;
    }
    most = in_flight / 2;
  }
  renumber(program, canonical_numbers(outline_of(program)));
}

}  // namespace

Status overlap(Compilation& c) {
  overlap_transfers(c);
  number_events(c.program);
  return ok();
}

}  // namespace galley
