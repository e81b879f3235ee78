#include "host/passes/clone.hpp"

#include <algorithm>

namespace galley {

Recomputer::Recomputer(const Compilation& c)
    : c_(c),
      micro_(outline_of(c.program.segment(SegmentKind::Micro))),
      producer_(c.program.tensors.size(), -1),
      temporary_(c.program.tensors.size(), false) {
  const auto transients = [&](const std::vector<Ref>& refs) {
    std::vector<TensorId> out;
    for (const Ref& r : refs)
      if (r.tensor && c.micro.tensors[r.tensor] != no_tensor) out.push_back(c.micro.tensors[r.tensor]);
    return out;
  };
  for (const auto* part : {&c.orders.forward, &c.orders.head, &c.orders.backward})
    for (const Item& item : *part) items_.push_back({transients(item.inputs), transients(item.outputs)});
  for (size_t i = 0; i < c.micro.forward; ++i)
    for (const TensorId t : items_[i].outputs) producer_[static_cast<size_t>(t)] = static_cast<int32_t>(i);
  for (const TensorId t : micro_.touched)
    temporary_[static_cast<size_t>(t)] = c.program.tensors[static_cast<size_t>(t)].life == Life::Segment;
  for (const TensorId t : c.micro.tensors)
    if (t != no_tensor) temporary_[static_cast<size_t>(t)] = false;
  for (const Outline::Step& step : micro_.steps) events_ = std::max(events_, step.event);
}

class Recomputer::Pass {
 public:
  Pass(const Recomputer& r, std::span<const uint32_t> choices)
      : r_(r), kept_(r.producer_.size(), false), clone_(r.producer_.size(), no_tensor), next_(static_cast<TensorId>(r.producer_.size())) {
    for (size_t i = 0; i < choices.size(); ++i)
      if (choices[i] == GALLEY_KEEP) kept_[static_cast<size_t>(r.c_.micro.tensors[r.c_.saved.tensors[i]])] = true;
    out_.code.steps.reserve(2 * r.micro_.steps.size());
    out_.code.touched.reserve(2 * r.micro_.touched.size());
  }

  Recomputed run() {
    const size_t before = r_.c_.micro.forward + r_.c_.micro.head;
    for (size_t i = 0; i < before; ++i) emit(i, false);
    std::vector<bool> read(r_.producer_.size(), false);
    for (size_t i = before; i < r_.items_.size(); ++i) {
      for (const TensorId t : r_.items_[i].inputs) {
        make(t);
        const auto at = static_cast<size_t>(t);
        if (clone_[at] == no_tensor || kept_[at] || read[at]) continue;
        read[at] = true;
        out_.read.push_back(clone_[at]);
      }
      emit(i, false);
    }
    return std::move(out_);
  }

 private:
  /// Clones what is needed to have `t` in backward. Explicit stack: a chain may be as long as the model is deep.
  void make(TensorId t) {
    std::vector<std::pair<size_t, size_t>> stack;  // an item, and which of its inputs comes next
    const auto missing = [&](TensorId x) {
      const auto at = static_cast<size_t>(x);
      return r_.producer_[at] >= 0 && !kept_[at] && clone_[at] == no_tensor;
    };
    if (missing(t)) stack.emplace_back(r_.producer_[static_cast<size_t>(t)], 0);
    while (!stack.empty()) {
      auto& [item, next] = stack.back();
      const std::vector<TensorId>& inputs = r_.items_[item].inputs;
      while (next < inputs.size() && !missing(inputs[next])) ++next;
      if (next < inputs.size()) {
        stack.emplace_back(r_.producer_[static_cast<size_t>(inputs[next])], 0);
        continue;
      }
      const size_t done = item;
      stack.pop_back();
      emit(done, true);
    }
  }

  void copy(TensorId t) {
    out_.copies.push_back(t);
    clone_[static_cast<size_t>(t)] = next_++;
  }

  void emit(size_t item, bool again) {
    clones_ += again;
    for (uint32_t k = r_.c_.micro.begin[item]; k < r_.c_.micro.begin[item + 1]; ++k) {
      const Outline::Step& from = r_.micro_.steps[k];
      Outline::Step step = from;
      step.begin = static_cast<uint32_t>(out_.code.touched.size());
      if (again && from.event) step.event = from.event + clones_ * r_.events_;
      for (const TensorId t : r_.micro_.of(from)) {
        const auto at = static_cast<size_t>(t);
        const bool mine = again && (r_.temporary_[at] || r_.producer_[at] == static_cast<int32_t>(item));
        if (mine && clone_[at] == no_tensor) copy(t);
        // A kept tensor is read as it is, also where a clone has made it again beside another output.
        const bool renamed = clone_[at] != no_tensor && (mine || !kept_[at]);
        out_.code.touched.push_back(renamed ? clone_[at] : t);
      }
      step.end = static_cast<uint32_t>(out_.code.touched.size());
      out_.code.steps.push_back(step);
      out_.from.push_back(k);
      out_.again.push_back(again);
    }
  }

  const Recomputer& r_;
  std::vector<bool> kept_;
  std::vector<TensorId> clone_;
  TensorId next_;
  uint32_t clones_ = 0;
  Recomputed out_;
};

Recomputed Recomputer::apply(std::span<const uint32_t> choices) const { return Pass(*this, choices).run(); }

Status clone(Compilation& c) {
  if (!c.backward()) return ok();
  const Recomputed made = Recomputer(c).apply(c.choices);
  Program& program = c.program;
  for (const TensorId t : made.copies) program.tensors.push_back(ProgramTensor(program.tensors[static_cast<size_t>(t)]));
  for (size_t i = 0; i < c.choices.size(); ++i)
    if (c.choices[i] == GALLEY_KEEP) program.tensors[static_cast<size_t>(c.micro.tensors[c.saved.tensors[i]])].owner = Owner::Saved;
  for (const TensorId t : made.read) program.tensors[static_cast<size_t>(t)].owner = Owner::Saved;

  std::vector<Instruction>& micro = program.segment(SegmentKind::Micro).code;
  std::vector<Instruction> code;
  code.reserve(made.from.size());
  for (size_t s = 0; s < made.from.size(); ++s) {
    Instruction i = micro[made.from[s]];
    const TensorId* next = made.code.of(made.code.steps[s]).data();
    for (auto* operands : {&i.inputs, &i.outputs})
      for (Operand& o : *operands)
        if (o.present()) o.tensor = *next++;
    if (i.workspace != no_tensor) i.workspace = *next++;
    i.event = made.code.steps[s].event;
    i.recomputed = made.again[s];
    if (i.recomputed) program.recomputed_flops += i.flops;
    code.push_back(std::move(i));
  }
  micro = std::move(code);
  return ok();
}

}  // namespace galley
