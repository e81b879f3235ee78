// Adafactor on CUDA, bound by memory: the gradient is read for sums of squares, again with the parameter for the size of the update, and a
// third time for the step; 24 bytes an element, 20 without scale_parameter, 8 more with a first moment. A block of threads takes a tile of
// 128 columns: a lane four columns, the warps the rows in turn. Sums over rows, columns and tiles are made in a fixed tree by shape alone.
// Parameters are taken together as long as what their sums need fits 8 MiB.
#include <algorithm>
#include <deque>

#include "arithmetic.hpp"
#include "galley/cuda/kernel.hpp"
#include "galley/cuda/quad.hpp"
#include "galley/cuda/reduce.hpp"
#include "galley/cuda/segments.hpp"

namespace {

using namespace galley::cuda;
using namespace galley::adafactor;
namespace sdk = galley::sdk;

constexpr int kThreads = 256, kWarps = kThreads / kWarpSize, kTile = kWarpSize * kQuad;
constexpr int64_t kTogether = 8 << 20;  // bytes of workspace

/// What both ops know of a parameter.
struct Parameter {
  Parameter(const Node& node, uint32_t gradient_input, uint32_t factor_input, uint32_t apply_input, bool is_factored)
      : matrix(node.in(0), is_factored, kTile),
        tiles(blocks_of(matrix.columns, kTile)),
        gradient(node.in(gradient_input).data),
        factor(node.read<float>(factor_input)),
        apply(node.read<int32_t>(apply_input)),
        gradient_dtype(node.in(gradient_input).dtype),
        factored(is_factored) {}

  Matrix matrix;
  int64_t tiles;  // of columns
  const void* gradient;
  const float* factor;
  const int32_t* apply;
  uint32_t gradient_dtype;
  bool factored;

  int64_t blocks() const { return matrix.blocks() * tiles; }
};

/// Where a thread stands in a tile.
struct Place {
  __device__ Place(const Parameter& p, int64_t block)
      : warp(static_cast<int>(threadIdx.x) / kWarpSize),
        lane(static_cast<int>(threadIdx.x) % kWarpSize),
        tile(static_cast<uint32_t>(block) % static_cast<uint32_t>(p.tiles)),
        row_block(static_cast<uint32_t>(block) / static_cast<uint32_t>(p.tiles)),
        first(row_block * p.matrix.rows_of_block + warp),
        end(p.matrix.end_of(row_block)),
        column(tile * kTile + lane * kQuad) {}
  /// The columns of row r that are this lane's: 4, fewer, or none.
  __device__ int width(const Matrix& m, int64_t r) const {
    const int64_t in_row = m.columns - column, left = m.count - r * m.columns - column, n = in_row < left ? in_row : left;
    return n < 0 ? 0 : n < kQuad ? static_cast<int>(n) : kQuad;
  }

  int warp, lane;
  int64_t tile, row_block, first, end, column;
};

/// 1 / √ of the second moments of columns.
__device__ inline void inverse_columns(const float* squares, const Place& at, const Matrix& m, float (&out)[kQuad]) {
  const int n = at.width(m, at.row_block * m.rows_of_block);
  if (n > 0) load_quad(squares + at.column, n, out);
#pragma unroll
  for (int i = 0; i < kQuad; ++i) out[i] = i < n ? 1 / sqrtf(out[i]) : 0;
}

/// g over the root of its second moment, in place.
__device__ inline void over_root(const float* squares, bool factored, const float (&of_column)[kQuad], int64_t r, int64_t at, int n,
                                 float (&g)[kQuad]) {
  if (factored) {
    const float of_row = 1 / sqrtf(squares[r]);
#pragma unroll
    for (int i = 0; i < kQuad; ++i) g[i] = g[i] * of_row * of_column[i];
    return;
  }
  float v[kQuad];
  load_quad(squares + at, n, v);
#pragma unroll
  for (int i = 0; i < kQuad; ++i) g[i] = i < n ? g[i] / sqrtf(v[i]) : 0;
}

// ---- Moments ----------------------------------------------------------------------------------------------------------------------------

struct Moments : Parameter {
  explicit Moments(const Node& node)
      : Parameter(node, sdk::kStepGradient, sdk::kStepFactor, sdk::kStepApply, node.has(kColumns)),
        constants(node),
        p(node.read<float>(sdk::kStepParameter)),
        lr(node.read<float>(kLr)),
        rate(node.read<float>(sdk::kStepRate)),
        step(node.read<int64_t>(sdk::kStepNumber)),
        squares(node.update<float>(kRows)),
        column_squares(node.has(kColumns) ? node.update<float>(kColumns) : nullptr),
        scale(node.write<float>(0)) {}

  Constants constants;
  const float *p, *lr, *rate;
  const int64_t* step;
  float *squares, *column_squares, *scale;
  double* sums = nullptr;                           // (blocks, 2): squares of the update, of the parameter
  float *of_rows = nullptr, *of_columns = nullptr;  // (tiles, rows), (blocks of rows, columns)

  int64_t sum_bytes() const { return blocks() * 2 * static_cast<int64_t>(sizeof(double)); }
  int64_t numbers_of_rows() const { return factored ? tiles * matrix.rows : 0; }
  int64_t workspace() const {
    const int64_t of_column = factored ? matrix.blocks() * matrix.columns : 0;
    return sum_bytes() + blocks_of((numbers_of_rows() + of_column) * static_cast<int64_t>(sizeof(float)), 16) * 16;
  }
  void place(unsigned char* at) {
    sums = reinterpret_cast<double*>(at);
    of_rows = reinterpret_cast<float*>(at + sum_bytes());
    of_columns = of_rows + numbers_of_rows();
  }
};

/// Sums of squares of a tile, by rows and by columns.
__global__ void __launch_bounds__(kThreads) tile_squares(GALLEY_SEGMENTS(Moments) parameters) {
  GALLEY_SHARED(float, of_warp, kWarps* kTile);
  const auto found = parameters.find(blockIdx.x);
  const Moments& s = found.entry;
  if (!*s.apply) return;
  const Place at(s, found.block);
  const float factor = *s.factor;
  float sums[kQuad] = {};
#pragma unroll 2
  for (int64_t r = at.first; r < at.end; r += kWarps) {
    const int n = at.width(s.matrix, r);
    float g[kQuad] = {};
    if (n > 0) load_quad(s.gradient, s.gradient_dtype, r * s.matrix.columns + at.column, n, g);
    float of_row = 0;
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      const float x = factor * g[i], square = x * x;
      sums[i] += square;
      of_row += square;
    }
    of_row = warp_sum(of_row);
    if (at.lane == 0) s.of_rows[at.tile * s.matrix.rows + r] = of_row;
  }
#pragma unroll
  for (int i = 0; i < kQuad; ++i) of_warp[at.warp * kTile + at.lane * kQuad + i] = sums[i];
  __syncthreads();
  const int64_t column = at.tile * kTile + threadIdx.x;
  if (threadIdx.x >= kTile || column >= s.matrix.columns) return;
  float total = 0;
  for (int w = 0; w < kWarps; ++w) total += of_warp[w * kTile + static_cast<int>(threadIdx.x)];
  s.of_columns[at.row_block * s.matrix.columns + column] = total;
}

/// A thread for each row, then for each column; of what is not factored, for each element.
__global__ void __launch_bounds__(kThreads) finish_squares(GALLEY_SEGMENTS(Moments) parameters) {
  const auto found = parameters.find(blockIdx.x);
  const Moments& s = found.entry;
  GALLEY_SHARED(float, shares, 2);
  if (!*s.apply) return;
  if (threadIdx.x == 0) {
    const double share = s.constants.share(*s.step);
    shares[0] = static_cast<float>(1 - share);
    shares[1] = static_cast<float>(share);
  }
  __syncthreads();
  const Matrix& m = s.matrix;
  const int64_t i = found.block * kThreads + threadIdx.x, column = i - m.rows;
  if (!s.factored) {
    if (i >= m.count) return;
    float g[kQuad];
    load_quad(s.gradient, s.gradient_dtype, i, 1, g);
    const float x = *s.factor * g[0];
    s.squares[i] = shares[0] * s.squares[i] + shares[1] * (x * x + static_cast<float>(s.constants.eps_square));
    return;
  }
  if (column >= m.columns) return;
  const bool is_row = i < m.rows;
  const float* const from = is_row ? s.of_rows + i : s.of_columns + column;
  const int64_t parts = is_row ? s.tiles : m.blocks(), stride = is_row ? m.rows : m.columns;
  float total = 0;
#pragma unroll 4
  for (int64_t k = 0; k < parts; ++k) total += from[k * stride];
  const float mean = total / static_cast<float>(is_row ? m.columns : m.rows) + static_cast<float>(s.constants.eps_square);
  float* const to = is_row ? s.squares + i : s.column_squares + column;
  *to = shares[0] * *to + shares[1] * mean;
}

/// Sums over a tile of the squares of g over its root, and of the parameter.
__global__ void __launch_bounds__(kThreads) tile_updates(GALLEY_SEGMENTS(Moments) parameters) {
  const auto found = parameters.find(blockIdx.x);
  const Moments& s = found.entry;
  if (!*s.apply) return;
  const Place at(s, found.block);
  const float factor = *s.factor;
  float of_column[kQuad] = {};
  if (s.factored) inverse_columns(s.column_squares, at, s.matrix, of_column);
  double update = 0, size = 0;
  for (int64_t r = at.first; r < at.end; r += kWarps) {
    const int n = at.width(s.matrix, r);
    if (n == 0) continue;
    const int64_t i0 = r * s.matrix.columns + at.column;
    float g[kQuad], p[kQuad] = {};
    if (s.constants.scaled) load_quad(s.p + i0, n, p);
    load_quad(s.gradient, s.gradient_dtype, i0, n, g);
#pragma unroll
    for (int i = 0; i < kQuad; ++i) g[i] *= factor;
    over_root(s.squares, s.factored, of_column, r, i0, n, g);
    float of_update = 0, of_size = 0;
#pragma unroll
    for (int i = 0; i < kQuad; ++i) of_update += g[i] * g[i], of_size += p[i] * p[i];
    update += static_cast<double>(of_update);
    size += static_cast<double>(of_size);
  }
  update = block_sum<kThreads>(update);
  size = block_sum<kThreads>(size);
  if (threadIdx.x != 0) return;
  s.sums[2 * found.block] = update;
  s.sums[2 * found.block + 1] = size;
}

/// A block for each parameter.
__global__ void __launch_bounds__(kThreads) finish_moments(GALLEY_SEGMENTS(Moments) parameters) {
  const Moments& s = parameters.rows[blockIdx.x].entry;
  if (!*s.apply) {
    if (threadIdx.x == 0) s.scale[0] = 0, s.scale[1] = 1;
    return;
  }
  double update = 0, size = 0, row_mean = 0;
  for (int64_t k = threadIdx.x; k < s.matrix.blocks() * s.tiles; k += kThreads) update += s.sums[2 * k], size += s.sums[2 * k + 1];
  if (s.factored)
    for (int64_t r = threadIdx.x; r < s.matrix.rows; r += kThreads) row_mean += static_cast<double>(s.squares[r]);
  update = block_sum<kThreads>(update);
  size = block_sum<kThreads>(size);
  row_mean = block_sum<kThreads>(row_mean);
  if (threadIdx.x != 0) return;
  const double rho = s.constants.rho(static_cast<double>(*s.lr), static_cast<double>(*s.rate), *s.step);
  s.constants.finish(rho, update, size, s.factored ? row_mean / static_cast<double>(s.matrix.rows) : 1, s.matrix.count, s.scale);
}

class AllMoments {
 public:
  static void query(const Nodes& nodes, const galley_target&, galley_kernel_plan& plan) {
    for (const Node& node : nodes) check_dtypes(node, sdk::kStepGradient);
    each_wave(nodes, [&](size_t, size_t, int64_t bytes) { plan.workspace_bytes = std::max(plan.workspace_bytes, bytes); });
  }
  AllMoments(const Nodes& nodes, const galley_kernel_setup& setup) {
    each_wave(nodes, [&](size_t begin, size_t end, int64_t) {
      Wave& wave = waves_.emplace_back();
      auto* at = static_cast<unsigned char*>(setup.workspace);
      for (size_t i = begin; i < end; ++i) {
        Moments m(nodes[i]);
        m.place(at);
        at += m.workspace();
        wave.all.add(m, m.blocks());
        if (m.factored) wave.factored.add(m, m.blocks());
        wave.squares.add(m, blocks_of(m.factored ? m.matrix.rows + m.matrix.columns : m.matrix.count, kThreads));
      }
    });
  }
  void run(galley_queue* queue) const {
    for (const Wave& wave : waves_) {
      wave.factored.launch(tile_squares, kThreads, queue);
      wave.squares.launch(finish_squares, kThreads, queue);
      wave.all.launch(tile_updates, kThreads, queue);
      wave.all.launch_entries(finish_moments, kThreads, queue);
    }
  }

 private:
  /// body(begin, end, bytes) for nodes that are taken together.
  template <class Body>
  static void each_wave(const Nodes& nodes, const Body& body) {
    size_t begin = 0;
    int64_t bytes = 0;
    for (size_t i = 0; i < nodes.size(); ++i) {
      const int64_t more = Moments(nodes[i]).workspace();
      if (i > begin && bytes + more > kTogether) {
        body(begin, i, bytes);
        begin = i;
        bytes = 0;
      }
      bytes += more;
    }
    if (begin < nodes.size()) body(begin, nodes.size(), bytes);
  }
  struct Wave {
    Segments<Moments> factored, squares, all;  // tiles; numbers of second moments; tiles
  };
  std::deque<Wave> waves_;
};

// ---- Steps ------------------------------------------------------------------------------------------------------------------------------

struct Step : Parameter {
  explicit Step(const Node& node)
      : Parameter(node, kGradient, kFactor, kApply, node.has(kColumnSquares)),
        element(node),
        p(node.update<float>(kParameter)),
        mean(node.has(kMean) ? node.update<float>(kMean) : nullptr),
        scale(node.read<float>(kScale)),
        squares(node.read<float>(kSquares)),
        column_squares(node.has(kColumnSquares) ? node.read<float>(kColumnSquares) : nullptr) {}

  Apply element;
  float *p, *mean;
  const float *scale, *squares, *column_squares;
  void* copy = nullptr;  // what the chain's second link writes
  uint32_t copy_dtype = 0;
};

__global__ void __launch_bounds__(kThreads) parameter_steps(GALLEY_SEGMENTS(Step) steps) {
  const auto found = steps.find(blockIdx.x);
  const Step& s = found.entry;
  const bool applies = *s.apply != 0;
  if (!applies && !s.copy) return;
  const Place at(s, found.block);
  const float factor = *s.factor, scale[2] = {s.scale[0], s.scale[1]};
  float of_column[kQuad] = {};
  if (applies && s.factored) inverse_columns(s.column_squares, at, s.matrix, of_column);
#pragma unroll 2
  for (int64_t r = at.first; r < at.end; r += kWarps) {
    const int n = at.width(s.matrix, r);
    if (n == 0) continue;
    const int64_t i0 = r * s.matrix.columns + at.column;
    float p[kQuad], g[kQuad], mean[kQuad] = {};
    load_quad(s.p + i0, n, p);
    if (applies) {
      if (s.mean) load_quad(s.mean + i0, n, mean);
      load_quad(s.gradient, s.gradient_dtype, i0, n, g);
#pragma unroll
      for (int i = 0; i < kQuad; ++i) g[i] *= factor;
      over_root(s.squares, s.factored, of_column, r, i0, n, g);
#pragma unroll
      for (int i = 0; i < kQuad; ++i)
        if (s.mean) s.element.element<true>(scale, g[i], p[i], mean[i]);
        else s.element.element<false>(scale, g[i], p[i], mean[i]);
      store_quad(s.p + i0, n, p);
      if (s.mean) store_quad(s.mean + i0, n, mean);
    }
    if (s.copy) store_quad(s.copy, s.copy_dtype, i0, n, p);
  }
}

/// Steps alone (links = 1), or each followed by a copy of the parameter in 16 bit (links = 2).
template <size_t links>
class Steps {
 public:
  static void query(const Nodes& nodes, const galley_target&, galley_kernel_plan&) {
    for (size_t i = 0; i < nodes.size(); i += links) {
      check_dtypes(nodes[i], kGradient);
      if constexpr (links > 1) sdk::detail::check_step_copy(nodes[i], nodes[i + 1]);
    }
  }
  Steps(const Nodes& nodes, const galley_kernel_setup&) {
    for (size_t i = 0; i < nodes.size(); i += links) {
      Step s(nodes[i]);
      if constexpr (links > 1) {
        s.copy = nodes[i + 1].out(0).data;
        s.copy_dtype = nodes[i + 1].out(0).dtype;
      }
      steps_.add(s, s.blocks());
    }
  }
  void run(galley_queue* queue) const { steps_.launch(parameter_steps, kThreads, queue); }

 private:
  Segments<Step> steps_;
};

const bool registered = add(nodes_kernel<AllMoments>("adafactor_moments.cuda", "adafactor_moments")) &&
                        add(nodes_kernel<Steps<1>>("adafactor_step.cuda", "adafactor_step")) &&
                        add(nodes_kernel<Steps<2>>("adafactor_step_copy.cuda", "adafactor_step>copy"));

}  // namespace

GALLEY_PLUGIN("adafactor", "1.0.0");
