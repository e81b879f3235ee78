// Makes instructions that copy between memory classes, and those that order queues: record and wait.
#pragma once

#include <vector>

#include "host/plan/program.hpp"

namespace galley {

inline Instruction sync(Action action, uint32_t queue, uint32_t event) {
  Instruction i;
  if (action == Action::Record) i.what = Record();
  else i.what = Wait();
  i.name = action_names[i.what.index()];
  i.queue = queue;
  i.event = event;
  return i;
}

/// Makes the instructions of a copy on `queue`, in order, by calls of add(action, queue, event). The copy begins after all before it, and
/// all that follows waits for it; `overlap` changes that. On queue 0 it is one instruction. `events` counts the events in use.
template <class Add>
void copy_in_order(uint32_t queue, uint32_t* events, const Add& add) {
  if (queue == 0) return add(Action::Copy, queue, 0u);
  const uint32_t before = ++*events, after = ++*events;
  add(Action::Record, 0u, before);
  add(Action::Wait, queue, before);
  add(Action::Copy, queue, after);
  add(Action::Wait, 0u, after);
}

inline Operand all_of(const std::vector<ProgramTensor>& tensors, TensorId id) {
  const ProgramTensor& t = tensors[static_cast<size_t>(id)];
  Operand out;
  out.tensor = id;
  out.shape = t.shape;
  out.dtype = t.dtype;
  return out;
}

inline Operand with_access(Operand operand, uint32_t access) {
  operand.access = operand.later = access;
  return operand;
}

inline Instruction copy_between(const std::vector<ProgramTensor>& tensors, const Operand& from, const Operand& to, uint32_t queue,
                                uint32_t event) {
  Instruction i;
  i.what = Copy();
  i.name = "copy of " + tensors[static_cast<size_t>(from.tensor)].name;
  i.inputs = {with_access(from, GALLEY_READ)};
  i.outputs = {with_access(to, GALLEY_WRITE)};
  i.queue = queue;
  i.event = event;
  return i;
}

}  // namespace galley
