// Copies, converted to the dtype of the output; to the nearest value, ties to even.
#include "ops/check.hpp"

namespace galley::models::copy_op {
namespace {

using namespace sdk;

// In the order of the GALLEY_ codes, from 1.
constexpr const char* names[] = {"f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "u16", "u32"};

void shape(const Node& n, Shapes& out) {
  out.like(0, n.in(0));
  const std::string wanted = n.s("dtype", "");
  if (wanted.empty()) return;
  for (uint32_t k = 0; k < std::size(names); ++k)
    if (wanted == names[k]) return out.set(0, k + 1, n.in(0).shape, n.in(0).rank);
  wrong(n, "dtype = '" + wanted + "' is none of f64, f32, f16, bf16, i64, i32, i16, i8, u8, u16, u32");
}

// References see numbers of floating dtype as doubles; integers are copied only to their own dtype.
void reference(const Node& n) {
  const galley_operand& x = n.in(0);
  const auto* from = static_cast<const unsigned char*>(x.data);
  for (int64_t i = 0; i < galley_operand_bytes(&x); ++i) n.write<unsigned char>(0)[i] = from[i];
}

void gradient(Backward& b) {
  if (!b.needs(0)) return;
  const uint32_t from = b.graph.info(b.node.inputs[0]).dtype, to = b.graph.info(b.node.outputs[0]).dtype;
  if (from == to && !b.d_inputs[0]) b.d_inputs[0] = b.d_outputs[0];
  else
    b.d_inputs[0] = b.graph.node("copy", nullptr, {b.d_outputs[0]}, Attrs().s("dtype", names[from - 1]), {b.d_inputs[0]}, {b.adds(0)})[0];
}

Op copy("copy", "y = x, converted to dtype (f64, f32, f16, bf16, …; x's own by default)");
const bool added = add(copy.input("x", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ANY_DTYPE)
                           .output("y", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ACCUMULATES | GALLEY_OPERAND_ANY_DTYPE)
                           .infer<shape>()
                           .gradient<gradient>()
                           .reference<reference>()
                           .test("f32", {{GALLEY_F32, {37, 67}}})
                           .test("large", {{GALLEY_F32, {5, 4099}}})
                           .test("f32_bf16", {{GALLEY_F32, {5, 4099}, -1e3, 1e3}}, Attrs().s("dtype", "bf16"))
                           .test("bf16_f32", {{GALLEY_BF16, {5, 4099}, -1e3, 1e3}}, Attrs().s("dtype", "f32"))
                           .test("f32_f16", {{GALLEY_F32, {5, 4099}, -1e3, 1e3}}, Attrs().s("dtype", "f16"))
                           .test("f32_f16_tiny", {{GALLEY_F32, {5, 99}, -1e-5, 1e-5}}, Attrs().s("dtype", "f16"))
                           .test("f16_f32", {{GALLEY_F16, {5, 4099}, -1e3, 1e3}}, Attrs().s("dtype", "f32"))
                           .test("f16_bf16", {{GALLEY_F16, {5, 99}}}, Attrs().s("dtype", "bf16"))
                           .test("bf16", {{GALLEY_BF16, {37, 67}}})
                           .test("f16", {{GALLEY_F16, {37, 67}}})
                           .test("f32_f64", {{GALLEY_F32, {37}}}, Attrs().s("dtype", "f64"))
                           .test("f64_f32", {{GALLEY_F64, {37}}}, Attrs().s("dtype", "f32"))
                           .test("f64_bf16", {{GALLEY_F64, {3, 200}}}, Attrs().s("dtype", "bf16"))
                           .test("f16_f64", {{GALLEY_F16, {3, 200}}}, Attrs().s("dtype", "f64"))
                           .test("f64", {{GALLEY_F64, {3, 7}}})
                           .test("i64", {{GALLEY_I64, {3, 7}, -1000, 1000}})
                           .test("i16", {{GALLEY_I16, {3, 7}, -1000, 1000}})
                           .test("i32", {{GALLEY_I32, {3, 70}, -1000, 1000}})
                           .test("u8", {{GALLEY_U8, {3, 70}, 0, 255}}));

}  // namespace
}  // namespace galley::models::copy_op
