// The memory of the shadow device, which proves plans: ranges of bytes carry the number of the write that made them; 0: nobody has.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

namespace galley {

/// A range of bytes [begin, end) that the write `stamp` made.
struct Stamped {
  int64_t begin, end;
  int64_t stamp;
};

/// The stamps of one tensor or of one arena. A write replaces what it covers, and splits ranges where it begins and ends.
class Stamps {
 public:
  void write(int64_t begin, int64_t end, int64_t stamp) {
    if (begin >= end) return;
    auto at = ranges_.lower_bound(begin);
    if (at != ranges_.begin()) {
      const auto before = std::prev(at);
      if (before->second.end > begin) {
        const Range cut = before->second;
        before->second.end = begin;
        if (cut.end > end) at = ranges_.emplace_hint(at, end, cut);
      }
    }
    while (at != ranges_.end() && at->first < end) {
      if (at->second.end > end) {
        ranges_.emplace(end, at->second);
        ranges_.erase(at);
        break;
      }
      at = ranges_.erase(at);
    }
    ranges_[begin] = {end, stamp};
  }

  /// Appends the stamps in [begin, end) to `out`, in order and without holes.
  void read(int64_t begin, int64_t end, std::vector<Stamped>& out) const {
    auto at = ranges_.upper_bound(begin);
    if (at != ranges_.begin() && std::prev(at)->second.end > begin) --at;
    for (; begin < end; ++at) {
      const int64_t next = at == ranges_.end() ? end : std::min(at->first, end);
      if (begin < next) out.push_back({begin, next, 0});
      if (next == end) return;
      const int64_t stop = std::min(at->second.end, end);
      out.push_back({std::max(begin, next), stop, at->second.stamp});
      begin = stop;
    }
  }

 private:
  struct Range {
    int64_t end, stamp;
  };
  std::map<int64_t, Range> ranges_;  ///< by begin; disjoint
};

}  // namespace galley
