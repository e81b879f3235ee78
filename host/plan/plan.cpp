#include "host/plan/plan.hpp"

#include <algorithm>
#include <cassert>

#include "host/plan/lifetime.hpp"
#include "host/plan/offsets.hpp"

namespace galley {
namespace {

Moment moment_at(const Timeline& timeline, int32_t position) {
  size_t segment = 0;
  while (segment + 1 < timeline.begin.size() && position >= timeline.segment_end(segment)) ++segment;
  return {static_cast<SegmentKind>(segment), position - timeline.begin[segment]};
}

/// The tensors of one class. Those of the whole run lie at the bottom in a row, so that they cost no search and no gap.
void place_class(const Outline& program, const Target& target, const std::vector<Lifetime>& lives, uint32_t memory, ClassPlan& plan,
                 std::vector<Placement>& placements) {
  const int64_t alignment = target.memories[memory].alignment;
  int64_t bottom = 0;
  std::vector<size_t> others;
  std::vector<Block> blocks;
  for (size_t t = 0; t < program.tensors.size(); ++t) {
    const Outline::Tensor& tensor = program.tensors[t];
    if (tensor.memory != memory || !lives[t].used()) continue;
    const int64_t bytes = round_up(tensor.bytes, alignment);
    if (tensor.life == Life::Run) {
      if (bytes > 0) placements[t].offset = bottom;
      bottom += bytes;
    } else {
      others.push_back(t);
      blocks.push_back({bytes, lives[t].first, lives[t].last});
    }
  }
  const BlockOffsets packing = pack(blocks);
  for (size_t i = 0; i < others.size(); ++i)
    if (blocks[i].bytes > 0) placements[others[i]].offset = bottom + packing.offsets[i];
  plan.planned = bottom + packing.peak;
  plan.lower_bound = bottom + packing.lower_bound;
}

/// Where the largest sum of live bytes is first, and whose they are.
void describe_peak(const Program& program, const Target& target, const Timeline& timeline, const std::vector<Lifetime>& lives,
                   uint32_t memory, ClassPlan& plan) {
  const int64_t alignment = target.memories[memory].alignment;
  std::vector<int64_t> live(static_cast<size_t>(timeline.end) + 2, 0);
  auto visit = [&](auto&& each) {
    for (size_t t = 0; t < program.tensors.size(); ++t)
      if (program.tensors[t].memory == memory && lives[t].used())
        each(program.tensors[t], lives[t], round_up(program.tensors[t].bytes, alignment));
  };
  visit([&](const ProgramTensor&, const Lifetime& life, int64_t bytes) {
    live[static_cast<size_t>(life.first)] += bytes;
    live[static_cast<size_t>(life.last) + 1] -= bytes;
  });
  int32_t at = 0;
  int64_t sum = 0, largest = 0;
  for (int32_t i = 0; i < timeline.end; ++i) {
    sum += live[static_cast<size_t>(i)];
    if (sum > largest) {
      largest = sum;
      at = i;
    }
  }
  assert(timeline.end == 0 || largest == plan.lower_bound);
  plan.peak_at = moment_at(timeline, at);
  const auto& code = program.segment(plan.peak_at.segment).code;
  if (static_cast<size_t>(plan.peak_at.index) < code.size()) plan.peak_name = code[static_cast<size_t>(plan.peak_at.index)].name;
  visit([&](const ProgramTensor& tensor, const Lifetime& life, int64_t bytes) {
    if (life.first <= at && at <= life.last) plan.owners[static_cast<size_t>(tensor.owner)] += bytes;
  });
}

}  // namespace

Plan make_plan(const Program& program, const Target& target) {
  const Outline outline = outline_of(program);
  const Timeline timeline = timeline_of(outline);
  const std::vector<Lifetime> lives = find_lifetimes(outline);
  Plan plan;
  plan.segment_begin = timeline.begin;
  plan.end = timeline.end;
  plan.classes.resize(target.memories.size());
  plan.placements.resize(program.tensors.size());
  for (size_t t = 0; t < lives.size(); ++t) {
    assert(program.tensors[t].memory < target.memories.size());
    plan.placements[t].first = lives[t].first;
    plan.placements[t].last = lives[t].last;
  }
  for (uint32_t memory = 0; memory < target.memories.size(); ++memory) {
    place_class(outline, target, lives, memory, plan.classes[memory], plan.placements);
    describe_peak(program, target, timeline, lives, memory, plan.classes[memory]);
  }
  return plan;
}

int64_t plan_peak(const Outline& outline, const Target& target, uint32_t memory) {
  ClassPlan plan;
  std::vector<Placement> placements(outline.tensors.size());
  place_class(outline, target, find_lifetimes(outline), memory, plan, placements);
  return plan.planned;
}

std::vector<int64_t> plan_peaks(const Outline& outline, const Target& target) {
  std::vector<int64_t> out;
  for (uint32_t memory = 0; memory < target.memories.size(); ++memory) out.push_back(plan_peak(outline, target, memory));
  return out;
}

}  // namespace galley
