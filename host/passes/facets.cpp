#include "host/passes/facets.hpp"

#include <algorithm>
#include <string_view>

#include "galley/format.h"
#include "host/base/nearest.hpp"
#include "host/graph/axes.hpp"
#include "host/passes/judge.hpp"
#include "host/plugins/abi.hpp"

namespace galley {

galley_subject subject_of(const Compilation& c, const Who& who) {
  const Graph& graph = c.graph;
  auto s = new_struct<galley_subject>();
  s.kind = who.kind;
  s.name = "the run";
  int use = no_use;
  if (who.node) {
    s.node = who.node;
    s.op_flags = graph.node(who.node).op->flags;
    s.name = graph.node(who.node).name.c_str();
    use = graph.node(who.node).use;
  }
  if (who.tensor) {
    const GraphTensor& x = graph.tensor(who.tensor);
    s.tensor = who.tensor;
    s.tensor_flags = x.flags;
    s.name = x.name.c_str();
    s.parameter = who.kind == GALLEY_SUBJECT_PARAMETER ? who.tensor : x.parameter;
    s.trainable = s.parameter && graph.tensor(s.parameter).trainable();
    use = x.use;
  }
  s.owner = use == no_use ? "" : c.strategies[static_cast<size_t>(use)]->name().c_str();
  return s;
}

namespace {

/// A window of so many tokens may take so many times the micro-batches that it would take without padding and uncounted tokens.
constexpr int64_t kSparse = 4;
constexpr int64_t kMostMicroBatches = int64_t{1} << 18;

/// One answer, and what it is about.
struct Answer {
  Compilation& c;
  Who who;
  std::string name;  ///< of the subject
  uint32_t facet;
  Claimed said;

  std::string by() const { return label(c.strategies, said.use); }
  GraphTensor& tensor() const { return c.graph.tensor(who.tensor); }
};

Status take_trainable(const Answer& a) {
  if (const auto& only = a.c.options.trainable; only && !only->contains(a.name)) return ok();
  if (a.said.claimed && !a.said.number) return ok();
  if (a.said.claimed && a.said.number == GALLEY_TRAINABLE_WRITTEN) {
    a.tensor().flags |= GALLEY_TENSOR_WRITTEN;
    return ok();
  }
  if (a.said.claimed && a.said.number != 1)
    return plugin_error(a.by() + ": TRAINABLE of '" + a.name + "' is " + std::to_string(a.said.number) +
                        "; it is 0, 1 or GALLEY_TRAINABLE_WRITTEN");
  a.tensor().flags |= GALLEY_TENSOR_TRAINABLE;
  a.c.decisions.trainable.push_back(a.who.tensor);
  return ok();
}

Status take_storage(const Answer& a) {
  if (!a.said.claimed || a.said.text.empty()) return ok();
  GraphTensor& x = a.tensor();
  const galley_format* format = a.c.plugins.format(a.said.text).table;
  if (!format) return recipe_error(a.by() + ": no plugin provides the format '" + a.said.text + "' claimed for '" + x.name + "'");
  if (x.changes() && a.c.trains() && !(format->flags & GALLEY_FORMAT_TRAINABLE))
    return recipe_error(a.by() + ": '" + x.name + "' is to be " + (x.trainable() ? "trained" : "written by an update") +
                            ", but the format '" + a.said.text + "' cannot be written by an update",
                        "freeze it, or train an adapter beside it");
  if (x.kind == GALLEY_KIND_STATE && !(format->flags & GALLEY_FORMAT_TRAINABLE))
    return recipe_error(
        a.by() + ": updates write the state '" + x.name + "', but the format '" + a.said.text + "' cannot be written by an update",
        "take a format for states that has 'trainable'");
  x.storage.format = a.said.text;
  x.storage.attrs = a.said.attrs;
  return ok();
}

Status take_compute(const Answer& a) {
  if (!a.said.claimed) return ok();
  const std::string& text = a.said.text;
  const bool tf32 = text == "tf32";
  const uint32_t dtype = tf32 ? GALLEY_F32 : dtype_named(text);
  if (!dtype)
    return recipe_error(a.by() + " wants '" + a.name + "' to compute in '" + text + "'", "nodes compute in f32, tf32, bf16 or f16");
  if (a.said.number != GALLEY_WEIGHTS_DERIVED && a.said.number != GALLEY_WEIGHTS_CAST_ON_USE)
    return plugin_error(a.by() + ": COMPUTE of '" + a.name + "' has the number " + std::to_string(a.said.number) +
                        ", which is no GALLEY_WEIGHTS_…");
  GraphNode& node = a.c.graph.node(a.who.node);
  node.products.dtype = dtype;
  node.products.tf32 = tf32;
  node.products.use = a.said.use;
  node.products.weights = a.said.number;
  return ok();
}

Status take_gradient_dtype(const Answer& a) {
  if (!a.said.claimed) return ok();
  const uint32_t dtype = dtype_named(a.said.text);
  if (!dtype) return recipe_error(a.by() + " wants '" + a.name + "' to be in '" + a.said.text + "'", "gradients are in f32, bf16 or f16");
  a.tensor().dtype = dtype;
  return ok();
}

Status take_gradient_lifetime(const Answer& a) {
  if (!a.said.claimed) return ok();
  if (a.said.number != GALLEY_GRADIENT_WINDOW && a.said.number != GALLEY_GRADIENT_IMMEDIATE)
    return plugin_error(a.by() + ": GRADIENT_LIFETIME of '" + a.name + "' is " + std::to_string(a.said.number) +
                        ", which is no GALLEY_GRADIENT_…");
  a.tensor().immediate = a.said.number == GALLEY_GRADIENT_IMMEDIATE && a.c.trains();
  a.tensor().immediate_use = a.said.use;
  return ok();
}

Status take_update(const Answer& a) {
  if (!a.said.claimed && !a.c.backward()) return ok();  // an adapter is sampled or merged without an optimizer
  if (!a.said.claimed) {
    const bool none = std::none_of(a.c.strategies.begin(), a.c.strategies.end(),
                                   [](const auto& s) { return s->update() && s->update()->stages & GALLEY_STAGE_STEP; });
    return recipe_error((none ? "the recipe has no optimizer: '" : "'") + a.name + "' is to be trained, but no strategy updates it",
                        none ? "add an optimizer: `galley plugins` lists them" : "add an optimizer to the recipe, or freeze it");
  }
  if (!a.c.strategies[static_cast<size_t>(a.said.use)]->update())
    return plugin_error(a.by() + " claims the update of '" + a.name + "' but has no galley.update/1");
  if (const uint32_t stages = a.c.strategies[static_cast<size_t>(a.said.use)]->update()->stages; !(stages & GALLEY_STAGE_STEP))
    return plugin_error(a.by() + " claims the update of '" + a.name + "', but it builds stage " + stage_names(stages),
                        "what has won an update builds it in GALLEY_STAGE_STEP");
  a.tensor().update_use = a.said.use;
  a.tensor().update_text = a.said.text;
  return ok();
}

Status take_placement(const Answer& a) {
  const Target& target = a.c.target;
  if (!a.said.claimed || a.said.text == target.memories[0].name) return ok();
  std::vector<std::string> names;
  bool known = false;
  for (const MemoryClass& m : target.memories) {
    names.push_back(m.name);
    known = known || m.name == a.said.text;
  }
  if (!known)
    return recipe_error(a.by() + ": device '" + target.device + "' has no memory class '" + a.said.text + "', claimed for '" + a.name + "'",
                        did_you_mean(a.said.text, names));
  if (a.tensor().immediate)
    return recipe_error(a.by() + ": '" + a.name + "' is updated as soon as it is there, so it cannot lie in '" + a.said.text + "'",
                        "let it live for the window, or place the states or the parameters there");
  const bool master = a.said.number == GALLEY_PLACEMENT_MASTER && a.who.kind == GALLEY_SUBJECT_PARAMETER;
  if (!master && a.said.number != GALLEY_PLACEMENT_ALWAYS)
    return plugin_error(a.by() + ": PLACEMENT of '" + a.name + "' has the number " + std::to_string(a.said.number) +
                        ", which is no GALLEY_PLACEMENT_…");
  Storage& storage = a.tensor().storage;
  (master ? storage.master_placement : storage.placement) = a.said.text;
  storage.placement_use = a.said.use;
  return ok();
}

Error no_axis(const Answer& a, const Axes& axes) {
  std::string known;
  for (const galley_axis* axis : axes.view())
    known += (known.empty() ? "'" : ", '") + std::string(axis->name) + "' (" + std::to_string(axis->ranks) + ")";
  return recipe_error(a.by() + ": '" + a.name + "' is to be divided along the axis '" + a.said.text + "', which the run does not have",
                      "of " + std::to_string(axes.ranks()) + " processes it has " + known +
                          ": a link of the target is an axis where the processes that it joins divide those of the run");
}

/// A run of one process has one part of each tensor, the whole. Of several the pass `shard` makes the parts.
Status take_shard(const Answer& a) {
  if (!a.said.claimed) return ok();
  const bool master = a.said.number == GALLEY_SHARD_MASTER && a.who.kind == GALLEY_SUBJECT_PARAMETER;
  if (!master && a.said.number != GALLEY_SHARD_NO && a.said.number != GALLEY_SHARD_YES)
    return plugin_error(a.by() + ": SHARD of '" + a.name + "' is " + std::to_string(a.said.number) + ", which is no GALLEY_SHARD_… of it");
  a.tensor().storage.shard = a.said.number;
  const Axes& axes = *a.c.draft.run.axes;
  const galley_axis* const axis = axes.find(a.said.text.empty() ? "data" : a.said.text);
  if (a.said.number == GALLEY_SHARD_NO || axes.ranks() == 1 || (axis && axis->ranks == 1)) return ok();
  if (!axis) return no_axis(a, axes);
  if (a.c.decisions.lanes.axis == axis->name)
    return recipe_error(
        a.by() + ": '" + a.name + "' is to be divided along the axis '" + axis->name + "', whose processes compute together",
        "a strategy's 'divide' makes parts along it; leave the axis out here: that is \"data\"");
  const galley_axis*& all = a.c.decisions.divides;
  if (all && all != axis)
    return recipe_error(
        a.by() + ": '" + a.name + "' is to be divided along the axis '" + axis->name + "', and others along '" + all->name + "'",
        "divide all of them along one");
  all = axis;
  return ok();
}

Status take_window(const Answer& a) {
  if (!a.said.claimed) return ok();
  const int64_t number = a.said.number;
  const bool tokens = a.said.text == "tokens";
  if (!tokens && !a.said.text.empty()) return plugin_error(a.by() + ": a window of " + std::to_string(number) + " '" + a.said.text + "'");
  if (number < 1) return recipe_error(a.by() + ": a window of " + std::to_string(number) + (tokens ? " tokens" : " micro-batches"));
  const int64_t micro_tokens = a.c.graph.rows() * a.c.graph.length();
  Decisions& out = a.c.decisions;
  out.micro_batches = tokens ? kSparse * ((number + micro_tokens - 1) / micro_tokens) : number;
  out.window_tokens = tokens ? number : 0;
  out.window_use = a.said.use;
  if (out.micro_batches > kMostMicroBatches)
    return recipe_error(a.by() + ": a window of up to " + std::to_string(out.micro_batches) + " micro-batches of " +
                        std::to_string(micro_tokens) + " tokens; there can be " + std::to_string(kMostMicroBatches));
  return ok();
}

constexpr uint32_t bit(uint32_t subject) { return 1u << subject; }
constexpr uint32_t kParameter = bit(GALLEY_SUBJECT_PARAMETER), kGradient = bit(GALLEY_SUBJECT_GRADIENT), kState = bit(GALLEY_SUBJECT_STATE),
                   kNode = bit(GALLEY_SUBJECT_NODE), kRun = bit(GALLEY_SUBJECT_RUN);

// In the order in which they are asked: each facet of a subject sees only what earlier ones have decided.
struct Facet {
  uint32_t id;
  const char* name;
  uint32_t subjects;
  Status (*take)(const Answer&);
};
constexpr Facet facets[] = {
    {GALLEY_FACET_TRAINABLE, "trainable", kParameter, take_trainable},
    {GALLEY_FACET_STORAGE, "storage", kParameter | kState, take_storage},
    {GALLEY_FACET_COMPUTE, "compute", kNode, take_compute},
    {GALLEY_FACET_GRADIENT_DTYPE, "gradient dtype", kGradient, take_gradient_dtype},
    {GALLEY_FACET_GRADIENT_LIFETIME, "gradient lifetime", kGradient, take_gradient_lifetime},
    {GALLEY_FACET_UPDATE, "update", kParameter, take_update},
    {GALLEY_FACET_PLACEMENT, "placement", kParameter | kGradient | kState, take_placement},
    {GALLEY_FACET_SHARD, "shard", kParameter | kGradient | kState, take_shard},
    {GALLEY_FACET_WINDOW, "window", kRun, take_window},
};

Status ask(Compilation& c, const Facet& facet, const std::vector<Who>& all) {
  std::vector<Who> asked;
  std::vector<galley_subject> subjects;
  for (const Who& who : all) {
    if (!(facet.subjects & bit(who.kind))) continue;
    // Nobody updates what is not trained, or in a program that neither updates nor evaluates it.
    if (facet.id == GALLEY_FACET_UPDATE && !(c.graph.tensor(who.tensor).trainable() && (c.trains() || c.asks_for_evaluation()))) continue;
    asked.push_back(who);
    subjects.push_back(subject_of(c, who));
  }
  if (subjects.empty()) return ok();
  const std::vector<std::vector<Said>> said = TRY(claims(c, facet.id, subjects));
  for (size_t i = 0; i < asked.size(); ++i)
    TRY_STATUS(facet.take({c, asked[i], subjects[i].name, facet.id, TRY(judge(c.strategies, facet.id, subjects[i], said[i]))}));
  return ok();
}

}  // namespace

const char* facet_name(uint32_t facet) {
  for (const Facet& f : facets)
    if (f.id == facet) return f.name;
  return "?";
}

Status ask_trainable(Compilation& c, const std::vector<Who>& subjects) { return ask(c, facets[0], subjects); }

Status ask_facets(Compilation& c, const std::vector<Who>& subjects) {
  static_assert(facets[0].id == GALLEY_FACET_TRAINABLE);
  for (const Facet& facet : facets)
    if (facet.id != GALLEY_FACET_TRAINABLE) TRY_STATUS(ask(c, facet, subjects));
  return ok();
}

}  // namespace galley
