// The blocked product of blocked.hpp, and the transposition that it packs with.
#include "ops/linear/blocked.hpp"

#include "ops/linear/ahead.hpp"

namespace galley::cpu {
namespace {

#ifdef __AVX2__
// 8 × 8 numbers in registers: 24 shuffles, against 64 loads and 64 stores.
inline void transpose_8(const float* from, int64_t from_row, __m256 (&out)[8]) {
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
  for (int i = 0; i < 4; ++i) {
    out[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
    out[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
  }
}
inline void transpose_8(const float* from, int64_t from_row, float* to, int64_t to_row) {
  __m256 turned[8];
  transpose_8(from, from_row, turned);
  for (int64_t i = 0; i < 8; ++i) _mm256_storeu_ps(to + i * to_row, turned[i]);
}
#else
inline void transpose_8(const float* from, int64_t from_row, float* to, int64_t to_row) {
  for (int64_t i = 0; i < 8; ++i)
    for (int64_t j = 0; j < 8; ++j) to[j * to_row + i] = from[i * from_row + j];
}
#endif

struct Lane {
  float *a, *b, *edge, *c;
};

// `rows` rows of `columns` numbers, as floats.
void copy_rows(const void* data, uint32_t dtype, int64_t at, int64_t row, int64_t rows, int64_t columns, float* to, int64_t to_row) {
  for (int64_t r = 0; r < rows; ++r) load(data, dtype, at + r * row, columns, to + r * to_row);
}

// The same of B.
void copy_rows_of_b(const Multiply& p, int64_t at, int64_t row, int64_t rows, int64_t columns, float* to, int64_t to_row) {
  if (!p.coded) return copy_rows(p.b, p.dtype, at, row, rows, columns, to, to_row);
  for (int64_t r = 0; r < rows; ++r) load(p.coded, p.dtype, at + r * row, columns, to + r * to_row);
}

void times_alpha(const Multiply& p, float* block, int64_t row, int64_t rows, int64_t columns) {
  if (p.alpha == 1.0f) return;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) block[r * row + c] *= p.alpha;
}

// A block in memory, `depth` rows of `columns` numbers: strips of `most` columns one after the other, the last one of what is left.
template <int64_t most>
struct Strips {
  float* data;
  int64_t columns, depth;
  int64_t width_at(int64_t j) const { return std::min(most, columns - j / most * most); }
  float* at(int64_t j) const { return data + j / most * most * depth + j % most; }
  // The first n numbers of row k.
  void put(int64_t k, const float* from, int64_t n) const {
    int64_t j = 0;
    for (; j + most <= n; j += most) std::memcpy(data + j * depth + k * most, from + j, most * sizeof(float));
    if (j < n) std::memcpy(at(j) + k * width_at(j), from + j, static_cast<size_t>(n - j) * sizeof(float));
  }
};

// Block of B, in whole vectors: columns beyond n are zero.
Strips<across> pack_b(const Multiply& p, int64_t k0, int64_t depth, int64_t j0, int64_t columns, float* memory) {
  const Strips<across> to{memory, round_up(columns, tile::width), depth};
  const int64_t at = k0 * p.b_row + j0 * p.b_step;
  const bool plain = p.dtype == GALLEY_F32 && !p.coded;
  if (p.b_step == 1) {
    alignas(64) float numbers[most_columns];
    for (int64_t k = 0; k < depth; ++k) {
      if (!plain) copy_rows_of_b(p, at + k * p.b_row, p.b_row, 1, columns, numbers, 0);
      to.put(k, plain ? static_cast<const float*>(p.b) + at + k * p.b_row : numbers, columns);
    }
  } else {
    alignas(64) float few[8 * most_depth];
    const int64_t run = plain ? across : 8;
    for (int64_t j = 0; j < columns; j += run) {
      const int64_t n = std::min(run, columns - j);
      if (!plain) copy_rows_of_b(p, at + j * p.b_step, p.b_step, n, depth, few, most_depth);
      if (plain) transpose(static_cast<const float*>(p.b) + at + j * p.b_step, p.b_step, n, depth, to.at(j), to.width_at(j));
      else transpose(few, most_depth, n, depth, to.at(j), to.width_at(j));
    }
  }
  if (to.columns != columns)
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t j = columns; j < to.columns; ++j) to.at(j)[k * to.width_at(j)] = 0.0f;
  if (!p.scales_a()) times_alpha(p, memory, to.columns, depth, to.columns);
  return to;
}

// What a task is at: columns j0 … j0 + columns − 1 and numbers k0 … k0 + depth − 1 of each sum.
struct Panel {
  int64_t j0, columns, k0, depth;
};

Panel panel_of(const Multiply& p, const Blocking& cut, int64_t j0, int64_t k0) {
  return {j0, std::min(cut.columns, p.n - j0), k0, std::min(cut.depth, p.k - k0)};
}

// Corners that a block of `rows` takes.
int64_t corners(const Panel& at, int64_t rows) { return std::max<int64_t>(1, divide_up(rows, tile::most_rows) * (at.columns / across)); }

Ahead ahead_of_b(const Multiply& p, const Panel& next, int64_t calls) {
  if (p.coded) return {};  // a fraction of the bytes, read in order
  const int64_t at = next.k0 * p.b_row + next.j0 * p.b_step;
  return p.b_step == 1 ? Ahead(p.b, p.dtype, at, p.b_row, next.columns, next.depth, calls)
                       : Ahead(p.b, p.dtype, at, p.b_step, next.depth, next.columns, calls);
}

// Rows of A: tile r / most_rows of them begins `tile` numbers after the one before it for each of its rows.
struct Rows {
  tile::Strided a;
  int64_t tile;
  tile::Strided from(int64_t r) const { return {a.data + r * tile, a.row, a.step}; }
};

// A's rows i0 … i0 + rows − 1, copied so that they lie near each other: rows as they are, columns in strips of as many rows as a tile has.
Rows pack_a(const Multiply& p, int64_t i0, int64_t rows, const Panel& at, const Blocking& cut, float* to) {
  const int64_t from = i0 * p.a_row + at.k0 * p.a_step;
  if (p.a_step == 1) {
    copy_rows(p.a, p.dtype, from, p.a_row, rows, at.depth, to, cut.depth);
    if (p.scales_a()) times_alpha(p, to, cut.depth, rows, at.depth);
    return {{to, cut.depth, 1}, cut.depth};
  }
  constexpr int64_t high = tile::most_rows;
  const Strips<high> strips{to, round_up(rows, high), at.depth};
  const bool plain = p.dtype == GALLEY_F32 && p.alpha == 1.0f;
  alignas(64) float numbers[most_rows];
  for (int64_t k = 0; k < at.depth; ++k) {
    if (!plain) {
      load(p.a, p.dtype, from + k * p.a_step, rows, numbers);
      times_alpha(p, numbers, 0, 1, rows);
    }
    strips.put(k, plain ? static_cast<const float*>(p.a) + from + k * p.a_step : numbers, rows);
  }
  return {{to, 1, high}, at.depth};
}

Ahead ahead_of_a(const Multiply& p, int64_t i0, int64_t rows, const Panel& at, int64_t calls) {
  const int64_t from = i0 * p.a_row + at.k0 * p.a_step;
  return p.a_step == 1 ? Ahead(p.a, p.dtype, from, p.a_row, at.depth, rows, calls)
                       : Ahead(p.a, p.dtype, from, p.a_step, rows, at.depth, calls);
}

// Not inlined: with its caller's variables the inner loop has too few registers, and loads distances again and again. At 512 rows,
// 768 -> 3072, on one thread, in turns with the inlined one: 3 % less time with 512-bit vectors, 7 % less with 256-bit ones.
[[gnu::noinline]] void tiles(int64_t rows, int64_t groups, int64_t depth, tile::Strided a, const float* b, int64_t ldb, float* c,
                             int64_t ldc, const float* base) {
  tile::product(rows, groups, depth, a, b, ldb, c, ldc, base);
}

// Sums of up to so many terms: calls take a good part of their time, so that one has all rows of a block. On two threads of a Zen 3 core at
// 512 rows, 16 -> 1536 added to C, 92 -> 115 GF.
constexpr int64_t few_terms = 64;

// What the first sums of a block of C are added to, if anything is: with a bias, C itself, which gets it here.
const float* begin_block(const Multiply& p, int64_t rows, const Panel& at, float* c, const float* addend, int64_t ldc) {
  if (p.bias) {
    float bias[most_columns];
    load(p.bias, p.bias_dtype, at.j0, at.columns, bias);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < at.columns; ++j) c[i * ldc + j] = (p.add ? c[i * ldc + j] : 0.0f) + bias[j];
  }
  return p.add || p.bias ? c : addend;
}

// One block of C, which lies at `c` in rows of `ldc`, as `addend` does.
void block_of(const Multiply& p, int64_t rows, const Panel& at, const Rows& a, const Strips<across>& b, float* c, const float* addend,
              int64_t ldc, float* edge, Ahead& next_b, Ahead& next_a) {
  const int64_t groups = at.columns / tile::width, rest = at.columns % tile::width;
  const float* const base = at.k0 == 0 ? begin_block(p, rows, at, c, addend, ldc) : c;
  const int64_t high = at.depth <= few_terms && p.a_step == 1 ? rows : tile::most_rows;
  // Strip by strip, so that a strip of B is read from near cache by all rows.
  for (int64_t g = 0; g < groups; g += tile::most_groups)
    for (int64_t r = 0; r < rows; r += high) {
      next_b.some();
      next_a.some();
      const int64_t j = g * tile::width, here = r * ldc + j;
      tiles(std::min(high, rows - r), std::min<int64_t>(tile::most_groups, groups - g), at.depth, a.from(r), b.at(j), b.width_at(j),
            c + here, ldc, base ? base + here : nullptr);
    }
  if (rest) {  // the row ends within a vector: through a buffer
    c += groups * tile::width;
    const float* const held = base ? base + groups * tile::width : nullptr;
    if (held)
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < rest; ++j) edge[i * tile::width + j] = held[i * ldc + j];
    for (int64_t r = 0; r < rows; r += tile::most_rows)
      tiles(std::min<int64_t>(tile::most_rows, rows - r), 1, at.depth, a.from(r), b.at(groups * tile::width),
            b.width_at(groups * tile::width), edge + r * tile::width, tile::width, held ? edge + r * tile::width : nullptr);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < rest; ++j) c[i * ldc + j] = edge[i * tile::width + j];
  }
}

// Sums that are held go where they belong: into C, or, in C's dtype, to the activation.
void finish(const Multiply& p, int64_t i0, int64_t rows, const Panel& at, const float* sums, int64_t ld, const Activation* activation) {
  if (activation && p.c_dtype == GALLEY_F32) return activation->block(i0, at.j0, rows, at.columns, sums, ld);
  for (int64_t i = i0; i < i0 + rows; ++i, sums += ld) {
    uint16_t rounded[most_columns];
    store(sums, at.columns, activation ? rounded : p.c, p.c_dtype, activation ? 0 : i * p.n + at.j0);
    if (activation) activation->row(i, at.j0, at.columns, rounded, 0);
  }
}

#if defined(__AVX2__) && defined(__FMA__)
// Products of few rows take as long as B takes to come from memory. So 8 columns at a time, whose numbers lie in rows there, are turned in
// registers, read once and copied nowhere, while the next 8 are asked for. Chains are those of tiles: the bytes are the same.
constexpr int64_t few_rows = 8;

bool is_few(const Multiply& p) { return p.m <= few_rows && p.k > 0 && p.b_step != 1 && !p.copies_a() && !p.coded && p.alpha == 1.0f; }

template <int M>
void few(const Multiply& p, int64_t depth, const Panel& at, float* c, const float* base, int64_t ldc) {
  const auto *const a = static_cast<const float*>(p.a), *const b = static_cast<const float*>(p.b) + at.j0 * p.b_step;
  int64_t j = 0;
  for (; j + 8 <= at.columns; j += 8) {
    const float* const rows = b + j * p.b_step;
    __m256 made[M];
    for (int i = 0; i < M; ++i) made[i] = base ? _mm256_loadu_ps(base + i * ldc + j) : _mm256_setzero_ps();
    for (int64_t k0 = 0; k0 < p.k; k0 += depth) {
      const int64_t end = std::min(k0 + depth, p.k);
      __m256 sum[M];
      for (int i = 0; i < M; ++i) sum[i] = _mm256_setzero_ps();
      int64_t k = k0;
      for (; k + 8 <= end; k += 8) {
        if (k % 16 == 0)
          for (int64_t q = 8; q < 16; ++q) __builtin_prefetch(rows + q * p.b_step + k);
        __m256 column[8];
        transpose_8(rows + k, p.b_step, column);
        for (int t = 0; t < 8; ++t)
          for (int i = 0; i < M; ++i) sum[i] = _mm256_fmadd_ps(_mm256_broadcast_ss(a + i * p.a_row + k + t), column[t], sum[i]);
      }
      for (; k < end; ++k) {
        alignas(32) float one[8];
        for (int64_t q = 0; q < 8; ++q) one[q] = rows[q * p.b_step + k];
        for (int i = 0; i < M; ++i) sum[i] = _mm256_fmadd_ps(_mm256_broadcast_ss(a + i * p.a_row + k), _mm256_load_ps(one), sum[i]);
      }
      for (int i = 0; i < M; ++i) made[i] = k0 > 0 || base ? _mm256_add_ps(made[i], sum[i]) : sum[i];
    }
    for (int i = 0; i < M; ++i) _mm256_storeu_ps(c + i * ldc + j, made[i]);
  }
  for (; j < at.columns; ++j)
    for (int i = 0; i < M; ++i) {
      float made = base ? base[i * ldc + j] : 0.0f;
      for (int64_t k0 = 0; k0 < p.k; k0 += depth) {
        float sum = 0;
        for (int64_t k = k0; k < std::min(k0 + depth, p.k); ++k) sum = __builtin_fmaf(a[i * p.a_row + k], b[j * p.b_step + k], sum);
        made = k0 > 0 || base ? made + sum : sum;
      }
      c[i * ldc + j] = made;
    }
}

void few_of(const Multiply& p, int64_t depth, const Panel& at, float* c, const float* base, int64_t ldc) {
  constexpr decltype(&few<1>) by_rows[] = {few<1>, few<2>, few<3>, few<4>, few<5>, few<6>, few<7>, few<8>};
  by_rows[p.m - 1](p, depth, at, c, base, ldc);
}
#else
bool is_few(const Multiply&) { return false; }
void few_of(const Multiply&, int64_t, const Panel&, float*, const float*, int64_t) {}
#endif

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

void multiply(const Multiply& p, const Blocking& cut, int64_t index, void* memory, const Activation* activation) {
  auto* const own = static_cast<float*>(memory);
  const Lane lane{own + cut.packed_b(), own, own + cut.packed_b() + cut.packed_a(), own + cut.packed_b() + cut.packed_a() + cut.edge()};
  const int64_t end = cut.blocks() * (index + 1) / cut.tasks;
  for (int64_t t = cut.blocks() * index / cut.tasks; t < end;) {
    const int64_t j0 = t / cut.row_blocks * cut.columns, first_row = t % cut.row_blocks,
                  last_row = std::min(cut.row_blocks, first_row + end - t);
    const int64_t top = first_row * cut.rows, rows_of_all = std::min(p.m, last_row * cut.rows) - top;
    t += last_row - first_row;
    float* const c = cut.holds_c ? lane.c : static_cast<float*>(p.c) + top * p.n + j0;
    const float* const addend = p.addend ? static_cast<const float*>(p.addend) + top * p.n + j0 : nullptr;
    const int64_t ldc = cut.holds_c ? cut.columns : p.n, columns = std::min(cut.columns, p.n - j0);
    if (cut.holds_c && p.add) copy_rows(p.c, p.c_dtype, top * p.n + j0, p.n, rows_of_all, columns, c, ldc);
    if (is_few(p)) {
      const Panel all = {j0, columns, 0, p.k};
      few_of(p, cut.depth, all, c, begin_block(p, p.m, all, c, addend, ldc), ldc);
      if (cut.holds_c) finish(p, 0, p.m, all, c, ldc, activation);
      continue;
    }
    for (int64_t k0 = 0; k0 == 0 || k0 < p.k; k0 += cut.depth) {
      const Panel at = panel_of(p, cut, j0, k0);
      const Strips<across> b = pack_b(p, at.k0, at.depth, at.j0, at.columns, lane.b);
      const int64_t calls = corners(at, rows_of_all);
      Ahead next_b, next_a;
      if (k0 + cut.depth < p.k) next_b = ahead_of_b(p, panel_of(p, cut, j0, k0 + cut.depth), calls);
      else if (t < end) next_b = ahead_of_b(p, panel_of(p, cut, j0 + cut.columns, 0), calls);
      for (int64_t i0 = top; i0 < top + rows_of_all; i0 += cut.rows) {
        const int64_t rows = std::min(cut.rows, p.m - i0), below = std::min(cut.rows, top + rows_of_all - i0 - rows);
        Rows a{{static_cast<const float*>(p.a) + i0 * p.a_row + k0 * p.a_step, p.a_row, p.a_step}, p.a_row};
        if (p.copies_a()) {
          a = pack_a(p, i0, rows, at, cut, lane.a);
          if (below > 0) next_a = ahead_of_a(p, i0 + rows, below, at, corners(at, rows));
        }
        const int64_t down = (i0 - top) * ldc;
        float* const made = c + down;
        block_of(p, rows, at, a, b, made, addend ? addend + down : nullptr, ldc, lane.edge, next_b, next_a);
        if (cut.holds_c && k0 + cut.depth >= p.k) finish(p, i0, rows, at, made, ldc, activation);
      }
    }
  }
}

}  // namespace galley::cpu
