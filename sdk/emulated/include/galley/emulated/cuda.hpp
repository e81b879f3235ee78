// CUDA C++ without CUDA: what kernels need of the language and its intrinsics, for an ordinary C++ compiler. Each CUDA thread is a fiber; a
// block runs on one thread of the processor, which switches between its fibers at barriers and warp operations only. It serves two ends: a
// kernel library can answer `query` on machines without the toolkit, and tests can execute every kernel without a GPU.
//
// What it finds: wrong indices, tails and dtypes; missing barriers, since fibers run far ahead of each other; deadlocks; shared memory that
// is read before it is written (its bytes are 0xFF at the start of a block: NaN in every floating dtype); misaligned vectors; launches that
// no GPU takes; under AddressSanitizer also accesses outside of shared memory; under ThreadSanitizer races (races.hpp). What it
// cannot find: speed.
//
// GALLEY_CUDA_ORDER = forward (default), reverse, or a number that seeds a random order: in which order the threads of a block run.
// GALLEY_CUDA_BLOCKS = N: of each launch only few blocks (blocks_to_run()). So a kernel can be tried on operands that no test could compute
// whole.
// GALLEY_CUDA_MUTANT = FILE:LINE: the barrier, commit or wait at that place does nothing. Tests must notice. Where no library of kernels
// that is loaded has one in that line, nothing is launched.
//
// Included by galley/cuda/platform.hpp; kernels include that.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "galley/cpp/half.hpp"
#include "galley/emulated/worker.hpp"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)

namespace galley::cuda::emulated {

/// Set by a library that has the place GALLEY_CUDA_MUTANT names: what several libraries of a process share is its environment.
inline constexpr const char* kFound = "GALLEY_CUDA_MUTANT_FOUND";

/// Whether the barrier, commit or wait at a place does its work. "ops/norm/cuda.cu:57" names a place by the end of its path.
inline bool enabled(const char* file, int line) {
  const char* mutant = std::getenv("GALLEY_CUDA_MUTANT");
  if (!mutant) return true;
  const std::string here = std::string(file) + ":" + std::to_string(line), wanted = mutant;
  if (here.size() < wanted.size() || here.compare(here.size() - wanted.size(), wanted.size(), wanted) != 0) return true;
  setenv(kFound, mutant, 1);
  return false;
}

/// A place, of which `Here` has the file and the line. Each asks when its library is loaded, whether or not a kernel ever comes by.
template <class Here>
struct Site {
  static inline const bool on = enabled(Here::file(), Here::line());
};
#define GALLEY_EMULATED_ENABLED()                              \
  [] {                                                         \
    struct Here {                                              \
      static constexpr const char* file() { return __FILE__; } \
      static constexpr int line() { return __LINE__; }         \
    };                                                         \
    return ::galley::cuda::emulated::Site<Here>::on;           \
  }()

/// A mutant that nobody has must not look like one that nobody notices.
inline void check_mutant() {
  const char *mutant = std::getenv("GALLEY_CUDA_MUTANT"), *found = std::getenv(kFound);
  if (mutant && (!found || std::strcmp(mutant, found) != 0))
    throw sdk::Failure(GALLEY_FAILED, std::string("GALLEY_CUDA_MUTANT=") + mutant + ": no barrier, commit or wait stands there",
                       "name a line of a kernel's source that is loaded, by the end of its path: cuda.cu:57");
}

/// Which blocks of a launch run. In a random order of threads, blocks have one too. `most` (GALLEY_CUDA_BLOCKS): along x only the first and
/// the last so many and eight between them, along y and z an eighth of that; 0: all.
inline std::vector<Index> blocks_to_run(Extent blocks, unsigned most, const std::string& order) {
  std::mt19937_64 random(std::strtoull(order.c_str(), nullptr, 10));
  const auto along = [&](unsigned extent, unsigned m) {
    std::vector<unsigned> out;
    const bool all = most == 0 || extent <= 2 * m + 8;
    for (unsigned i = 0; i < (all ? extent : m); ++i) out.push_back(i);
    for (int k = 0; !all && k < 8; ++k) out.push_back(m + static_cast<unsigned>(random() % (extent - 2 * m)));
    for (unsigned i = extent - m; !all && i < extent; ++i) out.push_back(i);
    return out;
  };
  const std::vector<unsigned> xs = along(blocks.x, most), ys = along(blocks.y, most / 8), zs = along(blocks.z, most / 8);
  std::vector<Index> out;
  for (const unsigned z : zs)
    for (const unsigned y : ys)
      for (const unsigned x : xs) out.push_back({x, y, z});
  if (order == "reverse") std::reverse(out.begin(), out.end());
  else if (order != "forward") std::shuffle(out.begin(), out.end(), random);
  return out;
}

/// Bytes of dynamic shared memory that every GPU from sm_80 on gives a block: sm_86, sm_89 and sm_120 have the least.
constexpr size_t kMostShared = 99 * 1024;

/// Runs a kernel on all threads of all blocks; blocks run beside each other on the host's compute threads.
inline void run(Extent blocks, Extent threads, size_t dynamic, Worker::Body body, const void* call) {
  const uint64_t total = uint64_t{blocks.x} * blocks.y * blocks.z;
  const uint64_t n = uint64_t{threads.x} * threads.y * threads.z;
  if (total == 0 || n == 0 || n > 1024 || blocks.y > 65535 || blocks.z > 65535 || blocks.x > 0x7FFFFFFFu || dynamic > kMostShared)
    throw sdk::Failure(GALLEY_FAILED, "a launch that not every GPU takes: " + std::to_string(total) + " blocks of " + std::to_string(n) +
                                          " threads with " + std::to_string(dynamic) + " bytes of shared memory");
  check_mutant();
  const char* text = std::getenv("GALLEY_CUDA_ORDER");
  const std::string order = text ? text : "forward";
  races::Launch launch;
  races::before(&launch.begin);
  const char* few = std::getenv("GALLEY_CUDA_BLOCKS");
  const std::vector<Index> chosen = blocks_to_run(blocks, few ? static_cast<unsigned>(std::strtoul(few, nullptr, 10)) : 0, order);
  const auto block = [&](int64_t i) {
    Worker& worker = Worker::here();
    if (order == "forward") worker.set_order(Worker::Order::Forward, 0);
    else if (order == "reverse") worker.set_order(Worker::Order::Reverse, 0);
    else worker.set_order(Worker::Order::Random, std::strtoull(order.c_str(), nullptr, 10) + static_cast<uint64_t>(i));
    const Index index = chosen[static_cast<size_t>(i)];
    worker.run_block(index, blocks, threads, dynamic, body, call, &launch);
    if (!worker.failure().empty()) throw sdk::Failure(GALLEY_FAILED, "emulated CUDA: " + worker.failure());
  };
  const auto count = static_cast<int64_t>(chosen.size());
  if (sdk::host() && count > 1) sdk::parallel(count, block);
  else
    for (int64_t i = 0; i < count; ++i) block(i);
  races::after(&launch.end);
}

// ---- Barriers, warp operations --------------------------------------------------------------------------------------------------------

inline void sync_threads(bool on) {
  if (on) Worker::here().barrier(false);
}
inline unsigned ballot(unsigned mask, bool vote, bool orders = false) {
  struct Lane {
    bool vote;
    unsigned result;
  } lane{vote, 0};
  Worker::here().warp(
      mask, &lane,
      [](void* const* lanes, unsigned named) {
        unsigned result = 0;
        for (unsigned l = 0; l < kWarp; ++l)
          if ((named >> l & 1u) && static_cast<Lane*>(lanes[l])->vote) result |= 1u << l;
        for (unsigned l = 0; l < kWarp; ++l)
          if (named >> l & 1u) static_cast<Lane*>(lanes[l])->result = result;
      },
      orders);
  return lane.result;
}
inline unsigned mask_of(unsigned mask = ~0u) { return mask; }
inline void sync_warp(bool on, unsigned mask) {
  if (on) ballot(mask, false, true);
}

/// The value of lane `source` of this warp, 0 to 31. From a lane that the mask does not name come bytes of 0xFF.
template <class T>
T shuffle(unsigned mask, T value, unsigned source) {
  struct Lane {
    T in, out;
    unsigned source;
  } lane{value, value, source};
  Worker::here().warp(mask, &lane, [](void* const* lanes, unsigned named) {
    for (unsigned l = 0; l < kWarp; ++l) {
      if (!(named >> l & 1u)) continue;
      auto* to = static_cast<Lane*>(lanes[l]);
      if (named >> to->source & 1u) to->out = static_cast<Lane*>(lanes[to->source])->in;
      else std::memset(static_cast<void*>(&to->out), 0xFF, sizeof(T));
    }
  });
  return lane.out;
}
inline unsigned lane_number() { return Worker::here().current().number % kWarp; }

}  // namespace galley::cuda::emulated

#define threadIdx (::galley::cuda::emulated::place.thread)
#define blockIdx (::galley::cuda::emulated::place.block)
#define blockDim (::galley::cuda::emulated::place.threads)
#define gridDim (::galley::cuda::emulated::place.blocks)

#define __syncthreads() ::galley::cuda::emulated::sync_threads(GALLEY_EMULATED_ENABLED())
#define __syncwarp(...) ::galley::cuda::emulated::sync_warp(GALLEY_EMULATED_ENABLED(), ::galley::cuda::emulated::mask_of(__VA_ARGS__))

inline int __syncthreads_or(int vote) { return galley::cuda::emulated::Worker::here().barrier(vote != 0).first > 0; }
inline int __syncthreads_and(int vote) {
  const auto [votes, voters] = galley::cuda::emulated::Worker::here().barrier(vote != 0);
  return votes == voters;
}
inline int __syncthreads_count(int vote) { return static_cast<int>(galley::cuda::emulated::Worker::here().barrier(vote != 0).first); }
inline unsigned __ballot_sync(unsigned mask, int vote) { return galley::cuda::emulated::ballot(mask, vote != 0); }
inline int __any_sync(unsigned mask, int vote) { return galley::cuda::emulated::ballot(mask, vote != 0) != 0; }
inline int __all_sync(unsigned mask, int vote) { return galley::cuda::emulated::ballot(mask, vote == 0) == 0; }

// Within groups of `width` lanes; a source outside of the group is the lane itself.
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const unsigned lane = galley::cuda::emulated::lane_number(), w = static_cast<unsigned>(width);
  return galley::cuda::emulated::shuffle(mask, value, (lane & ~(w - 1)) | (static_cast<unsigned>(source) & (w - 1)));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int other, int width = 32) {
  const unsigned lane = galley::cuda::emulated::lane_number(), source = lane ^ static_cast<unsigned>(other);
  const unsigned group = ~(static_cast<unsigned>(width) - 1);
  return galley::cuda::emulated::shuffle(mask, value, (source & group) > (lane & group) ? lane : source);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
  const unsigned lane = galley::cuda::emulated::lane_number(), w = static_cast<unsigned>(width);
  return galley::cuda::emulated::shuffle(mask, value, (lane & (w - 1)) + by < w ? lane + by : lane);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
  const unsigned lane = galley::cuda::emulated::lane_number(), w = static_cast<unsigned>(width);
  return galley::cuda::emulated::shuffle(mask, value, (lane & (w - 1)) >= by ? lane - by : lane);
}

inline unsigned __match_any_sync(unsigned mask, unsigned value) {
  struct Lane {
    unsigned value, result;
  } lane{value, 0};
  galley::cuda::emulated::Worker::here().warp(mask, &lane, [](void* const* lanes, unsigned named) {
    for (unsigned l = 0; l < 32; ++l) {
      if (!(named >> l & 1u)) continue;
      auto* to = static_cast<Lane*>(lanes[l]);
      for (unsigned k = 0; k < 32; ++k)
        if ((named >> k & 1u) && static_cast<Lane*>(lanes[k])->value == to->value) to->result |= 1u << k;
    }
  });
  return lane.result;
}

/// c and the products of four bytes each.
inline int __dp4a(int a, int b, int c) {
  for (int shift = 0; shift < 32; shift += 8) c += static_cast<int8_t>(a >> shift) * static_cast<int8_t>(b >> shift);
  return c;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline unsigned __float_as_uint(float x) { return galley::sdk::detail::bits_of(x); }
inline float __uint_as_float(unsigned x) { return galley::sdk::detail::float_of(x); }
