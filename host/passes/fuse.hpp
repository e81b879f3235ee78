// Finds fusion groups, for `fuse` and for the peaks that `decide` shows: groups of nodes that do not depend on each other, and chains of
// nodes of which each reads the one before it, become one launch.
//
// A launch is where its first node was. The others move up to it, past instructions that neither read what they write nor write what they
// use; nothing moves past a copy or an event. The most bytes that live at one time do not grow, in any memory class. If the planner needs a
// thousandth more all the same, or more than there is, only parts of segments are joined: as many as leave the peaks where they are with
// everything apart.
//
// A step of SmolLM2-135M in BF16 has 1,942 nodes and 951 launches, with adapters 3,907 and 2,079 (tests/results/launches.md). The search is
// part of every peak that a strategy asks for. So the place of an entry is found once, and room is taken member by member: 200 peaks of
// 80 blocks took 4.9 s before that and take 1.7 s since (.9 without launches of several nodes).
#pragma once

#include <array>
#include <vector>

#include "host/passes/launch.hpp"
#include "host/passes/room.hpp"
#include "host/plan/outline.hpp"

namespace galley {

/// The originals of each segment's entries.
using Sources = std::array<Originals, segment_count>;

struct Fusion {
  std::array<std::vector<PlannedLaunch>, segment_count> launches;  ///< by segment, in order; all empty: nothing changes
  std::vector<int64_t> peaks;                                      ///< by memory class, after outputs have taken over inputs
};

/// Finds launches for any choice of what backward keeps. Asks kernels once about all nodes of one kind.
class Fuser {
 public:
  explicit Fuser(Compilation& c) : c_(c), joints_(c) {}
  /// Returns all launches, or none if they would raise a peak. `outline` is the program before any output takes over an input.
  Result<Fusion> find(const Outline& outline, const Sources& sources);
  /// Returns the same, or the launches of parts of segments if not all nodes can be joined. No peak is higher than that of `find`.
  Result<Fusion> find_most(const Outline& outline, const Sources& sources);

 private:
  /// The entries of each segment that may join others; empty: all may.
  using Permitted = std::array<std::vector<bool>, segment_count>;
  /// `room` is that of `apart`, and joined entries take some of it.
  Result<Fusion> joined(const Outline& outline, const Outline& apart, const Sources& sources, const Permitted& permitted, Room room);
  void share_all(Outline& outline, const Sources& sources);
  std::vector<int64_t> peaks(const Outline& outline, const Sources& sources, const Fusion& fusion);
  bool worth(const std::vector<int64_t>& joined, const std::vector<int64_t>& apart) const;

  Compilation& c_;
  Joints joints_;
};

}  // namespace galley
