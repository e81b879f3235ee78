// How: blocks are placed one by one, each into a gap that is free for its whole life. Which order is good depends on the program, so
// several are tried; most transformers reach the lower bound in the first or second. Where none does, the blocks that stuck out above it
// are moved forward in the order and everything is placed again ("squeaky wheel" optimization: Joslin and Clements, 1999), a fixed number
// of times.
//
// A search of `recompute` asks for hundreds of packings, so the tree of ranges is kept between them, no other order is tried within a
// thousandth of the lower bound, and no wheel is mended within a 256th. 200 peaks of 80 blocks (tests/bench/plan.py), in seconds, before
// and after this and the outline: 7.9 and 1.0 with a tenth recomputed, 26.2 and 2.1 with half, 17.8 and 1.5 with nine tenths.
#include "host/plan/offsets.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numeric>
#include <tuple>

namespace galley {
namespace {

struct ByteRange {
  int64_t begin, end;  ///< bytes, end excluded
};

/// Disjoint ranges in order; those that touch are one.
class RangeSet {
 public:
  void clear() { ranges_.clear(); }
  bool empty() const { return ranges_.empty(); }
  const ByteRange* begin() const { return ranges_.data(); }
  const ByteRange* end() const { return ranges_.data() + ranges_.size(); }
  /// False where all of it was there already.
  bool insert(ByteRange range) {
    const auto first =
        std::lower_bound(ranges_.begin(), ranges_.end(), range.begin, [](const ByteRange& r, int64_t value) { return r.end < value; });
    if (first != ranges_.end() && first->begin <= range.begin && range.end <= first->end) return false;
    auto last = first;
    for (; last != ranges_.end() && last->begin <= range.end; ++last) {
      range.begin = std::min(range.begin, last->begin);
      range.end = std::max(range.end, last->end);
    }
    if (first == last) {
      ranges_.insert(first, range);
    } else {
      *first = range;
      ranges_.erase(first + 1, last);
    }
    return true;
  }

 private:
  std::vector<ByteRange> ranges_;
};

/// Which bytes are taken when: a segment tree over moments. A stretch of time is split into O(log) nodes; each node keeps the bytes taken
/// during all of its time by blocks that were split into it, and those taken at any moment of it. Stacks of neighbours melt into few
/// ranges, which is what makes a trial fast.
class Occupancy {
 public:
  /// For so many moments; keeps the memory of the packing before, which a search of hundreds would otherwise ask for again each time.
  void reset(int32_t moments) {
    leaves_ = std::bit_ceil(static_cast<size_t>(std::max(moments, 1)));
    through_.resize(2 * leaves_);
    ever_.resize(2 * leaves_);
    seen_.assign(2 * leaves_, 0);
    visit_ = 0;
  }

  void clear() {
    for (RangeSet& set : through_) set.clear();
    for (RangeSet& set : ever_) set.clear();
  }

  /// The stretch of time that the calls below are about.
  void select(int32_t first, int32_t last) {
    nodes_.clear();
    lists_.clear();
    ++visit_;
    for (size_t l = static_cast<size_t>(first) + leaves_, r = static_cast<size_t>(last) + 1 + leaves_; l < r; l /= 2, r /= 2) {
      if (l & 1) nodes_.push_back(l++);
      if (r & 1) nodes_.push_back(--r);
    }
    for (const size_t node : nodes_) {
      if (!ever_[node].empty()) lists_.push_back({ever_[node].begin(), ever_[node].end()});
      for (size_t up = node / 2; up >= 1 && seen_[up] != visit_; up /= 2) {
        seen_[up] = visit_;
        if (!through_[up].empty()) lists_.push_back({through_[up].begin(), through_[up].end()});
      }
    }
  }

  /// The lowest offset where `bytes` are free.
  int64_t first_fit(int64_t bytes) { return free_from(0, bytes); }

  /// The gap that is filled best; above everything else only if there is none.
  int64_t best_fit(int64_t bytes) {
    int64_t best = 0, waste = std::numeric_limits<int64_t>::max();
    for (int64_t begin = 0;;) {
      begin = free_from(begin, 1);
      int64_t end = std::numeric_limits<int64_t>::max();
      for (const List& list : lists_)
        if (list.next != list.end) end = std::min(end, list.next->begin);
      if (end - begin >= bytes && end - begin < waste) {
        best = begin;
        waste = end - begin;
      }
      if (end == std::numeric_limits<int64_t>::max()) return best;
      begin = end;
    }
  }

  void take(ByteRange range) {
    ++visit_;
    for (const size_t node : nodes_) {
      through_[node].insert(range);
      ever_[node].insert(range);
      for (size_t up = node / 2; up >= 1 && seen_[up] != visit_; up /= 2) {
        seen_[up] = visit_;
        if (!ever_[up].insert(range)) break;  // and all above it have it too
      }
    }
  }

 private:
  struct List {
    const ByteRange* next;  ///< its first range that does not end before the offset looked at
    const ByteRange* end;
  };

  /// The lowest offset not below `from` where `bytes` are free. Offsets only grow between two calls of select, so no list is walked twice,
  /// and one that has been walked to its end is let go.
  int64_t free_from(int64_t from, int64_t bytes) {
    for (size_t agree = 0, i = 0; agree < lists_.size();) {
      if (i >= lists_.size()) i = 0;
      List& list = lists_[i];
      const int64_t before = from;
      for (; list.next != list.end && list.next->begin < from + bytes; ++list.next) from = std::max(from, list.next->end);
      if (from != before) agree = 0;
      if (list.next == list.end) {
        lists_.erase(lists_.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++agree;
        ++i;
      }
    }
    return from;
  }

  size_t leaves_ = 1;
  std::vector<RangeSet> through_, ever_;
  std::vector<uint64_t> seen_;
  uint64_t visit_ = 0;
  std::vector<size_t> nodes_;
  std::vector<List> lists_;
};

enum class Fit : uint8_t { First, Best };

class Packer {
 public:
  explicit Packer(std::span<const Block> blocks);
  BlockOffsets run();

 private:
  using Order = std::vector<int32_t>;
  enum class By : uint8_t { Size, Length, Area, PeakFirst, PeakLast, PeakLength, PressureFirst, PressureLength, PressureSize };

  Order order(By by) const;
  bool place(const Order& order, Fit fit, bool to_the_end);
  void improve(By by, int64_t step, int rounds);
  /// So close to the lower bound that another order, or rounds of mending, are not worth their time.
  bool within(int64_t part) const { return result_.peak - result_.lower_bound <= result_.lower_bound / part; }

  std::vector<Block> blocks_;      ///< those with bytes; moments counted where a block begins, because only there something can collide
  std::vector<size_t> index_;      ///< of each in the caller's list
  std::vector<int64_t> pressure_;  ///< largest sum of live bytes during a block's life
  std::vector<bool> at_peak_;
  Occupancy& occupancy_;
  std::vector<int64_t> trial_;  ///< offsets of the placement under way
  BlockOffsets result_;
  size_t count_;
};

Occupancy& occupancy_of_thread() {
  static thread_local Occupancy occupancy;
  return occupancy;
}

Packer::Packer(std::span<const Block> blocks) : occupancy_(occupancy_of_thread()), count_(blocks.size()) {
  std::vector<int32_t> begins;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].bytes <= 0) continue;
    blocks_.push_back(blocks[i]);
    index_.push_back(i);
    begins.push_back(blocks[i].first);
  }
  std::sort(begins.begin(), begins.end());
  begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
  const auto moments = static_cast<int32_t>(begins.size());
  std::vector<int64_t> live(begins.size() + 1, 0);
  for (Block& block : blocks_) {
    block.last = static_cast<int32_t>(std::upper_bound(begins.begin(), begins.end(), block.last) - begins.begin()) - 1;
    block.first = static_cast<int32_t>(std::lower_bound(begins.begin(), begins.end(), block.first) - begins.begin());
    live[static_cast<size_t>(block.first)] += block.bytes;
    live[static_cast<size_t>(block.last) + 1] -= block.bytes;
  }
  std::partial_sum(live.begin(), live.end(), live.begin());
  const auto peak = std::max_element(live.begin(), live.end());
  result_.lower_bound = *peak;
  const auto peak_at = static_cast<int32_t>(peak - live.begin());

  // tallest[k][i]: the largest of live[i … i + 2^k - 1].
  std::vector<std::vector<int64_t>> tallest = {live};
  for (size_t width = 1; 2 * width <= live.size(); width *= 2) {
    const std::vector<int64_t>& half = tallest.back();
    std::vector<int64_t> full(live.size() - 2 * width + 1);
    for (size_t i = 0; i < full.size(); ++i) full[i] = std::max(half[i], half[i + width]);
    tallest.push_back(std::move(full));
  }
  for (const Block& block : blocks_) {
    const auto length = static_cast<size_t>(block.last) - static_cast<size_t>(block.first) + 1;
    const auto level = static_cast<size_t>(std::bit_width(length | 1) - 1);
    const size_t begin = static_cast<size_t>(block.first), second = begin + length - (size_t{1} << level);
    pressure_.push_back(std::max(tallest[level][begin], tallest[level][second]));
    at_peak_.push_back(block.first <= peak_at && peak_at <= block.last);
  }
  occupancy_.reset(moments);
}

Packer::Order Packer::order(By by) const {
  using Key = std::tuple<int64_t, int64_t, int64_t>;
  std::vector<Key> keys;
  keys.reserve(blocks_.size());
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Block& b = blocks_[i];
    const int64_t length = b.last - b.first + 1;
    const bool peak = at_peak_[i];
    switch (by) {
      case By::Size: keys.emplace_back(-b.bytes, -length, 0); break;
      case By::Length: keys.emplace_back(-length, -b.bytes, 0); break;
      case By::Area: keys.emplace_back(-b.bytes * length, 0, 0); break;
      case By::PeakFirst: keys.emplace_back(peak ? -1 : 0, peak ? b.first : -b.bytes, peak ? -b.last : -length); break;
      case By::PeakLast: keys.emplace_back(peak ? -1 : 0, peak ? -b.last : -b.bytes, peak ? b.first : -length); break;
      case By::PeakLength: keys.emplace_back(peak ? -1 : 0, -length, -b.bytes); break;
      case By::PressureFirst: keys.emplace_back(-pressure_[i], b.first, -b.last); break;
      case By::PressureLength: keys.emplace_back(-pressure_[i], -length, -b.bytes); break;
      case By::PressureSize: keys.emplace_back(-pressure_[i], -b.bytes, -length); break;
    }
  }
  Order order(blocks_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t x, int32_t y) { return keys[static_cast<size_t>(x)] < keys[static_cast<size_t>(y)]; });
  return order;
}

/// Places all blocks in this order and keeps the result when it is the best so far. Without `to_the_end` it stops where it cannot become
/// that.
bool Packer::place(const Order& order, Fit fit, bool to_the_end) {
  ++result_.trials;
  const bool has_one = !result_.offsets.empty();
  occupancy_.clear();
  trial_.assign(blocks_.size(), 0);
  int64_t peak = 0;
  for (const int32_t i : order) {
    const Block& block = blocks_[static_cast<size_t>(i)];
    occupancy_.select(block.first, block.last);
    const int64_t offset = fit == Fit::First ? occupancy_.first_fit(block.bytes) : occupancy_.best_fit(block.bytes);
    occupancy_.take({offset, offset + block.bytes});
    trial_[static_cast<size_t>(i)] = offset;
    peak = std::max(peak, offset + block.bytes);
    if (has_one && !to_the_end && peak >= result_.peak) return false;
  }
  if (has_one && peak >= result_.peak) return false;
  result_.offsets = trial_;
  result_.peak = peak;
  return true;
}

void Packer::improve(By by, int64_t step, int rounds) {
  Order order = this->order(by);
  std::vector<int64_t> rank(order.size());
  for (size_t i = 0; i < order.size(); ++i) rank[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  for (int round = 0; round < rounds && !within(256); ++round) {
    if (round > 0)
      std::stable_sort(order.begin(), order.end(),
                       [&](int32_t x, int32_t y) { return rank[static_cast<size_t>(x)] < rank[static_cast<size_t>(y)]; });
    place(order, Fit::First, true);
    for (size_t i = 0; i < rank.size(); ++i)
      if (trial_[i] + blocks_[i].bytes > result_.lower_bound) rank[i] -= step;
  }
}

BlockOffsets Packer::run() {
  if (blocks_.empty()) {
    result_.offsets.assign(count_, 0);
    return std::move(result_);
  }
  // The first ones reach the lower bound on nine transformers in ten, each alone; the others are right where they are wrong.
  static constexpr std::array<std::pair<By, Fit>, 10> tries = {{{By::PeakLast, Fit::First},
                                                                {By::PeakFirst, Fit::First},
                                                                {By::PressureFirst, Fit::Best},
                                                                {By::Size, Fit::First},
                                                                {By::PressureLength, Fit::First},
                                                                {By::PressureSize, Fit::First},
                                                                {By::PeakLength, Fit::Best},
                                                                {By::Area, Fit::First},
                                                                {By::Length, Fit::First},
                                                                {By::Size, Fit::Best}}};
  for (const auto& [by, fit] : tries)
    if (result_.offsets.empty() || !within(1024)) place(order(by), fit, false);

  // More rounds for small programs, where one costs little. A strategy that searches asks for hundreds of plans of large ones.
  const auto n = static_cast<int64_t>(blocks_.size());
  const auto rounds = static_cast<int>(std::clamp<int64_t>(150'000'000 / std::max<int64_t>(n * n, 1), 2, 100));
  static constexpr std::array<std::pair<By, int64_t>, 5> starts = {
      {{By::PressureFirst, 50}, {By::PeakLast, 10}, {By::PeakLength, 10}, {By::PeakFirst, 50}, {By::PressureLength, 50}}};
  for (const auto& [by, part] : starts)
    if (!within(256)) improve(by, std::max<int64_t>(n / part, 1), rounds);

  std::vector<int64_t> offsets(count_, 0);
  for (size_t i = 0; i < index_.size(); ++i) offsets[index_[i]] = result_.offsets[i];
  result_.offsets = std::move(offsets);
  return std::move(result_);
}

}  // namespace

BlockOffsets pack(std::span<const Block> blocks) { return Packer(blocks).run(); }

}  // namespace galley
