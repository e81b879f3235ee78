// What plugins/nccl/library.hpp declares of NCCL and of the driver, beside NVIDIA's own headers where they are installed.
#include <cuda.h>
#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include "plugins/nccl/library.hpp"

namespace {

using namespace galley::nccl;

// Handles are addresses of structs that nobody else knows; codes and types are numbers.
template <class T>
struct Bare {
  using type = std::conditional_t<std::is_enum_v<T>, int, T>;
};
#define BARE(theirs, ours) \
  template <>              \
  struct Bare<theirs> {    \
    using type = ours;     \
  };                       \
  template <>              \
  struct Bare<theirs*> {   \
    using type = ours*;    \
  }
BARE(ncclComm_t, Comm);
BARE(cudaStream_t, Stream);
BARE(CUcontext, Context);
BARE(ncclUniqueId, UniqueId);
template <>
struct Bare<ncclConfig_t*> {
  using type = Config*;
};
template <>
struct Bare<ncclResult_t*> {
  using type = int*;
};
template <class T>
struct Declared;
template <class R, class... A>
struct Declared<R (*)(A...)> {
  using type = typename Bare<R>::type (*)(typename Bare<A>::type...);
};

#define SAME(Class, member, name) \
  static_assert(std::is_same_v<std::remove_const_t<decltype(Class::member)>, Declared<decltype(&(name))>::type>, #name)
SAME(Library, get_version, ncclGetVersion);
SAME(Library, get_unique_id, ncclGetUniqueId);
SAME(Library, comm_init, ncclCommInitRankConfig);
SAME(Library, comm_finalize, ncclCommFinalize);
SAME(Library, comm_destroy, ncclCommDestroy);
SAME(Library, comm_abort, ncclCommAbort);
SAME(Library, async_error, ncclCommGetAsyncError);
SAME(Library, group_start, ncclGroupStart);
SAME(Library, group_end, ncclGroupEnd);
SAME(Library, send, ncclSend);
SAME(Library, receive, ncclRecv);
SAME(Library, all_gather, ncclAllGather);
SAME(Library, error_string, ncclGetErrorString);
SAME(Library, last_error, ncclGetLastError);

static_assert(kSuccess == ncclSuccess && kSystemError == ncclSystemError && kRemoteError == ncclRemoteError &&
              kInProgress == ncclInProgress);
static_assert(kUint8 == ncclUint8);
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
constexpr ncclConfig_t fresh = NCCL_CONFIG_INITIALIZER;
constexpr Config ours;
static_assert(ours.magic == fresh.magic && ours.blocking == fresh.blocking && ours.split_share == fresh.splitShare && !fresh.netName);
#define AT(member, name) static_assert(offsetof(Config, member) == offsetof(ncclConfig_t, name), #name)
AT(size, size);
AT(magic, magic);
AT(version, version);
AT(blocking, blocking);
AT(cga_cluster_size, cgaClusterSize);
AT(min_ctas, minCTAs);
AT(max_ctas, maxCTAs);
AT(net_name, netName);
AT(split_share, splitShare);

SAME(Driver, init, cuInit);
SAME(Driver, error_name, cuGetErrorName);
SAME(Driver, device_count, cuDeviceGetCount);
SAME(Driver, device_get, cuDeviceGet);
SAME(Driver, context_retain, cuDevicePrimaryCtxRetain);
SAME(Driver, context_release, cuDevicePrimaryCtxRelease);
SAME(Driver, context_set, cuCtxSetCurrent);
SAME(Driver, allocate, cuMemAlloc);
SAME(Driver, free, cuMemFree);
SAME(Driver, copy_in, cuMemcpyHtoDAsync);
SAME(Driver, copy_out, cuMemcpyDtoH);
SAME(Driver, stream_create, cuStreamCreate);
SAME(Driver, stream_query, cuStreamQuery);
SAME(Driver, stream_destroy, cuStreamDestroy);
static_assert(kNotReady == CUDA_ERROR_NOT_READY && kNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(std::is_same_v<DeviceAddress, CUdeviceptr>);

}  // namespace
