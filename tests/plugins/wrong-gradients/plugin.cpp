// y = a (1 + b / 10), so that dy/da = 1 + b / 10 and dy/db = a / 10; each op but one is wrong in one way.
#include <cstdint>
#include <string>

#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

enum class Fault { None, Factor, Swapped, Forward, InKernel, Address, Rows, Outside, Input };

void alike(const Node& node) {
  for (uint32_t i = 1; i < node.view()->n_inputs; ++i)
    if (shape_text(node.in(i)) != shape_text(node.in(0))) invalid(std::string(node.name()) + ": inputs differ in shape");
}
void shape(const Node& node, Shapes& out) {
  alike(node);
  out.like(0, node.in(0));
}
void shape_back(const Node& node, Shapes& out) {
  alike(node);
  out.like(0, node.in(0));
  out.like(1, node.in(0));
}
bool in_f32(const Node& node) { return node.in(0).dtype == GALLEY_F32; }

/// Noise by where the operand lies: kernel and reference have it alike.
template <Fault fault>
double noise(const void* address) {
  // Of a large prime: two addresses hardly ever have the same noise, or the fault would go unseen there.
  constexpr uint64_t prime = 999983;
  const uint64_t mixed = reinterpret_cast<uintptr_t>(address) / 64 % prime * 314159 % prime;
  return fault == Fault::Address ? 0.06 * static_cast<double>(mixed) / static_cast<double>(prime) : 0;
}

template <class Real, Fault fault>
void gate(const Node& node) {
  const Real *a = node.read<Real>(0), *b = node.read<Real>(1);
  const Real more = static_cast<Real>(noise<fault>(a));
  for (int64_t i = 0; i < count(node.in(0)); ++i) node.write<Real>(0)[i] = a[i] * (1 + b[i] / 10) + more;
  // The first row of a part is no first row of the tensor.
  for (int64_t i = 0; fault == Fault::Rows && i < columns(node.in(0)); ++i) node.write<Real>(0)[i] = a[i];
  if (sizeof(Real) == sizeof(double)) return;  // the reference
  if (fault == Fault::Outside) node.write<Real>(0)[count(node.in(0))] = 0;
  if (fault == Fault::Input) const_cast<Real*>(a)[0] = 0;
}
template <class Real, Fault fault>
void back(const Node& node) {
  const Real *dy = node.read<Real>(0), *a = node.read<Real>(1), *b = node.read<Real>(2);
  const Real share = fault == Fault::Factor || (fault == Fault::InKernel && sizeof(Real) == sizeof(float)) ? Real(1) : Real(0.1);
  for (int64_t i = 0; i < count(node.in(0)); ++i) {
    node.write<Real>(0)[i] = dy[i] * (1 + b[i] / 10);
    node.write<Real>(1)[i] = dy[i] * a[i] * share;
  }
}
template <void compute(const Node&)>
void run(const Node& node, void*) {
  compute(node);
}

template <Fault fault>
void gradient(Backward& b) {
  const char* const op = fault == Fault::Factor ? "gate_factor_back" : fault == Fault::InKernel ? "gate_kernel_back" : "gate_back";
  const auto made =
      b.graph.node(op, (std::string(b.node.name) + ".back").c_str(), {b.d_outputs[0], b.node.inputs[0], b.node.inputs[1]}, {}, {0, 0});
  const int first = fault == Fault::Swapped ? 1 : 0;
  if (b.needs(0)) b.d_inputs[0] = fault == Fault::Forward ? b.node.inputs[0] : made[first];
  if (b.needs(1)) b.d_inputs[1] = made[1 - first];
}

template <Fault fault>
Op& forward(Op& op) {
  return op.input("a", GALLEY_ROLE_ROWS)
      .input("b", GALLEY_ROLE_ROWS)
      .output("y", GALLEY_ROLE_ROWS)
      .infer<shape>()
      .reference<gate<double, fault>>()
      .template gradient<gradient<fault>>();
}
template <Fault fault>
Op& backward(Op& op) {
  return op.input("dy", GALLEY_ROLE_ROWS)
      .input("a", GALLEY_ROLE_ROWS)
      .input("b", GALLEY_ROLE_ROWS)
      .output("da", GALLEY_ROLE_ROWS)
      .output("db", GALLEY_ROLE_ROWS)
      .infer<shape_back>()
      .reference<back<double, fault>>()
      .test("small", {{GALLEY_F32, {3, 7}}, {GALLEY_F32, {3, 7}}, {GALLEY_F32, {3, 7}}});
}
template <Fault fault>
Op& tried(Op& op) {
  return forward<fault>(op)
      .test("small", {{GALLEY_F32, {3, 7}}, {GALLEY_F32, {3, 7}}})
      .test("row", {{GALLEY_F32, {1, 100}, 1, 2}, {GALLEY_F32, {1, 100}}});
}

Op right("gate_right", "y = a (1 + b / 10)");
Op factor("gate_factor", "the same, whose gradient of b leaves a factor of 1 / 10 out");
Op swapped("gate_swapped", "the same, which hands out the gradients of a and b the wrong way round");
Op handed("gate_forward", "the same, which hands out a as the gradient of a");
Op in_kernel("gate_kernel", "the same, whose gradient is wrong in the kernel alone");
Op address("gate_address", "the same and noise by the address of a, in kernel and reference alike");
Op rows_apart("gate_rows", "the same, but for the first row, whatever rows it is given");
Op outside("gate_outside", "the same, whose kernel writes a number after its output, too");
Op to_input("gate_input", "the same, whose kernel writes to a, too");
Op caseless("gate_caseless", "the same, without test cases");
Op right_back("gate_back", "da, db = dy (1 + b / 10), dy a / 10");
Op factor_back("gate_factor_back", "da, db = dy (1 + b / 10), dy a");
Op kernel_back("gate_kernel_back", "da, db = dy (1 + b / 10), dy a / 10");

template <Fault fault>
bool add_gate(const char* op) {
  return add(kernel<run<gate<float, fault>>, in_f32>((new std::string(std::string(op) + ".cpu"))->c_str(), op));
}
template <Fault fault>
bool add_back(const char* op) {
  return add(kernel<run<back<float, fault>>, in_f32>((new std::string(std::string(op) + ".cpu"))->c_str(), op));
}

class Gate {
 public:
  explicit Gate(const Options& options) : op_(options.string("op")) {}
  void model(ModelGraph& graph) const {
    for (galley_node n = graph.next_node(0); n; n = graph.next_node(n)) {
      const galley_node_info node = graph.node(n);
      if (!galley_same_text(node.op, "linear") || node.block < 0) continue;
      const galley_tensor y = node.outputs[0];
      graph.replace(y, graph.node(op_.c_str(), (std::string(node.name) + ".gate").c_str(), {y, y})[0]);
      return;
    }
  }

 private:
  std::string op_;
};

const bool registered =
    add(tried<Fault::None>(right)) && add(tried<Fault::Factor>(factor)) && add(tried<Fault::Swapped>(swapped)) &&
    add(tried<Fault::Forward>(handed)) && add(tried<Fault::InKernel>(in_kernel)) && add(tried<Fault::Address>(address)) &&
    add(tried<Fault::Rows>(rows_apart)) && add_gate<Fault::Rows>("gate_rows") && add(tried<Fault::Outside>(outside)) &&
    add(tried<Fault::Input>(to_input)) && add_gate<Fault::Outside>("gate_outside") && add_gate<Fault::Input>("gate_input") &&
    add(forward<Fault::None>(caseless)) && add(backward<Fault::None>(right_back)) && add(backward<Fault::Factor>(factor_back)) &&
    add(backward<Fault::InKernel>(kernel_back)) && add_gate<Fault::None>("gate_right") && add_gate<Fault::None>("gate_factor") &&
    add_gate<Fault::None>("gate_swapped") && add_gate<Fault::None>("gate_forward") && add_gate<Fault::None>("gate_kernel") &&
    add_gate<Fault::Address>("gate_address") && add_gate<Fault::None>("gate_caseless") && add_back<Fault::None>("gate_back") &&
    add_back<Fault::Factor>("gate_factor_back") && add_back<Fault::InKernel>("gate_kernel_back") && add(strategy<Gate>("gate"));

}  // namespace

GALLEY_PLUGIN("wrong-gradients", "1.0.0");
