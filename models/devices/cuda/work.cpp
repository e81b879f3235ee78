#include "work.hpp"

#include <cstdlib>

#include "../../cuda/library.hpp"

galley_capture::~galley_capture() {
  if (executable) (void)cudaGraphExecDestroy(executable);
  if (graph) (void)cudaGraphDestroy(graph);
  if (done) (void)cudaEventDestroy(done);
}

namespace galley::cuda {

bool synchronous() {
  const char* const text = std::getenv("GALLEY_CUDA_SYNC");
  return text && std::string(text) == "1";
}

namespace {

/// "12.3 GiB", "0.4 MiB"
std::string size_text(size_t bytes) {
  const unsigned shift = bytes >> 30 ? 30 : 20;
  const size_t tenths = (bytes * 10 + (size_t{1} << (shift - 1))) >> shift;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + (shift == 30 ? " GiB" : " MiB");
}

}  // namespace

Device::Device(const galley_device_options& options, const std::string& isa) {
  const std::string wanted = options.target && options.target->isa ? options.target->isa : "";
  if (options.target && !galley_same_text(options.target->device, "cuda"))
    sdk::invalid(std::string("this is the device 'cuda'; the target is for '") + options.target->device + "'");
  if (wanted != isa)
    throw sdk::Failure(GALLEY_INVALID, "the plan is for " + wanted + ", and this GPU is " + isa,
                       "plan for this machine: leave out --target");
  if (!library_version(*options.target, "cublaslt") && sdk::host())
    sdk::host()->log(sdk::host()->context, GALLEY_LOG_WARNING,
                     "cuBLASLt was not found: matrix products are Galley's own, without tensor cores; install libcublas, or name it by "
                     "GALLEY_CUBLASLT=FILE");
  try {
    const uint32_t index = GALLEY_HAS(&options, galley_device_options, index) ? options.index : 0;
    int devices = 0;
    check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    // A process of several may see its own GPU alone (CUDA_VISIBLE_DEVICES).
    if (devices > 1 && index >= static_cast<uint32_t>(devices))
      throw sdk::Failure(GALLEY_INVALID, "GPU " + std::to_string(index) + " is asked for, and " + std::to_string(devices) + " are seen",
                         "start at most as many processes on a machine as it has GPUs");
    check(cudaSetDevice(devices == 1 ? 0 : static_cast<int>(index)), "cudaSetDevice");
    int lowest = 0, highest = 0;
    check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
    // Exchanges have to get multiprocessors while kernels that fill the GPU are running: other processes wait for them.
    for (uint32_t queue = 0; queue < kQueues; ++queue)
      check(cudaStreamCreateWithPriority(&streams_[queue], cudaStreamNonBlocking, queue == kExchangeQueue ? highest : lowest),
            "cudaStreamCreateWithPriority");
    for (cudaEvent_t& event : joins_) check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    events_.resize(options.n_events + size_t{1});
    last_.resize(events_.size());
    captured_.resize(events_.size());
    for (std::vector<cudaEvent_t>* events : {&events_, &captured_})
      for (size_t i = 1; i < events->size(); ++i)
        check(cudaEventCreateWithFlags(&(*events)[i], cudaEventDisableTiming), "cudaEventCreateWithFlags");
    marks_.resize(GALLEY_HAS(&options, galley_device_options, n_marks) ? options.n_marks : 0);
    for (cudaEvent_t& mark : marks_) check(cudaEventCreate(&mark), "cudaEventCreate");
  } catch (...) {
    destroy();
    throw;
  }
}

Device::~Device() { destroy(); }

void Device::destroy() noexcept {
  capture_.reset();
  for (const std::vector<cudaEvent_t>* events : {&events_, &captured_, &marks_})
    for (cudaEvent_t event : *events)
      if (event) (void)cudaEventDestroy(event);
  for (cudaEvent_t event : joins_)
    if (event) (void)cudaEventDestroy(event);
  for (cudaStream_t stream : streams_)
    if (stream) (void)cudaStreamDestroy(stream);
}

void* Device::allocate(uint32_t memory, int64_t bytes) {
  if (memory >= kClasses || bytes <= 0)
    sdk::invalid("memory class " + std::to_string(memory) + ", " + std::to_string(bytes) + " bytes: there is no such arena");
  void* data = nullptr;
  const auto size = static_cast<size_t>(bytes);
  const cudaError_t status = memory == 0 ? cudaMalloc(&data, size) : cudaHostAlloc(&data, size, cudaHostAllocPortable);
  if (status == cudaErrorMemoryAllocation && memory == 0) {
    (void)cudaGetLastError();
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    throw sdk::Failure(
        GALLEY_FAILED,
        "cudaMalloc: " + size_text(size) + " are asked for; " + size_text(free) + " of the GPU's " + size_text(total) + " are free",
        "`nvidia-smi` shows the processes that hold the rest");
  }
  check(status, memory == 0 ? "cudaMalloc" : "cudaHostAlloc");
  arenas_[memory] = static_cast<char*>(data);
  return data;
}

void Device::release(uint32_t memory) noexcept {
  if (memory >= kClasses || !arenas_[memory]) return;
  (void)(memory == 0 ? cudaFree(arenas_[memory]) : cudaFreeHost(arenas_[memory]));
  arenas_[memory] = nullptr;
}

cudaStream_t Device::stream(uint32_t queue) const {
  if (queue >= kQueues) sdk::invalid("there is no queue " + std::to_string(queue));
  return streams_[queue];
}

void Device::launch(uint32_t queue, const galley_kernel& kernel, void* state) {
  galley_error error = GALLEY_ERROR_INIT;
  const galley_status status = kernel.enqueue(state, reinterpret_cast<galley_queue*>(stream(queue)), &error);
  if (status != GALLEY_OK) throw sdk::Failure(status, std::string("kernel '") + kernel.name + "': " + error.text, error.hint);
  if (synchronous_) check(cudaStreamSynchronize(stream(queue)), "cudaStreamSynchronize");
}

void* Device::side(uint32_t memory, int64_t offset, const void* address) const {
  if (memory == GALLEY_MEMORY_PROCESS) return const_cast<void*>(address);
  if (memory >= kClasses || !arenas_[memory]) sdk::invalid("a copy names memory class " + std::to_string(memory) + ", which has no arena");
  return arenas_[memory] + offset;
}

void Device::copy(uint32_t queue, const galley_copy& copy) {
  check(cudaMemcpyAsync(side(copy.to_memory, copy.to_offset, copy.to_address), side(copy.from_memory, copy.from_offset, copy.from_address),
                        static_cast<size_t>(copy.bytes), cudaMemcpyDefault, stream(queue)),
        "cudaMemcpyAsync");
  if (synchronous_) check(cudaStreamSynchronize(stream(queue)), "cudaStreamSynchronize");
}

void Device::check_event(uint32_t event) const {
  if (event == 0 || event >= events_.size()) sdk::invalid("there is no event " + std::to_string(event));
}

void Device::record(uint32_t queue, uint32_t event) {
  check_event(event);
  const cudaEvent_t recorded = (capture_ ? captured_ : events_)[event];
  check(cudaEventRecord(recorded, stream(queue)), "cudaEventRecord");
  if (!capture_) {
    last_[event] = recorded;
  } else if (!capture_->recorded[event]) {
    capture_->recorded[event] = true;
    capture_->run->recorded.push_back(event);
  }
}

void Device::wait(uint32_t queue, uint32_t event) {
  check_event(event);
  if (capture_ && !capture_->recorded[event]) {
    capture_->run->awaited.push_back(event);  // from outside: replay() waits for it
    return;
  }
  const cudaEvent_t last = capture_ ? captured_[event] : last_[event];
  if (last) check(cudaStreamWaitEvent(stream(queue), last, 0), "cudaStreamWaitEvent");
}

void Device::await(uint32_t event) {
  check_event(event);
  if (capture_) sdk::invalid("await cannot be captured");
  if (last_[event]) check(cudaEventSynchronize(last_[event]), "cudaEventSynchronize");
}

void Device::synchronize() {
  if (capture_) sdk::invalid("synchronize cannot be captured");
  for (cudaStream_t stream : streams_) check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

void Device::mark(uint32_t queue, uint32_t mark) {
  if (capture_) sdk::invalid("marks cannot be captured");
  check(cudaEventRecord(marks_.at(mark), stream(queue)), "cudaEventRecord");
}

double Device::time(uint32_t mark) {
  float milliseconds = 0;
  if (mark > 0) check(cudaEventElapsedTime(&milliseconds, marks_.at(0), marks_.at(mark)), "cudaEventElapsedTime");
  return 1e-3 * static_cast<double>(milliseconds);
}

void Device::usage(int64_t* taken, int64_t* capacity) {
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  *taken = static_cast<int64_t>(total - free);
  *capacity = static_cast<int64_t>(total);
}

void Device::join(uint32_t from, uint32_t to) {
  check(cudaEventRecord(joins_[from], streams_[from]), "cudaEventRecord");
  check(cudaStreamWaitEvent(streams_[to], joins_[from], 0), "cudaStreamWaitEvent");
}

void Device::capture() {
  if (capture_) sdk::invalid("a capture is under way");
  auto capture = std::make_unique<Capture>();
  capture->recorded.resize(events_.size());
  capture->run = std::make_unique<galley_capture>();
  check(cudaEventCreateWithFlags(&capture->run->done, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  // Other threads of this process may go on calling the runtime.
  check(cudaStreamBeginCapture(streams_[0], cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  capture_ = std::move(capture);
  try {
    for (uint32_t queue = 1; queue < kQueues; ++queue) join(0, queue);
  } catch (...) {
    (void)cudaStreamEndCapture(streams_[0], &capture_->run->graph);
    capture_.reset();
    throw;
  }
}

std::unique_ptr<galley_capture> Device::end_capture() {
  if (!capture_) sdk::invalid("no capture is under way");
  const std::unique_ptr<Capture> capture = std::move(capture_);
  std::string failed;
  try {
    for (uint32_t queue = 1; queue < kQueues; ++queue) join(queue, 0);
  } catch (const sdk::Failure& failure) {
    failed = failure.what();  // the capture has to be ended all the same
  }
  const cudaError_t ended = cudaStreamEndCapture(streams_[0], &capture->run->graph);
  if (!failed.empty()) throw sdk::Failure(GALLEY_FAILED, failed);
  check(ended, "cudaStreamEndCapture");
  check(cudaGraphInstantiate(&capture->run->executable, capture->run->graph, 0), "cudaGraphInstantiate");
  check(cudaGraphUpload(capture->run->executable, streams_[0]), "cudaGraphUpload");
  return std::move(capture->run);
}

void Device::replay(const galley_capture& run) {
  if (capture_) sdk::invalid("replay cannot be captured");
  for (const uint32_t event : run.awaited)
    if (last_[event]) check(cudaStreamWaitEvent(streams_[0], last_[event], 0), "cudaStreamWaitEvent");
  for (uint32_t queue = 1; queue < kQueues; ++queue) join(queue, 0);
  check(cudaGraphLaunch(run.executable, streams_[0]), "cudaGraphLaunch");
  check(cudaEventRecord(run.done, streams_[0]), "cudaEventRecord");
  for (uint32_t queue = 1; queue < kQueues; ++queue) check(cudaStreamWaitEvent(streams_[queue], run.done, 0), "cudaStreamWaitEvent");
  for (const uint32_t event : run.recorded) last_[event] = run.done;
}

}  // namespace galley::cuda
