// Finds lifetimes (live ranges): the moments from the first to the last at which a tensor needs its bytes, from the program alone.
//
// The run's timeline is load | refresh | window | micro | update | eval | sample | export, each segment's instructions in a row; a moment
// is a position on it. Work on queue 0 happens at its own moment. Work on another queue, and a Copy with an event on any, is in flight:
// from the moment after the last Record of queue 0 that its queue has waited for (it cannot begin earlier) to the Wait by which queue 0
// knows it to be over. Two tensors whose lifetimes do not meet can therefore share bytes whatever the queues do.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "host/plan/outline.hpp"

namespace galley {

/// The first and the last moment, both included; -1, -1: never used.
struct Lifetime {
  int32_t first = -1;
  int32_t last = -1;
  bool used() const { return first >= 0; }
};

struct Timeline {
  std::array<int32_t, segment_count> begin = {};  ///< position of each segment
  int32_t end = 0;                                ///< number of moments
  int32_t segment_end(size_t segment) const { return segment + 1 < begin.size() ? begin[segment + 1] : end; }
};

Timeline timeline_of(const Outline& outline);

/// Returns a lifetime for each tensor, by its Life's rule (program.hpp). What the host reads when a segment is over (logits, sample_logits,
/// sums of squares) lives to its end. A program that breaks a rule (a Life::Segment tensor in two segments, a copy that nobody waits for)
/// gets lifetimes that are wide enough to be safe where possible; check_plan names it. [plan-time] Pure.
std::vector<Lifetime> find_lifetimes(const Outline& outline);
std::vector<Lifetime> find_lifetimes(const Program& program);

}  // namespace galley
