#include "host/passes/fuse.hpp"

#include <set>

#include "host/passes/fuse_segment.hpp"
#include "host/passes/passes.hpp"
#include "host/plan/plan.hpp"

namespace galley {

void Fuser::share_all(Outline& outline, const Sources& sources) {
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
    for (const Launch& launch : fusion.launches[s]) {
      Outline::Entry entry = from.entries[launch.entries.front()];
      std::vector<const Instruction*> nodes;
      for (const uint32_t k : launch.entries) nodes.push_back(sources[s].instructions[k]);
      entry.begin = static_cast<uint32_t>(code.touched.size());
      if (!launch.choice) {
        const auto ids = from.of(from.entries[launch.entries.front()]);
        code.touched.insert(code.touched.end(), ids.begin(), ids.end());
        allowed.push_back(&joints_.alone(nodes.front()));
      } else {
        size_t mark = 0;
        for (const bool output : {false, true})
          for (const uint32_t k : launch.entries) {
            const Instruction& node = *sources[s].instructions[k];
            const TensorId* id = from.of(from.entries[k]).data();
            if (output) id += std::count_if(node.inputs.begin(), node.inputs.end(), [](const Operand& o) { return o.present(); });
            for (const Operand& o : output ? node.outputs : node.inputs) {
              const bool gone = !launch.marks.empty() && launch.marks[mark].gone;
              ++mark;
              if (!o.present()) continue;
              if (!gone) code.touched.push_back(*id);
              ++id;
            }
          }
        if (launch.choice->workspace > 0) {
          code.touched.push_back(static_cast<TensorId>(out.tensors.size()));
          out.tensors.push_back({launch.choice->workspace, 0, Life::Segment});
        }
        allowed.push_back(&joints_.joint(nodes, launch).value()->take_overs);
      }
      entry.end = static_cast<uint32_t>(code.touched.size());
      code.entries.push_back(entry);
    }
    share(code, allowed, out.tensors.size());
    out.segments[s] = std::move(code);
  }
  renumber(out, canonical_numbers(out));
  return plan_peaks(out, c_.target);
}

/// Whether launches may be joined although the planner packs them worse than what is apart: by a thousandth, and where that fits.
bool Fuser::worth(const std::vector<int64_t>& joined, const std::vector<int64_t>& apart) const {
  const auto near = [](int64_t is, int64_t was) { return is <= was + was / 1024; };
  return std::equal(joined.begin(), joined.end(), apart.begin(), near) && c_.within_limits(apart, joined);
}

Result<Fusion> Fuser::find(const Outline& outline, const Sources& sources) {
  Outline apart = outline;
  share_all(apart, sources);
  Room room(apart, c_.target);
  Fusion fusion;
  bool any = false;
  for (size_t s = 0; s < segment_count; ++s) {
    fusion.launches[s] = TRY(SegmentFuser(joints_, c_.kernels, outline, apart, sources[s], s, room).run());
    any = any || fusion.launches[s].size() < sources[s].instructions.size();
  }
  const std::vector<int64_t>& least = room.least();
  if (any) {
    fusion.peaks = peaks(outline, sources, fusion);
    // A plan cannot need less than what lives at one time.
    if (std::equal(fusion.peaks.begin(), fusion.peaks.end(), least.begin(), std::less_equal<>())) return fusion;
  }
  renumber(apart, canonical_numbers(apart));
  Fusion none;
  none.peaks = plan_peaks(apart, c_.target);
  if (any && worth(fusion.peaks, none.peaks)) return fusion;
  return none;
}

Status fuse(Compilation& c) {
  Program& program = c.program;
  Sources sources;
  for (size_t s = 0; s < segment_count; ++s)
    for (const Instruction& i : program.segments[s].code) {
      sources[s].instructions.push_back(&i);
      sources[s].recomputed.push_back(i.recomputed);
    }
  const Fusion fusion = TRY(Fuser(c).find(outline_of(program), sources));
  std::set<Program::Chosen> chosen;
  std::set<std::string> alone;
  for (size_t s = 0; s < segment_count; ++s) {
    if (fusion.launches[s].empty()) continue;
    std::vector<Instruction> code;
    code.reserve(fusion.launches[s].size());
    for (const Launch& launch : fusion.launches[s]) {
      if (!launch.choice) {
        code.push_back(program.segments[s].code[launch.entries.front()]);
        if (code.back().kernel) alone.insert(code.back().kernel->name);
        continue;
      }
      std::vector<const Instruction*> nodes;
      for (const uint32_t k : launch.entries) nodes.push_back(sources[s].instructions[k]);
      Instruction& i = code.emplace_back(join(nodes, launch));
      const KernelChoice& choice = *launch.choice;
      give(program, i, choice);
      chosen.insert({op_text(i), choice.kernel->name, choice.plugin->manifest.id});
    }
    program.segments[s].code = std::move(code);
  }
  if (chosen.empty()) return ok();
  for (const Program::Chosen& k : program.kernels)
    if (alone.contains(k.kernel)) chosen.insert(k);
  program.kernels.assign(chosen.begin(), chosen.end());
  return ok();
}

}  // namespace galley
