// Tensor cores and asynchronous copies (sm_80 and later): PTX under nvcc, emulated under any other compiler.
//
//   mma<Bf16>(d, a, b)                  d += a · b, 16×8 from 16×16 and 16×8 in BF16 or F16, sums in F32
//   load_matrices(r, row)               four matrices of 8×8 numbers of 16 bits from shared memory; load_transposed(): each transposed
//   pack_pair<Bf16>(low, high)          two numbers in a register
//   copy_async(to, from, there)         16 bytes from global to shared memory, zeros where not `there`
//   GALLEY_ASYNC_COMMIT();              the thread's copies since the last one are a group
//   GALLEY_ASYNC_WAIT(n);               until at most n of the thread's groups are under way; others see them after a barrier
//
// Layouts, from the PTX ISA ("Matrix fragments for mma.m16n8k16 with floating point type", "ldmatrix"). With g = lane / 4 and t = lane % 4,
// and two numbers in a register, the lower bits first:
//   a[0]  row g,      columns 2t, 2t + 1             b[0]  rows 2t, 2t + 1,      column g
//   a[1]  row g + 8,  columns 2t, 2t + 1             b[1]  rows 2t + 8, 2t + 9,  column g
//   a[2]  row g,      columns 2t + 8, 2t + 9         d[0], d[1]  row g,      columns 2t, 2t + 1
//   a[3]  row g + 8,  columns 2t + 8, 2t + 9         d[2], d[3]  row g + 8,  columns 2t, 2t + 1
// So d of two products side by side, packed, is an a. ldmatrix: lanes 8i … 8i + 7 give the addresses of matrix i's rows, each aligned to 16
// bytes; r[i] of a lane has the numbers 2t and 2t + 1 of row g of matrix i, or, transposed, those of column g in rows 2t and 2t + 1.
// All 32 lanes of a warp call mma and load_….
#pragma once

#include "galley/cuda/number.hpp"

namespace galley::cuda {

#if GALLEY_CUDA_EMULATED

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

#else

template <class T>
__device__ inline void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
template <>
__device__ inline void mma<Bf16>(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <>
__device__ inline void mma<F16>(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ inline void load_matrices(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}
__device__ inline void load_transposed(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}
template <class T>
__device__ inline uint32_t pack_pair(float low, float high);
template <>
__device__ inline uint32_t pack_pair<Bf16>(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return static_cast<uint32_t>(__bfloat16_as_ushort(pair.x)) | static_cast<uint32_t>(__bfloat16_as_ushort(pair.y)) << 16;
}
template <>
__device__ inline uint32_t pack_pair<F16>(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return static_cast<uint32_t>(__half_as_ushort(pair.x)) | static_cast<uint32_t>(__half_as_ushort(pair.y)) << 16;
}
__device__ inline void copy_async(void* to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))), "l"(from),
               "r"(there ? 16 : 0)
               : "memory");
}

#define GALLEY_ASYNC_COMMIT() asm volatile("cp.async.commit_group;" ::: "memory")
#define GALLEY_ASYNC_WAIT(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")

#endif

}  // namespace galley::cuda
