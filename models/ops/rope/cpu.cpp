// RoPE: one pass over x and y; a row's cos and sin (D numbers) serve all its heads. Both halves of a pair are read before either is
// written: in place is legal.
#include "cpu/vector.hpp"
#include "ops/rope/angles.hpp"

namespace {

using namespace galley::sdk;
namespace cpu = galley::cpu;

void check_positions(const Node& n, const int32_t* ids, int64_t R, int64_t P) {
  for (int64_t r = 0; r < R; ++r)
    if (ids[r] < 0 || ids[r] >= P)
      invalid(std::string(n.name()) + ": position " + std::to_string(ids[r]) + " at row " + std::to_string(n.view()->first_row + r) +
              " is beyond the " + std::to_string(P) + " positions of the model");
}

void rope(const Node& n, void*) {
  const float *x = n.read<float>(0), *table = n.read<float>(2);  // (R, H·D), (P, T)
  const int32_t* ids = n.read<int32_t>(1);
  float* y = n.write<float>(0);
  const int64_t R = rows(n.in(0)), H = n.i("heads", 0), D = n.i("head_dim", 0), T = columns(n.in(2)), half = T / 2;
  const float sign = n.i("inverse", 0) ? -1.0f : 1.0f;
  check_positions(n, ids, R, n.in(2).shape[0]);
  cpu::by_access(n.accumulates(0), [&](auto add) {
    cpu::over_rows(R, H * D, [=](int64_t r) {
      const float *cos = table + ids[r] * T, *sin = cos + half;
      for (int64_t h = 0; h < H; ++h) {
        const float* from = x + (r * H + h) * D;
        float* to = y + (r * H + h) * D;
        GALLEY_INDEPENDENT
        for (int64_t i = 0; i < half; ++i) {
          const float a = from[i], b = from[i + half], s = sign * sin[i];
          cpu::put(add, to[i], cpu::fma(a, cos[i], -(b * s)));
          cpu::put(add, to[i + half], cpu::fma(b, cos[i], a * s));
        }
        GALLEY_INDEPENDENT
        for (int64_t i = T; i < D; ++i) cpu::put(add, to[i], from[i]);
      }
    });
  });
}

// In double: at position 100,000 an F32 product would be off by 0.004 radians.
void rope_table(const Node& n, void*) {
  const auto angles = galley::models::Angles::of(n);
  const int64_t P = n.out(0).shape[0], D = angles.D;
  float* table = n.write<float>(0);
  cpu::over_rows(P, D, [&](int64_t p) {
    for (int64_t i = 0; i < D / 2; ++i) {
      const double angle = static_cast<double>(p) * angles(i);
      table[p * D + i] = static_cast<float>(std::cos(angle));
      table[p * D + D / 2 + i] = static_cast<float>(std::sin(angle));
    }
  });
}

const bool added =
    add(kernel<rope, cpu::all_f32>("rope.cpu", "rope")) && add(kernel<rope_table, cpu::all_f32>("rope_table.cpu", "rope_table"));

}  // namespace
