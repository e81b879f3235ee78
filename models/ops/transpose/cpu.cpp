// Transposition in F32, tile by tile: 64 rows by 16 columns, whose lines stay in the nearest cache while each is used in turn. At the
// bandwidth of memory but for widths that are large powers of two, where a column's lines share few sets.
#include <algorithm>

#include "cpu/vector.hpp"

namespace {

using namespace galley::sdk;
namespace cpu = galley::cpu;

constexpr int64_t tall = 64, wide = 16;

void transpose(const Node& n, void*) {
  const float* x = n.read<float>(0);  // (M, N)
  float* y = n.write<float>(0);       // (N, M)
  const int64_t M = n.in(0).shape[0], N = n.in(0).shape[1];
  cpu::by_access(n.accumulates(0), [=](auto add) {
    // A block of work is 64 columns of x: rows of y, each written by one block alone.
    cpu::in_blocks(N, tall, [=](int64_t first, int64_t last) {
      for (int64_t i0 = 0; i0 < M; i0 += tall)
        for (int64_t j0 = first; j0 < last; j0 += wide) {
          const int64_t i1 = std::min(i0 + tall, M), j1 = std::min(j0 + wide, last);
          for (int64_t j = j0; j < j1; ++j)
            for (int64_t i = i0; i < i1; ++i) cpu::put(add, y[j * M + i], x[i * N + j]);
        }
    });
  });
}

const bool added = add(kernel<transpose, cpu::all_f32>("transpose.cpu", "transpose"));

}  // namespace
