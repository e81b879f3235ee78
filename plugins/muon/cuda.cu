// Muon on CUDA, bound by memory: muon_momentum reads gradient and momentum for the norm and again for the direction.
#include "galley/cuda/reduce.hpp"
#include "galley/cuda/steps.hpp"
#include "rule.hpp"

namespace {

using namespace galley::cuda;
using namespace galley::muon;

constexpr int kThreads = 256;
constexpr int64_t kBlock = 8192;  // elements

struct Matrix {
  explicit Matrix(const Node& node)
      : constants(node),
        count(galley::cuda::count(node.in(kGradient))),
        gradient(node, kGradient),
        direction(node, 0),
        factor(node.read<float>(kFactor)),
        apply(node.read<int32_t>(kApply)),
        momentum(node.update<float>(kMomentum)) {}

  Momentum constants;
  int64_t count;
  Reader gradient;
  Writer direction;
  const float* factor;
  const int32_t* apply;
  float* momentum;
  double* squares = nullptr;  // of each block; the first one becomes 1 / norm
};

__global__ void __launch_bounds__(kThreads) update_momenta(GALLEY_SEGMENTS(Matrix) matrices) {
  const auto found = matrices.find(blockIdx.x);
  const Matrix& m = found.entry;
  if (!*m.apply) return;
  const int64_t begin = found.block * kBlock, end = m.count - begin < kBlock ? m.count : begin + kBlock;
  const float factor = *m.factor;
  double sum = 0;
  for (int64_t at = begin + threadIdx.x * kQuad; at < end; at += kThreads * kQuad) {
    const int n = quad_at(at, end);
    float g[kQuad], momentum[kQuad], squares = 0;
    load_quad(m.momentum + at, n, momentum);
    load_quad(m.gradient.data, m.gradient.dtype, at, n, g);
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      momentum[i] = m.constants.buffer(momentum[i], factor * g[i]);
      const float d = m.constants.direction(momentum[i], factor * g[i]);
      squares += d * d;
    }
    store_quad(m.momentum + at, n, momentum);
    sum += static_cast<double>(squares);
  }
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) m.squares[found.block] = sum;
}

/// A block for each matrix.
__global__ void __launch_bounds__(kThreads) invert_norms(GALLEY_SEGMENTS(Matrix) matrices) {
  const Matrix& m = matrices.rows[blockIdx.x].entry;
  if (!*m.apply) return;
  double sum = 0;
  for (int64_t k = threadIdx.x; k < (m.count + kBlock - 1) / kBlock; k += kThreads) sum += m.squares[k];
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) m.squares[0] = static_cast<double>(m.constants.inverse(sum));
}

__global__ void __launch_bounds__(kThreads) make_directions(GALLEY_SEGMENTS(Matrix) matrices) {
  const auto found = matrices.find(blockIdx.x);
  const Matrix& m = found.entry;
  const bool applies = *m.apply != 0;
  const int64_t begin = found.block * kBlock, end = m.count - begin < kBlock ? m.count : begin + kBlock;
  const float factor = *m.factor, inverse = applies ? static_cast<float>(m.squares[0]) : 0;
  for (int64_t at = begin + threadIdx.x * kQuad; at < end; at += kThreads * kQuad) {
    const int n = quad_at(at, end);
    float g[kQuad], momentum[kQuad];
    load_quad(m.momentum + at, n, momentum);
    load_quad(m.gradient.data, m.gradient.dtype, at, n, g);
#pragma unroll
    for (int i = 0; i < kQuad; ++i) g[i] = applies ? inverse * m.constants.direction(momentum[i], factor * g[i]) : 0;
    store_quad(m.direction.data, m.direction.dtype, at, n, g);
  }
}

class Momenta {
 public:
  static void query(const Nodes& nodes, const galley_target&, galley_kernel_plan& plan) {
    for (const Node& node : nodes) {
      if (!is_number(node.in(kGradient).dtype) || !is_number(node.out(0).dtype)) unsupported("dtypes");
      plan.workspace_bytes += blocks_of(galley::cuda::count(node.in(kGradient)), kBlock) * static_cast<int64_t>(sizeof(double));
    }
  }
  Momenta(const Nodes& nodes, const galley_kernel_setup& setup) {
    auto* squares = static_cast<double*>(setup.workspace);
    for (const Node& node : nodes) {
      Matrix m(node);
      m.squares = squares;
      const int64_t blocks = blocks_of(m.count, kBlock);
      squares += blocks;
      matrices_.add(m, blocks);
    }
  }
  void run(galley_queue* queue) const {
    matrices_.launch(update_momenta, kThreads, queue);
    matrices_.launch_entries(invert_norms, kThreads, queue);
    matrices_.launch(make_directions, kThreads, queue);
  }

 private:
  Segments<Matrix> matrices_;
};

struct Square {
  explicit Square(const Node& node) : constants(node), size(columns(node.in(0))), gram(node, 0), square(node, 1), out(node, 0) {}

  Polynomial constants;
  int64_t size;
  Reader gram, square;
  Writer out;
};

__global__ void __launch_bounds__(kThreads) make_polynomials(GALLEY_SEGMENTS(Square) squares) {
  const auto found = squares.find(blockIdx.x);
  const Square& s = found.entry;
  const int64_t count = s.size * s.size, begin = found.block * kBlock, end = count - begin < kBlock ? count : begin + kBlock;
  for (int64_t at = begin + threadIdx.x * kQuad; at < end; at += kThreads * kQuad) {
    const int n = quad_at(at, end);
    float gram[kQuad], square[kQuad];
    load_quad(s.gram.data, s.gram.dtype, at, n, gram);
    load_quad(s.square.data, s.square.dtype, at, n, square);
    // The first element of the diagonal from `at` on.
    const uint32_t stride = static_cast<uint32_t>(s.size) + 1, past = static_cast<uint32_t>(at) % stride;
    const uint32_t diagonal = past == 0 ? 0 : stride - past;
#pragma unroll
    for (int i = 0; i < kQuad; ++i)
      gram[i] = s.constants.element(gram[i], square[i], static_cast<uint32_t>(i) % stride == diagonal % stride);
    store_quad(s.out.data, s.out.dtype, at, n, gram);
  }
}

class Polynomials {
 public:
  static void query(const Nodes& nodes, const galley_target&, galley_kernel_plan&) {
    for (const Node& node : nodes) {
      if (!is_number(node.in(0).dtype) || !is_number(node.in(1).dtype) || !is_number(node.out(0).dtype)) unsupported("dtypes");
      if (galley::cuda::count(node.in(0)) > UINT32_MAX) unsupported("matrices of more than 65,535 rows");
    }
  }
  Polynomials(const Nodes& nodes, const galley_kernel_setup&) {
    for (const Node& node : nodes) squares_.add(Square(node), blocks_of(galley::cuda::count(node.in(0)), kBlock));
  }
  void run(galley_queue* queue) const { squares_.launch(make_polynomials, kThreads, queue); }

 private:
  Segments<Square> squares_;
};

const bool registered = add(nodes_kernel<Momenta>("muon_momentum.cuda", "muon_momentum")) &&
                        add(nodes_kernel<Polynomials>("muon_polynomial.cuda", "muon_polynomial")) && add_step_kernels<Rule>("muon_step");

}  // namespace

GALLEY_PLUGIN("muon", "1.0.0");
