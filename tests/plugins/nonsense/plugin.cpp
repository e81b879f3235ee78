// For tests: everything that a plugin can say and that makes no sense, one mistake for each value of `how`. No guard of the SDK is around
// any of it.
#include <sys/stat.h>
#include <unistd.h>

#include <cfenv>
#include <clocale>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

std::string how;  // of the one strategy that a test uses

/// What is wrong with the library itself, which is loaded before there is a strategy.
bool told(const char* what) {
  const char* wrong = std::getenv("NONSENSE_LIBRARY");
  return wrong && std::string(wrong) == what;
}

void maybe_throw(const char* here) {
  if (how == std::string("throw ") + here) throw std::runtime_error(std::string("thrown in ") + here);
}

// ---- An op whose every function may throw ------------------------------------------------------------------------------------------

galley_status infer_op(void*, const galley_node_view* node, galley_shape* const* outputs, galley_error*) {
  maybe_throw("infer");
  const galley_operand& x = *node->inputs[0];
  outputs[0]->rank = how == "rank" ? 99 : x.rank;
  outputs[0]->dtype = x.dtype;
  for (uint32_t i = 0; i < x.rank; ++i) outputs[0]->extents[i] = x.shape[i];
  return GALLEY_OK;
}
galley_status gradient(void*, const galley_graph_verbs*, galley_graph*, const galley_gradient_call* call, galley_error*) {
  maybe_throw("gradient");
  call->d_inputs[0] = call->d_outputs[0];
  return GALLEY_OK;
}
galley_status cost_op(void*, const galley_node_view*, galley_cost*, galley_error*) {
  maybe_throw("cost");
  return GALLEY_OK;
}
const galley_operand_rule x = rule("x", told("role") ? 77 : GALLEY_ROLE_ROWS), y = rule("y", GALLEY_ROLE_ROWS, 0, told("alias") ? 7 : -1);
const galley_operand_rule *const inputs[] = {&x}, *const outputs[] = {&y};
const galley_op op = [] {
  auto o = fresh<galley_op>();
  o.name = "nonsense";
  o.summary = "y = x, or a mistake";
  o.inputs = inputs;
  o.n_inputs = 1;
  if (told("inputs")) o.inputs = reinterpret_cast<const galley_operand_rule* const*>(uintptr_t{16});
  o.outputs = outputs;
  o.n_outputs = 1;
  o.infer = infer_op;
  o.gradient = gradient;
  o.cost = cost_op;
  return o;
}();

galley_status query(void*, const galley_node_view* const*, uint32_t, const galley_target*, galley_kernel_plan* plan, galley_error* error) {
  maybe_throw("query");
  if (how == "query fails") return fill(error, GALLEY_FAILED, "no licence");
  plan->workspace_bytes = how == "workspace" ? -7 : how == "stray prepare" ? 64 : 0;
  if (how == "plan flags") plan->flags = 1u << 20;
  return GALLEY_OK;
}
galley_status prepare(void*, const galley_node_view* const* nodes, uint32_t, const galley_kernel_setup* setup, void** state,
                      galley_error*) {
  maybe_throw("prepare");
  if (how == "stray prepare") static_cast<char*>(setup->workspace)[64] = 1;
  *state = const_cast<galley_node_view*>(nodes[0]);
  return GALLEY_OK;
}
/// An address that nothing has, as a kernel might make it of an index.
volatile char* nowhere(int64_t index) {
  static volatile uintptr_t base = 16;
  return reinterpret_cast<volatile char*>(base + static_cast<uintptr_t>(index));
}
/// What the process is left with, for everybody in it.
void disturb() {
  if (how == "closes error") ::close(2);
  if (how == "closes all")
    for (int d = 0; d < 4096; ++d) ::close(d);
  if (how == "chdir") (void)!::chdir("/");
  if (how == "locale") std::setlocale(LC_ALL, "C.UTF-8");
  if (how == "rights") ::umask(0777);
  if (how == "rounds") std::fesetround(FE_UPWARD);
  if (how == "forks") (void)::fork();
  if (how == "blocks") {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, nullptr);
  }
}

galley_status enqueue(void* state, galley_queue*, galley_error* error) {
  const auto* node = static_cast<const galley_node_view*>(state);
  if (how == "kernel rounds") std::fesetround(FE_UPWARD);
  if (how == "block rounds") parallel(64, [](int64_t) { std::fesetround(FE_UPWARD); });
  if (how == "kernel closes error") ::close(2);
  if (how == "kernel _exit") ::_exit(0);
  if (how == "crash") *nowhere(0) = 1;
  if (how == "abort") std::abort();
  if (how == "crash elsewhere") parallel(64, [](int64_t block) { *nowhere(block) = 1; });
  if (how == "parallel throws") return guard(error, [] { parallel(64, [](int64_t) { throw std::runtime_error("thrown in a block"); }); });
  maybe_throw("enqueue");
  std::memcpy(node->outputs[0]->data, node->inputs[0]->data, static_cast<size_t>(galley_operand_bytes(node->inputs[0])));
  return GALLEY_OK;
}
void release(void*) { maybe_throw("release"); }
const galley_kernel kernel_table = [] {
  auto k = fresh<galley_kernel>();
  k.name = "nonsense.cpu";
  k.op = "nonsense";
  k.device = "cpu";
  k.query = query;
  k.prepare = prepare;
  k.enqueue = enqueue;
  k.release = release;
  return k;
}();

galley_status components(void*, const int64_t*, uint32_t, const galley_attr* const*, uint32_t, galley_component* const* out, uint32_t* n,
                         galley_error*) {
  maybe_throw("components");
  out[0]->dtype = how == "component dtype" ? 77 : GALLEY_F32;
  out[0]->rank = 1;
  out[0]->extents[0] = 1;
  *n = how == "components" ? 99 : 1;
  if (how == "component twice") out[1]->dtype = out[0]->dtype, *n = 2;
  return GALLEY_OK;
}
const galley_format format_table = [] {
  auto f = fresh<galley_format>();
  f.name = "nonsense";
  f.pack_op = f.unpack_op = "nonsense";
  f.components = components;
  f.flags = GALLEY_FORMAT_TRAINABLE;
  return f;
}();

// ---- A strategy that says it ---------------------------------------------------------------------------------------------------------

class Nonsense {
 public:
  static constexpr uint32_t stages = GALLEY_STAGE_CLIP;
  explicit Nonsense(const Options& options) {
    how = options.string("how");
    if (how == "option type") options.string("number");
    if (how == "exit") std::exit(0);
    if (how == "_exit") ::_exit(0);
    if (how == "quick_exit") std::quick_exit(0);
    if (how == "thread exits" || how == "thread crashes")
      std::thread([] {
        if (how == "thread exits") ::_exit(0);
        *nowhere(0) = 1;
      }).join();  // or the run might end first
    disturb();
  }
  ~Nonsense() {
    if (how == "destroy _exit") ::_exit(0);
  }

  void save(ExportGraph& graph) const {
    if (how == "document nowhere") graph.document("attic/notes.txt", "x");
    if (how == "document above") graph.document("../notes.txt", "x");
  }
  void model(ModelGraph& graph) const {
    galley_tensor_desc d = fresh<galley_tensor_desc>();
    const int64_t shape[] = {4};
    d.name = "nonsense";
    d.shape = shape;
    d.rank = 1;
    d.dtype = GALLEY_F32;
    d.kind = GALLEY_KIND_CONSTANT;
    galley_attr attr = fresh<galley_attr>();
    attr.name = "value";
    attr.type = GALLEY_ATTR_F64;
    attr.count = 1;
    const double one = 1;
    attr.data = &one;
    const galley_attr* attrs[] = {&attr};
    if (how == "kind") d.kind = 99;
    if (how == "desc size") d.size = 0;
    if (how == "desc flags") d.flags = 1u << 20;
    if (how == "file of a state") {
      d.kind = GALLEY_KIND_STATE;
      d.file = "adapter/x.safetensors";
    }
    if (how == "file above" || how == "file of the run") {
      d.kind = GALLEY_KIND_PARAMETER;
      d.file = how == "file above" ? "../../x.safetensors" : "metrics.jsonl";
    }
    if (how == "initializer inputs") d.initializer = "copy";
    if (how == "initializer unknown") d.initializer = "no_such_op";
    const galley_attr* twice[] = {&attr, &attr};
    if (how == "attribute twice") {
      d.initializer = "fill";
      d.attrs = twice;
      d.n_attrs = 2;
    }
    if (how == "attribute type" || how == "attribute null" || how == "attribute size") {
      d.initializer = "fill";
      d.attrs = attrs;
      d.n_attrs = 1;
      if (how == "attribute type") attr.type = 77;
      if (how == "attribute null") attr.data = nullptr;
      if (how == "attribute size") attr.size = 8;
    }
    if (d.kind == 99 || d.size == 0 || d.flags || d.file || d.initializer) graph.make(d);
    if (how == "endless")
      for (galley_node n = graph.next_node(0); n; n = graph.next_node(n))
        graph.node("nonsense", ("again" + std::to_string(n)).c_str(), {graph.node(n).outputs[0]});
    if (how == "rate") graph.scale_rate(graph.next_tensor(0), -1);
    // Beside the last norm, where gradients come through.
    for (galley_node n = graph.next_node(0); n; n = graph.next_node(n)) {
      const galley_node_info info = graph.node(n);
      if (std::string(info.name).find("ln_f") == std::string::npos) continue;
      graph.replace(info.outputs[0], graph.node("nonsense", "nonsensical", {info.outputs[0]})[0]);
      return;
    }
  }

  void claim(const GraphReader&, const Claims& claims) const {
    const bool in_format = how.rfind("component", 0) == 0 || how == "throw components";
    if (!in_format || !claims.about(GALLEY_FACET_STORAGE)) return;
    for (const Claim& tensor : claims)
      if (tensor.kind == GALLEY_SUBJECT_STATE) tensor.strong(0, "nonsense");
  }

  void build(UpdateGraph& graph, const UpdateCall& call) const {
    if (!call.trains()) return;
    if (how == "rate late") throw Failure(GALLEY_INVALID, "never");
    const auto report = [&](const std::string& name) { graph.report(graph.scalar(GALLEY_SCALAR_GRADIENT_NORM), name); };
    if (how == "report") report("nonsense_norm");
    if (how == "report taken") report("loss");
    if (how == "report twice")
      for (int i = 0; i < 2; ++i) report("nonsense");
    if (how == "report much")
      for (int i = 0; i < 300; ++i) report("nonsense" + std::to_string(i));
  }
};

const bool initialized = [] {
  if (told("exits")) std::exit(0);
  if (told("crashes")) *nowhere(0) = 1;
  return !told("twice") || add(kernel_table);
}();

const bool registered = add(&op) && add(kernel_table) && add(&format_table) && add(strategy<Nonsense>("nonsense"));

}  // namespace

GALLEY_PLUGIN("nonsense", "1.0.0");
