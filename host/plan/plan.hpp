// The plan: every tensor of a program at an offset of its memory class, and the proof that this is close to the least possible.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "host/base/result.hpp"
#include "host/plan/outline.hpp"
#include "host/plan/target.hpp"

namespace galley {

/// A moment of the run: instruction `index` of a segment.
struct Moment {
  SegmentKind segment = SegmentKind::Load;
  int32_t index = 0;
  auto operator<=>(const Moment&) const = default;
};

struct Placement {
  int64_t offset = 0;  ///< bytes from the begin of its class's arena; 0 for a tensor that is never used or has no bytes
  /// First and last moment of its life (lifetime.hpp) on the run's timeline (the segments in order, each a range of instructions), both
  /// included: from 0 to end - 1 for Life::Run, used or not; -1, -1 for another tensor that is never used.
  int32_t first = -1;
  int32_t last = -1;
};

struct ClassPlan {
  int64_t planned = 0;      ///< bytes of the arena
  int64_t lower_bound = 0;  ///< largest sum of live bytes over all moments, each rounded up to the class's alignment
  Moment peak_at;           ///< where that largest sum is first
  std::string peak_name;    ///< the instruction there
  std::array<int64_t, owner_names.size()> owners =
      {};  ///< live bytes at that moment, by owner, rounded up likewise: their sum is `lower_bound`
};

struct Plan {
  std::vector<ClassPlan> classes;                         ///< one a memory class of the target
  std::vector<Placement> placements;                      ///< one a tensor
  std::array<int32_t, segment_count> segment_begin = {};  ///< position of each segment on the timeline
  int32_t end = 0;
};

/// Lifetimes from the program alone, then offsets: a fixed number of orders and fits, the best kept, ties by tensor id. [plan-time] Pure;
/// the same input gives the same bytes on any machine. Peak ≤ 1.02 × lower bound on all but adversarial programs.
Plan make_plan(const Program& program, const Target& target);

/// The peak of one memory class, for `decide`: same code.
int64_t plan_peak(const Outline& outline, const Target& target, uint32_t memory);
/// Of all memory classes.
std::vector<int64_t> plan_peaks(const Outline& outline, const Target& target);

}  // namespace galley
