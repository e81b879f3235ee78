// What a run begins with. Strategies say what parameters and states are made from; then what the run does not read has no memory: of a
// tensor that is only needed to make others there is no more than its numbers while these are made.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "galley/rewrite.h"
#include "host/passes/constants.hpp"
#include "host/passes/exported.hpp"
#include "host/passes/makers.hpp"
#include "host/passes/packed.hpp"
#include "host/passes/passes.hpp"
#include "host/passes/place/components.hpp"
#include "host/passes/rewrite.hpp"

namespace galley {
namespace {

/// A value for a component is what the format makes.
Status check_component(Compilation& c, const GraphTensor& t, uint32_t index, const Beginning& b) {
  const GraphTensor& value = c.graph.tensor(b.value);
  const auto wrong = [&](const std::string& cause, const char* hint = "") { return strategy_error(c.strategies, b.use, cause, hint); };
  if (t.storage.format.empty())
    return wrong(
        "'" + t.name + "' is to begin as '" + value.name + "', component " + std::to_string(index) + " of its format, and it is in none",
        "claim its storage, or give the numbers: GALLEY_BEGIN_NUMBERS");
  const std::vector<Component> components = TRY(components_of(c.plugins, t, t.shape));
  const size_t values = c.draft.beginnings.at(t.id).size();
  if (values != components.size() || index >= components.size())
    return wrong("'" + t.name + "' has " + std::to_string(components.size()) + " components in format '" + t.storage.format + "', and " +
                 std::to_string(values) + " of them begin as something");
  const Component& component = components[index];
  if (component.dtype == value.dtype && component.shape == value.shape) return ok();
  return wrong("component " + std::to_string(index) + " of '" + t.name + "' is " + dtype_text(component.dtype) +
               shape_text(component.shape) + " in format '" + t.storage.format + "', but '" + value.name + "' is " + type_text(value));
}

/// Which tensors are read, and when. While a run begins, a tensor has two values: the first one, by its file or initializer, is what nodes
/// of the load part read; the one that it begins with is what initializers of others read. They differ where a strategy says what it
/// begins as.
class Needs {
 public:
  explicit Needs(const Compilation& c) : c_(c), graph_(c.graph), loaders_(c.draft, {Section::Load}) {
    if (c.options.purpose != Purpose::Export) by_nodes();
    if (c.saves()) by_files();
    close();
    for (const galley_tensor t : run_) begins(t);
  }

  /// It is read, updated or saved after the run has begun.
  bool by_run(galley_tensor t) const { return run_.contains(t); }
  bool first(galley_tensor t) const { return first_.contains(t); }
  bool begun(galley_tensor t) const { return begun_.contains(t); }

 private:
  void by_nodes() {
    for (const Section s : {Section::Window, Section::Forward, Section::Backward, Section::Update, Section::Evaluate, Section::Sample,
                            Section::Prompt, Section::Next})
      for (const galley_node n : graph_.section(s)) {
        run_.insert(graph_.node(n).inputs.begin(), graph_.node(n).inputs.end());
        run_.insert(graph_.node(n).outputs.begin(), graph_.node(n).outputs.end());
      }
    for (galley_tensor t = 1; t <= graph_.tensor_count(); ++t)
      if (graph_.tensor(t).kind == GALLEY_KIND_STATE && !graph_.tensor(t).unused) run_.insert(t);
    run_.insert(c_.decisions.trainable.begin(), c_.decisions.trainable.end());
    run_.erase(0);
  }

  void by_files() {
    const Makers makers(c_.draft, {Section::Evaluate, Section::Export});
    const std::map<galley_tensor, galley_tensor> values = c_.draft.saved_values();
    std::vector<galley_tensor> read;
    for (const galley_tensor t : c_.draft.exports.saved(graph_)) makers.of(values.contains(t) ? values.at(t) : t, {}, &read);
    for (const ExportedTensor& extra : c_.draft.exports.tensors)
      if (ExportedPlace(extra.name).is_written(c_.draft))
        makers.of(values.contains(extra.value) ? values.at(extra.value) : extra.value, {}, &read);
    run_.insert(read.begin(), read.end());
  }

  /// Views and slices need what they are parts of; constants that are made again, what they are made from.
  void close() {
    const std::vector<bool> changing = changing_tensors(graph_);
    std::vector<galley_tensor> pending(run_.begin(), run_.end());
    const auto also = [&](galley_tensor t) {
      if (t && run_.insert(t).second) pending.push_back(t);
    };
    while (!pending.empty()) {
      const GraphTensor& x = graph_.tensor(pending.back());
      pending.pop_back();
      also(x.storage.numbers_of);
      also(x.slice.of);
      if (x.kind == GALLEY_KIND_CONSTANT && changing[x.id])
        for (const galley_tensor in : x.initial.inputs) also(in);
    }
  }

  void begins(galley_tensor t) {
    const auto values = c_.draft.beginnings.find(t);
    if (values == c_.draft.beginnings.end()) return initialized(t);
    std::vector<galley_tensor> read;
    for (const auto& [component, beginning] : values->second) loaders_.of(beginning.value, {}, &read);
    for (const galley_tensor in : read)
      if (first_.insert(in).second) initialized(in);
  }

  void initialized(galley_tensor t) {
    for (const galley_tensor in : graph_.tensor(t).initial.inputs)
      if (begun_.insert(in).second) begins(in);
  }

  const Compilation& c_;
  const Graph& graph_;
  const Makers loaders_;
  std::set<galley_tensor> run_, first_, begun_;
};

/// The first value of a tensor, as a tensor of the load part.
Result<galley_tensor> first_value(Compilation& c, galley_tensor of) {
  Graph& graph = c.graph;
  const GraphTensor& t = graph.tensor(of);
  const Graph::As as(graph, {Section::Load, t.use});
  GraphTensor first;
  first.name = "first " + t.name;
  first.dtype = t.dtype;
  first.shape = t.shape;
  if (!t.source.path.empty()) {
    first.kind = GALLEY_KIND_FILE;
    first.source = t.source;
    if (first.source.name.empty()) first.source.name = t.name;
    return graph.make(std::move(first));
  }
  AttrList attrs = t.initial.attrs;
  if (t.initial.op.empty()) attrs.set("value", 0.0);
  if (t.initial.inputs.empty()) attrs.set("stream", t.name);
  const std::string op = t.initial.op.empty() ? c.roles.fill->name : t.initial.op;
  std::vector<galley_tensor> out = {TRY(graph.make(std::move(first)))};
  TRY(graph.append(op, "init " + t.name, t.initial.inputs, std::move(attrs), &out));
  return out[0];
}

/// Nodes of the load part that read `from` read `to`.
void read_first(Graph& graph, galley_tensor from, galley_tensor to) {
  for (const galley_node n : graph.section(Section::Load))
    for (size_t i = 0; i < graph.node(n).inputs.size(); ++i)
      if (graph.node(n).inputs[i] == from) graph.set_input(n, i, to);
}

/// Initializers that read `from` read `to`.
void read_begun(Graph& graph, galley_tensor from, galley_tensor to) {
  for (galley_tensor t = 1; t <= graph.tensor_count(); ++t) std::ranges::replace(graph.tensor(t).initial.inputs, from, to);
}

/// Whether the first value of a tensor is more than what is stored of it: then it is read once, and the tensor begins as that.
Result<bool> loses(Compilation& c, const GraphTensor& t) {
  if (t.storage.format.empty()) return t.storage.kept_dtype != 0;
  return t.source.path.empty() || !TRY(PackedFiles().hold(t, TRY(components_of(c.plugins, t, t.shape))));
}

/// Where the first value of a tensor is not what lies in its place, and where it has none: a tensor of the load part.
Status part(Compilation& c, const Needs& needs, galley_tensor t) {
  Graph& graph = c.graph;
  const auto values = c.draft.beginnings.find(t);
  const bool has_values = values != c.draft.beginnings.end();
  const bool whole = has_values && values->second.contains(GALLEY_BEGIN_NUMBERS);
  const bool begun = needs.begun(t), kept = needs.by_run(t) || (begun && has_values && !whole);
  const bool first = needs.first(t) && (has_values || !kept || TRY(loses(c, graph.tensor(t))));
  const galley_tensor value = first || (begun && !kept && !has_values) ? TRY(first_value(c, t)) : 0;
  if (first) read_first(graph, t, value);
  if (first && kept && !has_values) c.draft.beginnings[t][GALLEY_BEGIN_NUMBERS] = {value, graph.tensor(t).use};
  if (begun && !kept) read_begun(graph, t, has_values ? values->second.at(GALLEY_BEGIN_NUMBERS).value : value);
  graph.tensor(t).unused = !kept;
  return ok();
}

}  // namespace

Status load(Compilation& c) {
  Graph& graph = c.graph;
  TRY_STATUS(rewrite_part(c, RewriteOf::Load, Section::Load, "load."));
  for (const auto& [t, values] : c.draft.beginnings)
    for (const auto& [component, beginning] : values)
      if (component != GALLEY_BEGIN_NUMBERS) TRY_STATUS(check_component(c, graph.tensor(t), component, beginning));
  const Needs needs(c);
  const size_t count = graph.tensor_count();
  for (galley_tensor t = 1; t <= count; ++t)
    if (const GraphTensor& x = graph.tensor(t); lasts(x.kind) && !x.unused && !x.slice.of && !x.storage.numbers_of)
      TRY_STATUS(part(c, needs, t));
  std::erase_if(c.decisions.trainable, [&](galley_tensor t) { return graph.tensor(t).unused; });
  graph.sort(Section::Load);
  return ok();
}

}  // namespace galley
