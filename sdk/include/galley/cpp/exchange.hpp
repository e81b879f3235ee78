// The parts that the processes (ranks) of an axis have of a tensor, as nodes of reduce_scatter, all_gather and all_gather_here say: for
// whoever writes kernels of them.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "galley/cpp/node.hpp"

namespace galley::sdk {

/// Attributes of the node, which has to live as long: `ranks` of the axis, `rank` of this process, `ends` of the parts, in elements of the
/// whole tensor, and `start`: part j is that of rank (j + start) mod ranks.
class Parts {
 public:
  /// Throws what is wrong with the attributes.
  explicit Parts(const Node& n) : ranks_(n.i("ranks", 0)), rank_(n.i("rank", 0)), start_(n.i("start", 0)) {
    const auto wrong = [&](const std::string& what) { invalid(std::string(n.name()) + ": " + n.view()->op + ": " + what); };
    if (ranks_ < 1) wrong("ranks = " + std::to_string(ranks_) + "; an axis has at least 1");
    if (rank_ < 0 || rank_ >= ranks_) wrong("rank = " + std::to_string(rank_) + " is none of " + std::to_string(ranks_) + " ranks");
    if (start_ < 0) wrong("start = " + std::to_string(start_) + "; it has to be 0 or more");
    const galley_attr* ends = galley_attr_find(n.view(), "ends");
    const int64_t given = ends ? ends->count : 0;
    if (given != ranks_)
      wrong("ends of " + std::to_string(given) + " parts; there is one part for each of " + std::to_string(ranks_) + " ranks");
    ends_ = static_cast<const int64_t*>(ends->data);
    for (int64_t j = 0; j < ranks_; ++j)
      if (ends_[j] < first(j)) wrong("part " + std::to_string(j) + " ends at " + std::to_string(ends_[j]) + ", before it begins");
  }
  int64_t ranks() const { return ranks_; }
  int64_t rank() const { return rank_; }
  /// Elements of the whole tensor.
  int64_t total() const { return ends_[ranks_ - 1]; }

  struct Part {
    int64_t first, count;  ///< elements
  };
  Part of(int64_t rank) const {
    const int64_t j = (rank + ranks_ - start_ % ranks_) % ranks_;
    return {first(j), ends_[j] - first(j)};
  }
  Part own() const { return of(rank_); }

 private:
  int64_t first(int64_t j) const { return j ? ends_[j - 1] : 0; }

  int64_t ranks_, rank_, start_;
  const int64_t* ends_ = nullptr;
};

/// Returns each rank's part, in the order of ranks.
inline std::vector<Parts::Part> parts_of(const Node& n) {
  const Parts parts(n);
  std::vector<Parts::Part> out;
  for (int64_t r = 0; r < parts.ranks(); ++r) out.push_back(parts.of(r));
  return out;
}

/// Returns parts of so many elements as even as they come, the first ones the larger: for sums, whose nodes say none.
inline std::vector<Parts::Part> even_parts(int64_t ranks, int64_t count) {
  std::vector<Parts::Part> out;
  for (int64_t r = 0; r < ranks; ++r) out.push_back({count / ranks * r + std::min(r, count % ranks), count / ranks + (r < count % ranks)});
  return out;
}

/// Returns the elements of the largest part.
inline int64_t largest_of(const std::vector<Parts::Part>& parts) {
  int64_t largest = 0;
  for (const Parts::Part& part : parts) largest = std::max(largest, part.count);
  return largest;
}

}  // namespace galley::sdk
