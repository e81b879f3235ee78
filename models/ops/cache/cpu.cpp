// cache_rows, take_columns: a copy of each run of neighbours. Bound by memory. Into a cache in 8 bit, 32 numbers at a time.
#include <algorithm>
#include <cstring>
#include <string>

#include "cpu/half.hpp"
#include "cpu/vector.hpp"
#include "ops/cache/coded.hpp"
#include "ops/cache/columns.hpp"

namespace galley::cpu::cache_op {
namespace {

using namespace sdk;

/// Row r of `to` = the columns taken of row r of x; to_row(r) gives its number.
template <class ToRow>
void copy(const galley_operand& x, const models::Columns& taken, char* to, const ToRow& to_row) {
  const auto* from = static_cast<const char*>(x.data);
  const auto size = static_cast<int64_t>(galley_dtype_bytes(x.dtype));
  const int64_t row = columns(x) * size, width = taken.width * size, part = taken.part * size, column = taken.column * size;
  cpu::over_rows(rows(x), taken.count(), [=](int64_t r) {
    char* at = to + to_row(r) * taken.groups * width;
    for (int64_t g = 0; g < taken.groups; ++g) std::memcpy(at + g * width, from + r * row + g * part + column, static_cast<size_t>(width));
  });
}

/// The same as codes and scales, of numbers of type T.
template <class T, class ToRow>
void encode(const T* x, int64_t rows, int64_t row, const models::Columns& taken, int8_t* codes, Bf16* scales, const ToRow& to_row) {
  namespace coded = models::coded_cache;
  const int64_t count = taken.count(), blocks = coded::blocks(count);
  cpu::over_rows(rows, count, [=](int64_t r) {
    const int64_t to = to_row(r);
    float block[coded::kBlock];
    for (int64_t k = 0; k < blocks; ++k) {
      const int64_t first = k * coded::kBlock, size = std::min(coded::kBlock, count - first);
      for (int64_t i = 0, run; i < size; i += run) {
        run = std::min(size - i, taken.width - (first + i) % taken.width);
        const T* const from = x + r * row + taken.at(first + i);
        for (int64_t c = 0; c < run; ++c) block[i + c] = to_float(from[c]);
      }
      uint32_t most = 0;
      for (int64_t i = 0; i < size; ++i) most = std::max(most, companded8::magnitude_bits(block[i]));
      const uint16_t scale = companded8::scale(most);
      const float by = coded::inverse(scale);
      for (int64_t i = 0; i < size; ++i) codes[to * count + first + i] = coded::code(block[i], by);
      scales[to * blocks + k].bits = scale;
    }
  });
}

void cache_rows(const Node& n, void*) {
  const galley_operand& x = n.in(1);
  const int64_t B = x.shape[0], S = x.shape[1], L = n.in(0).shape[1];
  const int32_t* start = n.read<int32_t>(2);
  for (int64_t b = 0; b < B; ++b)
    if (start[b] < 0 || start[b] + S > L)
      invalid(std::string(n.name()) + ": positions " + std::to_string(start[b]) + " to " + std::to_string(start[b] + S - 1) +
              " of a cache of " + std::to_string(L));
  const models::Columns taken = models::columns_of(n, 1);
  const auto to_row = [=](int64_t r) { return r / S * L + start[r / S] + r % S; };
  if (!n.has(3)) return copy(x, taken, n.update<char>(0), to_row);
  by_dtype(x, [&](const auto* from) { encode(from, rows(x), columns(x), taken, n.update<int8_t>(0), n.update<Bf16>(3), to_row); });
}

void take_columns(const Node& n, void*) {
  copy(n.in(0), models::columns_of(n, 0), n.write<char>(0), [](int64_t r) { return r; });
}

bool any(const Node&) { return true; }

const bool added =
    add(kernel<cache_rows, any>("cache_rows.cpu", "cache_rows")) && add(kernel<take_columns, any>("take_columns.cpu", "take_columns"));

}  // namespace
}  // namespace galley::cpu::cache_op
