#include "host/passes/fuse_segment.hpp"

#include <algorithm>
#include <numeric>

namespace galley {

Room::Room(const Outline& outline, const Target& target)
    : outline_(outline), target_(target), timeline_(timeline_of(outline)), lives_(find_lifetimes(outline)) {
  live_.assign(target.memories.size(), std::vector<int64_t>(static_cast<size_t>(timeline_.end) + 1, 0));
  least_.assign(target.memories.size(), 0);
  for (size_t t = 0; t < lives_.size(); ++t) {
    if (!lives_[t].used()) continue;
    const Outline::Tensor& tensor = outline.tensors[t];
    const int64_t bytes = rounded(tensor.bytes, tensor.memory);
    live_[tensor.memory][static_cast<size_t>(lives_[t].first)] += bytes;
    live_[tensor.memory][static_cast<size_t>(lives_[t].last) + 1] -= bytes;
  }
  for (size_t memory = 0; memory < live_.size(); ++memory) {
    std::partial_sum(live_[memory].begin(), live_[memory].end(), live_[memory].begin());
    least_[memory] = *std::max_element(live_[memory].begin(), live_[memory].end());
  }
}

int64_t Room::rounded(int64_t bytes, uint32_t memory) const {
  const int64_t alignment = target_.memories[memory].alignment;
  return (bytes + alignment - 1) / alignment * alignment;
}

int64_t Room::born(TensorId tensor, int32_t moment) const {
  const auto t = static_cast<size_t>(tensor);
  return lives_[t].first == moment && outline_.tensors[t].life != Life::Run ? rounded(outline_.tensors[t].bytes, outline_.tensors[t].memory)
                                                                            : 0;
}

bool Room::fits(uint32_t memory, int32_t first, int32_t last, int64_t bytes) const {
  const auto begin = live_[memory].begin();
  return std::all_of(begin + first, begin + last + 1, [&](int64_t live) { return live + bytes <= least_[memory]; });
}

void Room::take(uint32_t memory, int32_t first, int32_t last, int64_t bytes) {
  for (int32_t m = first; m <= last; ++m) live_[memory][static_cast<size_t>(m)] += bytes;
}

SegmentFuser::SegmentFuser(Fuser& fuser, Kernels& kernels, const Outline& outline, const Outline& apart, const StepsOf& source,
                           size_t segment, Room& room)
    : fuser_(fuser),
      kernels_(kernels),
      outline_(outline),
      apart_(apart),
      code_(outline.segments[segment]),
      source_(source),
      segment_(segment),
      room_(room),
      readers_(outline.tensors.size()),
      writers_(outline.tensors.size()),
      region_(source.instructions.size(), 0),
      slot_(source.instructions.size()),
      launch_(source.instructions.size(), -1) {
  std::iota(slot_.begin(), slot_.end(), 0u);
  find_uses();
}

void SegmentFuser::find_uses() {
  uint32_t region = 0;
  for (uint32_t step = 0; step < slot_.size(); ++step) {
    const Instruction& i = of(step);
    const bool kernel = i.action == Action::Kernel && i.queue == 0;
    region += !kernel;
    region_[step] = region;
    region += !kernel;
    first_use_.push_back(uses_.size());
    const TensorId* id = code_.of(code_.steps[step]).data();
    for (const auto* operands : {&i.inputs, &i.outputs})
      for (const Operand& o : *operands) {
        if (!o.present()) continue;
        const uint32_t access = o.access | o.later;
        const auto t = static_cast<size_t>(*id);
        if (access & GALLEY_WRITE) writers_[t].push_back(static_cast<uint32_t>(uses_.size()));
        if (access & GALLEY_READ) readers_[t].push_back(static_cast<uint32_t>(uses_.size()));
        uses_.push_back({step, *id++, o.offset, o.offset + o.bytes(), (access & GALLEY_READ) != 0, (access & GALLEY_WRITE) != 0});
      }
  }
  first_use_.push_back(uses_.size());
}

/// A kernel's step that may join others. Operands in a format have components, which groups and chains do not pass on; a kernel with
/// constants keeps them.
bool SegmentFuser::open(uint32_t step) const {
  const Instruction& i = of(step);
  return i.action == Action::Kernel && i.queue == 0 && i.op && i.components == 0 && i.constants == no_tensor;
}

bool SegmentFuser::joins(uint32_t step, const std::vector<uint32_t>& members, bool chain) const {
  const uint32_t to = slot_[members.front()], from = slot_[step];
  if (region_[step] != region_[members.front()] || source_.recomputed[step] != source_.recomputed[members.front()]) return false;
  for (const Use& mine : uses_of(step)) {
    const auto t = static_cast<size_t>(mine.tensor);
    const auto stays = [&](uint32_t index) {
      const Use& other = uses_[index];
      if (!mine.conflicts(other) || other.step == step) return false;
      if (std::find(members.begin(), members.end(), other.step) == members.end())
        return slot_[other.step] >= to && slot_[other.step] < from && other.step < step;
      // What a link reads, the one before has made as a whole.
      return !(chain && other.writes && !mine.writes && mine.same_range(other));
    };
    if (std::any_of(writers_[t].begin(), writers_[t].end(), stays)) return false;
    if (mine.writes && std::any_of(readers_[t].begin(), readers_[t].end(), stays)) return false;
  }
  return true;
}

/// A chain of these links that begins with the step, each link the next one that reads what the one before has made.
Result<bool> SegmentFuser::try_chain(uint32_t step, const std::vector<std::string>& links) {
  Launch launch;
  launch.links = links.size();
  launch.steps = {step};
  while (launch.steps.size() < links.size()) {
    const uint32_t last = launch.steps.back();
    uint32_t next = UINT32_MAX;
    for (const Use& made : uses_of(last)) {
      if (!made.writes) continue;
      for (const uint32_t index : readers_[static_cast<size_t>(made.tensor)]) {
        const Use& use = uses_[index];
        if (use.step > last && use.step < next && use.same_range(made) && open(use.step) && launch_[use.step] < 0 &&
            of(use.step).op->name == links[launch.steps.size()])
          next = use.step;
      }
    }
    if (next == UINT32_MAX || !joins(next, launch.steps, true)) return false;
    launch.steps.push_back(next);
  }
  mark(launch);
  return accept(std::move(launch));
}

/// Numbers what lies between the links, and finds what nothing else reads.
void SegmentFuser::mark(Launch& launch) const {
  const auto among = [](const auto& list, auto what) { return std::find(list.begin(), list.end(), what) != list.end(); };
  const auto only_here = [&](TensorId tensor) {
    const auto t = static_cast<size_t>(tensor);
    if (outline_.tensors[t].life != Life::Segment || among(outline_.read_by_host, tensor)) return false;
    for (const auto* list : {&readers_[t], &writers_[t]})
      for (const uint32_t index : *list)
        if (!among(launch.steps, uses_[index].step)) return false;
    return true;
  };
  std::vector<TensorId> made, between;
  const auto number = [&](TensorId tensor) {
    if (!among(between, tensor)) between.push_back(tensor);
    return static_cast<uint32_t>(std::find(between.begin(), between.end(), tensor) - between.begin()) + 1;
  };
  std::vector<Mark> outputs;
  for (const uint32_t step : launch.steps) {
    const Use* use = uses_of(step).data();
    for (const Operand& o : of(step).inputs) {
      Mark& mark = launch.marks.emplace_back();
      if (!o.present()) continue;
      if (among(made, use->tensor)) mark = {number(use->tensor), only_here(use->tensor)};
      ++use;
    }
    for (const Use& u : uses_of(step))
      if (u.writes) made.push_back(u.tensor);
  }
  for (const uint32_t step : launch.steps) {
    const auto uses = uses_of(step);
    const auto outputs_here = std::count_if(of(step).outputs.begin(), of(step).outputs.end(), [](const Operand& o) { return o.present(); });
    const Use* use = uses.data() + uses.size() - outputs_here;
    for (const Operand& o : of(step).outputs) {
      Mark& mark = outputs.emplace_back();
      if (!o.present()) continue;
      if (among(between, use->tensor) && only_here(use->tensor)) mark = {number(use->tensor), true};
      ++use;
    }
  }
  launch.marks.insert(launch.marks.end(), outputs.begin(), outputs.end());
}

bool SegmentFuser::has_room(const Launch& launch, bool take) {
  const int32_t begin = room_.begin_of(segment_), to = begin + static_cast<int32_t>(slot_[launch.steps.front()]);
  struct Early {
    TensorId tensor;
    int32_t until;
    int64_t bytes;
  };
  std::vector<Early> early;
  for (const uint32_t step : launch.steps) {
    const int32_t at = begin + static_cast<int32_t>(slot_[step]);
    const auto ids = apart_.segments[segment_].of(code_.steps[step]);
    // A workspace is not moved: the launch has one of its own.
    for (const TensorId id : ids.first(ids.size() - (of(step).workspace != no_tensor)))
      if (const int64_t bytes = at > to ? room_.born(id, at) : 0;
          bytes && std::none_of(early.begin(), early.end(), [&](const Early& e) { return e.tensor == id; }))
        early.push_back({id, at - 1, bytes});
  }
  const Instruction& first = of(launch.steps.front());
  int64_t workspace = launch.choice ? room_.rounded(launch.choice->workspace, 0) : 0;
  if (first.workspace != no_tensor && launch_[launch.steps.front()] < 0)
    workspace -= room_.rounded(outline_.tensors[static_cast<size_t>(code_.of(code_.steps[launch.steps.front()]).back())].bytes, 0);
  if (early.empty() && workspace <= 0) return true;
  bool fits = true;
  size_t taken = 0;
  for (; fits && taken < early.size(); ++taken) {
    const Early& e = early[taken];
    fits = room_.fits(room_.memory_of(e.tensor), to, e.until, e.bytes);
    room_.take(room_.memory_of(e.tensor), to, e.until, e.bytes);
  }
  fits = fits && (workspace <= 0 || room_.fits(0, to, to, workspace));
  if (!fits || !take) {
    while (taken > 0) {
      const Early& e = early[--taken];
      room_.take(room_.memory_of(e.tensor), to, e.until, -e.bytes);
    }
    return fits;
  }
  for (const Early& e : early) room_.bear(e.tensor, to);
  if (workspace > 0) room_.take(0, to, to, workspace);
  return true;
}

/// Asks for a kernel and for room.
Result<bool> SegmentFuser::accept(Launch launch) {
  if (!has_room(launch, false)) return false;
  std::vector<const Instruction*> nodes;
  for (const uint32_t step : launch.steps) nodes.push_back(&of(step));
  launch.choice = TRY(fuser_.joint(nodes, launch))->choice;
  // Constants live for the whole run, so that they would raise any peak.
  if (!launch.choice->kernel || launch.choice->constants > 0 || !has_room(launch, true)) return false;
  const uint32_t to = slot_[launch.steps.front()];
  for (const uint32_t step : launch.steps) {
    // A chain that becomes part of a group is no launch any more.
    if (launch_[step] >= 0) launches_[static_cast<size_t>(launch_[step])].steps.clear();
    launch_[step] = static_cast<int64_t>(launches_.size());
    slot_[step] = to;
  }
  launches_.push_back(std::move(launch));
  return true;
}

/// Nodes and chains of one kind in a region: as many as can stand where the first does, then as many of the others, and so on.
Status SegmentFuser::find_groups() {
  struct Unit {
    std::vector<uint32_t> steps;
    size_t links;
    std::vector<Mark> marks;
  };
  std::map<std::tuple<uint32_t, bool, std::string>, std::vector<Unit>> kinds;
  for (uint32_t step = 0; step < slot_.size(); ++step) {
    if (!open(step)) continue;
    Unit unit = {{step}, 1, {}};
    std::string text = of(step).op->name;
    if (launch_[step] >= 0) {
      const Launch& chain = launches_[static_cast<size_t>(launch_[step])];
      if (chain.steps.front() != step) continue;
      unit = {chain.steps, chain.links, chain.marks};
      for (size_t k = 1; k < chain.links; ++k) text += std::string(">") + of(chain.steps[k]).op->name;
    }
    if (kernels_.takes_groups(text)) kinds[{region_[step], source_.recomputed[step], text}].push_back(std::move(unit));
  }
  for (auto& [kind, units] : kinds) {
    for (std::vector<Unit> rest; units.size() > 1; units = std::move(rest), rest.clear()) {
      Launch launch;
      launch.links = units.front().links;
      launch.steps = units.front().steps;
      std::vector<const Unit*> members = {&units.front()};
      // All inputs of the chains, then all outputs.
      const auto marks = [&] {
        for (const bool outputs : {false, true})
          for (const Unit* unit : members) {
            size_t inputs = 0;
            for (const uint32_t step : unit->steps) inputs += of(step).inputs.size();
            const auto begin = unit->marks.begin() + static_cast<std::ptrdiff_t>(unit->marks.empty() ? 0 : inputs);
            if (outputs) launch.marks.insert(launch.marks.end(), begin, unit->marks.end());
            else launch.marks.insert(launch.marks.end(), unit->marks.begin(), begin);
          }
      };
      for (size_t k = 1; k < units.size(); ++k) {
        const auto independent = [&](uint32_t step) { return joins(step, launch.steps, false); };
        const size_t before = launch.steps.size();
        if (!std::all_of(units[k].steps.begin(), units[k].steps.end(), independent)) {
          rest.push_back(std::move(units[k]));
          continue;
        }
        launch.steps.insert(launch.steps.end(), units[k].steps.begin(), units[k].steps.end());
        if (has_room(launch, false)) {
          members.push_back(&units[k]);
          continue;
        }
        launch.steps.resize(before);
        rest.push_back(std::move(units[k]));
      }
      if (members.size() == 1) continue;
      marks();
      (void)TRY(accept(std::move(launch)));
    }
  }
  return ok();
}

Result<std::vector<Launch>> SegmentFuser::run() {
  for (uint32_t step = 0; step < slot_.size(); ++step)
    for (const std::vector<std::string>& links : kernels_.chains())
      if (open(step) && launch_[step] < 0 && of(step).op->name == links.front() && TRY(try_chain(step, links))) break;
  TRY_STATUS(find_groups());
  std::vector<Launch> out;
  for (uint32_t step = 0; step < slot_.size(); ++step) {
    if (launch_[step] < 0) {
      out.push_back({{step}, 1, {}, nullptr});
      continue;
    }
    Launch& launch = launches_[static_cast<size_t>(launch_[step])];
    if (!launch.steps.empty() && launch.steps.front() == step) out.push_back(std::move(launch));
  }
  return out;
}

}  // namespace galley
