// The blocked product of blocked.hpp, and the transposition that it packs with.
#include "ops/linear/blocked.hpp"

namespace galley::cpu {
namespace {

#ifdef __AVX2__
// 8 × 8 numbers in registers: 24 shuffles, against 64 loads and 64 stores.
inline void transpose_8(const float* from, int64_t from_row, float* to, int64_t to_row) {
  __m256 r[8], t[8];
  for (int64_t i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(from + i * from_row);
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
    r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
  }
  for (int64_t i = 0; i < 4; ++i) {
    _mm256_storeu_ps(to + i * to_row, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    _mm256_storeu_ps(to + (i + 4) * to_row, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
}
#else
inline void transpose_8(const float* from, int64_t from_row, float* to, int64_t to_row) {
  for (int64_t i = 0; i < 8; ++i)
    for (int64_t j = 0; j < 8; ++j) to[j * to_row + i] = from[i * from_row + j];
}
#endif

struct Lane {
  float *a, *b, *edge;
};

// Block of B as rows of `cut.columns` numbers, those beyond n zero.
void pack_b(const Multiply& p, int64_t k0, int64_t depth, int64_t j0, int64_t columns, int64_t ld, float* to) {
  const int64_t whole = round_up(columns, tile::width);
  const float* from = p.b + k0 * p.b_row + j0 * p.b_step;
  if (p.b_step == 1) {
    for (int64_t k = 0; k < depth; ++k) std::memcpy(to + k * ld, from + k * p.b_row, static_cast<size_t>(columns) * sizeof(float));
  } else {
    transpose(from, p.b_step, columns, depth, to, ld);
  }
  if (whole != columns)
    for (int64_t k = 0; k < depth; ++k) std::fill(to + k * ld + columns, to + k * ld + whole, 0.0f);
}

// One block of C. `a` is where A's block lies.
void task(const Multiply& p, int64_t i0, int64_t rows, int64_t j0, int64_t columns, int64_t depth, bool first, tile::Strided a, const Lane& lane, int64_t ld) {
  float* c = p.c + i0 * p.n + j0;
  const int64_t groups = columns / tile::width, rest = columns % tile::width;
  if (first && p.bias)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) c[i * p.n + j] = (p.add ? c[i * p.n + j] : 0.0f) + p.bias[j0 + j];
  const tile::Onto onto = first && !p.add && !p.bias ? tile::Onto::Write : tile::Onto::Add;
  // Strip by strip, so that a strip of B is read from near cache by all rows.
  for (int64_t g = 0; g < groups; g += tile::most_groups)
    tile::product(rows, std::min<int64_t>(tile::most_groups, groups - g), depth, a, lane.b + g * tile::width, ld, c + g * tile::width, p.n, onto);
  if (rest) {  // the row ends within a vector: through a buffer
    c += groups * tile::width;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < rest; ++j) lane.edge[i * tile::width + j] = c[i * p.n + j];
    tile::product(rows, 1, depth, a, lane.b + groups * tile::width, ld, lane.edge, tile::width, onto);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < rest; ++j) c[i * p.n + j] = lane.edge[i * tile::width + j];
  }
}

}  // namespace

void transpose(const float* from, int64_t from_row, int64_t rows, int64_t columns, float* to, int64_t to_row) {
  int64_t i = 0;
  for (; i + 8 <= rows; i += 8) {
    int64_t j = 0;
    for (; j + 8 <= columns; j += 8) transpose_8(from + i * from_row + j, from_row, to + j * to_row + i, to_row);
    for (; j < columns; ++j)
      for (int64_t q = 0; q < 8; ++q) to[j * to_row + i + q] = from[(i + q) * from_row + j];
  }
  for (; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) to[j * to_row + i] = from[i * from_row + j];
}

void multiply(const Multiply& p, const Blocking& cut, int64_t index, void* workspace) {
  const int64_t per_lane = cut.packed_a() + cut.packed_b() + cut.edge();
  float* own = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(workspace) + 63) / 64 * 64) + index * per_lane;
  const Lane lane{own + cut.packed_b(), own, own + cut.packed_b() + cut.packed_a()};
  const int64_t begin = cut.tasks() * index / cut.lanes, end = cut.tasks() * (index + 1) / cut.lanes;
  for (int64_t t = begin; t < end;) {
    const int64_t column = t / cut.row_blocks, j0 = column * cut.columns, columns = std::min(cut.columns, p.n - j0);
    const int64_t first_row = t % cut.row_blocks, last_row = std::min(cut.row_blocks, first_row + end - t);
    for (int64_t k0 = 0; k0 < std::max<int64_t>(p.k, 1); k0 += cut.depth) {
      const int64_t depth = std::min(cut.depth, p.k - k0);
      pack_b(p, k0, depth, j0, columns, cut.columns, lane.b);
      for (int64_t r = first_row; r < last_row; ++r) {
        const int64_t i0 = r * cut.rows, rows = std::min(cut.rows, p.m - i0);
        tile::Strided a{p.a + i0 * p.a_row + k0 * p.a_step, p.a_row, p.a_step};
        if (p.a_step != 1) {  // a column of A is one line a number: copied, its rows lie near each other
          for (int64_t k = 0; k < depth; ++k) std::memcpy(lane.a + k * cut.rows, a.data + k * p.a_step, static_cast<size_t>(rows) * sizeof(float));
          a = {lane.a, 1, cut.rows};
        }
        task(p, i0, rows, j0, columns, depth, k0 == 0, a, lane, cut.columns);
      }
    }
    t += last_row - first_row;
  }
}

}  // namespace galley::cpu
