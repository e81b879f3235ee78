// Transposition, tile by tile: 64 rows by 16 columns, whose lines stay in the nearest cache while each is used in turn. At the
// bandwidth of memory but for widths that are large powers of two, where a column's lines share few sets.
#include <algorithm>

#include "cpu/number.hpp"

namespace galley::cpu::transpose_op {
namespace {

using namespace sdk;

constexpr int64_t tall = 64, wide = 16;

void transpose(const Node& n, void*) {
  const cpu::Input x(n, 0);   // (M, N)
  const cpu::Output y(n, 0);  // (N, M)
  const int64_t M = n.in(0).shape[0], N = n.in(0).shape[1];
  cpu::by_access(y.adds(), [=](auto add) {
    // A block of work is 64 columns of x: rows of y, each written by one block alone.
    cpu::in_blocks(N, tall, [=](int64_t first, int64_t last) {
      for (int64_t i0 = 0; i0 < M; i0 += tall)
        for (int64_t j0 = first; j0 < last; j0 += wide) {
          const int64_t i1 = std::min(i0 + tall, M), j1 = std::min(j0 + wide, last);
          float tile[tall * wide];
          const float* from = tile;
          int64_t row = wide;
          if (x.in_place()) from = n.read<float>(0) + i0 * N + j0, row = N;
          else
            for (int64_t i = i0; i < i1; ++i) x.copy(i * N + j0, j1 - j0, tile + (i - i0) * wide);
          cpu::Buffer buffer;
          for (int64_t j = j0; j < j1; ++j) {
            float* const to = y.open(j * M + i0, i1 - i0, buffer);
            for (int64_t i = 0; i < i1 - i0; ++i) cpu::put(add, to[i], from[i * row + j - j0]);
            y.close(j * M + i0, i1 - i0, to);
          }
        }
    });
  });
}

const bool added = add(kernel<transpose, cpu::all_numbers>("transpose.cpu", "transpose"));

}  // namespace
}  // namespace galley::cpu::transpose_op
