// Several nodes in one launch: groups of nodes that do not depend on each other, and chains of nodes that read what the one before has
// made.
//
// A launch stands where its first node stood; the others move up to it, past instructions that neither read what they write nor write what
// they use. Nothing moves past a copy or an event. The most bytes that live at one time do not grow, in any memory class. Where the planner
// should need a thousandth more all the same, or more than there is, not everything is joined: parts of segments are, as many as leave the
// peaks where they are with everything apart.
//
// A step of SmolLM2-135M in BF16 has 1,942 nodes and 951 launches, with adapters 3,907 and 2,079 (tests/results/launches.md). Finding them
// is part of every peak that a strategy asks for: where an entry can stand is found once, and room is taken member by member. 200 peaks of
// 80 blocks took 4.9 s before that and take 1.7 s since (.9 without launches of several nodes).
#pragma once

#include <array>
#include <vector>

#include "host/passes/launch.hpp"
#include "host/passes/room.hpp"
#include "host/plan/outline.hpp"

namespace galley {

/// By segment.
using Sources = std::array<Originals, segment_count>;

struct Fusion {
  std::array<std::vector<Launch>, segment_count> launches;  ///< by segment, in order; all empty: nothing changes
  std::vector<int64_t> peaks;                               ///< by memory class, with outputs in the place of inputs
};

/// Finds launches for any choice of what backward keeps. Kernels are asked once about nodes of one kind.
class Fuser {
 public:
  explicit Fuser(Compilation& c) : c_(c), joints_(c) {}
  /// All launches, or, where they would raise a peak, none. `outline` is the program before any output takes over an input.
  Result<Fusion> find(const Outline& outline, const Sources& sources);
  /// The same, or, where not all can be joined, those of parts of segments. No peak is higher than that of `find`.
  Result<Fusion> find_most(const Outline& outline, const Sources& sources);

 private:
  /// Of each segment's entries, those that may join others; empty: all.
  using Permitted = std::array<std::vector<bool>, segment_count>;
  /// `room`: of `apart`; what is joined takes some of it.
  Result<Fusion> joined(const Outline& outline, const Outline& apart, const Sources& sources, const Permitted& permitted, Room room);
  void share_all(Outline& outline, const Sources& sources);
  std::vector<int64_t> peaks(const Outline& outline, const Sources& sources, const Fusion& fusion);
  bool worth(const std::vector<int64_t>& joined, const std::vector<int64_t>& apart) const;

  Compilation& c_;
  Joints joints_;
};

}  // namespace galley
