// Which entries of a segment can be one launch: by what they use, by the kernels that there are, and by the bytes that live at the time.
#pragma once

#include <string>
#include <vector>

#include "host/passes/accesses.hpp"
#include "host/passes/launch.hpp"
#include "host/passes/room.hpp"

namespace galley {

class SegmentFuser {
 public:
  /// `apart` is `outline` with outputs in the place of inputs. `permitted`: the entries that may join others; empty: all.
  SegmentFuser(Joints& joints, Kernels& kernels, const Outline& outline, const Outline& apart, const Originals& source,
               const std::vector<bool>& permitted, size_t segment, Room& room);
  /// The segment's launches in order. All entries are in one.
  Result<std::vector<Launch>> run();

 private:
  const Instruction& of(uint32_t entry) const { return *source_.instructions[entry]; }
  bool open(uint32_t entry) const;
  /// The first slot where an entry can stand: after all that it conflicts with, but for what it reads of the links of its chain before it.
  uint32_t floor(uint32_t entry, std::span<const uint32_t> chain = {}) const;
  Result<bool> try_chain(uint32_t entry, const std::vector<std::string>& links);
  void mark(Launch& launch) const;

  /// A node or a chain that may become one of a group.
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
  Launch joined(std::span<Unit* const> members) const;
  /// The units that read the same, each time that there are several: only what their ops read by rows counts.
  std::vector<std::vector<Unit*>> sharing(std::vector<Unit>& units) const;

  /// The life of a tensor that begins earlier, because the entry that makes it moves.
  struct Extension {
    TensorId tensor;
    int32_t first, last;  ///< the moments that are new
    int64_t bytes;
  };
  /// Takes the room that entries need to stand in slot `to`; false, and nothing taken, where there is none.
  bool move(std::span<const uint32_t> entries, uint32_t to, std::vector<Extension>& extensions);
  /// Gives back all but the first ones.
  void give_back(std::vector<Extension>& extensions, size_t keep);
  /// Whether the launch has room, with its workspace if it has a kernel; with `take`, it gets it.
  bool has_room(const Launch& launch, bool take);
  Result<bool> accept(Launch launch);
  int64_t constants_of(std::span<const uint32_t> entries) const;

  Joints& joints_;
  Kernels& kernels_;
  const Outline& outline_;
  const Outline& apart_;
  const Outline::Code& code_;
  const Originals& source_;
  const std::vector<bool>& permitted_;
  size_t segment_;
  Room& room_;
  Accesses accesses_;
  std::vector<uint32_t> slot_;   ///< of each entry: where it stands
  std::vector<int64_t> launch_;  ///< of each entry: its launch; -1: none yet
  std::vector<Launch> launches_;
};

}  // namespace galley
