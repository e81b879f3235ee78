// Rows of heads in F32, BF16 or F16, as F32 and back, and those of caches in 8 bit, as F32. Blocks compute in F32: other rows are
// converted into a lane's buffer when a block is loaded, which is a few percent of its products (decisions.md has more of caches). pairs.hpp
// serves processors that multiply pairs of BF16 faster; on the Intel core of cpu_grad.cpp that does half of what F32's multiply-add does
// (110 | 225 GF).
#pragma once

#include <algorithm>

#include "cpu/half.hpp"
#include "cpu/vector.hpp"
#include "ops/attention/extents.hpp"
#include "ops/cache/coded.hpp"

namespace galley::cpu {

/// An operand's numbers from one of them on.
struct Numbers {
  void* data;
  uint32_t dtype;
  const Bf16* scales = nullptr;  ///< of all of the operand's numbers, where it is a cache in 8 bit: coded.hpp of cache
  int64_t at = 0;                ///< the numbers before `data`
  Numbers from(int64_t n) const { return {static_cast<char*>(data) + n * galley_dtype_bytes(dtype), dtype, scales, at + n}; }
  bool is_f32() const { return dtype == GALLEY_F32; }
  float* f32() const { return static_cast<float*>(data); }
};
inline Numbers numbers_of(const galley_operand* t) { return t ? Numbers{t->data, t->dtype} : Numbers{nullptr, GALLEY_F32}; }

/// Keys or values are to be converted.
inline bool converts(const sdk::Node& node) {
  const auto is = [&](uint32_t i) { return node.has(i) && node.in(i).dtype != GALLEY_F32; };
  return is(models::attention_input::Q) || is(models::attention_input::K) || is(models::attention_input::V);
}

/// `q` holds k and v after it where attention is packed.
inline models::AttentionOperands<Numbers> operands_of(const models::AttentionExtents& e, const galley_operand* q, const galley_operand* k,
                                                      const galley_operand* v) {
  const Numbers all = numbers_of(q);
  if (e.packed) return {all, all.from(e.k_begin()), all.from(e.v_begin())};
  return {all, numbers_of(k), numbers_of(v)};
}

/// body(pointer) with the type of the numbers, which are no codes.
template <class Body>
inline void by_dtype(const Numbers& x, const Body& body) {
  switch (x.dtype) {
    case GALLEY_BF16: return body(static_cast<Bf16*>(x.data));
    case GALLEY_F16: return body(static_cast<F16*>(x.data));
    default: return body(static_cast<float*>(x.data));
  }
}

/// to[i][d] = factor · from[i][d], n rows of D numbers; `row` and `to_row` are the distances of rows.
inline void load_rows(const Numbers& from, int64_t row, int64_t n, int64_t D, float factor, float* to, int64_t to_row) {
  by_dtype(from, [&](const auto* data) {
    for (int64_t i = 0; i < n; ++i) {
      const auto* __restrict x = data + i * row;
      float* __restrict y = to + i * to_row;
      for (int64_t d = 0; d < D; ++d) y[d] = factor * to_float(x[d]);
    }
  });
}

/// A row, rounded where T has 16 bits. A function of its own: GCC 12 forgets that rows do not overlap where it inlines them, and then
/// rounds to F16 one number after the other.
template <class T>
[[gnu::noinline]] inline void store_row(const float* __restrict from, int64_t n, T* __restrict to) {
  for (int64_t d = 0; d < n; ++d) from_float(from[d], to[d]);
}

/// to[i][d] = from[i][d], rounded where `to` has 16 bits.
inline void store_rows(const float* from, int64_t row, int64_t n, int64_t D, const Numbers& to, int64_t to_row) {
  by_dtype(to, [&](auto* data) {
    for (int64_t i = 0; i < n; ++i) store_row(from + i * row, D, data + i * to_row);
  });
}

/// to[i][d] = the number of code from[i][d], n rows of D numbers; `row` is the distance of rows, and what the cache has for a position.
inline void decode_rows(const Numbers& from, int64_t row, int64_t n, int64_t D, float* to) {
  namespace coded = models::coded_cache;
  const auto* codes = static_cast<const int8_t*>(from.data);
  const int64_t column = from.at % row;
  const Bf16* scales = from.scales + from.at / row * coded::blocks(row);
  for (int64_t i = 0; i < n; ++i, codes += row, scales += coded::blocks(row), to += D)
    for (int64_t d = 0, run; d < D; d += run) {
      const int64_t block = (column + d) / coded::kBlock;
      run = std::min(D - d, (block + 1) * coded::kBlock - (column + d));
      const float unit = coded::unit(scales[block].bits);
      const int8_t* __restrict x = codes + d;
      float* __restrict y = to + d;
      for (int64_t c = 0; c < run; ++c) y[c] = unit * static_cast<float>(x[c]);
    }
}

/// Rows as F32, `row` numbers apart.
struct Rows {
  const float* data;
  int64_t row;
};
/// n rows of D numbers: where they lie if they are F32, else a copy in `buffer` (n, D).
inline Rows rows_of(const Numbers& from, int64_t row, int64_t n, int64_t D, float* buffer) {
  if (from.is_f32()) return {from.f32(), row};
  if (from.scales) return decode_rows(from, row, n, D, buffer), Rows{buffer, D};
  load_rows(from, row, n, D, 1.0f, buffer, D);
  return {buffer, D};
}

}  // namespace galley::cpu
