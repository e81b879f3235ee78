// LayerNorm and RMSNorm: one row, or group, at a time. A row is read from memory once and stays in the first-level cache for the passes
// that follow it, so both directions run at the bandwidth of their operands.
#include <cmath>

#include "cpu/columns.hpp"

namespace {

using namespace galley::sdk;
namespace cpu = galley::cpu;

void layer_norm(const Node& n, void*) {
  const float *x = n.read<float>(0), *w = n.read<float>(1), *b = n.read<float>(2);  // (R, C), (C), (C)
  float *y = n.write<float>(0), *mean = n.write<float>(1), *rstd = n.write<float>(2);
  const int64_t R = rows(n.in(0)), C = columns(n.in(0));
  const double eps = n.f("eps", 1e-5);
  cpu::over_rows(R, C, [=](int64_t r) {
    const float* from = x + r * C;
    float* to = y + r * C;
    const float m = cpu::sum(C, [=](int64_t c) { return from[c]; }) / static_cast<float>(C);
    const float squares = cpu::sum(C, [=](int64_t c) { return (from[c] - m) * (from[c] - m); });
    const float s = static_cast<float>(1 / std::sqrt(static_cast<double>(squares) / static_cast<double>(C) + eps));
    if (mean) mean[r] = m;
    if (rstd) rstd[r] = s;
    if (w && b) {
      GALLEY_INDEPENDENT
      for (int64_t c = 0; c < C; ++c) to[c] = cpu::fma((from[c] - m) * s, w[c], b[c]);
    } else {
      GALLEY_INDEPENDENT
      for (int64_t c = 0; c < C; ++c) to[c] = (from[c] - m) * s;
      if (w)
        for (int64_t c = 0; c < C; ++c) to[c] *= w[c];
      if (b)
        for (int64_t c = 0; c < C; ++c) to[c] += b[c];
    }
  });
}

void layer_norm_dx(const Node& n, void*) {
  const float *dy = n.read<float>(0), *x = n.read<float>(1), *w = n.read<float>(2), *mean = n.read<float>(3), *rstd = n.read<float>(4);
  float* dx = n.write<float>(0);
  const int64_t R = rows(n.in(0)), C = columns(n.in(0));
  const auto run = [=](auto add, auto weight) {
    cpu::over_rows(R, C, [=](int64_t r) {
      const float *d = dy + r * C, *from = x + r * C, m = mean[r], s = rstd[r];
      float* to = dx + r * C;
      const auto g = [=](int64_t c) { return d[c] * weight(c); };
      const auto hat = [=](int64_t c) { return (from[c] - m) * s; };
      const auto [sum, dot] = cpu::sums(C, g, [=](int64_t c) { return g(c) * hat(c); });
      const float a = sum / static_cast<float>(C), b = dot / static_cast<float>(C);
      GALLEY_INDEPENDENT
      for (int64_t c = 0; c < C; ++c) cpu::put(add, to[c], s * (g(c) - cpu::fma(hat(c), b, a)));
    });
  };
  cpu::by_access(n.accumulates(0), [&](auto add) {
    if (w) run(add, [=](int64_t c) { return w[c]; });
    else run(add, [](int64_t) { return 1.0f; });
  });
}

void layer_norm_dw(const Node& n, void* workspace) {
  const float *dy = n.read<float>(0), *x = n.read<float>(1), *mean = n.read<float>(2), *rstd = n.read<float>(3);
  const int64_t R = rows(n.in(0)), C = columns(n.in(0));
  if (!n.has_out(1)) {
    cpu::column_sums<1>(R, C, {n.write<float>(0)}, {n.accumulates(0)}, workspace,
                        [=](int64_t r, int64_t first, int64_t count, float* const* into) {
                          const float *d = dy + r * C + first, *from = x + r * C + first, m = mean[r], s = rstd[r];
                          float* dw = into[0];
                          GALLEY_INDEPENDENT
                          for (int64_t c = 0; c < count; ++c) dw[c] = cpu::fma(d[c], (from[c] - m) * s, dw[c]);
                        });
    return;
  }
  cpu::column_sums<2>(R, C, {n.write<float>(0), n.write<float>(1)}, {n.accumulates(0), n.accumulates(1)}, workspace,
                      [=](int64_t r, int64_t first, int64_t count, float* const* into) {
                        const float *d = dy + r * C + first, *from = x + r * C + first, m = mean[r], s = rstd[r];
                        float *dw = into[0], *db = into[1];
                        GALLEY_INDEPENDENT
                        for (int64_t c = 0; c < count; ++c) {
                          dw[c] = cpu::fma(d[c], (from[c] - m) * s, dw[c]);
                          db[c] += d[c];
                        }
                      });
}

int64_t layer_norm_dw_workspace(const Node& n, const galley_target&) {
  return cpu::column_sums_workspace(rows(n.in(0)), columns(n.in(0)), n.has_out(1) ? 2 : 1);
}

// ---- RMSNorm: G elements a group, R groups -------------------------------------------------------------------------------------------

void rms_norm(const Node& n, void*) {
  const float *x = n.read<float>(0), *w = n.read<float>(1);
  float *y = n.write<float>(0), *rstd = n.write<float>(1);
  const int64_t G = n.i("group", w ? count(n.in(1)) : columns(n.in(0))), R = count(n.in(0)) / G;
  const double eps = n.f("eps", 1e-6);
  cpu::over_rows(R, G, [=](int64_t r) {
    const float* from = x + r * G;
    float* to = y + r * G;
    const float squares = cpu::sum(G, [=](int64_t c) { return from[c] * from[c]; });
    const float s = static_cast<float>(1 / std::sqrt(static_cast<double>(squares) / static_cast<double>(G) + eps));
    if (rstd) rstd[r] = s;
    if (w) {
      GALLEY_INDEPENDENT
      for (int64_t c = 0; c < G; ++c) to[c] = from[c] * s * w[c];
    } else {
      GALLEY_INDEPENDENT
      for (int64_t c = 0; c < G; ++c) to[c] = from[c] * s;
    }
  });
}

void rms_norm_dx(const Node& n, void*) {
  const float *dy = n.read<float>(0), *x = n.read<float>(1), *w = n.read<float>(2), *rstd = n.read<float>(3);
  float* dx = n.write<float>(0);
  const int64_t R = count(n.in(3)), G = count(n.in(1)) / R;
  const auto run = [=](auto add, auto weight) {
    cpu::over_rows(R, G, [=](int64_t r) {
      const float *d = dy + r * G, *from = x + r * G, s = rstd[r];
      float* to = dx + r * G;
      const auto g = [=](int64_t c) { return d[c] * weight(c); };
      const float dot = cpu::sum(G, [=](int64_t c) { return g(c) * from[c]; });
      const float b = s * s * dot / static_cast<float>(G);
      GALLEY_INDEPENDENT
      for (int64_t c = 0; c < G; ++c) cpu::put(add, to[c], s * (g(c) - from[c] * b));
    });
  };
  cpu::by_access(n.accumulates(0), [&](auto add) {
    if (w) run(add, [=](int64_t c) { return w[c]; });
    else run(add, [](int64_t) { return 1.0f; });
  });
}

void rms_norm_dw(const Node& n, void* workspace) {
  const float *dy = n.read<float>(0), *x = n.read<float>(1), *rstd = n.read<float>(2);
  const int64_t G = count(n.out(0)), R = count(n.in(0)) / G;
  cpu::column_sums<1>(R, G, {n.write<float>(0)}, {n.accumulates(0)}, workspace,
                      [=](int64_t r, int64_t first, int64_t count, float* const* into) {
                        const float *d = dy + r * G + first, *from = x + r * G + first, s = rstd[r];
                        float* dw = into[0];
                        GALLEY_INDEPENDENT
                        for (int64_t c = 0; c < count; ++c) dw[c] = cpu::fma(d[c], from[c] * s, dw[c]);
                      });
}

int64_t rms_norm_dw_workspace(const Node& n, const galley_target&) {
  const int64_t G = count(n.out(0));
  return cpu::column_sums_workspace(count(n.in(0)) / G, G, 1);
}

const bool added = add(kernel<layer_norm, cpu::all_f32>("layer_norm.cpu", "layer_norm")) &&
                   add(kernel<layer_norm_dx, cpu::all_f32>("layer_norm_dx.cpu", "layer_norm_dx")) &&
                   add(kernel<layer_norm_dw, cpu::all_f32, layer_norm_dw_workspace>("layer_norm_dw.cpu", "layer_norm_dw")) &&
                   add(kernel<rms_norm, cpu::all_f32>("rms_norm.cpu", "rms_norm")) &&
                   add(kernel<rms_norm_dx, cpu::all_f32>("rms_norm_dx.cpu", "rms_norm_dx")) &&
                   add(kernel<rms_norm_dw, cpu::all_f32, rms_norm_dw_workspace>("rms_norm_dw.cpu", "rms_norm_dw"));

}  // namespace
