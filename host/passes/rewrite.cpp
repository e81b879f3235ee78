#include "host/passes/rewrite.hpp"

#include <algorithm>
#include <functional>

#include "galley/rewrite.h"
#include "host/passes/passes.hpp"
#include "host/passes/verbs/handle.hpp"

namespace galley {
namespace {

/// Returns the strategies that rewrite, phase by phase.
std::vector<int> rewriters(Strategies strategies) {
  std::vector<int> out = in_order(
      strategies, [](const LoadedStrategy& s) { return s.rewrite() && s.rewrite()->phase ? s.rewrite()->phase : GALLEY_PHASE_ADD; });
  std::erase_if(out, [&](int use) { return !strategies[static_cast<size_t>(use)]->rewrite(); });
  return out;
}

/// A strategy's function for a part of a run, with the verbs of that part; none: it leaves the part alone.
std::function<galley_status(galley_graph*, galley_error*)> call_of(const galley_rewrite& table, RewriteOf of, void* instance) {
  const auto with = [&](auto function, const auto* verbs) -> std::function<galley_status(galley_graph*, galley_error*)> {
    if (!function) return {};
    return [=](galley_graph* graph, galley_error* error) { return function(instance, verbs, graph, error); };
  };
  switch (of) {
    case RewriteOf::Model: return with(table.model, GraphHandle::model_verbs());
    case RewriteOf::Window: return with(table.window, GraphHandle::verbs());
    case RewriteOf::Load: return with(table.load, GraphHandle::load_verbs());
    case RewriteOf::Save: return with(table.save, GraphHandle::export_verbs());
    case RewriteOf::Merge: return with(table.merge, GraphHandle::export_verbs());
  }
  return {};
}

/// The positions to sample from, counted in the micro-batch, are an input that strategies see.
Status make_position(Compilation& c) {
  GraphTensor t;
  t.name = "sample position";
  t.dtype = GALLEY_I32;
  t.shape = {c.graph.rows()};
  t.kind = GALLEY_KIND_INPUT;
  c.graph.marks.position = TRY(c.graph.make(std::move(t)));
  return ok();
}

}  // namespace

Status rewrite_part(Compilation& c, RewriteOf of, Section section, const std::string& prefix) {
  for (const int use : rewriters(c.strategies)) {
    const LoadedStrategy& s = *c.strategies[static_cast<size_t>(use)];
    const auto call = call_of(*s.rewrite(), of, s.instance());
    if (!call) continue;
    TRY_STATUS(call_strategy(c, {section, use, -1, 0, prefix}, "rewrite", call));
    if (section != Section::Forward) continue;
    c.graph.sort(section);
    c.graph.drop_unread(section);
  }
  return ok();
}

Status rewrite(Compilation& c) {
  if (c.generates()) TRY_STATUS(make_position(c));
  c.graph.sort(Section::Forward);
  return rewrite_part(c, RewriteOf::Model, Section::Forward);
}

}  // namespace galley
