// What kernels in CUDA C++ stand on: the language itself under nvcc, an emulated GPU under any other compiler (galley/emulated). The
// same source is built both ways, so it uses what is here instead of the runtime's own launches and declarations:
//
//   launch(kernel, {blocks, threads, shared_bytes}, queue, arguments…)         instead of kernel<<<…>>>(…)
//   GALLEY_SHARED(float, sums, 32);        an array of shared memory           instead of __shared__ float sums[32];
//   GALLEY_DYNAMIC_SHARED(char, tile);     the launch's shared bytes           instead of extern __shared__ char tile[];
//   upload(setup, to, from, bytes)         constants, while preparing          instead of cudaMemcpy
//   GALLEY_LARGE(Table) table              a parameter of up to 32 KB          instead of const __grid_constant__ Table table
//
// Barriers and warp operations are CUDA's own: __syncthreads(), __syncwarp(), __shfl_xor_sync(), …
//
// Arithmetic: compile with -fmad=false (galley_add_plugin does), and write fmaf() where a fused operation is meant. Then an emulated kernel
// and one on a GPU compute the same bits, but for functions such as expf().
#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "galley/cpp/plugin.hpp"

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#define GALLEY_CUDA_EMULATED 0
#elif !__has_include("galley/emulated/cuda.hpp")
#error "compile by nvcc, or add the emulated GPU's headers: -I$(pkg-config --variable=emulated_include galley-sdk)"
#else
#include "galley/emulated/cuda.hpp"
#define GALLEY_CUDA_EMULATED 1
#endif

namespace galley::cuda {

/// The `device` of kernels for CUDA.
inline constexpr const char* kDevice = "cuda";

/// The architecture that a target names: 90 for "sm_90". An emulated one is "emulated" (as sm_80), or "emulated_90".
inline int architecture(const galley_target& target) {
  const std::string isa = target.isa ? target.isa : "";
  const size_t at = isa.rfind('_');
  const int number = at == std::string::npos ? 0 : std::atoi(isa.c_str() + at + 1);
  return number > 0 ? number : 80;
}

/// Whether the target is an emulated GPU, which stands for each of them.
inline bool emulated_target(const galley_target& target) { return target.isa && std::string(target.isa).rfind("emulated", 0) == 0; }

/// How many blocks of `block` it takes for `count`.
inline int64_t blocks_of(int64_t count, int64_t block) { return (count + block - 1) / block; }

/// A launch: how many blocks, how many threads in each, and how many bytes of dynamic shared memory.
struct Extents {
  Extents(int64_t x_, int64_t y_ = 1, int64_t z_ = 1) : x(x_), y(y_), z(z_) {}
  int64_t x, y, z;
};
struct Grid {
  Extents blocks, threads;
  int64_t shared = 0;
};

namespace detail {

/// An extent as CUDA has it. Throws where no GPU takes it.
template <class To>
To extent(const Extents& e) {
  if (e.x > 0x7FFFFFFF || e.y > 65535 || e.z > 65535) throw sdk::Failure(GALLEY_FAILED, "a launch that no GPU takes: too many blocks");
  return To{static_cast<unsigned>(e.x), static_cast<unsigned>(e.y), static_cast<unsigned>(e.z)};
}

}  // namespace detail

#if !GALLEY_CUDA_EMULATED

/// Throws what a call of the runtime says, with the call's name.
inline void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();  // or the next call would report it again
  throw sdk::Failure(GALLEY_FAILED, std::string(call) + ": " + cudaGetErrorString(status) + " (" + cudaGetErrorName(status) + ")");
}

inline void check_platform(const galley_kernel_setup&) {}

inline void upload(const galley_kernel_setup& setup, void* to, const void* from, size_t bytes) {
  const auto stream = reinterpret_cast<cudaStream_t>(setup.queue);
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

__device__ inline void refuse(const char*) { __trap(); }

/// Call in the constructor of kernels with more than 48 KiB of dynamic shared memory.
template <class... P>
void allow_shared(void (*kernel)(P...), int64_t bytes) {
  check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
        "cudaFuncSetAttribute");
}

template <class... P, class... A>
void launch(void (*kernel)(P...), const Grid& grid, galley_queue* queue, A&&... arguments) {
  std::tuple<P...> values(std::forward<A>(arguments)...);
  std::apply(
      [&](auto&... value) {
        void* pointers[] = {static_cast<void*>(&value)..., nullptr};
        check(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), detail::extent<dim3>(grid.blocks), detail::extent<dim3>(grid.threads),
                               pointers, static_cast<size_t>(grid.shared), reinterpret_cast<cudaStream_t>(queue)),
              "cudaLaunchKernel");
      },
      values);
}

// It stays where arguments lie: a copy for each thread would be local memory.
#define GALLEY_LARGE(...) const __grid_constant__ __VA_ARGS__
#define GALLEY_SHARED(Type, name, count) __shared__ __align__(16) Type name[count]
#define GALLEY_DYNAMIC_SHARED(Type, name)                        \
  extern __shared__ __align__(128) char galley_dynamic_shared[]; \
  auto* const name = reinterpret_cast<Type*>(galley_dynamic_shared)

#endif

}  // namespace galley::cuda

#if GALLEY_CUDA_EMULATED
#include "galley/emulated/launch.hpp"
#endif
