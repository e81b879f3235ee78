// A session: loads the model that a study has planned, and trains, evaluates, saves, resumes and exports it. Every command that computes
// opens one; several may be open at once. A session prints nothing and has no globals.
#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "host/base/new_file.hpp"
#include "host/data/loader.hpp"
#include "host/exec/executor.hpp"
#include "host/exec/proof.hpp"
#include "host/exec/state.hpp"
#include "host/ranks/party.hpp"
#include "host/session/events.hpp"
#include "host/session/scores.hpp"
#include "host/session/study.hpp"

namespace galley {

/// Opens the study's data, and prepares it first if that has not been done yet. Opens no device.
Result<std::unique_ptr<Source>> open_source(const Study& study, PrepareProgress progress = {});

struct SessionOptions {
  std::function<Watching(Plugins&)> watching = {};                ///< returns the proofs that watch (host/proofs); null: nobody watches
  TimedSegment timed = {};                                        ///< see ExecutorOptions
  Choices* choices = nullptr;                                     ///< see ExecutorOptions
  std::function<Status(int64_t done, int64_t all)> loading = {};  ///< see ExecutorOptions
  int64_t shift = 0;                                              ///< see ExecutorOptions
  std::function<void(const std::string& what)> exchanging = {};   ///< see ExecutorOptions
  Party* party = nullptr;  ///< of a run of several processes, which all do the same; null: one process
};

/// One thread. After an error only destruction is safe.
class Session {
 public:
  /// Checks the model's files, opens the device, loads weights and data. Without a source (null) the session can neither train nor
  /// evaluate. `study` outlives the session.
  static Result<std::unique_ptr<Session>> open(const Study& study, std::unique_ptr<Source> source, const SessionOptions& options = {});
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Begins to train at the first step, with the weights as they were loaded.
  Status start();
  /// Continues from a state that this study, and the same base model, have saved.
  Status resume(const std::filesystem::path& state);
  /// Checks that the loaded weights are those with which the run of this state began; see check_weights().
  Status check_base(const std::filesystem::path& state);
  /// Loads only the weights of a state, to evaluate, sample or export. The other weights (of an adapter's base model, say) stay as they
  /// were loaded; they have to be those with which the run began, else exit code Recipe with file and tensor.
  Status load_weights(const std::filesystem::path& state);
  /// Hands the next window's step to the device. At most depth() steps may be under way.
  Status enqueue();
  /// Waits for the oldest step that is under way, and returns its numbers.
  Result<StepEvent> finished();
  /// Returns how many steps may be under way: the host runs ahead of a device that works by itself.
  int64_t depth() const { return proof_->compares() ? 1 : study_.target.steps_under_way(); }
  /// Copies a micro-batch to the program's inputs, from a window that lies in the program's buffers. Stream-ordered.
  Status feed(const WindowBuffer& window, int64_t micro_batch);
  /// Returns memory for a micro-batch that may be filled while no step is under way.
  WindowBuffer spare_window() const;
  /// Returns the memory of a tensor that the host reaches; nothing for no_tensor.
  std::span<std::byte> bytes_of(TensorId tensor) const;
  struct Validation {
    double loss = 0;                       ///< the mean over the validation data
    std::vector<ReportedMetric> reported;  ///< of tokens "perplexity" and "token_accuracy", of models with labels "accuracy" and "f1"
  };
  /// Goes through the validation data, of which each process takes a share. `after` is called after each batch; its error ends the
  /// evaluation.
  Result<Validation> evaluate(const std::function<Status(int64_t done, int64_t batches)>& after = {});
  /// Tells the session that it has done so many seconds of other work since the last step.
  void worked_aside(double seconds) { aside_ += seconds; }
  /// Returns how the labels of the last evaluation compare with those of the data; null for models without labels.
  const Scores* scores() const { return scores_ ? &*scores_ : nullptr; }
  /// Returns whether there is validation data.
  bool evaluates() const { return source_ && source_->validation_batches() > 0; }
  /// Saves a state to continue from into the folder of states, and keeps the newest `keep` of them. All processes call it: each writes the
  /// parts that it has, and all learn of an error.
  Status save(const std::filesystem::path& states, int64_t keep);
  /// Returns the results of validations so far, which states keep.
  ValidationRecord& validations() { return info_.validation; }
  /// Returns which strategy has ended the run, and why; "" if none has.
  const std::string& ended() const { return info_.ended; }
  /// Checks what must hold at the end, before anything is exported: some step was applied, and Proof::finish().
  Status finish();
  /// Returns what a person should know at the end of a run although it is no error: that the model has diverged.
  std::vector<std::string> warnings() const;
  const Proof& proof() const { return *proof_; }
  Status export_model(const std::filesystem::path& directory) { return executor_->export_model(directory); }
  /// Returns the run's processes: this one alone, if none were given.
  Party& party() { return *party_; }
  /// Checks that all processes run the same: programs, plugins, data and weights.
  Status agree();
  /// Returns what the last export has rounded.
  const std::vector<Rounded>& rounded() const { return executor_->rounded(); }

  int64_t steps_done() const { return info_.attempted; }
  int64_t steps_enqueued() const { return info_.attempted + static_cast<int64_t>(under_way_.size()); }
  const Study& study() const { return study_; }
  /// Returns the shape of the program's micro-batches.
  BatchLayout layout() const;
  /// Returns the data, for a session that was opened with some.
  Source& source() { return *source_; }
  Executor& executor() { return *executor_; }

 private:
  explicit Session(const Study& study) : study_(study) {}
  Status take();
  std::string place_of(const std::string& weight) const;
  Status check_frozen(const StateInfo& saved, const std::filesystem::path& state);
  void read_reported(int64_t applied);
  void name_rates();
  Status check_finite(const StepEvent& event) const;
  Status check_stops(const StepEvent& event);
  Status take_scores(const WindowBuffer& rows);

  struct UnderWay {
    ProofStep step;
    int64_t micro_batches = 0;
    int64_t rows_done = 0;  ///< WindowBuffer::rows_done
  };

  const Study& study_;
  std::unique_ptr<Party> alone_;
  Party* party_ = nullptr;  ///< `alone_`, or whose the run is
  std::unique_ptr<Source> source_;
  std::unique_ptr<Executor> executor_;
  std::optional<Proof> proof_;
  StateInfo info_;
  std::unique_ptr<Loader> loader_;        ///< there from the first step on
  const WindowBuffer* window_ = nullptr;  ///< the last window, which has been used up
  std::vector<UnderWay> under_way_;       ///< the oldest first
  bool taken_ = false;                    ///< the oldest one has been read back
  std::vector<ReportedMetric> reported_;  ///< the metrics of the last step
  struct Rate {
    const ScalarSlot* slot;
    std::string name;  ///< the metric's name, if there are several rates
  };
  std::vector<Rate> rates_;
  /// Losses of the steps of this process: how many, the first ones and the last ones.
  struct Losses {
    static constexpr int64_t most = 20;
    int64_t count = 0;
    std::array<double, most> first = {}, last = {};
    void add(double loss);
    /// Returns the mean of the first `n`, and of the last.
    std::pair<double, double> means(int64_t n) const;
  } losses_;
  std::optional<Scores> scores_;      ///< given if the program keeps the head's output for each row
  std::vector<std::byte> head_made_;  ///< the head's output for a batch
  std::vector<float> logits_;
  bool saved_ = false;  ///< there is a state to continue from
  double last_ = 0;     ///< the time at which the step before ended
  double aside_ = 0;    ///< seconds of validation and saving since then
};

}  // namespace galley
