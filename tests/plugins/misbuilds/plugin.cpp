// For tests: mistakes that authors of plugins make. A rewrite puts the op `tinker` after a weight, whose gradient rule is wrong; an
// update appends nodes that are.
#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

void like_x(const Node& n, Shapes& out) { out.like(0, n.in(0)); }
void same(const Node& n, Shapes&) {
  if (count(n.in(0)) != count(n.in(1))) invalid(std::string(n.name()) + ": x and y differ in size");
}
void nothing(const Node&) {}

void gradient(Backward& b) {
  const galley_attr* how = b.attr("how");
  const std::string said = how ? static_cast<const char*>(how->data) : "";
  if (said == "gradient shape") b.d_inputs[0] = b.graph.scalar(GALLEY_SCALAR_LOSS_SEED);
  else if (said == "gradient nothing") b.d_inputs[0] = 0;
  else if (said == "gradient throws") throw std::runtime_error("of no use");
  // "gradient unwritten": what came in goes out, and no node has written it.
}

Op& tinker() {
  static Op op("tinker", "y = x");
  return op.input("x", GALLEY_ROLE_WHOLE)
      .output("y", GALLEY_ROLE_WHOLE)
      .string("how", "", "what the gradient rule does wrong")
      .infer<like_x>()
      .gradient<gradient>()
      .reference<nothing>();
}
Op& tinker_step() {
  static Op op("tinker_step", "x stays; x and y of one size");
  return op.input("x", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT)
      .input("y", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
      .infer<same>()
      .reference<nothing>();
}

void no_element(const Node&, Shapes& out) { out.set(0, GALLEY_F32, {4, 0}); }
Op& tinker_none() {
  static Op op("tinker_none", "y has no element");
  return op.input("x", GALLEY_ROLE_WHOLE).output("y", GALLEY_ROLE_WHOLE).infer<no_element>().reference<nothing>();
}

class Misbuilds {
 public:
  static constexpr uint32_t stages = GALLEY_STAGE_AFTER;
  explicit Misbuilds(const Options& options) : how_(options.string("how")) {}

  void model(ModelGraph& graph) const {
    if (how_ == "no extent") graph.parameter("nothing", {0, 4}, nullptr);
    if (how_ == "no element") graph.node("tinker_none", "none", {graph.next_tensor(0)});
    if (how_.rfind("gradient", 0) != 0) return;
    for (galley_tensor t = graph.next_tensor(0); t; t = graph.next_tensor(t)) {
      const galley_tensor_info info = graph.info(t);
      if (info.kind != GALLEY_KIND_PARAMETER || info.rank != 1) continue;
      graph.replace(t, graph.node("tinker", "tinkered", {t}, Attrs().s("how", how_))[0]);
      return;
    }
  }

  void build(UpdateGraph& graph, Trained trained) const {
    const galley_tensor g = trained.gradient, p = trained.parameter;
    if (how_ == "overwrite") {
      const std::vector<galley_tensor> out = graph.node("scale", nullptr, {g}, Attrs().f("alpha", 2));
      graph.node("scale", nullptr, {g}, Attrs().f("alpha", 3), out);
    }
    if (how_ == "output shape") graph.node("scale", nullptr, {g}, Attrs().f("alpha", 2), {graph.scalar(GALLEY_SCALAR_GRADIENT_FACTOR)});
    if (how_ == "input shape") graph.node("tinker_step", nullptr, {p, graph.scalar(GALLEY_SCALAR_APPLY)}, {}, {});
    if (how_ == "twice") graph.node("tinker_step", nullptr, {p, p}, {}, {});
    if (how_ == "surplus") graph.node("scale", nullptr, {g}, Attrs().f("alpha", 2), {0, p});
    if (how_ == "input") graph.node("tinker_step", nullptr, {graph.find("input_ids"), graph.find("input_ids")}, {}, {});
    for (galley_tensor t = graph.next_tensor(0); t; t = graph.next_tensor(t)) {
      const galley_tensor_info info = graph.info(t);
      const bool frozen = info.kind == GALLEY_KIND_PARAMETER && !(info.flags & GALLEY_TENSOR_TRAINABLE);
      if (how_ == "frozen" && frozen) graph.node("tinker_step", nullptr, {t, t}, {}, {});
      if (how_ == "gone" && info.kind == GALLEY_KIND_TRANSIENT) {
        graph.node("scale", nullptr, {t}, Attrs().f("alpha", 2));
        return;
      }
    }
  }

 private:
  std::string how_;
};

const bool registered = add(tinker()) && add(tinker_step()) && add(tinker_none()) && add(strategy<Misbuilds>("misbuilds"));

}  // namespace

GALLEY_PLUGIN("misbuilds", "1.0.0");
