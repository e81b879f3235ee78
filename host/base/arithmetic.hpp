// Keeps the arithmetic of threads as it is: how the processor rounds, and whether it takes the smallest numbers for 0. It is a setting of
// each thread. If a library leaves it changed, kernels that run on the thread later compute other bits.
#pragma once

#include <atomic>
#include <cstdint>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace galley {

class Arithmetic {
 public:
  /// Returns the arithmetic of this thread.
  static Arithmetic now() {
    Arithmetic out;
#if defined(__SSE2__)
    uint16_t x87 = 0;
    asm volatile("fnstcw %0" : "=m"(x87));
    out.bits_ = uint64_t{x87} << 32 | (_mm_getcsr() & ~kFlags);
#elif defined(__aarch64__)
    asm volatile("mrs %0, fpcr" : "=r"(out.bits_));
#endif
    return out;
  }
  /// Sets this thread's arithmetic to this one, and clears the flags of operations so far.
  void restore() const {
#if defined(__SSE2__)
    const auto x87 = static_cast<uint16_t>(bits_ >> 32);
    asm volatile("fldcw %0" : : "m"(x87));
    _mm_setcsr(static_cast<unsigned>(bits_ & 0xFFFFFFFF));
#elif defined(__aarch64__)
    asm volatile("msr fpcr, %0" : : "r"(bits_));
#endif
  }
  /// Sets this thread's arithmetic to this one if it has become another; returns whether it had.
  bool put_back() const {
    if (now().bits_ == bits_) return false;
    restore();
    return true;
  }

 private:
#if defined(__SSE2__)
  static constexpr unsigned kFlags = 0x3F;  // exceptions of operations so far: every inexact operation sets one
#endif
  uint64_t bits_ = 0;
};

/// Says whether work on a thread of a pool has left another arithmetic since somebody last asked. It has been set back.
inline std::atomic<bool>& arithmetic_left_changed() {
  static std::atomic<bool> changed = false;
  return changed;
}

}  // namespace galley
