// The calls of runtime/cuda_runtime_api.h.
//
// Streams are queues (queues.hpp): nothing runs before the host waits, and then in an order that is chosen to hurt.
// Device memory is accessible while the device works and at no other time; new memory holds bytes of 0xFF. Rules that NVIDIA's
// documentation states are kept to: what a capture forbids ends it with an error, also a fork that is not joined; a captured event cannot
// be waited for outside of its capture; an error of a launch stays for all later calls. The branches of a graph have queues of their own,
// which begin after the stream that launches it and nothing else. Any number of threads may call, one at a time: also work is done by one.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "../../../models/devices/cpu/arena.hpp"
#include "galley/cuda/platform.hpp"
#include "queues.hpp"

namespace {

using galley::discrete::Queues;
using galley::discrete::Stamp;
using galley::discrete::Work;

constexpr double kLinkBandwidth = 2.5e10;  // bytes a second, of copies

/// What is done between cudaStreamBeginCapture and cudaStreamEndCapture, in the order of the calls.
struct Capture {
  struct Step {
    enum class Kind { Work, Record, Wait } kind;
    size_t branch, record;
    Work work;
  };
  bool ended = false, broken = false;
  std::thread::id thread = std::this_thread::get_id();  ///< which began it
  std::vector<Step> steps;
  size_t records = 0;
  /// For each branch, and for each record: how many steps of each branch are done before it. The first branch is the origin's.
  using Clock = std::vector<size_t>;
  std::vector<Clock> branches, recorded;
  std::vector<uint32_t> lanes;

  size_t add_branch(uint32_t lane) {
    lanes.push_back(lane);
    branches.emplace_back();
    return branches.size() - 1;
  }
  void add(size_t branch, Step step) {
    step.branch = branch;
    Clock& clock = branches[branch];
    clock.resize(branches.size());
    ++clock[branch];
    if (step.kind == Step::Kind::Record) recorded.push_back(clock);
    if (step.kind == Step::Kind::Wait) {
      const Clock& before = recorded[step.record];
      for (size_t i = 0; i < before.size(); ++i) clock[i] = std::max(clock[i], before[i]);
    }
    steps.push_back(std::move(step));
  }
  /// Whether all of it is done before the last step of the origin.
  bool joined() const {
    for (size_t b = 1; b < branches.size(); ++b)
      if (branches[0].size() <= b || branches[0][b] < branches[b][b]) return false;
    return true;
  }
};

struct Runtime {
  struct Block {
    size_t bytes;
    bool device;
  };
  std::recursive_mutex mutex;  ///< of all that follows, and of whoever works
  Queues queues;
  std::map<char*, Block> blocks;
  std::vector<CUstream_st*> streams;
  cudaError_t lost = cudaSuccess;
  std::string why;
  uint64_t waits = 0;

  void protect(int how) const noexcept {
    for (const auto& [data, block] : blocks)
      if (block.device) ::mprotect(data, block.bytes, how);
  }
  const char* place(const void* address) const {
    auto* const at = static_cast<char*>(const_cast<void*>(address));
    auto found = blocks.upper_bound(at);
    if (found == blocks.begin() || at >= (--found)->first + found->second.bytes) return "process";
    return found->second.device ? "device" : "pinned";
  }
};
Runtime& runtime() {
  static Runtime all;
  return all;
}
thread_local cudaError_t last_error = cudaSuccess;
#define GALLEY_ALONE() const std::lock_guard alone(runtime().mutex)

/// Whether a word is the address of something of this process, and not of memory that cudaMalloc or cudaHostAlloc gave. One whose lower
/// half is a small number is that number beside padding: GCC 12 leaves some at the ends of arrays' elements when it clears padding.
bool only_the_host_has(uintptr_t word) {
  constexpr uintptr_t kPage = 4096, kLowest = 1 << 16, kEnd = uintptr_t{1} << 47;
  if (static_cast<uint32_t>(word) < kLowest || word >= kEnd) return false;
  unsigned char resident;
  auto* const page = reinterpret_cast<void*>(word / kPage * kPage);
  return ::mincore(page, kPage, &resident) == 0 && std::strcmp(runtime().place(reinterpret_cast<const void*>(word)), "process") == 0;
}
void check_addresses(const std::string& what, const void* data, size_t bytes) {
  GALLEY_ALONE();
  for (size_t at = 0; at + sizeof(uintptr_t) <= bytes; at += sizeof(uintptr_t)) {
    uintptr_t word;
    std::memcpy(&word, static_cast<const char*>(data) + at, sizeof word);
    if (only_the_host_has(word))
      throw galley::sdk::Failure(GALLEY_FAILED,
                                 "emulated CUDA: " + what + " has an address of the host's memory, in byte " + std::to_string(at));
  }
}

cudaError_t say(cudaError_t status) {
  if (status != cudaSuccess) last_error = status;
  return status;
}
int setting(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}
constexpr int kVersion = 13000;  // of the runtime
/// Whether a call can be made at all.
cudaError_t usable() {
  if (setting("GALLEY_EMULATED_DRIVER", kVersion) < kVersion) return say(cudaErrorInsufficientDriver);
  return say(runtime().lost);
}
#define GALLEY_USABLE() \
  GALLEY_ALONE();       \
  if (const cudaError_t unusable = usable(); unusable != cudaSuccess) return unusable

/// Work that the host waits for. At every second time the device is quick with everything else, too.
template <class Finish>
cudaError_t work_off(const Finish& finish) {
  Runtime& r = runtime();
  r.protect(PROT_READ | PROT_WRITE);
  try {
    if (++r.waits % 2 == 0) r.queues.hurry();
    finish(r.queues);
  } catch (const std::exception& failure) {
    r.why = failure.what();
    r.lost = cudaErrorLaunchFailure;
  }
  r.protect(PROT_NONE);
  return say(r.lost);
}

}  // namespace

struct CUevent_st {
  bool timed;
  Stamp stamp;
  std::shared_ptr<Capture> capture;  ///< in which it was last recorded; null: in none
  size_t record = 0;
};

struct CUstream_st final : galley::cuda::Queue {
  uint32_t queue = 0;
  std::shared_ptr<Capture> capture;
  size_t branch = 0;

  void add(Work work) {
    GALLEY_ALONE();
    if (capture) capture->add(branch, {Capture::Step::Kind::Work, 0, 0, std::move(work)});
    else runtime().queues.put(queue, std::move(work));
  }
  void put(std::function<void()> work) override { add({"kernel", std::move(work)}); }
  void check_argument(size_t number, const void* argument, size_t bytes) override {
    check_addresses("argument " + std::to_string(number) + " of a launch", argument, bytes);
  }
  void upload(void* to, const void* from, size_t bytes) override {
    check_addresses("an upload", from, bytes);
    add({"upload", [=] { std::memcpy(to, from, bytes); }});
    const cudaError_t status = cudaStreamSynchronize(this);
    if (status != cudaSuccess) throw galley::sdk::Failure(GALLEY_FAILED, cudaGetErrorString(status));
  }
};

struct CUgraph_st {
  Capture capture;
};
struct CUgraphExec_st {
  Capture capture;
  std::vector<uint32_t> queues;  ///< of its branches
};

namespace {

/// Calls that a capture which this thread began forbids.
cudaError_t refuse_in_capture() {
  for (CUstream_st* stream : runtime().streams)
    if (stream->capture && stream->capture->thread == std::this_thread::get_id()) {
      stream->capture->broken = true;
      return say(cudaErrorStreamCaptureUnsupported);
    }
  return cudaSuccess;
}
#define GALLEY_NOT_IN_CAPTURE() \
  if (const cudaError_t refused = refuse_in_capture(); refused != cudaSuccess) return refused

size_t total_bytes() {
  static const auto at_first = static_cast<size_t>(galley::cpu::available_bytes());
  return at_first;
}

cudaError_t allocate(void** out, size_t bytes, bool device) {
  try {
    Runtime& r = runtime();
    auto* const data = static_cast<char*>(galley::cpu::allocate_arena(device ? "device" : "pinned", static_cast<int64_t>(bytes)));
    std::memset(data, 0xFF, bytes);
    r.blocks[data] = {bytes, device};
    r.protect(PROT_NONE);
    *out = data;
    return cudaSuccess;
  } catch (const std::exception&) {
    return say(cudaErrorMemoryAllocation);
  }
}
cudaError_t release(void* data) {
  const auto found = runtime().blocks.find(static_cast<char*>(data));
  if (found == runtime().blocks.end()) return say(cudaErrorInvalidValue);
  galley::cpu::release_arena(data, static_cast<int64_t>(found->second.bytes));
  runtime().blocks.erase(found);
  return cudaSuccess;
}

}  // namespace

// ---- Errors ---------------------------------------------------------------------------------------------------------------------------

const char* cudaGetErrorName(cudaError_t status) {
  switch (status) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInitializationError: return "cudaErrorInitializationError";
    case cudaErrorInsufficientDriver: return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
    case cudaErrorAssert: return "cudaErrorAssert";
    case cudaErrorMisalignedAddress: return "cudaErrorMisalignedAddress";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureMerge: return "cudaErrorStreamCaptureMerge";
    case cudaErrorStreamCaptureUnjoined: return "cudaErrorStreamCaptureUnjoined";
    case cudaErrorStreamCaptureIsolation: return "cudaErrorStreamCaptureIsolation";
    case cudaErrorCapturedEvent: return "cudaErrorCapturedEvent";
  }
  return "unknown";
}
const char* cudaGetErrorString(cudaError_t status) {
  if (status == cudaErrorLaunchFailure && !runtime().why.empty()) return runtime().why.c_str();
  return status == cudaErrorInsufficientDriver ? "there is no driver here" : "an error of the emulated GPU's runtime";
}
cudaError_t cudaGetLastError() {
  GALLEY_ALONE();
  return std::exchange(last_error, runtime().lost);
}

// Neither of them needs a driver.
cudaError_t cudaDriverGetVersion(int* out) {
  *out = setting("GALLEY_EMULATED_DRIVER", kVersion);
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* out) {
  *out = kVersion;
  return cudaSuccess;
}

// ---- The GPU --------------------------------------------------------------------------------------------------------------------------

cudaError_t cudaGetDeviceCount(int* out) {
  GALLEY_USABLE();
  *out = setting("GALLEY_EMULATED_DEVICES", 1);
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int) {
  GALLEY_USABLE();
  *out = {};
  std::strcpy(out->name, "an emulated GPU");
  const int capability = setting("GALLEY_EMULATED_CAPABILITY", 80);
  out->major = capability / 10;
  out->minor = capability % 10;
  out->multiProcessorCount = 4;
  out->totalGlobalMem = total_bytes();
  out->sharedMemPerBlockOptin = 99 << 10;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* out, cudaDeviceAttr attribute, int) {
  GALLEY_USABLE();
  cudaDeviceProp properties;
  if (const cudaError_t status = cudaGetDeviceProperties(&properties, 0); status != cudaSuccess) return status;
  switch (attribute) {
    case cudaDevAttrClockRate:
    case cudaDevAttrMemoryClockRate: *out = setting("GALLEY_EMULATED_CLOCK", 1'000'000); break;
    case cudaDevAttrGlobalMemoryBusWidth: *out = 1024; break;
    case cudaDevAttrComputeCapabilityMajor: *out = properties.major; break;
    case cudaDevAttrComputeCapabilityMinor: *out = properties.minor; break;
  }
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  GALLEY_USABLE();
  return device >= 0 && device < setting("GALLEY_EMULATED_DEVICES", 1) ? cudaSuccess : say(cudaErrorInvalidValue);
}

// ---- Memory ---------------------------------------------------------------------------------------------------------------------------

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  GALLEY_USABLE();
  *total = total_bytes();
  const char* left = std::getenv("GALLEY_EMULATED_FREE");
  *free = left ? std::min<size_t>(*total, std::strtoull(left, nullptr, 10)) : *total;
  for (const auto& [data, block] : runtime().blocks)
    if (block.device) *free -= std::min(*free, block.bytes);
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** out, size_t bytes) {
  GALLEY_USABLE();
  GALLEY_NOT_IN_CAPTURE();
  size_t free = 0, total = 0;
  (void)cudaMemGetInfo(&free, &total);
  return bytes > free ? say(cudaErrorMemoryAllocation) : allocate(out, bytes, true);
}
cudaError_t cudaHostAlloc(void** out, size_t bytes, unsigned) {
  GALLEY_USABLE();
  GALLEY_NOT_IN_CAPTURE();
  return allocate(out, bytes, false);
}
cudaError_t cudaFree(void* data) {
  GALLEY_ALONE();
  GALLEY_NOT_IN_CAPTURE();
  return release(data);
}
cudaError_t cudaFreeHost(void* data) {
  GALLEY_ALONE();
  GALLEY_NOT_IN_CAPTURE();
  return release(data);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  GALLEY_USABLE();
  const std::string source = runtime().place(from), target = runtime().place(to);
  const bool link = source == "pinned" || target == "pinned";
  stream->add({"copy " + source + " to " + target, [=] { std::memmove(to, from, bytes); },
               link ? static_cast<double>(bytes) / kLinkBandwidth : 0.0});
  return cudaSuccess;
}

// ---- Streams and events ---------------------------------------------------------------------------------------------------------------

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned) {
  GALLEY_USABLE();
  Runtime& r = runtime();
  *out = new CUstream_st;
  (*out)->queue = r.queues.add_queue(static_cast<uint32_t>(r.streams.size()));
  r.streams.push_back(*out);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned flags, int) { return cudaStreamCreateWithFlags(out, flags); }
cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = 0;
  *highest = -5;  // as GPUs have it
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  GALLEY_ALONE();
  std::erase(runtime().streams, stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  GALLEY_USABLE();
  if (stream->capture) {
    stream->capture->broken = true;
    return say(cudaErrorStreamCaptureUnsupported);
  }
  return work_off([&](Queues& queues) { queues.finish(stream->queue); });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  GALLEY_USABLE();
  if (event->capture) {
    if (event->capture->ended) return say(cudaErrorCapturedEvent);
    if (!stream->capture) {
      stream->capture = event->capture;
      stream->branch = event->capture->add_branch(stream->queue);
    }
    if (stream->capture != event->capture) return say(cudaErrorStreamCaptureMerge);
    stream->capture->add(stream->branch, {Capture::Step::Kind::Wait, 0, event->record, {}});
    return cudaSuccess;
  }
  if (!event->stamp) return cudaSuccess;
  if (stream->capture) {
    stream->capture->broken = true;
    return say(cudaErrorStreamCaptureIsolation);
  }
  runtime().queues.wait(stream->queue, event->stamp);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
  GALLEY_USABLE();
  *out = new CUevent_st{!(flags & cudaEventDisableTiming), nullptr, nullptr};
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* out) { return cudaEventCreateWithFlags(out, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  GALLEY_USABLE();
  event->capture = stream->capture;
  event->stamp = nullptr;
  if (stream->capture) {
    event->record = stream->capture->records++;
    stream->capture->add(stream->branch, {Capture::Step::Kind::Record, 0, event->record, {}});
  } else {
    event->stamp = runtime().queues.record(stream->queue);
  }
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  GALLEY_USABLE();
  if (event->capture) return say(cudaErrorCapturedEvent);
  return work_off([&](Queues& queues) { queues.finish(event->stamp); });
}
cudaError_t cudaEventElapsedTime(float* out, cudaEvent_t begin, cudaEvent_t end) {
  GALLEY_USABLE();
  if (!begin->timed || !end->timed || !begin->stamp || !end->stamp) return say(cudaErrorInvalidValue);
  if (!begin->stamp->over || !end->stamp->over) return say(cudaErrorNotReady);
  *out = static_cast<float>(1e3 * (end->stamp->time - begin->stamp->time));
  return cudaSuccess;
}

// ---- Graphs ---------------------------------------------------------------------------------------------------------------------------

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  GALLEY_USABLE();
  if (stream->capture) return say(cudaErrorInvalidValue);
  stream->capture = std::make_shared<Capture>();
  stream->branch = stream->capture->add_branch(stream->queue);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* out) {
  GALLEY_ALONE();
  if (!stream->capture || stream->branch != 0) return say(cudaErrorInvalidValue);
  const std::shared_ptr<Capture> capture = stream->capture;
  for (CUstream_st* other : runtime().streams)
    if (other->capture == capture) other->capture = nullptr;
  capture->ended = true;
  if (const cudaError_t unusable = usable(); unusable != cudaSuccess) return unusable;
  if (capture->broken || setting("GALLEY_EMULATED_CAPTURE", 1) == 0) return say(cudaErrorStreamCaptureInvalidated);
  if (!capture->joined()) return say(cudaErrorStreamCaptureUnjoined);
  *out = new CUgraph_st{*capture};
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long) {
  GALLEY_USABLE();
  *out = new CUgraphExec_st{graph->capture, {}};
  for (const uint32_t lane : graph->capture.lanes) (*out)->queues.push_back(runtime().queues.add_queue(lane));
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return usable(); }
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  GALLEY_USABLE();
  if (stream->capture) return say(cudaErrorStreamCaptureUnsupported);
  Queues& queues = runtime().queues;
  const Stamp begin = queues.record(stream->queue);
  for (const uint32_t queue : graph->queues) queues.wait(queue, begin);
  std::vector<Stamp> records(graph->capture.records);
  for (const Capture::Step& step : graph->capture.steps) {
    const uint32_t queue = graph->queues[step.branch];
    switch (step.kind) {
      case Capture::Step::Kind::Work: queues.put(queue, step.work); break;
      case Capture::Step::Kind::Record: records[step.record] = queues.record(queue); break;
      case Capture::Step::Kind::Wait: queues.wait(queue, records[step.record]); break;
    }
  }
  for (const uint32_t queue : graph->queues) queues.wait(stream->queue, queues.record(queue));
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph;
  return cudaSuccess;
}
