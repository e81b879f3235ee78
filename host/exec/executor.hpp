// The executor: runs the segments of a program on a device, in memory that the plan laid out.
//
//   create ─▶ load ─▶ for each step { begin_step · for each micro-batch { copy_inputs · run_micro }
//                                           · run_update } · await_update ─▶ export_model
//
// Work on one queue runs in order, and across queues only Record and Wait order it. A Copy with an event records it after itself; it does
// not wait for what other queues wrote before. The host does Read, Write and launches on the host itself, after everything before them.
//
// If a device can capture, a segment is captured the second time that it runs, and replayed from then on. What cannot be captured (a kernel
// that says so, files) runs between two replays. Nothing is captured while somebody watches (watch.hpp), nor while a profiler wants to know
// what runs.
//
// Running load, micro, update, eval or sample allocates nothing in the host, unless it fails, captures or reads files. One thread calls all
// functions. After an error the run is over: the contents of tensors are not known, and only destruction and reading are safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "host/base/result.hpp"
#include "host/exec/choices.hpp"
#include "host/exec/export.hpp"
#include "host/exec/machine.hpp"
#include "host/exec/scalars.hpp"
#include "host/exec/together.hpp"
#include "host/exec/views.hpp"
#include "host/exec/watch.hpp"
#include "host/exec/weights.hpp"

namespace galley {

/// The time at which an instruction of a segment ran on the device.
struct TimedInstruction {
  SegmentKind segment = SegmentKind::Load;
  uint32_t instruction = 0;  ///< index in the segment
  uint32_t queue = 0;
  double begin = 0, end = 0;  ///< seconds from the segment's begin
};
/// Receives the times of a segment that has run: those of its launches and copies, in the order of the program.
using TimedSegment = std::function<void(std::span<const TimedInstruction>)>;

struct ExecutorOptions {
  Watching watching = {};
  /// If given, window, micro, update and eval are timed, instruction by instruction. Then nothing is captured, and each segment waits for
  /// the one before it.
  TimedSegment timed = {};
  Choices* choices = nullptr;  ///< if given, kernels may measure, and their choices are kept there
  /// If given, is called after each instruction of `load`. Its error ends the loading.
  std::function<Status(int64_t done, int64_t all)> loading = {};
  int64_t shift = 0;   ///< see Machine::open()
  uint32_t index = 0;  ///< which of the machine's devices of this kind
  /// If given, is called before each launch that may wait for other processes.
  std::function<void(const std::string& what)> exchanging = {};
  Together together = {};
  void* ranks = nullptr;  ///< what kernels of exchanges find in galley_kernel_setup.ranks; null: one process
};

class Executor {
 public:
  /// Opens the device, allocates one arena for each memory class and prepares every kernel. A kernel of `micro` is prepared twice if later
  /// micro-batches add to what the first one writes. All arguments but `options` must outlive the executor, and not change or move. A
  /// kernel that cannot be prepared is exit code Plugin.
  static Result<std::unique_ptr<Executor>> create(const Program& program, const Plan& plan, const Target& target,
                                                  const galley_device& device, const ExecutorOptions& options = {});
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Runs `load`: reads weights from their files, runs initializers, packs. check_files() must have checked the files before.
  Status load();

  /// Writes what the host knows of a step, without running anything: for eval and sample. The device must have taken what was written
  /// before.
  void tell(const StepBegin& begin) { scalars_.tell(begin); }
  /// Writes what the host knows of a step, and runs `window`.
  Status begin_step(const StepBegin& begin);
  /// Copies a micro-batch from Program::window into Program::inputs: one offset for each, in their order. Stream-ordered: the window must
  /// not change before synchronize().
  Status copy_inputs(std::span<const int64_t> offsets);
  /// Runs `micro` for a micro-batch at this place of the window (Program::each_micro_batch).
  Status run_micro(const MicroPlace& place) { return run_segment(SegmentKind::Micro, place, nullptr); }
  Status run_update() { return run(SegmentKind::Update); }
  /// Runs any segment that is neither `micro` nor `export`: eval, sample.
  Status run(SegmentKind kind);
  /// Runs `export`, and leaves its files and documents below `run_directory` if this process leads. Where `export` exchanges parts of
  /// tensors, all processes call it.
  Status export_model(const std::filesystem::path& run_directory);
  /// Returns what the last export has rounded.
  const std::vector<Rounded>& rounded() const { return rounded_; }
  /// Returns the checksums of the files that it has written: Exporter::checksums().
  const std::map<std::string, uint64_t>& exported() const { return exported_; }
  /// Returns when all enqueued work is done, and reports its errors at the latest.
  Status synchronize();
  const Together& together() const { return together_; }

  /// Waits until the last update is done, and keeps the numbers that it has read back.
  Status await_update();
  /// Waits for everything, and keeps the numbers that were read back.
  Status read_back();
  /// Return a number that was kept: a step scalar (GALLEY_SCALAR_…), or any number of the readback.
  double scalar(uint32_t which) const { return scalars_.at(which); }
  double number(const Operand& number) const { return scalars_.at(number); }

  /// Returns where the host reads and writes the tensor directly, while nothing enqueued uses it; null if it cannot reach its class.
  std::byte* address(TensorId tensor) const { return machine_->host_address(tensor); }
  /// Returns the bytes that were asked of the device for a memory class: as many as the plan says.
  int64_t allocated(size_t memory) const { return machine_->allocated(memory); }

  /// Returns the use of the class that computes as the system sees it, all processes counted; nothing if the system does not say.
  Result<std::optional<MemoryUse>> usage() { return machine_->usage(0); }

  Machine& machine() { return *machine_; }
  const Program& program() const { return program_; }
  const Plan& plan() const { return plan_; }

 private:
  /// An instruction that is ready to run.
  struct Prepared {
    Action action = Action::Launch;
    uint32_t queue = 0;
    uint32_t event = 0;
    const galley_kernel* kernel = nullptr;
    Caller caller;          ///< the kernel's
    std::string name;       ///< for profilers
    void* first = nullptr;  ///< prepared states, for the first micro-batch and for later ones
    void* later = nullptr;
    galley_copy copy = {};  ///< Copy
  };

  Executor(const Program& program, const Plan& plan, const Target& target, std::unique_ptr<Machine> machine,
           const ExecutorOptions& options);
  Status prepare();
  Result<void*> prepare(const Instruction& code, const galley_node_view* const* nodes, uint32_t n);
  /// A stretch of a segment that can be captured as a whole, or not at all.
  struct Stretch {
    size_t begin = 0, end = 0;
    bool capturable = false;
    galley_capture* run = nullptr;  ///< once it is captured
  };
  /// The state of a segment that runs often, at equal places: how often it has run, and its stretches.
  struct Course {
    int64_t runs = 0;
    std::vector<Stretch> stretches;
  };

  Status run_segment(SegmentKind kind, const MicroPlace& place, Exporter* exporter);
  Status run_timed(SegmentKind kind, const MicroPlace& place, WeightFiles& files);
  Status run_one(SegmentKind kind, size_t index, const MicroPlace& place, WeightFiles& files, Exporter* exporter);
  Status watched(size_t watch, const Instruction& code, bool later, const std::function<Status()>& body);
  Status run_range(SegmentKind kind, size_t begin, size_t end, const MicroPlace& place, WeightFiles& files, Exporter* exporter);
  std::vector<Stretch> stretches_of(SegmentKind kind) const;
  Status enqueue(const Prepared& prepared, const Instruction& code, bool later, WeightFiles& files, Exporter* exporter);
  Course& course_of(SegmentKind kind, const MicroPlace& place);
  /// Waits for an event, or for everything if it is 0.
  Status await(uint32_t event);
  Error located(Error error, SegmentKind kind, size_t index) const;

  const Program& program_;
  const Plan& plan_;
  const TargetView target_, host_;
  std::unique_ptr<Machine> machine_;
  NodeViews views_;
  Scalars scalars_;
  std::vector<std::unique_ptr<Watch>> watches_;
  std::vector<Rounded> rounded_;
  std::map<std::string, uint64_t> exported_;
  const Together together_;
  void* const ranks_;
  const std::function<void(const std::string& what)> exchanging_;
  Choices* const choices_;  ///< null: kernels do not measure
  const TimedSegment timed_;
  const std::function<Status(int64_t done, int64_t all)> loading_;
  std::vector<TimedInstruction> times_;
  const uint32_t image_event_, readback_event_;  ///< recorded when the image has been taken, and when the block has been read back
  bool began_ = false;                           ///< a step has begun
  std::array<std::vector<Prepared>, segment_count> prepared_;
  std::array<std::array<Course, 8>, segment_count> courses_;  ///< by what a place means for the program
};

}  // namespace galley
