// mean_rows: each piece of work owns some columns of a sequence and adds its positions in order, in F32; x is read once. mean_rows_grad: one
// copy of a row for each position that counts.
#include <algorithm>

#include "cpu/number.hpp"

namespace galley::cpu::mean_rows_op {
namespace {

using namespace sdk;

/// 1 / (the positions that count), or 0 without any.
float share_of(const int32_t* mask, int64_t S) {
  int64_t positions = 0;
  for (int64_t s = 0; s < S; ++s) positions += mask[s] > 0;
  return positions ? 1.0f / static_cast<float>(positions) : 0.0f;
}

void mean_rows(const Node& n, void*) {
  const cpu::Input x(n, 0);
  const int32_t* mask = n.read<int32_t>(1);
  const cpu::Output y(n, 0);
  const int64_t B = n.in(0).shape[0], S = n.in(0).shape[1], C = n.in(0).shape[2], pieces = cpu::divide_up(C, cpu::run_length);
  cpu::over_rows(B * pieces, S * std::min(C, cpu::run_length), [=](int64_t work) {
    const int64_t b = work / pieces, c = work % pieces * cpu::run_length, size = std::min(C - c, cpu::run_length);
    cpu::Buffer read, sums;
    float* const to = y.open(b * C + c, size, sums);
    std::fill(to, to + size, 0.0f);
    for (int64_t s = 0; s < S; ++s) {
      if (mask[b * S + s] <= 0) continue;
      const float* from = x.read((b * S + s) * C + c, size, read);
      GALLEY_INDEPENDENT
      for (int64_t i = 0; i < size; ++i) to[i] += from[i];
    }
    const float share = share_of(mask + b * S, S);
    for (int64_t i = 0; i < size; ++i) to[i] *= share;
    y.close(b * C + c, size, to);
  });
}

void mean_rows_grad(const Node& n, void* workspace) {
  const cpu::Input dy(n, 0);
  const int32_t* mask = n.read<int32_t>(1);
  const cpu::Output dx(n, 0);
  const int64_t B = n.in(0).shape[0], S = n.in(1).shape[1], C = n.in(0).shape[1];
  float* const shares = static_cast<float*>(workspace);
  for (int64_t b = 0; b < B; ++b) shares[b] = share_of(mask + b * S, S);
  cpu::by_access(dx.adds(), [&](auto add) {
    cpu::over_rows(B * S, C, [=](int64_t r) {
      const float share = mask[r] > 0 ? shares[r / S] : 0.0f;
      if (decltype(add)::value && mask[r] <= 0) return;
      cpu::Buffer read, buffer;
      cpu::in_runs(0, C, cpu::run_length, [&](int64_t c, int64_t size) {
        const float* from = dy.read(r / S * C + c, size, read);
        float* const to = dx.open(r * C + c, size, buffer);
        GALLEY_INDEPENDENT
        for (int64_t i = 0; i < size; ++i) cpu::put(add, to[i], share == 0.0f ? 0.0f : share * from[i]);
        dx.close(r * C + c, size, to);
      });
    });
  });
}
int64_t workspace(const Node& n, const galley_target&) { return n.in(0).shape[0] * static_cast<int64_t>(sizeof(float)); }

const bool added = add(kernel<mean_rows, cpu::all_numbers>("mean_rows.cpu", "mean_rows")) &&
                   add(kernel<mean_rows_grad, cpu::all_numbers, workspace>("mean_rows_grad.cpu", "mean_rows_grad"));

}  // namespace
}  // namespace galley::cpu::mean_rows_op
