// No guard around anything here.
#include <memory>
#include <stdexcept>
#include <string>

#include "galley/cpp/plugin.hpp"

namespace {

using namespace galley::sdk;

struct Instance {
  std::string where;
  bool number;
};

void maybe_throw(const Instance& instance, const char* here) {
  if (instance.where != here) return;
  if (instance.number) throw 42;
  throw std::runtime_error(std::string("thrown in ") + here);
}

const Instance& self(void* instance) { return *static_cast<const Instance*>(instance); }

galley_status create(void*, const galley_options* options, void** out, galley_error*) {
  const char *where = nullptr, *what = nullptr;
  options->string(options->handle, "where", &where);
  options->string(options->handle, "what", &what);
  auto instance = std::make_unique<Instance>(Instance{where, galley_same_text(what, "number") != 0});
  maybe_throw(*instance, "create");
  *out = instance.release();
  return GALLEY_OK;
}

galley_status model(void* instance, const galley_model_verbs*, galley_graph*, galley_error*) {
  maybe_throw(self(instance), "rewrite");
  return GALLEY_OK;
}
galley_status claim(void* instance, const galley_graph_reader*, galley_graph*, const galley_claim_call*, galley_error*) {
  maybe_throw(self(instance), "claim");
  return GALLEY_OK;
}
galley_status build(void* instance, const galley_update_verbs* verbs, galley_graph* graph, const galley_update_call* call, galley_error*) {
  if (call->purpose != GALLEY_PURPOSE_TRAIN) return GALLEY_OK;
  maybe_throw(self(instance), "build");
  UpdateGraph g(verbs, graph);
  const int64_t code = self(instance).where == "prepare" ? 1 : self(instance).where == "kernel" ? 2 : 0;
  g.node("throws", nullptr, {g.scalar(GALLEY_SCALAR_GRADIENT_FACTOR)}, Attrs().i("when", code).i("number", self(instance).number), {});
  return GALLEY_OK;
}

void destroy(void* instance) { delete static_cast<Instance*>(instance); }
const void* get(void*, const char* id) {
  static const galley_rewrite rewrites = [] {
    auto table = fresh<galley_rewrite>();
    table.model = model;
    return table;
  }();
  static const galley_claim claims = {sizeof(galley_claim), 1, claim, 0};
  static const galley_update updates = {sizeof(galley_update), 1, GALLEY_STAGE_CLIP, 0, build, 0};
  if (galley_same_text(id, GALLEY_REWRITE)) return &rewrites;
  if (galley_same_text(id, GALLEY_CLAIM)) return &claims;
  return galley_same_text(id, GALLEY_UPDATE) ? &updates : nullptr;
}
const galley_strategy strategy = {sizeof(galley_strategy), 1, nullptr, "throws", create, destroy, get, 0};

void infer_nothing(const Node&, Shapes&) {}
void reference_nothing(const Node&) {}
Op& op() {
  static Op op("throws", "nothing, or an exception");
  op.input("factor", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT)
      .integer("when", 0, "1: in prepare, 2: in the kernel")
      .integer("number", 0, "of the exception")
      .infer<infer_nothing>()
      .reference<reference_nothing>();
  return op;
}

[[noreturn]] void raise(const galley_node_view* node, const char* text) {
  if (galley_attr_i64(node, "number", 0)) throw 42;
  throw std::runtime_error(text);
}
galley_status query(void*, const galley_node_view* const*, uint32_t n, const galley_target*, galley_kernel_plan*, galley_error*) {
  return n == 1 ? GALLEY_OK : GALLEY_UNSUPPORTED;
}
galley_status prepare(void*, const galley_node_view* const* nodes, uint32_t, const galley_kernel_setup*, void** state, galley_error*) {
  if (galley_attr_i64(nodes[0], "when", 0) == 1) raise(nodes[0], "thrown in prepare");
  *state = const_cast<galley_node_view*>(nodes[0]);
  return GALLEY_OK;
}
galley_status enqueue(void* state, galley_queue*, galley_error*) {
  const auto* node = static_cast<const galley_node_view*>(state);
  if (galley_attr_i64(node, "when", 0) == 2) raise(node, "thrown in a kernel");
  return GALLEY_OK;
}
void release(void*) {}
const galley_kernel kernel_table = {
    sizeof(galley_kernel), 1, nullptr, "throws.cpu", "throws", "cpu", query, prepare, enqueue, release, 0, nullptr, 0, 0};

const bool registered = add(op()) && add(kernel_table) && add(&strategy);

}  // namespace

GALLEY_PLUGIN("throws", "1.0.0");
