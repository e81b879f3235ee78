// A driver of GPUs that are none, for what plugins/nccl asks of the one of NVIDIA: memory that can be touched only while a stream works, and
// streams whose work is done when they are asked for the second time. GALLEY_MOCK_GPUS says how many GPUs there are (1). What CUDA forbids
// ends the process. Source: NVIDIA, "CUDA Driver API", version 13.0.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "galley/cuda/platform.hpp"
#include "tests/gpu/nccl/nccl.hpp"

namespace {

using namespace galley::mock;

constexpr int kInvalidContext = 201, kNotReady = 600, kOutOfMemory = 2, kInvalidDevice = 101;
bool initialized = false;
int retained = 0;
thread_local void* current = nullptr;
char context;  // its address is the context

std::map<char*, size_t> blocks;
void protect(int how) {
  for (const auto& [data, bytes] : blocks) ::mprotect(data, bytes, how);
}
bool inside(const void* address) {
  const auto* const at = static_cast<const char*>(address);
  auto found = blocks.upper_bound(const_cast<char*>(at));
  return found != blocks.begin() && at < (--found)->first + found->second;
}

struct DriverStream final : galley::cuda::Queue {
  std::vector<std::function<void()>> work;
  int asked = 0;

  void put(std::function<void()> one) override {
    work.push_back(std::move(one));
    asked = 0;
  }
  void upload(void*, const void*, size_t) override { forbid("an upload by a stream of the driver"); }
  void check_argument(size_t, const void* argument, size_t) override {
    const void* address = nullptr;
    std::memcpy(&address, argument, sizeof address);
    if (!inside(address)) throw galley::sdk::Failure(GALLEY_FAILED, "an address that the driver has not given");
  }
};
std::set<DriverStream*> streams;

}  // namespace

#define CUDA_CALL extern "C" __attribute__((visibility("default")))
#define GALLEY_IN_CONTEXT()                                       \
  require(initialized, std::string(__func__) + " before cuInit"); \
  if (current != &context || !retained) return kInvalidContext

CUDA_CALL int cuInit(unsigned flags) {
  require(flags == 0, "cuInit with flags");
  if (const char* const none = std::getenv("GALLEY_MOCK_GPUS"); none && !std::strcmp(none, "none")) return 100;
  initialized = true;
  return 0;
}
CUDA_CALL int cuGetErrorName(int code, const char** out) {
  *out = code == 100               ? "CUDA_ERROR_NO_DEVICE"
         : code == kOutOfMemory    ? "CUDA_ERROR_OUT_OF_MEMORY"
         : code == kInvalidContext ? "CUDA_ERROR_INVALID_CONTEXT"
                                   : "CUDA_ERROR";
  return 0;
}
CUDA_CALL int cuDeviceGetCount(int* out) {
  const char* const count = std::getenv("GALLEY_MOCK_GPUS");
  *out = count ? std::atoi(count) : 1;
  return 0;
}
CUDA_CALL int cuDeviceGet(int* out, int number) {
  int count = 0;
  (void)cuDeviceGetCount(&count);
  *out = number;
  return number >= 0 && number < count ? 0 : kInvalidDevice;
}
CUDA_CALL int cuDevicePrimaryCtxRetain(void** out, int) {
  require(initialized, "cuDevicePrimaryCtxRetain before cuInit");
  ++retained;
  *out = &context;
  return 0;
}
CUDA_CALL int cuDevicePrimaryCtxRelease_v2(int) {
  require(--retained >= 0, "the primary context is released more often than it was retained");
  return 0;
}
CUDA_CALL int cuCtxSetCurrent(void* made) {
  require(!made || made == &context, "a context that is none");
  current = made;
  return 0;
}

CUDA_CALL int cuMemAlloc_v2(unsigned long long* out, size_t bytes) {
  GALLEY_IN_CONTEXT();
  require(bytes > 0, "cuMemAlloc of nothing");
  void* const data = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return kOutOfMemory;
  blocks[static_cast<char*>(data)] = bytes;
  *out = reinterpret_cast<unsigned long long>(data);
  return 0;
}
CUDA_CALL int cuMemFree_v2(unsigned long long address) {
  GALLEY_IN_CONTEXT();
  const auto found = blocks.find(reinterpret_cast<char*>(address));
  require(found != blocks.end(), "cuMemFree of what cuMemAlloc has not given");
  ::munmap(found->first, found->second);
  blocks.erase(found);
  return 0;
}
CUDA_CALL int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, size_t bytes, DriverStream* stream) {
  GALLEY_IN_CONTEXT();
  require(streams.contains(stream), "a copy by a stream that is not there");
  auto* const target = reinterpret_cast<char*>(to);
  require(bytes > 0 && inside(target) && inside(target + bytes - 1), "a copy to memory that cuMemAlloc has not given");
  // Memory that is not pinned is read before the call returns.
  stream->put([target, staged = std::vector<char>(static_cast<const char*>(from), static_cast<const char*>(from) + bytes)] {
    std::memcpy(target, staged.data(), staged.size());
  });
  return 0;
}
CUDA_CALL int cuMemcpyDtoH_v2(void* to, unsigned long long from, size_t bytes) {
  GALLEY_IN_CONTEXT();
  const auto* const source = reinterpret_cast<const char*>(from);
  require(bytes > 0 && inside(source) && inside(source + bytes - 1), "a copy from memory that cuMemAlloc has not given");
  for (const DriverStream* stream : streams) require(stream->work.empty(), "a copy of what a stream has yet to write");
  protect(PROT_READ | PROT_WRITE);
  std::memcpy(to, source, bytes);
  protect(PROT_NONE);
  return 0;
}

CUDA_CALL int cuStreamCreate(DriverStream** out, unsigned flags) {
  GALLEY_IN_CONTEXT();
  require(flags == 1, "a stream that waits for the default one");
  *out = *streams.insert(new DriverStream).first;
  return 0;
}
CUDA_CALL int cuStreamQuery(DriverStream* stream) {
  GALLEY_IN_CONTEXT();
  require(streams.contains(stream), "cuStreamQuery of a stream that is not there");
  if (stream->work.empty()) return 0;
  if (++stream->asked < 2) return kNotReady;
  protect(PROT_READ | PROT_WRITE);
  const auto work = std::exchange(stream->work, {});
  for (const auto& one : work) one();
  protect(PROT_NONE);
  return 0;
}
CUDA_CALL int cuStreamDestroy_v2(DriverStream* stream) {
  GALLEY_IN_CONTEXT();
  require(streams.erase(stream) == 1, "cuStreamDestroy of a stream that is not there");
  delete stream;
  return 0;
}
