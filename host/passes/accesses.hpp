// Lists the ranges of tensors that the entries of a segment read and write, and finds entries that must keep their order. `fuse` uses it.
#pragma once

#include <algorithm>
#include <span>
#include <tuple>
#include <vector>

#include "host/passes/launch.hpp"
#include "host/plan/outline.hpp"

namespace galley {

/// A range of a tensor that an entry reads, writes or both.
struct Access {
  uint32_t entry;
  TensorId tensor;
  int64_t begin, end;
  bool reads, writes;
  bool conflicts(const Access& with) const {
    return tensor == with.tensor && (writes || with.writes) && begin < with.end && with.begin < end;
  }
  bool same_range(const Access& with) const { return tensor == with.tensor && begin == with.begin && end == with.end; }
};

class Accesses {
 public:
  Accesses(const Outline::Code& code, const Originals& source, size_t tensors);

  /// Returns an entry's accesses: one for each operand that is present, inputs before outputs.
  std::span<const Access> of(uint32_t entry) const { return {accesses_.data() + first_[entry], accesses_.data() + first_[entry + 1]}; }
  const Access& operator[](uint32_t index) const { return accesses_[index]; }
  /// Return indices of a tensor's accesses, by region and first byte.
  std::span<const uint32_t> readers(TensorId tensor) const { return readers_.of(tensor); }
  std::span<const uint32_t> writers(TensorId tensor) const { return writers_.of(tensor); }
  /// Returns the first entry of an entry's region; nothing moves from one region to another.
  uint32_t region(uint32_t entry) const { return region_[entry]; }
  /// Calls `found(mine, other)` for each access of the entry and each one by an earlier entry of its region that conflicts with it.
  template <class Found>
  void conflicts_before(uint32_t entry, const Found& found) const {
    const auto place = [&](uint32_t k) { return std::pair(region_[accesses_[k].entry], accesses_[k].begin); };
    for (const Access& mine : of(entry)) {
      const auto look = [&](const Index& index) {
        const auto others = index.of(mine.tensor);
        const auto first = std::pair(region_[entry], mine.begin - widest_[static_cast<size_t>(mine.tensor)]);
        for (auto at = std::ranges::lower_bound(others, first, {}, place); at != others.end(); ++at) {
          const Access& other = accesses_[*at];
          if (region_[other.entry] != region_[entry] || other.begin >= mine.end) break;
          if (other.entry < entry && mine.conflicts(other)) found(mine, other);
        }
      };
      look(writers_);
      if (mine.writes) look(readers_);
    }
  }

 private:
  /// Holds indices into accesses_: by tensor, then by region and first byte.
  struct Index {
    std::vector<uint32_t> first, accesses;
    std::span<const uint32_t> of(TensorId tensor) const {
      const auto t = static_cast<size_t>(tensor);
      return {accesses.data() + first[t], accesses.data() + first[t + 1]};
    }
  };
  Index index(bool Access::*counts) const;

  std::vector<Access> accesses_;  ///< by entry
  std::vector<size_t> first_;
  std::vector<uint32_t> region_;
  std::vector<int64_t> widest_;  ///< for each tensor: the most bytes that an entry which can move uses of it
  Index readers_, writers_;
};

}  // namespace galley
