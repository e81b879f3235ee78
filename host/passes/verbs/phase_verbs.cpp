// The verbs of each phase: rewriting the model, loading, exporting, updating. What is not legal in a phase is not in its table.
#include <algorithm>
#include <cmath>

#include "galley/format.h"
#include "host/base/json.hpp"
#include "host/passes/place/components.hpp"
#include "host/passes/verbs/saved_file.hpp"
#include "host/passes/verbs/verbs.hpp"

namespace galley {
namespace {

using namespace verbs;

galley_status replace(galley_graph* g, galley_tensor from, galley_tensor to, galley_error* error) {
  return carry_out(g, error, [&](Graph& graph) { return graph.replace(from, to); });
}

galley_status set_input(galley_graph* g, galley_node node, uint32_t input, galley_tensor to, galley_error* error) {
  return carry_out(g, error, [&](Graph& graph) { return graph.rewire(node, input, to); });
}

galley_status input(galley_graph* g, const char* name, galley_tensor* out, galley_error* error) {
  return hand_out(g, out, error, [&] { return draft_of(g).input(text_or_empty(name)); });
}

galley_status take_loss(galley_graph* g, galley_node node, galley_error* error) {
  return carry_out(g, error, [&](Graph& graph) { return graph.take_loss(node); });
}

galley_status rate(galley_graph* g, const char* name, galley_tensor parameter, galley_tensor* out, galley_error* error) {
  return hand_out(g, out, error, [&] { return handle_of(g).rate(text_or_empty(name), parameter); });
}

galley_status scale_rate(galley_graph* g, galley_tensor parameter, double factor, galley_error* error) {
  return carry_out(g, error, [&](Graph& graph) { return draft_of(g).rates.scale(graph, parameter, factor); });
}

galley_status report(galley_graph* g, galley_tensor tensor, const char* name, galley_error* error) {
  return carry_out(g, error, [&](Graph& graph) {
    return graph.author.section == Section::Evaluate ? ok() : draft_of(g).signals.report(graph, tensor, text_or_empty(name));
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
    const bool made = to.kind == GALLEY_KIND_TRANSIENT && to.producer && graph.node(to.producer).section == Section::Evaluate;
    if (to.kind != GALLEY_KIND_STATE && !made)
      return refuse(g, error, "eval_as: " + quoted(to.name) + " is neither a state nor made by a node for GALLEY_PURPOSE_EVAL");
    if (from.dtype != to.dtype)
      return refuse(g, error, "eval_as: " + quoted(to.name) + " is " + dtype_text(to.dtype) + ", not " + dtype_text(from.dtype));
    if (graph.author.section != Section::Evaluate) return GALLEY_OK;  // it is said again for evaluation
    for (const ExportedValue& other : draft_of(g).evaluated) {
      const GraphTensor& taken = graph.tensor(other.value);
      if (other.parameter == parameter)
        return refuse(g, error, "eval_as: " + quoted(taken.name) + " stands for " + quoted(from.name) + " already");
    }
    draft_of(g).evaluated.push_back({parameter, value});
    return GALLEY_OK;
  });
}

galley_status begin_as(galley_graph* g, galley_tensor tensor, uint32_t component, galley_tensor value, galley_error* error) {
  return guarded(g, error, [&] {
    Graph& graph = graph_of(g);
    if (!graph.has(tensor) || !graph.has(value)) return refuse(g, error, "begin_as: no such tensor");
    const GraphTensor &x = graph.tensor(tensor), &v = graph.tensor(value);
    if (!x.parameter_kind() && x.kind != GALLEY_KIND_STATE)
      return refuse(g, error, "begin_as: " + quoted(x.name) + " is neither a parameter nor a state");
    const bool made = v.kind == GALLEY_KIND_TRANSIENT && v.producer && graph.node(v.producer).section == Section::Load;
    if (v.kind != GALLEY_KIND_FILE && !made)
      return refuse(g, error, "begin_as: " + quoted(v.name) + " neither lies in a file nor is made by a node of the load part");
    const bool numbers = component == GALLEY_BEGIN_NUMBERS;
    if (numbers && type_text(x) != type_text(v))
      return refuse(g, error, "begin_as: " + quoted(v.name) + " is " + type_text(v) + ", and " + quoted(x.name) + " is " + type_text(x));
    if (!numbers && component >= GALLEY_MAX_COMPONENTS)
      return refuse(g, error, "begin_as: " + quoted(x.name) + " has no component " + std::to_string(component));
    std::map<uint32_t, Beginning>& begun = draft_of(g).beginnings[tensor];
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
    draft_of(g).exports.values.push_back({parameter, value});
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
    std::vector<Document>& documents = draft_of(g).exports.documents;
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
    draft_of(g).exports.in_format.insert(parameter);
    return GALLEY_OK;
  });
}

galley_status export_model(galley_graph* g, uint32_t what, galley_error* error) {
  return guarded(g, error, [&] {
    if (what > GALLEY_EXPORT_MODEL) return refuse(g, error, "export_model: no such choice " + std::to_string(what));
    draft_of(g).exports.say(what);
    return GALLEY_OK;
  });
}

galley_status config_set(galley_graph* g, const char* key, const char* json, galley_error* error) {
  return guarded(g, error, [&] {
    Graph& graph = graph_of(g);
    const std::string name = text_or_empty(key);
    if (name.empty()) return refuse(g, error, "config: no key");
    if (!json) return refuse(g, error, "config: " + quoted(name) + " has no value");
    if (const Result<Value> parsed = parse_json(json, "config: " + name); !parsed) return refuse(g, error, parsed.error().cause);
    for (const ConfigKey& other : draft_of(g).exports.config)
      if (other.key == name && other.json != json)
        return refuse(g, error, "config: " + quoted(name) + " is set to " + other.json + " already, not " + json);
    draft_of(g).exports.config.push_back({name, json, graph.author.use});
    return GALLEY_OK;
  });
}

galley_status ignore(galley_graph* g, const char* pattern, galley_error* error) {
  return guarded(g, error, [&] {
    if (!pattern) return refuse(g, error, "ignore: no pattern");
    draft_of(g).ignored_files.emplace_back(pattern);
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
    draft_of(g).signals.stops.push_back(std::move(stop));
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
    if (x.storage.format.empty()) return plugin_error("component: " + quoted(x.name) + " is in no format");
    const std::vector<Component> components = TRY(components_of(*handle_of(g).plugins, x, x.shape));
    if (index >= components.size())
      return plugin_error("'" + x.name + "' has " + std::to_string(components.size()) + " components in format '" + x.storage.format +
                          "', and is asked for number " + std::to_string(index));
    GraphTensor view;
    view.name = "stored " + x.name + components[index].suffix;
    view.dtype = components[index].dtype;
    view.shape = components[index].shape;
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
    draft_of(g).exports.tensors.push_back({entry, value});
    return GALLEY_OK;
  });
}

galley_status pack_and_unpack(galley_graph* g, galley_tensor parameter, galley_tensor value, galley_tensor* out, galley_error* error) {
  return hand_out(g, out, error, [&]() -> Result<galley_tensor> {
    Graph& graph = graph_of(g);
    if (!graph.has(parameter) || !graph.tensor(parameter).parameter_kind()) return plugin_error("pack_and_unpack: no such parameter");
    if (!graph.has(value)) return plugin_error("pack_and_unpack: no such tensor");
    const GraphTensor &x = graph.tensor(parameter), &v = graph.tensor(value);
    if (x.storage.format.empty()) return plugin_error("pack_and_unpack: " + quoted(x.name) + " is in no format");
    if (type_text(x) != type_text(v))
      return plugin_error("pack_and_unpack: " + quoted(v.name) + " is " + type_text(v) + ", and " + quoted(x.name) + " is " + type_text(x));
    return galley::pack_and_unpack(graph, *handle_of(g).plugins, parameter, value);
  });
}

/// Why a parameter cannot be divided along an axis; "": nothing speaks against it.
std::string undivided(const GraphTensor& x, const galley_axis& axis, uint32_t dimension) {
  const std::string is = quoted(x.name) + " is " + type_text(x) + ", ";
  if (x.use != no_use || !x.parameter_kind()) return quoted(x.name) + " is no parameter of the model";
  if (x.part) return quoted(x.name) + " is divided along " + quoted(x.part->axis) + " already";
  if (dimension >= x.shape.size() || (dimension > 0 && x.shape.size() != 2)) return is + "and has no rows or columns of that number";
  if (x.shape[dimension] % axis.ranks != 0)
    return is + "of which " + std::to_string(axis.ranks) + " processes along " + quoted(axis.name) + " have no equal parts";
  if (x.source.added_rows > 0) return quoted(x.name) + " has rows that its file does not have";
  return "";
}

/// What lies together of a part is whole words of checksums (galley/checksum.h), in any dtype.
bool has_words(const GraphTensor& part) {
  constexpr int64_t kNumbers = 8 / 2;
  const Runs runs = part.runs();
  return runs.first % kNumbers == 0 && runs.run % kNumbers == 0 && runs.step % kNumbers == 0;
}

galley_status divide(galley_graph* g, galley_tensor parameter, const char* name, uint32_t dimension, galley_error* error) {
  return guarded(g, error, [&] {
    Graph& graph = graph_of(g);
    const galley_axis* const axis = name && draft_of(g).run.axes ? draft_of(g).run.axes->find(name) : nullptr;
    if (!axis || std::string_view(name) == "data")
      return refuse(
          g, error,
          Error(recipe_error("divide: the run has no axis " + shown(text_or_empty(name)) + " along which processes compute together",
                             "name it in the recipe: ranks = { tensor = 2 }")));
    if (!graph.has(parameter)) return refuse(g, error, "divide: no such parameter");
    GraphTensor& x = graph.tensor(parameter);
    if (axis->ranks == 1) return GALLEY_OK;
    if (const std::string why = undivided(x, *axis, dimension); !why.empty())
      return refuse(g, error, Error(recipe_error("divide: " + why, "leave it to all processes, or take another number of them")));
    auto part = new_struct<galley_part>();
    part.axis = axis->name;
    part.dimension = dimension;
    part.whole = x.shape[dimension];
    GraphTensor own = x;
    own.shape[dimension] /= axis->ranks;
    part.first = axis->rank * own.shape[dimension];
    own.part = part;
    if (!has_words(own))
      return refuse(g, error,
                    Error(recipe_error("divide: a part of '" + x.name + "' is " + type_text(own) +
                                           ", and what lies together in it is no multiple of 4 numbers",
                                       "take fewer processes")));
    x.shape[dimension] = own.shape[dimension];
    x.part = part;
    return GALLEY_OK;
  });
}

const galley_model_verbs model_table = {
    sizeof(galley_model_verbs), 1, GraphHandle::verbs(), replace, set_input, scale_rate, ignore, document, input, take_loss, divide};
const galley_load_verbs load_table = {sizeof(galley_load_verbs), 1, GraphHandle::verbs(), begin_as, pack_and_unpack, ignore};
const galley_export_verbs export_table = {sizeof(galley_export_verbs),
                                          1,
                                          GraphHandle::verbs(),
                                          document,
                                          export_as,
                                          export_stored,
                                          export_model,
                                          config_set,
                                          component,
                                          export_tensor};
const galley_update_verbs update_table = {
    sizeof(galley_update_verbs), 1, GraphHandle::verbs(), rate, scale_rate, report, eval_as, stop_if, end_if};

}  // namespace

const galley_model_verbs* GraphHandle::model_verbs() { return &model_table; }
const galley_load_verbs* GraphHandle::load_verbs() { return &load_table; }
const galley_export_verbs* GraphHandle::export_verbs() { return &export_table; }
const galley_update_verbs* GraphHandle::update_verbs() { return &update_table; }

}  // namespace galley
