// LayerNorm (op_layer.cpp): x (R, C), w and b (C), y (R, C), mean and rstd (R) in F32; and dx from dy. A team of threads a row (rows.hpp),
// so that memory is passed over once in each direction: bound by memory. The squares are those of x − mean, from numbers that are still in
// registers: E[x²] − mean² would cancel.
#include "ops/norm/added.hpp"
#include "ops/norm/gradient.hpp"

namespace galley::cuda::layer_norm_op {
namespace {

using galley::models::AddedNorm;
using galley::models::NormGradient;
using galley::models::Summed;

template <int packs, class X>
__global__ void __launch_bounds__(kRowThreads<packs>)
    layer_norm_rows(X x, Reader w, Reader b, Writer y, float* mean, float* rstd, int64_t R, int C, float eps, int lanes) {
  const Team<packs> team(lanes);
  Row<packs, X> row(x, team, R, C);
  float sum[1] = {}, squares[1] = {};
  row.first([&](int, int, const float(&from)[1][kPack]) {
#pragma unroll
    for (int i = 0; i < kPack; ++i) sum[0] += from[0][i];
  });
  team.sum(sum, 0);
  const float m = sum[0] / static_cast<float>(C);
  row.each([&](int, int n, const float(&from)[1][kPack]) {
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      const float d = i < n ? from[0][i] - m : 0.0f;
      squares[0] = fmaf(d, d, squares[0]);
    }
  });
  team.sum(squares, 1);
  const float s = 1.0f / sqrtf(squares[0] / static_cast<float>(C) + eps);
  if (row.leads()) {
    if (mean) mean[team.row] = m;
    if (rstd) rstd[team.row] = s;
  }
  row.each([&](int c, int n, const float(&from)[1][kPack]) {
    float to[kPack], other[kPack];
#pragma unroll
    for (int i = 0; i < kPack; ++i) to[i] = (from[0][i] - m) * s;
    if (w.there()) {
      w.load(c, n, other);
#pragma unroll
      for (int i = 0; i < kPack; ++i) to[i] *= other[i];
    }
    if (b.there()) {
      b.load(c, n, other);
#pragma unroll
      for (int i = 0; i < kPack; ++i) to[i] += other[i];
    }
    y.store(row.begin() + c, n, to);
  });
}

template <class X>
void layer_norm_of(const Node& n, const X& x, galley_queue* queue) {
  const int64_t R = rows(n.in(0)), C = columns(n.in(0));
  by_length(R, C, [&](auto packs, const Grid& grid, int lanes) {
    launch(layer_norm_rows<packs(), X>, grid, queue, x, Reader(n, 1), Reader(n, 2), Writer(n, 0), n.write<float>(1), n.write<float>(2), R,
           static_cast<int>(C), static_cast<float>(n.f("eps", 1e-5)), lanes);
  });
}
void layer_norm(const Node& n, void*, galley_queue* queue) { layer_norm_of(n, Given{Reader(n, 0)}, queue); }

// ---- dx = rstd·(g − mean(g) − x̂·mean(g·x̂)), g = dy·w ----------------------------------------------------------------------------------

/// g and x̂ of a row.
struct Gradient : NormGradient {
  float m, s;  // of the row

  __device__ Gradient(const NormGradient& of, float mean, float rstd) : NormGradient(of), m(mean), s(rstd) {}
  template <bool again>
  __device__ void value(const Raw& raw, int64_t at, int column, int n, float (&to)[2][kPack]) const {
    NormGradient::value<again>(raw, at, column, n, to);
#pragma unroll
    for (int i = 0; i < kPack; ++i) to[1][i] = (to[1][i] - m) * s;
  }
};

template <int packs>
__global__ void __launch_bounds__(kRowThreads<packs>)
    layer_norm_dx_rows(NormGradient operands, const float* mean, const float* rstd, Writer dx, int64_t R, int C, int lanes) {
  const Team<packs> team(lanes);
  const bool there = team.row < R;
  const float s = there ? rstd[team.row] : 0.0f;
  const Gradient gradient(operands, there ? mean[team.row] : 0.0f, s);
  Row<packs, Gradient> row(gradient, team, R, C);
  float sums[2] = {};  // of g, of g·x̂; g is 0 after the row
  row.first([&](int, int, const float(&from)[2][kPack]) {
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      sums[0] += from[0][i];
      sums[1] = fmaf(from[0][i], from[1][i], sums[1]);
    }
  });
  team.sum(sums, 0);
  const float a = sums[0] / static_cast<float>(C), b = sums[1] / static_cast<float>(C);
  row.each([&](int c, int n, const float(&from)[2][kPack]) {
    float to[kPack];
#pragma unroll
    for (int i = 0; i < kPack; ++i) to[i] = s * (from[0][i] - fmaf(from[1][i], b, a));
    dx.store(row.begin() + c, n, to);
  });
}

void layer_norm_dx(const Node& n, void*, galley_queue* queue) {
  const int64_t R = rows(n.in(0)), C = columns(n.in(0));
  by_length(R, C, [&](auto packs, const Grid& grid, int lanes) {
    launch(layer_norm_dx_rows<packs()>, grid, queue, NormGradient(n), n.read<float>(3), n.read<float>(4), Writer(n, 0), R,
           static_cast<int>(C), lanes);
  });
}

bool supported(const Node& n) { return all_numbers(n) && row_fits(columns(n.in(0))); }

const bool added = add(kernel<layer_norm, supported>("layer_norm.cuda", "layer_norm")) &&
                   add(kernel<layer_norm_dx, supported>("layer_norm_dx.cuda", "layer_norm_dx")) &&
                   add(nodes_kernel<AddedNorm<layer_norm_of<Summed>, supported>>("add_layer_norm.cuda", "add>layer_norm", 0));

}  // namespace
}  // namespace galley::cuda::layer_norm_op
