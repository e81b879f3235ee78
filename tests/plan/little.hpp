// Programs of a few instructions, written by hand.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "galley/op.h"
#include "host/plan/offsets.hpp"
#include "host/plan/program.hpp"
#include "host/plan/target.hpp"
#include "host/plugins/abi.hpp"
#include "host/proofs/check.hpp"
#include "host/proofs/shadow.hpp"

namespace galley {

inline constexpr auto kLoad = SegmentKind::Load;
inline constexpr auto kMicro = SegmentKind::Micro;
inline constexpr auto kUpdate = SegmentKind::Update;
inline constexpr auto kEval = SegmentKind::Eval;

/// An op between processes.
inline const galley_op* exchange_op() {
  static const galley_op op = [] {
    auto made = new_struct<galley_op>();
    made.name = "exchange";
    made.flags = GALLEY_OP_EXCHANGE;
    return made;
  }();
  return &op;
}

/// A program under construction. Tensors are vectors of `count` F32.
struct Little {
  Program program;

  TensorId tensor(const std::string& name, int64_t count, Life life = Life::Segment, uint32_t memory = 0,
                  Owner owner = Owner::Activations) {
    ProgramTensor t;
    t.name = name;
    t.shape = {count};
    t.bytes = count * 4;
    t.memory = memory;
    t.life = life;
    t.owner = owner;
    program.tensors.push_back(std::move(t));
    return static_cast<TensorId>(program.tensors.size() - 1);
  }
  Operand part(TensorId id, int64_t first, int64_t count, uint32_t access, uint32_t later = 0) const {
    Operand o;
    o.tensor = id;
    o.offset = first * 4;
    o.shape = {count};
    o.access = access;
    o.later = later ? later : access;
    return o;
  }
  Operand all(TensorId id, uint32_t access, uint32_t later = 0) const {
    return part(id, 0, program.tensors[static_cast<size_t>(id)].shape[0], access, later);
  }
  Operand r(TensorId id) const { return all(id, GALLEY_READ); }
  Operand w(TensorId id) const { return all(id, GALLEY_WRITE); }
  Operand rw(TensorId id) const { return all(id, GALLEY_READ_WRITE); }
  Operand a(TensorId id) const { return all(id, GALLEY_ACCUMULATE); }
  /// Written by the first micro-batch, added to by the others.
  Operand wa(TensorId id) const { return all(id, GALLEY_WRITE, GALLEY_ACCUMULATE); }

  Instruction& op(SegmentKind kind, const std::string& name, std::vector<Operand> inputs, std::vector<Operand> outputs) {
    return program.segment(kind).code.emplace_back(launch_of({name}, std::move(inputs), std::move(outputs)));
  }
  void sync(SegmentKind kind, Action action, uint32_t queue, uint32_t event) {
    Instruction& i = op(kind, action == Action::Wait ? "wait" : "record", {}, {});
    if (action == Action::Wait) i.what = Wait();
    else i.what = Record();
    i.queue = queue;
    i.event = event;
  }
  void copy(SegmentKind kind, const std::string& name, TensorId from, TensorId to, uint32_t queue, uint32_t event) {
    Instruction& i = op(kind, name, {r(from)}, {w(to)});
    i.what = Copy();
    i.queue = queue;
    i.event = event;
  }
};

/// The one node of a launch has all of its operands again.
inline void own_all(Instruction& i) {
  i.launch()->nodes[0].inputs.count = i.inputs.size();
  i.launch()->nodes[0].outputs.count = i.outputs.size();
}

/// "host" aligned to 64 bytes, which computes, and "spill" to 4,096; two queues.
inline Target little_target() {
  Target target;
  target.queues = {Queue::Compute, Queue::Compute};
  target.memories = {{"host", 64, true, true}, {"spill", 4096, true, false}};
  return target;
}

/// What the shadow device says of a plan; nothing, where it holds.
inline std::string verdict(const Program& program, const Plan& plan) {
  const Status status = check_plan(program, plan, little_target());
  return status.ok() ? "" : status.error().cause;
}
inline std::string verdict(const Program& program) { return verdict(program, make_plan(program, little_target())); }

#define EXPECT_SAYS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << "says: " << (text)

}  // namespace galley
