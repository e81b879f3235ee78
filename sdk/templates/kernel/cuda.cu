// fromage_step on a GPU, for F32, in two launches for all parameters of the model: sums of squares, then the step. 20 bytes an element:
// parameter and gradient are read twice, the parameter is written. Bound by memory.
//
// This file is built twice. nvcc makes fromage-cuda.so of it. The C++ compiler makes fromage-cuda-emulated.so, where each CUDA thread is a
// fiber: `galley check` runs that one without a GPU, and finds missing barriers, reads of shared memory that nothing was written to,
// misaligned vectors, and writes outside of an operand. So the source uses launch() and GALLEY_SHARED() instead of <<<…>>> and __shared__;
// else it is CUDA.
#include <galley/cuda/kernel.hpp>
#include <galley/cuda/quad.hpp>
#include <galley/cuda/reduce.hpp>
#include <galley/cuda/segments.hpp>

namespace {

using namespace galley::cuda;

constexpr int kThreads = 256;     // of a block
constexpr int64_t kBlock = 8192;  // elements of a block of the second launch: 8 quads for each thread
// Of the first launch: fewer, but no more than so many blocks for one parameter, since each block of the second adds up all that they find.
constexpr int64_t kSumBlock = 1024, kMostSums = 512;

// A row of the table that both kernels read: one for each parameter. Operands are addresses in the device's memory, which only device code
// may read. That holds for lr, factor and apply, too: they change from step to step, while the launch stays the same.
struct Step {
  float* p;
  const float* gradient;
  const float *lr, *factor;
  const int32_t* apply;
  float* sums;  // of p, then of the gradient: n_sums each, in the workspace
  int64_t n_sums, count;
};

// ---- The kernels ------------------------------------------------------------------------------------------------------------------

// A reduction. The threads of a block add up squares in steps of all blocks of the parameter; then block_sum() adds up the threads, in a
// fixed tree. No atomics: the same numbers give the same bits in each run, whatever the GPU does first.
__global__ void __launch_bounds__(kThreads) sum_squares(GALLEY_SEGMENTS(Step) steps) {
  const auto found = steps.find(blockIdx.x);  // the parameter of this block, and the block's number in it
  const Step s = found.entry;
  if (!*s.apply) return;  // all threads of the block, or none: a thread that returns must not be waited for
  const float factor = *s.factor;
  float p_squares = 0, g_squares = 0;
  for (int64_t at = (found.block * kThreads + threadIdx.x) * kQuad; at < s.count; at += s.n_sums * kThreads * kQuad) {
    // Four numbers in one instruction, where the address is one of 16 bytes; after the end there are zeros.
    float p[kQuad], gradient[kQuad];
    load_quad(s.p + at, quad_at(at, s.count), p);
    load_quad(s.gradient + at, quad_at(at, s.count), gradient);
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      const float g = factor * gradient[i];
      p_squares += p[i] * p[i];
      g_squares += g * g;
    }
  }
  p_squares = block_sum<kThreads>(p_squares);
  g_squares = block_sum<kThreads>(g_squares);
  if (threadIdx.x == 0) {
    s.sums[found.block] = p_squares;
    s.sums[s.n_sums + found.block] = g_squares;
  }
}

// The element-wise part. What all threads of a block need is computed by its first warp, and passed through shared memory.
__global__ void __launch_bounds__(kThreads) change_parameters(GALLEY_SEGMENTS(Step) steps) {
  struct Rule {
    float rate, shrink;
  };
  GALLEY_SHARED(Rule, rule, 1);  // a pointer to one Rule
  const auto found = steps.find(blockIdx.x);
  const Step s = found.entry;
  if (!*s.apply) return;
  if (threadIdx.x < kWarpSize) {
    float p_squares = 0, g_squares = 0;
    for (int64_t i = threadIdx.x; i < s.n_sums; i += kWarpSize) {
      p_squares += s.sums[i];
      g_squares += s.sums[s.n_sums + i];
    }
    p_squares = warp_sum(p_squares);
    g_squares = warp_sum(g_squares);
    if (threadIdx.x == 0) {
      const float lr = *s.lr, ratio = p_squares > 0 && g_squares > 0 ? sqrtf(p_squares / g_squares) : 1.0f;
      rule->rate = lr * ratio * *s.factor;
      rule->shrink = 1.0f / sqrtf(1.0f + lr * lr);
    }
  }
  // Without this line other warps would read what is not there yet. Give each barrier a line of its own: GALLEY_CUDA_MUTANT=cuda.cu:LINE
  // removes it from the emulated kernel, and `galley check` has to fail.
  __syncthreads();
  const float rate = rule->rate, shrink = rule->shrink;
  const int64_t begin = found.block * kBlock, end = s.count - begin < kBlock ? s.count : begin + kBlock;
  for (int64_t at = begin + threadIdx.x * kQuad; at < end; at += kThreads * kQuad) {
    float p[kQuad], gradient[kQuad];
    load_quad(s.p + at, quad_at(at, end), p);
    load_quad(s.gradient + at, quad_at(at, end), gradient);
#pragma unroll
    for (int i = 0; i < kQuad; ++i) p[i] = (p[i] - rate * gradient[i]) * shrink;
    store_quad(s.p + at, quad_at(at, end), p);
  }
}

// ---- What Galley calls --------------------------------------------------------------------------------------------------------------

// By the shape alone, so that sums do not depend on the GPU.
int64_t sums_of(const Node& node) {
  const int64_t blocks = blocks_of(count(node.in(0)), kSumBlock);
  return blocks < kMostSums ? blocks : kMostSums;
}

// The steps of any number of parameters: Galley offers all of them, and a model has hundreds, too small for a launch each.
class Steps {
 public:
  // While a run is planned, perhaps on a machine without a GPU: operands have no addresses yet. Throws where the kernel does not support a
  // node, and says what it needs. The workspace holds anything when a launch begins.
  static void query(const Nodes& nodes, const galley_target&, galley_kernel_plan& plan) {
    for (const Node& node : nodes) {
      if (node.in(0).dtype != GALLEY_F32 || node.in(1).dtype != GALLEY_F32) unsupported("dtypes");
      plan.workspace_bytes += 2 * sums_of(node) * static_cast<int64_t>(sizeof(float));
    }
  }
  // When all addresses are known. From here on they stay.
  Steps(const Nodes& nodes, const galley_kernel_setup& setup) {
    auto* sums = static_cast<float*>(setup.workspace);
    for (const Node& node : nodes) {
      Step s = {};
      s.p = node.update<float>(0);
      s.gradient = node.read<float>(1);
      s.lr = node.read<float>(2);
      s.factor = node.read<float>(3);
      s.apply = node.read<int32_t>(4);
      s.sums = sums;
      s.n_sums = sums_of(node);
      s.count = count(node.in(0));
      sums += 2 * s.n_sums;
      sums_.add(s, s.n_sums);
      steps_.add(s, blocks_of(s.count, kBlock));
    }
  }
  // In each step, or once, while Galley records a graph of launches. Must not allocate, wait, or read what is on the device.
  void run(galley_queue* queue) const {
    sums_.launch(sum_squares, kThreads, queue);
    steps_.launch(change_parameters, kThreads, queue);
  }

 private:
  Segments<Step> sums_, steps_;  // which parameter each block of a launch belongs to
};

const bool registered = add(nodes_kernel<Steps>("fromage_step.cuda", "fromage_step"));

}  // namespace

GALLEY_PLUGIN("fromage", "1.0.0");
