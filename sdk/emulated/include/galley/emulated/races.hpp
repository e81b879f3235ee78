// Races of an emulated launch (cuda.hpp), found by ThreadSanitizer in a library of kernels that is compiled with -fsanitize=thread.
// Each CUDA thread is a fiber of its own to it. Threads of a block are ordered by __syncthreads and its kin, lanes of a warp by __syncwarp;
// shuffles and votes order nothing, as NVIDIA says. Blocks of a launch are not ordered; launches are. Without -fsanitize=thread all of this
// does nothing.
//
// [1] "CUDA C++ Programming Guide", sections on synchronization, warp vote and warp shuffle functions.
#pragma once

#include <cstddef>
#include <vector>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define GALLEY_EMULATED_TSAN 1
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
void __tsan_read_range(void* at, unsigned long bytes);
}
/// What switches between fibers: ThreadSanitizer must not count its calls.
#define GALLEY_EMULATED_UNTRACED __attribute__((no_sanitize("thread")))
#else
#define GALLEY_EMULATED_TSAN 0
#define GALLEY_EMULATED_UNTRACED
#endif

namespace galley::cuda::emulated::races {

/// While it lives, what this fiber reads and writes is the emulator's own and no access of the kernel.
class Unseen {
 public:
#if GALLEY_EMULATED_TSAN
  GALLEY_EMULATED_UNTRACED Unseen() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  GALLEY_EMULATED_UNTRACED ~Unseen() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
#else
  Unseen() {}
#endif
  Unseen(const Unseen&) = delete;
  Unseen& operator=(const Unseen&) = delete;
};

/// A place that orders: what is done before a `before` is done before what follows a later `after`. One place takes eight bytes.
struct Place {
  char bytes[8];
};

#if GALLEY_EMULATED_TSAN
inline void before(Place* place) { __tsan_release(place); }
inline void after(Place* place) { __tsan_acquire(place); }
inline void reads(const void* at, size_t bytes) { __tsan_read_range(const_cast<void*>(at), bytes); }
inline void* here() { return __tsan_get_current_fiber(); }
inline void* make() { return __tsan_create_fiber(0); }
inline void destroy(void* fiber) { __tsan_destroy_fiber(fiber); }
GALLEY_EMULATED_UNTRACED inline void go_to(void* fiber) { __tsan_switch_to_fiber(fiber, __tsan_switch_to_fiber_no_sync); }
#else
inline void before(Place*) {}
inline void after(Place*) {}
inline void reads(const void*, size_t) {}
inline void* here() { return nullptr; }
inline void* make() { return nullptr; }
inline void destroy(void*) {}
inline void go_to(void*) {}
#endif

/// The begin and the end of a launch, for all threads of all its blocks.
struct Launch {
  Place begin{}, end{};
};

}  // namespace galley::cuda::emulated::races
