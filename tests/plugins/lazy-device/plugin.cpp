// The device "lazy": the processor again (its target says "cpu", so that the processor's kernels run on it), but nothing runs when it is
// enqueued. All work is done inside synchronize(), each queue in its own order and never before what it waits for; beyond that the order is
// chosen to hurt:
//
//   odd synchronisations    queue 0 runs as far as it can; another queue moves only when queue 0 waits for it, and no further than it must.
//   A result that
//                           is used without waiting for its copy is not there.
//   even synchronisations   the last queue first: copies run as early as the events allow. A source that was not waited for is not written
//                           yet; memory that is reused too early is overwritten.
//
// A program whose copies and events are right gives the same bytes as on "cpu". Used by one thread.
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "../../../models/devices/cpu/arena.hpp"
#include "../../../models/devices/cpu/machine.hpp"

namespace {

using namespace galley;

struct Job {
  enum class Kind { Launch, Copy, Record, Wait } kind;
  const galley_kernel* kernel = nullptr;
  void* state = nullptr;
  galley_copy copy = {};
  uint64_t serial = 0;  // Record: its own number. Wait: of the record it waits for; 0: none was made yet, as with CUDA's events
  uint32_t source = 0;  // Wait: the queue of that record
};

constexpr uint32_t kQueues = 3;

class Device {
 public:
  void put(uint32_t queue, Job job) { queues_[queue % kQueues].push_back(std::move(job)); }

  void record(uint32_t queue, uint32_t event) {
    last_[event] = {++serial_, queue % kQueues};
    put(queue, {.kind = Job::Kind::Record, .serial = serial_});
  }
  void wait(uint32_t queue, uint32_t event) {
    const auto [serial, source] = last_[event];
    put(queue, {.kind = Job::Kind::Wait, .serial = serial, .source = source});
  }

  // What an event waits for comes to an end by itself only inside synchronize().
  void await() { synchronize(); }
  void* allocate(uint32_t memory, int64_t bytes) {
    void* arena = cpu::allocate_arena(memory == 0 ? "host" : "spill", bytes);
    arenas_[memory] = static_cast<std::byte*>(arena);
    return arena;
  }

  void synchronize() {
    const bool first_queue_first = ++synchronisations_ % 2 == 1;
    for (uint32_t k = 0; k < kQueues; ++k) {
      const uint32_t queue = first_queue_first ? k : kQueues - 1 - k;
      while (!queues_[queue].empty()) step(queue);
    }
  }

 private:
  struct Last {
    uint64_t serial = 0;
    uint32_t source = 0;
  };

  void step(uint32_t queue) {
    const Job job = queues_[queue].front();
    // What is waited for was recorded before the wait was put here, so this cannot go round in circles.
    if (job.kind == Job::Kind::Wait)
      while (job.serial > done_[job.source] && !queues_[job.source].empty()) step(job.source);
    queues_[queue].pop_front();
    if (job.kind == Job::Kind::Record) done_[queue] = job.serial;
    if (job.kind == Job::Kind::Copy)
      std::memcpy(side(job.copy.to_memory, job.copy.to_offset, job.copy.to_address),
                  side(job.copy.from_memory, job.copy.from_offset, job.copy.from_address), static_cast<size_t>(job.copy.bytes));
    if (job.kind == Job::Kind::Launch) {
      galley_error error = GALLEY_ERROR_INIT;
      galley_status status = GALLEY_OK;
      const galley_status thrown =
          sdk::guard(&error, [&] { status = job.kernel->enqueue(job.state, reinterpret_cast<galley_queue*>(&queues_[queue]), &error); });
      if (thrown != GALLEY_OK) status = thrown;
      if (status != GALLEY_OK) {
        for (auto& jobs : queues_) jobs.clear();  // what came after it would compute on nothing
        throw sdk::Failure(status, std::string("kernel '") + job.kernel->name + "': " + error.text);
      }
    }
  }

  std::byte* side(uint32_t memory, int64_t offset, const void* address) const {
    return memory == GALLEY_MEMORY_PROCESS ? static_cast<std::byte*>(const_cast<void*>(address)) : arenas_[memory] + offset;
  }

  std::byte* arenas_[2] = {};
  std::deque<Job> queues_[kQueues];
  std::map<uint32_t, Last> last_;  // of each event
  uint64_t done_[kQueues] = {};    // serial of the last record that ran, of each queue
  uint64_t serial_ = 0;
  uint64_t synchronisations_ = 0;
};

Device& of(void* device) { return *static_cast<Device*>(device); }

galley_status describe(void*, galley_target* out, galley_error* error) noexcept {
  return sdk::guard(error, [&] { cpu::describe(out); });
}
galley_status open(void*, const galley_device_options*, void** device, galley_error* error) noexcept {
  return sdk::guard(error, [&] { *device = new Device(); });
}
void close(void* device) noexcept { delete static_cast<Device*>(device); }
galley_status allocate(void* device, uint32_t memory, int64_t bytes, void** out, galley_error* error) noexcept {
  return sdk::guard(error, [&] { *out = of(device).allocate(memory, bytes); });
}
void release(void*, uint32_t, void* data, int64_t bytes) noexcept { cpu::release_arena(data, bytes); }
galley_status launch(void* device, uint32_t queue, const galley_kernel* kernel, void* state, galley_error* error) noexcept {
  return sdk::guard(error, [&] { of(device).put(queue, {.kind = Job::Kind::Launch, .kernel = kernel, .state = state}); });
}
galley_status copy(void* device, uint32_t queue, const galley_copy* copy, galley_error* error) noexcept {
  return sdk::guard(error, [&] { of(device).put(queue, {.kind = Job::Kind::Copy, .copy = sdk::read(copy)}); });
}
galley_status record(void* device, uint32_t queue, uint32_t event, galley_error* error) noexcept {
  return sdk::guard(error, [&] { of(device).record(queue, event); });
}
galley_status wait(void* device, uint32_t queue, uint32_t event, galley_error* error) noexcept {
  return sdk::guard(error, [&] { of(device).wait(queue, event); });
}
galley_status await(void* device, uint32_t, galley_error* error) noexcept {
  return sdk::guard(error, [&] { of(device).await(); });
}
galley_status synchronize(void* device, galley_error* error) noexcept {
  return sdk::guard(error, [&] { of(device).synchronize(); });
}

constexpr galley_memory_class kHost = {sizeof(galley_memory_class), 1, "host", 64, GALLEY_MEMORY_HOST_ACCESS | GALLEY_MEMORY_COMPUTES};
constexpr galley_memory_class kSpill = {sizeof(galley_memory_class), 1, "spill", 64, GALLEY_MEMORY_HOST_ACCESS};
constexpr const galley_memory_class* kMemories[] = {&kHost, &kSpill};
constexpr galley_queue_info kCompute = {sizeof(galley_queue_info), 1, GALLEY_QUEUE_COMPUTE, 0, 0};
constexpr galley_queue_info kIn = {sizeof(galley_queue_info), 1, GALLEY_QUEUE_IN, 0, 0};
constexpr galley_queue_info kOut = {sizeof(galley_queue_info), 1, GALLEY_QUEUE_OUT, 0, 0};
constexpr const galley_queue_info* kQueueInfos[] = {&kCompute, &kIn, &kOut};
const galley_device kDevice = [] {
  galley_device d = sdk::fresh<galley_device>();
  d.kind = "lazy";
  d.memories = kMemories;
  d.queues = kQueueInfos;
  d.n_memories = 2;
  d.n_queues = kQueues;
  d.describe = describe;
  d.open = open;
  d.close = close;
  d.allocate = allocate;
  d.release = release;
  d.launch = launch;
  d.copy = copy;
  d.record = record;
  d.wait = wait;
  d.await = await;
  d.synchronize = synchronize;
  return d;
}();
const bool registered = sdk::add(&kDevice);

}  // namespace

GALLEY_PLUGIN("lazy-device", "1.0.0");
