// The columns of a row that cache_rows and take_columns take: of each of `groups` equal parts of the row, `width` numbers from `column` on.
// With them keys, values and queries come out of a row in which a product has made all three.
#pragma once

#include <string>

#include "ops/check.hpp"

namespace galley::models {

struct Columns {
  int64_t groups, part, column, width;
  int64_t count() const { return groups * width; }
  /// The index in the row of number `c` of those that are taken.
  int64_t at(int64_t c) const { return c / width * part + column + c % width; }
};

/// Of the node's input `x`, by its attributes.
inline Columns columns_of(const sdk::Node& n, uint32_t x) {
  const int64_t all = sdk::columns(n.in(x));
  Columns c = {n.i("groups", 1), 0, n.i("column", 0), 0};
  if (c.groups < 1 || all % c.groups)
    wrong(n, "groups = " + std::to_string(c.groups) + "; it has to divide the " + std::to_string(all) + " columns of x");
  c.part = all / c.groups;
  c.width = n.i("width", c.part - c.column);
  if (c.column < 0 || c.width < 1 || c.column + c.width > c.part)
    wrong(n, "column = " + std::to_string(c.column) + ", width = " + std::to_string(c.width) + "; parts of x have " +
                 std::to_string(c.part) + " columns");
  return c;
}

}  // namespace galley::models
