#include "host/tools/compare/control.hpp"

namespace galley {

Result<std::string> control_strategy(const Study& study) {
  for (const auto& plugin : study.plugins->all())
    for (const StrategySpec& strategy : plugin->manifest.strategies)
      if (strategy.control && study.built_in(*plugin)) return strategy.name;
  return plugin_error("no plugin has a strategy for the control: the recipe with other rounding errors",
                      "one comes with the program, in the folder 'plugins' beside it; its manifest says control = true");
}

}  // namespace galley
