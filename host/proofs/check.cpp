#include "host/proofs/check.hpp"

#include <algorithm>
#include <map>

#include "galley/op.h"

namespace galley {

std::string place_text(const Program& program, SegmentKind kind, size_t index) {
  const auto& code = program.segment(kind).code;
  return std::string(segment_names[static_cast<size_t>(kind)]) + "[" + std::to_string(index) + "] '" +
         (index < code.size() ? code[index].name : "") + "'";
}

std::string range_text(const Program& program, TensorId tensor, int64_t begin, int64_t end) {
  return "'" + program.tensors[static_cast<size_t>(tensor)].name + "' bytes [" + std::to_string(begin) + ", " + std::to_string(end) + ")";
}

Error plan_error(std::string cause) {
  return run_error("plan: " + std::move(cause), "this is a bug in Galley, not in the recipe: please report it with the recipe");
}

namespace {

bool is_access(uint32_t access) {
  return access == GALLEY_READ || access == GALLEY_WRITE || access == GALLEY_READ_WRITE || access == GALLEY_ACCUMULATE;
}

/// Writes in the first micro-batch or in a later one.

class ProgramCheck {
 public:
  ProgramCheck(const Program& program, const Target& target) : program_(program), target_(target), segments_(program.tensors.size(), 0) {}

  Status run() {
    TRY_STATUS(check_target());
    TRY_STATUS(check_tensors());
    for (size_t s = 0; s < program_.segments.size(); ++s)
      for (size_t i = 0; i < program_.segments[s].code.size(); ++i) TRY_STATUS(check_instruction(static_cast<SegmentKind>(s), i));
    return check_lives();
  }

 private:
  bool exists(TensorId tensor) const { return tensor >= 0 && static_cast<size_t>(tensor) < program_.tensors.size(); }
  const ProgramTensor& tensor(TensorId id) const { return program_.tensors[static_cast<size_t>(id)]; }

  Status check_target() const {
    if (target_.queues.empty() || target_.queues[0] != Queue::Compute) return plan_error("the target has no queue 0 that computes");
    if (target_.memories.empty()) return plan_error("the target has no memory class");
    for (const MemoryClass& memory : target_.memories)
      if (memory.alignment < 1 || (memory.alignment & (memory.alignment - 1)) != 0)
        return plan_error("memory class '" + memory.name + "' is aligned to " + std::to_string(memory.alignment) + ", not a power of two");
    return ok();
  }

  Status check_tensors() const {
    for (const ProgramTensor& t : program_.tensors) {
      if (t.memory >= target_.memories.size())
        return plan_error("tensor '" + t.name + "' is in memory class " + std::to_string(t.memory) + " of " +
                          std::to_string(target_.memories.size()));
      if (t.bytes < 0) return plan_error("tensor '" + t.name + "' has " + std::to_string(t.bytes) + " bytes");
    }
    if (program_.micro_batches < 1) return plan_error("a window of " + std::to_string(program_.micro_batches) + " micro-batches");
    std::vector<std::pair<const char*, TensorId>> by_host = {{"step image", program_.step_image},
                                                             {"window", program_.window},
                                                             {"corpus", program_.corpus},
                                                             {"staging", program_.staging},
                                                             {"sample position", program_.sample_position},
                                                             {"sample start", program_.cached.start}};
    for (const auto* inputs : {&program_.inputs, &program_.cached.prompt, &program_.cached.next})
      for (const Program::Input& input : *inputs) by_host.emplace_back(input.name.c_str(), input.tensor);
    for (const auto& [what, id] : by_host) {
      if (id == no_tensor) continue;
      if (!exists(id)) return plan_error(std::string(what) + " is tensor " + std::to_string(id) + ", which does not exist");
      if (tensor(id).life != Life::Run)
        return plan_error("'" + tensor(id).name + "' is written by the host (" + what + ") and must live for the whole run");
    }
    for (const TensorId id : {program_.logits, program_.scores, program_.sample_logits, program_.cached.logits})
      if (id != no_tensor && !exists(id)) return plan_error("the logits are tensor " + std::to_string(id) + ", which does not exist");
    if (program_.checksums != no_tensor) {
      if (!exists(program_.checksums))
        return plan_error("the checksums are tensor " + std::to_string(program_.checksums) + ", which does not exist");
      const auto rows = static_cast<int64_t>(program_.frozen.size() + program_.trained.size());
      if (const ProgramTensor& checksums = tensor(program_.checksums);
          checksums.life != Life::Run || checksums.bytes < rows * program_.checksum_bytes)
        return plan_error("'" + checksums.name + "' has to live for the whole run and hold " + std::to_string(rows) + " checksums");
    }
    for (const Trained& trained : program_.trained)
      if (trained.sum_squares.present() && !exists(trained.sum_squares.tensor))
        return plan_error("the sum of squares of '" + trained.name + "' is in no tensor");
    return ok();
  }

  Status check_operand(const std::string& at, const Operand& operand) const {
    if (!exists(operand.tensor)) return plan_error(at + " uses tensor " + std::to_string(operand.tensor) + ", which does not exist");
    const ProgramTensor& t = tensor(operand.tensor);
    const int64_t size = galley_dtype_bytes(operand.dtype);
    if (size == 0) return plan_error(at + ": '" + t.name + "' has the unknown dtype " + std::to_string(operand.dtype));
    for (const int64_t extent : operand.shape)
      if (extent < 0) return plan_error(at + ": '" + t.name + "' has an extent of " + std::to_string(extent));
    if (operand.offset < 0 || operand.offset % size != 0 || operand.offset + operand.bytes() > t.bytes)
      return plan_error(at + " uses " + range_text(program_, operand.tensor, operand.offset, operand.offset + operand.bytes()) +
                        ", which has " + std::to_string(t.bytes) + " in elements of " + std::to_string(size));
    if (!is_access(operand.access) || !is_access(operand.later))
      return plan_error(at + ": access " + std::to_string(operand.access) + ", later " + std::to_string(operand.later) + " of '" + t.name +
                        "'");
    return ok();
  }

  struct Range {
    TensorId tensor;
    int64_t begin;
    size_t operand;  ///< inputs first
    int64_t end;
    bool writes;
    auto operator<=>(const Range&) const = default;
  };

  /// The op lets this output take over this input's buffer, and both are the same bytes.
  static bool takes_over(const Instruction& code, const std::vector<int64_t>& taken, size_t output, size_t input) {
    const Operand &from = code.inputs[input], &to = code.outputs[output];
    if (from.offset != to.offset || from.bytes() != to.bytes() || from.writes()) return false;
    return taken[output] == static_cast<int64_t>(input);
  }

  /// What is written is no other operand. Sweeps over the operands in order of tensor and offset, because one instruction may have
  /// thousands: those that a new one could overlap are the ones that have not ended.
  Status check_overlaps(const std::string& at, const Instruction& code) const {
    const size_t n = code.inputs.size();
    std::vector<Range> ranges;
    for (size_t i = 0; i < n + code.outputs.size(); ++i) {
      const Operand& o = i < n ? code.inputs[i] : code.outputs[i - n];
      if (!o.present() || (i < n && o.inner)) continue;
      if (o.tensor == code.workspace()) return plan_error(at + " has its workspace '" + tensor(o.tensor).name + "' among its operands");
      ranges.push_back({o.tensor, o.offset, i, o.offset + o.bytes(), o.writes()});
    }
    std::sort(ranges.begin(), ranges.end());
    std::vector<const Range*> read, written;  // that have not ended
    std::vector<int64_t> taken;               // once somebody asks
    for (const Range& b : ranges) {
      for (auto* list : {&written, &read}) {
        if (list == &read && !b.writes) continue;
        std::erase_if(*list, [&](const Range* a) { return a->tensor != b.tensor || a->end <= b.begin; });
        for (const Range* a : *list) {
          if (a->begin >= b.end) continue;  // b has no bytes
          const auto [first, second] = std::minmax(a->operand, b.operand);
          if (taken.empty()) taken = taken_inputs(code);
          if (first < n && second >= n && takes_over(code, taken, second - n, first)) continue;
          return plan_error(at + " has operands that overlap: " + range_text(program_, b.tensor, a->begin, a->end) + " and [" +
                            std::to_string(b.begin) + ", " + std::to_string(b.end) + ")");
        }
      }
      (b.writes ? written : read).push_back(&b);
    }
    return ok();
  }

  /// Whether an output of a link, or what it updates, is what a later link of its chain reads between the two.
  static bool makes(const Instruction& code, const LaunchNode& link, const Operand& between) {
    const auto same = [&](const Operand& o) {
      if (!between.present()) return !o.present() && o.inner == between.inner && o.dtype == between.dtype && o.bytes() == between.bytes();
      return o.tensor == between.tensor && o.offset == between.offset && o.bytes() == between.bytes() && o.writes();
    };
    return std::ranges::any_of(code.outputs_of(link), same) || (between.present() && std::ranges::any_of(code.inputs_of(link), same));
  }

  /// Operands belong to nodes, and what lies between the links of a chain is made by a link before the one that reads it.
  Status check_nodes(const std::string& at, const Instruction& code, const Launch& launch) const {
    const std::span<const LaunchNode> nodes = launch.nodes;
    const size_t links = std::max<size_t>(launch.links, 1);
    if (nodes.empty() || nodes.size() % links != 0)
      return plan_error(at + " has " + std::to_string(nodes.size()) + " nodes in chains of " + std::to_string(launch.links));
    size_t inputs = 0, outputs = 0, components = 0;
    for (const LaunchNode& node : nodes) {
      if (node.inputs.first != inputs || node.outputs.first != outputs)
        return plan_error(at + ": the operands of '" + node.name + "' begin at " + std::to_string(node.inputs.first) + " and " +
                          std::to_string(node.outputs.first) + ", and those of the nodes before it end at " + std::to_string(inputs) +
                          " and " + std::to_string(outputs));
      inputs += node.inputs.count;
      outputs += node.outputs.count;
    }
    for (const Operand& o : code.inputs) components += o.format ? o.format->count : 0;
    if (inputs + components != code.inputs.size() || outputs != code.outputs.size())
      return plan_error(at + " has nodes with " + std::to_string(inputs) + " inputs and " + std::to_string(outputs) + " outputs, and " +
                        std::to_string(code.inputs.size() - components) + " and " + std::to_string(code.outputs.size()) + " operands");
    for (size_t n = 0; n < nodes.size(); ++n)
      for (const Operand& o : code.inputs_of(nodes[n])) {
        if (!o.inner) continue;
        const auto before = nodes.subspan(n - n % links, n % links);
        const bool made = std::ranges::any_of(before, [&](const LaunchNode& link) { return makes(code, link, o); });
        if (!made || o.writes())
          return plan_error(at + ": '" + nodes[n].name + "' reads " +
                            (o.present() ? "'" + tensor(o.tensor).name + "'" : "an operand without memory") +
                            " as what lies between links of its chain, but no link before it makes it");
      }
    return ok();
  }

  /// A queue for copies in brings bytes to class 0, one for copies out takes them from there.
  Status check_direction(const std::string& at, const Instruction& code) const {
    const Queue role = target_.queues[code.queue];
    if (role == Queue::Compute) return ok();
    if (role == Queue::Exchange) return plan_error(at + " is on queue " + std::to_string(code.queue) + ", which is for exchanges");
    const TensorId id = role == Queue::In ? code.outputs[0].tensor : code.inputs[0].tensor;
    if (exists(id) && tensor(id).memory != 0)
      return plan_error(at + " is on queue " + std::to_string(code.queue) + ", which is for copies " + (role == Queue::In ? "to" : "from") +
                        " class 0");
    return ok();
  }

  Status check_instruction(SegmentKind kind, size_t index) {
    const Instruction& code = program_.segment(kind).code[index];
    const std::string at = place_text(program_, kind, index);
    if (code.queue >= target_.queues.size())
      return plan_error(at + " runs on queue " + std::to_string(code.queue) + " of " + std::to_string(target_.queues.size()));
    const Launch* launch = code.launch();
    if (code.action() == Action::Record || code.action() == Action::Wait)
      return code.event != 0 ? ok() : Status(plan_error(at + " has no event"));
    if (code.action() == Action::Copy) {
      if (code.inputs.size() != 1 || code.outputs.size() != 1 || !code.inputs[0].present() || !code.outputs[0].present())
        return plan_error(at + ": a copy has one source and one destination");
      if (code.inputs[0].bytes() != code.outputs[0].bytes())
        return plan_error(at + " copies " + std::to_string(code.inputs[0].bytes()) + " bytes to " +
                          std::to_string(code.outputs[0].bytes()));
      if (code.queue != 0 && code.event == 0)
        return plan_error(at + " copies on queue " + std::to_string(code.queue) + " without an event to wait for");
      TRY_STATUS(check_direction(at, code));
    } else if (const Queue role = target_.queues[code.queue]; role == Queue::Exchange) {
      if (!code.exchanges()) return plan_error(at + " runs on queue " + std::to_string(code.queue) + ", which is for exchanges");
      if (code.event == 0) return plan_error(at + " exchanges on queue " + std::to_string(code.queue) + " without an event to wait for");
    } else if (role != Queue::Compute) {
      return plan_error(at + " runs on queue " + std::to_string(code.queue) + ", which is for copies");
    } else if (code.queue != 0 && !launch) {
      return plan_error(at + ": files are read and written by the host, not on queue " + std::to_string(code.queue));
    }
    if (code.when != When::Always && kind != SegmentKind::Micro) return plan_error(at + ": only micro knows lanes");
    if (launch) TRY_STATUS(check_nodes(at, code, *launch));
    const uint32_t bit = 1u << static_cast<uint32_t>(kind);
    for (const auto* operands : {&code.inputs, &code.outputs})
      for (const Operand& operand : *operands) {
        if (!operand.present()) continue;
        TRY_STATUS(check_operand(at, operand));
        const MemoryClass& memory = target_.memories[tensor(operand.tensor).memory];
        if (launch && !(launch->on_host ? memory.host_access : memory.computes))
          return plan_error(at + " computes with '" + tensor(operand.tensor).name + "' in memory class '" + memory.name + "', which " +
                            (launch->on_host ? "lies beyond the host's reach" : "does not compute"));
        segments_[static_cast<size_t>(operand.tensor)] |= bit;
      }
    if (const TensorId workspace = code.workspace(); workspace != no_tensor) {
      if (!exists(workspace)) return plan_error(at + " has the workspace " + std::to_string(workspace) + ", which does not exist");
      segments_[static_cast<size_t>(workspace)] |= bit;
    }
    if (const TensorId own = code.constants(); own != no_tensor && (!exists(own) || tensor(own).life != Life::Run))
      return plan_error(at + " has the constants " + std::to_string(own) + ", which do not live for the whole run");
    return check_overlaps(at, code);
  }

  Status check_lives() const {
    constexpr auto bit = [](SegmentKind kind) { return 1u << static_cast<uint32_t>(kind); };
    constexpr uint32_t window = bit(SegmentKind::Micro) | bit(SegmentKind::Update);
    constexpr uint32_t texts = bit(SegmentKind::Caches) | bit(SegmentKind::Sample) | bit(SegmentKind::Next);
    for (size_t t = 0; t < segments_.size(); ++t) {
      const uint32_t used = segments_[t];
      const Life life = program_.tensors[t].life;
      const bool bad = life == Life::Segment  ? (used & (used - 1)) != 0
                       : life == Life::Window ? (used & ~window) != 0
                                              : life == Life::Texts && (used & ~texts) != 0;
      if (!bad) continue;
      std::string names;
      for (size_t s = 0; s < segment_names.size(); ++s)
        if (used >> s & 1u) names += (names.empty() ? "" : ", ") + std::string(segment_names[s]);
      return plan_error("tensor '" + program_.tensors[t].name + "' of " +
                        (life == Life::Segment  ? "one segment"
                         : life == Life::Window ? "a window"
                                                : "texts") +
                        " is used in " + names);
    }
    return ok();
  }

  const Program& program_;
  const Target& target_;
  std::vector<uint32_t> segments_;  ///< bit s: used in segment s
};

std::vector<bool> used_in(const Program& program, SegmentKind kind) {
  std::vector<bool> used(program.tensors.size(), false);
  for (const Instruction& code : program.segment(kind).code)
    for (const auto* operands : {&code.inputs, &code.outputs})
      for (const Operand& operand : *operands)
        if (operand.present()) used[static_cast<size_t>(operand.tensor)] = true;
  return used;
}

/// Sweeps over time with the living tensors of a class in order of offset: a newcomer can only collide with its neighbours.
Status check_disjoint(const Program& program, const Plan& plan, uint32_t memory) {
  struct Event {
    int32_t moment;
    bool begins;  // ends of the moment before come first
    TensorId tensor;
    auto operator<=>(const Event&) const = default;
  };
  std::vector<Event> events;
  for (size_t t = 0; t < program.tensors.size(); ++t) {
    const Placement& at = plan.placements[t];
    if (program.tensors[t].memory != memory || program.tensors[t].bytes == 0 || at.first < 0) continue;
    events.push_back({at.first, true, static_cast<TensorId>(t)});
    events.push_back({at.last + 1, false, static_cast<TensorId>(t)});
  }
  std::sort(events.begin(), events.end());
  auto begin_of = [&](TensorId t) { return plan.placements[static_cast<size_t>(t)].offset; };
  auto end_of = [&](TensorId t) { return begin_of(t) + program.tensors[static_cast<size_t>(t)].bytes; };
  auto collide = [&](TensorId x, TensorId y, int32_t moment) {
    return plan_error("'" + program.tensors[static_cast<size_t>(x)].name + "' at [" + std::to_string(begin_of(x)) + ", " +
                      std::to_string(end_of(x)) + ") and '" + program.tensors[static_cast<size_t>(y)].name + "' at [" +
                      std::to_string(begin_of(y)) + ", " + std::to_string(end_of(y)) + ") share bytes at moment " + std::to_string(moment));
  };
  std::map<int64_t, TensorId> living;  // by offset
  for (const Event& event : events) {
    if (!event.begins) {
      living.erase(begin_of(event.tensor));
      continue;
    }
    const auto next = living.lower_bound(begin_of(event.tensor));
    if (next != living.end() && next->first < end_of(event.tensor)) return collide(next->second, event.tensor, event.moment);
    if (next != living.begin() && end_of(std::prev(next)->second) > begin_of(event.tensor))
      return collide(std::prev(next)->second, event.tensor, event.moment);
    living.emplace(begin_of(event.tensor), event.tensor);
  }
  return ok();
}

}  // namespace

Status check_program(const Program& program, const Target& target) { return ProgramCheck(program, target).run(); }

Status check_layout(const Program& program, const Plan& plan, const Target& target) {
  if (plan.classes.size() != target.memories.size() || plan.placements.size() != program.tensors.size())
    return plan_error(std::to_string(plan.classes.size()) + " classes and " + std::to_string(plan.placements.size()) + " placements for " +
                      std::to_string(target.memories.size()) + " classes and " + std::to_string(program.tensors.size()) + " tensors");
  int32_t end = 0, micro_end = 0;
  for (size_t s = 0; s < program.segments.size(); ++s) {
    if (plan.segment_begin[s] != end)
      return plan_error(std::string(segment_names[s]) + " begins at moment " + std::to_string(plan.segment_begin[s]) + " and not " +
                        std::to_string(end));
    end += static_cast<int32_t>(program.segments[s].code.size());
    if (static_cast<SegmentKind>(s) == SegmentKind::Micro) micro_end = end;
  }
  if (plan.end != end) return plan_error("the timeline has " + std::to_string(plan.end) + " moments and not " + std::to_string(end));

  const std::vector<bool> in_micro = used_in(program, SegmentKind::Micro);
  const int32_t micro_begin = plan.segment_begin[static_cast<size_t>(SegmentKind::Micro)];
  const int32_t texts_begin = plan.segment_begin[static_cast<size_t>(SegmentKind::Caches)];
  const int32_t texts_end = plan.segment_begin[static_cast<size_t>(SegmentKind::Export)];
  for (size_t t = 0; t < program.tensors.size(); ++t) {
    const ProgramTensor& tensor = program.tensors[t];
    const Placement& at = plan.placements[t];
    const std::string life = "'" + tensor.name + "' lives from " + std::to_string(at.first) + " to " + std::to_string(at.last);
    if (tensor.life == Life::Run && (at.first > 0 || at.first < 0 || at.last < end - 1))
      return plan_error(life + " and not for the whole run");
    if (at.first < 0) continue;  // never used, or so the plan says: running the program finds out
    if (at.last < at.first || at.last >= std::max(end, 1)) return plan_error(life + " of " + std::to_string(end) + " moments");
    if (tensor.life == Life::Window && in_micro[t] &&
        (at.last < micro_end - 1 || (program.own_micro_batches() > 1 && at.first > micro_begin)))
      return plan_error(life + ": a window's tensor must outlive micro, [" + std::to_string(micro_begin) + ", " +
                        std::to_string(micro_end) + ")");
    if (tensor.life == Life::Texts && (at.first > texts_begin || at.last < texts_end - 1))
      return plan_error(life + ": what is kept while texts are generated must live in [" + std::to_string(texts_begin) + ", " +
                        std::to_string(texts_end) + ")");
    const int64_t alignment = target.memories[tensor.memory].alignment, planned = plan.classes[tensor.memory].planned;
    if (at.offset % alignment != 0)
      return plan_error("'" + tensor.name + "' is at " + std::to_string(at.offset) + ", off the alignment of " + std::to_string(alignment));
    if (at.offset < 0 || at.offset + tensor.bytes > planned)
      return plan_error("'" + tensor.name + "' is at [" + std::to_string(at.offset) + ", " + std::to_string(at.offset + tensor.bytes) +
                        ") of an arena of " + std::to_string(planned) + " bytes");
  }
  for (uint32_t memory = 0; memory < target.memories.size(); ++memory) {
    if (plan.classes[memory].planned < plan.classes[memory].lower_bound)
      return plan_error(std::to_string(plan.classes[memory].planned) + " bytes of class '" + target.memories[memory].name +
                        "' are fewer than the lower bound " + std::to_string(plan.classes[memory].lower_bound));
    TRY_STATUS(check_disjoint(program, plan, memory));
  }
  return ok();
}

}  // namespace galley
