// clip_factor: norm (1), factor (1), F32. One thread.
// clip_values: gradient (any shape), F32, BF16 or F16, in place; factor (1), F32. One launch for the gradients of all nodes, bound by
// memory.
#include "galley/cpp/groups.hpp"
#include "galley/cuda/kernel.hpp"
#include "galley/cuda/quad.hpp"
#include "galley/cuda/segments.hpp"

namespace {

using namespace galley::cuda;

__global__ void scale_factor(const float* norm, float* factor, float max_norm) {
  const float room = max_norm / (*norm + 1e-6f);
  *factor *= room > 1.0f ? 1.0f : room;
}

bool supports(const Node& node) { return node.in(0).dtype == GALLEY_F32 && node.in(1).dtype == GALLEY_F32; }

void clip_factor(const Node& node, void*, galley_queue* queue) {
  launch(scale_factor, {1, 1}, queue, node.read<float>(0), node.update<float>(1), static_cast<float>(node.f("max_norm", 1.0)));
}

constexpr int kThreads = 256;
constexpr int64_t kBlock = 8192;  // elements

struct Gradient {
  explicit Gradient(const Node& node)
      : data(node.in(0).data),
        factor(node.read<float>(1)),
        count(galley::cuda::count(node.in(0))),
        dtype(node.in(0).dtype),
        max_value(static_cast<float>(node.f("max_value", 1.0))) {}

  void* data;
  const float* factor;
  int64_t count;
  uint32_t dtype;
  float max_value;
};

/// NaN stays NaN.
__global__ void __launch_bounds__(kThreads) clamp_gradients(GALLEY_SEGMENTS(Gradient) gradients) {
  const auto found = gradients.find(blockIdx.x);
  const Gradient& g = found.entry;
  const int64_t begin = found.block * kBlock, end = g.count - begin < kBlock ? g.count : begin + kBlock;
  const float limit = g.max_value / *g.factor;
  for (int64_t at = begin + threadIdx.x * kQuad; at < end; at += kThreads * kQuad) {
    const int n = quad_at(at, end);
    float x[kQuad];
    load_quad(g.data, g.dtype, at, n, x);
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      const float low = x[i] < -limit ? -limit : x[i];
      x[i] = low > limit ? limit : low;
    }
    store_quad(g.data, g.dtype, at, n, x);
  }
}

class Values {
 public:
  static void query(const Nodes& nodes, const galley_target&, galley_kernel_plan&) {
    for (const Node& node : nodes)
      if (!is_number(node.in(0).dtype)) unsupported("dtypes");
  }
  Values(const Nodes& nodes, const galley_kernel_setup&) {
    for (const Node& node : nodes) gradients_.add(Gradient(node), blocks_of(galley::cuda::count(node.in(0)), kBlock));
  }
  void run(galley_queue* queue) const { gradients_.launch(clamp_gradients, kThreads, queue); }

 private:
  Segments<Gradient> gradients_;
};

const bool registered =
    add(kernel<clip_factor, supports>("clip_factor.cuda", "clip_factor")) && add(nodes_kernel<Values>("clip_values.cuda", "clip_values"));

}  // namespace

GALLEY_PLUGIN("clip", "1.0.0");
