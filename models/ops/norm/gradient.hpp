// What the gradients of norms read on CUDA: g = dy·(offset + w), of layer_norm with offset 0, and x of a row.
#pragma once

#include "cuda/rows.hpp"

namespace galley::models {

struct NormGradient {
  static constexpr int kWidth = 2;
  struct Raw {
    cuda::Packed dy, x;
  };
  cuda::Reader dy, x, w;
  float offset;

  explicit NormGradient(const sdk::Node& n) : dy(n, 0), x(n, 1), w(n, 2), offset(static_cast<float>(n.f("offset", 0))) {}

  template <bool again>
  __device__ void fetch(int64_t at, int n, Raw& raw) const {
    raw.dy = cuda::fetch(dy, at, n);
    raw.x = cuda::fetch(x, at, n);
  }
  template <bool again>
  __device__ void value(const Raw& raw, int64_t, int column, int n, float (&to)[2][cuda::kPack]) const {
    unpack(raw.dy, dy.dtype, to[0]);
    unpack(raw.x, x.dtype, to[1]);
    if (!w.there()) return;
    float weight[cuda::kPack];
    w.load(column, n, weight);
#pragma unroll
    for (int i = 0; i < cuda::kPack; ++i) to[0][i] *= offset + weight[i];
  }
};

}  // namespace galley::models
