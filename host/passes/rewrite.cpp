#include "host/passes/rewrite.hpp"

#include "galley/rewrite.h"
#include "host/passes/passes.hpp"

namespace galley {

Status rewrite_segment(Compilation& c, uint32_t segment, Section section) {
  for (size_t i = 0; i < c.strategies.size(); ++i) {
    const LoadedStrategy& s = *c.strategies[i];
    if (!s.rewrite()) continue;
    TRY_STATUS(call_strategy(c.graph, c.strategies, {section, static_cast<int>(i)}, "rewrite", [&](galley_error* error) {
      return s.rewrite()->rewrite(s.instance(), Graph::verbs(), c.graph.handle(), segment, error);
    }));
    if (section == Section::Forward) c.graph.sort(section);
  }
  return ok();
}

Status rewrite(Compilation& c) {
  c.graph.sort(Section::Forward);
  return rewrite_segment(c, GALLEY_SEGMENT_MODEL, Section::Forward);
}

}  // namespace galley
