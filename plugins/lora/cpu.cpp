// The ops of columns.cpp on the CPU, at the bandwidth of memory but for dora_norm: that multiplies W's numbers by the rank, four rows of W
// or 256 columns of it at a time, so that what is read of A and B comes from the cache.
//
// Bits. Sums are cut by shape alone, and each is in F32 over at most 512 numbers of K, or 256 rows, and these in double or in order.
#include <algorithm>
#include <cmath>

#include "galley/cpp/lane_sum.hpp"
#include "galley/cpp/plugin.hpp"
#include "galley/cpp/stored.hpp"

namespace {

using namespace galley::sdk;

constexpr int64_t kTile = 512, kColumns = 256, kRows = 4, kPiece = 256;

int64_t divide_up(int64_t n, int64_t by) { return (n + by - 1) / by; }
bool numbers(const Node& node) {
  for (uint32_t i = 0; i < node.view()->n_inputs; ++i)
    if (node.has(i) && !Stored::takes(node.in(i))) return false;
  return Stored::takes(node.out(0));
}

// ---- dora_norm ---------------------------------------------------------------------------------------------------------------------

class Norm {
 public:
  Norm(const Node& node, void* workspace)
      : w_(node.in(0)),
        a_(node.read<float>(1)),
        b_(node.read<float>(2)),
        norm_(node.write<float>(0)),
        of_columns_(static_cast<float*>(workspace)),
        scale_(static_cast<float>(node.f("scale", 1))),
        rank_(node.in(1).shape[0]),
        k_(node.in(1).shape[1]),
        n_(node.in(2).shape[0]),
        transposed_(node.i("transposed", 0) != 0) {}

  static int64_t workspace(const Node& node, const galley_target&) {
    return node.i("transposed", 0) != 0 ? count(node.in(2)) * static_cast<int64_t>(sizeof(float)) : 0;
  }

  void run() const {
    if (transposed_) parallel(divide_up(n_, kColumns), [this](int64_t block) { by_columns(block * kColumns); });
    else parallel(divide_up(n_, kRows), [this](int64_t block) { by_rows(block * kRows); });
  }

 private:
  void by_rows(int64_t first) const {
    double sums[kRows] = {};
    const int64_t rows = std::min(kRows, n_ - first);
    alignas(64) float room[kTile], sum[kRows][kTile];
    for (int64_t k = 0; k < k_; k += kTile) {
      const int64_t size = std::min(kTile, k_ - k);
      for (int64_t i = 0; i < rows; ++i) std::copy_n(w_.load((first + i) * k_ + k, size, room), size, sum[i]);
      for (int64_t r = 0; r < rank_; ++r) {
        const float* __restrict a = a_ + r * k_ + k;
        for (int64_t i = 0; i < rows; ++i) {
          const float b = scale_ * b_[(first + i) * rank_ + r];
          float* __restrict to = sum[i];
          for (int64_t j = 0; j < size; ++j) to[j] += b * a[j];
        }
      }
      for (int64_t i = 0; i < rows; ++i) {
        const float* const of = sum[i];
        sums[i] += lane_sum(size, [of](int64_t j) { return of[j] * of[j]; });
      }
    }
    for (int64_t i = 0; i < rows; ++i) norm_[first + i] = static_cast<float>(std::sqrt(sums[i]));
  }

  void by_columns(int64_t first) const {
    const int64_t size = std::min(kColumns, n_ - first);
    float* const b = of_columns_ + first * rank_;  // (rank, size)
    for (int64_t r = 0; r < rank_; ++r)
      for (int64_t j = 0; j < size; ++j) b[r * size + j] = scale_ * b_[(first + j) * rank_ + r];
    double sums[kColumns] = {};
    for (int64_t k = 0; k < k_; k += kTile) {
      alignas(64) float squares[kColumns] = {}, room[kColumns], sum[kColumns];
      for (int64_t i = k; i < std::min(k_, k + kTile); ++i) {
        std::copy_n(w_.load(i * n_ + first, size, room), size, sum);
        for (int64_t r = 0; r < rank_; ++r) {
          const float a = a_[r * k_ + i];
          const float* __restrict of = b + r * size;
          for (int64_t j = 0; j < size; ++j) sum[j] += a * of[j];
        }
        for (int64_t j = 0; j < size; ++j) squares[j] += sum[j] * sum[j];
      }
      for (int64_t j = 0; j < size; ++j) sums[j] += static_cast<double>(squares[j]);
    }
    for (int64_t j = 0; j < size; ++j) norm_[first + j] = static_cast<float>(std::sqrt(sums[j]));
  }

  Stored w_;
  const float *a_, *b_;
  float *norm_, *of_columns_;
  float scale_;
  int64_t rank_, k_, n_;
  bool transposed_;
};
void run_norm(const Node& node, void* workspace) { Norm(node, workspace).run(); }

// ---- scale_columns -----------------------------------------------------------------------------------------------------------------

int64_t a_row_of_floats(const Node& node, const galley_target&) {
  return columns(node.in(0)) * static_cast<int64_t>(sizeof(float)) * (node.has(3) ? 2 : 1);
}

void run_scale(const Node& node, void* workspace) {
  const int64_t N = columns(node.in(0)), R = rows(node.in(0));
  const float *w = node.read<float>(1), *norm = node.read<float>(2);
  auto* const factor = static_cast<float*>(workspace);
  for (int64_t i = 0; i < N; ++i) factor[i] = norm ? w[i] / norm[i] : w[i];
  float* const bias = node.has(3) ? factor + N : nullptr;
  if (bias) {
    const Stored stored(node.in(3));
    std::copy_n(stored.load(0, N, bias), N, bias);
  }
  const Stored x(node.in(0)), y(node.out(0));
  const bool adds = node.accumulates(0);
  const int64_t rows_of_block = std::max<int64_t>(1, 16384 / N);
  parallel(divide_up(R, rows_of_block), [&](int64_t block) {
    alignas(64) float of_x[kTile], of_y[kTile], out[kTile];
    for (int64_t r = block * rows_of_block; r < std::min(R, (block + 1) * rows_of_block); ++r)
      for (int64_t c = 0; c < N; c += kTile) {
        const int64_t size = std::min(kTile, N - c), at = r * N + c;
        const float *numbers = x.load(at, size, of_x), *f = factor + c;
        for (int64_t i = 0; i < size; ++i) out[i] = f[i] * numbers[i];
        if (bias)
          for (int64_t i = 0; i < size; ++i) out[i] += bias[c + i];
        if (adds) {
          const float* const before = y.load(at, size, of_y);
          for (int64_t i = 0; i < size; ++i) out[i] += before[i];
        }
        if (y.in_place()) std::copy_n(out, size, y.load(at, size, nullptr));
        else y.store(out, size, at);
      }
  });
}

int64_t pieces_of_sums(const Node& node, const galley_target&) {
  return divide_up(rows(node.in(0)), kPiece) * columns(node.in(0)) * static_cast<int64_t>(sizeof(float));
}

void run_dw(const Node& node, void* workspace) {
  const int64_t N = columns(node.in(0)), R = rows(node.in(0)), pieces = divide_up(R, kPiece), tiles = divide_up(N, kTile);
  const Stored dy(node.in(0)), u(node.in(1));
  auto* const partial = static_cast<float*>(workspace);
  parallel(pieces * tiles, [&](int64_t task) {
    const int64_t piece = task / tiles, c = task % tiles * kTile, size = std::min(kTile, N - c);
    float* __restrict to = partial + piece * N + c;
    std::fill_n(to, size, 0.0f);
    alignas(64) float of_dy[kTile], of_u[kTile];
    for (int64_t r = piece * kPiece; r < std::min(R, (piece + 1) * kPiece); ++r) {
      const float *x = dy.load(r * N + c, size, of_dy), *z = u.load(r * N + c, size, of_u);
      for (int64_t i = 0; i < size; ++i) to[i] += x[i] * z[i];
    }
  });
  const float* const norm = node.read<float>(3);
  float* const dw = node.write<float>(0);
  const bool adds = node.accumulates(0);
  for (int64_t piece = 1; piece < pieces; ++piece)
    for (int64_t i = 0; i < N; ++i) partial[i] += partial[piece * N + i];
  for (int64_t i = 0; i < N; ++i) dw[i] = (adds ? dw[i] : 0.0f) + (norm ? partial[i] / norm[i] : partial[i]);
}

const bool added = add(kernel<run_norm, numbers, Norm::workspace>("dora_norm.cpu", "dora_norm")) &&
                   add(kernel<run_scale, numbers, a_row_of_floats>("scale_columns.cpu", "scale_columns")) &&
                   add(kernel<run_dw, numbers, pieces_of_sums>("scale_columns_dw.cpu", "scale_columns_dw"));

}  // namespace

GALLEY_PLUGIN("lora", "1.0.0");
