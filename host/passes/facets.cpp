// What is asked about whom, and what the host makes of the answers.
#include <array>
#include <string_view>

#include "galley/format.h"
#include "host/base/nearest.hpp"
#include "host/passes/passes.hpp"

namespace galley {
namespace {

// In the order in which a subject is asked: each facet sees only what earlier ones have decided.
struct Facet {
  uint32_t id;
  const char* name;
};
constexpr std::array facets = {Facet{GALLEY_FACET_TRAINABLE, "trainable"}, Facet{GALLEY_FACET_STORAGE, "storage"},
                               Facet{GALLEY_FACET_COMPUTE, "compute"},     Facet{GALLEY_FACET_GRADIENT, "gradient"},
                               Facet{GALLEY_FACET_UPDATE, "update"},       Facet{GALLEY_FACET_PLACEMENT, "placement"},
                               Facet{GALLEY_FACET_SHARD, "shard"}};

/// A window of so many tokens may take so many times the micro-batches that it would take without padding and uncounted tokens.
constexpr int64_t kSparse = 4;
constexpr int64_t kMostMicroBatches = int64_t{1} << 18;

class Asker {
 public:
  explicit Asker(Compilation& c) : c_(c), graph_(c.graph) {}

  Status trainable(galley_tensor t) {
    const Claimed said = TRY(ask(tensor(t, GALLEY_SUBJECT_PARAMETER, GALLEY_FACET_TRAINABLE)));
    if (said.claimed && !said.number) return ok();
    graph_.tensor(t).flags |= GALLEY_TENSOR_TRAINABLE;
    c_.decisions.trainable.push_back(t);
    return ok();
  }

  Status storage(galley_tensor t, uint32_t kind) {
    const Claimed said = TRY(ask(tensor(t, kind, GALLEY_FACET_STORAGE)));
    if (!said.claimed || said.text.empty()) return ok();
    GraphTensor& x = graph_.tensor(t);
    const galley_format* format = c_.plugins.format(said.text).table;
    const std::string who = label(c_.strategies, said.use);
    if (!format) return recipe_error(who + ": no plugin provides the format '" + said.text + "' claimed for '" + x.name + "'");
    if (kind == GALLEY_SUBJECT_PARAMETER && x.trainable() && !format->trainable)
      return recipe_error(who + ": '" + x.name + "' is to be trained, but the format '" + said.text + "' cannot be written by an update",
                          "freeze it, or train an adapter beside it");
    x.storage = said.text;
    x.storage_attrs = said.attrs;
    return ok();
  }

  Status compute(Section section) {
    for (const galley_node n : std::vector<galley_node>(graph_.section(section))) {
      const GraphNode& node = graph_.node(n);
      galley_subject s = subject(node.name.c_str(), node.use, GALLEY_SUBJECT_NODE, GALLEY_FACET_COMPUTE);
      s.node = n;
      TRY_STATUS(as_is(s, "f32", 0, "kernels compute in f32"));
    }
    return ok();
  }

  Status gradient(galley_tensor t) {
    return as_is(tensor(t, GALLEY_SUBJECT_GRADIENT, GALLEY_FACET_GRADIENT), "f32", GALLEY_GRADIENT_WINDOW,
                 "gradients are f32 and live until the window's update");
  }

  Status updated_by(galley_tensor t) {
    const Claimed said = TRY(ask(tensor(t, GALLEY_SUBJECT_PARAMETER, GALLEY_FACET_UPDATE)));
    if (!said.claimed)
      return recipe_error("'" + graph_.tensor(t).name + "' is to be trained, but no strategy updates it",
                          "add an optimizer to the recipe, or freeze it");
    if (!c_.strategies[static_cast<size_t>(said.use)]->update())
      return plugin_error(label(c_.strategies, said.use) + " claims the update of '" + graph_.tensor(t).name +
                          "' but has no galley.update/1");
    graph_.tensor(t).update_use = said.use;
    return ok();
  }

  Status placement(galley_tensor t, uint32_t kind) {
    const Claimed said = TRY(ask(tensor(t, kind, GALLEY_FACET_PLACEMENT)));
    if (!said.claimed || said.text == c_.target.memories[0].name) return ok();
    GraphTensor& x = graph_.tensor(t);
    const std::string who = label(c_.strategies, said.use);
    std::vector<std::string> names;
    bool known = false;
    for (const MemoryClass& m : c_.target.memories) {
      names.push_back(m.name);
      known = known || m.name == said.text;
    }
    if (!known)
      return recipe_error(who + ": device '" + c_.target.device + "' has no memory class '" + said.text + "', claimed for '" + x.name + "'",
                          did_you_mean(said.text, names));
    if (kind == GALLEY_SUBJECT_GRADIENT)
      return recipe_error(who + ": gradients stay where kernels compute; '" + x.name + "' cannot lie in '" + said.text + "'",
                          "place the states or the parameters there");
    x.placement = said.text;
    return ok();
  }

  Status shard(galley_tensor t, uint32_t kind) {
    return as_is(tensor(t, kind, GALLEY_FACET_SHARD), "", 1, "a run is one process on one device: number 1, or no claim");
  }

  Status window() {
    const Claimed said = TRY(ask(subject("the run", no_use, GALLEY_SUBJECT_RUN, GALLEY_FACET_GRADIENT)));
    if (!said.claimed) return ok();
    const bool tokens = said.text == "tokens";
    const std::string who = label(c_.strategies, said.use);
    if (!tokens && !said.text.empty()) return plugin_error(who + ": a window of " + std::to_string(said.number) + " '" + said.text + "'");
    if (said.number < 1)
      return recipe_error(who + ": a window of " + std::to_string(said.number) + (tokens ? " tokens" : " micro-batches"));
    const int64_t micro_tokens = graph_.rows() * graph_.length();
    Decisions& out = c_.decisions;
    out.micro_batches = tokens ? kSparse * ((said.number + micro_tokens - 1) / micro_tokens) : said.number;
    out.window_tokens = tokens ? said.number : 0;
    if (out.micro_batches > kMostMicroBatches)
      return recipe_error(who + ": a window of up to " + std::to_string(out.micro_batches) + " micro-batches of " +
                          std::to_string(micro_tokens) + " tokens; there can be " + std::to_string(kMostMicroBatches));
    return ok();
  }

 private:
  Result<Claimed> ask(const galley_subject& s) { return claim(graph_, c_.strategies, s); }

  /// Of whatever `use` made: a tensor, a node, or the run.
  galley_subject subject(const char* name, int use, uint32_t kind, uint32_t facet) const {
    galley_subject s = {};
    s.size = sizeof s;
    s.revision = 1;
    s.kind = kind;
    s.facet = facet;
    s.name = name;
    s.owner = use == no_use ? "" : c_.strategies[static_cast<size_t>(use)]->name().c_str();
    return s;
  }
  galley_subject tensor(galley_tensor t, uint32_t kind, uint32_t facet) const {
    const GraphTensor& x = graph_.tensor(t);
    galley_subject s = subject(x.name.c_str(), x.use, kind, facet);
    s.tensor = t;
    s.parameter = kind == GALLEY_SUBJECT_PARAMETER ? t : x.parameter;
    s.trainable = s.parameter && graph_.tensor(s.parameter).trainable();
    return s;
  }

  /// Asks about a facet of which this host does only what it does unasked: the value `text` and `number`. Any other is refused by name.
  Status as_is(const galley_subject& s, const std::string& text, int64_t number, const char* hint) {
    const Claimed said = TRY(ask(s));
    if (!said.claimed || ((said.text.empty() || said.text == text) && said.number == number)) return ok();
    const std::string value = said.text.empty() || said.text == text ? std::to_string(said.number) : "'" + said.text + "'";
    return recipe_error(label(c_.strategies, said.use) + " wants '" + facet_name(s.facet) + "' of '" + s.name + "' to be " + value +
                            ", which this version cannot do",
                        hint);
  }

  Compilation& c_;
  Graph& graph_;
};

}  // namespace

const char* facet_name(uint32_t facet) {
  for (const Facet& f : facets)
    if (f.id == facet) return f.name;
  return "?";
}

Status claim_model(Compilation& c) {
  const Graph::As as(c.graph, {});
  Asker ask(c);
  std::vector<galley_tensor> parameters;
  for (galley_tensor t = 1; t <= c.graph.tensor_count(); ++t)
    if (c.graph.tensor(t).parameter_kind()) parameters.push_back(t);

  for (const galley_tensor t : parameters) TRY_STATUS(ask.trainable(t));
  if (c.backward() && c.decisions.trainable.empty())
    return recipe_error("nothing is left to train: every parameter is frozen", "narrow what is frozen, or add an adapter");
  for (const galley_tensor t : parameters) TRY_STATUS(ask.storage(t, GALLEY_SUBJECT_PARAMETER));
  TRY_STATUS(ask.compute(Section::Forward));
  if (c.trains())
    for (const galley_tensor t : c.decisions.trainable) TRY_STATUS(ask.updated_by(t));
  for (const galley_tensor t : parameters) TRY_STATUS(ask.placement(t, GALLEY_SUBJECT_PARAMETER));
  for (const galley_tensor t : parameters) TRY_STATUS(ask.shard(t, GALLEY_SUBJECT_PARAMETER));
  TRY_STATUS(ask.window());
  return ok();
}

Status claim_made(Compilation& c) {
  const Graph::As as(c.graph, {Section::Update});
  Asker ask(c);
  std::vector<std::pair<galley_tensor, uint32_t>> made;
  for (galley_tensor t = 1; t <= c.graph.tensor_count(); ++t) {
    const uint32_t kind = c.graph.tensor(t).kind;
    if (kind == GALLEY_KIND_GRADIENT) made.emplace_back(t, GALLEY_SUBJECT_GRADIENT);
    if (kind == GALLEY_KIND_STATE) made.emplace_back(t, GALLEY_SUBJECT_STATE);
  }
  for (const auto& [t, kind] : made)
    if (kind == GALLEY_SUBJECT_STATE) TRY_STATUS(ask.storage(t, kind));
  TRY_STATUS(ask.compute(Section::Update));
  for (const auto& [t, kind] : made)
    if (kind == GALLEY_SUBJECT_GRADIENT) TRY_STATUS(ask.gradient(t));
  for (const auto& [t, kind] : made) TRY_STATUS(ask.placement(t, kind));
  for (const auto& [t, kind] : made) TRY_STATUS(ask.shard(t, kind));
  return ok();
}

}  // namespace galley
