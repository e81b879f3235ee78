// What a person sees of a run: a bar on a terminal, plain lines elsewhere.
#pragma once

#include <cstdint>
#include <string>

#include "host/session/events.hpp"

namespace galley {

/// The width of the terminal that is stdout; 80 where it is none.
int terminal_columns();

class Progress final : public Observer {
 public:
  /// Decides by isatty(stdout).
  Progress();
  Status loading(int64_t done, int64_t all) override;
  Status started(const StartEvent& start) override;
  Status step(const StepEvent& m) override;
  Status validating(const ValidatingEvent& v) override;
  Status validated(const ValidationEvent& v) override;
  /// A line of its own, above the bar.
  Status note(const std::string& text) override;
  Status ended(const EndEvent& end) override;

 private:
  /// What has been worked on, and the seconds of it: without validation and saving.
  struct Work {
    double ideal = 0, positions = 0, tokens = 0, seconds = 0;
    void add(const StepEvent& m, double ideal_seconds);
  };
  void clear();
  /// Shows how far loading or a validation is, if it takes a while.
  void show(const char* what, int64_t done, int64_t all);
  /// Draws a line over the last one, cut to the terminal's width.
  void draw(const char* text);
  int64_t steps_ = 0;
  double ideal_a_micro_batch_ = 0;  ///< seconds that its arithmetic takes at the target's peaks
  bool terminal_;
  bool drawn_ = false;
  double smoothed_ = 0;  ///< seconds a step
  double aside_ = 0;     ///< seconds of validation and saving so far
  int64_t seen_ = 0;
  Work line_;             ///< since the last plain line
  Work all_;              ///< without the first step of the process, once there is another
  double last_line_ = 0;  ///< when a plain line was last printed, seconds of a steady clock
  double shown_ = -1;     ///< when loading or a validation began, or was last shown; below 0: there is none
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
