#include "host/passes/fuse.hpp"

#include <algorithm>
#include <deque>
#include <set>

#include "host/passes/fuse_segment.hpp"
#include "host/passes/passes.hpp"
#include "host/plan/plan.hpp"

namespace galley {
namespace {

bool no_higher(const std::vector<int64_t>& peaks, const std::vector<int64_t>& than) {
  return std::equal(peaks.begin(), peaks.end(), than.begin(), std::less_equal<>());
}

/// The constants of kernels that the launches have taken the place of.
std::set<TensorId> dropped_constants(const Sources& sources, const Fusion& fusion) {
  std::set<TensorId> joined, kept;
  for (size_t s = 0; s < segment_count; ++s)
    for (const PlannedLaunch& launch : fusion.launches[s])
      for (const uint32_t k : launch.entries)
        if (const TensorId id = sources[s].instructions[k]->constants(); id != no_tensor) (launch.choice ? joined : kept).insert(id);
  for (const TensorId id : kept) joined.erase(id);
  return joined;
}

}  // namespace

void Fuser::share_all(Outline& outline, const Sources& sources) {
  if (c_.options.without.contains("alias")) return;
  for (size_t s = 0; s < segment_count; ++s) {
    std::vector<const std::vector<TakeOver>*> allowed;
    allowed.reserve(sources[s].instructions.size());
    for (const Instruction* i : sources[s].instructions) allowed.push_back(&joints_.alone(i));
    share(outline.segments[s], allowed, outline.tensors.size());
  }
}

/// Of the program with its launches, each output in the place of an input where that is possible.
std::vector<int64_t> Fuser::peaks(const Outline& outline, const Sources& sources, const Fusion& fusion) {
  Outline out = outline;
  for (size_t s = 0; s < segment_count; ++s) {
    const Outline::Code& from = outline.segments[s];
    Outline::Code code;
    code.entries.reserve(fusion.launches[s].size());
    code.touched.reserve(from.touched.size());
    std::vector<const std::vector<TakeOver>*> allowed;
    for (const PlannedLaunch& launch : fusion.launches[s]) {
      Outline::Entry entry = from.entries[launch.entries.front()];
      std::vector<const Instruction*> nodes;
      for (const uint32_t k : launch.entries) nodes.push_back(sources[s].instructions[k]);
      entry.begin = static_cast<uint32_t>(code.touched.size());
      if (!launch.choice) {
        const auto ids = from.of(from.entries[launch.entries.front()]);
        code.touched.insert(code.touched.end(), ids.begin(), ids.end());
        allowed.push_back(&joints_.alone(nodes.front()));
      } else {
        // In the order of the operands of the instruction that joins them.
        const std::vector<size_t> at = joined_inputs(nodes);
        std::vector<TensorId> inputs(at.size(), no_tensor), outputs;
        size_t number = 0;
        const auto gone = [&](size_t mark) { return !launch.marks.empty() && launch.marks[mark].gone; };
        for (const uint32_t k : launch.entries) {
          const TensorId* id = from.of(from.entries[k]).data();
          for (const Operand& o : sources[s].instructions[k]->inputs) {
            if (o.present() && !gone(number)) inputs[at[number]] = *id;
            ++number;
            id += o.present();
          }
        }
        for (const uint32_t k : launch.entries) {
          const Instruction& node = *sources[s].instructions[k];
          const TensorId* id = from.of(from.entries[k]).data();
          id += std::ranges::count_if(node.inputs, [](const Operand& o) { return o.present(); });
          for (const Operand& o : node.outputs) {
            if (o.present() && !gone(number)) outputs.push_back(*id);
            ++number;
            id += o.present();
          }
        }
        std::ranges::copy_if(inputs, std::back_inserter(code.touched), [](TensorId id) { return id != no_tensor; });
        code.touched.insert(code.touched.end(), outputs.begin(), outputs.end());
        if (launch.choice->constants > 0) out.tensors.push_back({launch.choice->constants, 0, Life::Run});
        if (launch.choice->workspace > 0) {
          code.touched.push_back(static_cast<TensorId>(out.tensors.size()));
          out.tensors.push_back({launch.choice->workspace, 0, Life::Segment});
        }
        allowed.push_back(&joints_.joint(nodes, launch).value()->take_overs);
      }
      entry.end = static_cast<uint32_t>(code.touched.size());
      code.entries.push_back(entry);
    }
    if (!c_.options.without.contains("alias")) share(code, allowed, out.tensors.size());
    out.segments[s] = std::move(code);
  }
  for (const TensorId id : dropped_constants(sources, fusion)) out.tensors[static_cast<size_t>(id)].bytes = 0;
  renumber(out, canonical_numbers(out));
  return plan_peaks(out, c_.target);
}

/// Whether launches may be joined although the planner packs them worse than what is apart: by a thousandth, and where that fits.
bool Fuser::worth(const std::vector<int64_t>& joined, const std::vector<int64_t>& apart) const {
  const auto near = [](int64_t is, int64_t was) { return is <= was + was / 1024; };
  return std::equal(joined.begin(), joined.end(), apart.begin(), near) && c_.within_limits(apart, joined);
}

/// Launches of the entries that may join others, and the peaks with them; no launches and no peaks where nothing is joined.
Result<Fusion> Fuser::joined(const Outline& outline, const Outline& apart, const Sources& sources, const Permitted& permitted, Room room) {
  Fusion fusion;
  bool any = false;
  for (size_t s = 0; s < segment_count; ++s) {
    fusion.launches[s] = TRY(SegmentFuser(joints_, c_.kernels, outline, apart, sources[s], permitted[s], s, room).run());
    any = any || fusion.launches[s].size() < sources[s].instructions.size();
  }
  if (!any) return Fusion();
  fusion.peaks = peaks(outline, sources, fusion);
  return fusion;
}

Result<Fusion> Fuser::find(const Outline& outline, const Sources& sources) {
  Outline apart = outline;
  share_all(apart, sources);
  const Room room(apart, c_.target);
  Fusion fusion;
  if (!c_.options.without.contains("fuse")) fusion = TRY(joined(outline, apart, sources, {}, room));
  const bool any = !fusion.peaks.empty();
  // A plan cannot need less than what lives at one time.
  if (any && no_higher(fusion.peaks, room.least())) return fusion;
  renumber(apart, canonical_numbers(apart));
  Fusion none;
  none.peaks = plan_peaks(apart, c_.target);
  if (any && worth(fusion.peaks, none.peaks)) return fusion;
  return none;
}

Result<Fusion> Fuser::find_most(const Outline& outline, const Sources& sources) {
  constexpr size_t kSmallest = 48, kMostTries = 16;  // entries of a stretch; plans that are made
  Fusion best = TRY(find(outline, sources));
  if (std::ranges::any_of(best.launches, [](const auto& launches) { return !launches.empty(); })) return best;
  const std::vector<int64_t> bound = best.peaks;
  Outline apart = outline;
  share_all(apart, sources);
  const Room room(apart, c_.target);
  struct Stretch {
    size_t segment, begin, end;
  };
  std::deque<Stretch> stretches;
  Permitted permitted;
  for (size_t s = 0; s < segment_count; ++s) {
    const size_t entries = sources[s].instructions.size();
    permitted[s].assign(entries, false);
    if (entries > 1) stretches.push_back({s, 0, entries});
  }
  const auto permit = [&](const Stretch& stretch, bool may) {
    const auto begin = permitted[stretch.segment].begin();
    std::fill(begin + static_cast<std::ptrdiff_t>(stretch.begin), begin + static_cast<std::ptrdiff_t>(stretch.end), may);
  };
  for (size_t tries = 0; !stretches.empty() && tries < kMostTries; ++tries) {
    const Stretch stretch = stretches.front();
    stretches.pop_front();
    permit(stretch, true);
    Fusion fusion = TRY(joined(outline, apart, sources, permitted, room));
    if (!fusion.peaks.empty() && no_higher(fusion.peaks, bound)) {
      best = std::move(fusion);
      continue;
    }
    permit(stretch, false);
    const size_t middle = (stretch.begin + stretch.end) / 2;
    if (fusion.peaks.empty() || stretch.end - stretch.begin < 2 * kSmallest) continue;
    stretches.push_back({stretch.segment, stretch.begin, middle});  // after all larger ones
    stretches.push_back({stretch.segment, middle, stretch.end});
  }
  return best;
}

Status fuse(Compilation& c) {
  Program& program = c.program;
  Sources sources;
  for (size_t s = 0; s < segment_count; ++s)
    for (const Instruction& i : program.segments[s].code) {
      sources[s].instructions.push_back(&i);
      sources[s].recomputed.push_back(i.recomputed);
    }
  const Fusion fusion = TRY(Fuser(c).find_most(outline_of(program), sources));
  const std::set<TensorId> dropped = dropped_constants(sources, fusion);
  std::set<Program::Chosen> chosen;
  std::set<std::string> alone;
  for (size_t s = 0; s < segment_count; ++s) {
    if (fusion.launches[s].empty()) continue;
    std::vector<Instruction> code;
    code.reserve(fusion.launches[s].size());
    for (const PlannedLaunch& launch : fusion.launches[s]) {
      if (!launch.choice) {
        code.push_back(std::move(program.segments[s].code[launch.entries.front()]));
        if (const Launch* one = code.back().launch(); one && one->kernel) alone.insert(one->kernel->name);
        continue;
      }
      std::vector<const Instruction*> nodes;
      for (const uint32_t k : launch.entries) nodes.push_back(sources[s].instructions[k]);
      Instruction& i = code.emplace_back(join(nodes, launch));
      const KernelChoice& choice = *launch.choice;
      give(program, i, choice);
      chosen.insert({op_text(*i.launch()), choice.kernel->name, choice.plugin->manifest.id});
    }
    program.segments[s].code = std::move(code);
  }
  if (chosen.empty()) return ok();
  std::vector<TensorId> numbers(program.tensors.size(), no_tensor);
  TensorId next = 0;
  for (size_t t = 0; t < numbers.size(); ++t)
    if (!dropped.contains(static_cast<TensorId>(t))) numbers[t] = next++;
  if (!dropped.empty()) renumber(program, numbers);
  for (const Program::Chosen& k : program.kernels)
    if (alone.contains(k.kernel)) chosen.insert(k);
  program.kernels.assign(chosen.begin(), chosen.end());
  return ok();
}

}  // namespace galley
