// What VeRA's projections begin as, and the parts of them that a layer reads.
#include <random>

#include "galley/cpp/plugin.hpp"
#include "random.hpp"

namespace {

using namespace galley::sdk;

void random_shape(const Node& node, Shapes& out) {
  const galley_attr* shape = galley_attr_find(node.view(), "shape");
  if (!shape && node.has_out(0)) return out.like(0, node.out(0));
  if (!shape || shape->type != GALLEY_ATTR_I64 || shape->count > GALLEY_MAX_RANK)
    invalid(std::string(node.name()) + ": there is no tensor to fill, and no attribute 'shape' that says how large one is");
  out.set(0, GALLEY_F32, static_cast<const int64_t*>(shape->data), shape->count);
}

void random_reference(const Node& node) {
  const galley::vera::Draws draws(node);
  std::mt19937 generator(draws.key);
  generator.discard(static_cast<unsigned long long>(draws.before));
  for (int64_t i = 0; i < count(node.out(0)); ++i)
    node.write<double>(0)[i] = galley::vera::uniform(static_cast<uint32_t>(generator()), draws.bound);
}

Op vera_random("vera_random", "uniform in [-bound, bound), as PyTorch's generator draws");
const bool random_added = add(vera_random.flags(GALLEY_OP_PRIVATE)
                                  .output("y", GALLEY_ROLE_WHOLE)
                                  .attr("shape", GALLEY_ATTR_I64, GALLEY_ATTR_LIST, "of y; without it, that of the tensor to fill")
                                  .integer("key", 0, "seeds the generator")
                                  .integer("before", 0, "numbers that it has drawn already")
                                  .number("bound", 1, "the largest size of a number")
                                  .infer<random_shape>()
                                  .reference<random_reference>()
                                  .test("small", {}, Attrs().list("shape", {3, 5}).i("key", 7))
                                  .test("further on", {}, Attrs().list("shape", {37, 67}).i("before", 1000).f("bound", 0.25)));

void slice_shape(const Node& node, Shapes& out) {
  const int64_t rows = node.i("rows", 0), columns = node.i("columns", 0);
  if (node.in(0).dtype != GALLEY_F32) invalid(std::string(node.name()) + ": x has to be F32");
  if (node.in(0).rank != 2 || rows < 1 || columns < 1 || rows > node.in(0).shape[0] || columns > node.in(0).shape[1])
    invalid(std::string(node.name()) + ": " + shape_text(node.in(0)) + " has no part of " + std::to_string(rows) + " rows and " +
            std::to_string(columns) + " columns");
  out.set(0, GALLEY_F32, {rows, columns});
}

void slice_reference(const Node& node) {
  const int64_t rows = node.out(0).shape[0], columns = node.out(0).shape[1], all = node.in(0).shape[1];
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) node.write<double>(0)[r * columns + c] = node.read<double>(0)[r * all + c];
}

Op vera_slice("vera_slice", "the first rows and columns of x");
const bool slice_added = add(vera_slice.flags(GALLEY_OP_PRIVATE)
                                 .input("x", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
                                 .output("y", GALLEY_ROLE_WHOLE)
                                 .attr("rows", GALLEY_ATTR_I64, GALLEY_ATTR_REQUIRED, "of y")
                                 .attr("columns", GALLEY_ATTR_I64, GALLEY_ATTR_REQUIRED, "of y")
                                 .infer<slice_shape>()
                                 .reference<slice_reference>()
                                 .test("columns", {{GALLEY_F32, {4, 67}}}, Attrs().i("rows", 4).i("columns", 35))
                                 .test("rows", {{GALLEY_F32, {131, 4}}}, Attrs().i("rows", 70).i("columns", 4)));

}  // namespace
