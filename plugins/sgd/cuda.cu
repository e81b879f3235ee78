// sgd_step of any number of parameters in one launch: 12 bytes an element without momentum, 20 with it, 2 less with a gradient in BF16 or
// F16. Bound by memory. Blocks of 4096 elements; each finds its parameter in a table. lr, step, factor and apply are read on the device.
// The arithmetic of an element is that of cpu.cpp, operation by operation.
#include "galley/cuda/kernel.hpp"
#include "galley/cuda/quad.hpp"
#include "galley/cuda/segments.hpp"

namespace {

using namespace galley::cuda;

constexpr int kThreads = 256;
constexpr int64_t kBlock = 4096;  // elements: 4 quads a thread

/// One parameter's step.
struct Step {
  float* p;
  const void* gradient;
  float* buffer;  // of the momentum, or null
  const float *lr, *factor;
  const int64_t* step;
  const int32_t* apply;
  int64_t count;
  float momentum, part, decay;  // part: of the gradient in the momentum
  uint32_t gradient_dtype, nesterov;
};

__global__ void __launch_bounds__(kThreads) sgd_steps(GALLEY_SEGMENTS(Step) steps) {
  const auto found = steps.find(blockIdx.x);
  const Step s = found.entry;
  if (!*s.apply) return;
  const float lr = *s.lr, factor = *s.factor;
  const bool first = *s.step == 1;  // the buffer holds nothing yet
  const int64_t begin = found.block * kBlock, end = s.count - begin < kBlock ? s.count : begin + kBlock;
  for (int64_t at = begin + threadIdx.x * kQuad; at < end; at += kThreads * kQuad) {
    const int n = quad_at(at, end);
    float p[kQuad], gradient[kQuad], buffer[kQuad] = {};
    load_quad(s.p + at, n, p);
    if (s.buffer && !first) load_quad(s.buffer + at, n, buffer);
    load_quad(s.gradient, s.gradient_dtype, at, n, gradient);  // the last one: it waits for what it converts
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      const float g = factor * gradient[i] + s.decay * p[i];
      float direction = g;
      if (s.buffer) {
        const float b = first ? g : s.momentum * buffer[i] + s.part * g;
        buffer[i] = b;
        direction = s.nesterov ? g + s.momentum * b : b;
      }
      p[i] = p[i] - lr * direction;
    }
    store_quad(s.p + at, n, p);
    if (s.buffer) store_quad(s.buffer + at, n, buffer);
  }
}

class Steps {
 public:
  static void query(const Nodes& nodes, const galley_target&, galley_kernel_plan&) {
    for (const Node& node : nodes) {
      for (const uint32_t i : {0u, 2u, 4u, 6u})
        if (node.has(i) && node.in(i).dtype != GALLEY_F32) unsupported("dtypes");
      if (!is_number(node.in(1).dtype) || node.in(3).dtype != GALLEY_I64 || node.in(5).dtype != GALLEY_I32) unsupported("dtypes");
    }
  }
  Steps(const Nodes& nodes, const galley_kernel_setup&) {
    for (const Node& node : nodes) {
      Step s = {};
      s.p = node.update<float>(0);
      s.gradient = node.in(1).data;
      s.buffer = node.has(6) ? node.update<float>(6) : nullptr;
      s.lr = node.read<float>(2);
      s.factor = node.read<float>(4);
      s.step = node.read<int64_t>(3);
      s.apply = node.read<int32_t>(5);
      s.count = count(node.in(0));
      s.momentum = static_cast<float>(node.f("momentum", 0));
      s.part = static_cast<float>(1.0 - node.f("dampening", 0));
      s.decay = static_cast<float>(node.f("weight_decay", 0));
      s.gradient_dtype = node.in(1).dtype;
      s.nesterov = node.i("nesterov", 0) != 0;
      steps_.add(s, blocks_of(s.count, kBlock));
    }
  }
  void run(galley_queue* queue) const { steps_.launch(sgd_steps, kThreads, queue); }

 private:
  Segments<Step> steps_;
};

const bool registered = add(nodes_kernel<Steps>("sgd_step.cuda", "sgd_step"));

}  // namespace

GALLEY_PLUGIN("sgd", "1.0.0");
