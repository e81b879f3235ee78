#include "host/tokens/tokenizer/growth.hpp"

#include <algorithm>
#include <cstdio>

namespace galley {

Status Growth::add(const JsonObject& rule, double times) {
  so_far_ *= std::max(1.0, times);
  if (so_far_ <= kMost) return ok();
  char number[32];
  std::snprintf(number, sizeof number, "%g", so_far_);
  return rule.wrong("with the rules before it, this " + rule.type() + " can make a text " + std::string(number) +
                    " times as long; 64 times is the most");
}

double growth_of_replace(const JsonObject::Pattern& what, const std::string& by) {
  const auto size = static_cast<double>(by.size());
  // A regular expression may match nothing, before and after each byte.
  if (what.regex) return by.empty() ? 1 : size + 1;
  return what.text.empty() ? 1 : size / static_cast<double>(what.text.size());
}

}  // namespace galley
