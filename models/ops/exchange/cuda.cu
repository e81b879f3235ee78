// Exchanges of one rank: the sum is its tensor, and its part the whole.
#include "galley/cuda/elementwise.hpp"

namespace galley::cuda::exchange_op {
namespace {

constexpr int kThreads = 256, kNumbers = 4;  // that a thread takes

template <class T>
__device__ T plus(T a, T b) {
  if constexpr (sizeof(T) == 2) {
    T sum;
    narrow(widen(a) + widen(b), sum);
    return sum;
  } else {
    return a + b;
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) exchange_alone(const T* x, T* y, int64_t count, bool adds) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kNumbers * kThreads) + threadIdx.x;
#pragma unroll
  for (int k = 0; k < kNumbers; ++k)
    if (const int64_t i = first + k * kThreads; i < count) y[i] = adds ? plus(y[i], x[i]) : x[i];
}
template <class T>
void run_as(const Node& n, galley_queue* queue, int64_t numbers) {
  launch(exchange_alone<T>, {numbers / (kNumbers * kThreads) + 1, kThreads}, queue, n.read<T>(0), n.write<T>(0), numbers, n.accumulates(0));
}

bool alone(const Node& n) { return n.i("ranks", 0) == 1; }

void nothing(const Node&, void*, galley_queue*) {}
void sum(const Node& n, void*, galley_queue* queue) {
  switch (n.in(0).dtype) {
    case GALLEY_F64: return run_as<double>(n, queue, count(n.in(0)));
    case GALLEY_I32: return run_as<uint32_t>(n, queue, count(n.in(0)));
    case GALLEY_BF16: return run_as<Bf16>(n, queue, count(n.in(0)));
    case GALLEY_F16: return run_as<F16>(n, queue, count(n.in(0)));
    default: return run_as<float>(n, queue, count(n.in(0)));
  }
}
void move(const Node& n, void*, galley_queue* queue) { run_as<uint8_t>(n, queue, galley_operand_bytes(&n.in(0))); }

const bool added =
    add(kernel<nothing, alone>("all_reduce_here.cuda", "all_reduce_here")) && add(kernel<sum, alone>("all_reduce.cuda", "all_reduce")) &&
    add(kernel<sum, alone>("reduce_scatter.cuda", "reduce_scatter")) && add(kernel<move, alone>("all_gather.cuda", "all_gather")) &&
    add(kernel<nothing, alone>("all_gather_here.cuda", "all_gather_here"));

}  // namespace
}  // namespace galley::cuda::exchange_op
