// add and scale: one pass, at the bandwidth of the operands.
#include "galley/cuda/elementwise.hpp"

namespace galley::cuda::add_op {
namespace {

struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Multiple {
  float alpha;
  __device__ float operator()(float x) const { return alpha * x; }
  __device__ float operator()(float a, float b) const { return fmaf(alpha, b, a); }
};

void add_tensors(const Node& n, void*, galley_queue* queue) {
  const auto alpha = static_cast<float>(n.f("alpha", 1));
  if (alpha == 1.0f) map2(n, queue, Sum());
  else map2(n, queue, Multiple{alpha});
}
void scale(const Node& n, void*, galley_queue* queue) { map(n, queue, Multiple{static_cast<float>(n.f("alpha", 1))}); }

const bool added = add(kernel<add_tensors>("add.cuda", "add")) && add(kernel<scale>("scale.cuda", "scale"));

}  // namespace
}  // namespace galley::cuda::add_op
