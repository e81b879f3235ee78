// The graph's verbs as the C tables that plugins get. What a plugin says is checked here, so that the graph holds only what makes sense.
#include <algorithm>
#include <cmath>

#include "galley/format.h"
#include "host/base/json.hpp"
#include "host/base/printable.hpp"
#include "host/graph/graph.hpp"
#include "host/graph/saved_file.hpp"
#include "host/plugins/abi.hpp"
#include "host/plugins/attributes.hpp"

namespace galley {
namespace {

Graph& graph_of(galley_graph* handle) { return *reinterpret_cast<Graph*>(handle); }

/// Refuses, and remembers it: when the plugin's call fails now, the fault is the one that stands here.
galley_status refuse(galley_graph* g, galley_error* out, Error error) {
  fill_error(out, GALLEY_INVALID, error.cause, error.hint);
  graph_of(g).refused = std::move(error);
  return GALLEY_INVALID;
}
galley_status refuse(galley_graph* g, galley_error* out, std::string cause) { return refuse(g, out, plugin_error(std::move(cause))); }

/// Runs a verb's body. No exception of the host crosses the ABI.
template <class Body>
galley_status guarded(galley_graph* g, galley_error* out, Body&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    fill_error(out, GALLEY_FAILED, "out of memory", "");
    graph_of(g).refused = run_error("out of memory");
  } catch (const std::exception& exception) {
    fill_error(out, GALLEY_FAILED, exception.what(), "");
    graph_of(g).refused = run_error(exception.what());
  }
  return GALLEY_FAILED;
}

std::string text_or_empty(const char* text) { return text ? text : ""; }
std::string quoted(const std::string& text) { return "'" + text + "'"; }
/// Of a plugin's text that has not been checked yet.
std::string shown(const std::string& text) { return quoted(printable(text, Lines::Escape)); }
bool is_plain(const std::string& text) { return printable(text, Lines::Escape) == text; }

std::string initializer_problem(const Graph& graph, const GraphTensor& t) {
  if (t.initial.op.empty()) return t.initial.inputs.empty() ? "" : "inputs of an initializer, and no initializer";
  const galley_op* op = graph.op(t.initial.op);
  if (!op) return "no plugin provides the op " + quoted(t.initial.op) + " that is to initialize it";
  if (op->n_outputs != 1) return "its initializer " + quoted(t.initial.op) + " has " + std::to_string(op->n_outputs) + " outputs";
  for (const galley_tensor in : t.initial.inputs) {
    const uint32_t kind = graph.has(in) ? graph.tensor(in).kind : 0;
    if (kind != GALLEY_KIND_PARAMETER && kind != GALLEY_KIND_CONSTANT && kind != GALLEY_KIND_STATE)
      return "its initializer reads what is not there when the run begins: parameters, states and constants made before it are";
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

galley_status tensor_make(galley_graph* g, const galley_tensor_desc* from, galley_tensor* out, galley_error* error) {
  return guarded(g, error, [&] {
    if (const std::string wrong = struct_problem(from); !wrong.empty()) return refuse(g, error, "the description of a tensor " + wrong);
    const galley_tensor_desc desc = read_struct(*from);
    if (!desc.name || !*desc.name) return refuse(g, error, "a tensor without a name");
    const std::string who = "tensor " + shown(desc.name);
    if (!is_plain(desc.name)) return refuse(g, error, who + " has a control character in its name");
    if (desc.rank > GALLEY_MAX_RANK || (desc.rank && !desc.shape)) return refuse(g, error, who + ": rank " + std::to_string(desc.rank));
    if (!galley_dtype_bytes(desc.dtype)) return refuse(g, error, who + ": unknown dtype " + std::to_string(desc.dtype));
    const bool in_file = desc.kind == GALLEY_KIND_FILE;
    if (!lasts(desc.kind) && desc.kind != GALLEY_KIND_TRANSIENT && !in_file)
      return refuse(g, error,
                    who + ": a plugin makes parameters, states, constants, transients and what lies in a file, not kind " +
                        std::to_string(desc.kind));
    if (const bool loading = graph_of(g).author.section == Section::Load; loading ? lasts(desc.kind) : in_file)
      return refuse(g, error,
                    who + (loading ? ": parameters, states and constants are not made while loading"
                                   : ": what lies in a file is made while loading"));
    if (in_file && (!desc.source_name || !*desc.source_name || desc.initializer))
      return refuse(g, error, who + ": what lies in a file has its name there, and no initializer");
    if (in_file && !desc.source && graph_of(g).model_files.empty())
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
    t.source.path = in_file && !desc.source ? graph_of(g).model_files : text_or_empty(desc.source);
    t.source.name = text_or_empty(desc.source_name);
    t.saved.file = text_or_empty(desc.file);
    t.saved.name = text_or_empty(desc.file_name);
    if (desc.parameter && (!graph_of(g).has(desc.parameter) || !graph_of(g).tensor(desc.parameter).parameter_kind()))
      return refuse(g, error, who + " is said to belong to what is no parameter");
    t.parameter = desc.parameter;
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
    fill_struct(out, info);
    return GALLEY_OK;
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
    fill_struct(out, info);
    return GALLEY_OK;
  });
}

galley_node node_next(galley_graph* g, uint32_t segment, galley_node n) {
  const Graph& graph = graph_of(g);
  return graph.next_node(segment == GALLEY_SEGMENT_MODEL ? Section::Forward : graph.author.section, n);
}

galley_status run(galley_graph* g, galley_run_info* out, galley_error* error) {
  return guarded(g, error, [&] {
    const Graph& graph = graph_of(g);
    if (!graph.run.target) return refuse(g, error, "the graph is made for no run");
    auto info = new_struct<galley_run_info>();
    info.rows = graph.rows();
    info.length = graph.length();
    info.steps = graph.run.steps;
    info.micro_batches = graph.run.micro_batches;
    info.target = graph.run.target->get();
    info.flags = graph.run.trains ? GALLEY_RUN_TRAINS : 0;
    info.model = graph.model_files.c_str();
    fill_struct(out, info);
    return GALLEY_OK;
  });
}

galley_status config_get(galley_graph* g, const char* key, const char** json, galley_error* error) {
  return guarded(g, error, [&] {
    if (!key || !json) return refuse(g, error, "config: no key");
    const auto& config = graph_of(g).config;
    const auto found = config.find(key);
    *json = found == config.end() ? nullptr : found->second.c_str();
    return GALLEY_OK;
  });
}

galley_tensor tensor_next(galley_graph* g, galley_tensor t) { return t < graph_of(g).tensor_count() ? t + 1 : 0; }

galley_status replace(galley_graph* g, galley_tensor from, galley_tensor to, galley_error* error) {
  return guarded(g, error, [&] {
    const Status status = graph_of(g).replace(from, to);
    return status.ok() ? GALLEY_OK : refuse(g, error, status.error());
  });
}

galley_status set_input(galley_graph* g, galley_node node, uint32_t input, galley_tensor to, galley_error* error) {
  return guarded(g, error, [&] {
    const Status status = graph_of(g).rewire(node, input, to);
    return status.ok() ? GALLEY_OK : refuse(g, error, status.error());
  });
}

/// A verb that hands out a tensor.
template <class Find>
galley_status hand_out(galley_graph* g, galley_tensor* out, galley_error* error, Find&& find) {
  return guarded(g, error, [&] {
    Result<galley_tensor> found = find();
    if (!found) return refuse(g, error, found.error());
    *out = *found;
    return GALLEY_OK;
  });
}

galley_status scalar(galley_graph* g, uint32_t which, galley_tensor* out, galley_error* error) {
  return hand_out(g, out, error, [&] { return graph_of(g).scalar(which); });
}
galley_status option(galley_graph* g, const char* name, galley_tensor* out, galley_error* error) {
  return hand_out(g, out, error, [&] { return graph_of(g).option(text_or_empty(name)); });
}
galley_status rate(galley_graph* g, const char* name, galley_tensor parameter, galley_tensor* out, galley_error* error) {
  return hand_out(g, out, error, [&] { return graph_of(g).rate(text_or_empty(name), parameter); });
}

galley_status scale_rate(galley_graph* g, galley_tensor parameter, double factor, galley_error* error) {
  return guarded(g, error, [&] {
    const Status status = graph_of(g).scale_rate(parameter, factor);
    return status.ok() ? GALLEY_OK : refuse(g, error, status.error());
  });
}

galley_status report(galley_graph* g, galley_tensor tensor, const char* name, galley_error* error) {
  return guarded(g, error, [&] {
    if (graph_of(g).author.section == Section::Evaluate) return GALLEY_OK;
    const Status status = graph_of(g).report(tensor, text_or_empty(name));
    return status.ok() ? GALLEY_OK : refuse(g, error, status.error());
  });
}

/// What is wrong with letting `value` stand for a parameter, or "".
std::string stand_in_problem(const Graph& graph, galley_tensor parameter, galley_tensor value) {
  if (!graph.has(parameter) || !graph.has(value)) return "no such tensor";
  const GraphTensor &from = graph.tensor(parameter), &to = graph.tensor(value);
  if (!from.parameter_kind()) return quoted(from.name) + " is no parameter";
  if (from.shape != to.shape) return quoted(to.name) + " has not the shape of " + quoted(from.name);
  return {};
}

galley_status eval_as(galley_graph* g, galley_tensor parameter, galley_tensor value, galley_error* error) {
  return guarded(g, error, [&] {
    Graph& graph = graph_of(g);
    if (const std::string wrong = stand_in_problem(graph, parameter, value); !wrong.empty()) return refuse(g, error, "eval_as: " + wrong);
    const GraphTensor &from = graph.tensor(parameter), &to = graph.tensor(value);
    if (!graph.author.stage) return refuse(g, error, "eval_as: " + quoted(from.name) + " outside of an update");
    const bool made = to.kind == GALLEY_KIND_TRANSIENT && to.producer && graph.node(to.producer).section == Section::Evaluate;
    if (to.kind != GALLEY_KIND_STATE && !made)
      return refuse(g, error, "eval_as: " + quoted(to.name) + " is neither a state nor made by a node for GALLEY_PURPOSE_EVAL");
    if (from.dtype != to.dtype)
      return refuse(g, error, "eval_as: " + quoted(to.name) + " is " + dtype_text(to.dtype) + ", not " + dtype_text(from.dtype));
    if (graph.author.section != Section::Evaluate) return GALLEY_OK;  // it is said again for evaluation
    for (const ExportedValue& other : graph.evaluated) {
      const GraphTensor& taken = graph.tensor(other.value);
      if (other.parameter == parameter)
        return refuse(g, error, "eval_as: " + quoted(taken.name) + " stands for " + quoted(from.name) + " already");
    }
    graph.evaluated.push_back({parameter, value});
    return GALLEY_OK;
  });
}

galley_status begin_as(galley_graph* g, galley_tensor tensor, uint32_t component, galley_tensor value, galley_error* error) {
  return guarded(g, error, [&] {
    Graph& graph = graph_of(g);
    if (!graph.has(tensor) || !graph.has(value)) return refuse(g, error, "begin_as: no such tensor");
    const GraphTensor &x = graph.tensor(tensor), &v = graph.tensor(value);
    if (graph.author.section != Section::Load) return refuse(g, error, "begin_as: " + quoted(x.name) + " outside of GALLEY_SEGMENT_LOAD");
    if (!x.parameter_kind() && x.kind != GALLEY_KIND_STATE)
      return refuse(g, error, "begin_as: " + quoted(x.name) + " is neither a parameter nor a state");
    const bool made = v.kind == GALLEY_KIND_TRANSIENT && v.producer && graph.node(v.producer).section == Section::Load;
    if (v.kind != GALLEY_KIND_FILE && !made)
      return refuse(g, error, "begin_as: " + quoted(v.name) + " neither lies in a file nor is made by a node of GALLEY_SEGMENT_LOAD");
    const bool numbers = component == GALLEY_BEGIN_NUMBERS;
    if (numbers && type_text(x) != type_text(v))
      return refuse(g, error, "begin_as: " + quoted(v.name) + " is " + type_text(v) + ", and " + quoted(x.name) + " is " + type_text(x));
    if (!numbers && component >= GALLEY_MAX_COMPONENTS)
      return refuse(g, error, "begin_as: " + quoted(x.name) + " has no component " + std::to_string(component));
    std::map<uint32_t, Beginning>& begun = graph.beginnings[tensor];
    for (const auto& [other, beginning] : begun) {
      const GraphTensor& taken = graph.tensor(beginning.value);
      if (other == component || numbers || other == GALLEY_BEGIN_NUMBERS)
        return refuse(g, error, "begin_as: " + quoted(x.name) + " begins as " + quoted(taken.name) + " already");
    }
    begun[component] = {value, graph.author.use};
    return GALLEY_OK;
  });
}

galley_status export_as(galley_graph* g, galley_tensor parameter, galley_tensor value, galley_error* error) {
  return guarded(g, error, [&] {
    const Graph& graph = graph_of(g);
    const bool own = graph.has(parameter) && graph.has(value) && !graph.tensor(parameter).saved.file.empty();
    if (const std::string wrong = own ? "" : stand_in_problem(graph, parameter, value); !wrong.empty())
      return refuse(g, error, "export_as: " + wrong);
    graph_of(g).exports.values.push_back({parameter, value});
    return GALLEY_OK;
  });
}

galley_status document(galley_graph* g, const char* file, const char* text, galley_error* error) {
  return guarded(g, error, [&] {
    const std::string path = text_or_empty(file);
    if (!text) return refuse(g, error, "document " + quoted(path) + " has no text");
    if (const std::string wrong = saved_file_problem(path, Saved::Document); !wrong.empty())
      return refuse(g, error, "document " + shown(path) + " " + wrong);
    const int use = graph_of(g).author.use;
    std::vector<Document>& documents = graph_of(g).exports.documents;
    // What a strategy says later holds.
    std::erase_if(documents, [&](const Document& d) { return d.file == path && d.use == use && use != no_use; });
    documents.push_back({path, text, use});
    return GALLEY_OK;
  });
}

galley_status export_stored(galley_graph* g, galley_tensor parameter, galley_error* error) {
  return guarded(g, error, [&] {
    Graph& graph = graph_of(g);
    if (!graph.has(parameter) || !graph.tensor(parameter).parameter_kind()) return refuse(g, error, "export_stored: no such parameter");
    graph.exports.in_format.insert(parameter);
    return GALLEY_OK;
  });
}

galley_status export_model(galley_graph* g, uint32_t what, galley_error* error) {
  return guarded(g, error, [&] {
    if (what > GALLEY_EXPORT_MODEL) return refuse(g, error, "export_model: no such choice " + std::to_string(what));
    graph_of(g).exports.say(what);
    return GALLEY_OK;
  });
}

galley_status config(galley_graph* g, const char* key, const char* json, galley_error* error) {
  return guarded(g, error, [&] {
    Graph& graph = graph_of(g);
    const std::string name = text_or_empty(key);
    if (name.empty()) return refuse(g, error, "config: no key");
    if (!json) return refuse(g, error, "config: " + quoted(name) + " has no value");
    if (const Result<Value> parsed = parse_json(json, "config: " + name); !parsed) return refuse(g, error, parsed.error().cause);
    for (const ConfigKey& other : graph.exports.config)
      if (other.key == name && other.json != json)
        return refuse(g, error, "config: " + quoted(name) + " is set to " + other.json + " already, not " + json);
    graph.exports.config.push_back({name, json, graph.author.use});
    return GALLEY_OK;
  });
}

galley_status ignore(galley_graph* g, const char* pattern, galley_error* error) {
  return guarded(g, error, [&] {
    if (!pattern) return refuse(g, error, "ignore: no pattern");
    graph_of(g).ignored_files.emplace_back(pattern);
    return GALLEY_OK;
  });
}

galley_status add_stop(galley_graph* g, const std::string& verb, Stop stop, galley_error* error) {
  return guarded(g, error, [&] {
    Graph& graph = graph_of(g);
    if (!graph.has(stop.tensor)) return refuse(g, error, verb + ": no such tensor");
    const GraphTensor& x = graph.tensor(stop.tensor);
    if (x.count() != 1 || x.dtype != GALLEY_I32) return refuse(g, error, verb + ": " + quoted(x.name) + " is not one I32 number");
    if (stop.cause.empty()) return refuse(g, error, verb + ": no cause is given");
    if (graph.author.section == Section::Evaluate) return GALLEY_OK;
    stop.use = graph.author.use;
    graph.signals.stops.push_back(std::move(stop));
    return GALLEY_OK;
  });
}
galley_status stop_if(galley_graph* g, galley_tensor flag, const char* cause, const char* hint, galley_error* error) {
  return add_stop(g, "stop_if", {flag, text_or_empty(cause), text_or_empty(hint), no_use, false}, error);
}
galley_status end_if(galley_graph* g, galley_tensor flag, const char* reason, galley_error* error) {
  return add_stop(g, "end_if", {flag, text_or_empty(reason), "", no_use, true}, error);
}

galley_status component(galley_graph* g, galley_tensor parameter, uint32_t index, galley_tensor* out, galley_error* error) {
  return hand_out(g, out, error, [&]() -> Result<galley_tensor> {
    Graph& graph = graph_of(g);
    if (!graph.has(parameter) || !graph.tensor(parameter).parameter_kind()) return plugin_error("component: no such parameter");
    const GraphTensor& x = graph.tensor(parameter);
    if (graph.author.section != Section::Export) return plugin_error("component: " + quoted(x.name) + " outside of GALLEY_SEGMENT_EXPORT");
    if (x.storage.format.empty()) return plugin_error("component: " + quoted(x.name) + " is in no format");
    GraphTensor view = TRY(graph.describe_component(x, index));
    view.name = "stored " + view.name;
    view.kind = GALLEY_KIND_CONSTANT;
    view.storage.numbers_of = parameter;
    view.storage.component = index;
    if (const galley_tensor known = graph.find(view.name)) return known;
    return graph.make(std::move(view));
  });
}

galley_status export_tensor(galley_graph* g, const char* name, galley_tensor value, galley_error* error) {
  return guarded(g, error, [&] {
    Graph& graph = graph_of(g);
    const std::string entry = text_or_empty(name);
    if (entry.empty() || !is_plain(entry)) return refuse(g, error, "export_tensor: " + shown(entry) + " is no name in a file");
    if (!graph.has(value)) return refuse(g, error, "export_tensor: " + quoted(entry) + " has no value");
    graph.exports.tensors.push_back({entry, value});
    return GALLEY_OK;
  });
}

galley_status pack_and_unpack(galley_graph* g, galley_tensor parameter, galley_tensor value, galley_tensor* out, galley_error* error) {
  return hand_out(g, out, error, [&]() -> Result<galley_tensor> {
    Graph& graph = graph_of(g);
    if (!graph.has(parameter) || !graph.tensor(parameter).parameter_kind()) return plugin_error("pack_and_unpack: no such parameter");
    if (!graph.has(value)) return plugin_error("pack_and_unpack: no such tensor");
    const GraphTensor &x = graph.tensor(parameter), &v = graph.tensor(value);
    if (graph.author.section != Section::Load)
      return plugin_error("pack_and_unpack: " + quoted(x.name) + " outside of GALLEY_SEGMENT_LOAD");
    if (x.storage.format.empty()) return plugin_error("pack_and_unpack: " + quoted(x.name) + " is in no format");
    if (type_text(x) != type_text(v))
      return plugin_error("pack_and_unpack: " + quoted(v.name) + " is " + type_text(v) + ", and " + quoted(x.name) + " is " + type_text(x));
    return graph.pack_and_unpack(parameter, value);
  });
}

constexpr galley_graph_reader reader_table = {
    sizeof(galley_graph_reader), 1, tensor_get, tensor_find, node_get, tensor_next, node_next, run, config_get};
constexpr galley_graph_verbs table = {sizeof(galley_graph_verbs),
                                      1,
                                      &reader_table,
                                      tensor_make,
                                      node_make,
                                      replace,
                                      set_input,
                                      scalar,
                                      option,
                                      rate,
                                      scale_rate,
                                      report,
                                      eval_as,
                                      begin_as,
                                      document,
                                      export_as,
                                      export_stored,
                                      export_model,
                                      config,
                                      ignore,
                                      stop_if,
                                      component,
                                      export_tensor,
                                      pack_and_unpack,
                                      end_if};

}  // namespace

const galley_graph_verbs* Graph::verbs() { return &table; }
const galley_graph_reader* Graph::reader() { return &reader_table; }

}  // namespace galley
