#include "host/passes/strategies.hpp"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <tuple>

#include "host/base/json.hpp"

namespace galley {

std::vector<int> in_order(Strategies strategies, const std::function<uint32_t(const LoadedStrategy&)>& number) {
  std::vector<int> out(strategies.size());
  std::iota(out.begin(), out.end(), 0);
  const auto key = [&](int use) {
    const LoadedStrategy& s = *strategies[static_cast<size_t>(use)];
    return std::tuple(number(s), s.name(), to_json(Value(s.options().values())));
  };
  std::stable_sort(out.begin(), out.end(), [&](int a, int b) { return key(a) < key(b); });
  return out;
}

std::string label(Strategies strategies, int use) {
  if (use == no_use) return "";
  const LoadedStrategy& s = *strategies[static_cast<size_t>(use)];
  return s.name() + " (" + s.place().text() + ")";
}

std::string label_and_plugin(Strategies strategies, int use) {
  if (use == no_use) return "";
  return label(strategies, use) + ", plugin '" + strategies[static_cast<size_t>(use)]->plugin().manifest.id + "'";
}

Error strategy_error(Strategies strategies, int use, const std::string& cause, std::string hint) {
  const std::string who = label_and_plugin(strategies, use);
  return plugin_error(who.empty() ? cause : who + ": " + cause, std::move(hint));
}

Result<Schedule> option_schedule(const LoadedStrategy& strategy, const std::string& option) {
  if (const Schedule* schedule = strategy.options().schedule(option)) return *schedule;
  const auto number = strategy.options().number(option, 1);
  if (!number)
    return plugin_error(strategy.place().text() + ": " + strategy.name() + " asks for its option '" + option +
                        "' as a number, and it has none");
  Schedule constant;
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", *number);
  constant.text = text;
  constant.table = {*number};
  return constant;
}

}  // namespace galley
