// Strategies decide properties: of what the model has, of gradients once backward is there, and of what updates have made.
#include <algorithm>

#include "host/passes/facets.hpp"
#include "host/passes/matches.hpp"
#include "host/passes/passes.hpp"

namespace galley {
namespace {

void add_tensors(const Graph& graph, uint32_t kind, uint32_t subject, galley_tensor but, std::vector<Who>* subjects) {
  for (galley_tensor t = 1; t <= graph.tensor_count(); ++t)
    if (const GraphTensor& x = graph.tensor(t); x.kind == kind && t != but && !x.written_forward()) subjects->push_back({subject, t});
}

void add_nodes(const Graph& graph, Section section, std::vector<Who>* subjects) {
  for (const galley_node n : graph.section(section)) subjects->push_back({GALLEY_SUBJECT_NODE, 0, n});
}

/// Shares the window's micro-batches out over lanes, and these over processes.
Status share_out(Compilation& c) {
  Lanes out = c.options.lanes;
  const int64_t groups = out.groups();
  const std::string shares = out.together > 1 ? "groups of " + std::to_string(out.together) + " processes" : "processes";
  if (out.lanes == 0) out.lanes = groups;
  const int64_t all = c.decisions.micro_batches;
  const std::string over = c.options.lanes.lanes ? "lanes" : shares;
  const std::string window = "a window has " + std::to_string(all) + (all == 1 ? " micro-batch" : " micro-batches");
  if (out.lanes > all)
    return recipe_error(window + ", which cannot be shared out over " + std::to_string(out.lanes) + " " + over,
                        "let it have " + std::to_string(out.lanes) + " or more, or take fewer " + over);
  if (out.lanes % groups != 0) {
    std::string fit;
    for (int64_t n = 1; n <= out.lanes; ++n)
      if (out.lanes % n == 0) fit += (fit.empty() ? "" : n == out.lanes ? " or " : ", ") + std::to_string(n);
    return recipe_error(
        "the run has " + std::to_string(out.lanes) + " lanes, which cannot be shared out over " + std::to_string(groups) + " " + shares,
        "start " + fit + " of them");
  }
  c.decisions.lanes = out;
  return ok();
}

}  // namespace

Status claim_model(Compilation& c) {
  const Graph::As as(c.graph, {});
  std::vector<Who> subjects;
  for (galley_tensor t = 1; t <= c.graph.tensor_count(); ++t)
    if (c.graph.tensor(t).parameter_kind() && !c.graph.replaced(t)) subjects.push_back({GALLEY_SUBJECT_PARAMETER, t});
  add_nodes(c.graph, Section::Forward, &subjects);
  subjects.push_back({GALLEY_SUBJECT_RUN});
  TRY_STATUS(check_matches(c));
  TRY_STATUS(ask_trainable(c, subjects));
  if (c.backward() && c.decisions.trainable.empty())
    return recipe_error("nothing is left to train: every parameter is frozen", "narrow what is frozen, or add an adapter");
  TRY_STATUS(check_trained_matches(c));
  TRY_STATUS(ask_facets(c, subjects));
  TRY_STATUS(check_optimizers(c));
  c.draft.run.micro_batches = c.options.micro_batches > 0 ? c.options.micro_batches : c.decisions.micro_batches;
  return c.trains() ? share_out(c) : ok();
}

Status claim_gradients(Compilation& c) {
  const Graph::As as(c.graph, {Section::Backward});
  std::vector<Who> subjects;
  add_tensors(c.graph, GALLEY_KIND_GRADIENT, GALLEY_SUBJECT_GRADIENT, 0, &subjects);
  TRY_STATUS(ask_facets(c, subjects));
  // A lane of one micro-batch keeps no whole gradient until its next one.
  const auto parts = [&](const Who& who) { return c.graph.tensor(who.tensor).storage.shard != GALLEY_SHARD_NO; };
  Lanes& lanes = c.decisions.lanes;
  if (c.trains() && lanes.groups() > 1 && c.options.lanes.lanes == 0 && std::ranges::any_of(subjects, parts))
    lanes.lanes = c.decisions.micro_batches / lanes.groups() * lanes.groups();
  return ok();
}

Status claim_made(Compilation& c) {
  const Graph::As as(c.graph, {Section::Update});
  std::vector<Who> subjects;
  add_tensors(c.graph, GALLEY_KIND_STATE, GALLEY_SUBJECT_STATE, c.applied, &subjects);
  TRY_STATUS(check_state_matches(c));
  add_nodes(c.graph, Section::Window, &subjects);
  add_nodes(c.graph, Section::Update, &subjects);
  return ask_facets(c, subjects);
}

}  // namespace galley
