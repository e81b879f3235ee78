// copy: y = x in the dtype of y, or added to it; at the bandwidth of the operands. Sums are made in F32, in F64 when both sides are F64,
// and rounded once. Of one dtype, bytes are moved, 16 at a time where both addresses allow that.
#include "galley/cuda/elementwise.hpp"

namespace galley::cuda::copy_op {
namespace {

constexpr int kThreads = 256, kMoved = 4;  // units that a thread moves

/// Units of T; `rest` bytes after them are left to the first block. x and y may be the same.
template <class T>
__global__ void __launch_bounds__(kThreads) move_units(const T* x, T* y, int64_t count, int rest) {
  T units[kMoved];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kMoved * kThreads) + threadIdx.x;
#pragma unroll
  for (int k = 0; k < kMoved; ++k)
    if (first + k * kThreads < count) units[k] = x[first + k * kThreads];
#pragma unroll
  for (int k = 0; k < kMoved; ++k)
    if (first + k * kThreads < count) y[first + k * kThreads] = units[k];
  if (first < rest) reinterpret_cast<char*>(y + count)[first] = reinterpret_cast<const char*>(x + count)[first];
}

template <class T>
void move_as(const Node& n, galley_queue* queue) {
  const int64_t bytes = galley_operand_bytes(&n.in(0)), units = bytes / static_cast<int64_t>(sizeof(T));
  const int rest = static_cast<int>(bytes % static_cast<int64_t>(sizeof(T)));
  launch(move_units<T>, {units / (kMoved * kThreads) + 1, kThreads}, queue, n.read<T>(0), n.write<T>(0), units, rest);
}

void move(const Node& n, galley_queue* queue) {
  if ((reinterpret_cast<uintptr_t>(n.in(0).data) | reinterpret_cast<uintptr_t>(n.out(0).data)) % 16 == 0)
    return move_as<Vector<uint64_t, 2>>(n, queue);
  switch (galley_dtype_bytes(n.in(0).dtype)) {
    case 8: return move_as<uint64_t>(n, queue);
    case 4: return move_as<uint32_t>(n, queue);
    case 2: return move_as<uint16_t>(n, queue);
    default: return move_as<uint8_t>(n, queue);
  }
}

/// One side or both in F64.
__global__ void __launch_bounds__(kThreads) copy_doubles(Reader x, Writer y, int64_t count) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  const bool from_double = x.dtype == GALLEY_F64;
  const double exact = from_double ? static_cast<const double*>(x.data)[i] : 0;
  const float value = from_double ? static_cast<float>(exact) : x.at(i);
  if (y.dtype != GALLEY_F64) return y.put(i, value);
  double* const to = static_cast<double*>(y.data) + i;
  if (from_double) *to = y.adds ? *to + exact : exact;
  else *to = static_cast<double>(y.adds ? static_cast<float>(*to) + value : value);
}

struct Same {
  __device__ float operator()(float x) const { return x; }
};

void copy(const Node& n, void*, galley_queue* queue) {
  const galley_operand &x = n.in(0), &y = n.out(0);
  if (x.dtype == y.dtype && !n.accumulates(0)) return move(n, queue);
  if (x.dtype != GALLEY_F64 && y.dtype != GALLEY_F64) return map(n, queue, Same());
  launch(copy_doubles, {count(x) / kThreads + 1, kThreads}, queue, Reader(n, 0), Writer(n, 0), count(x));
}

bool floating(uint32_t dtype) { return dtype == GALLEY_F64 || is_number(dtype); }
bool supports(const Node& n) {
  const galley_operand &x = n.in(0), &y = n.out(0);
  return floating(x.dtype) ? floating(y.dtype) : x.dtype == y.dtype && !n.accumulates(0);
}

const bool added = add(kernel<copy, supports>("copy.cuda", "copy"));

}  // namespace
}  // namespace galley::cuda::copy_op
