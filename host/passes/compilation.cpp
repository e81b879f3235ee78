#include "host/passes/compilation.hpp"

#include <algorithm>

#include "galley/update.h"

namespace galley {

bool Compilation::asks_for_evaluation() const {
  const bool evaluates = trains() ? options.evaluates || options.exports : !backward();
  return evaluates && !decisions.trainable.empty() &&
         std::any_of(strategies.begin(), strategies.end(), [](const auto& s) { return s->update(); });
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
    case kCompress: return "compress into " + c.saved.formats[choice_where(choice)].name;
    default: return "offload to " + c.target.memories[choice_where(choice)].name;
  }
}

std::string stage_names(uint32_t stages) {
  constexpr const char* names[] = {"CHECK", "CLIP", "GRADIENT", "STEP", "AFTER"};
  std::string out;
  for (size_t i = 0; i < std::size(names); ++i)
    if (stages >> i & 1) out += (out.empty() ? "" : " and ") + std::string(names[i]);
  return out;
}

}  // namespace galley
