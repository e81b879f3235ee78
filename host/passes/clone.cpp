#include "host/passes/clone.hpp"

#include <algorithm>
#include <limits>
#include <set>

#include "host/passes/copy.hpp"
#include "host/passes/passes.hpp"

namespace galley {

Recomputer::Recomputer(const Compilation& c)
    : c_(c),
      micro_(outline_of(c.program.segment(SegmentKind::Micro))),
      producer_(c.program.tensors.size(), -1),
      kept_(c.program.tensors.size(), false),
      temporary_(c.program.tensors.size(), false) {
  const auto transients = [&](const std::vector<Ref>& refs) {
    std::vector<TensorId> out;
    for (const Ref& r : refs)
      if (r.tensor && c.micro.tensors[r.tensor] != no_tensor) out.push_back(c.micro.tensors[r.tensor]);
    return out;
  };
  for (const auto* part : {&c.orders.forward, &c.orders.head, &c.orders.backward})
    for (const Item& item : *part) {
      items_.push_back({transients(item.inputs), transients(item.outputs)});
      blocks_.push_back(item.node->block);
    }
  for (size_t i = 0; i < c.micro.forward; ++i) {
    const bool once = runs_once(c.tensors(), c.orders.forward[i]);
    for (const TensorId t : items_[i].outputs) {
      producer_[static_cast<size_t>(t)] = static_cast<int32_t>(i);
      kept_[static_cast<size_t>(t)] = once;
    }
  }
  for (const TensorId t : micro_.touched)
    temporary_[static_cast<size_t>(t)] = c.program.tensors[static_cast<size_t>(t)].life == Life::Segment;
  for (const TensorId t : c.micro.tensors)
    if (t != no_tensor) temporary_[static_cast<size_t>(t)] = false;
  for (const Outline::Entry& entry : micro_.entries) events_ = std::max(events_, entry.event);
}

class Recomputer::Pass {
 public:
  Pass(const Recomputer& r, std::span<const uint32_t> choices)
      : r_(r), state_(r.producer_.size()), next_(static_cast<TensorId>(r.producer_.size())), events_(r.events_) {
    for (size_t i = 0; i < choices.size(); ++i) {
      State& x = at(r.c_.micro.tensors[r.c_.saved.tensors[i]]);
      x.offered = true;
      x.how = choice_how(choices[i]);
      x.where = choice_where(choices[i]);
      if (x.how == kCompress) x.compression = &*r.c_.saved.packed[i][x.where];
    }
    for (size_t t = 0; t < state_.size(); ++t)
      if (r.kept_[t] && !state_[t].offered) state_[t].how = GALLEY_KEEP;
    find_needed();
    out_.code.entries.reserve(2 * r.micro_.entries.size());
    out_.code.touched.reserve(2 * r.micro_.touched.size());
  }

  Recomputed run() {
    const size_t forward = r_.c_.micro.forward, before = forward + r_.c_.micro.head;
    for (size_t i = 0; i < forward; ++i) {
      emit(i, false);
      for (const TensorId t : r_.items_[i].outputs)
        if (at(t).needed && aside(t)) take_out(t);
    }
    for (size_t i = forward; i < before; ++i) {
      for (const TensorId t : r_.items_[i].inputs)
        if (at(t).how == GALLEY_KEEP) save(t);
      emit(i, false);
    }
    int64_t block = std::numeric_limits<int64_t>::max();
    for (size_t i = before; i < r_.items_.size(); ++i) {
      if (r_.blocks_[i] >= 0 && r_.blocks_[i] < block) {
        block = r_.blocks_[i];
        drop();
      }
      for (const TensorId t : r_.items_[i].inputs) make(t);
      bring_inputs(i);
      for (const TensorId t : r_.items_[i].inputs)
        if (at(t).how != GALLEY_KEEP && at(t).now != no_tensor) save(at(t).now);
      emit(i, false);
    }
    return std::move(out_);
  }

 private:
  /// What becomes of a tensor of a micro-batch until backward reads it.
  struct State {
    uint32_t how = GALLEY_RECOMPUTE;  ///< without the memory class or format
    uint32_t where = 0;
    const Compression* compression = nullptr;
    TensorId now = no_tensor;         ///< its clone, or where it has been brought back
    std::vector<TensorId> home = {};  ///< where it has been offloaded; its components
    bool offered = false;             ///< it is a saved tensor
    bool needed = false;              ///< backward or a clone reads it
    bool rounded = false;             ///< `now` depends on a compressed tensor
  };
  State& at(TensorId t) { return state_[static_cast<size_t>(t)]; }
  /// Whether it is offloaded or compressed.
  bool aside(TensorId t) { return at(t).how == kOffload || at(t).how == kCompress; }
  bool made_by_forward(TensorId t) const { return r_.producer_[static_cast<size_t>(t)] >= 0; }

  /// What is on the way to a tensor that is made for each block is so itself.
  void find_needed() {
    const size_t forward = r_.c_.micro.forward;
    for (size_t i = forward + r_.c_.micro.head; i < r_.items_.size(); ++i)
      for (const TensorId t : r_.items_[i].inputs) at(t).needed = true;
    for (size_t i = forward; i-- > 0;) {
      bool again = false, each = false;
      for (const TensorId t : r_.items_[i].outputs) {
        const State& x = at(t);
        if (!x.needed || x.how == GALLEY_KEEP || aside(t)) continue;
        again = true;
        each = each || x.how == GALLEY_RECOMPUTE_EACH;
      }
      if (!again) continue;
      for (const TensorId t : r_.items_[i].inputs) {
        at(t).needed = true;
        if (each && !at(t).offered) at(t).how = GALLEY_RECOMPUTE_EACH;
      }
    }
  }

  /// Clones what is needed to have `t` in backward. Explicit stack: a chain may be as long as the model is deep.
  void make(TensorId t) {
    std::vector<std::pair<size_t, size_t>> stack;  // an item, and which of its inputs comes next
    const auto missing = [&](TensorId x) {
      const State& s = at(x);
      return made_by_forward(x) && s.how != GALLEY_KEEP && !aside(x) && s.now == no_tensor;
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
      bring_inputs(done);
      emit(done, true);
    }
  }

  /// Where backward leaves a block.
  void drop() {
    for (const TensorId t : passing_) at(t).now = no_tensor;
    passing_.clear();
  }

  TensorId add(TensorId like, uint32_t memory, const ProgramTensor* own = nullptr) {
    out_.tensors.push_back({like, memory, own});
    return next_++;
  }
  void replace(TensorId t) {
    at(t).now = add(t, 0);
    if (at(t).how == GALLEY_RECOMPUTE_EACH || aside(t)) passing_.push_back(t);
  }
  void save(TensorId t) {
    if (saved_.size() <= static_cast<size_t>(t)) saved_.resize(static_cast<size_t>(t) + 1, false);
    if (!saved_[static_cast<size_t>(t)]) out_.saved.push_back(t);
    saved_[static_cast<size_t>(t)] = true;
  }

  void take_out(TensorId t) {
    State& x = at(t);
    if (x.compression) {
      for (size_t k = 0; k < x.compression->components; ++k) x.home.push_back(add(t, 0, &x.compression->tensors[k + 1]));
      run(*x.compression, x.compression->pack, t, x.home);
    } else {
      x.home = {add(t, x.where)};
      copy(t, x.home[0], r_.c_.target.queue_for(Queue::Out));
    }
    for (const TensorId home : x.home) save(home);
  }
  /// What an item of backward or a clone reads of kept and offloaded tensors.
  void bring_inputs(size_t item) {
    for (const TensorId t : r_.items_[item].inputs) {
      if (!made_by_forward(t)) continue;
      if (at(t).how == GALLEY_KEEP) save(t);
      if (!aside(t) || at(t).now != no_tensor) continue;
      replace(t);
      save(at(t).now);
      const State& x = at(t);
      if (x.compression) run(*x.compression, x.compression->unpack, x.now, x.home);
      else copy(x.home[0], x.now, r_.c_.target.queue_for(Queue::In));
    }
  }

  /// Appends what packs or unpacks.
  void run(const Compression& compression, const std::vector<Instruction>& code, TensorId numbers,
           const std::vector<TensorId>& components) {
    std::vector<TensorId> ids = {numbers};
    ids.insert(ids.end(), components.begin(), components.end());
    ids.resize(compression.tensors.size(), no_tensor);
    for (const Instruction& i : code) {
      const auto begin = static_cast<uint32_t>(out_.code.touched.size());
      visit_touched(i, [&](TensorId local) {
        TensorId& id = ids[static_cast<size_t>(local)];
        if (id == no_tensor) id = add(numbers, 0, &compression.tensors[static_cast<size_t>(local)]);
        out_.code.touched.push_back(id);
      });
      out_.code.entries.push_back({Action::Launch, 0, 0, begin, static_cast<uint32_t>(out_.code.touched.size())});
      out_.origins.push_back({&i});
    }
  }

  void copy(TensorId from, TensorId to, uint32_t queue) {
    copy_in_order(queue, &events_, [&](Action action, uint32_t on, uint32_t event) {
      const auto begin = static_cast<uint32_t>(out_.code.touched.size());
      if (action == Action::Copy) out_.code.touched.insert(out_.code.touched.end(), {from, to});
      out_.code.entries.push_back({action, on, event, begin, static_cast<uint32_t>(out_.code.touched.size())});
      out_.origins.emplace_back();
    });
  }

  void emit(size_t item, bool again) {
    const uint32_t begin = r_.c_.micro.begin[item], end = r_.c_.micro.begin[item + 1];
    const auto mine = [&](TensorId t) {
      return again && (r_.temporary_[static_cast<size_t>(t)] || r_.producer_[static_cast<size_t>(t)] == static_cast<int32_t>(item));
    };
    const bool rounded = again && std::ranges::any_of(r_.items_[item].inputs, [&](TensorId t) {
                           return made_by_forward(t) && at(t).how != GALLEY_KEEP && (at(t).compression || at(t).rounded);
                         });
    for (const TensorId t : r_.items_[item].outputs) at(t).rounded = rounded;
    uint32_t most = 0, least = UINT32_MAX;  // events
    for (uint32_t k = begin; again && k < end; ++k) {
      const Outline::Entry& entry = r_.micro_.entries[k];
      for (const TensorId t : r_.micro_.of(entry))
        if (mine(t)) at(t).now = no_tensor;
      if (!entry.event) continue;
      most = std::max(most, entry.event);
      least = std::min(least, entry.event);
    }
    for (uint32_t k = begin; k < end; ++k) {
      const Outline::Entry& from = r_.micro_.entries[k];
      Outline::Entry entry = from;
      entry.begin = static_cast<uint32_t>(out_.code.touched.size());
      if (again && from.event) entry.event = events_ + 1 + from.event - least;
      for (const TensorId t : r_.micro_.of(from)) {
        if (mine(t) && at(t).now == no_tensor) replace(t);
        // A kept tensor is read as it is, also where a clone has made it again beside another output.
        const bool renamed = at(t).now != no_tensor && (mine(t) || at(t).how != GALLEY_KEEP);
        out_.code.touched.push_back(renamed ? at(t).now : t);
      }
      entry.end = static_cast<uint32_t>(out_.code.touched.size());
      out_.code.entries.push_back(entry);
      out_.origins.push_back({&r_.c_.program.segment(SegmentKind::Micro).code[k], again, rounded});
    }
    if (most) events_ += most - least + 1;
  }

  const Recomputer& r_;
  std::vector<State> state_;
  std::vector<TensorId> passing_;  ///< there until backward leaves the block
  std::vector<bool> saved_;        ///< by tensor, added ones too
  TensorId next_;
  uint32_t events_;
  Recomputed out_;
};

Recomputed Recomputer::apply(std::span<const uint32_t> choices) const { return Pass(*this, choices).run(); }

Status clone(Compilation& c) {
  if (!c.backward()) return ok();
  const Recomputed made = Recomputer(c).apply(c.choices);
  std::vector<ProgramTensor>& tensors = c.program.tensors;
  for (const auto& [like, memory, own] : made.tensors) {
    tensors.push_back(ProgramTensor(own ? *own : tensors[static_cast<size_t>(like)]));
    tensors.back().memory = memory;
  }
  for (const TensorId t : made.saved) tensors[static_cast<size_t>(t)].owner = Owner::Saved;

  std::vector<Instruction>& micro = c.program.segment(SegmentKind::Micro).code;
  std::vector<Instruction> code;
  code.reserve(made.origins.size());
  for (size_t s = 0; s < made.origins.size(); ++s) {
    const Recomputed::Origin& origin = made.origins[s];
    const Outline::Entry& entry = made.code.entries[s];
    const TensorId* next = made.code.of(entry).data();
    if (!origin.code) {
      code.push_back(entry.action == Action::Copy
                         ? copy_between(tensors, all_of(tensors, next[0]), all_of(tensors, next[1]), entry.queue, entry.event)
                         : sync(entry.action, entry.queue, entry.event));
      continue;
    }
    Instruction i = *origin.code;
    visit_touched(i, [&](TensorId& id) { id = *next++; });
    i.event = entry.event;
    i.recomputed = origin.again;
    i.rounded = origin.rounded;
    if (i.recomputed && i.launch()) c.program.recomputed_flops += i.launch()->flops;
    code.push_back(std::move(i));
  }
  micro = std::move(code);
  std::set<Program::Chosen> kernels(c.program.kernels.begin(), c.program.kernels.end());
  for (size_t k = 0; k < c.choices.size(); ++k)
    if (choice_how(c.choices[k]) == kCompress) {
      const Compression& compression = *c.saved.packed[k][choice_where(c.choices[k])];
      kernels.insert(compression.kernels.begin(), compression.kernels.end());
    }
  c.program.kernels.assign(kernels.begin(), kernels.end());
  return ok();
}

}  // namespace galley
