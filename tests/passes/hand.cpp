#include "tests/passes/hand.hpp"

#include "host/proofs/check.hpp"
#include "host/proofs/verify.hpp"

namespace galley::hand {
namespace {

using sdk::Backward;
using sdk::Node;
using sdk::Op;
using sdk::Shapes;

void like_first(const Node& n, Shapes& out) { out.like(0, n.in(0)); }
void two_of_one_shape(const Node& n, Shapes& out) {
  if (sdk::count(n.in(0)) != sdk::count(n.in(1))) sdk::invalid("operands differ in size");
  out.like(0, n.in(0));
}
void norm_shape(const Node&, Shapes& out) {
  out.set(0, GALLEY_F32, {1});
  out.set(1, GALLEY_I32, {1});
}
void nothing(const Node&, Shapes&) {}
/// Of what the host makes, whose output is there.
void as_it_is(const Node& n, Shapes& out) { out.like(0, n.out(0)); }
void one_double(const Node&, Shapes& out) { out.set(0, GALLEY_F64, {1}); }
void same_size(const Node& n, Shapes&) {
  if (sdk::count(n.in(0)) != sdk::count(n.in(1))) sdk::invalid("operands differ in size");
}

void add_gradient(Backward& b) {
  for (uint32_t i = 0; i < 2; ++i)
    if (b.needs(i)) b.d_inputs[i] = b.d_outputs[0];
}
void mul_gradient(Backward& b) {
  for (uint32_t i = 0; i < 2; ++i)
    if (b.needs(i))
      b.d_inputs[i] = b.graph.node("mul", nullptr, {b.d_outputs[0], b.node.inputs[1 - i]}, {}, {b.d_inputs[i]}, {b.adds(i)})[0];
}
void loss_gradient(Backward& b) { b.d_inputs[0] = b.graph.node("mul", nullptr, {b.node.inputs[0], b.node.inputs[0]}, {}, {0})[0]; }
void wide_gradient(Backward& b) { b.d_inputs[0] = b.graph.scalar(GALLEY_SCALAR_LOSS_SEED); }
void idle_gradient(Backward&) {}
void stray_gradient(Backward& b) { b.d_inputs[0] = 1000; }

void like_first_in_dtype(const Node& n, Shapes& out) { out.set(0, n.dtype(n.in(0).dtype), n.in(0).shape, n.in(0).rank); }
void begin_shape(const Node&, Shapes& out) {
  out.set(0, GALLEY_I64, {1});
  out.set(1, GALLEY_I32, {1});
  out.set(2, GALLEY_F32, {1});
  out.set(3, GALLEY_I64, {4});
}
void two_numbers(const Node&, Shapes& out) {
  out.set(0, GALLEY_F32, {1});
  out.set(1, GALLEY_F32, {1});
}
void one_number(const Node&, Shapes& out) { out.set(0, GALLEY_F32, {1}); }
void rows_of_table(const Node& n, Shapes& out) { out.set(0, GALLEY_F32, n.in(0).shape, n.in(0).rank); }
void product_shape(const Node& n, Shapes& out) {
  if (n.in(0).dtype != n.in(1).dtype) sdk::invalid("a product of two dtypes");
  like_first_in_dtype(n, out);
}
void product_gradient(Backward& b) {
  for (uint32_t i = 0; i < 2; ++i)
    if (b.needs(i))
      b.d_inputs[i] = b.graph.node("product", nullptr, {b.d_outputs[0], b.node.inputs[1 - i]}, {}, {b.d_inputs[i]}, {b.adds(i)})[0];
}
void sum_gradient(Backward& b) { b.d_inputs[0] = b.d_outputs[0]; }
void norm_gradient(Backward& b) {
  if (b.needs(0)) b.d_inputs[0] = b.graph.node("full", nullptr, {b.d_outputs[0]}, {}, {b.d_inputs[0]}, {b.adds(0)})[0];
}

Op& made(const char* name) {
  static std::deque<Op> all;
  return all.emplace_back(name, name);
}

}  // namespace

const std::vector<const galley_op*>& ops() {
  static const std::vector<const galley_op*> all = [] {
    constexpr uint64_t in_place = GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT;
    const auto binary = [](const char* name) -> Op& {
      return made(name)
          .input("a", GALLEY_ROLE_ROWS)
          .input("b", GALLEY_ROLE_ROWS)
          .output("y", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ACCUMULATES, 0);
    };
    return std::vector<const galley_op*>{
        binary("add").infer<two_of_one_shape>().gradient<add_gradient>().table(),
        binary("mul").infer<two_of_one_shape>().gradient<mul_gradient>().table(),
        made("loss")
            .input("x", GALLEY_ROLE_ROWS)
            .output("sum", GALLEY_ROLE_REDUCED, GALLEY_OPERAND_ACCUMULATES)
            .flags(GALLEY_OP_LOSS)
            .infer<one_double>()
            .gradient<loss_gradient>()
            .table(),
        made("copy")
            .input("x", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ANY_DTYPE)
            .output("y", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ACCUMULATES | GALLEY_OPERAND_ANY_DTYPE)
            .infer<like_first_in_dtype>()
            .table(),
        made("product")
            .input("x", GALLEY_ROLE_ROWS, GALLEY_OPERAND_COMPUTE)
            .input("w", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_COMPUTE)
            .output("y", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ACCUMULATES | GALLEY_OPERAND_ANY_DTYPE)
            .flags(GALLEY_OP_LOW)
            .infer<product_shape>()
            .gradient<product_gradient>()
            .table(),
        made("follows")
            .input("x", GALLEY_ROLE_ROWS, GALLEY_OPERAND_COMPUTE)
            .output("y", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ANY_DTYPE)
            .infer<like_first_in_dtype>()
            .table(),
        made("drops")
            .input("x", GALLEY_ROLE_ROWS, GALLEY_OPERAND_COMPUTE)
            .output("y", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ANY_DTYPE, 0)
            .flags(GALLEY_OP_TRAINING_ONLY)
            .infer<like_first_in_dtype>()
            .table(),
        made("full")
            .input("x", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ANY_DTYPE)
            .output("y", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ACCUMULATES | GALLEY_OPERAND_ANY_DTYPE)
            .flags(GALLEY_OP_FULL)
            .infer<like_first_in_dtype>()
            .gradient<norm_gradient>()
            .table(),
        made("begin")
            .input("attempted", GALLEY_ROLE_WHOLE)
            .input("applied", GALLEY_ROLE_WHOLE)
            .output("applied_step", GALLEY_ROLE_WHOLE)
            .output("apply", GALLEY_ROLE_WHOLE)
            .output("loss_scale", GALLEY_ROLE_WHOLE)
            .output("random", GALLEY_ROLE_WHOLE)
            .integer("seed", 0, "the run's")
            .integer("rows", 0, "of a micro-batch")
            .infer<begin_shape>()
            .table(),
        made("zero").output("loss", GALLEY_ROLE_WHOLE).infer<one_double>().table(),
        made("seed")
            .input("scale", GALLEY_ROLE_WHOLE)
            .input("tokens", GALLEY_ROLE_WHOLE)
            .output("seed", GALLEY_ROLE_WHOLE)
            .output("factor", GALLEY_ROLE_WHOLE)
            .infer<two_numbers>()
            .table(),
        made("scheduled")
            .input("step", GALLEY_ROLE_WHOLE)
            .input("first", GALLEY_ROLE_WHOLE)
            .input("values", GALLEY_ROLE_WHOLE)
            .output("y", GALLEY_ROLE_WHOLE)
            .number("factor", 1, "of the value")
            .infer<one_number>()
            .table(),
        made("rows").input("random", GALLEY_ROLE_WHOLE, in_place).integer("rows", 0, "of a micro-batch").infer<nothing>().table(),
        made("end").input("apply", GALLEY_ROLE_WHOLE).input("applied", GALLEY_ROLE_WHOLE, in_place).infer<nothing>().table(),
        made("draws")
            .input("x", GALLEY_ROLE_ROWS)
            .input("random", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
            .output("y", GALLEY_ROLE_ROWS)
            .flags(GALLEY_OP_RANDOM)
            .infer<like_first>()
            .gradient<add_gradient>()
            .table(),
        made("look")
            .input("table", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_ANY_DTYPE)
            .output("y", GALLEY_ROLE_ROWS)
            .flags(GALLEY_OP_LOW)
            .infer<rows_of_table>()
            .table(),
        made("square").input("x", GALLEY_ROLE_WHOLE).output("y", GALLEY_ROLE_WHOLE).infer<one_double>().table(),
        made("step")
            .input("p", GALLEY_ROLE_ROWS, in_place)
            .input("g", GALLEY_ROLE_ROWS, GALLEY_OPERAND_NO_GRADIENT)
            .input("apply", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_OPTIONAL | GALLEY_OPERAND_NO_GRADIENT)
            .infer<same_size>()
            .table(),
        made("step_by_element")
            .input("p", GALLEY_ROLE_ROWS, in_place)
            .input("g", GALLEY_ROLE_ROWS, GALLEY_OPERAND_NO_GRADIENT)
            .input("rate", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
            .grain(GALLEY_GRAIN_ELEMENT)
            .infer<same_size>()
            .table(),
        made("step_by_row")
            .input("p", GALLEY_ROLE_ROWS, in_place)
            .input("g", GALLEY_ROLE_ROWS, GALLEY_OPERAND_NO_GRADIENT)
            .grain(GALLEY_GRAIN_ROW)
            .infer<same_size>()
            .table(),
        made("fill").output("y", GALLEY_ROLE_WHOLE).number("value", 0, "of all").infer<as_it_is>().table(),
        made("checksum").input("x", GALLEY_ROLE_WHOLE).output("y", GALLEY_ROLE_WHOLE).infer<as_it_is>().table(),
        made("norm")
            .input("scale", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
            .input("sums", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_VARIADIC | GALLEY_OPERAND_NO_GRADIENT)
            .output("norm", GALLEY_ROLE_WHOLE)
            .output("found_inf", GALLEY_ROLE_WHOLE)
            .infer<norm_shape>()
            .table(),
        made("wide").input("x", GALLEY_ROLE_WHOLE).output("y", GALLEY_ROLE_WHOLE).infer<like_first>().gradient<wide_gradient>().table(),
        made("stray").input("x", GALLEY_ROLE_WHOLE).output("y", GALLEY_ROLE_WHOLE).infer<like_first>().gradient<stray_gradient>().table(),
        made("decompose")
            .input("x", GALLEY_ROLE_WHOLE)
            .input("p", GALLEY_ROLE_WHOLE, in_place | GALLEY_OPERAND_OPTIONAL)
            .output("y", GALLEY_ROLE_WHOLE)
            .flags(GALLEY_OP_LOAD_ON_HOST)
            .infer<like_first>()
            .table(),
        made("no_decompose")
            .input("x", GALLEY_ROLE_WHOLE)
            .output("y", GALLEY_ROLE_WHOLE)
            .flags(GALLEY_OP_LOAD_ON_HOST)
            .infer<like_first>()
            .table(),
        made("all_reduce")
            .input("x", GALLEY_ROLE_ROWS)
            .output("y", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ACCUMULATES)
            .flags(GALLEY_OP_EXCHANGE)
            .attr("axis", GALLEY_ATTR_STRING, GALLEY_ATTR_REQUIRED, "of processes")
            .attr("ranks", GALLEY_ATTR_I64, GALLEY_ATTR_REQUIRED, "of the axis")
            .infer<like_first>()
            .gradient<sum_gradient>()
            .table(),
        made("idle").input("x", GALLEY_ROLE_WHOLE).output("y", GALLEY_ROLE_WHOLE).infer<like_first>().gradient<idle_gradient>().table(),
    };
  }();
  return all;
}

std::vector<std::filesystem::path> folders() {
  const char* build = std::getenv("GALLEY_BINARY");
  const std::filesystem::path plugins = std::filesystem::path(build ? build : ".") / "tests" / "plugins";
  return {plugins / "hand", plugins / "claims", plugins / "peaks"};
}

const galley_op* op(std::string_view name) {
  for (const galley_op* o : ops())
    if (o->name == name) return o;
  return nullptr;
}

Hand::Hand()
    : plugins(Plugins::scan(folders())),
      draft(
          op,
          [] {
            std::vector<std::string> names;
            for (const galley_op* o : ops()) names.emplace_back(o->name);
            return names;
          },
          Extents{1, 4}) {
  target.device = "hand";
  target.isa = "any";
  target.memories = {{"host"}, {"spill"}};
  options.purpose = Purpose::Gradients;
  options.built_in = [](const Plugin&) { return true; };
  Roles roles;
  roles.add = op("add");
  roles.copy = op("copy");
  roles.sum_squares = op("square");
  roles.norm_finish = op("norm");
  roles.fill = op("fill");
  roles.checksum = op("checksum");
  roles.all_reduce = op("all_reduce");
  roles.step_begin = op("begin");
  roles.loss_begin = op("zero");
  roles.loss_seed = op("seed");
  roles.scheduled = op("scheduled");
  roles.next_rows = op("rows");
  roles.step_end = op("end");
  c.reset(new Compilation{draft, graph, {}, *plugins, target, options, roles, Kernels(*plugins, {}, target, options, 4)});
}

galley_tensor Hand::tensor(const std::string& name, Shape shape, uint32_t kind, uint64_t flags) {
  GraphTensor t;
  t.name = name;
  t.shape = std::move(shape);
  t.kind = kind;
  t.flags = flags;
  return graph.make(std::move(t)).value();
}

galley_tensor Hand::node(const std::string& name, const char* op_name, std::vector<galley_tensor> inputs, Section section,
                         std::vector<galley_tensor> outputs, Mask accumulate) {
  const Graph::As as(graph, {section});
  const auto made = graph.append(op_name, name, std::move(inputs), {}, &outputs, std::move(accumulate));
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().cause);
  return outputs.empty() ? 0 : outputs[0];
}

void Hand::train(std::vector<galley_tensor> parameters) {
  for (const galley_tensor t : parameters) graph.tensor(t).flags |= GALLEY_TENSOR_TRAINABLE;
  c->decisions.trainable = std::move(parameters);
}

void Hand::use(const std::string& name, Table given) {
  Use entry;
  entry.name = name;
  entry.options = std::move(given);
  entry.place = {"hand.lua", static_cast<int>(strategies_.size()) + 3};
  auto made = LoadedStrategy::create(*plugins, entry);
  ASSERT_TRUE(made.ok()) << made.error().cause;
  strategies_.push_back(std::move(*made));
  c->strategies = strategies_;
}

Status Hand::verify(std::string_view pass) { return verify_graph(*c, pass); }

std::string Hand::run(const std::vector<Status (*)(Compilation&)>& passes) {
  for (const auto pass : passes) {
    Status done = pass(*c);
    if (done) done = check_program(c->program, target);
    if (!done) return done.error().cause;
  }
  return "";
}

std::string Hand::text(Section section) const {
  std::string out;
  for (const galley_node n : graph.section(section)) {
    const GraphNode& x = graph.node(n);
    out += x.op->name + std::string("(");
    for (size_t i = 0; i < x.inputs.size(); ++i) out += (i ? ", " : "") + graph.tensor(x.inputs[i]).name;
    out += ") -> ";
    for (size_t i = 0; i < x.outputs.size(); ++i)
      out += std::string(i ? ", " : "") + (chosen(x.accumulate, i) ? "+" : "") + graph.tensor(x.outputs[i]).name;
    out += "\n";
  }
  return out;
}

}  // namespace galley::hand
