// swiglu: y = silu(gate) · up. swiglu_grad: dgate = dy · up · silu'(gate) and dup = dy · silu(gate), either of which may be absent. One
// pass over three operands forward, five backward, at their bandwidth. A thread reads its eight numbers before it writes either gradient,
// so both may take over an input.
#include "cuda/activation.hpp"
#include "galley/cuda/elementwise.hpp"

namespace galley::cuda::swiglu_op {
namespace {

void forward(const Node& n, void*, galley_queue* queue) { map2(n, queue, Swiglu()); }

__global__ void __launch_bounds__(kMapThreads) gradients(Reader dy, Reader gate, Reader up, Writer dgate, Writer dup, int64_t count) {
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * kMapThreads + threadIdx.x) * kPack;
  if (at >= count) return;
  const int n = pack_at(at, count);
  float d[kPack], g[kPack], u[kPack];
  dy.load(at, n, d);
  gate.load(at, n, g);
  if (dgate.there()) up.load(at, n, u);
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    const float s = sigmoid(g[i]), value = g[i] * s;
    if (dgate.there()) u[i] = d[i] * u[i] * fmaf(value, 1.0f - s, s);
    g[i] = d[i] * value;
  }
  if (dgate.there()) dgate.store(at, n, u);
  if (dup.there()) dup.store(at, n, g);
}

void backward(const Node& n, void*, galley_queue* queue) {
  const int64_t size = count(n.in(0));
  launch(gradients, map_grid(size), queue, Reader(n, 0), Reader(n, 1), Reader(n, 2), Writer(n, 0), Writer(n, 1), size);
}

const bool added = add(kernel<forward>("swiglu.cuda", "swiglu")) && add(kernel<backward>("swiglu_grad.cuda", "swiglu_grad"));

}  // namespace
}  // namespace galley::cuda::swiglu_op
