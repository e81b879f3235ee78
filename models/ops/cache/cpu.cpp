// cache_rows, take_columns: a copy of each run of neighbours. Bound by memory.
#include <cstring>
#include <string>

#include "cpu/vector.hpp"
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

void cache_rows(const Node& n, void*) {
  const galley_operand& x = n.in(1);
  const int64_t B = x.shape[0], S = x.shape[1], L = n.in(0).shape[1];
  const int32_t* start = n.read<int32_t>(2);
  for (int64_t b = 0; b < B; ++b)
    if (start[b] < 0 || start[b] + S > L)
      invalid(std::string(n.name()) + ": positions " + std::to_string(start[b]) + " to " + std::to_string(start[b] + S - 1) +
              " of a cache of " + std::to_string(L));
  copy(x, models::columns_of(n, 1), n.update<char>(0), [=](int64_t r) { return r / S * L + start[r / S] + r % S; });
}

void take_columns(const Node& n, void*) {
  copy(n.in(0), models::columns_of(n, 0), n.write<char>(0), [](int64_t r) { return r; });
}

bool any(const Node&) { return true; }

const bool added =
    add(kernel<cache_rows, any>("cache_rows.cpu", "cache_rows")) && add(kernel<take_columns, any>("take_columns.cpu", "take_columns"));

}  // namespace
}  // namespace galley::cpu::cache_op
