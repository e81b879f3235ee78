// The product of pairs.hpp: how it is cut, and how operands are copied into tiles.
#if defined(GALLEY_CPU_LEVEL) && GALLEY_CPU_LEVEL >= 4

#include "ops/linear/pairs.hpp"

#include "ops/linear/ahead.hpp"

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

// The next 32 numbers of k, of which there are `depth`, of `width` rows of A or columns of B, as the tiles of a strip.
[[gnu::always_inline]] inline void pack_step(const uint16_t* from, int64_t across, int64_t k_step, int64_t width, int64_t depth, bool is_b,
                                             char* to) {
  Tile tiles[2];
  // A's tiles have rows along k, B's along the strip: what lies the other way round is transposed, pair by pair.
  const bool lies_along_k = k_step == 1;
  if (lies_along_k)
    for (int64_t t = 0; t < 2; ++t) tiles[t] = along_k(from + 16 * t * across, across, width - 16 * t, depth);
  else along_strip(from, k_step, width, depth, tiles);
  for (int64_t t = 0; t < 2; ++t) {
    if (lies_along_k == is_b) transpose_16(tiles[t].row);
    tiles[t].store(to + t * tile_bytes);
  }
}

void pack_a(const uint16_t* from, const Multiply& p, int64_t width, int64_t depth, char* to) {
  for (int64_t k = 0; k < depth; k += step, to += 2 * tile_bytes)
    pack_step(from + k * p.a_step, p.a_row, p.a_step, width, depth - k, false, to);
}

// The same of a B in a format, whose numbers pass through `room`, in rows of `row` numbers.
void pack_coded_b(const Multiply& p, int64_t j0, int64_t j1, int64_t k0, int64_t depth, uint16_t* room, int64_t row, char* panel) {
  const int64_t steps = divide_up(depth, step), strips = divide_up(j1 - j0, strip);
  const auto decode = [&](int64_t at, int64_t n, int64_t to) { p.coded.decode(at, n, reinterpret_cast<Bf16*>(room + to * row)); };
  if (p.b_row == 1) {
    for (int64_t s = 0; s < strips; ++s) {
      const int64_t j = j0 + s * strip, width = std::min(strip, j1 - j);
      for (int64_t x = 0; x < width; ++x) decode(k0 + (j + x) * p.b_step, depth, x);
      for (int64_t k = 0; k < steps; ++k)
        pack_step(room + k * step, row, 1, width, depth - k * step, true, panel + (s * steps + k) * 2 * tile_bytes);
    }
    return;
  }
  for (int64_t k = 0; k < steps; ++k) {
    const int64_t deep = std::min(step, depth - k * step);
    for (int64_t x = 0; x < deep; ++x) decode((k0 + k * step + x) * p.b_row + j0, j1 - j0, x);
    for (int64_t s = 0; s < strips; ++s)
      pack_step(room + s * strip, 1, row, j1 - j0 - s * strip, deep, true, panel + (s * steps + k) * 2 * tile_bytes);
  }
}

// B's numbers k0 … k0 + depth − 1 of columns j0 … j1 − 1, strip after strip, in the order in which they lie.
void pack_b(const Multiply& p, int64_t j0, int64_t j1, int64_t k0, int64_t depth, char* panel) {
  const auto* b = static_cast<const uint16_t*>(p.b);
  const int64_t steps = divide_up(depth, step), strips = divide_up(j1 - j0, strip);
  const bool along_k = p.b_row == 1;
  for (int64_t n = 0; n < steps * strips; ++n) {
    const int64_t s = along_k ? n / steps : n % strips, k = along_k ? n % steps : n / strips, j = j0 + s * strip;
    pack_step(b + (k0 + k * step) * p.b_row + j * p.b_step, p.b_step, p.b_row, j1 - j, depth - k * step, true,
              panel + (s * steps + k) * 2 * tile_bytes);
  }
}

// 32 numbers in BF16 as F32.
inline void widen_32(__m512i bits, __m512& low, __m512& high) {
  low = (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(bits)), 16);
  high = (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(bits, 1)), 16);
}

// C's numbers from (i, j) on, where there are any: sums times alpha and bias, added to what was there, or to another matrix, or not.
// Numbers below the smallest normal one become 0 in BF16: these instructions take them for that anyway.
__attribute__((target("avx512bf16"))) void finish(const Multiply& p, int64_t i, int64_t j, const float* sums) {
  const int64_t rows = std::min(strip, p.m - i), columns = std::min(strip, p.n - j);
  alignas(64) float bias[strip] = {};
  if (p.bias) load(p.bias, p.bias_dtype, j, columns, bias);
  const __m512 alpha = _mm512_set1_ps(p.alpha);
  const __m512 bias_left = _mm512_load_ps(bias), bias_right = _mm512_load_ps(bias + 16);
  const __mmask32 some = first_of(columns);
  const auto some_left = static_cast<__mmask16>(some), some_right = static_cast<__mmask16>(some >> 16);
  for (int64_t r = 0; r < rows; ++r, sums += strip) {
    const int64_t at = (i + r) * p.n + j;
    __m512 left = _mm512_fmadd_ps(_mm512_load_ps(sums), alpha, bias_left),
           right = _mm512_fmadd_ps(_mm512_load_ps(sums + 16), alpha, bias_right);
    const bool adds = p.add || p.addend;
    if (p.c_dtype == GALLEY_F32) {
      float* const c = static_cast<float*>(p.c) + at;
      if (adds) {
        const float* const to = p.addend ? static_cast<const float*>(p.addend) + at : c;
        left = _mm512_add_ps(_mm512_maskz_loadu_ps(some_left, to), left);
        right = _mm512_add_ps(_mm512_maskz_loadu_ps(some_right, to + 16), right);
      }
      _mm512_mask_storeu_ps(c, some_left, left);
      _mm512_mask_storeu_ps(c + 16, some_right, right);
    } else if (p.c_dtype == GALLEY_BF16) {
      uint16_t* const c = static_cast<uint16_t*>(p.c) + at;
      if (p.addend) widen_32((__m512i)_mm512_cvtne2ps_pbh(right, left), left, right);
      if (adds) {
        __m512 low, high;
        widen_32(_mm512_maskz_loadu_epi16(some, p.addend ? static_cast<const uint16_t*>(p.addend) + at : c), low, high);
        left = _mm512_add_ps(low, left);
        right = _mm512_add_ps(high, right);
      }
      _mm512_mask_storeu_epi16(c, some, (__m512i)_mm512_cvtne2ps_pbh(right, left));
    } else {
      alignas(64) float row[strip] = {};
      if (p.add) load(p.c, p.c_dtype, at, columns, row);
      _mm512_store_ps(row, _mm512_add_ps(_mm512_load_ps(row), left));
      _mm512_store_ps(row + 16, _mm512_add_ps(_mm512_load_ps(row + 16), right));
      store(row, columns, p.c, p.c_dtype, at);
    }
  }
}

Ahead ahead_of(const Multiply& p, int64_t j0, int64_t j1, int64_t k0, int64_t depth, int64_t calls) {
  if (p.coded) return {};  // a fraction of the bytes, read in order
  const int64_t at = k0 * p.b_row + j0 * p.b_step;
  return p.b_row == 1 ? Ahead(p.b, p.dtype, at, p.b_step, depth, j1 - j0, calls) : Ahead(p.b, p.dtype, at, p.b_row, j1 - j0, depth, calls);
}

}  // namespace

Cut cut(const Multiply& p, int64_t threads, const Costs& costs) {
  threads = std::max<int64_t>(threads, 1);
  Cut out = {};
  const int64_t most = p.k <= costs.most_depth ? costs.most_depth : costs.good_depth;
  out.depth = round_up(divide_up(p.k, divide_up(p.k, most)), step);
  out.pieces = divide_up(p.k, out.depth);
  out.copies_a = p.a_step != 1 || (costs.shared_row > 0 && p.a_row % costs.shared_row == 0);
  out.decodes_b = static_cast<bool>(p.coded);
  const auto m = static_cast<double>(p.m), n = static_cast<double>(p.n), k = static_cast<double>(p.k);
  const bool a_stays_near = p.m * p.k * 2 <= 1 << 20;
  double best = 0;
  for (const int64_t most_rows : {64, 128, 256, 512, 1024})
    for (const int64_t most_columns : {64, 96, 128, 192, 256, 384, 512, 768}) {
      Cut now = out;
      // Blocks of about one size: threads are done at about the same time.
      now.rows = round_up(divide_up(p.m, divide_up(p.m, most_rows)), strip);
      now.columns = round_up(divide_up(p.n, divide_up(p.n, most_columns)), strip);
      now.row_blocks = divide_up(p.m, now.rows);
      now.column_blocks = divide_up(p.n, now.columns);
      // Several a thread, so that none waits long for another's last one.
      now.tasks = std::min(now.blocks(), 8 * threads);
      if (now.panel_bytes() + now.sums_bytes() + now.decoded_bytes() > 1 << 20) continue;
      const auto times_a = static_cast<double>(now.column_blocks);
      const auto times_b = static_cast<double>(now.pieces > 1 ? now.row_blocks : std::min(now.row_blocks, now.tasks));
      const double a = m * k *
                       ((out.copies_a ? times_a * costs.of_copied_number : 0) +
                        (a_stays_near ? costs.of_far_number + times_a * costs.of_near_number : times_a * costs.of_far_number));
      const double b = k * n * times_b * (costs.of_copied_number + (out.decodes_b ? costs.of_decoded_number : costs.of_far_number));
      const double share = static_cast<double>(divide_up(now.tasks, threads)) / static_cast<double>(now.tasks);
      const double few = now.tasks < 4 * threads ? costs.of_few_tasks : 1.0;  // another program may take a thread's time
      const double cost = (2 * m * n * k * costs.of_operation + a + b) * share * few;
      if (best != 0 && cost >= best) continue;
      best = cost;
      out = now;
    }
  return out;
}

void multiply(const Multiply& p, const Cut& cut, Block block, int64_t task, void* memory) {
  char* const panel = static_cast<char*>(memory);
  char* const copied = panel + cut.panel_bytes();
  auto* const held = reinterpret_cast<float*>(copied + cut.strip_bytes());
  auto* const decoded = reinterpret_cast<uint16_t*>(copied + cut.strip_bytes() + cut.sums_bytes());
  const int64_t end = cut.blocks() * (task + 1) / cut.tasks;
  int64_t there = -1;  // the column of blocks whose only panel is there
  for (int64_t t = cut.blocks() * task / cut.tasks; t < end; ++t) {
    const int64_t i0 = t % cut.row_blocks * cut.rows, j0 = t / cut.row_blocks * cut.columns;
    const int64_t i1 = std::min(p.m, i0 + cut.rows), j1 = std::min(p.n, j0 + cut.columns);
    for (int64_t k0 = 0; k0 == 0 || k0 < p.k; k0 += cut.depth) {
      const int64_t depth = std::min(cut.depth, p.k - k0), steps = divide_up(depth, step);
      if (there != j0 && p.coded) pack_coded_b(p, j0, j1, k0, depth, decoded, cut.decoded_row(), panel);
      else if (there != j0) pack_b(p, j0, j1, k0, depth, panel);
      if (cut.pieces == 1) there = j0;
      // The panel after this one.
      int64_t next_j = j0, next_k = k0 + cut.depth;
      if (next_k >= p.k) next_j = (t + 1) / cut.row_blocks * cut.columns, next_k = 0;
      Ahead next;
      if (t + 1 < end && (next_j != there))
        next = ahead_of(p, next_j, std::min(p.n, next_j + cut.columns), next_k, std::min(cut.depth, p.k - next_k),
                        divide_up(i1 - i0, strip) * divide_up(j1 - j0, strip));
      float* sums = held;
      for (int64_t i = i0; i < i1; i += strip) {
        const uint16_t* from = static_cast<const uint16_t*>(p.a) + i * p.a_row + k0 * p.a_step;
        Strip a{reinterpret_cast<const char*>(from), p.a_row * 2, 16 * p.a_row * 2, 2 * step};
        if (cut.copies_a || p.m - i < strip || depth % step) {
          pack_a(from, p, i1 - i, depth, copied);
          a = {copied, 64, tile_bytes, 2 * tile_bytes};
        }
        for (int64_t j = j0; j < j1; j += strip) {
          next.some();
          block(steps, a, panel + (j - j0) / strip * steps * 2 * tile_bytes, sums, k0 > 0);
          if (k0 + cut.depth >= p.k) finish(p, i, j, sums);
          if (cut.pieces > 1) sums += strip * strip;
        }
      }
    }
  }
}

}  // namespace galley::cpu::pairs

#endif
