// NVIDIA's NCCL and the driver of its GPUs, opened when ranks are: the plugin loads and plans on machines that have neither. What is used of
// them is declared here as nccl.h (2.19 and later) and cuda.h have it, so that the plugin is built on machines without these headers;
// tests/gpu/nccl compares with them.
#pragma once

#include <dlfcn.h>

#include <climits>
#include <cstdlib>
#include <string>

#include "galley/cpp/node.hpp"

namespace galley::nccl {

/// A library that is there as long as the process. Any number of threads may call it.
class Opened {
 public:
  /// `variable`: of the environment, which has the path of another file. Throws if there is none.
  Opened(const char* what, const char* variable, const char* file, const char* hint) : hint_(hint) {
    const char* const given = variable ? std::getenv(variable) : nullptr;
    path_ = given ? given : file;
    address_ = ::dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (address_) return;
    const char* said = ::dlerror();
    throw sdk::Failure(GALLEY_FAILED, std::string(what) + " cannot be opened: " + (said ? said : path_), hint_);
  }
  template <class T>
  T* symbol(const char* name) const {
    void* const found = ::dlsym(address_, name);
    if (!found) throw sdk::Failure(GALLEY_FAILED, path_ + " has no " + name, hint_);
    return reinterpret_cast<T*>(found);
  }
  const std::string& path() const { return path_; }

 private:
  void* address_ = nullptr;
  std::string path_, hint_;
};

#define GALLEY_NCCL_CALL(member, name, ...) int (*const member)(__VA_ARGS__) = opened_.symbol<int(__VA_ARGS__)>(#name)

// ---- NCCL -----------------------------------------------------------------------------------------------------------------------------

using Comm = void*;    ///< ncclComm_t
using Stream = void*;  ///< cudaStream_t, CUstream

/// ncclUniqueId: what the processes of a communicator have in common.
struct UniqueId {
  char bytes[128];
};

/// ncclConfig_t, as version 2.19 has it: later ones read as much of it as the version says.
struct Config {
  static constexpr int kUndefined = INT_MIN;
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef, version = 21900;
  int blocking = kUndefined, cga_cluster_size = kUndefined, min_ctas = kUndefined, max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
};

inline constexpr int kLeastVersion = 21900;
inline constexpr int kSuccess = 0, kSystemError = 2, kRemoteError = 6, kInProgress = 7;  // ncclResult_t
inline constexpr int kUint8 = 1;                                                         // ncclDataType_t

class Library {
  Opened opened_{"NCCL", "GALLEY_NCCL", "libnccl.so.2",
                 "install NCCL 2.19 or later (libnccl2), add the folder of its libnccl.so.2 to LD_LIBRARY_PATH, or name it by "
                 "GALLEY_NCCL=FILE"};

 public:
  /// Throws if there is none, or if it is too old.
  Library() {
    int version = 0;
    (void)get_version(&version);
    if (version < kLeastVersion)
      throw sdk::Failure(GALLEY_FAILED,
                         opened_.path() + " is NCCL " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) +
                             "; 2.19 or later is needed",
                         "name a later one by GALLEY_NCCL=FILE");
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  GALLEY_NCCL_CALL(get_version, ncclGetVersion, int*);
  GALLEY_NCCL_CALL(get_unique_id, ncclGetUniqueId, UniqueId*);
  GALLEY_NCCL_CALL(comm_init, ncclCommInitRankConfig, Comm*, int, UniqueId, int, Config*);
  GALLEY_NCCL_CALL(comm_finalize, ncclCommFinalize, Comm);
  GALLEY_NCCL_CALL(comm_destroy, ncclCommDestroy, Comm);
  GALLEY_NCCL_CALL(comm_abort, ncclCommAbort, Comm);
  GALLEY_NCCL_CALL(async_error, ncclCommGetAsyncError, Comm, int*);
  GALLEY_NCCL_CALL(group_start, ncclGroupStart);
  GALLEY_NCCL_CALL(group_end, ncclGroupEnd);
  GALLEY_NCCL_CALL(send, ncclSend, const void*, size_t, int, int, Comm, Stream);
  GALLEY_NCCL_CALL(receive, ncclRecv, void*, size_t, int, int, Comm, Stream);
  GALLEY_NCCL_CALL(all_gather, ncclAllGather, const void*, void*, size_t, int, Comm, Stream);
  const char* (*const error_string)(int) = opened_.symbol<const char*(int)>("ncclGetErrorString");
  const char* (*const last_error)(Comm) = opened_.symbol<const char*(Comm)>("ncclGetLastError");

  /// "ncclSend: unhandled system error (…)". `comm` may be NULL.
  std::string text(const char* call, int result, Comm comm) const {
    std::string out = std::string(call) + ": " + error_string(result);
    const char* const last = last_error(comm);
    return last && *last ? out + " (" + last + ")" : out;
  }
};

// ---- The driver -----------------------------------------------------------------------------------------------------------------------

using DeviceAddress = unsigned long long;  ///< CUdeviceptr
using Context = void*;                     ///< CUcontext

inline constexpr int kNotReady = 600;          // CUDA_ERROR_NOT_READY
inline constexpr unsigned kNonBlocking = 0x1;  // CU_STREAM_NON_BLOCKING

/// Not the runtime, which is inside of each library of kernels, and only where nvcc has built them.
class Driver {
  Opened opened_{"the driver of NVIDIA's GPUs", nullptr, "libcuda.so.1", "processes on the device 'cuda' need a GPU each"};

 public:
  /// Throws if there is none.
  Driver() { check(init(0), "cuInit"); }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  GALLEY_NCCL_CALL(init, cuInit, unsigned);
  GALLEY_NCCL_CALL(error_name, cuGetErrorName, int, const char**);
  GALLEY_NCCL_CALL(device_count, cuDeviceGetCount, int*);
  GALLEY_NCCL_CALL(device_get, cuDeviceGet, int*, int);
  GALLEY_NCCL_CALL(context_retain, cuDevicePrimaryCtxRetain, Context*, int);
  GALLEY_NCCL_CALL(context_release, cuDevicePrimaryCtxRelease_v2, int);
  GALLEY_NCCL_CALL(context_set, cuCtxSetCurrent, Context);
  GALLEY_NCCL_CALL(allocate, cuMemAlloc_v2, DeviceAddress*, size_t);
  GALLEY_NCCL_CALL(free, cuMemFree_v2, DeviceAddress);
  GALLEY_NCCL_CALL(copy_in, cuMemcpyHtoDAsync_v2, DeviceAddress, const void*, size_t, Stream);
  GALLEY_NCCL_CALL(copy_out, cuMemcpyDtoH_v2, void*, DeviceAddress, size_t);
  GALLEY_NCCL_CALL(stream_create, cuStreamCreate, Stream*, unsigned);
  GALLEY_NCCL_CALL(stream_query, cuStreamQuery, Stream);
  GALLEY_NCCL_CALL(stream_destroy, cuStreamDestroy_v2, Stream);

  /// Throws what a call's code says.
  void check(int code, const char* call) const {
    if (code == 0) return;
    const char* name = nullptr;
    if (error_name(code, &name) != 0 || !name) name = "an unknown error";
    throw sdk::Failure(GALLEY_FAILED, std::string(call) + ": " + name);
  }
};

#undef GALLEY_NCCL_CALL

}  // namespace galley::nccl
