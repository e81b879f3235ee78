// Adafactor on the CPU: two passes over the gradient for the moments, one of them with the parameter, and one for the step: 24 bytes an
// element, 20 without scale_parameter, 8 more with a first moment. Sums have a fixed order: 16 lanes in F32 for at most 1,024 numbers,
// those sums in double; columns 32 rows at a time. So neither threads nor the width of vectors change a bit.
#include <algorithm>
#include <array>

#include "arithmetic.hpp"
#include "galley/cpp/groups.hpp"
#include "galley/cpp/lane_sum.hpp"
#include "galley/cpp/stored.hpp"

namespace {

using namespace galley::sdk;
using namespace galley::adafactor;

constexpr int64_t kTile = 1024;  // columns that are taken at a time: what is kept of them stays in the first-level cache
constexpr int64_t kShort = 32;   // rows that are taken at a time

struct alignas(64) Tile {
  float of[kTile];
};

/// columns(c, n) for n ≤ 1,024 columns of at most 32 rows of a block, then row(r, c, n) for each of these rows.
template <class Columns, class Row>
void each_tile(const Matrix& m, int64_t first, int64_t end, const Columns& columns, const Row& row) {
  for (int64_t c = 0; c < m.columns; c += kTile) {
    const int64_t n = std::min(kTile, m.columns - c);
    columns(c, n);
    for (int64_t r = first; r < end; ++r) row(r, c, std::min(n, m.count - r * m.columns - c));
  }
}
/// body(first, end) for the rows of a block, 32 at a time.
template <class Body>
void each_short(const Matrix& m, int64_t block, const Body& body) {
  const int64_t end = m.end_of(block);
  for (int64_t first = block * m.rows_of_block; first < end; first += kShort) body(first, std::min(first + kShort, end));
}

/// A second moment, and the roots of it that belong to a tile.
class Roots {
 public:
  Roots(const float* squares, const float* column_squares) : squares_(squares), column_squares_(column_squares) {}
  void columns(int64_t c, int64_t n) {
    if (!column_squares_) return;
    const float* const from = column_squares_ + c;
    for (int64_t i = 0; i < n; ++i) inverse_.of[i] = 1 / sqrtf(from[i]);
  }
  /// body(u) with u(i, g): g over its root, for element i of the n from `at` on, which lie in row r.
  template <class Body>
  void row(int64_t r, int64_t at, const Body& body) const {
    if (column_squares_) {
      const float of_row = 1 / sqrtf(squares_[r]);
      const float* const of_column = inverse_.of;
      body([=](int64_t i, float g) { return g * of_row * of_column[i]; });
    } else {
      const float* const squares = squares_ + at;
      body([=](int64_t i, float g) { return g / sqrtf(squares[i]); });
    }
  }

 private:
  const float *squares_, *column_squares_;
  Tile inverse_;
};

// ---- Moments ----------------------------------------------------------------------------------------------------------------------------

/// Of one parameter. All parameters of a launch use the same workspace, one after the other.
class ParameterMoments {
 public:
  ParameterMoments(const Node& node, void* workspace)
      : node_(node),
        constants_(node),
        matrix_(node.in(kStepParameter), node.has(kColumns), kTile),
        gradient_(node.in(kStepGradient)),
        squares_(node.update<float>(kRows)),
        column_squares_(node.has(kColumns) ? node.update<float>(kColumns) : nullptr),
        sums_(static_cast<Sums*>(workspace)),
        partial_(reinterpret_cast<float*>(sums_ + matrix_.blocks())) {}

  static int64_t workspace(const Node& node) {
    const Matrix m(node.in(kStepParameter), node.has(kColumns), kTile);
    const int64_t partial = node.has(kColumns) ? m.blocks() * m.columns * static_cast<int64_t>(sizeof(float)) : 0;
    return m.blocks() * static_cast<int64_t>(sizeof(Sums)) + partial;
  }

  void run() {
    float* const out = node_.write<float>(0);
    out[0] = 0, out[1] = 1;
    if (!*node_.read<int32_t>(kStepApply)) return;
    const int64_t step = *node_.read<int64_t>(kStepNumber);
    factor_ = *node_.read<float>(kStepFactor);
    share_ = static_cast<float>(constants_.share(step));
    keep_ = static_cast<float>(1 - constants_.share(step));
    if (column_squares_) {
      parallel(matrix_.blocks(), [&](int64_t block) { sum_block(block); });
      parallel((matrix_.columns + kTile - 1) / kTile, [&](int64_t tile) { sum_columns(tile * kTile); });
    }
    parallel(matrix_.blocks(), [&](int64_t block) { sum_updates(block); });
    double update = 0, size = 0, row_mean = 0;
    for (int64_t block = 0; block < matrix_.blocks(); ++block) update += sums_[block].update, size += sums_[block].size;
    for (int64_t r = 0; column_squares_ && r < matrix_.rows; ++r) row_mean += static_cast<double>(squares_[r]);
    const double lr = static_cast<double>(*node_.read<float>(kLr)), rate = static_cast<double>(*node_.read<float>(kStepRate));
    constants_.finish(constants_.rho(lr, rate, step), update, size, column_squares_ ? row_mean / static_cast<double>(matrix_.rows) : 1,
                      matrix_.count, out);
  }

 private:
  struct Sums {
    double update, size;  // squares of g over its root, and of the parameter
  };

  float moment(float before, double mean) const { return keep_ * before + share_ * static_cast<float>(mean + constants_.eps_square); }

  /// Squares of a block of rows: for each row, its moment; for each column, what a workspace holds until all blocks are there.
  void sum_block(int64_t block) {
    float* const partial = partial_ + block * matrix_.columns;
    std::fill_n(partial, matrix_.columns, 0.0f);
    each_short(matrix_, block, [&](int64_t first, int64_t end) {
      std::array<double, kShort> rows = {};
      Tile few, room;
      for (int64_t c = 0; c < matrix_.columns; c += kTile) {
        const int64_t n = std::min(kTile, matrix_.columns - c);
        std::fill_n(few.of, n, 0.0f);
        for (int64_t r = first; r < end; ++r) {
          const float* const g = gradient_.load(r * matrix_.columns + c, n, room.of);
          const float factor = factor_;
          float* const to = few.of;
          rows[static_cast<size_t>(r - first)] += lane_sum(n, [=](int64_t i) {
            const float x = factor * g[i], square = x * x;
            to[i] += square;
            return square;
          });
        }
        for (int64_t i = 0; i < n; ++i) partial[c + i] += few.of[i];
      }
      for (int64_t r = first; r < end; ++r)
        squares_[r] = moment(squares_[r], rows[static_cast<size_t>(r - first)] / static_cast<double>(matrix_.columns));
    });
  }
  void sum_columns(int64_t c) {
    const int64_t n = std::min(kTile, matrix_.columns - c);
    Tile total = {};
    for (int64_t block = 0; block < matrix_.blocks(); ++block) {
      const float* const from = partial_ + block * matrix_.columns + c;
      for (int64_t i = 0; i < n; ++i) total.of[i] += from[i];
    }
    for (int64_t i = 0; i < n; ++i)
      column_squares_[c + i] = moment(column_squares_[c + i], static_cast<double>(total.of[i]) / static_cast<double>(matrix_.rows));
  }
  /// Sums over a block; what is not factored gets its moment here.
  void sum_updates(int64_t block) {
    Roots roots(squares_, column_squares_);
    Tile room;
    Sums sums = {};
    each_short(matrix_, block, [&](int64_t first, int64_t end) {
      each_tile(
          matrix_, first, end, [&](int64_t c, int64_t n) { roots.columns(c, n); },
          [&](int64_t r, int64_t c, int64_t n) {
            const int64_t at = r * matrix_.columns + c;
            const float* const g = gradient_.load(at, n, room.of);
            const float factor = factor_;
            if (!column_squares_) {
              float* const v = squares_ + at;
              for (int64_t i = 0; i < n; ++i) v[i] = moment(v[i], static_cast<double>(factor * g[i]) * static_cast<double>(factor * g[i]));
            }
            roots.row(r, at, [&](auto u) {
              sums.update += lane_sum(n, [=](int64_t i) {
                const float x = u(i, factor * g[i]);
                return x * x;
              });
            });
            if (!constants_.scaled) return;
            const float* const p = node_.read<float>(kStepParameter) + at;
            sums.size += lane_sum(n, [=](int64_t i) { return p[i] * p[i]; });
          });
    });
    sums_[block] = sums;
  }

  Node node_;
  Constants constants_;
  Matrix matrix_;
  Stored gradient_;
  float *squares_, *column_squares_;
  Sums* sums_;
  float* partial_;  // (blocks, columns)
  float factor_ = 0, share_ = 0, keep_ = 0;
};

class AllMoments {
 public:
  static void query(const Nodes& nodes, const galley_target&, galley_kernel_plan& plan) {
    for (const Node& node : nodes) {
      check_dtypes(node, kStepGradient);
      plan.workspace_bytes = std::max(plan.workspace_bytes, ParameterMoments::workspace(node));
    }
  }
  AllMoments(const Nodes& nodes, const galley_kernel_setup& setup) {
    for (const Node& node : nodes) moments_.emplace_back(node, setup.workspace);
  }
  void run() {
    for (ParameterMoments& m : moments_) m.run();
  }

 private:
  std::vector<ParameterMoments> moments_;
};

// ---- Steps ------------------------------------------------------------------------------------------------------------------------------

class ParameterApply {
 public:
  explicit ParameterApply(const Node& node, const galley_operand* copy)
      : node_(node),
        apply_(node),
        matrix_(node.in(kParameter), node.has(kColumnSquares), kTile),
        gradient_(node.in(kGradient)),
        squares_(node.read<float>(kSquares)),
        column_squares_(node.has(kColumnSquares) ? node.read<float>(kColumnSquares) : nullptr),
        mean_(node.has(kMean) ? node.update<float>(kMean) : nullptr) {
    if (copy) copy_ = Stored(*copy);
  }
  int64_t blocks() const { return matrix_.blocks(); }

  void run(int64_t block) const {
    Roots roots(squares_, column_squares_);
    Tile room;
    const bool applies = *node_.read<int32_t>(kApply) != 0;
    const std::array<float, 2> scale = {node_.read<float>(kScale)[0], node_.read<float>(kScale)[1]};
    const float factor = *node_.read<float>(kFactor);
    each_short(matrix_, block, [&](int64_t first, int64_t end) {
      each_tile(
          matrix_, first, end, [&](int64_t c, int64_t n) { roots.columns(c, n); },
          [&](int64_t r, int64_t c, int64_t n) {
            const int64_t at = r * matrix_.columns + c;
            float* const p = node_.update<float>(kParameter) + at;
            if (applies) {
              const float* const g = gradient_.load(at, n, room.of);
              roots.row(r, at, [&](auto u) { elements(apply_, scale, n, factor, g, u, p, mean_ ? mean_ + at : nullptr); });
            }
            if (copy_) copy_.store(p, n, at);
          });
    });
  }

 private:
  template <class U>
  static void elements(const Apply apply, const std::array<float, 2> scale, int64_t n, float factor, const float* __restrict g, const U u,
                       float* __restrict p, float* __restrict mean) {
    float none = 0;
    if (mean)
      for (int64_t i = 0; i < n; ++i) apply.element<true>(scale.data(), u(i, factor * g[i]), p[i], mean[i]);
    else
      for (int64_t i = 0; i < n; ++i) apply.element<false>(scale.data(), u(i, factor * g[i]), p[i], none);
  }

  Node node_;
  Apply apply_;
  Matrix matrix_;
  Stored gradient_, copy_;
  const float *squares_, *column_squares_;
  float* mean_;
};

/// Steps alone (links = 1), or each followed by a copy of the parameter in 16 bit (links = 2).
template <size_t links>
class Applies {
 public:
  static void query(const Nodes& nodes, const galley_target&, galley_kernel_plan&) {
    for (size_t i = 0; i < nodes.size(); i += links) {
      check_dtypes(nodes[i], kGradient);
      if constexpr (links > 1) galley::sdk::detail::check_step_copy(nodes[i], nodes[i + 1]);
    }
  }
  Applies(const Nodes& nodes, const galley_kernel_setup&) {
    for (size_t i = 0; i < nodes.size(); i += links) {
      steps_.emplace_back(nodes[i], links > 1 ? &nodes[i + 1].out(0) : nullptr);
      blocks_.add(steps_.back().blocks());
    }
  }
  void run() const {
    blocks_.run([&](size_t i, int64_t block) { steps_[i].run(block); });
  }

 private:
  std::vector<ParameterApply> steps_;
  Blocks blocks_;
};

const bool registered = add(nodes_kernel<AllMoments>("adafactor_moments.cpu", "adafactor_moments")) &&
                        add(nodes_kernel<Applies<1>>("adafactor_step.cpu", "adafactor_step")) &&
                        add(nodes_kernel<Applies<2>>("adafactor_step_copy.cpu", "adafactor_step>copy"));

}  // namespace

GALLEY_PLUGIN("adafactor", "1.0.0");
