// A cache of keys or values, for generation: cache_rows puts those of new positions where later ones find them, as they are or in 8 bit
// (coded.hpp). take_columns takes some columns of each row, as queries out of a product that has made queries, keys and values.
#include <vector>

#include "ops/cache/coded.hpp"
#include "ops/cache/columns.hpp"

namespace galley::models::cache_op {
namespace {

using namespace sdk;

constexpr uint64_t any = GALLEY_OPERAND_ANY_DTYPE | GALLEY_OPERAND_NO_GRADIENT;

void cache_shape(const Node& n, Shapes&) {
  const galley_operand &cache = n.in(0), &x = n.in(1);
  numbers(n, 1, "x");
  integers(n, 2, "start");
  if (x.rank != 3 || cache.rank != 3) wrong(n, "cache is " + shape_text(cache) + ", x " + shape_text(x) + "; they have to be (B, S, C)");
  const Columns taken = columns_of(n, 1);
  if (cache.shape[0] != x.shape[0] || cache.shape[1] < x.shape[1] || cache.shape[2] != taken.count() ||
      cache.dtype != (n.has(3) ? GALLEY_I8 : x.dtype))
    wrong(n, "cache is " + shape_text(cache) + "; beside x " + shape_text(x) + " it has to be (" + std::to_string(x.shape[0]) + ", " +
                 std::to_string(x.shape[1]) + " or more, " + std::to_string(taken.count()) + ") in the dtype of x, or, with scales, I8");
  vector_of(n, 2, "start", x.shape[0]);
  coded_cache::check_scales(n, 0, "cache", 3, "scales");
}

/// Codes are compared exactly, so they are made of float numbers, as kernels make them.
void encode_reference(const Node& n, int64_t row, const std::vector<double>& numbers) {
  const auto C = static_cast<int64_t>(numbers.size()), blocks = coded_cache::blocks(C);
  for (int64_t k = 0; k < blocks; ++k) {
    const int64_t first = k * coded_cache::kBlock, end = std::min(first + coded_cache::kBlock, C);
    const auto number = [&](int64_t c) { return static_cast<float>(numbers[static_cast<size_t>(c)]); };
    uint32_t most = 0;
    for (int64_t c = first; c < end; ++c) most = std::max(most, companded8::magnitude_bits(number(c)));
    const uint16_t scale = companded8::scale(most);
    for (int64_t c = first; c < end; ++c) n.update<int8_t>(0)[row * C + c] = coded_cache::code(number(c), coded_cache::inverse(scale));
    n.update<double>(3)[row * blocks + k] = companded8::value_of(scale);
  }
}

void cache_reference(const Node& n) {
  const Columns taken = columns_of(n, 1);
  const int64_t B = n.in(1).shape[0], S = n.in(1).shape[1], L = n.in(0).shape[1], C = taken.count(), row = columns(n.in(1));
  const double* x = n.read<double>(1);
  const int32_t* start = n.read<int32_t>(2);
  std::vector<double> numbers(static_cast<size_t>(C));
  for (int64_t b = 0; b < B; ++b)
    for (int64_t i = 0; i < S; ++i) {
      const int64_t to = b * L + start[b] + i;
      for (int64_t c = 0; c < C; ++c) numbers[static_cast<size_t>(c)] = x[(b * S + i) * row + taken.at(c)];
      if (n.has(3)) encode_reference(n, to, numbers);
      else std::copy(numbers.begin(), numbers.end(), n.update<double>(0) + to * C);
    }
}

Attrs columns_attrs(int64_t groups, int64_t column, int64_t width) {
  return Attrs().i("groups", groups).i("column", column).i("width", width);
}

/// A case of a cache in 8 bit: its shape, x, and the last position from which x may be put there.
std::vector<CaseInput> coded(const std::vector<int64_t>& cache, const CaseInput& x, double last) {
  return {{GALLEY_I8, cache, -127, 127},
          x,
          {GALLEY_I32, {cache[0]}, 0, last},
          {GALLEY_BF16, {cache[0], cache[1], coded_cache::blocks(cache[2])}, 0, 1}};
}

Op& with_columns(Op& op) {
  return op.flags(GALLEY_OP_PRIVATE)
      .integer("groups", 1, "equal parts of a row of x")
      .integer("column", 0, "the first column of each part that is taken")
      .attr("width", GALLEY_ATTR_I64, 0, "how many columns of each part are; without it, all from `column` on");
}

Op cache_rows(
    "cache_rows",
    "cache[b, start[b] + i] = the columns taken of x[b, i]; cache (B, L, groups·width), x (B, S, columns), start (B) I32; with scales "
    "(B, L, groups·width / 32 rounded up) BF16, cache holds codes in I8");
const bool cache_added =
    add(with_columns(cache_rows.input("cache", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_INOUT | any)
                         .input("x", GALLEY_ROLE_WHOLE, any)
                         .input("start", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
                         .input("scales", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_OPTIONAL | GALLEY_OPERAND_INOUT | any))
            .infer<cache_shape>()
            .reference<cache_reference>()
            .test("one", {{GALLEY_F32, {2, 9, 12}}, {GALLEY_F32, {2, 1, 12}}, {GALLEY_I32, {2}, 0, 8}})
            .test("some", {{GALLEY_F32, {3, 150, 70}}, {GALLEY_F32, {3, 64, 70}}, {GALLEY_I32, {3}, 0, 86}})
            .test("whole", {{GALLEY_F32, {1, 7, 5}}, {GALLEY_F32, {1, 7, 5}}, {GALLEY_I32, {1}, 0, 0}})
            .test("packed", {{GALLEY_F32, {2, 20, 16}}, {GALLEY_F32, {2, 3, 64}}, {GALLEY_I32, {2}, 0, 17}}, columns_attrs(1, 32, 16))
            .test("by head", {{GALLEY_F32, {2, 20, 28}}, {GALLEY_F32, {2, 3, 84}}, {GALLEY_I32, {2}, 0, 17}}, columns_attrs(4, 7, 7))
            .test("bf16", {{GALLEY_BF16, {2, 40, 67}}, {GALLEY_BF16, {2, 5, 67}}, {GALLEY_I32, {2}, 0, 35}})
            .test("f16", {{GALLEY_F16, {1, 40, 16}}, {GALLEY_F16, {1, 5, 48}}, {GALLEY_I32, {1}, 0, 35}}, columns_attrs(2, 16, 8))
            .test("int8", coded({2, 9, 64}, {GALLEY_F32, {2, 1, 64}}, 8))
            .test("int8 some", coded({3, 150, 70}, {GALLEY_F32, {3, 64, 70}, -9e4, 9e4}, 86))
            .test("int8 packed", coded({2, 20, 96}, {GALLEY_F32, {2, 3, 288}, -1e-7, 1e-7}, 17), columns_attrs(1, 96, 96))
            .test("int8 by head", coded({2, 20, 28}, {GALLEY_F32, {2, 3, 84}}, 17), columns_attrs(4, 7, 7))
            .test("int8 zeros", coded({1, 7, 40}, {GALLEY_F32, {1, 7, 40}, 0, 0}, 0))
            .test("int8 of bf16", coded({2, 40, 67}, {GALLEY_BF16, {2, 5, 67}}, 35))
            .test("int8 of f16", coded({1, 40, 80}, {GALLEY_F16, {1, 5, 240}}, 35), columns_attrs(2, 40, 40)));

void take_shape(const Node& n, Shapes& out) {
  has_rows(n, 0, "x");
  numbers(n, 0, "x");
  galley_operand taken = n.in(0);
  int64_t shape[GALLEY_MAX_RANK];
  std::copy(taken.shape, taken.shape + taken.rank, shape);
  shape[taken.rank - 1] = columns_of(n, 0).count();
  out.set(0, taken.dtype, shape, taken.rank);
}

void take_reference(const Node& n) {
  const Columns taken = columns_of(n, 0);
  const double* x = n.read<double>(0);
  double* y = n.write<double>(0);
  for (int64_t r = 0; r < rows(n.in(0)); ++r)
    for (int64_t c = 0; c < taken.count(); ++c) y[r * taken.count() + c] = x[r * columns(n.in(0)) + taken.at(c)];
}

Op take_columns("take_columns", "y = the columns taken of each row of x; x (…, columns), y (…, groups·width) in the dtype of x");
const bool take_added = add(with_columns(take_columns.input("x", GALLEY_ROLE_ROWS, any).output("y", GALLEY_ROLE_ROWS, any))
                                .infer<take_shape>()
                                .reference<take_reference>()
                                .test("first", {{GALLEY_F32, {2, 3, 64}}}, columns_attrs(1, 0, 32))
                                .test("by head", {{GALLEY_F32, {37, 84}}}, columns_attrs(4, 0, 7))
                                .test("bf16", {{GALLEY_BF16, {5, 667}}}, columns_attrs(1, 3, 600))
                                .test("f16", {{GALLEY_F16, {150, 96}}}, columns_attrs(4, 8, 8)));

}  // namespace
}  // namespace galley::models::cache_op
