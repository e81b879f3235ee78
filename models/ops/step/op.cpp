// What a window begins and ends with: the step scalars that follow from what the host alone knows (the attempted step, the window's
// tokens), from the number of steps that were applied, and from what options are then. They are computed where they are read, so that a
// step never waits for the host.
#include <cmath>

#include "ops/check.hpp"

namespace galley::models::step_op {
namespace {

using namespace sdk;

void integer64(const Node& n, uint32_t i, const char* name, int64_t count_) {
  if (n.in(i).dtype != GALLEY_I64 || count(n.in(i)) != count_)
    wrong(n, std::string(name) + " is " + shape_text(n.in(i)) + "; it has to be I64 (" + std::to_string(count_) + ")");
}

void begin_shape(const Node& n, Shapes& out) {
  integer64(n, 0, "attempted", 1);
  integer64(n, 1, "applied", 1);
  out.set(0, GALLEY_I64, {1});
  out.set(1, GALLEY_I32, {1});
  out.set(2, GALLEY_F32, {1});
  out.set(3, GALLEY_I64, {4});
}
void begin_reference(const Node& n) {
  *n.write<int64_t>(0) = *n.read<int64_t>(1) + 1;
  *n.write<int32_t>(1) = 1;
  *n.write<double>(2) = 1;
  int64_t* random = n.write<int64_t>(3);
  random[0] = n.i("seed", 0);
  random[1] = *n.read<int64_t>(0) - 1;
  random[2] = -n.i("rows", 0);
  random[3] = 0;
}
Op step_begin("step_begin",
              "applied_step = applied + 1, apply = 1, loss_scale = 1, random = (seed, attempted - 1, -rows, 0): before the first "
              "micro-batch");
const bool begin_added =
    add(step_begin.flags(GALLEY_OP_PRIVATE)
            .input("attempted", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
            .input("applied", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
            .output("applied_step", GALLEY_ROLE_WHOLE)
            .output("apply", GALLEY_ROLE_WHOLE)
            .output("loss_scale", GALLEY_ROLE_WHOLE)
            .output("random", GALLEY_ROLE_WHOLE)
            .integer("seed", 0, "the run's")
            .attr("rows", GALLEY_ATTR_I64, GALLEY_ATTR_REQUIRED, "of a micro-batch")
            .infer<begin_shape>()
            .reference<begin_reference>()
            .test("step", {{GALLEY_I64, {1}, 1, 1000}, {GALLEY_I64, {1}, 0, 1000}}, Attrs().i("seed", 7).i("rows", 4)));

void loss_shape(const Node&, Shapes& out) { out.set(0, GALLEY_F64, {1}); }
void loss_reference(const Node& n) { *n.write<double>(0) = 0; }
Op loss_begin("loss_begin", "loss = 0");
const bool loss_added = add(
    loss_begin.flags(GALLEY_OP_PRIVATE).output("loss", GALLEY_ROLE_WHOLE).infer<loss_shape>().reference<loss_reference>().test("zero", {}));

void seed_shape(const Node& n, Shapes& out) {
  single(n, 0, "loss_scale");
  single(n, 1, "tokens");
  in_f32(n, 0, "loss_scale");
  if (n.in(1).dtype != GALLEY_F64) wrong(n, "tokens have to be F64");
  out.set(0, GALLEY_F32, {1});
  out.set(1, GALLEY_F32, {1});
}
void seed_reference(const Node& n) {
  const double scale = *n.read<double>(0), tokens = *n.read<double>(1);
  *n.write<double>(0) = tokens > 0 ? scale / tokens : 0;
  *n.write<double>(1) = 1 / scale;
}
Op loss_seed("loss_seed", "seed = loss_scale / tokens, 0 without tokens; factor = 1 / loss_scale");
const bool seed_added = add(loss_seed.flags(GALLEY_OP_PRIVATE)
                                .input("loss_scale", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
                                .input("tokens", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
                                .output("seed", GALLEY_ROLE_WHOLE)
                                .output("factor", GALLEY_ROLE_WHOLE)
                                .infer<seed_shape>()
                                .reference<seed_reference>()
                                .test("some", {{GALLEY_F32, {1}, 1, 70000}, {GALLEY_F64, {1}, 1, 5e9}})
                                .test("none", {{GALLEY_F32, {1}, 1, 70000}, {GALLEY_F64, {1}, 0, 0}}));

void scheduled_shape(const Node& n, Shapes& out) {
  integer64(n, 0, "step", 1);
  integer64(n, 1, "first", 1);
  if (n.in(2).rank != 1 || n.in(2).dtype != GALLEY_F64 || count(n.in(2)) < 1) wrong(n, "the values have to be F64 (n)");
  out.set(0, GALLEY_F32, {1});
}
void scheduled_reference(const Node& n) {
  const int64_t at = *n.read<int64_t>(0) - *n.read<int64_t>(1), size = count(n.in(2));
  *n.write<double>(0) = n.f("factor", 1) * n.read<double>(2)[at < 0 ? 0 : at < size ? at : size - 1];
}
Op scheduled("scheduled",
             "value = factor · values[step - first], the nearest of them beyond their ends; step, first I64 (1), values F64 (n), "
             "value F32 (1)");
const bool scheduled_added =
    add(scheduled.flags(GALLEY_OP_PRIVATE)
            .input("step", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
            .input("first", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
            .input("values", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
            .output("value", GALLEY_ROLE_WHOLE)
            .number("factor", 1, "by which the value is multiplied")
            .infer<scheduled_shape>()
            .reference<scheduled_reference>()
            .test("one", {{GALLEY_I64, {1}, 1, 9}, {GALLEY_I64, {1}, 1, 9}, {GALLEY_F64, {1}}})
            .test("within", {{GALLEY_I64, {1}, 5, 9}, {GALLEY_I64, {1}, 1, 4}, {GALLEY_F64, {9}}}, Attrs().f("factor", 0.25))
            .test("beyond", {{GALLEY_I64, {1}, 20, 30}, {GALLEY_I64, {1}, 1, 9}, {GALLEY_F64, {9}}})
            .test("before", {{GALLEY_I64, {1}, 1, 4}, {GALLEY_I64, {1}, 5, 9}, {GALLEY_F64, {9}}}));

void rows_shape(const Node& n, Shapes&) { integer64(n, 0, "random", 4); }
void rows_reference(const Node& n) { n.update<int64_t>(0)[2] += n.i("rows", 0); }
Op next_rows("next_rows", "random[2] += rows: the first row of the next micro-batch");
const bool rows_added = add(next_rows.flags(GALLEY_OP_PRIVATE)
                                .input("random", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT)
                                .attr("rows", GALLEY_ATTR_I64, GALLEY_ATTR_REQUIRED, "of a micro-batch")
                                .infer<rows_shape>()
                                .reference<rows_reference>()
                                .test("rows", {{GALLEY_I64, {4}, 0, 1000}}, Attrs().i("rows", 4)));

void end_shape(const Node& n, Shapes&) {
  single(n, 0, "apply");
  integer64(n, 1, "applied", 1);
}
void end_reference(const Node& n) { *n.update<int64_t>(1) += *n.read<int32_t>(0) != 0; }
Op step_end("step_end", "applied += 1 if apply is not 0");
const bool end_added = add(step_end.flags(GALLEY_OP_PRIVATE)
                               .input("apply", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
                               .input("applied", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT)
                               .infer<end_shape>()
                               .reference<end_reference>()
                               .test("applied", {{GALLEY_I32, {1}, 1, 1}, {GALLEY_I64, {1}, 0, 100}})
                               .test("skipped", {{GALLEY_I32, {1}, 0, 0}, {GALLEY_I64, {1}, 0, 100}}));

void back_shape(const Node& n, Shapes&) {
  same_shape(n, 0, "state", 1, "before");
  if (n.in(0).dtype != n.in(1).dtype) wrong(n, "state and before differ in dtype");
  single(n, 2, "apply");
}
void back_reference(const Node& n) {
  if (*n.read<int32_t>(2)) return;
  for (int64_t i = 0; i < galley_operand_bytes(&n.in(0)); ++i) n.update<unsigned char>(0)[i] = n.read<unsigned char>(1)[i];
}
Op put_back("put_back", "state = before where apply is 0; both of any dtype");
const bool back_added =
    add(put_back.flags(GALLEY_OP_PRIVATE)
            .input("state", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT | GALLEY_OPERAND_ANY_DTYPE)
            .input("before", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT | GALLEY_OPERAND_ANY_DTYPE)
            .input("apply", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
            .infer<back_shape>()
            .reference<back_reference>()
            .test("applied", {{GALLEY_F32, {5, 7}}, {GALLEY_F32, {5, 7}}, {GALLEY_I32, {1}, 1, 1}})
            .test("skipped", {{GALLEY_F32, {5, 4099}}, {GALLEY_F32, {5, 4099}}, {GALLEY_I32, {1}, 0, 0}})
            .test("skipped_i64", {{GALLEY_I64, {3}, 0, 9}, {GALLEY_I64, {3}, 10, 19}, {GALLEY_I32, {1}, 0, 0}})
            .test("skipped_bf16", {{GALLEY_BF16, {333}}, {GALLEY_BF16, {333}}, {GALLEY_I32, {1}, 0, 0}}));

}  // namespace
}  // namespace galley::models::step_op
