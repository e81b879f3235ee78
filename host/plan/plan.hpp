// The plan: gives every tensor of a program an offset in its memory class, with a lower bound that shows how close it is to the least.
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
  /// First and last moment of its lifetime (lifetime.hpp) on the run's timeline (the segments in order, each a range of instructions), both
  /// included: 0 to end - 1 for Life::Run, used or not; -1, -1 for another tensor that is never used.
  int32_t first = -1;
  int32_t last = -1;
};

struct ClassPlan {
  int64_t planned = 0;      ///< bytes of the arena
  int64_t lower_bound = 0;  ///< largest sum of live bytes over all moments, each rounded up to the class's alignment
  Moment peak_at;           ///< the first moment with that sum
  std::string peak_name;    ///< the instruction there
  std::array<int64_t, owner_names.size()> owners =
      {};  ///< live bytes at that moment, by owner, also rounded up: their sum is `lower_bound`
};

struct Plan {
  std::vector<ClassPlan> classes;                         ///< one a memory class of the target
  std::vector<Placement> placements;                      ///< one a tensor
  std::array<int32_t, segment_count> segment_begin = {};  ///< position of each segment on the timeline
  int32_t end = 0;
};

/// Makes a plan: finds lifetimes from the program alone, then offsets by a fixed number of orders and fits, of which it keeps the best;
/// ties go by tensor id. [plan-time] Pure; the same input gives the same bytes on any machine. Peak ≤ 1.02 × lower bound, except on
/// adversarial programs.
Plan make_plan(const Program& program, const Target& target);

/// Returns the peak of one memory class, as make_plan() would; for `decide`.
int64_t plan_peak(const Outline& outline, const Target& target, uint32_t memory);
/// Returns the peaks of all memory classes.
std::vector<int64_t> plan_peaks(const Outline& outline, const Target& target);

}  // namespace galley
