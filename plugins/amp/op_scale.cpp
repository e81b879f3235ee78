// update_scale: the rule of torch.amp.GradScaler. After an overflow the scale backs off and the step is skipped; after growth_interval good
// steps in a row it grows.
#include "scale.hpp"

namespace galley::amp {
namespace {

using namespace sdk;

void shape(const Node& node, Shapes& out) {
  for (uint32_t i = 0; i < 4; ++i)
    if (count(node.in(i)) != 1 || node.in(i).dtype != (i == 1 ? GALLEY_F32 : GALLEY_I32))
      invalid(std::string(node.name()) + ": input " + std::to_string(i) + " of update_scale has to be one " + (i == 1 ? "F32" : "I32"));
  out.set(0, GALLEY_I32, {1});
  out.set(1, GALLEY_I32, {1});
}

}  // namespace

Op& update_scale() {
  static Op op(
      "update_scale",
      "apply = !found_inf; scale *= backoff after an overflow, *= growth after growth_interval good steps; gave_up after max_skips "
      "overflows in a row");
  constexpr uint64_t updated = GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT;
  const auto attrs = [] { return Attrs().i("growth_interval", 3).f("growth", 4).f("backoff", 0.25).i("max_skips", 2); };
  constexpr uint32_t I = GALLEY_I32;
  op.flags(GALLEY_OP_PRIVATE)
      .input("found_inf", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
      .input("scale", GALLEY_ROLE_WHOLE, updated)
      .input("good", GALLEY_ROLE_WHOLE, updated)
      .input("skipped", GALLEY_ROLE_WHOLE, updated)
      .output("apply", GALLEY_ROLE_WHOLE)
      .output("gave_up", GALLEY_ROLE_WHOLE)
      .number("growth", 2, "the factor after growth_interval steps without overflow")
      .number("backoff", 0.5, "the factor after an overflow")
      .integer("growth_interval", 2000, "applied steps")
      .integer("max_skips", 20, "skipped steps in a row that end the run")
      .infer<shape>()
      .reference<update<double>>()
      .test("overflow", {{I, {1}, 1, 1}, {GALLEY_F32, {1}, 1, 70000}, {I, {1}, 0, 2}, {I, {1}, 0, 0}}, attrs())
      .test("gives up", {{I, {1}, 1, 1}, {GALLEY_F32, {1}, 1, 70000}, {I, {1}, 0, 2}, {I, {1}, 1, 1}}, attrs())
      .test("grows", {{I, {1}, 0, 0}, {GALLEY_F32, {1}, 1, 70000}, {I, {1}, 2, 2}, {I, {1}, 0, 5}}, attrs())
      .test("waits", {{I, {1}, 0, 0}, {GALLEY_F32, {1}, 1, 70000}, {I, {1}, 0, 1}, {I, {1}, 0, 5}}, attrs())
      .test("too large to grow", {{I, {1}, 0, 0}, {GALLEY_F32, {1}, 2e38, 3e38}, {I, {1}, 2, 2}, {I, {1}, 0, 0}}, attrs());
  return op;
}

}  // namespace galley::amp
