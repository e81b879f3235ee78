// The product of pairs.hpp: how it is cut, and how operands are copied into tiles.
#if defined(GALLEY_CPU_LEVEL) && GALLEY_CPU_LEVEL >= 4

#include "ops/linear/pairs.hpp"

namespace galley::cpu::pairs {
namespace {

// 16 × 16 numbers of 32 bits.
inline void transpose_16(__m512i (&r)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // Vector 4i + q has, in quarter c, the numbers of rows 4i … 4i + 3 in column 4c + q.
  for (int q = 0; q < 4; ++q) {
    t[q] = _mm512_shuffle_i32x4(r[q], r[4 + q], 0x88);
    t[4 + q] = _mm512_shuffle_i32x4(r[q], r[4 + q], 0xDD);
    t[8 + q] = _mm512_shuffle_i32x4(r[8 + q], r[12 + q], 0x88);
    t[12 + q] = _mm512_shuffle_i32x4(r[8 + q], r[12 + q], 0xDD);
  }
  for (int q = 0; q < 4; ++q) {
    r[q] = _mm512_shuffle_i32x4(t[q], t[8 + q], 0x88);
    r[4 + q] = _mm512_shuffle_i32x4(t[4 + q], t[12 + q], 0x88);
    r[8 + q] = _mm512_shuffle_i32x4(t[q], t[8 + q], 0xDD);
    r[12 + q] = _mm512_shuffle_i32x4(t[4 + q], t[12 + q], 0xDD);
  }
}

inline __mmask32 first_of(int64_t n) { return n >= 32 ? ~__mmask32{0} : n <= 0 ? 0 : (__mmask32{1} << n) - 1; }
inline __m512i load_some(const uint16_t* from, int64_t n) { return _mm512_maskz_loadu_epi16(first_of(n), from); }

// 16 rows, 64 bytes apart in tiles.
struct Tile {
  __m512i row[16];
  void store(char* to) const {
    for (int64_t i = 0; i < 16; ++i) _mm512_store_si512(to + i * 64, row[i]);
  }
};

// Two tiles from numbers that lie along the strip: tile t's row i has the numbers 2i and 2i + 1 of k for 16 columns. `width` and `depth`:
// how many there are; beyond them are zeros.
inline void along_strip(const uint16_t* from, int64_t k_step, int64_t width, int64_t depth, Tile (&out)[2]) {
  alignas(64) static constexpr uint16_t order[2][32] = {
      {0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47},
      {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55, 24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63}};
  const __m512i low = _mm512_load_si512(order[0]), high = _mm512_load_si512(order[1]);
  for (int64_t i = 0; i < 16; ++i) {
    const __m512i even = load_some(from + 2 * i * k_step, 2 * i < depth ? width : 0);
    const __m512i odd = load_some(from + (2 * i + 1) * k_step, 2 * i + 1 < depth ? width : 0);
    out[0].row[i] = _mm512_permutex2var_epi16(even, low, odd);
    out[1].row[i] = _mm512_permutex2var_epi16(even, high, odd);
  }
}

// A tile from numbers that lie along k: row i has 32 of them.
inline Tile along_k(const uint16_t* from, int64_t row, int64_t width, int64_t depth) {
  Tile out;
  for (int64_t i = 0; i < 16; ++i) out.row[i] = load_some(from + i * row, i < width ? depth : 0);
  return out;
}

// `width` rows of A or columns of B, `depth` numbers of k, as a strip of tiles.
void pack(const uint16_t* from, int64_t across, int64_t k_step, int64_t width, int64_t depth, bool is_b, char* to) {
  for (int64_t k = 0; k < depth; k += step, to += 2 * tile_bytes) {
    Tile tiles[2];
    // A's tiles have rows along k, B's along the strip: what lies the other way round is transposed, pair by pair.
    const bool lies_along_k = k_step == 1;
    if (lies_along_k)
      for (int64_t t = 0; t < 2; ++t) tiles[t] = along_k(from + k + 16 * t * across, across, width - 16 * t, depth - k);
    else along_strip(from + k * k_step, k_step, width, depth - k, tiles);
    for (int64_t t = 0; t < 2; ++t) {
      if (lies_along_k == is_b) transpose_16(tiles[t].row);
      tiles[t].store(to + t * tile_bytes);
    }
  }
}

// Where results go: C's numbers from (i, j) on, `rows` × `columns` of them.
void finish(const Multiply& p, int64_t i, int64_t j, const float* sums) {
  const int64_t rows = std::min(strip, p.m - i), columns = std::min(strip, p.n - j);
  float bias[strip] = {};
  if (p.bias) load(p.bias, p.bias_dtype, j, columns, bias);
  for (int64_t r = 0; r < rows; ++r, sums += strip) {
    const int64_t at = (i + r) * p.n + j;
    if (p.c_dtype == GALLEY_F32) {
      float* const c = static_cast<float*>(p.c) + at;
      for (int64_t h = 0; h < strip; h += 16) {
        const auto some = static_cast<__mmask16>(first_of(columns - h));
        const __m512 sum = _mm512_add_ps(_mm512_load_ps(sums + h), _mm512_loadu_ps(bias + h));
        _mm512_mask_storeu_ps(c + h, some, p.add ? _mm512_add_ps(_mm512_maskz_loadu_ps(some, c + h), sum) : sum);
      }
    } else {
      float row[strip] = {};
      if (p.add) load(p.c, p.c_dtype, at, columns, row);
      for (int64_t c = 0; c < strip; ++c) row[c] += sums[c] + bias[c];
      store(row, columns, p.c, p.c_dtype, at);
    }
  }
}

}  // namespace

Cut cut(const Multiply& p, int64_t threads) {
  threads = std::max<int64_t>(threads, 1);
  Cut out = {};
  out.depth = round_up(divide_up(p.k, divide_up(p.k, most_depth)), step);
  out.pieces = divide_up(p.k, out.depth);
  // Rows of A that are far apart by large powers of two would share a few sets of the cache.
  out.copies_a = p.a_step != 1 || p.a_row % 1024 == 0;
  // Seconds, roughly: of one core, on which a byte costs as much as a hundred operations.
  double best = 0;
  for (const int64_t most_rows : {64, 128, 256, 512, 1024})
    for (const int64_t most_columns : {64, 96, 128, 192, 256, 384, 512, 768}) {
      Cut now = out;
      now.rows = std::min<int64_t>(most_rows, round_up(p.m, strip));
      now.columns = std::min<int64_t>(most_columns, round_up(p.n, strip));
      now.row_blocks = divide_up(p.m, now.rows);
      now.column_blocks = divide_up(p.n, now.columns);
      now.lanes = std::min(threads, now.tasks());
      if (now.panel_bytes() + now.sums_bytes() > 1 << 20) continue;
      const auto m = static_cast<double>(p.m), n = static_cast<double>(p.n), k = static_cast<double>(p.k);
      const double bytes_a = 2 * m * k * static_cast<double>(now.column_blocks) * (out.copies_a ? 2 : 1);
      const double bytes_b = 2 * k * n * static_cast<double>(now.row_blocks) * 2;
      const double share = static_cast<double>(divide_up(now.tasks(), threads)) / static_cast<double>(now.tasks());
      const double few = now.tasks() < 4 * threads ? 1.2 : 1.0;  // another program may take a thread's time
      const double cost = (2 * m * n * k + 100 * (bytes_a + bytes_b)) * share * few;
      if (best != 0 && cost >= best) continue;
      best = cost;
      out = now;
    }
  return out;
}

void multiply(const Multiply& p, const Cut& cut, Block block, int64_t task, int64_t whose, void* workspace) {
  char* const panel = reinterpret_cast<char*>(on_a_line(workspace)) + whose * cut.lane_bytes();
  char* const copied = panel + cut.panel_bytes();
  auto* const held = reinterpret_cast<float*>(copied + cut.strip_bytes());
  // Down a column of blocks first, which read the same columns of B.
  const int64_t i0 = task % cut.row_blocks * cut.rows, j0 = task / cut.row_blocks * cut.columns;
  const int64_t i1 = std::min(p.m, i0 + cut.rows), j1 = std::min(p.n, j0 + cut.columns);
  const auto *a = static_cast<const uint16_t*>(p.a), *b = static_cast<const uint16_t*>(p.b);
  for (int64_t k0 = 0; k0 == 0 || k0 < p.k; k0 += cut.depth) {
    const int64_t depth = std::min(cut.depth, p.k - k0), steps = divide_up(depth, step);
    for (int64_t j = j0; j < j1; j += strip)
      pack(b + k0 * p.b_row + j * p.b_step, p.b_step, p.b_row, std::min(strip, p.n - j), depth, true,
           panel + (j - j0) / strip * steps * 2 * tile_bytes);
    float* sums = held;
    for (int64_t i = i0; i < i1; i += strip) {
      const uint16_t* from = a + i * p.a_row + k0 * p.a_step;
      Strip s{reinterpret_cast<const char*>(from), p.a_row * 2, 16 * p.a_row * 2, 2 * step};
      if (cut.copies_a || p.m - i < strip || depth % step) {
        pack(from, p.a_row, p.a_step, std::min(strip, p.m - i), depth, false, copied);
        s = {copied, 64, tile_bytes, 2 * tile_bytes};
      }
      for (int64_t j = j0; j < j1; j += strip) {
        block(steps, s, panel + (j - j0) / strip * steps * 2 * tile_bytes, sums, k0 > 0);
        if (k0 + cut.depth >= p.k) finish(p, i, j, sums);
        if (cut.pieces > 1) sums += strip * strip;
      }
    }
  }
}

}  // namespace galley::cpu::pairs

#endif
