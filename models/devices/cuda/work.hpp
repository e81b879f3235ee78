// The streams of a GPU after the queues of galley/device.h, its events, and what is captured.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "machine.hpp"

/// A captured sequence: a graph that queue 0 launches.
struct galley_capture {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  cudaEvent_t done = nullptr;      ///< after each launch of it
  std::vector<uint32_t> recorded;  ///< events that it records
  std::vector<uint32_t> awaited;   ///< events that it waits for and does not record before
  ~galley_capture();
};

namespace galley::cuda {

inline constexpr uint32_t kQueues = 4;  ///< compute, copies in, copies out, exchanges
inline constexpr uint32_t kExchangeQueue = 3;
inline constexpr uint32_t kClasses = 2;
inline constexpr const char* kClassNames[kClasses] = {"device", "pinned"};

/// GALLEY_CUDA_SYNC=1: the host waits after each launch and nothing is captured, so that an error is found where it happens.
bool synchronous();

/// One thread at a time. Throws sdk::Failure with the name of the call that failed; errors of work that was enqueued before come out of any
/// later call.
class Device {
 public:
  /// `isa`: of this GPU. A plan for another one is refused.
  Device(const galley_device_options& options, const std::string& isa);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  void* allocate(uint32_t memory, int64_t bytes);
  void release(uint32_t memory) noexcept;
  void launch(uint32_t queue, const galley_kernel& kernel, void* state);
  void copy(uint32_t queue, const galley_copy& copy);
  void record(uint32_t queue, uint32_t event);
  void wait(uint32_t queue, uint32_t event);
  void await(uint32_t event);
  void synchronize();
  void capture();
  std::unique_ptr<galley_capture> end_capture();
  void replay(const galley_capture& run);
  void mark(uint32_t queue, uint32_t mark);
  double time(uint32_t mark);
  /// Of the GPU's memory: by all processes, and all there is.
  void usage(int64_t* taken, int64_t* capacity);
  cudaStream_t stream(uint32_t queue) const;

 private:
  struct Capture {
    std::vector<bool> recorded;  ///< by event
    std::unique_ptr<galley_capture> run;
  };
  void* side(uint32_t memory, int64_t offset, const void* address) const;
  void check_event(uint32_t event) const;
  /// Makes stream `to` wait for what is on stream `from` now.
  void join(uint32_t from, uint32_t to);
  void destroy() noexcept;

  cudaStream_t streams_[kQueues] = {};
  cudaEvent_t joins_[kQueues] = {};
  std::vector<cudaEvent_t> events_;  ///< by number; 0 is not used
  /// The same within captures: an event that was recorded in one can be waited for in no other place, also if the capture came to nothing.
  std::vector<cudaEvent_t> captured_;
  std::vector<cudaEvent_t> marks_;  ///< with times
  std::vector<cudaEvent_t> last_;   ///< what to wait for: the event itself, or the end of the replay that recorded it; null: never recorded
  std::unique_ptr<Capture> capture_;
  char* arenas_[kClasses] = {};
  const bool synchronous_ = synchronous();
};

/// The functions of a device whose handle is a Device, with its memories and queues; without `kind`, `describe` and `open`.
galley_device device_table();

}  // namespace galley::cuda
