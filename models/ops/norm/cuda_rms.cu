// RMSNorm (op_rms.cpp): groups of G numbers, R of them; x (R, G), w (G), y (R, G), rstd (R) in F32; and dx from dy. A team of threads a
// group (rows.hpp): a few lanes for a head, a block for a long row. Memory is passed over once in each direction: bound by memory.
#include "ops/norm/added.hpp"
#include "ops/norm/gradient.hpp"

namespace galley::cuda::rms_norm_op {
namespace {

using galley::models::AddedNorm;
using galley::models::NormGradient;
using galley::models::Summed;

template <int packs, class X>
__global__ void __launch_bounds__(kRowThreads<packs>)
    rms_norm_rows(X x, Reader w, Writer y, float* rstd, int64_t R, int G, float eps, float offset, int lanes) {
  const Team<packs> team(lanes);
  Row<packs, X> row(x, team, R, G);
  float squares[1] = {};
  row.first([&](int, int, const float(&from)[1][kPack]) {
#pragma unroll
    for (int i = 0; i < kPack; ++i) squares[0] = fmaf(from[0][i], from[0][i], squares[0]);
  });
  team.sum(squares, 0);
  const float s = 1.0f / sqrtf(squares[0] / static_cast<float>(G) + eps);
  if (rstd && row.leads()) rstd[team.row] = s;
  row.each([&](int c, int n, const float(&from)[1][kPack]) {
    float to[kPack], weight[kPack];
#pragma unroll
    for (int i = 0; i < kPack; ++i) to[i] = from[0][i] * s;
    if (w.there()) {
      w.load(c, n, weight);
#pragma unroll
      for (int i = 0; i < kPack; ++i) to[i] *= offset + weight[i];
    }
    y.store(row.begin() + c, n, to);
  });
}

int64_t group_of(const Node& n) { return n.i("group", n.has(1) ? count(n.in(1)) : columns(n.in(0))); }

template <class X>
void rms_norm_of(const Node& n, const X& x, galley_queue* queue) {
  const int64_t G = group_of(n), R = count(n.in(0)) / G;
  by_length(R, G, [&](auto packs, const Grid& grid, int lanes) {
    launch(rms_norm_rows<packs(), X>, grid, queue, x, Reader(n, 1), Writer(n, 0), n.write<float>(1), R, static_cast<int>(G),
           static_cast<float>(n.f("eps", 1e-6)), static_cast<float>(n.f("offset", 0)), lanes);
  });
}
void rms_norm(const Node& n, void*, galley_queue* queue) { rms_norm_of(n, Given{Reader(n, 0)}, queue); }

// ---- dx = rstd·(g − x̂·mean(g·x̂)), g = dy·(offset + w), x̂ = x·rstd -------------------------------------------------------------------------------

template <int packs>
__global__ void __launch_bounds__(kRowThreads<packs>)
    rms_norm_dx_rows(NormGradient gradient, const float* rstd, Writer dx, int64_t R, int G, int lanes) {
  const Team<packs> team(lanes);
  Row<packs, NormGradient> row(gradient, team, R, G);
  const float s = team.row < R ? rstd[team.row] : 0.0f;
  float dot[1] = {};
  row.first([&](int, int, const float(&from)[2][kPack]) {
#pragma unroll
    for (int i = 0; i < kPack; ++i) dot[0] = fmaf(from[0][i], from[1][i], dot[0]);
  });
  team.sum(dot, 0);
  const float b = s * s * dot[0] / static_cast<float>(G);
  row.each([&](int c, int n, const float(&from)[2][kPack]) {
    float to[kPack];
#pragma unroll
    for (int i = 0; i < kPack; ++i) to[i] = s * (from[0][i] - from[1][i] * b);
    dx.store(row.begin() + c, n, to);
  });
}

void rms_norm_dx(const Node& n, void*, galley_queue* queue) {
  const int64_t R = count(n.in(3)), G = count(n.in(1)) / R;
  by_length(R, G, [&](auto packs, const Grid& grid, int lanes) {
    launch(rms_norm_dx_rows<packs()>, grid, queue, NormGradient(n), n.read<float>(3), Writer(n, 0), R, static_cast<int>(G), lanes);
  });
}

bool forward_supported(const Node& n) { return all_numbers(n) && row_fits(group_of(n)); }
bool dx_supported(const Node& n) { return all_numbers(n) && row_fits(columns(n.in(0))); }

const bool added = add(kernel<rms_norm, forward_supported>("rms_norm.cuda", "rms_norm")) &&
                   add(kernel<rms_norm_dx, dx_supported>("rms_norm_dx.cuda", "rms_norm_dx")) &&
                   add(nodes_kernel<AddedNorm<rms_norm_of<Summed>, forward_supported>>("add_rms_norm.cuda", "add>rms_norm", 0));

}  // namespace
}  // namespace galley::cuda::rms_norm_op
