// What tensors start from: one number, or random numbers that depend on the seed, the stream's name and the element's place alone: not on
// threads, and not on what other tensors there are.
//
// An initializer has no inputs. Its output is the tensor that it fills; where there is none yet, the attribute "shape" says how large it
// is.
//
// Normal numbers: Box, Muller: "A note on the generation of random normal deviates", Annals of Mathematical Statistics 29, 1958.
#include "ops/initializers/draws.hpp"

#include "ops/check.hpp"

namespace galley::models::initializers_op {
namespace {

using namespace sdk;

void shape(const Node& n, Shapes& out) {
  const galley_attr* a = galley_attr_find(n.view(), "shape");
  if (!a && n.has_out(0)) return out.like(0, n.out(0));
  if (!a || a->type != GALLEY_ATTR_I64 || a->count > GALLEY_MAX_RANK)
    wrong(n, "there is no tensor to fill, and no attribute 'shape' that says how large one is");
  out.set(0, GALLEY_F32, static_cast<const int64_t*>(a->data), a->count);
}

template <class T>
void fill_with(const Node& n) {
  for (int64_t i = 0; i < count(n.out(0)); ++i) n.write<T>(0)[i] = static_cast<T>(n.f("value", 0));
}
void fill_reference(const Node& n) {
  switch (n.out(0).dtype) {
    case GALLEY_F64: return fill_with<double>(n);
    case GALLEY_I64: return fill_with<int64_t>(n);
    case GALLEY_I32: return fill_with<int32_t>(n);
    case GALLEY_I8: return fill_with<int8_t>(n);
    case GALLEY_U8: return fill_with<uint8_t>(n);
    default: wrong(n, "fills numbers, I64, I32, I8 and U8");
  }
}

void normal_reference(const Node& n) {
  const Draws draws(n);
  for (int64_t i = 0; i < count(n.out(0)); ++i) n.write<double>(0)[i] = n.f("mean", 0) + n.f("std", 1) * draws.normal(i);
}

void uniform_reference(const Node& n) {
  const Draws draws(n);
  for (int64_t i = 0; i < count(n.out(0)); ++i) n.write<double>(0)[i] = n.f("low", 0) + (n.f("high", 1) - n.f("low", 0)) * draws.uniform(i);
}

Op fill("fill", "every element is value");
const bool fill_added = add(fill.output("y", GALLEY_ROLE_WHOLE)
                                .attr("shape", GALLEY_ATTR_I64, GALLEY_ATTR_LIST, "of y; without it, that of the tensor to fill")
                                .number("value", 0, "of every element")
                                .infer<shape>()
                                .reference<fill_reference>()
                                .test("small", {}, Attrs().list("shape", {2, 3, 5}).f("value", 0.75))
                                .test("zeros", {}, Attrs().list("shape", {37, 671}))
                                .test("number", {}, Attrs().list("shape", {}).i("value", 3)));

void values_reference(const Node& n) {
  const galley_attr* a = galley_attr_find(n.view(), "values");
  for (int64_t i = 0; i < count(n.out(0)); ++i) n.write<double>(0)[i] = static_cast<const double*>(a->data)[i];
}

void values_shape(const Node& n, Shapes& out) {
  shape(n, out);
  const galley_attr* a = galley_attr_find(n.view(), "values");
  if (a && n.has_out(0) && a->count != count(n.out(0)))
    wrong(n, std::to_string(a->count) + " values for " + std::to_string(count(n.out(0))) + " elements");
}

Op values("values", "the numbers of a list, in order");
const bool values_added = add(values.output("y", GALLEY_ROLE_WHOLE)
                                  .attr("shape", GALLEY_ATTR_I64, GALLEY_ATTR_LIST, "of y; without it, that of the tensor to fill")
                                  .attr("values", GALLEY_ATTR_F64, GALLEY_ATTR_LIST | GALLEY_ATTR_REQUIRED, "of the elements")
                                  .infer<values_shape>()
                                  .reference<values_reference>()
                                  .test("small", {}, Attrs().list("shape", {2, 3}).numbers("values", {0.5, -1, 2, 0.25, 1e-8, 3e9})));

Op random_normal("random_normal", "normal numbers of this mean and std, from seed and stream");
const bool normal_added =
    add(random_normal.output("y", GALLEY_ROLE_WHOLE)
            .attr("shape", GALLEY_ATTR_I64, GALLEY_ATTR_LIST, "of y; without it, that of the tensor to fill")
            .number("mean", 0, "of the distribution")
            .number("std", 1, "its standard deviation")
            .infer<shape>()
            .reference<normal_reference>()
            .test("small", {}, Attrs().list("shape", {2, 3, 5}).i("seed", 7))
            .test("large", {}, Attrs().list("shape", {37, 671}).f("mean", 1).f("std", 0.02).i("seed", 1).s("stream", "wte")));

Op random_uniform("random_uniform", "numbers spread evenly over [low, high), from seed and stream");
const bool uniform_added =
    add(random_uniform.output("y", GALLEY_ROLE_WHOLE)
            .attr("shape", GALLEY_ATTR_I64, GALLEY_ATTR_LIST, "of y; without it, that of the tensor to fill")
            .number("low", 0, "the least number")
            .number("high", 1, "above all numbers")
            .infer<shape>()
            .reference<uniform_reference>()
            .test("small", {}, Attrs().list("shape", {2, 3, 5}).i("seed", 7))
            .test("large", {}, Attrs().list("shape", {37, 671}).f("low", -0.1).f("high", 0.1).i("seed", 1).s("stream", "wte")));

}  // namespace
}  // namespace galley::models::initializers_op
