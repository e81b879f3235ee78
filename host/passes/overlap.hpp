// Copies beside kernels: when a copy may begin, and by when it has to be over.
//
// With an optimizer's two states in another memory, kernels and copies one by one take up to 1.5 times as long as together, and 1.33 times
// where the link needs about as long as the kernels; no link makes a step slower than one by one (tests/results/overlap.md, on a device of
// the tests).
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "host/plan/program.hpp"
#include "host/plan/target.hpp"

namespace galley {

/// The copies of one segment that run on queues of their own, beside the tasks of queue 0: its instructions that neither record nor wait.
/// Tasks and copies have places, in the order in which they stand; gap k is where task k is next.
///
/// A copy begins at a place, when queue 0 has done the tasks before it, and is over by another one, where queue 0 waits for it. The
/// instructions say how far these may be apart: a copy cannot begin before the last task or copy that made what it reads or used what it
/// overwrites, and has to be over before the next. By the target's seconds the segment then takes the time that it takes if each copy
/// begins at once. A copy in begins as late as it can without making the segment longer, a copy out is over as soon as no task waits for
/// it.
class OverlappedCopies {
 public:
  /// All outlive it. The segment's copies wait for everything before them, and everything after them waits: as they are placed.
  OverlappedCopies(const Program& program, const std::vector<Instruction>& code, const Target& target);

  /// Bytes that copies hold beyond what they hold as they are placed: the most at any place.
  int64_t in_flight() const;
  /// Brings copies nearer to their tasks until they hold at most so much beyond.
  void restrain(int64_t bytes);
  /// Pairs (first, second) of copies in, as positions in the code: the second would begin while the first one's bytes are still there, and
  /// are what it would bring. In order.
  std::vector<std::pair<size_t, size_t>> twice() const;
  /// The segment with its copies where they are now, and the records and waits that they need.
  std::vector<Instruction> made() const;

 private:
  /// A range of a tensor that a task or a copy uses.
  struct Use {
    int64_t begin, end;
    bool writes;
    bool copies;
    size_t index;  ///< of the task or the copy
    bool conflicts(const Use& with) const { return (writes || with.writes) && begin < with.end && with.begin < end; }
  };
  struct Copy {
    size_t at;  ///< in the code
    uint32_t queue;
    bool in;
    size_t place, gap;          ///< as placed
    size_t least, most;         ///< the gaps between which it may run
    std::vector<size_t> after;  ///< earlier copies on other queues that have to be over when it begins
    double seconds, start, finish;
    int64_t bytes;
    size_t begin, end;  ///< places, as chosen
  };
  void find_uses();
  void find_bounds();
  double run();
  void choose();
  void keep_order();
  /// The first place of a gap.
  size_t first_of(size_t gap) const { return gap ? tasks_[gap - 1].place + 1 : 0; }
  /// The place of the task after a gap.
  size_t last_of(size_t gap) const { return gap < tasks_.size() ? tasks_[gap].place : places_; }
  /// The places at which a copy holds bytes beyond what it holds as it is placed: from, to.
  static std::pair<size_t, size_t> beyond(const Copy& c) {
    return c.in ? std::pair(c.begin, c.place) : std::pair(c.place + 1, std::max(c.end, c.place + 1));
  }

  const Program& program_;
  const std::vector<Instruction>& code_;
  const Target& target_;
  struct Task {
    size_t at, place;  ///< in the code
    double seconds, finish;
  };
  std::vector<Task> tasks_;
  std::vector<Copy> copies_;
  size_t places_ = 0;
  std::unordered_map<TensorId, std::vector<Use>> uses_;  ///< of the tensors that copies use, in order
};

}  // namespace galley
