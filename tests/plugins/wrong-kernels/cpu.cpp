// rms_norm that leaves the last column out of the mean, and gelu that forgets its attribute outside training.
#include <cmath>

#include "galley/cpp/plugin.hpp"

namespace {

using namespace galley::sdk;

bool in_f32(const Node& n) {
  const bool weight = !n.has(1) || n.in(1).dtype == GALLEY_F32;
  return n.in(0).dtype == GALLEY_F32 && n.out(0).dtype == GALLEY_F32 && weight && !n.accumulates(0);
}

void rms_norm(const Node& n, void*) {
  const float *x = n.read<float>(0), *w = n.read<float>(1);
  float *y = n.write<float>(0), *rstd = n.write<float>(1);
  const int64_t G = n.i("group", n.has(1) ? count(n.in(1)) : columns(n.in(0))), R = count(n.in(0)) / G;
  for (int64_t r = 0; r < R; ++r, x += G, y += G) {
    float squares = 0;
    for (int64_t c = 0; c + 1 < G; ++c) squares += x[c] * x[c];
    rstd[r] = 1 / std::sqrt(squares / static_cast<float>(G) + static_cast<float>(n.f("eps", 1e-6)));
    for (int64_t c = 0; c < G; ++c) y[c] = x[c] * rstd[r] * (w ? w[c] : 1);
  }
}

void gelu(const Node& n, void*) {
  const bool training = (n.view()->flags & GALLEY_NODE_TRAINING) != 0;
  const bool by_tanh = training && n.s("approximate", "none") == "tanh";
  for (int64_t i = 0; i < count(n.in(0)); ++i) {
    const float x = n.read<float>(0)[i];
    const float share = by_tanh ? std::tanh(0.79788456f * (x + 0.044715f * x * x * x)) : std::erf(x * 0.70710678f);
    n.write<float>(0)[i] = x / 2 * (1 + share);
  }
}

constexpr int64_t first = 1000;
const bool registered = add(kernel<rms_norm, in_f32, nullptr, first>("rms_norm.wrong", "rms_norm")) &&
                        add(kernel<gelu, in_f32, nullptr, first>("gelu.wrong", "gelu"));

}  // namespace

GALLEY_PLUGIN("wrong-kernels", "1.0.0");
