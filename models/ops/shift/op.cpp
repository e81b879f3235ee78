// Integers moved by a constant: y = x + by. OPT and RoBERTa count positions from 2 on, whose tables have two rows that no position has.
#include "ops/check.hpp"

namespace galley::models::shift_op {
namespace {

using namespace sdk;

void shape(const Node& n, Shapes& out) {
  integers(n, 0, "x");
  out.like(0, n.in(0));
}

void reference(const Node& n) {
  const int32_t* x = n.read<int32_t>(0);
  int32_t* y = n.write<int32_t>(0);
  for (int64_t i = 0; i < count(n.in(0)); ++i) y[i] = x[i] + static_cast<int32_t>(n.i("by", 0));
}

constexpr uint32_t a_row = GALLEY_OPERAND_SAME_ROWS | GALLEY_OPERAND_NO_GRADIENT;

Op shift("shift", "y = x + by; x (…) I32, y like x");
const bool added = add(shift.input("x", GALLEY_ROLE_ROWS, a_row)
                           .output("y", GALLEY_ROLE_ROWS, a_row)
                           .integer("by", 0, "added to each")
                           .infer<shape>()
                           .reference<reference>()
                           .test("small", {{GALLEY_I32, {2, 3}, 0, 9}}, Attrs().i("by", 2))
                           .test("large", {{GALLEY_I32, {37, 671}, -90, 90}}, Attrs().i("by", -7)));

}  // namespace
}  // namespace galley::models::shift_op
