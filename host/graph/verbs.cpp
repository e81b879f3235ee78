// The graph's verbs as the C table that plugins get.
#include <cstdio>

#include "host/graph/graph.hpp"

namespace galley {
namespace {

Graph& graph_of(galley_graph* handle) { return *reinterpret_cast<Graph*>(handle); }

galley_status answer(galley_error* out, const Error& error) {
  if (out) {
    out->code = GALLEY_INVALID;
    std::snprintf(out->text, sizeof out->text, "%s%s%s", error.cause.c_str(), error.hint.empty() ? "" : "; ", error.hint.c_str());
  }
  return GALLEY_INVALID;
}

std::string text_or_empty(const char* text) { return text ? text : ""; }

galley_status tensor_make(galley_graph* g, const galley_tensor_desc* desc, galley_tensor* out, galley_error* error) {
  if (!desc || !desc->name) return answer(error, plugin_error("a tensor without a name"));
  if (desc->rank > GALLEY_MAX_RANK)
    return answer(error, plugin_error("tensor '" + std::string(desc->name) + "': rank " + std::to_string(desc->rank)));
  if (!galley_dtype_bytes(desc->dtype))
    return answer(error, plugin_error("tensor '" + std::string(desc->name) + "': unknown dtype " + std::to_string(desc->dtype)));
  if (const uint64_t unknown = desc->flags & GALLEY_MUST_UNDERSTAND_64 & ~GALLEY_TENSOR_KNOWN)
    return answer(
        error, plugin_error("tensor '" + std::string(desc->name) + "': this version does not know its flags " + std::to_string(unknown)));
  GraphTensor t;
  t.name = desc->name;
  t.shape.assign(desc->shape, desc->shape + desc->rank);
  t.dtype = desc->dtype;
  t.kind = desc->kind;
  t.flags = desc->flags & ~static_cast<uint64_t>(GALLEY_TENSOR_TRAINABLE);
  t.initializer = text_or_empty(desc->initializer);
  t.initializer_inputs.assign(desc->initializer_inputs, desc->initializer_inputs + desc->n_initializer_inputs);
  for (const galley_tensor in : t.initializer_inputs) {
    const uint32_t kind = graph_of(g).has(in) ? graph_of(g).tensor(in).kind : 0;
    if (kind != GALLEY_KIND_PARAMETER && kind != GALLEY_KIND_CONSTANT && kind != GALLEY_KIND_STATE)
      return answer(
          error,
          plugin_error(
              "tensor '" + t.name +
              "': its initializer reads what is not there when the run begins: parameters, states and constants made before it are"));
  }
  for (uint32_t i = 0; i < desc->n_attrs; ++i) t.attrs.set(*desc->attrs[i]);
  t.source = text_or_empty(desc->source);
  t.source_name = text_or_empty(desc->source_name);
  t.file = text_or_empty(desc->file);
  t.file_name = text_or_empty(desc->file_name);
  auto made = graph_of(g).make(std::move(t));
  if (!made) return answer(error, made.error());
  *out = *made;
  return GALLEY_OK;
}

galley_status tensor_get(galley_graph* g, galley_tensor t, galley_tensor_info* out, galley_error* error) {
  const Graph& graph = graph_of(g);
  if (!graph.has(t)) return answer(error, plugin_error("no tensor " + std::to_string(t)));
  const GraphTensor& x = graph.tensor(t);
  *out = {sizeof(galley_tensor_info),
          1,
          x.name.c_str(),
          x.shape.data(),
          static_cast<uint32_t>(x.shape.size()),
          x.dtype,
          x.kind,
          0,
          x.flags,
          x.producer};
  return GALLEY_OK;
}

galley_status tensor_find(galley_graph* g, const char* name, galley_tensor* out, galley_error*) {
  *out = graph_of(g).find(name);
  return GALLEY_OK;
}

galley_status node_make(galley_graph* g, const galley_node_desc* desc, galley_tensor* outputs, galley_error* error) {
  if (!desc || !desc->op) return answer(error, plugin_error("a node without an op"));
  AttrList attrs;
  for (uint32_t i = 0; i < desc->n_attrs; ++i) attrs.set(*desc->attrs[i]);
  std::vector<galley_tensor> out(outputs, outputs + desc->n_outputs);
  auto made = graph_of(g).append(desc->op, text_or_empty(desc->name), {desc->inputs, desc->inputs + desc->n_inputs}, std::move(attrs), &out,
                                 desc->accumulate);
  if (!made) return answer(error, made.error());
  for (uint32_t i = 0; i < desc->n_outputs; ++i) outputs[i] = out[i];
  return GALLEY_OK;
}

galley_status node_get(galley_graph* g, galley_node n, galley_node_info* out, galley_error* error) {
  const Graph& graph = graph_of(g);
  if (!graph.has_node(n)) return answer(error, plugin_error("no node " + std::to_string(n)));
  const GraphNode& x = graph.node(n);
  *out = {sizeof(galley_node_info),
          1,
          x.op->name,
          x.name.c_str(),
          x.inputs.data(),
          x.outputs.data(),
          x.attr_view.data(),
          static_cast<uint32_t>(x.inputs.size()),
          static_cast<uint32_t>(x.outputs.size()),
          static_cast<uint32_t>(x.attr_view.size()),
          0,
          x.block};
  return GALLEY_OK;
}

galley_node node_next(galley_graph* g, galley_node n) {
  Graph& graph = graph_of(g);
  const auto& nodes = graph.section(graph.author.section);
  if (!n) return nodes.empty() ? 0 : nodes.front();
  for (size_t i = 0; i + 1 < nodes.size(); ++i)
    if (nodes[i] == n) return nodes[i + 1];
  return 0;
}

galley_tensor tensor_next(galley_graph* g, galley_tensor t) {
  const Graph& graph = graph_of(g);
  return t < graph.tensor_count() ? t + 1 : 0;
}

galley_status replace(galley_graph* g, galley_tensor from, galley_tensor to, galley_error* error) {
  const Status status = graph_of(g).replace(from, to);
  return status ? GALLEY_OK : answer(error, status.error());
}

galley_status scalar(galley_graph* g, uint32_t which, galley_tensor* out, galley_error* error) {
  auto found = graph_of(g).scalar(which);
  if (!found) return answer(error, found.error());
  *out = *found;
  return GALLEY_OK;
}

galley_status option(galley_graph* g, const char* name, galley_tensor* out, galley_error* error) {
  auto found = graph_of(g).option(name);
  if (!found) return answer(error, found.error());
  *out = *found;
  return GALLEY_OK;
}

galley_status document(galley_graph* g, const char* file, const char* text, galley_error*) {
  graph_of(g).documents.push_back({file, text});
  return GALLEY_OK;
}

galley_status export_as(galley_graph* g, galley_tensor parameter, galley_tensor value, galley_error* error) {
  Graph& graph = graph_of(g);
  if (!graph.has(parameter) || !graph.has(value)) return answer(error, plugin_error("export_as: no such tensor"));
  graph.exported.push_back({parameter, value});
  return GALLEY_OK;
}

galley_status export_model(galley_graph* g, uint32_t what, galley_error* error) {
  if (what > GALLEY_EXPORT_MODEL) return answer(error, plugin_error("export_model: no such choice " + std::to_string(what)));
  graph_of(g).export_model = what;
  return GALLEY_OK;
}

galley_status ignore(galley_graph* g, const char* pattern, galley_error*) {
  graph_of(g).ignored_files.emplace_back(pattern);
  return GALLEY_OK;
}

constexpr galley_graph_verbs table = {sizeof(galley_graph_verbs),
                                      1,
                                      tensor_make,
                                      tensor_get,
                                      tensor_find,
                                      node_make,
                                      node_get,
                                      node_next,
                                      tensor_next,
                                      replace,
                                      scalar,
                                      option,
                                      document,
                                      export_as,
                                      export_model,
                                      ignore};

}  // namespace

const galley_graph_verbs* Graph::verbs() { return &table; }

}  // namespace galley
