// Tensor cores and asynchronous copies of the emulated GPU: what galley/cuda/mma.hpp declares to kernels. Included by it.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#include "galley/cuda/number.hpp"
#include "galley/emulated/launch.hpp"

namespace galley::cuda {

namespace emulated {

template <class T>
struct MmaLane {
  float (*d)[4];
  const uint32_t (*a)[4];
  const uint32_t (*b)[2];
};
template <class T>
void mma_warp(void* const* lanes, unsigned mask) {
  if (mask != ~0u) Worker::here().fail("mma: not all lanes of a warp");
  const auto half_of = [](uint32_t pair, int e) {
    T x;
    x.bits = static_cast<uint16_t>(e ? pair >> 16 : pair);
    return widen(x);
  };
  float a[16][16], b[16][8], d[16][8];
  for (int l = 0; l < 32; ++l) {
    const auto* x = static_cast<const MmaLane<T>*>(lanes[l]);
    const int g = l / 4, t = l % 4;
    for (int e = 0; e < 2; ++e) {
      for (int r = 0; r < 4; ++r) a[g + r % 2 * 8][2 * t + e + r / 2 * 8] = half_of((*x->a)[r], e);
      for (int r = 0; r < 2; ++r) b[2 * t + e + r * 8][g] = half_of((*x->b)[r], e);
      for (int r = 0; r < 2; ++r) d[g + r * 8][2 * t + e] = (*x->d)[2 * r + e];
    }
  }
  for (int i = 0; i < 16; ++i)
    for (int k = 0; k < 16; ++k)
      for (int j = 0; j < 8; ++j) d[i][j] += a[i][k] * b[k][j];
  for (int l = 0; l < 32; ++l) {
    auto* x = static_cast<MmaLane<T>*>(lanes[l]);
    for (int r = 0; r < 4; ++r) (*x->d)[r] = d[l / 4 + r / 2 * 8][l % 4 * 2 + r % 2];
  }
}

struct MatricesLane {
  uint32_t (*r)[4];
  const uint16_t* row;
};
template <bool kTransposed>
void matrices_warp(void* const* lanes, unsigned mask) {
  if (mask != ~0u) Worker::here().fail("ldmatrix: not all lanes of a warp");
  for (int l = 0; l < 32; ++l)
    if (reinterpret_cast<uintptr_t>(static_cast<MatricesLane*>(lanes[l])->row) % 16) Worker::here().fail("ldmatrix: a row is not aligned");
  for (int l = 0; l < 32; ++l)
    for (int i = 0; i < 4; ++i) {
      uint32_t pair = 0;
      for (int e = 0; e < 2; ++e) {
        const int row = kTransposed ? l % 4 * 2 + e : l / 4, column = kTransposed ? l / 4 : l % 4 * 2 + e;
        pair |= static_cast<uint32_t>(static_cast<MatricesLane*>(lanes[i * 8 + row])->row[column]) << 16 * e;
      }
      (*static_cast<MatricesLane*>(lanes[l])->r)[i] = pair;
    }
}

inline void commit_copies(bool on) {
  if (!on) return;
  const races::Unseen unseen;
  Fiber& f = Worker::here().current();
  f.groups.push_back(std::move(f.begun));
  f.begun.clear();
}
inline void wait_for_copies(bool on, size_t n) {
  if (!on) return;
  const races::Unseen unseen;  // copy_async() has told of the accesses
  Fiber& f = Worker::here().current();
  while (f.groups.size() > n) {
    for (const Fiber::Copy& c : f.groups.front()) {
      if (c.from) std::memcpy(c.to, c.from, c.bytes);
      else std::memset(c.to, 0, c.bytes);
    }
    f.groups.erase(f.groups.begin());
  }
}

}  // namespace emulated

template <class T>
void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  emulated::MmaLane<T> lane{&d, &a, &b};
  emulated::Worker::here().warp(~0u, &lane, emulated::mma_warp<T>);
}
inline void load_matrices(uint32_t (&r)[4], const void* row) {
  emulated::MatricesLane lane{&r, static_cast<const uint16_t*>(row)};
  emulated::races::reads(row, 16);
  emulated::Worker::here().warp(~0u, &lane, emulated::matrices_warp<false>);
}
inline void load_transposed(uint32_t (&r)[4], const void* row) {
  emulated::MatricesLane lane{&r, static_cast<const uint16_t*>(row)};
  emulated::races::reads(row, 16);
  emulated::Worker::here().warp(~0u, &lane, emulated::matrices_warp<true>);
}
template <class T>
uint32_t pack_pair(float low, float high) {
  T x, y;
  narrow(low, x);
  narrow(high, y);
  return x.bits | static_cast<uint32_t>(y.bits) << 16;
}
inline void copy_async(void* to, const void* from, bool there) {
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % 16) emulated::Worker::here().fail("cp.async: not aligned");
  std::memset(to, 0xFF, 16);  // it lands at the wait
  if (there) emulated::races::reads(from, 16);
  const emulated::races::Unseen unseen;
  emulated::Worker::here().current().begun.push_back({to, there ? from : nullptr, 16});
}

#define GALLEY_ASYNC_COMMIT() ::galley::cuda::emulated::commit_copies(GALLEY_EMULATED_ENABLED())
#define GALLEY_ASYNC_WAIT(n) ::galley::cuda::emulated::wait_for_copies(GALLEY_EMULATED_ENABLED(), n)

}  // namespace galley::cuda
