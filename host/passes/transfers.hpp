// Schedules copies between memories, and exchanges between processes, beside kernels: finds when one may begin and when it has to be over.
// The pass `overlap` uses it.
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

/// Seconds that differ by less come from rounding.
inline constexpr double kSameSeconds = 1 + 1e-9;

/// Returns whether an instruction may run beside the kernels: a copy on a queue of its own, or an exchange. `exchanges`: the queue to which
/// exchanges go; 0: they stay where they are.
inline bool is_transfer(const Instruction& i, uint32_t exchanges) {
  return i.queue != 0 ? i.action() == Action::Copy : exchanges != 0 && i.exchanges();
}

/// Schedules the transfers of one segment: copies on queues of their own, and exchanges. They run beside the tasks of queue 0. A task is an
/// instruction of queue 0 that neither records, nor waits, nor is a transfer. Tasks and transfers have places, in the order of the code; gap
/// k is where task k comes next.
///
/// A transfer begins at one place, when queue 0 has done the tasks before it, and is over at another one, where queue 0 waits for it. The
/// instructions bound both: a transfer cannot begin before the last task or transfer that made what it reads or used what it overwrites, and
/// has to be over before the next that needs either. By the target's seconds the segment takes no longer than if each began at once. What
/// brings something into class 0, or from other processes, begins as late as it can without making the segment longer; what takes something
/// away is over as soon as no task waits for it. The transfers of a queue keep the order in which they are placed: exchanges have the same
/// one on all processes.
class Transfers {
 public:
  /// All arguments outlive it. In `code`, as `place` leaves it, a copy waits for everything before it, and everything after waits for it.
  /// `exchanges`: the queue to which exchanges go; 0: they stay where they are.
  Transfers(const Program& program, const std::vector<Instruction>& code, const Target& target, uint32_t exchanges);

  /// Returns the most bytes, over all places, that transfers hold beyond what they hold as placed.
  int64_t in_flight() const;
  /// Moves transfers nearer to their tasks until they hold at most so many bytes beyond.
  void restrain(int64_t bytes);
  /// Returns pairs (first, second) of copies into class 0, as positions in the code and in their order: the second would bring the same
  /// bytes while those of the first are still there.
  std::vector<std::pair<size_t, size_t>> twice() const;
  /// Returns the segment with its transfers where they are now, and with the records and waits that they need.
  std::vector<Instruction> made() const;

 private:
  /// A range of a tensor that a task or a transfer uses.
  struct Use {
    int64_t begin, end;
    bool writes;
    bool transfers;
    size_t index;  ///< index of the task or the transfer
    bool conflicts(const Use& with) const { return (writes || with.writes) && begin < with.end && with.begin < end; }
  };
  struct Transfer {
    size_t at;  ///< position in the code
    uint32_t queue;
    bool in;                    ///< brings something
    size_t place, gap;          ///< where `place` has put it
    size_t least, most;         ///< the gaps between which it may run
    std::vector<size_t> after;  ///< earlier transfers on other queues that have to be over when it begins
    double seconds, start, finish;
    int64_t bytes;
    size_t begin, end;  ///< the places that were chosen
  };
  bool is_transfer(const Instruction& i) const { return galley::is_transfer(i, exchanges_); }
  /// Returns whether it makes what nothing else has made in this segment.
  bool brings(const Instruction& i) const;
  std::vector<std::pair<TensorId, Use>> uses_of(const Instruction& i, size_t index) const;
  int64_t bytes_of(const Instruction& i, bool in) const;
  void find_uses();
  void find_bounds();
  double run();
  void choose();
  void keep_order();
  const ProgramTensor& tensor(TensorId id) const { return program_.tensors[static_cast<size_t>(id)]; }
  /// Returns the first place of a gap.
  size_t first_of(size_t gap) const { return gap ? tasks_[gap - 1].place + 1 : 0; }
  /// Returns the place of the task after a gap.
  size_t last_of(size_t gap) const { return gap < tasks_.size() ? tasks_[gap].place : places_; }
  /// Returns the places (from, to) at which a transfer holds bytes beyond what it holds as placed.
  static std::pair<size_t, size_t> beyond(const Transfer& t) {
    return t.in ? std::pair(t.begin, t.place) : std::pair(t.place + 1, std::max(t.end, t.place + 1));
  }

  const Program& program_;
  const std::vector<Instruction>& code_;
  const Target& target_;
  const uint32_t exchanges_;
  struct Task {
    size_t at, place;  ///< position in the code, and place
    double seconds, finish;
  };
  std::vector<Task> tasks_;
  std::vector<Transfer> transfers_;
  size_t places_ = 0;
  std::unordered_map<TensorId, std::vector<Use>> uses_;  ///< uses of the tensors that transfers use, in order
};

}  // namespace galley
