// Tensor cores and asynchronous copies (sm_80 and later): PTX under nvcc, emulated under any other compiler (galley/emulated/mma.hpp).
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

#if GALLEY_CUDA_EMULATED
#include "galley/emulated/mma.hpp"
#else

namespace galley::cuda {

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

}  // namespace galley::cuda

#endif
