// Joins entries of one segment into launches, where their accesses, the kernels that there are and the room at that moment allow it.
#pragma once

#include <string>
#include <vector>

#include "host/passes/accesses.hpp"
#include "host/passes/launch.hpp"
#include "host/passes/room.hpp"

namespace galley {

class SegmentFuser {
 public:
  /// `apart` is `outline` after outputs have taken over inputs. `permitted` has the entries that may join others; empty: all may.
  SegmentFuser(Joints& joints, Kernels& kernels, const Outline& outline, const Outline& apart, const Originals& source,
               const std::vector<bool>& permitted, size_t segment, Room& room);
  /// Returns the segment's launches in order. Every entry is in one of them.
  Result<std::vector<PlannedLaunch>> run();

 private:
  const Instruction& of(uint32_t entry) const { return *source_.instructions[entry]; }
  /// Returns the first slot for an entry: after all that it conflicts with, except the earlier links of its own chain.
  uint32_t floor(uint32_t entry, std::span<const uint32_t> chain = {}) const;
  Result<bool> try_chain(uint32_t entry, const std::vector<std::string>& links);
  void mark(PlannedLaunch& launch) const;

  /// A node or a chain that may join a group.
  struct Unit {
    std::vector<uint32_t> entries;
    std::vector<Mark> marks;
    uint32_t floor = 0;
    bool grouped = false;
  };
  Status find_groups();
  Status group(std::vector<Unit*> units);
  Status offer(std::span<Unit* const> members);
  const galley_kernel* kernel_of(uint32_t entry) const;
  PlannedLaunch joined(std::span<Unit* const> members) const;
  /// Returns lists of units that read the same tensors, several in each. Only what their ops read by rows counts.
  std::vector<std::vector<Unit*>> sharing(std::vector<Unit>& units) const;

  /// Extends the life of a tensor to earlier moments, because the entry that makes it moves.
  struct Extension {
    TensorId tensor;
    int32_t first, last;  ///< the moments that are new
    int64_t bytes;
  };
  /// Takes the room that entries need in slot `to`; returns false and takes nothing if there is none.
  bool move(std::span<const uint32_t> entries, uint32_t to, std::vector<Extension>& extensions);
  /// Gives the room of all extensions back but the first `keep`.
  void give_back(std::vector<Extension>& extensions, size_t keep);
  /// Returns whether the launch has room, with its workspace if it has a kernel; with `take`, takes that room.
  bool has_room(const PlannedLaunch& launch, bool take);
  Result<bool> accept(PlannedLaunch launch);
  int64_t constants_of(std::span<const uint32_t> entries) const;

  Joints& joints_;
  Kernels& kernels_;
  const Outline& outline_;
  const Outline& apart_;
  const Outline::Code& code_;
  const Originals& source_;
  size_t segment_;
  Room& room_;
  Accesses accesses_;
  std::vector<const galley_op*> ops_;  ///< the ops of launches that may join others; null for other entries
  std::vector<uint32_t> slot_;         ///< the slot of each entry
  std::vector<int64_t> launch_;        ///< the launch of each entry; -1: none yet
  std::vector<PlannedLaunch> launches_;
};

}  // namespace galley
