#include <nvtx3/nvToolsExt.h>

#include <cstdlib>

#include "work.hpp"

namespace galley::cuda {
namespace {

Device& of(void* device) { return *static_cast<Device*>(device); }

void close(void* device) noexcept { delete &of(device); }
galley_status allocate(void* device, uint32_t memory, int64_t bytes, void** out, galley_error* error) noexcept {
  return sdk::guard(error, [&] { *out = of(device).allocate(memory, bytes); });
}
void release(void* device, uint32_t memory, void*, int64_t) noexcept { of(device).release(memory); }
galley_status launch(void* device, uint32_t queue, const galley_kernel* kernel, void* state, galley_error* error) noexcept {
  return sdk::guard(error, [&] { of(device).launch(queue, *kernel, state); });
}
galley_status copy(void* device, uint32_t queue, const galley_copy* copy, galley_error* error) noexcept {
  return sdk::guard(error, [&] { of(device).copy(queue, sdk::read(copy)); });
}
galley_status record(void* device, uint32_t queue, uint32_t event, galley_error* error) noexcept {
  return sdk::guard(error, [&] { of(device).record(queue, event); });
}
galley_status wait(void* device, uint32_t queue, uint32_t event, galley_error* error) noexcept {
  return sdk::guard(error, [&] { of(device).wait(queue, event); });
}
galley_status await(void* device, uint32_t event, galley_error* error) noexcept {
  return sdk::guard(error, [&] { of(device).await(event); });
}
galley_status synchronize(void* device, galley_error* error) noexcept {
  return sdk::guard(error, [&] { of(device).synchronize(); });
}
galley_status capture(void* device, galley_error* error) noexcept {
  return sdk::guard(error, [&] { of(device).capture(); });
}
galley_status end_capture(void* device, galley_capture** out, galley_error* error) noexcept {
  return sdk::guard(error, [&] { *out = of(device).end_capture().release(); });
}
galley_status replay(void* device, galley_capture* run, galley_error* error) noexcept {
  return sdk::guard(error, [&] { of(device).replay(*run); });
}
galley_status mark(void* device, uint32_t queue, uint32_t number, galley_error* error) noexcept {
  return sdk::guard(error, [&] { of(device).mark(queue, number); });
}
galley_status time(void* device, uint32_t number, double* seconds, galley_error* error) noexcept {
  return sdk::guard(error, [&] { *seconds = of(device).time(number); });
}
galley_status usage(void* device, uint32_t memory, int64_t* taken, int64_t* capacity, galley_error* error) noexcept {
  return memory == 0 ? sdk::guard(error, [&] { of(device).usage(taken, capacity); }) : GALLEY_UNSUPPORTED;
}
// Does next to nothing where no profiler is attached.
void name_work(void*, const char* name) noexcept {
  if (name) nvtxRangePushA(name);
  else nvtxRangePop();
}
void discard(void*, galley_capture* run) noexcept { delete run; }
galley_queue* queue_of(void* device, uint32_t queue) noexcept {
  return queue < kQueues ? reinterpret_cast<galley_queue*>(of(device).stream(queue)) : nullptr;
}

// 256 bytes are what cudaMalloc aligns to.
constexpr galley_memory_class kMemories[] = {{sizeof(galley_memory_class), 1, kClassNames[0], 256, GALLEY_MEMORY_COMPUTES},
                                             {sizeof(galley_memory_class), 1, kClassNames[1], 256, GALLEY_MEMORY_HOST_ACCESS}};
constexpr const galley_memory_class* kMemoryPointers[] = {&kMemories[0], &kMemories[1]};
constexpr galley_queue_info kCompute = {sizeof(galley_queue_info), 1, GALLEY_QUEUE_COMPUTE, 0, 0};
constexpr galley_queue_info kIn = {sizeof(galley_queue_info), 1, GALLEY_QUEUE_IN, 0, 0};
constexpr galley_queue_info kOut = {sizeof(galley_queue_info), 1, GALLEY_QUEUE_OUT, 0, 0};
constexpr galley_queue_info kExchange = {sizeof(galley_queue_info), 1, GALLEY_QUEUE_EXCHANGE, 0, 0};
constexpr const galley_queue_info* kQueueInfos[] = {&kCompute, &kIn, &kOut, &kExchange};

}  // namespace

galley_device device_table() {
  galley_device d = sdk::fresh<galley_device>();
  d.memories = kMemoryPointers;
  d.queues = kQueueInfos;
  d.n_memories = kClasses;
  d.n_queues = kQueues;
  d.close = close;
  d.allocate = allocate;
  d.release = release;
  d.launch = launch;
  d.copy = copy;
  d.record = record;
  d.wait = wait;
  d.await = await;
  d.synchronize = synchronize;
  if (!synchronous()) {
    d.capture = capture;
    d.end_capture = end_capture;
    d.replay = replay;
    d.discard = discard;
  }
  d.queue_of = queue_of;
  d.mark = mark;
  d.time = time;
  d.usage = usage;
  // Set by every profiler that reads names of work.
  if (std::getenv("NVTX_INJECTION64_PATH")) d.name_work = name_work;
  return d;
}

}  // namespace galley::cuda
