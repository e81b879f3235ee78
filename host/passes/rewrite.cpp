#include "host/passes/rewrite.hpp"

#include <algorithm>
#include <tuple>

#include "galley/rewrite.h"
#include "host/base/json.hpp"
#include "host/passes/passes.hpp"

namespace galley {
namespace {

/// The strategies that rewrite, in an order that does not depend on the recipe's.
std::vector<int> rewriters(Strategies strategies) {
  std::vector<int> out;
  for (size_t i = 0; i < strategies.size(); ++i)
    if (strategies[i]->rewrite()) out.push_back(static_cast<int>(i));
  const auto key = [&](int use) {
    const LoadedStrategy& s = *strategies[static_cast<size_t>(use)];
    const uint32_t phase = s.rewrite()->phase;
    return std::tuple(phase ? phase : GALLEY_PHASE_ADD, s.name(), to_json(Value(s.options().values())));
  };
  std::stable_sort(out.begin(), out.end(), [&](int a, int b) { return key(a) < key(b); });
  return out;
}

}  // namespace

Status rewrite_segment(Compilation& c, uint32_t segment, Section section, const std::string& prefix) {
  for (const int use : rewriters(c.strategies)) {
    const LoadedStrategy& s = *c.strategies[static_cast<size_t>(use)];
    TRY_STATUS(call_strategy(c.graph, c.strategies, {section, use, -1, 0, prefix}, "rewrite", [&](galley_error* error) {
      return s.rewrite()->rewrite(s.instance(), Graph::verbs(), c.graph.handle(), segment, error);
    }));
    if (section != Section::Forward) continue;
    c.graph.sort(section);
    c.graph.drop_unread(section);
  }
  return ok();
}

Status rewrite(Compilation& c) {
  c.graph.sort(Section::Forward);
  return rewrite_segment(c, GALLEY_SEGMENT_MODEL, Section::Forward);
}

}  // namespace galley
