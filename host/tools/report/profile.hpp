// Profiles a run: tables of where its time goes (--profile), and a trace (--trace).
#pragma once

#include <algorithm>
#include <map>
#include <span>
#include <string>

#include "host/base/new_file.hpp"
#include "host/base/result.hpp"
#include "host/base/value.hpp"
#include "host/exec/executor.hpp"
#include "host/plan/program.hpp"
#include "host/plan/target.hpp"

namespace galley {

/// Adds up the times of steps, by op and by strategy. Leaves out the first step, in which kernels still load what they need, if there are
/// more.
class Profile {
 public:
  /// Both arguments outlive it.
  Profile(const Program& program, const Target& target) : program_(program), target_(target) {}
  void add(std::span<const TimedInstruction> timed);
  /// Tables of time, arithmetic and traffic beside what the target can do; "" if nothing ran. Validations are not in it. In
  /// tables of `columns` names are cut.
  std::string text(size_t columns) const;
  /// profile.json: {steps, seconds, peak_bandwidth, ops: [{op, kernel, …}], strategies: [{strategy, …}]}, the longest first. Each has, of
  /// a step: launches, seconds, share (of the step's seconds), flops, bytes (of operands), and peak_seconds, which the arithmetic takes at
  /// the target's peak. "" if nothing ran.
  std::string json() const;

 private:
  struct Total {
    int64_t launches = 0;
    double seconds = 0;
    double flops = 0, bytes = 0;
    double ideal_flops_seconds = 0;  ///< that the arithmetic takes at the peak of its dtype
  };
  using Totals = std::map<std::string, Total>;
  /// What each kernel of each op took.
  using Kernels = std::map<std::pair<std::string, std::string>, Total>;
  int64_t counted_steps() const { return std::max<int64_t>(1, steps_ - 1); }
  Table total_json(const Total& total) const;
  std::string table(const char* title, const Totals& totals, size_t columns) const;
  /// Whether it moved more bytes than the target's memory can.
  bool above(const Total& total) const;
  std::string notes() const;

  const Program& program_;
  const Target& target_;
  Totals ops_, strategies_;
  Kernels kernels_;
  int64_t steps_ = 0;  ///< that have begun
  double seconds_ = 0;
};

/// Writes what ran when as a Chrome trace (chrome://tracing, ui.perfetto.dev): a row for each queue, steps 2 to 4, or the only ones there
/// are.
class Trace {
 public:
  static constexpr int64_t kFirst = 2, kLast = 4;

  /// `program` and `target` outlive it.
  Trace(NewFile file, const Program& program, const Target& target) : file_(std::move(file)), program_(program), target_(target) {}
  void add(std::span<const TimedInstruction> timed);
  /// Writes the file.
  Status finish();

 private:
  NewFile file_;
  const Program& program_;
  const Target& target_;
  std::string events_;
  int64_t steps_ = 0;
  double offset_ = 0;  ///< when the next segment begins
};

}  // namespace galley
