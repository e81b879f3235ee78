// Exchanges between the processes (ranks) along an axis of a run, numbered along it: sums and parts of tensors. Sums are made in the dtype,
// one rank after the other, those of 16 bits rounded after each: they have the same bytes on each rank, in each run, and where one process
// adds the same tensors in this order. Plugins that join processes have the kernels; those beside this file are for one rank, of which the
// sum is its tensor and the part the whole. References are given what all ranks have, one after the other.
//
// A sum is differentiated where it is part of a model, of what processes have computed together: its gradient is the same on all of them, and
// is that of what each has added. Parts are of gradients and updates, and nothing differentiates those.
#include "galley/cpp/exchange.hpp"
#include "ops/check.hpp"

namespace galley::models::exchange_op {
namespace {

using namespace sdk;

int64_t ranks_of(const Node& n) {
  const int64_t ranks = n.i("ranks", 0);
  if (ranks < 1) wrong(n, "ranks = " + std::to_string(ranks) + "; an axis has at least 1");
  return ranks;
}

/// The attributes of all ops here.
Op& along(Op& op) {
  return op.flags(GALLEY_OP_EXCHANGE)
      .attr("ranks", GALLEY_ATTR_I64, GALLEY_ATTR_REQUIRED, "of the axis")
      .integer("stride", 1, "between the numbers of neighbours on the axis");
}
void check_axis(const Node& n) {
  ranks_of(n);
  if (const int64_t stride = n.i("stride", 1); stride < 1) wrong(n, "stride = " + std::to_string(stride) + "; it has to be 1 or more");
}
Attrs of_one() { return Attrs().s("axis", "data").i("ranks", 1); }

void sums(const Node& n) {
  const uint32_t dtype = n.in(0).dtype;
  if (dtype != GALLEY_F32 && dtype != GALLEY_F64 && dtype != GALLEY_BF16 && dtype != GALLEY_F16 && dtype != GALLEY_I32)
    wrong(n, "x has to be F32, F64, BF16, F16 or I32");
}

/// The sum of what all ranks have, which may take the place of this rank's.
template <class T>
void add_ranks(const Node& n, const T* x, T* y) {
  const int64_t all = count(n.in(0)), ranks = ranks_of(n);
  for (int64_t i = 0; i < all; ++i) {
    T sum = x[i];
    for (int64_t r = 1; r < ranks; ++r) sum += x[r * all + i];
    y[i] = sum;
  }
}
void sum_here_reference(const Node& n) {
  if (n.in(0).dtype == GALLEY_I32) add_ranks(n, n.read<int32_t>(0), n.update<int32_t>(0));
  else add_ranks(n, n.read<double>(0), n.update<double>(0));
}
void sum_reference(const Node& n) {
  if (n.in(0).dtype == GALLEY_I32) add_ranks(n, n.read<int32_t>(0), n.write<int32_t>(0));
  else add_ranks(n, n.read<double>(0), n.write<double>(0));
}

/// What one rank sends in a sum: its numbers of all other parts, then its part of the sum to all others.
void sum_cost(const Node& n, galley_cost& cost) {
  const auto ranks = static_cast<double>(n.i("ranks", 1));
  cost.link_bytes = 2 * (ranks - 1) / ranks * static_cast<double>(galley_operand_bytes(&n.in(0)));
}

// ---- Sums on all ranks --------------------------------------------------------------------------------------------------------

void reduce_here_shape(const Node& n, Shapes&) {
  sums(n);
  check_axis(n);
}
Op all_reduce_here("all_reduce_here", "x = x of rank 0 + x of rank 1 + …, in this order; x (…) F32, F64, BF16, F16 or I32");
const bool reduce_here_added = add(along(all_reduce_here)
                                       .input("x", GALLEY_ROLE_ROWS, GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT)
                                       .infer<reduce_here_shape>()
                                       .cost<sum_cost>()
                                       .reference<sum_here_reference>()
                                       .test("f32", {{GALLEY_F32, {3, 67}}}, of_one())
                                       .test("f64", {{GALLEY_F64, {5}}}, of_one())
                                       .test("i32", {{GALLEY_I32, {5}, -9, 9}}, of_one())
                                       .test("stride", {{GALLEY_F32, {70}}}, of_one().i("stride", 8)));

void reduce_shape(const Node& n, Shapes& out) {
  sums(n);
  check_axis(n);
  out.like(0, n.in(0));
}
/// dx = dy.
void reduce_gradient(Backward& b) {
  if (b.needs(0)) b.d_inputs[0] = b.d_outputs[0];
}
Op all_reduce(
    "all_reduce",
    "y = x of rank 0 + x of rank 1 + …, in this order; where y, the same on all ranks, accumulates, y + x of rank 0 + …; x (…) F32, "
    "F64, BF16, F16 or I32");
const bool reduce_added = add(along(all_reduce)
                                  .input("x", GALLEY_ROLE_ROWS)
                                  .output("y", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ACCUMULATES)
                                  .infer<reduce_shape>()
                                  .gradient<reduce_gradient>()
                                  .cost<sum_cost>()
                                  .reference<sum_reference>()
                                  .test("f32", {{GALLEY_F32, {37, 67}}}, of_one())
                                  .test("number", {{GALLEY_F32, {}}}, of_one())
                                  .test("large", {{GALLEY_F32, {5, 4099}}}, of_one())
                                  .test("f64", {{GALLEY_F64, {3, 7}}}, of_one())
                                  .test("bf16", {{GALLEY_BF16, {37, 67}}}, of_one())
                                  .test("f16", {{GALLEY_F16, {37, 67}}}, of_one())
                                  .test("i32", {{GALLEY_I32, {3, 70}, -9, 9}}, of_one())
                                  .test("stride", {{GALLEY_F32, {3, 70}}}, of_one().i("stride", 8)));

// ---- Parts --------------------------------------------------------------------------------------------------------------------

/// The attributes of ops about parts.
Op& parts(Op& op) {
  return along(op)
      .attr("rank", GALLEY_ATTR_I64, GALLEY_ATTR_REQUIRED, "this process, along the axis")
      .attr("ends", GALLEY_ATTR_I64, GALLEY_ATTR_REQUIRED | GALLEY_ATTR_LIST,
            "where each part ends, in elements of the whole; parts may be empty")
      .integer("start", 0, "part j is that of rank (j + start) mod ranks");
}
Attrs whole_of_one(int64_t count) { return of_one().i("rank", 0).list("ends", {count}); }

void has_total(const Node& n, const char* name, int64_t total) {
  if (count(n.in(0)) != total)
    wrong(n, std::string(name) + " is " + shape_text(n.in(0)) + "; by its last end, the whole has " + std::to_string(total) + " elements");
}
void has_part(const Node& n, int64_t own) {
  if (count(n.in(0)) != own)
    wrong(n, "x is " + shape_text(n.in(0)) + "; by its ends, this rank's part has " + std::to_string(own) + " elements");
}

void scatter_shape(const Node& n, Shapes& out) {
  sums(n);
  check_axis(n);
  const Parts p(n);
  has_total(n, "x", p.total());
  out.set(0, n.in(0).dtype, {p.own().count});
}
template <class T>
void add_parts(const Node& n) {
  const Parts p(n);
  const T* x = n.read<T>(0) + p.own().first;
  for (int64_t i = 0; i < p.own().count; ++i) {
    T sum = x[i];
    for (int64_t r = 1; r < p.ranks(); ++r) sum += x[r * p.total() + i];
    n.write<T>(0)[i] = sum;
  }
}
void scatter_reference(const Node& n) {
  if (n.in(0).dtype == GALLEY_I32) add_parts<int32_t>(n);
  else add_parts<double>(n);
}
void scatter_cost(const Node& n, galley_cost& cost) {
  const Parts p(n);
  cost.link_bytes = static_cast<double>((p.total() - p.own().count) * galley_dtype_bytes(n.in(0).dtype));
}
Op reduce_scatter("reduce_scatter",
                  "y = this rank's part of x of rank 0 + x of rank 1 + …, added to y one after the other where y "
                  "accumulates; x (…) F32, F64, BF16, F16 or I32, y (its part)");
const bool scatter_added = add(parts(reduce_scatter)
                                   .input("x", GALLEY_ROLE_WHOLE)
                                   .output("y", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_ACCUMULATES)
                                   .infer<scatter_shape>()
                                   .cost<scatter_cost>()
                                   .reference<scatter_reference>()
                                   .test("all", {{GALLEY_F32, {37, 67}}}, whole_of_one(37 * 67))
                                   .test("bf16", {{GALLEY_BF16, {37, 67}}}, whole_of_one(37 * 67))
                                   .test("one", {{GALLEY_F32, {1}}}, whole_of_one(1).i("start", 3))
                                   .test("stride", {{GALLEY_F32, {70}}}, whole_of_one(70).i("stride", 8)));

void gather_reference(const Node& n) {
  const Parts p(n);
  const int64_t size = galley_dtype_bytes(n.in(0).dtype);
  const char* x = n.read<char>(0);
  for (int64_t r = 0; r < p.ranks(); x += p.of(r++).count * size)
    std::memcpy(n.write<char>(0) + p.of(r).first * size, x, static_cast<size_t>(p.of(r).count * size));
}
void gather_cost(const Node& n, galley_cost& cost) {
  const Parts p(n);
  cost.link_bytes = static_cast<double>((p.ranks() - 1) * p.own().count * galley_dtype_bytes(n.in(0).dtype));
}
void gather_shape(const Node& n, Shapes& out) {
  check_axis(n);
  const Parts p(n);
  has_part(n, p.own().count);
  const galley_attr* shape = galley_attr_find(n.view(), "shape");
  if (!shape) return out.set(0, n.in(0).dtype, {p.total()});
  const auto* extents = static_cast<const int64_t*>(shape->data);
  int64_t elements = 1;
  for (uint32_t k = 0; k < shape->count; ++k) elements *= extents[k];
  if (elements != p.total())
    wrong(n,
          "shape = " + shape_text(extents, shape->count) + "; by its last end, the whole has " + std::to_string(p.total()) + " elements");
  out.set(0, n.in(0).dtype, extents, shape->count);
}
Op all_gather("all_gather", "y = the parts x of all ranks; x (…), y (all parts) in the dtype of x, any");
const bool gather_added = add(parts(all_gather)
                                  .input("x", GALLEY_ROLE_WHOLE)
                                  .output("y", GALLEY_ROLE_WHOLE)
                                  .attr("shape", GALLEY_ATTR_I64, GALLEY_ATTR_LIST, "of y; without it, y has one extent")
                                  .infer<gather_shape>()
                                  .cost<gather_cost>()
                                  .reference<gather_reference>()
                                  .test("f32", {{GALLEY_F32, {37 * 67}}}, whole_of_one(37 * 67).list("shape", {37, 67}))
                                  .test("bf16", {{GALLEY_BF16, {5, 13}}}, whole_of_one(65).i("start", 1))
                                  .test("f64", {{GALLEY_F64, {5}}}, whole_of_one(5))
                                  .test("i32", {{GALLEY_I32, {5}, -9, 9}}, whole_of_one(5))
                                  .test("u8", {{GALLEY_U8, {70}, 0, 255}}, whole_of_one(70))
                                  .test("stride", {{GALLEY_F32, {70}}}, whole_of_one(70).i("stride", 8)));

void gather_here_reference(const Node& n) {
  const Parts p(n);
  const int64_t size = galley_dtype_bytes(n.in(0).dtype);
  char* y = n.update<char>(0);
  for (int64_t r = 1; r < p.ranks(); ++r)
    std::memcpy(y + p.of(r).first * size, y + (r * p.total() + p.of(r).first) * size, static_cast<size_t>(p.of(r).count * size));
}
void gather_here_shape(const Node& n, Shapes&) {
  check_axis(n);
  has_total(n, "y", Parts(n).total());
}
Op all_gather_here("all_gather_here", "y has this rank's part, then those of all ranks; y (…) in any dtype");
const bool gather_here_added = add(parts(all_gather_here)
                                       .input("y", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT)
                                       .infer<gather_here_shape>()
                                       .cost<gather_cost>()
                                       .reference<gather_here_reference>()
                                       .test("bf16", {{GALLEY_BF16, {5, 13}}}, whole_of_one(65))
                                       .test("u8", {{GALLEY_U8, {70}, 0, 255}}, whole_of_one(70))
                                       .test("stride", {{GALLEY_F32, {70}}}, whole_of_one(70).i("stride", 8)));

}  // namespace
}  // namespace galley::models::exchange_op
