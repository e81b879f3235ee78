// What a person sees of a run: a bar on a terminal, plain lines elsewhere.
#pragma once

#include <cstdint>
#include <string>

#include "host/session/events.hpp"

namespace galley {

class Progress final : public Observer {
 public:
  /// Decides by isatty(stdout).
  Progress();
  Status started(const StartEvent& start) override;
  Status step(const StepEvent& m) override;
  Status validated(const ValidationEvent& v) override;
  /// A line of its own, above the bar.
  Status note(const std::string& text) override;
  Status ended(const EndEvent& end) override;

 private:
  void clear();
  int64_t steps_ = 0;
  double ideal_a_micro_batch_ = 0;  ///< seconds that its arithmetic takes at the target's peaks
  bool terminal_;
  bool drawn_ = false;
  double smoothed_ = 0;  ///< seconds a step
  double aside_ = 0;     ///< seconds of validation and saving so far
  int64_t seen_ = 0;
  struct {
    double ideal = 0, tokens = 0, seconds = 0;
  } line_;                ///< since the last plain line
  double last_line_ = 0;  ///< when a plain line was last printed, seconds of a steady clock
};

/// The same for work on a number of bytes, on stderr: nothing is shown of what is over within a second.
class BytesProgress {
 public:
  explicit BytesProgress(std::string what);
  ~BytesProgress();
  BytesProgress(const BytesProgress&) = delete;
  BytesProgress& operator=(const BytesProgress&) = delete;
  void update(uint64_t done, uint64_t total);

 private:
  std::string what_;
  bool terminal_, drawn_ = false;
  double begin_, last_;  ///< seconds of a steady clock: when it began, when something was last shown
};

}  // namespace galley
