// shift: y = x + by, of integers, and shift_long, which does so in long documents; a number a thread. Bound by memory.
#include "galley/cuda/elementwise.hpp"

namespace galley::cuda::shift_op {
namespace {

__global__ void __launch_bounds__(kMapThreads) shift_numbers(const int32_t* x, int32_t* y, int32_t by, int64_t count) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kMapThreads + threadIdx.x;
  if (at < count) y[at] = x[at] + by;
}

void shift(const Node& n, void*, galley_queue* queue) {
  const int64_t size = count(n.in(0));
  launch(shift_numbers, {blocks_of(size, kMapThreads), kMapThreads}, queue, n.read<int32_t>(0), n.write<int32_t>(0),
         static_cast<int32_t>(n.i("by", 0)), size);
}

__global__ void __launch_bounds__(kMapThreads)
    shift_documents(const int32_t* x, const int32_t* last_key, int32_t* y, int32_t by, int64_t longer, int64_t S, int64_t count) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kMapThreads + threadIdx.x;
  if (at < count) y[at] = x[at] + (x[at / S * S + last_key[at]] >= longer ? by : 0);
}

void shift_long(const Node& n, void*, galley_queue* queue) {
  const int64_t size = count(n.in(0));
  launch(shift_documents, {blocks_of(size, kMapThreads), kMapThreads}, queue, n.read<int32_t>(0), n.read<int32_t>(1), n.write<int32_t>(0),
         static_cast<int32_t>(n.i("by", 0)), n.i("longer_than", 0), columns(n.in(0)), size);
}

const bool added = add(kernel<shift>("shift.cuda", "shift")) && add(kernel<shift_long>("shift_long.cuda", "shift_long"));

}  // namespace
}  // namespace galley::cuda::shift_op
