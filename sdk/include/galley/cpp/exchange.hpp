// For whoever writes kernels of exchanges: the processes of the run that a node is about, the parts that they have of a tensor, as nodes of
// reduce_scatter, all_gather and all_gather_here say, and how to wait for other processes.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "galley/cpp/node.hpp"

namespace galley::sdk {

/// Waits for another process, a moment at a time: `for (Patience patience; !done(); patience.wait()) {}`. It soon sleeps: on Linux 6.18 a
/// loop of nothing but sched_yield kept all else from a processor for up to a minute, also the process that it waited for.
class Patience {
 public:
  void wait() {
    if (++turns_ < 200) std::this_thread::yield();
    else std::this_thread::sleep_for(std::chrono::microseconds(turns_ < 2000 ? 50 : 1000));
  }

 private:
  int turns_ = 0;
};

/// The processes among which a node exchanges: those of the run that lie along the node's axis with this one. The node's attributes `ranks`
/// and `rank` count along the axis, from place 0 on; messages go to the numbers that processes have in the run.
class Group {
 public:
  /// The run's processes, of which this one is number `rank`.
  Group(int64_t rank, int64_t ranks) : places_(ranks), place_(rank), rank_(rank), whole_(true) {}
  /// Those of a node with `ranks`, `stride` (between the numbers of neighbours on the axis) and, where it is about parts, `rank`. Throws if
  /// a run of so many processes has no such groups, or if the node is made for another place than this process's.
  Group(const Node& n, int64_t rank_of_run, int64_t ranks_of_run)
      : places_(n.i("ranks", 0)), stride_(n.i("stride", 1)), rank_(rank_of_run), whole_(places_ == ranks_of_run) {
    const std::string node = std::string(n.name()) + ": " + n.view()->op;
    // In this order, so that no product overflows.
    if (places_ < 1 || stride_ < 1 || places_ > ranks_of_run || stride_ > ranks_of_run / places_ || ranks_of_run % (places_ * stride_))
      invalid(node + " is planned for " + std::to_string(places_) + " ranks" +
              (stride_ == 1 ? "" : " with stride " + std::to_string(stride_)) + ", and the run has " + std::to_string(ranks_of_run));
    place_ = rank_ / stride_ % places_;
    if (const int64_t planned = n.i("rank", place_); planned != place_)
      invalid(node + " is planned for rank " + std::to_string(planned) + " of its axis, and rank " + std::to_string(rank_) +
              " of the run has place " + std::to_string(place_) + " there");
  }
  /// How many processes there are.
  int64_t places() const { return places_; }
  /// This process's place along the axis, from 0.
  int64_t place() const { return place_; }
  /// The number in the run of the process at a place.
  int64_t member(int64_t place) const { return rank_ + (place - place_) * stride_; }
  bool is_whole_run() const { return whole_; }

 private:
  int64_t places_, stride_ = 1, place_ = 0, rank_;
  bool whole_;
};

/// Attributes of the node, which has to live as long: `ranks` of the axis, `rank` of this process on it, `ends` of the parts, in elements
/// of the whole tensor, and `start`: part j is that of rank (j + start) mod ranks.
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
