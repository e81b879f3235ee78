// Kernels that differ in what they say to `query`, small strategies, and formats that keep a number as I16: "pair" with a scale of all,
// "tiles" with one for 48 numbers, "rows" with one for each row, "drawn" as "tiles" with random bits that do not know of parts; "stone" is
// "pair", and no update can write it. Of "short" and "twins" the components are wrong: a scale is missing, and two have one suffix.
#include "galley/cpp/groups.hpp"
#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

constexpr const char* kDevice = "hand";

void never(const Node&, void*) { throw Failure(GALLEY_FAILED, "this kernel is there to be chosen, not to run"); }

/// Takes several nodes; `Length`: of the chain.
template <size_t Length, bool Groups>
class Never {
 public:
  static void query(const Nodes& nodes, const galley_target&, galley_kernel_plan&) {
    if (nodes.size() < 2 || (!Groups && nodes.size() != Length)) unsupported("so many nodes");
  }
  Never(const Nodes&, const galley_kernel_setup&) {}
  void run() { throw Failure(GALLEY_FAILED, "this kernel is there to be chosen, not to run"); }
};

/// Takes nodes that read the same x.
class Shares : public Never<1, true> {
 public:
  using Never::Never;
  static void query(const Nodes& nodes, const galley_target& target, galley_kernel_plan& plan) {
    Never::query(nodes, target, plan);
    for (const Node& n : nodes)
      if (!same_operand(n.in(0), nodes[0].in(0))) unsupported("different x");
  }
};

/// Takes up to three nodes, and asks for 256 bytes for each.
class Few : public Never<1, true> {
 public:
  using Never::Never;
  static void query(const Nodes& nodes, const galley_target& target, galley_kernel_plan& plan) {
    Never::query(nodes, target, plan);
    if (nodes.size() > 3) unsupported("more than three nodes");
    plan.workspace_bytes = 256 * static_cast<int64_t>(nodes.size());
  }
};

/// Takes nodes whose first operand is in the format "pair".
class Pairs : public Never<1, true> {
 public:
  using Never::Never;
  static void query(const Nodes& nodes, const galley_target& target, galley_kernel_plan& plan);
};

/// 64 bytes of constants for each node, alone and together.
class Tables {
 public:
  static void query(const Nodes& nodes, const galley_target&, galley_kernel_plan& plan) {
    plan.constants_bytes = 64 * static_cast<int64_t>(nodes.size());
  }
  Tables(const Nodes&, const galley_kernel_setup&) {}
  void run() { throw Failure(GALLEY_FAILED, "this kernel is there to be chosen, not to run"); }
};

bool sixteen(const Node& n) { return count(n.in(0)) == 16; }
bool wide(const Node& n) { return count(n.in(0)) >= 8; }
int64_t sixteen_a_number(const Node& n, const galley_target&) { return 16 * count(n.in(0)); }
bool only_writes(const Node& n) { return n.out(0).access == GALLEY_WRITE; }
bool pair(const Node& n) {
  return n.in(0).format && galley_same_text(n.in(0).format, "pair") && n.in(0).n_components == 2 && !n.in(1).format;
}

void Pairs::query(const Nodes& nodes, const galley_target& target, galley_kernel_plan& plan) {
  Never::query(nodes, target, plan);
  for (const Node& n : nodes)
    if (!pair(n)) unsupported("another format");
}

/// As many scales as the format says.
void pack_shape(const Node& n, Shapes& out) {
  out.set(0, GALLEY_I16, n.in(0).shape, n.in(0).rank);
  out.like(1, n.out(1));
}
int64_t tiles_of(int64_t numbers) { return (numbers + 47) / 48; }
void tiles_shape(const Node& n, Shapes& out) {
  out.set(0, GALLEY_I16, n.in(0).shape, n.in(0).rank);
  out.set(1, GALLEY_F32, {tiles_of(count(n.in(0)))});
}
void unpack_shape(const Node& n, Shapes& out) { out.set(0, GALLEY_F32, n.in(0).shape, n.in(0).rank); }

Op& pack() {
  static Op op("pair_pack", "halves and scale of x");
  op.input("x", GALLEY_ROLE_WHOLE)
      .input("random", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_OPTIONAL)
      .output("halves", GALLEY_ROLE_WHOLE)
      .output("scale", GALLEY_ROLE_WHOLE)
      .infer<pack_shape>();
  return op;
}
Op& pack_tiles() {
  static Op op("tiles_pack", "halves of x, and a scale for 48 of them");
  op.input("x", GALLEY_ROLE_WHOLE).output("halves", GALLEY_ROLE_WHOLE).output("scale", GALLEY_ROLE_WHOLE).infer<tiles_shape>();
  return op;
}
Op& unpack() {
  static Op op("pair_unpack", "x = halves · scale");
  op.input("halves", GALLEY_ROLE_WHOLE)
      .input("scale", GALLEY_ROLE_WHOLE)
      .output("x", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_ANY_DTYPE)
      .infer<unpack_shape>();
  return op;
}

/// Initializers: what another tensor is; of one number more than the tensor has, and of none.
void longer(const Node& n, Shapes& out) { out.like(0, n.out(0), columns(n.out(0)) + 1); }
void refused(const Node& n, Shapes&) { invalid(std::string(n.name()) + ": no value is given"); }
void in_dtype(const Node& n, Shapes& out) { out.set(0, n.dtype(n.in(0).dtype), n.in(0).shape, n.in(0).rank); }
Op& copy() {
  static Op op("hand_copy", "y = x");
  op.input("x", GALLEY_ROLE_WHOLE).output("y", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_ANY_DTYPE).infer<in_dtype>();
  return op;
}
Op& too_long() {
  static Op op("too_long", "y, and a number after it");
  op.output("y", GALLEY_ROLE_WHOLE).infer<longer>();
  return op;
}
Op& refuses() {
  static Op op("refuses", "nothing");
  op.output("y", GALLEY_ROLE_WHOLE).infer<refused>();
  return op;
}

void components(const std::vector<int64_t>& shape, const FormatOptions&, Components& out) {
  out.add(".halves", GALLEY_I16, shape, 1);
  out.add(".scale", GALLEY_F32, {1}, 0);
}

int64_t numbers_of(const std::vector<int64_t>& shape) {
  int64_t numbers = 1;
  for (const int64_t extent : shape) numbers *= extent;
  return numbers;
}
void tiles(const std::vector<int64_t>& shape, const FormatOptions&, Components& out) {
  out.add(".halves", GALLEY_I16, shape, 1);
  out.add(".scale", GALLEY_F32, {tiles_of(numbers_of(shape))}, 48);
}
void one_short(const std::vector<int64_t>& shape, const FormatOptions&, Components& out) {
  out.add(".halves", GALLEY_I16, shape, 1);
  out.add(".scale", GALLEY_F32, {tiles_of(numbers_of(shape)) - 1}, 48);
}
void twins(const std::vector<int64_t>& shape, const FormatOptions&, Components& out) {
  out.add(".halves", GALLEY_I16, shape, 1);
  out.add(".halves", GALLEY_F32, {1}, 0);
}
void rows_of(const std::vector<int64_t>& shape, const FormatOptions&, Components& out) {
  out.add(".halves", GALLEY_I16, shape, 1);
  out.add(".scale", GALLEY_F32, {shape.size() > 1 ? shape[0] : 1}, shape.back());
}

/// p takes its step by g. Others that win updates: one builds nothing, one does not know of skipped steps, one builds another stage.
enum class Mistake { None, Idle, Hasty, Late };
template <Mistake mistake>
class Steps {
 public:
  static constexpr uint32_t stages = mistake == Mistake::Late ? GALLEY_STAGE_AFTER : GALLEY_STAGE_STEP;
  explicit Steps(const Options&) {}
  void claim(const GraphReader&, const Claims& claims) const {
    if (!claims.about(GALLEY_FACET_UPDATE)) return;
    for (const Claim& parameter : claims)
      if (parameter.trainable) parameter.weak(0);
  }
  void build(UpdateGraph& graph, Trained t) const {
    if (mistake == Mistake::Idle) return;
    std::vector<galley_tensor> inputs = {t.parameter, t.gradient};
    if (mistake != Mistake::Hasty) inputs.push_back(graph.scalar(GALLEY_SCALAR_APPLY));
    graph.node("step", "step", inputs, {}, {});
  }
};

/// Copies what it is given at its stage: the gradients, or in CHECK the norm.
template <uint32_t Stage>
class Looks {
 public:
  static constexpr uint32_t stages = Stage;
  explicit Looks(const Options&) {}
  void build(UpdateGraph& graph, const UpdateCall& call) const {
    if (!call.trains()) return;
    if (Stage == GALLEY_STAGE_CHECK) graph.node("copy", nullptr, {graph.scalar(GALLEY_SCALAR_GRADIENT_NORM)});
    else
      for (const Trained& t : call.trained) graph.node("copy", nullptr, {t.gradient});
  }
};

/// y becomes y + y for whoever reads the output of a mul; the export saves w · w in the place of w.
class Doubles {
 public:
  explicit Doubles(const Options&) {}
  void save(ExportGraph& graph) const {
    const galley_tensor w = graph.find("w");
    graph.export_as(w, graph.node("mul", "squared", {w, w})[0]);
  }
  void model(ModelGraph& graph) const {
    for (galley_node n = graph.next_node(0); n; n = graph.next_node(n)) {
      const galley_node_info info = graph.node(n);
      if (!galley_same_text(info.op, "mul")) continue;
      const galley_tensor y = info.outputs[0];
      graph.replace(y, graph.node("add", graph.find("doubled") ? "redoubled" : "doubled", {y, y})[0]);
    }
  }
};

/// The model reads `held`, which the window part makes of w.
class Holds {
 public:
  explicit Holds(const Options&) {}
  void model(ModelGraph& graph) const {
    const galley_tensor w = graph.find("w");
    const galley_tensor_info info = graph.info(w);
    galley_tensor_desc d = fresh<galley_tensor_desc>();
    d.name = "held";
    d.shape = info.shape;
    d.rank = info.rank;
    d.dtype = GALLEY_F32;
    d.kind = GALLEY_KIND_TRANSIENT;
    graph.replace(w, graph.make(d));
  }
  void window(Graph& graph) const { graph.node("copy", "hold", {graph.find("w")}, {}, {graph.find("held")}); }
};

/// Parameters of its own, in files of their own.
class Saves {
 public:
  explicit Saves(const Options& options) : files_(options.strings("files")), names_(options.strings("names")) {}
  void save(ExportGraph& graph) const {
    for (const std::string& file : files_)
      if (file.find(".json") != std::string::npos) graph.document(file, "{}");
  }
  void model(ModelGraph& graph) const {
    for (size_t k = 0; k < names_.size(); ++k) {
      const int64_t shape[] = {4};
      const std::string name = "saved " + std::to_string(k);
      galley_tensor_desc d = fresh<galley_tensor_desc>();
      d.name = name.c_str();
      d.shape = shape;
      d.rank = 1;
      d.dtype = GALLEY_F32;
      d.kind = GALLEY_KIND_PARAMETER;
      d.file = files_[k].c_str();
      d.file_name = names_[k].c_str();
      graph.make(d);
    }
  }

 private:
  std::vector<std::string> files_, names_;
};

const bool registered =
    add(strategy<Steps<Mistake::None>>("steps")) && add(strategy<Steps<Mistake::Idle>>("steps-idle")) &&
    add(strategy<Steps<Mistake::Hasty>>("steps-hasty")) && add(strategy<Steps<Mistake::Late>>("steps-late")) &&
    add(strategy<Looks<GALLEY_STAGE_CHECK>>("looks-check")) && add(strategy<Looks<GALLEY_STAGE_GRADIENT>>("looks-gradient")) &&
    add(strategy<Looks<GALLEY_STAGE_AFTER>>("looks-after")) && add(strategy<Doubles>("doubles")) && add(strategy<Holds>("holds")) &&
    add(strategy<Saves>("saves")) && add(pack()) && add(pack_tiles()) && add(unpack()) && add(copy()) && add(too_long()) &&
    add(refuses()) && add(format<components>("pair", "pair_pack", "pair_unpack", GALLEY_FORMAT_TRAINABLE)) &&
    add(format<components>("stone", "pair_pack", "pair_unpack")) &&
    add(format<tiles>("tiles", "tiles_pack", "pair_unpack", GALLEY_FORMAT_TRAINABLE)) &&
    add(format<one_short>("short", "tiles_pack", "pair_unpack", GALLEY_FORMAT_TRAINABLE)) &&
    add(format<twins>("twins", "pair_pack", "pair_unpack", GALLEY_FORMAT_TRAINABLE)) &&
    add(format<rows_of>("rows", "pair_pack", "pair_unpack", GALLEY_FORMAT_TRAINABLE)) &&
    add(format<tiles>("drawn", "pair_pack", "pair_unpack", GALLEY_FORMAT_TRAINABLE | GALLEY_FORMAT_STOCHASTIC)) &&
    add(kernel<never>("add.b", "add", kDevice)) && add(kernel<never>("add.a", "add", kDevice)) &&
    add(kernel<never>("mul.any", "mul", kDevice)) && add(kernel<never, wide, sixteen_a_number, 1>("mul.wide", "mul", kDevice)) &&
    add(kernel<never>("loss.any", "loss", kDevice)) && add(kernel<never, only_writes>("copy.writes", "copy", kDevice)) &&
    add(kernel<never>("square.any", "square", kDevice)) && add(nodes_kernel<Never<1, true>>("square.group", "square", kDevice)) &&
    add(nodes_kernel<Never<2, false>>("add.square", "add>square", kDevice, 0)) && add(kernel<never>("product.any", "product", kDevice)) &&
    add(nodes_kernel<Shares>("product.group", "product", kDevice)) && add(kernel<never>("follows.any", "follows", kDevice)) &&
    add(nodes_kernel<Few>("follows.group", "follows", kDevice)) && add(kernel<never>("full.any", "full", kDevice)) &&
    add(nodes_kernel<Never<2, true>>("product.full", "product>full", kDevice)) &&
    add(nodes_kernel<Never<2, false>>("full.add", "full>add", kDevice, 0)) && add(kernel<never>("fill.any", "fill", kDevice)) &&
    add(kernel<never>("checksum.any", "checksum", kDevice)) && add(kernel<never>("step.any", "step", kDevice)) &&
    add(kernel<never, pair>("step.pair", "step", kDevice, GALLEY_KERNEL_FORMATS)) &&
    add(kernel<never>("pair_pack.any", "pair_pack", kDevice)) && add(kernel<never>("tiles_pack.any", "tiles_pack", kDevice)) &&
    add(kernel<never, sixteen, nullptr, 1000000>("full.sixteen", "full", kDevice)) &&
    add(nodes_kernel<Pairs>("step.pairs", "step", kDevice, GALLEY_KERNEL_GROUPS | GALLEY_KERNEL_FORMATS)) &&
    add(nodes_kernel<Tables>("look.tables", "look", kDevice)) && add(kernel<never>("pair_unpack.any", "pair_unpack", kDevice)) &&
    add(kernel<never, nullptr, sixteen_a_number>("decompose.cpu", "decompose", "cpu")) &&
    add(nodes_kernel<Never<1, true>>("decompose.group", "decompose", kDevice));

}  // namespace

GALLEY_PLUGIN("hand", "1.0.0");
