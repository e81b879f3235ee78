// Integer products on the processor: a task is 64 rows of y by 64 columns. A sum is taken over four rows of W at once, so that what is read
// of x serves them all; compilers make products of 16-bit pairs of it (vpmaddwd). Exact, so any order has the same bits.
#include <algorithm>

#include "cpu/number.hpp"

namespace {

using namespace galley::sdk;
namespace cpu = galley::cpu;

constexpr int64_t kBlock = 64;

template <int columns_at_once>
void sums_of(const int8_t* x, const int8_t* w, int64_t K, int32_t* to) {
  int32_t sums[columns_at_once] = {};
  for (int64_t k = 0; k < K; ++k)
    for (int c = 0; c < columns_at_once; ++c) sums[c] += static_cast<int16_t>(x[k]) * static_cast<int16_t>(w[c * K + k]);
  std::copy(sums, sums + columns_at_once, to);
}

void linear_i8(const Node& n, void*) {
  const int8_t *x = n.read<int8_t>(0), *w = n.read<int8_t>(1);
  const float *x_scale = n.read<float>(2), *w_scale = n.read<float>(3);
  const cpu::Input bias(n, 4);
  const cpu::Output y(n, 0);
  const int64_t R = rows(n.in(0)), K = columns(n.in(0)), N = columns(n.out(0)), across = (N + kBlock - 1) / kBlock;
  cpu::by_access(y.adds(), [&](auto add) {
    parallel((R + kBlock - 1) / kBlock * across, [=](int64_t task) {
      const int64_t r0 = task / across * kBlock, r1 = std::min(R, r0 + kBlock), j0 = task % across * kBlock,
                    size = std::min(N - j0, kBlock);
      cpu::Buffer bias_buffer, buffer;
      const float* const b = bias ? bias.read(j0, size, bias_buffer) : nullptr;
      int32_t sums[kBlock];
      for (int64_t r = r0; r < r1; ++r) {
        int64_t j = 0;
        for (; j + 4 <= size; j += 4) sums_of<4>(x + r * K, w + (j0 + j) * K, K, sums + j);
        for (; j < size; ++j) sums_of<1>(x + r * K, w + (j0 + j) * K, K, sums + j);
        float* const to = y.open(r * N + j0, size, buffer);
        for (int64_t i = 0; i < size; ++i)
          cpu::put(add, to[i], static_cast<float>(sums[i]) * (x_scale[r] * w_scale[j0 + i]) + (b ? b[i] : 0.0f));
        y.close(r * N + j0, size, to);
      }
    });
  });
}

bool numbers_out(const Node& n) { return cpu::is_number(n.out(0).dtype) && (!n.has(4) || cpu::is_number(n.in(4).dtype)); }

const bool added = add(kernel<linear_i8, numbers_out>("linear_i8.cpu", "linear_i8"));

}  // namespace
