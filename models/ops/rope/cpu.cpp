// RoPE: one pass over x and y; a row's cos and sin (D numbers) serve all its heads. Both halves of a pair are read before either is
// written: in place is legal.
#include "cpu/number.hpp"
#include "ops/rope/angles.hpp"

namespace galley::cpu::rope_op {
namespace {

using namespace sdk;

void check_positions(const Node& n, const int32_t* ids, int64_t R, int64_t P) {
  for (int64_t r = 0; r < R; ++r)
    if (ids[r] < 0 || ids[r] >= P)
      invalid(std::string(n.name()) + ": position " + std::to_string(ids[r]) + " at row " + std::to_string(n.view()->first_row + r) +
              " is beyond the " + std::to_string(P) + " positions of the model");
}

void rope(const Node& n, void*) {
  const cpu::Input x(n, 0);               // (R, H·D)
  const float* table = n.read<float>(2);  // (P, T)
  const int32_t* ids = n.read<int32_t>(1);
  const cpu::Output y(n, 0);
  const int64_t R = rows(n.in(0)), H = n.i("heads", 0), D = n.i("head_dim", 0), T = columns(n.in(2)), half = T / 2;
  const int64_t cycle = n.i("cycle", 1), turning = n.i("turning", 1);
  const float sign = n.i("inverse", 0) ? -1.0f : 1.0f;
  check_positions(n, ids, R, n.in(2).shape[0]);
  const int64_t run = cpu::run_over(x, y);
  cpu::by_access(y.adds(), [&](auto add) {
    cpu::over_rows(R, H * D, [=](int64_t r) {
      const float *cos = table + ids[r] * T, *sin = cos + half;
      for (int64_t h = 0; h < H; ++h) {
        const int64_t head = (r * H + h) * D, turned = h % cycle < turning ? T : 0;
        cpu::Buffer buffers[4];
        cpu::in_runs(0, turned / 2, run, [&](int64_t first, int64_t size) {
          const int64_t left = head + first, right = left + half;
          const float *from_a = x.read(left, size, buffers[0]), *from_b = x.read(right, size, buffers[1]);
          float *const to_a = y.open(left, size, buffers[2]), *const to_b = y.open(right, size, buffers[3]);
          GALLEY_INDEPENDENT
          for (int64_t i = 0; i < size; ++i) {
            const float a = from_a[i], b = from_b[i], s = sign * sin[first + i], c = cos[first + i];
            cpu::put(add, to_a[i], cpu::fma(a, c, -(b * s)));
            cpu::put(add, to_b[i], cpu::fma(b, c, a * s));
          }
          y.close(left, size, to_a);
          y.close(right, size, to_b);
        });
        cpu::in_runs(head + turned, head + D, run, [&](int64_t first, int64_t size) {
          const float* from = x.read(first, size, buffers[0]);
          float* const to = y.open(first, size, buffers[1]);
          GALLEY_INDEPENDENT
          for (int64_t i = 0; i < size; ++i) cpu::put(add, to[i], from[i]);
          y.close(first, size, to);
        });
      }
    });
  });
}

// In double: at position 100,000 an F32 product would be off by 0.004 radians.
void rope_table(const Node& n, void*) {
  galley::models::rope_tables(n, [&](const galley::models::Angles& angles, int64_t first, int64_t count) {
    const int64_t D = angles.D;
    float* table = n.write<float>(0) + first * D;
    cpu::over_rows(count, D, [&](int64_t p) {
      for (int64_t i = 0; i < D / 2; ++i) {
        const double angle = static_cast<double>(p) * angles(i);
        table[p * D + i] = static_cast<float>(angles.size * std::cos(angle));
        table[p * D + D / 2 + i] = static_cast<float>(angles.size * std::sin(angle));
      }
    });
  });
}

const bool added =
    add(kernel<rope, cpu::all_numbers>("rope.cpu", "rope")) && add(kernel<rope_table, cpu::all_f32>("rope_table.cpu", "rope_table"));

}  // namespace
}  // namespace galley::cpu::rope_op
