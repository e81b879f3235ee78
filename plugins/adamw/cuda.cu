// adamw_step of any number of parameters in one launch, and adamw_step>copy, which also writes the new parameter in 16 bit: 28 bytes an
// element (36 with amsgrad), 26 with a gradient in BF16 or F16, 2 more for a copy. Bound by memory. Blocks of 8192 elements; each finds its
// parameter in a table. lr, step, factor and apply are in the device's memory, so each block computes the step's rule: in double, as the
// CPU does, by one thread for each of the two powers, while the other blocks of the multiprocessor keep the memory busy. The arithmetic of
// an element is that of cpu.cpp, operation by operation.
#include "galley/cuda/kernel.hpp"
#include "galley/cuda/quad.hpp"
#include "galley/cuda/segments.hpp"

namespace {

using namespace galley::cuda;

constexpr int kThreads = 256, kWarp = 32;
constexpr int64_t kBlock = 8192;  // elements: 8 quads a thread, so that the rule costs little

/// One parameter's step.
struct Step {
  float* p;
  const void* gradient;
  float *mean, *square, *largest;  // largest: of amsgrad, or null
  void* copy;                      // what the chain's second link writes, or null
  const float *lr, *factor;
  const int64_t* step;
  const int32_t* apply;
  int64_t count;
  double beta1, beta2, decay;
  float new_mean, keep_square, new_square, eps;  // 1 − β₁, β₂, 1 − β₂
  uint32_t gradient_dtype, copy_dtype;
};

/// What the threads of a block share: in registers, it would leave room for too few of them.
struct Part {
  Step step;
  int64_t begin, end;  // elements
  // What is the same for all elements of a parameter, and known only on the device.
  float factor;  // of the gradient
  float keep;    // of the parameter: 1 − lr · weight_decay
  float rate;    // lr / (1 − β₁ᵗ)
  float root;    // 1 / √(1 − β₂ᵗ)
};

/// The n ≤ 4 elements from `at` on.
__device__ void step_quad(const Part& part, int64_t at, int n) {
  const Step& s = part.step;
  float p[kQuad], gradient[kQuad], mean[kQuad], square[kQuad], largest[kQuad];
  const bool amsgrad = s.largest != nullptr;
  load_quad(s.p + at, n, p);
  load_quad(s.mean + at, n, mean);
  load_quad(s.square + at, n, square);
  if (amsgrad) load_quad(s.largest + at, n, largest);
  load_quad(s.gradient, s.gradient_dtype, at, n, gradient);  // the last one: it waits for what it converts
#pragma unroll
  for (int i = 0; i < kQuad; ++i) {
    const float g = part.factor * gradient[i];
    const float m = mean[i] + s.new_mean * (g - mean[i]);
    const float v = s.keep_square * square[i] + s.new_square * (g * g);
    mean[i] = m;
    square[i] = v;
    float second = v;
    if (amsgrad) second = largest[i] = largest[i] > v ? largest[i] : v;
    p[i] = p[i] * part.keep - part.rate * (m / (sqrtf(second) * part.root + s.eps));
  }
  store_quad(s.p + at, n, p);
  store_quad(s.mean + at, n, mean);
  store_quad(s.square + at, n, square);
  if (amsgrad) store_quad(s.largest + at, n, largest);
  if (s.copy) store_quad(s.copy, s.copy_dtype, at, n, p);
}

__global__ void __launch_bounds__(kThreads) adamw_steps(GALLEY_SEGMENTS(Step) steps) {
  GALLEY_SHARED(Part, part, 1);
  if (threadIdx.x == 0) {
    const auto found = steps.find(blockIdx.x);
    const Step& s = found.entry;
    const double lr = *s.lr;
    part->step = s;
    part->begin = found.block * kBlock;
    part->end = s.count - part->begin < kBlock ? s.count : part->begin + kBlock;
    part->factor = *s.factor;
    part->keep = static_cast<float>(1 - lr * s.decay);
    part->rate = static_cast<float>(lr / (1 - pow(s.beta1, static_cast<double>(*s.step))));
  } else if (threadIdx.x == kWarp) {
    const auto found = steps.find(blockIdx.x);
    const Step& s = found.entry;
    part->root = static_cast<float>(1 / sqrt(1 - pow(s.beta2, static_cast<double>(*s.step))));
  }
  __syncthreads();
  const Step& s = part->step;
  const int64_t end = part->end;
  if (*s.apply) {
    for (int64_t at = part->begin + threadIdx.x * kQuad; at < end; at += kThreads * kQuad) step_quad(*part, at, quad_at(at, end));
  } else if (s.copy) {
    for (int64_t at = part->begin + threadIdx.x * kQuad; at < end; at += kThreads * kQuad) {
      float p[kQuad];
      load_quad(s.p + at, quad_at(at, end), p);
      store_quad(s.copy, s.copy_dtype, at, quad_at(at, end), p);
    }
  }
}

void check(const Node& node) {
  for (const uint32_t i : {0u, 2u, 3u, 4u, 6u, 8u})
    if (node.has(i) && node.in(i).dtype != GALLEY_F32) unsupported("dtypes");
  if (!is_number(node.in(1).dtype) || node.in(5).dtype != GALLEY_I64 || node.in(7).dtype != GALLEY_I32) unsupported("dtypes");
}

Step step_of(const Node& node) {
  const double beta1 = node.f("beta1", 0.9), beta2 = node.f("beta2", 0.999);
  Step s = {};
  s.p = node.update<float>(0);
  s.gradient = node.in(1).data;
  s.mean = node.update<float>(2);
  s.square = node.update<float>(3);
  s.largest = node.has(8) ? node.update<float>(8) : nullptr;
  s.lr = node.read<float>(4);
  s.factor = node.read<float>(6);
  s.step = node.read<int64_t>(5);
  s.apply = node.read<int32_t>(7);
  s.count = count(node.in(0));
  s.beta1 = beta1;
  s.beta2 = beta2;
  s.decay = node.f("weight_decay", 0);
  s.new_mean = static_cast<float>(1 - beta1);
  s.keep_square = static_cast<float>(beta2);
  s.new_square = static_cast<float>(1 - beta2);
  s.eps = static_cast<float>(node.f("eps", 1e-8));
  s.gradient_dtype = node.in(1).dtype;
  return s;
}

/// Steps alone (links = 1), or each followed by a copy (links = 2).
template <size_t links>
class Steps {
 public:
  static void query(const Nodes& nodes, const galley_target&, galley_kernel_plan&) {
    for (size_t i = 0; i < nodes.size(); i += links) {
      check(nodes[i]);
      if (links > 1) check_copy(nodes[i], nodes[i + 1]);
    }
  }
  Steps(const Nodes& nodes, const galley_kernel_setup&) {
    for (size_t i = 0; i < nodes.size(); i += links) {
      Step s = step_of(nodes[i]);
      if (links > 1) {
        s.copy = nodes[i + 1].out(0).data;
        s.copy_dtype = nodes[i + 1].out(0).dtype;
      }
      steps_.add(s, blocks_of(s.count, kBlock));
    }
  }
  void run(galley_queue* queue) const { steps_.launch(adamw_steps, kThreads, queue); }

 private:
  static void check_copy(const Node& step, const Node& made) {
    const galley_operand& copy = made.out(0);
    if (!galley::sdk::same_operand(step.in(0), made.in(0))) unsupported("copies of something else than the parameter");
    if (copy.access != GALLEY_WRITE || (copy.dtype != GALLEY_BF16 && copy.dtype != GALLEY_F16))
      unsupported("copies that are not in 16 bit");
  }
  Segments<Step> steps_;
};

const bool registered =
    add(nodes_kernel<Steps<1>>("adamw_step.cuda", "adamw_step")) && add(nodes_kernel<Steps<2>>("adamw_step_copy.cuda", "adamw_step>copy"));

}  // namespace

GALLEY_PLUGIN("adamw", "1.0.0");
