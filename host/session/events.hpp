// What a run tells while it runs. The terminal and metrics.jsonl listen (host/tools/report), and plugins do (listeners.hpp).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "host/base/result.hpp"
#include "host/plan/target.hpp"

namespace galley {

struct Study;

/// The weights are loaded; the first step comes next.
struct StartEvent {
  const Study& study;
  std::filesystem::path directory;
  int64_t steps_done = 0;          ///< of an earlier process
  std::vector<int64_t> allocated;  ///< bytes that the device gave for each memory class
};

/// The last step of this process is over.
struct EndEvent {
  const StartEvent& start;
  std::optional<MemoryUse> system;  ///< of the memory that computes; nothing where the device does not say
  int64_t resident = 0;             ///< the most bytes of memory that this process had
  int64_t steps_done = 0;           ///< of the run
  int64_t best_step = 0;            ///< of its lowest validation loss, which is `best`; 0: there was none
  double best = 0;
};

/// What a strategy reports of a step, and the session of a validation.
struct ReportedMetric {
  const char* name = nullptr;
  double value = 0;
};

struct StepEvent {
  int64_t step = 0;       ///< from 1
  double loss = 0;        ///< mean over the window's valid tokens
  double grad_norm = 0;   ///< before clipping; infinite or NaN only where the step was not applied
  double lr = 0;          ///< of the first optimizer; where there are several, each is among `reported`
  int64_t tokens = 0;     ///< that count in the loss
  int64_t positions = 0;  ///< of all rows, padding included
  int64_t micro_batches = 0;
  double epoch = 0;                               ///< how often the data has been gone through; 0: it has no epochs
  bool applied = true;                            ///< false: a strategy skipped its update, because the gradients were not finite
  double seconds = 0;                             ///< from the end of the step before, without validation and saving
  double aside = 0;                               ///< that went into validation and saving since the step before
  std::span<const ReportedMetric> reported = {};  ///< valid until the next step
};

struct ValidationEvent {
  int64_t step = 0;
  double loss = 0;
  double seconds = 0;                             ///< that it took
  bool best = false;                              ///< the lowest loss of the run so far, not counting that before the first step
  std::span<const ReportedMetric> reported = {};  ///< Session::Validation's; valid until the next validation
};

/// How far a validation is.
struct ValidatingEvent {
  int64_t step = 0;
  int64_t batch = 0, batches = 0;  ///< `batch` of them are done
};

/// A text that the model has written after a prompt.
struct WrittenText {
  std::string prompt;
  std::optional<std::string> expected;
  std::string text, ended;      ///< ended: "end" (a token), "stop" (the end of a reply) or "length"
  int64_t tokens = 0;           ///< that were drawn
  std::optional<double> match;  ///< how it was judged
};

/// The recipe's `evaluate`.
struct TextsEvent {
  int64_t step = 0;
  std::vector<WrittenText> texts;
  std::optional<double> match;  ///< the mean of theirs
  double seconds = 0;           ///< that it took
};

/// Called by the thread that trains, between the steps. An error ends the run. step() allocates nothing unless it fails.
class Observer {
 public:
  virtual ~Observer() = default;
  /// Of what loading the weights takes, `done` of `all` instructions are done. Before started().
  virtual Status loading(int64_t /*done*/, int64_t /*all*/) { return ok(); }
  virtual Status started(const StartEvent&) { return ok(); }
  /// The step is handed to the device now, which may compute it before it comes back: it will be finished. Allocates nothing, as step().
  virtual void enqueues(int64_t /*step*/) {}
  virtual Status step(const StepEvent&) { return ok(); }
  virtual Status validated(const ValidationEvent&) { return ok(); }
  /// Is called after each batch of a validation.
  virtual Status validating(const ValidatingEvent&) { return ok(); }
  /// Is called after each batch of texts, of which `done` of `all` are written.
  virtual Status writing(int64_t /*step*/, int64_t /*done*/, int64_t /*all*/) { return ok(); }
  virtual Status written(const TextsEvent&) { return ok(); }
  /// A state is about to be saved: what has been told so far has to outlast what outlasts the state.
  virtual Status saving() { return ok(); }
  /// Something that a person should read.
  virtual Status note(const std::string&) { return ok(); }
  /// The run is not over, and is to end here: `step` of `steps` is done and saved (TrainOptions::until).
  virtual Status paused(int64_t /*step*/, int64_t /*steps*/) { return ok(); }
  /// There will be no further step in this process; the run may continue in another one.
  virtual Status ended(const EndEvent&) { return ok(); }
};

}  // namespace galley
