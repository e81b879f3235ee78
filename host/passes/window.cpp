// What a window begins with and a step ends with: the step scalars that the device owns.
//
// The window part runs before the first micro-batch: the host's nodes, those of strategies (a loss scale, a weight's norm), then what
// follows from both (the loss seed, scheduled options). Each micro-batch moves the random numbers' row on (with several lanes, `place` does
// this), and the update ends by counting itself if it was applied.
#include <algorithm>
#include <map>
#include <set>

#include "galley/rewrite.h"
#include "host/passes/passes.hpp"
#include "host/passes/rewrite.hpp"

namespace galley {
namespace {

Status append(Compilation& c, const galley_op* op, const std::string& name, std::vector<galley_tensor> inputs, AttrList attrs,
              std::vector<galley_tensor> outputs) {
  TRY(c.graph.append(op, name, std::move(inputs), std::move(attrs), &outputs));
  return ok();
}

/// The host says with each step what an option is at the applied steps that this one can be: which of them it is, the device knows. So the
/// program does not depend on the number of steps. The values of an option's factors are one.
Status schedules(Compilation& c) {
  Graph& graph = c.graph;
  galley_tensor first = 0;
  std::map<std::string, galley_tensor> values;
  for (size_t i = 0; i < c.draft.scalars.slots.size(); ++i) {
    if (c.draft.scalars.slots[i].which) continue;
    if (!first) {
      first = TRY(c.draft.scalars.in_host_block("scheduled from", GALLEY_I64, 1));
      c.draft.scalars.scheduled_from = graph.tensor(first).slice.offset;
    }
    const auto [at, fresh] = values.try_emplace(std::to_string(c.draft.scalars.slots[i].use) + " " + c.draft.scalars.slots[i].option, 0);
    if (fresh)
      at->second =
          TRY(c.draft.scalars.in_host_block("values." + c.draft.scalars.slots[i].tensor_name, GALLEY_F64, c.target.steps_under_way()));
    ScalarSlot& slot = c.draft.scalars.slots[i];
    slot.values = graph.tensor(at->second).slice.offset;
    AttrList attrs;
    attrs.set("factor", slot.factor);
    TRY_STATUS(append(c, c.roles.scheduled, "window." + slot.tensor_name,
                      {TRY(c.draft.scalars.get(GALLEY_SCALAR_APPLIED_STEP)), first, at->second}, std::move(attrs),
                      {graph.find(slot.tensor_name)}));
  }
  return ok();
}

/// What the host reads of a step lies in the block.
Status gather(Compilation& c, galley_tensor* t, const std::string& name) {
  const GraphTensor& x = c.graph.tensor(*t);
  if (x.slice.of == c.draft.scalars.tensor) return ok();
  const galley_tensor slot = TRY(c.draft.scalars.in_block(name, x.dtype, 1, c.draft.scalars.reserve(galley_dtype_bytes(x.dtype))));
  TRY_STATUS(append(c, c.roles.copy, "update." + name, {*t}, {}, {slot}));
  *t = slot;
  return ok();
}

/// Tensors of a lane: its loss so far, and the random numbers' row with which it begins.
Status lanes(Compilation& c, galley_tensor loss, galley_tensor random) {
  Graph& graph = c.graph;
  for (galley_tensor t = 1; t <= graph.tensor_count(); ++t)
    if (const GraphTensor& x = graph.tensor(t); x.written_forward() && x.kind != GALLEY_KIND_CACHE && !x.unused)
      return recipe_error(label(c.strategies, x.use) + ": the state '" + x.name +
                              "' is written in each micro-batch, one after the other, which lanes do not do",
                          "leave the strategy out, or the lanes: one process needs none");
  const auto made = [&](const char* name, galley_tensor like) -> Result<galley_tensor> {
    const GraphTensor x = graph.tensor(like);
    return c.draft.scalars.in_block(name, x.dtype, x.count(), c.draft.scalars.reserve(x.bytes()));
  };
  c.lane_loss = TRY(made("loss of the lane", loss));
  TRY_STATUS(append(c, c.roles.loss_begin, "window.loss of the lane", {}, {}, {c.lane_loss}));
  if (!random) return ok();
  c.lane_random = TRY(made("random of the lane", random));
  return ok();
}

bool draws(const Graph& graph, galley_tensor random) {
  for (const Section s : {Section::Forward, Section::Backward})
    for (const galley_node n : graph.section(s))
      for (const galley_tensor t : graph.node(n).inputs)
        if (t == random) return true;
  return false;
}

/// Whether a step may be skipped: nodes of the update decide on it.
bool skips(const Graph& graph, galley_tensor apply) {
  return std::ranges::any_of(graph.section(Section::Update), [&](galley_node n) {
    const std::vector<galley_tensor> written = written_by(graph.node(n));
    return std::ranges::find(written, apply) != written.end();
  });
}

/// A step that is skipped leaves the states that forward writes as they were: a copy is made before the first micro-batch.
Status keep_skipped(Compilation& c, galley_tensor apply) {
  Graph& graph = c.graph;
  if (!skips(graph, apply)) return ok();
  std::set<galley_tensor> written;
  for (const galley_node n : graph.section(Section::Forward))
    for (const galley_tensor t : written_by(graph.node(n)))
      if (graph.tensor(t).written_forward()) written.insert(t);
  for (const galley_tensor t : written) {
    const std::string name = graph.tensor(t).name;
    std::vector<galley_tensor> before = {0};
    {
      const Graph::As as(graph, {Section::Window});
      TRY(graph.append(c.roles.copy, "window.keep " + name, {t}, {}, &before));
    }
    const Graph::As as(graph, {Section::Update});
    TRY_STATUS(append(c, c.roles.put_back, "update.keep " + name, {t, before[0], apply}, {}, {}));
  }
  return ok();
}

}  // namespace

Status window(Compilation& c) {
  Graph& graph = c.graph;
  GraphTensor applied;
  applied.name = "applied steps";
  applied.dtype = GALLEY_I64;
  applied.shape = {1};
  applied.kind = GALLEY_KIND_STATE;
  c.applied = TRY(graph.make(std::move(applied)));
  const auto scalar = [&](uint32_t which) { return *c.draft.scalars.get(which); };  // all were made with the graph
  const bool one_lane = c.decisions.lanes.lanes == 1;
  const bool drawn = c.backward() && draws(graph, scalar(GALLEY_SCALAR_RANDOM));
  {
    const Graph::As as(graph, {Section::Window});
    AttrList attrs;
    attrs.set("seed", static_cast<int64_t>(c.options.seed));
    attrs.set("rows", graph.rows());
    TRY_STATUS(append(
        c, c.roles.step_begin, "window.begin", {scalar(GALLEY_SCALAR_ATTEMPTED_STEP), c.applied}, std::move(attrs),
        {scalar(GALLEY_SCALAR_APPLIED_STEP), scalar(GALLEY_SCALAR_APPLY), scalar(GALLEY_SCALAR_LOSS_SCALE), scalar(GALLEY_SCALAR_RANDOM)}));
    TRY_STATUS(append(c, c.roles.loss_begin, "window.loss", {}, {}, {scalar(GALLEY_SCALAR_LOSS)}));
  }
  TRY_STATUS(rewrite_part(c, RewriteOf::Window, Section::Window, "window."));
  const Graph::As as(graph, {Section::Window});
  TRY_STATUS(append(c, c.roles.loss_seed, "window.seed", {scalar(GALLEY_SCALAR_LOSS_SCALE), scalar(GALLEY_SCALAR_WINDOW_TOKENS)}, {},
                    {scalar(GALLEY_SCALAR_LOSS_SEED), scalar(GALLEY_SCALAR_GRADIENT_FACTOR)}));
  TRY_STATUS(schedules(c));
  if (!one_lane) TRY_STATUS(lanes(c, scalar(GALLEY_SCALAR_LOSS), drawn ? scalar(GALLEY_SCALAR_RANDOM) : 0));
  graph.sort(Section::Window);
  if (drawn && one_lane) {
    AttrList attrs;
    attrs.set("rows", graph.rows());
    const Graph::As micro(graph, {Section::Forward});
    TRY_STATUS(append(c, c.roles.next_rows, "micro.rows", {scalar(GALLEY_SCALAR_RANDOM)}, std::move(attrs), {}));
    std::vector<galley_node>& forward = graph.section(Section::Forward);
    std::rotate(forward.begin(), forward.end() - 1, forward.end());
  }
  if (!c.trains()) return ok();
  TRY_STATUS(keep_skipped(c, scalar(GALLEY_SCALAR_APPLY)));
  const Graph::As end(graph, {Section::Update});
  for (Reported& r : c.draft.signals.reports) TRY_STATUS(gather(c, &r.tensor, "reported " + r.name));
  for (size_t i = 0; i < c.draft.signals.stops.size(); ++i)
    TRY_STATUS(gather(c, &c.draft.signals.stops[i].tensor, "stop " + std::to_string(i + 1)));
  return append(c, c.roles.step_end, "update.end", {scalar(GALLEY_SCALAR_APPLY), c.applied}, {}, {});
}

}  // namespace galley
