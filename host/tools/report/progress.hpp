// Shows a run to a person: a line that stays in its place on a terminal, and a curve of the loss at its end; plain lines elsewhere.
#pragma once

#include <cstdint>
#include <string>

#include "host/session/events.hpp"
#include "host/tools/report/live_line.hpp"

namespace galley {

class Progress final : public Observer {
 public:
  Status loading(int64_t done, int64_t all) override;
  Status started(const StartEvent& start) override;
  Status step(const StepEvent& m) override;
  Status validating(const ValidatingEvent& v) override;
  Status validated(const ValidationEvent& v) override;
  Status writing(int64_t step, int64_t done, int64_t all) override;
  Status written(const TextsEvent& t) override;
  /// A line of its own, above the bar.
  Status note(const std::string& text) override;
  Status paused(int64_t step, int64_t steps) override;
  Status ended(const EndEvent& end) override;
  /// Whether the run is not over.
  bool pauses() const { return pauses_; }

 private:
  /// What has been worked on, and the seconds of it: without validation and saving.
  struct Work {
    double ideal = 0, positions = 0, tokens = 0, seconds = 0;
    void add(const StepEvent& m, double ideal_seconds);
  };
  /// Shows how far loading or a validation is, if it takes a while.
  void show(const char* what, int64_t done, int64_t all);
  /// The line of a step, as much of it as the terminal has room for.
  void draw(const StepEvent& m, double ideal, double seconds_left);
  LiveLine live_{1};
  char drawn_[256] = "";  ///< the line of the newest step, shown or not
  int64_t steps_ = 0;
  double ideal_a_micro_batch_ = 0;  ///< seconds that its arithmetic takes at the target's peaks, shared out over processes
  double smoothed_ = 0;             ///< seconds a step
  double aside_ = 0;                ///< seconds of validation and saving so far
  int64_t seen_ = 0;
  bool pauses_ = false;
  std::string validated_;  ///< what the last validation has said
  Work line_;              ///< since the last plain line
  Work all_;               ///< without the first step of the process, once there is another
  double last_line_ = 0;   ///< when a plain line was last printed, seconds of a steady clock
  double shown_ = -1;      ///< when loading or a validation began, or was last shown; below 0: there is none
};

/// The same for work on a number of bytes, on stderr: nothing is shown of what is over within a second.
class BytesProgress {
 public:
  explicit BytesProgress(std::string what);
  void update(uint64_t done, uint64_t total);

 private:
  std::string what_;
  LiveLine live_{2};
  double begin_, last_;  ///< seconds of a steady clock: when it began, when something was last shown
};

}  // namespace galley
