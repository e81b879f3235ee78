// Muon on the CPU. muon_momentum: gradient and momentum are read twice and the momentum written once, 20 bytes an element and those of the
// direction; the norm is a sum in a fixed order. All bound by memory.
#include <algorithm>

#include "galley/cpp/lane_sum.hpp"
#include "galley/cpp/steps.hpp"
#include "rule.hpp"

namespace {

using namespace galley::sdk;
using namespace galley::muon;

constexpr int64_t kBlock = 16384, kTile = 1024;

bool is_number(const galley_operand& operand) { return operand.dtype == GALLEY_F32 || galley::sdk::detail::is_16_bit(operand.dtype); }

/// n numbers of an output that are made where they lie, or, in 16 bit, in `room`.
float* open(const Stored& out, int64_t at, float* room) { return out.in_place() ? out.load(at, 0, room) : room; }

class Momenta {
 public:
  static void query(const Nodes& nodes, const galley_target&, galley_kernel_plan& plan) {
    for (const Node& node : nodes) {
      if (!is_number(node.in(kGradient)) || !is_number(node.out(0))) unsupported("dtypes");
      plan.workspace_bytes += blocks_of(node) * static_cast<int64_t>(sizeof(double));
    }
  }
  Momenta(const Nodes& nodes, const galley_kernel_setup& setup) : squares_(static_cast<double*>(setup.workspace)) {
    int64_t first = 0;
    for (const Node& node : nodes) {
      matrices_.push_back({node, Momentum(node), Stored(node.in(kGradient)), Stored(node.out(0)), node.update<float>(kMomentum), first});
      blocks_.add(node.in(kGradient));
      first += blocks_of(node);
    }
  }
  void run() {
    for (Matrix& m : matrices_) m.applies = *m.node.read<int32_t>(kApply) != 0, m.factor = *m.node.read<float>(kFactor);
    blocks_.run(
        [&](size_t i, int64_t begin, int64_t n) { squares_[matrices_[i].first + begin / kBlock] = add_up(matrices_[i], begin, n); });
    for (Matrix& m : matrices_) {
      double sum = 0;
      for (int64_t k = 0; k < blocks_of(m.node); ++k) sum += squares_[m.first + k];
      m.inverse = m.applies ? m.constants.inverse(sum) : 0;
    }
    blocks_.run([&](size_t i, int64_t begin, int64_t n) { scale(matrices_[i], begin, n); });
  }

 private:
  struct Matrix {
    Node node;
    Momentum constants;
    Stored gradient, direction;
    float* momentum;
    int64_t first;  // of its sums
    bool applies = false;
    float factor = 0, inverse = 0;
  };
  static int64_t blocks_of(const Node& node) { return (count(node.in(kGradient)) + kBlock - 1) / kBlock; }

  static double add_up(const Matrix& m, int64_t begin, int64_t count) {
    if (!m.applies) return 0;
    alignas(64) float room[kTile];
    double sum = 0;
    for (int64_t at = begin; at < begin + count; at += kTile) {
      const int64_t n = std::min(kTile, begin + count - at);
      const float* const gradient = m.gradient.load(at, n, room);
      float* const momentum = m.momentum + at;
      sum += lane_sum(n, [=, factor = m.factor, constants = m.constants](int64_t i) {
        const float g = factor * gradient[i];
        const float buffer = momentum[i] = constants.buffer(momentum[i], g);
        const float d = constants.direction(buffer, g);
        return d * d;
      });
    }
    return sum;
  }
  static void scale(const Matrix& m, int64_t begin, int64_t count) {
    alignas(64) float of_gradient[kTile], of_direction[kTile];
    for (int64_t at = begin; at < begin + count; at += kTile) {
      const int64_t n = std::min(kTile, begin + count - at);
      float* const to = open(m.direction, at, of_direction);
      if (m.applies) scale_tile(m.constants, m.factor, m.inverse, m.gradient.load(at, n, of_gradient), m.momentum + at, n, to);
      else std::fill_n(to, n, 0.0f);
      m.direction.store(to, n, at);
    }
  }
  static void scale_tile(const Momentum constants, float factor, float inverse, const float* __restrict gradient,
                         const float* __restrict momentum, int64_t n, float* __restrict to) {
    for (int64_t i = 0; i < n; ++i) to[i] = inverse * constants.direction(momentum[i], factor * gradient[i]);
  }

  std::vector<Matrix> matrices_;
  ElementBlocks blocks_{kBlock};
  double* squares_;
};

class Polynomials {
 public:
  static void query(const Nodes& nodes, const galley_target&, galley_kernel_plan&) {
    for (const Node& node : nodes)
      if (!is_number(node.in(0)) || !is_number(node.in(1)) || !is_number(node.out(0))) unsupported("dtypes");
  }
  Polynomials(const Nodes& nodes, const galley_kernel_setup&) {
    for (const Node& node : nodes) {
      matrices_.push_back({Polynomial(node), Stored(node.in(0)), Stored(node.in(1)), Stored(node.out(0)), columns(node.in(0))});
      blocks_.add(node.in(0));
    }
  }
  void run() {
    blocks_.run([&](size_t i, int64_t begin, int64_t n) { make(matrices_[i], begin, n); });
  }

 private:
  struct Matrix {
    Polynomial constants;
    Stored gram, square, out;
    int64_t size;
  };
  static void make(const Matrix& m, int64_t begin, int64_t count) {
    alignas(64) float of_gram[kTile], of_square[kTile], of_out[kTile];
    for (int64_t at = begin; at < begin + count; at += kTile) {
      const int64_t n = std::min(kTile, begin + count - at), stride = m.size + 1;
      const float *const gram = m.gram.load(at, n, of_gram), *const square = m.square.load(at, n, of_square);
      float* const to = open(m.out, at, of_out);
      const Polynomial constants = m.constants;
      for (int64_t i = 0; i < n; ++i) to[i] = constants.element(gram[i], square[i], false);
      for (int64_t i = (at + stride - 1) / stride * stride - at; i < n; i += stride) to[i] = constants.element(gram[i], square[i], true);
      m.out.store(to, n, at);
    }
  }

  std::vector<Matrix> matrices_;
  ElementBlocks blocks_{kBlock};
};

const bool registered = add(nodes_kernel<Momenta>("muon_momentum.cpu", "muon_momentum")) &&
                        add(nodes_kernel<Polynomials>("muon_polynomial.cpu", "muon_polynomial")) && add_step_kernels<Rule>("muon_step");

}  // namespace

GALLEY_PLUGIN("muon", "1.0.0");
