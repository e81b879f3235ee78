// Launches, uploads and shared memory of kernels that are compiled for the emulated GPU: the half of platform.hpp that stands in for CUDA's
// runtime. Included by platform.hpp; kernels include that.
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "galley/cuda/platform.hpp"
#include "galley/emulated/cuda.hpp"

namespace galley::cuda {

/// The queue of an emulated device. Kernels that are tried without a device have none.
struct Queue {
  /// Takes work that is done later, once or, if a capture is under way, at each replay. An exception ends the device.
  virtual void put(std::function<void()> work) = 0;
  virtual void upload(void* to, const void* from, size_t bytes) = 0;
  /// Throws where an argument of a launch holds an address of memory that only the host has: a GPU would end with an illegal address there.
  virtual void check_argument(size_t number, const void* argument, size_t bytes) = 0;

 protected:
  ~Queue() = default;
};

/// What stands in for a library's call puts its work here. `work` holds by value what it reads, as a GPU keeps the arguments of a launch.
template <class Work>
void put(galley_queue* queue, Work work) {
  if (queue) reinterpret_cast<Queue*>(queue)->put(std::move(work));
  else work();
}

/// A library that was built without the toolkit plans for every target, and runs on emulated devices only.
inline void check_platform(const galley_kernel_setup& setup) {
  if (setup.target && setup.target->isa && std::string(setup.target->isa).rfind("sm_", 0) == 0)
    throw sdk::Failure(GALLEY_UNSUPPORTED, "this kernel was built without the CUDA toolkit: it can be planned, but not run",
                       "build with nvcc: cmake --preset cuda");
}

/// Copies to the device while a kernel is prepared; the bytes at `from` may change afterwards.
inline void upload(const galley_kernel_setup& setup, void* to, const void* from, size_t bytes) {
  if (setup.queue) reinterpret_cast<Queue*>(setup.queue)->upload(to, from, bytes);
  else std::memcpy(to, from, bytes);
}

/// In a kernel that finds what no kernel can compute with, such as an id that its table does not have: the launch fails. On a GPU, whatever
/// waits for the device then hears of it, without the text.
[[noreturn]] inline void refuse(const char* what) { emulated::Worker::here().fail(what); }

/// A kernel may be launched with 48 KiB of dynamic shared memory, and with more after allow_shared(). [thread-safe]
inline void check_shared(const void* kernel, int64_t bytes, bool allows) {
  static std::mutex mutex;
  static std::map<const void*, int64_t> allowed;
  const std::lock_guard lock(mutex);
  int64_t& most = allowed.try_emplace(kernel, int64_t{48} << 10).first->second;
  if (allows) most = bytes;
  else if (bytes > most)
    throw sdk::Failure(GALLEY_FAILED, "a launch that no GPU takes: " + std::to_string(bytes) + " bytes of dynamic shared memory, and " +
                                          std::to_string(most) + " are allowed: call allow_shared()");
}
template <class... P>
void allow_shared(void (*kernel)(P...), int64_t bytes) {
  check_shared(reinterpret_cast<const void*>(kernel), bytes, true);
}

template <class... P, class... A>
void launch(void (*kernel)(P...), const Grid& grid, galley_queue* queue, A&&... arguments) {
  using Call = std::pair<void (*)(P...), std::tuple<std::decay_t<P>...>>;
  check_shared(reinterpret_cast<const void*>(kernel), grid.shared, false);
  std::tuple<std::decay_t<P>...> values(std::forward<A>(arguments)...);
#if defined(__has_builtin)
#if __has_builtin(__builtin_clear_padding)  // in which anything may stand
  if (queue) {
    size_t number = 0;
    const auto check = [&](auto value) {  // a copy: elements of a tuple may lie in each other's padding
      __builtin_clear_padding(&value);
      reinterpret_cast<Queue*>(queue)->check_argument(++number, &value, sizeof value);
    };
    std::apply([&](const auto&... value) { (check(value), ...); }, values);
  }
#endif
#endif
  put(queue, [call = Call(kernel, std::move(values)), blocks = detail::extent<emulated::Extent>(grid.blocks),
              threads = detail::extent<emulated::Extent>(grid.threads), shared = static_cast<size_t>(grid.shared)] {
    emulated::run(
        blocks, threads, shared,
        [](const void* c) {
          const auto& bound = *static_cast<const Call*>(c);
          std::apply(bound.first, bound.second);
        },
        &call);
  });
}

// The tag is one for each place, and in a template one for each of its instances.
#define GALLEY_SHARED(Type, name, count) \
  static const char name##_tag = 0;      \
  auto* const name = static_cast<Type*>( \
      ::galley::cuda::emulated::Worker::here().shared(&name##_tag, sizeof(Type) * (count), alignof(Type) > 16 ? alignof(Type) : 16))
#define GALLEY_LARGE(...) const __VA_ARGS__&
#define GALLEY_DYNAMIC_SHARED(Type, name) \
  auto* const name = reinterpret_cast<Type*>(::galley::cuda::emulated::Worker::here().dynamic_shared())

}  // namespace galley::cuda
