// Rewrites and claims: what strategies say about the graph before it is differentiated.
#include <cstdio>

#include "galley/claim.h"
#include "galley/format.h"
#include "galley/rewrite.h"
#include "host/base/nearest.hpp"
#include "host/passes/compile.hpp"
#include "host/plugins/abi.hpp"

namespace galley {

Status call_strategy(Graph& graph, std::span<const Strategy> strategies, size_t use, const char* doing,
                     const std::function<galley_status(galley_error*)>& call) {
  const int before = graph.use;
  graph.use = static_cast<int>(use);
  galley_error error = GALLEY_ERROR_INIT;
  galley_status status = GALLEY_OK;
  std::string thrown;
  try {
    status = call(&error);
  } catch (const std::exception& exception) {
    thrown = exception.what();
  } catch (...) {
    thrown = "something that is no std::exception";
  }
  graph.use = before;
  const std::string who = strategies[use].label + ": " + doing;
  if (!thrown.empty())
    return plugin_error(who + ": the plugin threw: " + thrown, "an exception must not cross the C ABI; report it to the plugin's author");
  if (status == GALLEY_OK) return ok();
  const std::string text = error.text[0] ? error.text : "status " + std::to_string(status) + " without a word";
  if (status == GALLEY_INVALID || status == GALLEY_UNSUPPORTED) return recipe_error(strategies[use].label + ": " + text);
  return plugin_error(who + ": " + text);
}

Status rewrite(Graph& graph, std::span<const Strategy> strategies, uint32_t segment) {
  for (size_t i = 0; i < strategies.size(); ++i) {
    const Strategy& s = strategies[i];
    if (!s.rewrite) continue;
    graph.current = segment == GALLEY_SEGMENT_EXPORT ? Section::Export : Section::Forward;
    TRY_STATUS(call_strategy(graph, strategies, i, "rewriting the graph", [&](galley_error* error) {
      return s.rewrite->rewrite(s.instance, Graph::verbs(), graph.handle(), segment, error);
    }));
    if (segment == GALLEY_SEGMENT_MODEL) graph.sort(Section::Forward);
  }
  return ok();
}

namespace {

constexpr const char* facet_names[] = {"",       "trainable", "storage", "compute", "gradient dtype", "gradient lifetime",
                                       "update", "placement", "shard",   "window"};

std::string value_text(const Claimed& c, const Strategy& s, bool by_claimant) {
  if (by_claimant) return s.name;
  return c.text.empty() ? std::to_string(c.number) : c.text;
}

/// Of whatever `use` made: a tensor, a node, or the run.
galley_subject subject_of(std::span<const Strategy> strategies, const char* name, int use, uint32_t kind, uint32_t facet) {
  auto s = new_struct<galley_subject>();
  s.kind = kind;
  s.facet = facet;
  s.name = name;
  s.owner = use == no_use ? "" : strategies[static_cast<size_t>(use)].name.c_str();
  return s;
}

galley_subject subject_of(const Graph& graph, std::span<const Strategy> strategies, galley_tensor t, uint32_t kind, uint32_t facet) {
  const GraphTensor& x = graph.tensor(t);
  galley_subject s = subject_of(strategies, x.name.c_str(), x.use, kind, facet);
  s.tensor = t;
  s.parameter = kind == GALLEY_SUBJECT_PARAMETER ? t : x.parameter;
  s.trainable = s.parameter && graph.tensor(s.parameter).trainable();
  s.tensor_flags = x.flags;
  return s;
}

/// Asks about a facet of which this host does only what it does unasked: the value `text` and `number`. Any other is refused by name.
Status claim_as_is(Graph& graph, std::span<const Strategy> strategies, const galley_subject& subject, const std::string& text,
                   int64_t number, const char* hint) {
  const Claimed c = TRY(claim(graph, strategies, subject));
  if (!c.claimed || ((c.text.empty() || c.text == text) && c.number == number)) return ok();
  const Strategy& s = strategies[static_cast<size_t>(c.use)];
  const std::string value = c.text.empty() || c.text == text ? std::to_string(c.number) : "'" + c.text + "'";
  return recipe_error(
      s.label + " wants '" + facet_names[subject.facet] + "' of '" + subject.name + "' to be " + value + ", which this version cannot do",
      hint);
}

Status claim_shard(Graph& graph, std::span<const Strategy> strategies, galley_tensor t, uint32_t kind) {
  return claim_as_is(graph, strategies, subject_of(graph, strategies, t, kind, GALLEY_FACET_SHARD), "", 1,
                     "a run is one process on one device: number 1, or no claim");
}

/// COMPUTE of the nodes of a section.
Status claim_compute(Graph& graph, std::span<const Strategy> strategies, Section section) {
  for (const galley_node n : std::vector<galley_node>(graph.section(section))) {
    const GraphNode& node = graph.node(n);
    galley_subject s = subject_of(strategies, node.name.c_str(), node.use, GALLEY_SUBJECT_NODE, GALLEY_FACET_COMPUTE);
    s.node = n;
    s.op_flags = node.op->flags;
    TRY_STATUS(claim_as_is(graph, strategies, s, "f32", 0, "kernels compute in f32"));
  }
  return ok();
}

/// STORAGE and PLACEMENT of one tensor.
Status claim_bytes(Graph& graph, std::span<const Strategy> strategies, const Provided& provided, const Target& target, galley_tensor t,
                   uint32_t kind) {
  if (kind != GALLEY_SUBJECT_GRADIENT) {
    const Claimed storage = TRY(claim(graph, strategies, subject_of(graph, strategies, t, kind, GALLEY_FACET_STORAGE)));
    if (storage.claimed && !storage.text.empty()) {
      const galley_format* format = provided.format(storage.text);
      const std::string who = strategies[static_cast<size_t>(storage.use)].label;
      if (!format)
        return recipe_error(who + ": no plugin provides the format '" + storage.text + "' claimed for '" + graph.tensor(t).name + "'");
      if (kind == GALLEY_SUBJECT_PARAMETER && graph.tensor(t).trainable() && !format->trainable)
        return recipe_error(
            who + ": '" + graph.tensor(t).name + "' is to be trained, but the format '" + storage.text + "' cannot be written by an update",
            "freeze it, or train an adapter beside it");
      graph.tensor(t).storage = storage.text;
      graph.tensor(t).storage_attrs = storage.attrs;
    }
  }
  const Claimed placement = TRY(claim(graph, strategies, subject_of(graph, strategies, t, kind, GALLEY_FACET_PLACEMENT)));
  if (placement.claimed && placement.text != target.memories[0].name) {
    std::vector<std::string> names;
    bool known = false;
    for (const MemoryClass& m : target.memories) {
      names.push_back(m.name);
      known = known || m.name == placement.text;
    }
    if (!known)
      return recipe_error(strategies[static_cast<size_t>(placement.use)].label + ": device '" + target.device + "' has no memory class '" +
                              placement.text + "', claimed for '" + graph.tensor(t).name + "'",
                          did_you_mean(placement.text, names));
    if (kind == GALLEY_SUBJECT_GRADIENT)
      return recipe_error(strategies[static_cast<size_t>(placement.use)].label + ": gradients stay where kernels compute; '" +
                              graph.tensor(t).name + "' cannot lie in '" + placement.text + "'",
                          "place the states or the parameters there");
    graph.tensor(t).placement = placement.text;
  }
  return ok();
}

}  // namespace

Result<Claimed> claim(Graph& graph, std::span<const Strategy> strategies, galley_subject subject, bool by_claimant) {
  Claimed best;
  uint32_t strength = GALLEY_ABSTAIN;
  for (size_t i = 0; i < strategies.size(); ++i) {
    const Strategy& s = strategies[i];
    if (!s.claim) continue;
    auto value = new_struct<galley_claim_value>();
    TRY_STATUS(call_strategy(graph, strategies, i, "claiming", [&](galley_error* error) {
      return s.claim->claim(s.instance, Graph::reader(), graph.handle(), &subject, &value, error);
    }));
    if (value.strength == GALLEY_ABSTAIN || value.strength < strength) continue;
    Claimed said = {true, static_cast<int>(i), value.number, value.text ? value.text : "", {}};
    if (Status status = said.attrs.add(value.attrs, value.n_attrs); !status.ok())
      return plugin_error(s.label + ", claiming: " + status.error().cause);
    const bool equal =
        best.claimed && !by_claimant && said.number == best.number && said.text == best.text && said.attrs.key() == best.attrs.key();
    if (value.strength > strength) {
      best = said;
      strength = value.strength;
    } else if (!equal) {
      const Strategy& other = strategies[static_cast<size_t>(best.use)];
      return recipe_error("two strategies decide '" + std::string(facet_names[subject.facet]) + "' of '" + subject.name +
                              "': " + other.label + " says " + value_text(best, other, by_claimant) + ", " + s.label + " says " +
                              value_text(said, s, by_claimant),
                          "one owner a property: take one of the two out, or narrow it to other tensors");
    }
  }
  return best;
}

/// A window of so many tokens may take so many times the micro-batches that it would take without padding and uncounted tokens.
constexpr int64_t kSparse = 4;
constexpr int64_t kMostMicroBatches = int64_t{1} << 18;

Result<Decisions> claim_parameters(Graph& graph, std::span<const Strategy> strategies, const Provided& provided, const Target& target,
                                   Purpose purpose) {
  Decisions out;
  std::vector<galley_tensor> parameters;
  for (galley_tensor t = 1; t <= graph.tensor_count(); ++t)
    if (graph.tensor(t).parameter_kind()) parameters.push_back(t);

  for (const galley_tensor t : parameters) {
    const Claimed c = TRY(claim(graph, strategies, subject_of(graph, strategies, t, GALLEY_SUBJECT_PARAMETER, GALLEY_FACET_TRAINABLE)));
    if (c.claimed && !c.number) continue;
    graph.tensor(t).flags |= GALLEY_TENSOR_TRAINABLE;
    out.trainable.push_back(t);
  }
  const bool trains = purpose == Purpose::Train || purpose == Purpose::Gradients;
  if (trains && out.trainable.empty())
    return recipe_error("nothing is left to train: every parameter is frozen", "narrow what is frozen, or add an adapter");

  for (const galley_tensor t : parameters) {
    TRY_STATUS(claim_bytes(graph, strategies, provided, target, t, GALLEY_SUBJECT_PARAMETER));
    TRY_STATUS(claim_shard(graph, strategies, t, GALLEY_SUBJECT_PARAMETER));
  }
  TRY_STATUS(claim_compute(graph, strategies, Section::Forward));

  const Claimed window = TRY(claim(graph, strategies, subject_of(strategies, "the run", no_use, GALLEY_SUBJECT_RUN, GALLEY_FACET_WINDOW)));
  if (window.claimed) {
    const bool tokens = window.text == "tokens";
    const std::string& label = strategies[static_cast<size_t>(window.use)].label;
    if (!tokens && !window.text.empty())
      return plugin_error(label + ": a window of " + std::to_string(window.number) + " '" + window.text + "'");
    if (window.number < 1)
      return recipe_error(label + ": a window of " + std::to_string(window.number) + (tokens ? " tokens" : " micro-batches"));
    const int64_t micro_tokens = graph.rows() * graph.length();
    out.micro_batches = tokens ? kSparse * ((window.number + micro_tokens - 1) / micro_tokens) : window.number;
    out.window_tokens = tokens ? window.number : 0;
    if (out.micro_batches > kMostMicroBatches)
      return recipe_error(label + ": a window of up to " + std::to_string(out.micro_batches) + " micro-batches of " +
                          std::to_string(micro_tokens) + " tokens; there can be " + std::to_string(kMostMicroBatches));
  }

  if (purpose == Purpose::Train) {
    for (const galley_tensor t : out.trainable) {
      const Claimed c =
          TRY(claim(graph, strategies, subject_of(graph, strategies, t, GALLEY_SUBJECT_PARAMETER, GALLEY_FACET_UPDATE), true));
      if (!c.claimed)
        return recipe_error("'" + graph.tensor(t).name + "' is to be trained, but no strategy updates it",
                            "add an optimizer to the recipe, or freeze it");
      if (!strategies[static_cast<size_t>(c.use)].update)
        return plugin_error(strategies[static_cast<size_t>(c.use)].label + " claims the update of '" + graph.tensor(t).name +
                            "' but has no galley.update/1");
      graph.tensor(t).update_use = c.use;
    }
  }
  return out;
}

Status claim_made(Graph& graph, std::span<const Strategy> strategies, const Provided& provided, const Target& target, galley_tensor from) {
  for (galley_tensor t = from; t <= graph.tensor_count(); ++t) {
    const uint32_t kind = graph.tensor(t).kind;
    if (kind != GALLEY_KIND_STATE && kind != GALLEY_KIND_GRADIENT) continue;
    const uint32_t subject = kind == GALLEY_KIND_STATE ? GALLEY_SUBJECT_STATE : GALLEY_SUBJECT_GRADIENT;
    if (kind == GALLEY_KIND_GRADIENT) {
      TRY_STATUS(claim_as_is(graph, strategies, subject_of(graph, strategies, t, subject, GALLEY_FACET_GRADIENT_DTYPE), "f32", 0,
                             "gradients are f32"));
      TRY_STATUS(claim_as_is(graph, strategies, subject_of(graph, strategies, t, subject, GALLEY_FACET_GRADIENT_LIFETIME), "",
                             GALLEY_GRADIENT_WINDOW, "gradients live until the window's update"));
    }
    TRY_STATUS(claim_bytes(graph, strategies, provided, target, t, subject));
    TRY_STATUS(claim_shard(graph, strategies, t, subject));
  }
  return claim_compute(graph, strategies, Section::Update);
}

}  // namespace galley
