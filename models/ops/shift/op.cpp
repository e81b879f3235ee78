// Integers moved by a constant: y = x + by. OPT and RoBERTa count positions from 2 on, whose tables have two rows that no position has.
//
// shift_long does so in long documents only: LongRoPE has one table for them and one for the others.
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

constexpr uint64_t a_row = GALLEY_OPERAND_SAME_ROWS | GALLEY_OPERAND_NO_GRADIENT;

Op shift("shift", "y = x + by; x (…) I32, y like x");
const bool added = add(shift.input("x", GALLEY_ROLE_ROWS, a_row)
                           .output("y", GALLEY_ROLE_ROWS, a_row)
                           .integer("by", 0, "added to each")
                           .infer<shape>()
                           .reference<reference>()
                           .test("small", {{GALLEY_I32, {2, 3}, 0, 9}}, Attrs().i("by", 2))
                           .test("large", {{GALLEY_I32, {37, 671}, -90, 90}}, Attrs().i("by", -7)));

// ---- In long documents ----

void long_shape(const Node& n, Shapes& out) {
  integers(n, 0, "x");
  integers(n, 1, "last_key");
  if (n.in(0).rank != 2) wrong(n, "x is " + shape_text(n.in(0)) + "; it has to be (B, S)");
  same_shape(n, 1, "last_key", 0, "x");
  out.like(0, n.in(0));
}

void long_reference(const Node& n) {
  const int32_t *x = n.read<int32_t>(0), *last = n.read<int32_t>(1);
  int32_t* y = n.write<int32_t>(0);
  const int64_t S = columns(n.in(0));
  for (int64_t i = 0; i < count(n.in(0)); ++i) {
    const bool longer = x[i / S * S + last[i]] >= n.i("longer_than", 0);
    y[i] = x[i] + (longer ? static_cast<int32_t>(n.i("by", 0)) : 0);
  }
}

Op shift_long("shift_long",
              "y = x + by where position x of the document's last token, row last_key of the same sequence, is longer_than or more; x, "
              "last_key (B, S) I32, y like x");
const bool long_added =
    add(shift_long.flags(GALLEY_OP_PRIVATE)
            .input("x", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
            .input("last_key", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
            .output("y", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
            .integer("by", 0, "added to each")
            .integer("longer_than", 0, "positions of a document that is not long")
            .infer<long_shape>()
            .reference<long_reference>()
            .test("small", {{GALLEY_I32, {2, 3}, 0, 9}, {GALLEY_I32, {2, 3}, 0, 2}}, Attrs().i("by", 2).i("longer_than", 5))
            .test("large", {{GALLEY_I32, {3, 671}, 0, 670}, {GALLEY_I32, {3, 671}, 0, 670}}, Attrs().i("by", 671).i("longer_than", 300)));

}  // namespace
}  // namespace galley::models::shift_op
