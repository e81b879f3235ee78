// The gradients of norms' weights: of layer_norm dw = Σ dy·(x − mean)·rstd and db = Σ dy, of rms_norm dw = Σ dy·x·rstd, over R rows of C
// numbers (groups of G for rms_norm), in the two launches of columns.hpp. Bound by reading dy and x once.
#include "cuda/columns.hpp"

namespace galley::cuda::norm_weights_op {
namespace {

/// What row r adds to dw, and, of two outputs, to db. `mean` is null for rms_norm.
template <int outputs>
struct Terms {
  struct Raw {
    Packed dy, x;
    float m, s;
  };
  Reader dy, x;
  const float *mean, *rstd;
  int64_t C;

  __device__ void fetch(int64_t r, int64_t c, int n, Raw& raw) const {
    raw.dy = galley::cuda::fetch(dy, r * C + c, n);
    raw.x = galley::cuda::fetch(x, r * C + c, n);
    raw.m = mean ? mean[r] : 0.0f;
    raw.s = rstd[r];
  }
  __device__ void add(const Raw& raw, float (&sums)[outputs][kPack]) const {
    float d[kPack], from[kPack];
    unpack(raw.dy, dy.dtype, d);
    unpack(raw.x, x.dtype, from);
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      sums[0][i] = fmaf(d[i], (from[i] - raw.m) * raw.s, sums[0][i]);
      if constexpr (outputs > 1) sums[1][i] += d[i];
    }
  }
};

void layer_norm_dw(const Node& n, void* workspace, galley_queue* queue) {
  const Reader dy(n, 0), x(n, 1);
  const float *mean = n.read<float>(2), *rstd = n.read<float>(3);
  const int64_t R = rows(n.in(0)), C = columns(n.in(0));
  if (n.has_out(1)) column_sums<2>(R, C, {Writer(n, 0), Writer(n, 1)}, workspace, queue, Terms<2>{dy, x, mean, rstd, C});
  else column_sums<1>(R, C, {Writer(n, 0)}, workspace, queue, Terms<1>{dy, x, mean, rstd, C});
}
int64_t layer_workspace(const Node& n, const galley_target&) {
  const int64_t R = rows(n.in(0)), C = columns(n.in(0));
  return n.has_out(1) ? column_sums_workspace<2>(R, C) : column_sums_workspace<1>(R, C);
}

void rms_norm_dw(const Node& n, void* workspace, galley_queue* queue) {
  const int64_t G = count(n.out(0)), R = count(n.in(0)) / G;
  column_sums<1>(R, G, {Writer(n, 0)}, workspace, queue, Terms<1>{Reader(n, 0), Reader(n, 1), nullptr, n.read<float>(2), G});
}
int64_t rms_workspace(const Node& n, const galley_target&) {
  return column_sums_workspace<1>(count(n.in(0)) / count(n.out(0)), count(n.out(0)));
}

const bool added = add(kernel<layer_norm_dw, all_numbers, layer_workspace>("layer_norm_dw.cuda", "layer_norm_dw")) &&
                   add(kernel<rms_norm_dw, all_numbers, rms_workspace>("rms_norm_dw.cuda", "rms_norm_dw"));

}  // namespace
}  // namespace galley::cuda::norm_weights_op
