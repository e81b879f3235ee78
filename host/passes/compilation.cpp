#include "host/passes/compilation.hpp"

#include <algorithm>

#include "galley/update.h"

namespace galley {

bool Compilation::averages() const {
  return !backward() && !decisions.trainable.empty() && std::any_of(strategies.begin(), strategies.end(), [](const auto& s) {
    return s->update() && s->update()->stage == GALLEY_STAGE_AFTER;
  });
}

bool Compilation::within_limits(const std::vector<int64_t>& before, const std::vector<int64_t>& after) const {
  const auto within = [](int64_t was, int64_t is, int64_t limit) { return limit <= 0 || is <= std::max(was, limit); };
  int64_t others = 0;
  for (size_t i = 0; i < after.size(); ++i) {
    if (!within(before[i], after[i], target.memories[i].capacity)) return false;
    if (i > 0 && target.memories[0].host_access && target.memories[i].host_access) others += after[i];
  }
  return within(others + before[0], others + after[0], options.memory_limit);
}

std::string choice_text(const Compilation& c, uint32_t choice) {
  switch (choice_how(choice)) {
    case GALLEY_KEEP: return "keep";
    case GALLEY_RECOMPUTE: return "recompute once";
    case GALLEY_RECOMPUTE_EACH: return "recompute each";
    default: return "offload to " + c.target.memories[choice_memory(choice)].name;
  }
}

const char* stage_name(uint32_t stage) {
  constexpr const char* names[] = {"?", "CHECK", "CLIP", "GRADIENT", "STEP", "AFTER"};
  return names[stage <= GALLEY_STAGE_AFTER ? stage : 0];
}

}  // namespace galley
