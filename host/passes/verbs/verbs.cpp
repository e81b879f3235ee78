// The verbs that every phase has, as the C tables that plugins get. What a plugin says is checked here, so that the graph holds only what
// makes sense.
#include <algorithm>
#include <cmath>

#include "galley/format.h"
#include "host/base/json.hpp"
#include "host/base/printable.hpp"
#include "host/passes/verbs/saved_file.hpp"
#include "host/passes/verbs/verbs.hpp"
#include "host/plugins/abi.hpp"
#include "host/plugins/attributes.hpp"
#include "host/plugins/fault.hpp"
#include "host/plugins/library.hpp"

namespace galley {
namespace {

using namespace verbs;

/// Fills a struct of the plugin's with `value`, as far as it has room: where the plugin has not said how far, nothing is written.
template <class T>
galley_status answer(galley_graph* g, galley_error* error, T* out, const T& value) {
  auto asked = new_struct<T>();
  if (out) asked.size = out->size, asked.revision = out->revision;
  if (const std::string wrong = struct_problem(out ? &asked : nullptr); !wrong.empty())
    return refuse(g, error, "the struct that is to be filled " + wrong);
  fill_struct(out, value);
  return GALLEY_OK;
}

/// What keeps the plugin that is called now from making nodes of an op, or "". The host makes its own without asking.
std::string private_problem(const galley_op& op) {
  const CallMark* here = Calling::here();
  if (!(op.flags & GALLEY_OP_PRIVATE) || !here || here->plugin == plugin_of(&op)) return {};
  return "the op " + quoted(op.name) + " is private to plugin " + quoted(plugin_of(&op));
}

std::string initializer_problem(const Graph& graph, const GraphTensor& t) {
  if (t.initial.op.empty()) return t.initial.inputs.empty() ? "" : "inputs of an initializer, and no initializer";
  const galley_op* op = graph.op(t.initial.op);
  if (!op) return "no plugin provides the op " + quoted(t.initial.op) + " that is to initialize it";
  if (const std::string wrong = private_problem(*op); !wrong.empty()) return wrong;
  if (op->n_outputs != 1) return "its initializer " + quoted(t.initial.op) + " has " + std::to_string(op->n_outputs) + " outputs";
  for (const galley_tensor in : t.initial.inputs) {
    const uint32_t kind = graph.has(in) ? graph.tensor(in).kind : 0;
    if (kind != GALLEY_KIND_PARAMETER && kind != GALLEY_KIND_CONSTANT && kind != GALLEY_KIND_STATE)
      return "its initializer reads what is not there when the run begins: parameters, states and constants made before it are";
    if (t.kind == GALLEY_KIND_CONSTANT && graph.tensor(in).written_forward())
      return "its initializer reads '" + graph.tensor(in).name + "', which forward writes: a constant is made again after updates only";
  }
  std::string wrong = inputs_problem(graph, *op, t.initial.inputs);
  if (wrong.empty()) wrong = attrs_problem(*op, t.initial.attrs.view());
  return wrong.empty() ? "" : "its initializer " + wrong;
}

/// For evaluation, a state that the same strategy has made before is handed out again.
galley_tensor state_of_training(const Graph& graph, const GraphTensor& t) {
  if (graph.author.section != Section::Evaluate || t.kind != GALLEY_KIND_STATE) return 0;
  const galley_tensor known = graph.find(t.name);
  return known && graph.tensor(known).kind == GALLEY_KIND_STATE && graph.tensor(known).use == graph.author.use ? known : 0;
}

/// What is wrong with a tensor that outlives the micro-batches whose forward nodes write it, or "".
std::string written_forward_problem(const galley_tensor_desc& desc) {
  const bool cache = desc.kind == GALLEY_KIND_CACHE;
  if (desc.flags & GALLEY_TENSOR_WRITTEN_FORWARD && desc.kind != GALLEY_KIND_STATE) return "only a state has GALLEY_TENSOR_WRITTEN_FORWARD";
  if (!cache && !(desc.flags & GALLEY_TENSOR_WRITTEN_FORWARD)) return "";
  if (desc.parameter) return "what forward writes belongs to no parameter";
  if (cache && (desc.initializer || desc.source)) return "a cache begins as zeros: it has neither an initializer nor a file";
  return "";
}

galley_status tensor_make(galley_graph* g, const galley_tensor_desc* from, galley_tensor* out, galley_error* error) {
  return guarded(g, error, [&] {
    if (const std::string wrong = struct_problem(from); !wrong.empty()) return refuse(g, error, "the description of a tensor " + wrong);
    const galley_tensor_desc desc = read_struct(*from);
    if (!desc.name || !*desc.name) return refuse(g, error, "a tensor without a name");
    const std::string who = "tensor " + shown(desc.name);
    if (!is_plain(desc.name)) return refuse(g, error, who + " has a control character in its name");
    if (desc.rank > GALLEY_MAX_RANK || (desc.rank && !desc.shape)) return refuse(g, error, who + ": rank " + std::to_string(desc.rank));
    for (uint32_t i = 0; i < desc.rank; ++i)
      if (desc.shape[i] < 1) return refuse(g, error, who + ": an extent of " + std::to_string(desc.shape[i]) + "; the least is 1");
    if (!galley_dtype_bytes(desc.dtype)) return refuse(g, error, who + ": unknown dtype " + std::to_string(desc.dtype));
    const bool in_file = desc.kind == GALLEY_KIND_FILE;
    if (!lasts(desc.kind) && desc.kind != GALLEY_KIND_TRANSIENT && !in_file)
      return refuse(g, error,
                    who + ": a plugin makes parameters, states, caches, constants, transients and what lies in a file, not kind " +
                        std::to_string(desc.kind));
    if (const bool loading = graph_of(g).author.section == Section::Load; loading ? lasts(desc.kind) : in_file)
      return refuse(g, error,
                    who + (loading ? ": parameters, states, caches and constants are not made while loading"
                                   : ": what lies in a file is made while loading"));
    if (in_file && (!desc.source_name || !*desc.source_name || desc.initializer))
      return refuse(g, error, who + ": what lies in a file has its name there, and no initializer");
    if (in_file && !desc.source && draft_of(g).run.model_files.empty())
      return refuse(g, error,
                    Error(recipe_error(who + " is to be read from the model's files, but the model begins with random numbers",
                                       "name a model's folder, without init = \"random\"")));
    if (desc.file && desc.kind != GALLEY_KIND_PARAMETER)
      return refuse(g, error, who + ": only parameters are saved in a file of their own, states go into the resume state");
    if (desc.file)
      if (const std::string wrong = saved_file_problem(desc.file, Saved::Tensors); !wrong.empty())
        return refuse(g, error, who + ": its file " + shown(desc.file) + " " + wrong);
    if (desc.file_name && !is_plain(desc.file_name))
      return refuse(g, error, who + ": its name in a file, " + shown(desc.file_name) + ", has a control character");
    if (const std::string wrong = written_forward_problem(desc); !wrong.empty()) return refuse(g, error, who + ": " + wrong);
    if (desc.n_initializer_inputs && !desc.initializer_inputs) return refuse(g, error, who + ": inputs of an initializer are missing");
    GraphTensor t;
    t.name = desc.name;
    t.shape.assign(desc.shape, desc.shape + desc.rank);
    t.dtype = desc.dtype;
    t.kind = desc.kind;
    t.flags = desc.flags & ~static_cast<uint64_t>(GALLEY_TENSOR_TRAINABLE | GALLEY_TENSOR_WRITTEN);
    t.initial.op = text_or_empty(desc.initializer);
    t.initial.inputs.assign(desc.initializer_inputs, desc.initializer_inputs + desc.n_initializer_inputs);
    if (Status status = t.initial.attrs.add(desc.attrs, desc.n_attrs); !status.ok())
      return refuse(g, error, who + ": " + status.error().cause);
    if (const std::string wrong = initializer_problem(graph_of(g), t); !wrong.empty()) return refuse(g, error, who + ": " + wrong);
    t.source.path = in_file && !desc.source ? draft_of(g).run.model_files : text_or_empty(desc.source);
    t.source.name = text_or_empty(desc.source_name);
    t.saved.file = text_or_empty(desc.file);
    t.saved.name = text_or_empty(desc.file_name);
    if (desc.parameter && (!graph_of(g).has(desc.parameter) || !graph_of(g).tensor(desc.parameter).parameter_kind()))
      return refuse(g, error, who + " is said to belong to what is no parameter");
    t.parameter = desc.parameter;
    if (t.parameter && t.kind == GALLEY_KIND_STATE && t.shape == graph_of(g).tensor(t.parameter).shape)
      t.part = graph_of(g).tensor(t.parameter).part;
    if (const galley_tensor known = state_of_training(graph_of(g), t)) {
      if (const std::string is = type_text(graph_of(g).tensor(known)); is != type_text(t))
        return refuse(g, error, who + " is " + type_text(t) + " for evaluation, and " + is + " for training");
      *out = known;
      return GALLEY_OK;
    }
    Result<galley_tensor> made = graph_of(g).make(std::move(t));
    if (!made) return refuse(g, error, made.error());
    *out = *made;
    return GALLEY_OK;
  });
}

galley_status tensor_get(galley_graph* g, galley_tensor t, galley_tensor_info* out, galley_error* error) {
  return guarded(g, error, [&] {
    Graph& graph = graph_of(g);
    if (!graph.has(t)) return refuse(g, error, "no tensor " + std::to_string(t));
    const GraphTensor& x = graph.tensor(t);
    auto info = new_struct<galley_tensor_info>();
    info.name = x.name.c_str();
    info.shape = x.shape.data();
    info.rank = static_cast<uint32_t>(x.shape.size());
    info.dtype = x.dtype;
    info.kind = x.kind;
    info.flags = x.flags;
    info.producer = x.producer;
    info.parameter = x.parameter;
    info.block = graph.block_of(t);
    info.format = x.storage.format.c_str();
    info.source_name = x.source.path.empty() ? "" : x.source.name.empty() ? x.name.c_str() : x.source.name.c_str();
    info.part = x.part ? &*x.part : nullptr;
    return answer(g, error, out, info);
  });
}

galley_status tensor_find(galley_graph* g, const char* name, galley_tensor* out, galley_error* error) {
  return guarded(g, error, [&] {
    if (!name) return refuse(g, error, "a tensor is looked for without a name");
    *out = graph_of(g).find(name);
    return GALLEY_OK;
  });
}

galley_status node_make(galley_graph* g, const galley_node_desc* from, galley_tensor* outputs, galley_error* error) {
  return guarded(g, error, [&] {
    if (const std::string wrong = struct_problem(from); !wrong.empty()) return refuse(g, error, "the description of a node " + wrong);
    const galley_node_desc desc = read_struct(*from);
    if (!desc.op || !*desc.op) return refuse(g, error, "a node without an op");
    const std::string who = "a node of op " + quoted(desc.op);
    const galley_op* op = graph_of(g).op(desc.op);
    if (const std::string wrong = op ? private_problem(*op) : ""; !wrong.empty()) return refuse(g, error, wrong);
    if (op && desc.n_outputs > op->n_outputs)
      return refuse(g, error,
                    "op '" + std::string(op->name) + "' has " + std::to_string(desc.n_outputs) + " outputs; the op has " +
                        std::to_string(op->n_outputs));
    if ((desc.n_inputs && !desc.inputs) || (desc.n_outputs && !outputs)) return refuse(g, error, who + " without its table of operands");
    if (Status status = graph_of(g).check_node_name(text_or_empty(desc.name)); !status.ok()) return refuse(g, error, status.error());
    AttrList attrs;
    if (Status status = attrs.add(desc.attrs, desc.n_attrs); !status.ok()) return refuse(g, error, who + ": " + status.error().cause);
    std::vector<galley_tensor> out(outputs, outputs + desc.n_outputs);
    Mask accumulate;
    for (uint32_t i = 0; desc.accumulate && i < desc.n_outputs; ++i) accumulate.push_back(desc.accumulate[i] != 0);
    Result<galley_node> made = graph_of(g).append(desc.op, text_or_empty(desc.name), {desc.inputs, desc.inputs + desc.n_inputs},
                                                  std::move(attrs), &out, std::move(accumulate));
    if (!made) return refuse(g, error, plugin_error(made.error().cause, made.error().hint));
    std::copy_n(out.begin(), desc.n_outputs, outputs);
    return GALLEY_OK;
  });
}

galley_status node_get(galley_graph* g, galley_node n, galley_node_info* out, galley_error* error) {
  return guarded(g, error, [&] {
    const Graph& graph = graph_of(g);
    if (!graph.has_node(n)) return refuse(g, error, "no node " + std::to_string(n));
    const GraphNode& x = graph.node(n);
    auto info = new_struct<galley_node_info>();
    info.op = x.op->name;
    info.name = x.name.c_str();
    info.inputs = (x.given.empty() ? x.inputs : x.given).data();  // casts are the host's own affair
    info.outputs = x.outputs.data();
    info.attrs = x.attr_view.data();
    info.n_inputs = static_cast<uint32_t>(x.inputs.size());
    info.n_outputs = static_cast<uint32_t>(x.outputs.size());
    info.n_attrs = static_cast<uint32_t>(x.attr_view.size());
    info.block = x.block;
    info.op_flags = x.op->flags;
    return answer(g, error, out, info);
  });
}

galley_node node_next(galley_graph* g, uint32_t of, galley_node n) {
  const Graph& graph = graph_of(g);
  return graph.next_node(of == GALLEY_NODES_MODEL ? Section::Forward : graph.author.section, n);
}

galley_status run(galley_graph* g, galley_run_info* out, galley_error* error) {
  return guarded(g, error, [&] {
    const Graph& graph = graph_of(g);
    const RunOf& run = draft_of(g).run;
    if (!run.target) return refuse(g, error, "the graph is made for no run");
    auto info = new_struct<galley_run_info>();
    info.rows = graph.rows();
    info.length = graph.length();
    info.steps = run.steps;
    info.micro_batches = run.micro_batches;
    info.target = run.target->get();
    info.model = run.model_files.c_str();
    info.purpose = run.purpose;
    info.n_axes = static_cast<uint32_t>(run.axes->view().size());
    info.axes = run.axes->view().data();
    info.rank = run.axes->rank();
    info.ranks = run.axes->ranks();
    return answer(g, error, out, info);
  });
}

galley_status config_get(galley_graph* g, const char* key, const char** json, galley_error* error) {
  return guarded(g, error, [&] {
    if (!key || !json) return refuse(g, error, "config: no key");
    const auto& config = draft_of(g).run.config;
    const auto found = config.find(key);
    *json = found == config.end() ? nullptr : found->second.c_str();
    return GALLEY_OK;
  });
}

galley_status document_get(galley_graph* g, const char* file, const char** text, galley_error* error) {
  return guarded(g, error, [&] {
    if (!file || !text) return refuse(g, error, "document_get: no file");
    const auto& all = draft_of(g).exports.documents;
    const int use = graph_of(g).author.use;
    const auto found = std::ranges::find_if(all, [&](const Document& d) { return d.file == file && d.use == use; });
    *text = found == all.end() ? nullptr : found->text.c_str();
    return GALLEY_OK;
  });
}

galley_tensor tensor_next(galley_graph* g, galley_tensor t) { return t < graph_of(g).tensor_count() ? t + 1 : 0; }

galley_status scalar(galley_graph* g, uint32_t which, galley_tensor* out, galley_error* error) {
  return hand_out(g, out, error, [&] { return draft_of(g).scalars.get(which); });
}
galley_status option(galley_graph* g, const char* name, galley_tensor* out, galley_error* error) {
  return hand_out(g, out, error, [&] { return handle_of(g).option(text_or_empty(name)); });
}
constexpr galley_graph_reader reader_table = {
    sizeof(galley_graph_reader), 1, tensor_get, tensor_find, node_get, tensor_next, node_next, run, config_get, document_get};
constexpr galley_graph_verbs table = {sizeof(galley_graph_verbs), 1, &reader_table, tensor_make, node_make, scalar, option};

}  // namespace

const galley_graph_verbs* GraphHandle::verbs() { return &table; }
const galley_graph_reader* GraphHandle::reader() { return &reader_table; }

}  // namespace galley
