#include "host/passes/fuse_segment.hpp"

#include <algorithm>
#include <numeric>
#include <set>

namespace galley {

SegmentFuser::SegmentFuser(Joints& joints, Kernels& kernels, const Outline& outline, const Outline& apart, const Originals& source,
                           const std::vector<bool>& permitted, size_t segment, Room& room)
    : joints_(joints),
      kernels_(kernels),
      outline_(outline),
      apart_(apart),
      code_(outline.segments[segment]),
      source_(source),
      segment_(segment),
      room_(room),
      accesses_(code_, source, outline.tensors.size()),
      ops_(source.instructions.size()),
      slot_(source.instructions.size()),
      launch_(source.instructions.size(), -1) {
  for (uint32_t entry = 0; entry < ops_.size(); ++entry) {
    if (!of(entry).launch() || of(entry).launch()->on_host || of(entry).queue != 0 || of(entry).when != When::Always ||
        !(permitted.empty() || permitted[entry]))
      continue;
    const galley_op* op = of(entry).launch()->op();
    if (op && !(op->flags & GALLEY_OP_EXCHANGE)) ops_[entry] = op;
  }
  std::iota(slot_.begin(), slot_.end(), 0u);
}

uint32_t SegmentFuser::floor(uint32_t entry, std::span<const uint32_t> chain) const {
  uint32_t out = accesses_.region(entry);
  accesses_.conflicts_before(entry, [&](const Access& mine, const Access& other) {
    if (slot_[other.entry] == slot_[entry]) return;
    // What a link reads, the one before has made as a whole.
    const bool link = other.writes && !mine.writes && mine.same_range(other) && std::ranges::find(chain, other.entry) != chain.end();
    if (!link) out = std::max(out, slot_[other.entry] + 1);
  });
  return out;
}

/// A chain of these links that begins with the entry, each link the next one that reads what the one before has made.
Result<bool> SegmentFuser::try_chain(uint32_t entry, const std::vector<std::string>& links) {
  PlannedLaunch launch;
  launch.links = links.size();
  launch.entries = {entry};
  while (launch.entries.size() < links.size()) {
    const uint32_t last = launch.entries.back();
    uint32_t next = UINT32_MAX;
    for (const Access& made : accesses_.of(last)) {
      if (!made.writes) continue;
      for (const uint32_t index : accesses_.readers(made.tensor)) {
        const Access& read = accesses_[index];
        if (read.entry > last && read.entry < next && read.same_range(made) && ops_[read.entry] && launch_[read.entry] < 0 &&
            ops_[read.entry]->name == links[launch.entries.size()])
          next = read.entry;
      }
    }
    if (next == UINT32_MAX || accesses_.region(next) != accesses_.region(entry) || source_.recomputed[next] != source_.recomputed[entry])
      return false;
    if (floor(next, launch.entries) > slot_[entry]) return false;
    launch.entries.push_back(next);
  }
  mark(launch);
  return accept(std::move(launch));
}

/// Numbers what lies between the links, and finds what nothing else reads.
void SegmentFuser::mark(PlannedLaunch& launch) const {
  const auto among = [](const auto& list, auto what) { return std::find(list.begin(), list.end(), what) != list.end(); };
  const auto only_here = [&](TensorId tensor) {
    if (outline_.tensors[static_cast<size_t>(tensor)].life != Life::Segment || among(outline_.read_by_host, tensor)) return false;
    for (const auto& list : {accesses_.readers(tensor), accesses_.writers(tensor)})
      for (const uint32_t k : list)
        if (!among(launch.entries, accesses_[k].entry)) return false;
    return true;
  };
  std::vector<TensorId> made, between;
  const auto number = [&](TensorId tensor) {
    if (!among(between, tensor)) between.push_back(tensor);
    return static_cast<uint32_t>(std::find(between.begin(), between.end(), tensor) - between.begin()) + 1;
  };
  std::vector<Mark> outputs;
  for (const uint32_t entry : launch.entries) {
    const Access* access = accesses_.of(entry).data();
    for (const Operand& o : of(entry).inputs) {
      Mark& mark = launch.marks.emplace_back();
      if (!o.present()) continue;
      if (among(made, access->tensor)) mark = {number(access->tensor), only_here(access->tensor)};
      ++access;
    }
    for (const Access& u : accesses_.of(entry))
      if (u.writes) made.push_back(u.tensor);
  }
  for (const uint32_t entry : launch.entries) {
    const auto accesses = accesses_.of(entry);
    const auto outputs_here =
        std::count_if(of(entry).outputs.begin(), of(entry).outputs.end(), [](const Operand& o) { return o.present(); });
    const Access* access = accesses.data() + accesses.size() - outputs_here;
    for (const Operand& o : of(entry).outputs) {
      Mark& mark = outputs.emplace_back();
      if (!o.present()) continue;
      if (among(between, access->tensor) && only_here(access->tensor)) mark = {number(access->tensor), true};
      ++access;
    }
  }
  launch.marks.insert(launch.marks.end(), outputs.begin(), outputs.end());
}

bool SegmentFuser::move(std::span<const uint32_t> entries, uint32_t to, std::vector<Extension>& extensions) {
  const int32_t begin = room_.begin_of(segment_), first = begin + static_cast<int32_t>(to);
  const size_t before = extensions.size();
  for (const uint32_t entry : entries) {
    const int32_t at = begin + static_cast<int32_t>(slot_[entry]);
    if (at <= first) continue;
    const auto ids = apart_.segments[segment_].of(code_.entries[entry]);
    // A workspace is not moved: the launch has one of its own.
    for (const TensorId id : ids.first(ids.size() - (of(entry).workspace() != no_tensor))) {
      const int64_t bytes = room_.born(id, at);
      if (!bytes || std::any_of(extensions.begin(), extensions.end(), [&](const Extension& e) { return e.tensor == id; })) continue;
      if (!room_.fits(room_.memory_of(id), first, at - 1, bytes)) {
        give_back(extensions, before);
        return false;
      }
      extensions.push_back({id, first, at - 1, bytes});
      room_.take(room_.memory_of(id), first, at - 1, bytes);
    }
  }
  return true;
}

void SegmentFuser::give_back(std::vector<Extension>& extensions, size_t keep) {
  for (; extensions.size() > keep; extensions.pop_back()) {
    const Extension& e = extensions.back();
    room_.take(room_.memory_of(e.tensor), e.first, e.last, -e.bytes);
  }
}

bool SegmentFuser::has_room(const PlannedLaunch& launch, bool take) {
  const uint32_t front = launch.entries.front();
  std::vector<Extension> extensions;
  if (!move(launch.entries, slot_[front], extensions)) return false;
  const int32_t to = room_.begin_of(segment_) + static_cast<int32_t>(slot_[front]);
  int64_t workspace = launch.choice ? room_.rounded(launch.choice->workspace, 0) : 0;
  if (of(front).workspace() != no_tensor && launch_[front] < 0)
    workspace -= room_.rounded(outline_.tensors[static_cast<size_t>(code_.of(code_.entries[front]).back())].bytes, 0);
  const bool fits = workspace <= 0 || room_.fits(0, to, to, workspace);
  if (!fits || !take) {
    give_back(extensions, 0);
    return fits;
  }
  for (const Extension& e : extensions) room_.bear(e.tensor, to);
  if (workspace > 0) room_.take(0, to, to, workspace);
  return true;
}

/// The bytes of constants that entries have, in the launches in which they are now.
int64_t SegmentFuser::constants_of(std::span<const uint32_t> entries) const {
  std::set<TensorId> own;
  std::set<int64_t> launches;
  int64_t bytes = 0;
  for (const uint32_t entry : entries) {
    if (launch_[entry] >= 0) {
      if (launches.insert(launch_[entry]).second)
        bytes += room_.rounded(launches_[static_cast<size_t>(launch_[entry])].choice->constants, 0);
    } else if (const TensorId id = of(entry).constants(); id != no_tensor && own.insert(id).second) {
      bytes += room_.rounded(outline_.tensors[static_cast<size_t>(id)].bytes, 0);
    }
  }
  return bytes;
}

/// Asks for a kernel and for room.
Result<bool> SegmentFuser::accept(PlannedLaunch launch) {
  if (!has_room(launch, false)) return false;
  std::vector<const Instruction*> nodes;
  for (const uint32_t entry : launch.entries) nodes.push_back(&of(entry));
  launch.choice = TRY(joints_.joint(nodes, launch))->choice;
  // Constants live for the whole run, so that more of them than the entries have would raise any peak.
  if (!launch.choice->kernel || room_.rounded(launch.choice->constants, 0) > constants_of(launch.entries)) return false;
  // A kernel of one of the nodes alone that wants to go before it does.
  if (std::ranges::any_of(nodes, [&](const Instruction* node) { return node->launch()->priority > launch.choice->priority; })) return false;
  if (!has_room(launch, true)) return false;
  const uint32_t to = slot_[launch.entries.front()];
  for (const uint32_t entry : launch.entries) {
    // A chain that becomes part of a group is no launch any more.
    if (launch_[entry] >= 0) launches_[static_cast<size_t>(launch_[entry])].entries.clear();
    launch_[entry] = static_cast<int64_t>(launches_.size());
    slot_[entry] = to;
  }
  launches_.push_back(std::move(launch));
  return true;
}

PlannedLaunch SegmentFuser::joined(std::span<Unit* const> members) const {
  PlannedLaunch launch;
  launch.links = members.front()->entries.size();
  for (const Unit* unit : members) launch.entries.insert(launch.entries.end(), unit->entries.begin(), unit->entries.end());
  // All inputs of the chains come first, then all outputs.
  for (const bool outputs : {false, true})
    for (const Unit* unit : members) {
      if (unit->marks.empty()) continue;
      std::ptrdiff_t inputs = 0;
      for (const uint32_t entry : unit->entries) inputs += std::ssize(of(entry).inputs);
      const auto between = unit->marks.begin() + inputs;
      launch.marks.insert(launch.marks.end(), outputs ? between : unit->marks.begin(), outputs ? unit->marks.end() : between);
    }
  return launch;
}

/// What takes an entry or a chain by itself.
const galley_kernel* SegmentFuser::kernel_of(uint32_t entry) const {
  return launch_[entry] < 0 ? of(entry).launch()->kernel : launches_[static_cast<size_t>(launch_[entry])].choice->kernel;
}

/// All in one launch, or, if no kernel takes it or there is no room for it, those of one kernel, and of these each half likewise.
Status SegmentFuser::offer(std::span<Unit* const> members) {
  if (members.size() < 2) return ok();
  if (TRY(accept(joined(members)))) {
    for (Unit* unit : members) unit->grouped = true;
    return ok();
  }
  std::vector<std::pair<const galley_kernel*, std::vector<Unit*>>> kernels;  // in the order of the first of each
  for (Unit* unit : members) {
    const galley_kernel* const kernel = kernel_of(unit->entries.front());
    auto at = std::ranges::find(kernels, kernel, &std::pair<const galley_kernel*, std::vector<Unit*>>::first);
    if (at == kernels.end()) at = kernels.insert(at, {kernel, {}});
    at->second.push_back(unit);
  }
  if (kernels.size() > 1) {
    for (const auto& [kernel, units] : kernels) TRY_STATUS(offer(units));
    return ok();
  }
  const size_t half = (members.size() + 1) / 2;
  TRY_STATUS(offer(members.first(half)));
  return offer(members.subspan(half));
}

/// As many as can stand where the first does, then as many of the others, and so on.
Status SegmentFuser::group(std::vector<Unit*> units) {
  std::erase_if(units, [](const Unit* unit) { return unit->grouped; });
  for (std::vector<Unit*> rest; units.size() > 1; units = std::move(rest), rest.clear()) {
    const uint32_t to = slot_[units.front()->entries.front()];
    std::vector<Unit*> members;
    std::vector<Extension> extensions;
    for (Unit* unit : units) {
      const bool joins = members.empty() || (unit->floor <= to && move(unit->entries, to, extensions));
      (joins ? members : rest).push_back(unit);
    }
    give_back(extensions, 0);
    TRY_STATUS(offer(members));
  }
  return ok();
}

std::vector<std::vector<SegmentFuser::Unit*>> SegmentFuser::sharing(std::vector<Unit>& units) const {
  std::map<std::tuple<TensorId, int64_t, int64_t>, size_t> known;
  std::vector<std::vector<Unit*>> out;
  for (Unit& unit : units) {
    const uint32_t entry = unit.entries.front();
    const Access* access = accesses_.of(entry).data();
    for (size_t k = 0; k < of(entry).inputs.size(); ++k) {
      if (!of(entry).inputs[k].present()) continue;
      const Access& read = *access++;
      const galley_operand_rule* rule = input_rule(ops_[entry], k);
      if (read.writes || !rule || rule->role != GALLEY_ROLE_ROWS) continue;
      const size_t at = known.try_emplace({read.tensor, read.begin, read.end}, out.size()).first->second;
      if (at == out.size()) out.emplace_back();
      if (out[at].empty() || out[at].back() != &unit) out[at].push_back(&unit);
    }
  }
  std::erase_if(out, [](const auto& same) { return same.size() < 2; });
  return out;
}

/// Nodes and chains of one kind in a region: first those that read the same, then all that are left.
Status SegmentFuser::find_groups() {
  std::map<std::tuple<uint32_t, bool, std::string>, std::vector<Unit>> kinds;
  for (uint32_t entry = 0; entry < slot_.size(); ++entry) {
    if (!ops_[entry]) continue;
    Unit unit = {{entry}, {}};
    std::string text;
    if (launch_[entry] < 0) {
      if (!kernels_.takes_groups(ops_[entry])) continue;
      text = ops_[entry]->name;
    } else {
      const PlannedLaunch& chain = launches_[static_cast<size_t>(launch_[entry])];
      if (chain.entries.front() != entry) continue;
      unit = {chain.entries, chain.marks};
      for (const uint32_t link : chain.entries) text += (text.empty() ? "" : ">") + std::string(ops_[link]->name);
      if (!kernels_.takes_groups(text)) continue;
    }
    kinds[{accesses_.region(entry), source_.recomputed[entry], text}].push_back(std::move(unit));
  }
  for (auto& [kind, units] : kinds) {
    std::vector<Unit*> all;
    for (Unit& unit : units) {
      for (const uint32_t entry : unit.entries) unit.floor = std::max(unit.floor, floor(entry));
      all.push_back(&unit);
    }
    for (std::vector<Unit*>& same : sharing(units)) TRY_STATUS(group(std::move(same)));
    TRY_STATUS(group(std::move(all)));
  }
  return ok();
}

Result<std::vector<PlannedLaunch>> SegmentFuser::run() {
  for (uint32_t entry = 0; entry < slot_.size(); ++entry)
    for (const std::vector<std::string>& links : kernels_.chains())
      if (ops_[entry] && launch_[entry] < 0 && ops_[entry]->name == links.front() && TRY(try_chain(entry, links))) break;
  TRY_STATUS(find_groups());
  std::vector<PlannedLaunch> out;
  for (uint32_t entry = 0; entry < slot_.size(); ++entry) {
    if (launch_[entry] < 0) {
      out.push_back({{entry}, 1, {}, nullptr});
      continue;
    }
    PlannedLaunch& launch = launches_[static_cast<size_t>(launch_[entry])];
    if (!launch.entries.empty() && launch.entries.front() == entry) out.push_back(std::move(launch));
  }
  return out;
}

}  // namespace galley
